/* What a policy decided, written into a row; and continuations. No model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "emulate/continuation.h"
#include "emulate/override.h"
#include "tests/fixtures/random.h"

#include <string.h>

enum { K = 4 };

static const struct gm_decision decided[K] = {
	{.action = GM_USE, .expert = 7},
	{.action = GM_SUBSTITUTE, .expert = 3, .substitute = 9},
	{.action = GM_FETCH, .expert = 5},
	{.action = GM_DROP, .expert = 1},
};

static void test_experts(void **state)
{
	int32_t expert[K] = {7, 3, 5, 1}, turned[K] = {1, 5, 3, 7};
	uint16_t rank[K];

	(void)state;
	assert_true(gm_override_is_needed(decided, K));
	assert_false(gm_override_is_needed(decided, 1));
	gm_override_experts(decided, K, expert, rank);
	assert_memory_equal(expert, ((int32_t[K]){7, 9, 5, 1}), sizeof(expert));
	assert_memory_equal(rank, ((uint16_t[K]){0, 1, 2, 3}), sizeof(rank));
	/* the slots' order is the model's */
	gm_override_experts(decided, K, turned, rank);
	assert_memory_equal(turned, ((int32_t[K]){1, 5, 9, 7}), sizeof(turned));
	assert_memory_equal(rank, ((uint16_t[K]){3, 2, 1, 0}), sizeof(rank));
}

/* The model took 2 where the decisions are about 5 (two equal scores at the last rank, say). */
static void test_tie(void **state)
{
	int32_t expert[K] = {7, 2, 3, 1};
	uint16_t rank[K];

	(void)state;
	gm_override_experts(decided, K, expert, rank);
	assert_memory_equal(expert, ((int32_t[K]){7, 5, 9, 1}), sizeof(expert));
	assert_memory_equal(rank, ((uint16_t[K]){0, 2, 1, 3}), sizeof(rank));
}

static void test_weights(void **state)
{
	const uint16_t rank[K] = {3, 2, 1, 0};
	const float missed[K] = {0.4f, 0.3f, 0.2f, 0.1f}, start[K] = {0.1f, 0.2f, 0.05f, 0.4f};
	struct gm_override override = {GM_SUBSTITUTE_OWN, GM_DROP_RENORMALISE};
	float weight[K];

	(void)state;
	memcpy(weight, start, sizeof(weight));
	gm_override_weights(&override, decided, K, rank, missed, 0, weight);
	assert_memory_equal(weight, ((float[K]){0, 0.2f, 0.05f, 0.4f}), sizeof(weight));
	override = (struct gm_override){GM_SUBSTITUTE_MISSED, GM_DROP_KEEP};
	memcpy(weight, start, sizeof(weight));
	gm_override_weights(&override, decided, K, rank, missed, 0, weight);
	assert_memory_equal(weight, ((float[K]){0.1f, 0.2f, 0.3f, 0.4f}), sizeof(weight));
	gm_override_gates(decided, K, rank, weight);
	assert_memory_equal(weight, ((float[K]){0, 0.2f, 0.3f, 0.4f}), sizeof(weight));
}

/* Rows of 10 distinct picks, any decisions, any tie among the model's: ids stay distinct, and every decision has one slot. */
static void test_distinct(void **state)
{
	enum { EXPERTS = 40, PICKS = 10 };
	struct fixture_random random = {7};

	(void)state;
	for (int round = 0; round < 20000; round++) {
		struct gm_decision decision[PICKS] = {0};
		uint16_t order[EXPERTS], rank[PICKS], n_slot[PICKS] = {0};
		int32_t expert[PICKS];
		bool seen[EXPERTS] = {false};

		for (uint16_t i = 0; i < EXPERTS; i++)
			order[i] = i;
		for (uint32_t i = EXPERTS; i-- > 1;) {
			uint32_t j = (uint32_t)(fixture_next(&random) % (i + 1));
			uint16_t swap = order[i];

			order[i] = order[j];
			order[j] = swap;
		}
		for (uint32_t r = 0; r < PICKS; r++) {
			decision[r].expert = order[r];
			decision[r].action = (uint8_t)(fixture_next(&random) % 5);
			decision[r].substitute = order[PICKS + r];
			expert[r] = order[(r * 3 + (uint32_t)round) % PICKS];
		}
		if (round % 2)
			expert[round / 2 % PICKS] = order[EXPERTS - 1];
		gm_override_experts(decision, PICKS, expert, rank);
		for (uint32_t i = 0; i < PICKS; i++) {
			assert_false(seen[expert[i]]);
			seen[expert[i]] = true;
			n_slot[rank[i]]++;
		}
		for (uint32_t r = 0; r < PICKS; r++)
			assert_int_equal(n_slot[r], 1);
	}
}

static void test_compare(void **state)
{
	int32_t a[] = {1, 2, 3, 4}, b[] = {1, 9, 3, 4, 5};
	struct gm_continuation mine = {.token = a, .n = 4}, other = {.token = b, .n = 5};

	(void)state;
	gm_continuation_compare(&mine, &other);
	assert_int_equal(mine.n_compared, 5);
	assert_int_equal(mine.n_agree, 3);
	assert_int_equal(mine.first_difference, 1);
	gm_continuation_compare(&mine, &mine);
	assert_int_equal(mine.n_agree, 4);
	assert_int_equal(mine.first_difference, UINT32_MAX);
	other = (struct gm_continuation){.token = a, .n = 2};
	gm_continuation_compare(&other, &mine);
	assert_int_equal(other.n_compared, 4);
	assert_int_equal(other.first_difference, 2);
	other.n = 0;
	gm_continuation_compare(&other, &other);
	assert_int_equal(other.n_compared, 0);
	assert_int_equal(other.first_difference, UINT32_MAX);
}

static void test_matches(void **state)
{
	(void)state;
	assert_true(gm_continuation_matches(" 42\nNext", "42"));
	assert_true(gm_continuation_matches("42", " 42 \n"));
	assert_true(gm_continuation_matches("f(x);g", "f(x);"));
	assert_false(gm_continuation_matches("421", "42"));
	assert_false(gm_continuation_matches("4", "42"));
	assert_false(gm_continuation_matches("", "42"));
	assert_true(gm_continuation_matches("anything", ""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_experts),  cmocka_unit_test(test_tie),     cmocka_unit_test(test_weights),
		cmocka_unit_test(test_distinct), cmocka_unit_test(test_compare), cmocka_unit_test(test_matches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
