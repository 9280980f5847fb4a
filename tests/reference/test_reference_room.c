/* Hand-computed cases for R11 of the reference replay and for its eviction policies. */
#include "tests/reference/test_reference_common.h"

/* R11: C < k. 0 is kept, 1 finds it pinned and is used once. */
static void test_bypass(void **state)
{
	struct world w;
	const struct ref_counters *c;

	(void)state;
	world_init(&w, 1, 4, 2, 2, 1);
	WANT(&w.trace, 0, 0, 0, 1);
	WANT(&w.trace, 1, 0, 1, 0);
	c = run(&w);
	/* t1: 0 is a hit and pinned although 1 comes first in the request order. */
	assert_int_equal(c->hits, 1);
	assert_int_equal(c->fetches, 3);
	assert_int_equal(c->bypasses, 2);
	assert_int_equal(c->evictions, 0);
	assert_int_equal(w.result.place[0], REF_RESIDENT);
	world_free(&w);
}

/* R11, global: experts of layer 0 have 1 byte, of layer 1 two; the pool has 2. */
static void test_global_pool(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 2, 4, 1, 3, 0);
	w.trace.expert_bytes[1] = 2;
	w.config.scope = REF_SCOPE_GLOBAL;
	w.config.pool_bytes = 2;
	WANT(&w.trace, 0, 0, 0); /* free */
	WANT(&w.trace, 0, 1, 0); /* evicts (0,0) */
	WANT(&w.trace, 1, 0, 1); /* evicts (1,0) */
	w.trace.present[3] = 0;
	WANT(&w.trace, 2, 0, 2); /* free */
	WANT(&w.trace, 2, 1, 0); /* evicts (0,1) and (0,2) */
	run(&w);
	assert_int_equal(w.result.counters.evictions, 4);
	assert_int_equal(w.result.counters.misses, 5);
	assert_int_equal(w.result.counters.link_bytes, 7);
	assert_int_equal(w.coverage.times[REF_R11_SEVERAL_VICTIMS], 1);
	assert_int_equal(w.coverage.times[REF_R11_OTHER_LAYER], 4);
	assert_int_equal(w.result.place[4], REF_RESIDENT);

	/* A pool of 1: victims leave one after the other until nothing is left; the expert is used once. */
	w.config.pool_bytes = 1;
	run(&w);
	/* t0: (0,0) in, out for (1,0), which does not fit; t1: (0,1) in; t2: (0,2) evicts it, leaves in vain. */
	assert_int_equal(w.result.counters.evictions, 3);
	assert_int_equal(w.result.counters.bypasses, 2);
	world_free(&w);
}

/* R11, R12: a reserved slot is no victim. C = 3 with 0-2, k = 2, beta 0.01, disk 1000: the reads outlast the trace. */
static void test_reserved_slot(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 6, 2, 3, 3);
	WANT(&w.trace, 0, 0, 0, 4);
	WANT(&w.trace, 1, 0, 0, 3);
	WANT(&w.trace, 2, 0, 0, 1);
	set_times(&w, 1, 0, 0, 1);
	w.config.preload_all = 1;
	w.config.miss = REF_SUBSTITUTE;
	w.config.background = 1;
	w.config.beta = 0.01;
	w.config.disk = 1;
	w.config.disk_latency_us = 1000;
	w.config.host_expert_bytes = 100;
	run(&w);
	/* t0: 4 takes the slot of 2 (0 is a hit, 1 a substitute). t1: 3 finds 0 and 1 pinned, the third slot reserved. */
	assert_int_equal(w.result.place[4], REF_QUEUED);
	assert_int_equal(w.result.place[3], REF_ABSENT);
	assert_int_equal(w.result.place[2], REF_ABSENT);
	assert_int_equal(w.coverage.times[REF_R12_REFUSED], 1);
	assert_int_equal(w.coverage.times[REF_R11_NO_ROOM_RESERVED], 1);
	assert_int_equal(w.coverage.times[REF_R6_WAITS_FOR_DISK], 2);
	assert_near(w.result.time.total, 3);
	world_free(&w);
}

static void run_ones(struct world *w, uint32_t n_token, const uint32_t *ids, enum ref_evict evict)
{
	world_init(w, 1, 8, 1, n_token, 2);
	want_ones(&w->trace, ids);
	w->config.evict = evict;
	w->config.half_life = 1;
	run(w);
}

static void assert_residents(struct world *w, uint32_t a, uint32_t b)
{
	for (uint32_t e = 0; e < w->trace.n_expert; e++)
		assert_int_equal(w->result.place[e], e == a || e == b ? REF_RESIDENT : REF_ABSENT);
	world_free(w);
}

static void test_eviction(void **state)
{
	struct world w;

	(void)state;
	run_ones(&w, 4, (const uint32_t[]){0, 1, 0, 2}, REF_LRU);
	assert_residents(&w, 0, 2);
	run_ones(&w, 4, (const uint32_t[]){0, 1, 0, 2}, REF_FIFO);
	assert_residents(&w, 1, 2);
	/* Counts 2 and 1. */
	run_ones(&w, 4, (const uint32_t[]){0, 0, 1, 2}, REF_LFU);
	assert_residents(&w, 0, 2);
	/* Equal counts: the older access. */
	run_ones(&w, 3, (const uint32_t[]){1, 0, 2}, REF_LFU);
	assert_residents(&w, 0, 2);
	/* Counts outlive residency: 1 leaves with count 1, returns with 2; then 0 (2, older) goes before 1 (2). */
	run_ones(&w, 6, (const uint32_t[]){0, 0, 1, 2, 1, 3}, REF_LFU);
	assert_residents(&w, 1, 3);
	/* h = 1: 0 has (1/2 + 1)/2 + 1 = 1.75 at token 2, 0.4375 at token 4; 1 has 1 at token 3, 0.5 at token 4. */
	run_ones(&w, 5, (const uint32_t[]){0, 0, 0, 1, 2}, REF_LFU_DECAY);
	assert_residents(&w, 1, 2);
	run_ones(&w, 5, (const uint32_t[]){0, 0, 0, 1, 2}, REF_LFU);
	assert_residents(&w, 0, 2);
}

static void test_belady(void **state)
{
	struct world w;

	(void)state;
	/* t2: 0 is next at t3, 1 at t4: 1 leaves. t4: 0 and 2 are never used again: the lower id leaves. */
	run_ones(&w, 5, (const uint32_t[]){0, 1, 2, 0, 1}, REF_BELADY);
	assert_int_equal(w.result.counters.hits, 1);
	assert_int_equal(w.result.counters.evictions, 2);
	assert_residents(&w, 1, 2);
	/* t2: 2 itself is never used again and is not kept. */
	run_ones(&w, 5, (const uint32_t[]){0, 1, 2, 0, 1}, REF_BELADY_BYPASS);
	assert_int_equal(w.result.counters.hits, 2);
	assert_int_equal(w.result.counters.bypasses, 1);
	assert_int_equal(w.result.counters.fetches, 3);
	assert_int_equal(w.result.counters.evictions, 0);
	assert_residents(&w, 0, 1);
	/* t2: never used again like the residents; 0 has the lowest id and leaves. */
	run_ones(&w, 3, (const uint32_t[]){0, 1, 2}, REF_BELADY_BYPASS);
	assert_int_equal(w.result.counters.bypasses, 0);
	assert_residents(&w, 1, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bypass),   cmocka_unit_test(test_global_pool), cmocka_unit_test(test_reserved_slot),
		cmocka_unit_test(test_eviction), cmocka_unit_test(test_belady),
	};

	return cmocka_run_group_tests_name("reference replay: room", tests, NULL, NULL);
}
