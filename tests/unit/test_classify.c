/* policies/classify.c: which picks of a row are hits, late and missed (R7), with vectors, where the machine has them, and without. */
#include "policies/core_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N_EXPERT = 300, MAX_TOP_K = 150, N_ROUND = 3000 };

static uint32_t below(uint64_t *rng, uint32_t n)
{
	*rng = *rng * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)((*rng >> 33) % n);
}

static uint8_t class_by_rule(uint8_t residency)
{
	return residency >= GM_RESIDENT ? GM_HIT : residency == GM_RESERVED ? GM_LATE : GM_MISS;
}

static void check_row(struct event *ev)
{
	const struct gm_scratch *s = ev->s;
	uint32_t n_missed = 0;
	uint64_t bits = 0;

	gm_event_classify(ev);
	for (uint32_t r = 0; r < ev->top_k; r++) {
		uint8_t class = class_by_rule(ev->residency[ev->pick[r]]);

		assert_int_equal(s->class[r], class);
		if (class == GM_HIT)
			continue;
		assert_true(n_missed < ev->n_missed);
		assert_int_equal(s->missed[n_missed++], r);
		bits |= UINT64_C(1) << r % GM_MAX_PICK;
	}
	assert_int_equal(ev->n_missed, n_missed);
	if (ev->top_k > GM_MAX_PICK)
		return;
	assert_true(ev->missed == bits);
	assert_true(gm_event_miss_finder(ev)(ev->residency, ev->pick, ev->top_k) == bits);
}

static void rows_are_classified(void **state)
{
	uint8_t residency[N_EXPERT];
	uint16_t pick[N_EXPERT];
	struct gm_error err = {0};
	uint64_t rng = 1;

	(void)state;
	for (uint32_t round = 0; round < N_ROUND; round++) {
		uint32_t top_k = 1 + below(&rng, below(&rng, 2) ? 20 : MAX_TOP_K);
		struct event ev = {.top_k = top_k, .residency = residency, .pick = pick};

		for (uint32_t i = 0; i < N_EXPERT; i++) { /* other precisions are above GM_RESIDENT */
			residency[i] = (uint8_t)(below(&rng, 20) ? below(&rng, 4) : below(&rng, 256));
			pick[i] = (uint16_t)below(&rng, N_EXPERT);
		}
		ev.s = gm_scratch_new(N_EXPERT, top_k, &err);
		assert_non_null(ev.s);
		ev.pick_stride = N_EXPERT;
		check_row(&ev);
		ev.pick_stride = top_k; /* nothing behind the row may be read */
		check_row(&ev);
		gm_scratch_free(ev.s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_classified)};

	return cmocka_run_group_tests_name("classify", tests, NULL, NULL);
}
