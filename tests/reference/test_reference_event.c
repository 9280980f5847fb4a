/* Hand-computed cases for R6-R10, R12 and R13 of the reference replay. The arithmetic stands beside each case. */
#include "tests/reference/test_reference_common.h"

/* The case of semantics.md. */
static void test_page_case(void **state)
{
	static const uint32_t second[5] = {1, 2, 1, 3, 1};
	struct world w;

	(void)state;
	world_init(&w, 3, 4, 2, 5, 2);
	for (uint32_t t = 0; t < 5; t++)
		for (uint32_t l = 0; l < 3; l++)
			WANT(&w.trace, t, l, 0, second[t]);
	run(&w);
	assert_int_equal(w.result.counters.hits, 12);
	assert_int_equal(w.result.counters.misses, 18);
	assert_int_equal(w.result.counters.accesses, 30);
	assert_int_equal(w.result.counters.fetches, 18);
	/* Per layer 6 misses, the first two into free slots. */
	assert_int_equal(w.result.counters.evictions, 12);
	assert_int_equal(w.result.layer[1].hits, 4);
	assert_int_equal(w.result.layer[1].misses, 6);
	world_free(&w);
}

/*
 * A background copy that is under way when its expert is requested. first-choice, C = 3, beta 0.2 (rank 2 has w =
 * 1/(1+e) = 0.269); dense 10, GPU 1, copy 100.
 *   t0 {0,1} T1 10:  0 fetched, arrives 110; 1 finds no substitute: fetched, arrives 210. GPU 110-111, 210-211.
 *   t1 {0,2} T1 221: 0 hit, 1 stands in for 2; copy of 2 queued at 221. GPU 221-223.
 *   t2 {0,2} T1 233: the copy starts at 221, arrives 321: late, rank 2: substituted, a miss, acc unchanged. End 235.
 *   t3 {2,0} T1 245: late, rank 1: late hit. GPU: 0 until 246, then 2 at 321-322.
 *   t4 {2,0} T1 332: two hits. End 334.
 */
static void test_late_under_way(void **state)
{
	struct world w;
	const struct ref_counters *c;

	(void)state;
	world_init(&w, 1, 4, 2, 5, 3);
	WANT(&w.trace, 0, 0, 0, 1);
	WANT(&w.trace, 1, 0, 0, 2);
	WANT(&w.trace, 2, 0, 0, 2);
	WANT(&w.trace, 3, 0, 2, 0);
	WANT(&w.trace, 4, 0, 2, 0);
	set_times(&w, 10, 1, 0, 100);
	w.config.miss = REF_FIRST_CHOICE;
	w.config.background = 1;
	w.config.beta = 0.2;
	c = run(&w);
	assert_int_equal(c->accesses, 10);
	assert_int_equal(c->hits, 5);
	assert_int_equal(c->late_hits, 1);
	assert_int_equal(c->misses, 4);
	assert_int_equal(c->fetches, 2);
	assert_int_equal(c->background_copies, 1);
	assert_int_equal(c->link_bytes, 3);
	assert_int_equal(c->substitutions, 2);
	assert_int_equal(c->substitute_fallbacks, 1);
	assert_int_equal(c->evictions, 0);
	assert_near(c->substituted_mass, 2 / (1 + exp(1)));
	assert_near(w.result.acc[2], 0);
	assert_near(w.result.time.total, 334);
	assert_near(w.result.time.dense, 50);
	assert_near(w.result.time.gpu, 10);
	assert_near(w.result.time.link_wait, (100 + 99) + 75);
	assert_int_equal(w.result.token[3].late_hits, 1);
	assert_split(&w.trace, &w.result);
	world_free(&w);
}

/*
 * A background copy that is still queued when its expert is requested. k = 3, C = 6, first-choice, beta 0.01.
 *   t0 {0,1,2} T1 10:  all fetched (two by fallback), arrive 110, 210, 310; end 311.
 *   t1 {0,3,4} T1 321: 1 and 2 stand in; 3 and 4 queued at 321. GPU 3 experts; end 324.
 *   t2 {4,0,3} T1 334: 3 starts at 321 and arrives 421; 4 could start at 421 > 334, stays queued. 4 is promoted: starts
 *     at max(334, 421), arrives 521. 3 (rank 3, under way) is substituted. GPU 0 and 1 until 336, then 4: 521-522.
 */
static void test_late_queued(void **state)
{
	struct world w;
	const struct ref_counters *c;

	(void)state;
	world_init(&w, 1, 8, 3, 3, 6);
	WANT(&w.trace, 0, 0, 0, 1, 2);
	WANT(&w.trace, 1, 0, 0, 3, 4);
	WANT(&w.trace, 2, 0, 4, 0, 3);
	set_times(&w, 10, 1, 0, 100);
	w.config.miss = REF_FIRST_CHOICE;
	w.config.background = 1;
	w.config.beta = 0.01;
	c = run(&w);
	assert_int_equal(c->hits, 2);
	assert_int_equal(c->late_hits, 1);
	assert_int_equal(c->misses, 6);
	assert_int_equal(c->fetches, 3);
	assert_int_equal(c->background_copies, 2);
	assert_int_equal(c->substitutions, 3);
	assert_int_equal(w.result.place[3], REF_UNDER_WAY);
	assert_int_equal(w.result.place[4], REF_RESIDENT);
	assert_near(w.result.time.total, 522);
	assert_near(w.result.time.link_wait, 100 + 99 + 99 + 185);
	assert_near(w.result.time.gpu, 3 + 3 + 3);
	assert_split(&w.trace, &w.result);
	world_free(&w);
}

/*
 * R14: a fetch goes ahead of what is queued, not ahead of what has started. As above until t1 (C = 7), then
 *   t2 {5,0,1} T1 334: 3 is under way until 421, 4 queued. 5 starts at 421, arrives 521. GPU until 336, 521-522.
 *   t3 {0,1,2} T1 532: 3 has landed; 4 starts at 521, arrives 621. GPU 3 experts: end 535.
 */
static void test_fetch_overtakes(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 8, 3, 4, 7);
	WANT(&w.trace, 0, 0, 0, 1, 2);
	WANT(&w.trace, 1, 0, 0, 3, 4);
	WANT(&w.trace, 2, 0, 5, 0, 1);
	WANT(&w.trace, 3, 0, 0, 1, 2);
	set_times(&w, 10, 1, 0, 100);
	w.config.miss = REF_FIRST_CHOICE;
	w.config.background = 1;
	w.config.beta = 0.01;
	run(&w);
	assert_int_equal(w.result.place[3], REF_RESIDENT);
	assert_int_equal(w.result.place[4], REF_UNDER_WAY);
	assert_int_equal(w.result.counters.late_hits, 0);
	assert_near(w.result.time.total, 535);
	assert_int_equal(w.coverage.times[REF_R14_OVERTAKES], 1);
	assert_split(&w.trace, &w.result);
	world_free(&w);
}

/* R8: one row's FETCH holds for all; the request list is the union of the rows. */
static void test_fetch_for_all_rows(void **state)
{
	struct world w;
	const struct ref_counters *c;

	(void)state;
	world_init(&w, 1, 4, 2, 2, 4);
	WANT(&w.trace, 0, 0, 0, 1);
	WANT(&w.trace, 1, 0, 1, 0);
	w.trace.pass[1] = 0;
	w.config.prefill_batch = 1;
	w.config.miss = REF_FIRST_CHOICE;
	c = run(&w);
	assert_int_equal(c->picks, 4);
	assert_int_equal(c->accesses, 2);
	assert_int_equal(c->fetches, 2);
	assert_int_equal(c->substitutions, 0);
	assert_int_equal(c->substitute_fallbacks, 0);
	world_free(&w);
}

/*
 * R9: 0 is the only resident (C = 1). Row 0 {0,1} has it in S: 1 falls back. Row 1 {2,1}: 0 stands in for 1 although 1
 * is fetched. 0 is pinned, so both fetches (1 and 2) are not kept. R12: 1 was fetched: acc stays 0.
 */
static void test_fallback_other_row_keeps(void **state)
{
	struct world w;
	const struct ref_counters *c;

	(void)state;
	world_init(&w, 1, 4, 2, 2, 1);
	WANT(&w.trace, 0, 0, 0, 1);
	WANT(&w.trace, 1, 0, 2, 1);
	w.trace.pass[1] = 0;
	w.config.prefill_batch = 1;
	w.config.preload_all = 1;
	w.config.miss = REF_FIRST_CHOICE;
	w.config.background = 1;
	w.config.beta = 0.01;
	c = run(&w);
	assert_int_equal(c->accesses, 3);
	assert_int_equal(c->hits, 1);
	assert_int_equal(c->misses, 2);
	assert_int_equal(c->fetches, 2);
	assert_int_equal(c->bypasses, 2);
	assert_int_equal(c->substitute_fallbacks, 1);
	assert_int_equal(c->substitutions, 1);
	assert_int_equal(c->background_copies, 0);
	assert_near(w.result.acc[1], 0);
	assert_int_equal(w.coverage.times[REF_R12_FETCHED], 1);
	world_free(&w);
}

/* R9: the best resident outside S, each at most once in a row, ties to the lower id, group limits ignored. */
static void test_substitute_choice(void **state)
{
	struct world w;
	float *z;

	(void)state;
	world_init(&w, 1, 8, 3, 1, 4);
	z = ref_trace_row(&w.trace, 0, 0);
	/* Residents 0-3 with z 1, 2, 2, 0; S = {4, 5, 6}. 4 is fetched; 1 stands in for 5, 2 (same z) for 6. */
	z[0] = 1;
	z[1] = 2;
	z[2] = 2;
	z[3] = 0;
	z[4] = 9;
	z[5] = 8;
	z[6] = 7;
	z[7] = -9;
	w.config.preload_all = 1;
	w.config.miss = REF_FIRST_CHOICE;
	w.config.evict = REF_LRU;
	run(&w);
	assert_int_equal(w.result.counters.substitutions, 2);
	/* Pinned 1 and 2; preload order 3, 2, 1, 0, so LRU drops 3 for 4. */
	assert_int_equal(w.result.place[3], REF_ABSENT);
	assert_int_equal(w.result.place[0], REF_RESIDENT);
	assert_int_equal(w.coverage.times[REF_R9_TIE], 1);
	assert_int_equal(w.coverage.times[REF_R9_ALREADY_USED], 1);
	world_free(&w);
}

/* R7: a hit judged at the start stays a hit: it is pinned, an eviction before its access cannot take it. */
static void test_atomic_classification(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 4, 2, 2, 2);
	WANT(&w.trace, 0, 0, 0, 1);
	WANT(&w.trace, 1, 0, 2, 0); /* LRU would drop 0, the older, but 0 is a hit of this event */
	run(&w);
	assert_int_equal(w.result.counters.hits, 1);
	assert_int_equal(w.result.place[1], REF_ABSENT);
	assert_int_equal(w.result.place[0], REF_RESIDENT);
	world_free(&w);
}

/*
 * R12: acc is kept when no room can be reserved. C = 2, beta 0.5, rank 2 has w 0.269.
 *   t0 {0,1}: both fetched. t1 {0,2}: acc[2] = 0.269. t2 {0,2}: acc 0.538 >= 0.5, but 0 (hit) and 1 (substitute) are
 *   pinned: refused, acc kept. t3 {1,2}: 0 stands in, refused again, acc 0.807.
 *   t4 {2,0}: 2 is fetched (rank 1) in place of 1; acc stays.
 *   t5 {1,3}: 1 fetched (rank 1): residents {2,0}; 3: z = -100 both, so 0 stands in. 2 leaves for 1. acc[3] = 0.269.
 */
static void test_background_refused(void **state)
{
	struct world w;
	double share = 1 / (1 + exp(1));

	(void)state;
	world_init(&w, 1, 4, 2, 6, 2);
	WANT(&w.trace, 0, 0, 0, 1);
	WANT(&w.trace, 1, 0, 0, 2);
	WANT(&w.trace, 2, 0, 0, 2);
	WANT(&w.trace, 3, 0, 1, 2);
	WANT(&w.trace, 4, 0, 2, 0);
	WANT(&w.trace, 5, 0, 1, 3);
	w.config.miss = REF_FIRST_CHOICE;
	w.config.background = 1;
	w.config.beta = 0.5;
	run(&w);
	assert_int_equal(w.coverage.times[REF_R12_REFUSED], 2);
	assert_int_equal(w.coverage.times[REF_R12_FETCH_KEEPS_ACC], 1);
	assert_int_equal(w.result.counters.background_copies, 0);
	assert_near(w.result.acc[2], 3 * share);
	assert_near(w.result.acc[3], share);
	assert_int_equal(w.result.place[2], REF_ABSENT);
	assert_int_equal(w.result.place[0], REF_RESIDENT);
	assert_int_equal(w.result.place[1], REF_RESIDENT);
	world_free(&w);
}

/* R12 is after all of R10: rows of a batch add up; the second row's pick of a queued expert adds nothing. */
static void test_background_batch(void **state)
{
	struct world w;
	double share = 1 / (1 + exp(1));

	(void)state;
	world_init(&w, 1, 6, 2, 3, 4);
	for (uint32_t t = 0; t < 3; t++) {
		WANT(&w.trace, t, 0, 0, 5);
		w.trace.pass[t] = 0;
	}
	w.config.prefill_batch = 1;
	w.config.preload_all = 1; /* residents 0-3 */
	w.config.miss = REF_SUBSTITUTE;
	w.config.background = 1;
	w.config.beta = 0.5; /* reached by the second row */
	set_times(&w, 0, 5, 0, 0);
	run(&w);
	assert_int_equal(w.result.counters.substitutions, 3);
	assert_int_equal(w.result.counters.background_copies, 1);
	assert_int_equal(w.result.counters.evictions, 1); /* 0 hit, 1 substitute in all rows; of 2, 3 LRU drops 3 */
	assert_int_equal(w.result.place[3], REF_ABSENT);
	assert_int_equal(w.result.place[5], REF_QUEUED);
	assert_int_equal(w.coverage.times[REF_R12_QUEUED], 1);
	assert_near(w.result.acc[5], 0);
	assert_near(w.result.counters.substituted_mass, 3 * share);
	assert_near(w.result.time.gpu, 10); /* 0 and 1 once each */
	world_free(&w);
}

static void test_threshold_and_drop(void **state)
{
	struct world w;

	(void)state;
	/* w of ranks 1-3: 0.665, 0.245, 0.090; residents 0-2. */
	world_init(&w, 1, 8, 3, 1, 3);
	WANT(&w.trace, 0, 0, 5, 6, 7);
	w.config.preload_all = 1;
	w.config.miss = REF_THRESHOLD;
	w.config.tau = 0.15;
	run(&w);
	assert_int_equal(w.result.counters.fetches, 2);
	assert_int_equal(w.result.counters.substitutions, 1);
	w.config.miss = REF_DROP;
	run(&w);
	assert_int_equal(w.result.counters.fetches, 2);
	assert_int_equal(w.result.counters.drops, 1);
	assert_near(w.result.counters.dropped_mass, exp(-2) / (1 + exp(-1) + exp(-2)));
	assert_int_equal(w.result.counters.misses, 3);
	/* The first choice is fetched whatever tau. */
	w.config.miss = REF_THRESHOLD;
	w.config.tau = 2;
	run(&w);
	assert_int_equal(w.result.counters.fetches, 1);
	world_free(&w);

	/* Equal logits: w = 1/2 each, exactly. w >= tau fetches. */
	world_init(&w, 1, 4, 2, 1, 1);
	ref_trace_row(&w.trace, 0, 0)[2] = 1;
	ref_trace_row(&w.trace, 0, 0)[3] = 1;
	w.config.preload_all = 1;
	w.config.miss = REF_THRESHOLD;
	w.config.tau = 0.5;
	assert_int_equal(run(&w)->fetches, 2);
	w.config.tau = 0.5000001;
	assert_int_equal(run(&w)->fetches, 1);
	world_free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page_case),          cmocka_unit_test(test_late_under_way),
		cmocka_unit_test(test_late_queued),        cmocka_unit_test(test_fetch_overtakes),
		cmocka_unit_test(test_fetch_for_all_rows), cmocka_unit_test(test_fallback_other_row_keeps),
		cmocka_unit_test(test_substitute_choice),  cmocka_unit_test(test_atomic_classification),
		cmocka_unit_test(test_background_refused), cmocka_unit_test(test_background_batch),
		cmocka_unit_test(test_threshold_and_drop),
	};

	return cmocka_run_group_tests_name("reference replay: events", tests, NULL, NULL);
}
