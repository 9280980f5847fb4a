/* Hand-computed cases for R1-R5 of the reference replay: routing, sizes, start, warm-up and absent rows. */
#include "tests/reference/test_reference_common.h"

static void test_routing(void **state)
{
	struct ref_trace trace;
	uint32_t s[2];
	double weight[2];
	double score[4];
	float *z;

	(void)state;
	ref_trace_init(&trace, 1, 4, 2, 1);
	z = ref_trace_row(&trace, 0, 0);

	/* Ties to the lower id; equal p, equal weights. */
	assert_int_equal(ref_route(&trace, 0, 0, s, weight, score), REF_OK);
	assert_int_equal(s[0], 0);
	assert_int_equal(s[1], 1);
	assert_near(weight[0], 0.5);

	/* p is 1 : 3 : 2 : 1/2, so S = {1, 2} and w = 3/5, 2/5. */
	z[0] = 0;
	z[1] = logf(3);
	z[2] = logf(2);
	z[3] = -logf(2);
	assert_int_equal(ref_route(&trace, 0, 0, s, weight, score), REF_OK);
	assert_int_equal(s[0], 1);
	assert_int_equal(s[1], 2);
	assert_true(fabs(weight[0] - 0.6) < 1e-6);
	assert_true(fabs(score[1] - log(3)) < 1e-6); /* the logit itself */

	/* p = 2/13, 6/13, 4/13, 1/13. A bias of 1 brings expert 3 first; w = 1/7, 6/7 uses p alone. */
	trace.bias = calloc(4, sizeof(double));
	assert_non_null(trace.bias);
	trace.bias[3] = 1;
	assert_int_equal(ref_route(&trace, 0, 0, s, weight, score), REF_OK);
	assert_int_equal(s[0], 3);
	assert_int_equal(s[1], 1);
	assert_true(fabs(weight[0] - 1.0 / 7) < 1e-6);
	assert_true(fabs(score[3] - (1 + 1.0 / 13)) < 1e-6);
	free(trace.bias);
	trace.bias = NULL;

	/* Two groups of two, one eligible: 2 + 6 against 4 + 1 thirteenths: group 0. */
	trace.n_group = 2;
	trace.topk_group = 1;
	assert_int_equal(ref_route(&trace, 0, 0, s, weight, score), REF_OK);
	assert_int_equal(s[0], 1);
	assert_int_equal(s[1], 0);
	/* Equal group scores: the lower group. */
	memset(z, 0, 4 * sizeof(float));
	assert_int_equal(ref_route(&trace, 0, 0, s, weight, score), REF_OK);
	assert_int_equal(s[0], 0);
	/* One eligible expert for k = 2. */
	trace.n_group = 4;
	assert_int_equal(ref_route(&trace, 0, 0, s, weight, score), REF_BAD_TRACE);
	trace.n_group = 1;

	/* Sigmoid of 0 and of -1000 (exactly 0 in double): weights 1, 0; all of them 0: 1/k each. */
	trace.gating = REF_SIGMOID;
	z[1] = z[2] = z[3] = -1000;
	assert_int_equal(ref_route(&trace, 0, 0, s, weight, score), REF_OK);
	assert_near(weight[0], 1);
	assert_near(weight[1], 0);
	z[0] = -1000;
	assert_int_equal(ref_route(&trace, 0, 0, s, weight, score), REF_OK);
	assert_near(weight[0], 0.5);
	assert_near(weight[1], 0.5);

	z[3] = INFINITY;
	assert_int_equal(ref_route(&trace, 0, 0, s, weight, score), REF_BAD_TRACE);
	z[3] = NAN;
	assert_int_equal(ref_route(&trace, 0, 0, s, weight, score), REF_BAD_TRACE);
	ref_trace_free(&trace);
}

/* R2: p ties by rounding, z does not: exp(801) and exp(800) are infinite, so both p are 0. */
static void test_routing_by_logit(void **state)
{
	struct ref_trace trace;
	uint32_t s[1];
	double weight[1];
	double score[2];
	float *z;

	(void)state;
	ref_trace_init(&trace, 1, 2, 1, 1);
	z = ref_trace_row(&trace, 0, 0);
	trace.gating = REF_SIGMOID;
	z[0] = -801;
	z[1] = -800;
	assert_int_equal(ref_route(&trace, 0, 0, s, weight, score), REF_OK);
	assert_int_equal(s[0], 1);
	ref_trace_free(&trace);
}

static void test_sizes(void **state)
{
	struct ref_trace trace;

	(void)state;
	assert_int_equal(ref_slots_percent(4, 12.5), 1);   /* 0.5 up */
	assert_int_equal(ref_slots_percent(4, 62.5), 3);   /* 2.5 up */
	assert_int_equal(ref_slots_percent(4, 60), 2);     /* 2.4 down */
	assert_int_equal(ref_slots_percent(512, 0.01), 1); /* at least 1 */
	ref_trace_init(&trace, 2, 4, 1, 1);
	trace.expert_bytes[0] = 3;
	trace.expert_bytes[1] = 4;
	assert_int_equal(ref_slots_bytes(&trace, 20), 2);
	assert_int_equal(ref_slots_bytes(&trace, 21), 3);
	assert_int_equal(ref_slots_bytes(&trace, 6), 0);
	ref_trace_free(&trace);
}

static void test_preload(void **state)
{
	static const uint32_t popular[6] = {2, 2, 1, 1, 1, 3};
	struct ref_trace other;
	struct world w;

	(void)state;
	ref_trace_init(&other, 1, 4, 1, 6);
	want_ones(&other, popular);
	world_init(&w, 1, 4, 1, 1, 2);
	want_ones(&w.trace, (const uint32_t[]){0});
	w.config.preload = &other;

	/* 1 (three times) and 2 (twice) are there; 2, the less popular, went in first and leaves first. */
	for (int evict = REF_LRU; evict <= REF_LFU_DECAY; evict++) {
		w.config.evict = (enum ref_evict)evict;
		w.config.half_life = 4;
		run(&w);
		assert_int_equal(w.result.place[1], REF_RESIDENT);
		assert_int_equal(w.result.place[2], REF_ABSENT);
		assert_int_equal(w.result.place[0], REF_RESIDENT);
	}
	/* C = 4: all of them, also 0 that nobody requested: the only access is a hit. */
	w.slots[0] = 4;
	assert_int_equal(run(&w)->hits, 1);
	/* The global pool of 2 bytes holds the same two as C = 2. */
	w.config.scope = REF_SCOPE_GLOBAL;
	w.config.pool_bytes = 2;
	w.config.evict = REF_FIFO;
	run(&w);
	assert_int_equal(w.result.place[2], REF_ABSENT);
	assert_int_equal(w.result.place[1], REF_RESIDENT);
	world_free(&w);
	ref_trace_free(&other);
}

static void test_preload_all(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 2, 3, 1, 1, 3);
	WANT(&w.trace, 0, 0, 2);
	WANT(&w.trace, 0, 1, 2);
	w.slots[0] = 0;
	w.config.miss = REF_CPU;
	w.config.preload_all = 1;
	run(&w);
	/* stock-ncmoe: layer 0 on the CPU, layer 1 all resident. */
	assert_int_equal(w.result.layer[0].cpu_picks, 1);
	assert_int_equal(w.result.layer[0].misses, 1);
	assert_int_equal(w.result.layer[1].hits, 1);
	assert_int_equal(w.result.counters.fetches, 0);
	world_free(&w);
}

static void test_reset(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 4, 1, 3, 2);
	want_ones(&w.trace, (const uint32_t[]){0, 0, 0});
	w.trace.sequence[1] = w.trace.sequence[2] = 1;
	assert_int_equal(run(&w)->hits, 2);
	w.config.reset_per_sequence = 1;
	assert_int_equal(run(&w)->hits, 1);
	world_free(&w);
}

static void test_warmup(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 4, 1, 5, 4);
	want_ones(&w.trace, (const uint32_t[]){0, 1, 1, 2, 0});
	for (uint32_t t = 0; t < 4; t++)
		w.trace.pass[t] = 0;
	set_times(&w, 10, 1, 0, 100);
	w.config.token_us = 5;

	/* Token by token: 0, 1 missed in the warm-up; then 1 hit, 2 miss, 0 hit. Times 11 + 5, 111 + 5, 11 + 5. */
	w.config.warmup = 2;
	run(&w);
	assert_int_equal(w.result.counters.tokens, 3);
	assert_int_equal(w.result.counters.hits, 2);
	assert_int_equal(w.result.counters.misses, 1);
	assert_near(w.result.time.total, 16 + 116 + 16);
	assert_int_equal(w.result.pass_tokens, 3);

	/*
	 * As a batch {0, 1, 1, 2}: expert 1 is accessed once, by its first row, in the warm-up; expert 2 counts. The pass
	 * begins in the warm-up, so only token 4's time counts.
	 */
	w.config.prefill_batch = 1;
	run(&w);
	assert_int_equal(w.result.counters.tokens, 3);
	assert_int_equal(w.result.counters.rows, 3);
	assert_int_equal(w.result.counters.picks, 3);
	assert_int_equal(w.result.counters.accesses, 2);
	assert_int_equal(w.result.counters.hits, 1);
	assert_int_equal(w.result.counters.fetches, 1);
	assert_near(w.result.time.total, 16);
	assert_int_equal(w.result.pass_tokens, 1);
	assert_split(&w.trace, &w.result);
	world_free(&w);
}

static void test_absent_rows(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 2, 4, 1, 2, 2);
	for (uint32_t t = 0; t < 2; t++)
		for (uint32_t l = 0; l < 2; l++)
			WANT(&w.trace, t, l, t);
	w.trace.present[1] = 0; /* token 0, layer 1 */
	set_times(&w, 10, 0, 0, 0);
	run(&w);
	assert_int_equal(w.result.counters.rows, 3);
	assert_int_equal(w.result.counters.accesses, 3);
	assert_near(w.result.time.total, 30);
	/* In a batch the event of layer 1 exists, with one row. */
	w.trace.pass[1] = 0;
	w.config.prefill_batch = 1;
	run(&w);
	assert_int_equal(w.result.layer[1].rows, 1);
	assert_near(w.result.time.total, 20);
	world_free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_routing), cmocka_unit_test(test_routing_by_logit), cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_preload), cmocka_unit_test(test_preload_all),      cmocka_unit_test(test_reset),
		cmocka_unit_test(test_warmup),  cmocka_unit_test(test_absent_rows),
	};

	return cmocka_run_group_tests_name("reference replay: routing and start", tests, NULL, NULL);
}
