/* policies/minima.h and what stands on it: two pools that get the same random events must give up the same items, whatever vectors the machine
 * has, and however often lfu numbers its ticks anew. */
#define gm_evict_lfu few_ticks
#define GM_LFU_TICK_BITS 6
#include "policies/evict_lfu.c"
#undef gm_evict_lfu

#include "policies/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ITEM = 700, TOP_K = 6, N_EVENT = 4000 };

struct twins {
	const struct gm_evict_ops *ops[2];
	const double *arg[2];
	uint64_t first_token[2];
	struct gm_minima *state[2];
	uint32_t n_item, n_slot, n_resident;
	uint8_t residency[MAX_ITEM], pin[MAX_ITEM];
	uint64_t rng, n_eviction;
};

static uint32_t below(struct twins *t, uint32_t n)
{
	t->rng = t->rng * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)((t->rng >> 33) % n);
}

static void start(struct twins *t)
{
	struct gm_pool_dims dims = {.n_item = t->n_item, .n_slot = t->n_slot, .n_expert = t->n_item};

	for (int i = 0; i < 2; i++) {
		t->state[i] = calloc(1, t->ops[i]->state_bytes(&dims, t->arg[i]));
		assert_non_null(t->state[i]);
		t->ops[i]->init(t->state[i], &dims, t->arg[i], false);
	}
	for (uint32_t item = 0; item < t->n_slot / 2; item++) {
		t->residency[item] = GM_RESIDENT;
		t->n_resident++;
		for (int i = 0; i < 2; i++)
			t->ops[i]->insert(t->state[i], item, true);
	}
}

static uint32_t victim(struct twins *t, struct gm_candidates candidates, uint32_t item)
{
	uint32_t of[2];

	for (int i = 0; i < 2; i++) {
		of[i] = t->ops[i]->victim(t->state[i], &candidates, item);
		candidates.token += t->first_token[1] - t->first_token[0];
	}
	assert_int_equal(of[0], of[1]);
	return of[0];
}

static void fetch(struct twins *t, const struct gm_candidates *candidates, uint32_t item)
{
	if (t->n_resident == t->n_slot) {
		uint32_t left = victim(t, *candidates, item);

		if (left == GM_NO_ITEM || left == item)
			return;
		for (int i = 0; i < 2; i++)
			t->ops[i]->forget(t->state[i], left);
		t->residency[left] = GM_ABSENT;
		t->n_resident--;
		t->n_eviction++;
	}
	t->residency[item] = GM_RESIDENT;
	t->n_resident++;
	for (int i = 0; i < 2; i++)
		t->ops[i]->insert(t->state[i], item, false);
	t->pin[item] = candidates->stamp;
}

static void play(struct twins *t, uint64_t token)
{
	struct gm_candidates candidates = {.residency = t->residency,
					   .pin = t->pin,
					   .stamp = (uint8_t)(token % 255 + 1),
					   .token = t->first_token[0] + token};
	uint64_t next_use[TOP_K];
	uint16_t pick[TOP_K];
	struct gm_requests requests = {.n = TOP_K, .expert = pick, .next_use = next_use};

	candidates.requests = &requests;
	if (token % 255 == 0)
		memset(t->pin, 0, sizeof(t->pin));
	for (uint32_t r = 0; r < TOP_K; r++) {
		uint32_t range = t->n_item / TOP_K;

		pick[r] = (uint16_t)((below(t, 2) ? below(t, range) : below(t, range / 4 + 1)) * TOP_K + r);
		next_use[r] = below(t, 9) ? token + 1 + below(t, 60) : GM_NEVER;
		if (t->residency[pick[r]] == GM_RESIDENT)
			t->pin[pick[r]] = candidates.stamp;
	}
	for (uint32_t n = below(t, 3); n > 0; n--) /* substitutes */
		t->pin[below(t, t->n_item)] = candidates.stamp;
	for (int i = 0; i < 2; i++) {
		requests.token = t->first_token[i] + token;
		t->ops[i]->access(t->state[i], &requests);
	}
	for (uint32_t r = 0; r < TOP_K; r++)
		if (t->residency[pick[r]] != GM_RESIDENT)
			fetch(t, &candidates, pick[r]);
}

static void play_all(struct twins *t, bool plain)
{
	start(t);
	if (plain)
		t->state[1]->avx2 = false;
	for (uint64_t token = 0; token < N_EVENT; token++)
		play(t, token);
	assert_true(t->n_eviction > N_EVENT / 2);
	free(t->state[0]);
	free(t->state[1]);
}

static void vectors_change_nothing(void **state)
{
	static const char *const names[] = {"lfu", "lfu-decay:3", "lfu-decay:64", "belady", "belady-bypass"};
	static const uint32_t n_item[] = {12, 67, 512, 700};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		for (size_t n = 0; n < sizeof(n_item) / sizeof(*n_item); n++) {
			for (uint32_t part = 2; part < 5; part++) {
				struct twins t = {
					.n_item = n_item[n], .n_slot = n_item[n] / part, .rng = i * 100 + n * 10 + part};
				struct gm_error err = {0};
				struct gm_evict evict;

				assert_int_equal(gm_evict_parse(names[i], &evict, &err), 0);
				t.ops[0] = t.ops[1] = evict.ops;
				t.arg[0] = t.arg[1] = evict.arg;
				play_all(&t, true);
			}
		}
	}
}

static void few_ticks_change_nothing(void **state)
{
	struct gm_error err = {0};
	struct gm_evict evict;

	(void)state;
	assert_int_equal(gm_evict_parse("lfu", &evict, &err), 0);
	for (uint32_t n_slot = 6; n_slot < 30; n_slot++) {
		/* there must be more ticks than items */
		struct twins t = {.n_item = 48, .n_slot = n_slot, .ops = {evict.ops, &few_ticks}, .rng = n_slot};

		play_all(&t, false);
	}
}

/* What has faded to nothing within a token is the same, however far below it the half-life lies. */
static void half_lives_of_next_to_nothing_are_one(void **state)
{
	static const double half_life[] = {1e-4, 1e-15, 3.65247e-19, 1e-40, 1e-300, 5e-324};
	struct gm_error err = {0};
	struct gm_evict evict;

	(void)state;
	assert_int_equal(gm_evict_parse("lfu-decay:1", &evict, &err), 0);
	for (size_t i = 1; i < sizeof(half_life) / sizeof(*half_life); i++) {
		struct twins t = {.n_item = 96, .n_slot = 40, .ops = {evict.ops, evict.ops}, .rng = i};

		t.arg[0] = &half_life[0];
		t.arg[1] = &half_life[i];
		play_all(&t, false);
	}
}

/* Only how long ago a count was counts, not when. */
static void late_tokens_change_nothing(void **state)
{
	static const char *const names[] = {"lfu-decay:0.3",        "lfu-decay:1.3",        "lfu-decay:3.7",
					    "lfu-decay:1.44042008", "lfu-decay:1.44042013", "lfu-decay:1e5"};
	struct gm_error err = {0};
	struct gm_evict evict;

	(void)state;
	for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++) {
		for (uint32_t n_slot = 40; n_slot < 60; n_slot++) {
			struct twins t = {.n_item = 96, .n_slot = n_slot, .first_token = {0, 4100000000u}, .rng = n_slot};

			assert_int_equal(gm_evict_parse(names[n], &evict, &err), 0);
			t.ops[0] = t.ops[1] = evict.ops;
			t.arg[0] = t.arg[1] = evict.arg;
			play_all(&t, false);
		}
	}
}

/* As many events as next uses can tell apart: 2^32 tokens in 1,024 layers. */
static void events_of_the_longest_trace_are_in_order(void **state)
{
	static const uint64_t next_use[] = {(UINT64_C(1) << 36) + 5, 5, GM_NEVER, (UINT64_C(1) << 42) - 1025};
	static const uint32_t leave[] = {2, 3, 0, 1};
	uint16_t pick[] = {0, 1, 2, 3};
	static uint8_t residency[1u << 20], pin[1u << 20];
	struct gm_pool_dims dims = {.n_item = 1u << 20, .n_slot = 4, .n_expert = 1u << 10};
	struct gm_candidates candidates = {.residency = residency, .pin = pin, .stamp = 1};
	struct gm_requests requests = {.n = 4, .expert = pick, .first_item = dims.n_item - 4, .next_use = next_use};
	struct gm_error err = {0};
	struct gm_evict evict;

	(void)state;
	assert_int_equal(gm_evict_parse("belady", &evict, &err), 0);
	void *pool = calloc(1, evict.ops->state_bytes(&dims, evict.arg));

	assert_non_null(pool);
	evict.ops->init(pool, &dims, evict.arg, false);
	evict.ops->access(pool, &requests);
	for (uint32_t i = 0; i < 4; i++) {
		residency[requests.first_item + i] = GM_RESIDENT;
		evict.ops->insert(pool, requests.first_item + i, false);
	}
	requests.n = 0;
	evict.ops->access(pool, &requests);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t victim = evict.ops->victim(pool, &candidates, GM_NO_ITEM);

		assert_int_equal(victim, requests.first_item + leave[i]);
		evict.ops->forget(pool, victim);
	}
	free(pool);
}

/* Keys in any order, each of them now one item's and then another's, beside a plain search for the least. */
static void the_least_key_leaves(void **state)
{
	enum { N_ITEM = 90, N_KEY = 2 * N_ITEM };
	struct gm_minima *minima = calloc(1, gm_minima_bytes(N_ITEM));
	bool taken[N_KEY] = {false};
	uint64_t key[N_ITEM];
	struct twins t = {.n_item = N_ITEM, .n_slot = 40, .rng = 1};

	(void)state;
	assert_non_null(minima);
	gm_minima_init(minima, N_ITEM, true);
	for (uint32_t i = 0; i < N_ITEM; i++)
		key[i] = N_KEY;
	for (uint32_t event = 0; event < 20000; event++) {
		struct gm_candidates candidates = {
			.residency = t.residency, .pin = t.pin, .stamp = (uint8_t)(event % 255 + 1)};
		uint32_t item = below(&t, N_ITEM), least = GM_NO_ITEM;

		if (event % 255 == 0)
			memset(t.pin, 0, sizeof(t.pin));
		gm_minima_enter_pending(minima);
		if (key[item] < N_KEY)
			taken[key[item]] = false;
		while (taken[key[item] = below(&t, N_KEY)])
			;
		taken[key[item]] = true;
		t.pin[item] = candidates.stamp;
		gm_minima_set(minima, item, (minima->key[item] & GM_MINIMA_ABSENT) | key[item]);
		if (t.residency[item] == GM_RESIDENT)
			continue;
		for (uint32_t i = 0; i < N_ITEM && t.n_resident == t.n_slot; i++)
			if (t.residency[i] == GM_RESIDENT && (least == GM_NO_ITEM || key[i] < key[least]))
				least = i;
		if (least != GM_NO_ITEM) {
			assert_int_equal(gm_minima_victim(minima, &candidates, item), least);
			gm_minima_forget(minima, least);
			t.residency[least] = GM_ABSENT;
			t.n_resident--;
		}
		t.residency[item] = GM_RESIDENT;
		t.n_resident++;
		gm_minima_land(minima, item);
	}
	free(minima);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_least_key_leaves),
		cmocka_unit_test(late_tokens_change_nothing),
		cmocka_unit_test(events_of_the_longest_trace_are_in_order),
		cmocka_unit_test(half_lives_of_next_to_nothing_are_one),
		cmocka_unit_test(vectors_change_nothing),
		cmocka_unit_test(few_ticks_change_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
