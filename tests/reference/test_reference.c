/* Hand-computed cases for the reference replay itself. The arithmetic stands beside each case. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reference.h"

#define MAX_LAYER 4

/* A case: a trace, its configuration with storage for the per-layer values, and what came out. */
struct world {
	struct ref_trace trace;
	struct ref_config config;
	uint64_t slots[MAX_LAYER];
	double dense_us[MAX_LAYER];
	double gpu_expert_us[MAX_LAYER];
	double cpu_expert_us[MAX_LAYER];
	struct ref_result result;
	struct ref_coverage coverage;
};

static void world_init(struct world *w, uint32_t n_layer, uint32_t n_expert, uint32_t top_k, uint32_t n_token,
		       uint64_t slots)
{
	memset(w, 0, sizeof(*w));
	ref_trace_init(&w->trace, n_layer, n_expert, top_k, n_token);
	for (uint32_t l = 0; l < n_layer; l++)
		w->slots[l] = slots;
	w->config.slots = w->slots;
	w->config.dense_us = w->dense_us;
	w->config.gpu_expert_us = w->gpu_expert_us;
	w->config.cpu_expert_us = w->cpu_expert_us;
	w->config.want_tokens = 1;
}

static void world_free(struct world *w)
{
	ref_result_free(&w->result);
	ref_trace_free(&w->trace);
}

static void set_times(struct world *w, double dense_us, double gpu_us, double cpu_us, double copy_us)
{
	for (uint32_t l = 0; l < w->trace.n_layer; l++) {
		w->dense_us[l] = dense_us;
		w->gpu_expert_us[l] = gpu_us;
		w->cpu_expert_us[l] = cpu_us;
	}
	w->config.link_latency_us = copy_us;
}

/* The row requests ids[0], ids[1], ... in this rank order: logits 0, -1, -2, ...; all other experts have -100. */
static void want(struct ref_trace *trace, uint32_t token, uint32_t layer, const uint32_t *ids)
{
	float *z = ref_trace_row(trace, token, layer);

	for (uint32_t e = 0; e < trace->n_expert; e++)
		z[e] = -100.0f;
	for (uint32_t i = 0; i < trace->top_k; i++)
		z[ids[i]] = -(float)i;
}

#define WANT(trace, token, layer, ...) want(trace, token, layer, (const uint32_t[]){__VA_ARGS__})

/* One layer, k = 1: the tokens request these experts. */
static void want_ones(struct ref_trace *trace, const uint32_t *ids)
{
	for (uint32_t t = 0; t < trace->n_token; t++)
		want(trace, t, 0, &ids[t]);
}

static const struct ref_counters *run(struct world *w)
{
	ref_result_free(&w->result);
	assert_int_equal(ref_replay(&w->trace, &w->config, &w->result, &w->coverage), REF_OK);
	return &w->result.counters;
}

static void assert_near(double a, double b)
{
	if (fabs(a - b) > 1e-9 * (1 + fabs(a) + fabs(b)))
		fail_msg("%.17g is not %.17g", a, b);
}

/* R19: the parts add up to the whole, in the run and in every layer. */
static void assert_split(const struct ref_trace *trace, const struct ref_result *result)
{
	struct ref_time t = result->time;
	double sum = 0;

	assert_near(t.dense + t.gpu + t.link_wait + t.disk_wait + t.cpu_wait + t.token, t.total);
	for (uint32_t l = 0; l < trace->n_layer; l++) {
		t = result->layer_time[l];
		assert_near(t.dense + t.gpu + t.link_wait + t.disk_wait + t.cpu_wait, t.total);
		sum += t.total;
	}
	assert_near(sum + result->time.token, result->time.total);
}

/* ------------------------------------------------------------ the page's cases */

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

/* R18's example; C = 0, so that nothing stays on the GPU and b is fetched again. */
static void test_page_disk_example(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 4, 2, 2, 0);
	WANT(&w.trace, 0, 0, 0, 1);
	WANT(&w.trace, 1, 0, 1, 2);
	set_times(&w, 0, 0, 0, 10);
	w.config.disk = 1;
	w.config.disk_latency_us = 100;
	w.config.host_expert_bytes = 1;
	run(&w);
	/*
	 * Token 0: reads end at 100 and 200, copies at 110 and 210. Token 1, T1 = 210: b needs no read, copy 210-220; c is
	 * read 210-310, copied 310-320. Waits: a disk 100 link 10; b (110-210) disk 90 link 10; b link 10; c (220-320)
	 * disk 90 link 10.
	 */
	assert_near(w.result.time.total, 320);
	assert_near(w.result.time.disk_wait, 280);
	assert_near(w.result.time.link_wait, 40);
	assert_int_equal(w.coverage.times[REF_R18_READ], 3);
	assert_int_equal(w.coverage.times[REF_R18_HOST_HIT], 1);
	assert_int_equal(w.result.counters.fetches, 4);
	assert_int_equal(w.result.counters.bypasses, 4);
	assert_split(&w.trace, &w.result);
	world_free(&w);
}

/* --------------------------------------------------------------------- R1-R3 */

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

/* --------------------------------------------------------------------- R4, R5 */

static void test_sizes(void **state)
{
	struct ref_trace trace;

	(void)state;
	assert_int_equal(ref_slots_percent(4, 12.5), 1);  /* 0.5 up */
	assert_int_equal(ref_slots_percent(4, 62.5), 3);  /* 2.5 up */
	assert_int_equal(ref_slots_percent(4, 60), 2);    /* 2.4 down */
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

/* ---------------------------------------------------------------------- R6-R12 */

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

/* -------------------------------------------------------------------- R14-R19 */

/* R15: one hit from T1, then two fetches. Bytes 1000 at 0.1 GB/s = 10 us, latency 5: copy 15. */
static void test_gpu_and_link_time(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 6, 3, 2, 6);
	w.trace.expert_bytes[0] = 1000;
	WANT(&w.trace, 0, 0, 0, 1, 2);
	WANT(&w.trace, 1, 0, 3, 0, 4);
	set_times(&w, 7, 20, 0, 5);
	w.config.link_gb_s = 0.1;
	w.config.token_us = 3;
	run(&w);
	/*
	 * t0: T1 7: arrivals 22, 37, 52; GPU 22-42, 42-62, 62-82 (never idle again). +3 = 85. wait 15.
	 * t1: T 85, T1 92: arrivals 107, 122; GPU 92-112 (hit 0), 112-132, 132-152. +3 = 155. wait 0.
	 */
	assert_near(w.result.time.total, 155);
	assert_near(w.result.time.dense, 14);
	assert_near(w.result.time.gpu, 120);
	assert_near(w.result.time.link_wait, 15);
	assert_near(w.result.time.token, 6);
	assert_int_equal(w.result.counters.link_bytes, 5000);
	assert_split(&w.trace, &w.result);
	world_free(&w);
}

/* R16: 0 preloaded; 1 and 2 on the CPU. */
static void test_cpu_time(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 4, 3, 1, 1);
	WANT(&w.trace, 0, 0, 0, 1, 2);
	set_times(&w, 10, 5, 30, 0);
	w.config.preload_all = 1;
	w.config.miss = REF_CPU;
	w.config.cpu_roundtrip_us = 20;
	w.config.token_us = 4;
	run(&w);
	/* T1 10, GPU 10-15, CPU 10 + 20 + 60 = 90; +4. */
	assert_near(w.result.time.total, 94);
	assert_near(w.result.time.gpu, 5);
	assert_near(w.result.time.cpu_wait, 75);
	assert_int_equal(w.result.counters.cpu_picks, 2);
	assert_int_equal(w.result.counters.misses, 2);
	assert_int_equal(w.result.place[1], REF_ABSENT);
	assert_split(&w.trace, &w.result);

	/* With a disk (latency 25): reads end at 35 and 60; CPU 35-65, 65-95 (the round trip ends at 30). */
	w.config.disk = 1;
	w.config.disk_latency_us = 25;
	run(&w);
	assert_near(w.result.time.total, 99);
	assert_near(w.result.time.disk_wait, 0);
	assert_near(w.result.time.cpu_wait, 80);
	assert_split(&w.trace, &w.result);
	world_free(&w);
}

/*
 * R18: a queued copy may start at the end of its read. disk 50, copy 10, no other times; first-choice, beta 0.2.
 *   t0 {0,1} T1 0:   reads end 50, 100; copies at 60, 110. GPU waits disk 50, link 10, disk 40, link 10. End 110.
 *   t1 {0,2} T1 110: 2 read 110-160, queued for 160.
 *   t2 {2,0} T1 110: 160 > 110: still queued; late hit: starts max(110, 160), arrives 170. Waits disk 50, link 10.
 */
static void test_disk_and_queue(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 4, 2, 3, 3);
	WANT(&w.trace, 0, 0, 0, 1);
	WANT(&w.trace, 1, 0, 0, 2);
	WANT(&w.trace, 2, 0, 2, 0);
	set_times(&w, 0, 0, 0, 10);
	w.config.miss = REF_FIRST_CHOICE;
	w.config.background = 1;
	w.config.beta = 0.2;
	w.config.disk = 1;
	w.config.disk_latency_us = 50;
	w.config.host_expert_bytes = 10;
	run(&w);
	assert_int_equal(w.result.counters.late_hits, 1);
	assert_near(w.result.time.total, 170);
	assert_near(w.result.time.disk_wait, 140);
	assert_near(w.result.time.link_wait, 30);
	assert_split(&w.trace, &w.result);
	world_free(&w);
}

/* R18: host RAM is LRU by touch. H = 2, C = 0: 0, 1, 0 (hit, touched), 2 (1 leaves), 0 hit, 1 read again. */
static void test_host_lru(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 4, 1, 6, 0);
	want_ones(&w.trace, (const uint32_t[]){0, 1, 0, 2, 0, 1});
	w.config.disk = 1;
	w.config.disk_latency_us = 100;
	w.config.host_expert_bytes = 2;
	run(&w);
	assert_int_equal(w.coverage.times[REF_R18_READ], 4);
	assert_int_equal(w.coverage.times[REF_R18_HOST_HIT], 2);
	assert_int_equal(w.coverage.times[REF_R18_HOST_EVICT], 2);
	assert_near(w.result.time.total, 400);
	assert_near(w.result.time.disk_wait, 400);
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

/*
 * R6, FIFO: a copy whose expert is in host RAM waits behind a head that is still being read. C = 4 with 0-3, k = 2,
 * first-choice, LRU, beta 0.01, dense 1, disk 1000, copy 1.
 *   t0 {5,0}, t1 {6,0}, t2 {7,0}, t3 {8,0}: each fetches; 3, 2, 1 and 5 leave: residents 0, 6, 7, 8. 1002 each: T 4008.
 *   t4 {0,9} T1 4009: 6 stands in (lowest id), 7 leaves for 9: read 4009-5009.
 *   t5 {0,5} T1 4010: 6 stands in, 8 leaves for 5, which is in host RAM: queued at 4010, behind 9.
 *   t6 {0,6} T1 4011: the link is free, 5 could start, but 9 is the head. Nothing starts.
 */
static void test_fifo_head_blocks(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 12, 2, 7, 4);
	for (uint32_t t = 0; t < 4; t++)
		WANT(&w.trace, t, 0, 5 + t, 0);
	WANT(&w.trace, 4, 0, 0, 9);
	WANT(&w.trace, 5, 0, 0, 5);
	WANT(&w.trace, 6, 0, 0, 6);
	set_times(&w, 1, 0, 0, 1);
	w.config.preload_all = 1;
	w.config.miss = REF_FIRST_CHOICE;
	w.config.background = 1;
	w.config.beta = 0.01;
	w.config.disk = 1;
	w.config.disk_latency_us = 1000;
	w.config.host_expert_bytes = 100;
	run(&w);
	assert_int_equal(w.result.place[9], REF_QUEUED);
	assert_int_equal(w.result.place[5], REF_QUEUED);
	assert_int_equal(w.result.counters.background_copies, 2);
	assert_int_equal(w.coverage.times[REF_R6_HEAD_BLOCKS], 1);
	assert_int_equal(w.coverage.times[REF_R18_HOST_HIT], 1);
	assert_near(w.result.time.total, 4011);
	assert_near(w.result.time.disk_wait, 4000);
	world_free(&w);
}

/* ------------------------------------------------------------------- eviction */

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

/* --------------------------------------------------------- random runs: invariants */

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

static uint32_t below(uint64_t *seed, uint32_t n)
{
	return (uint32_t)(next_random(seed) % n);
}

/* A small random trace with many ties: logits are quarters of small integers. */
static void random_trace(struct ref_trace *trace, uint64_t *seed, uint32_t n_layer, uint32_t n_expert, uint32_t top_k)
{
	uint32_t n_token = 1 + below(seed, 24);
	uint32_t spread = 2 + below(seed, 24);
	int absent = below(seed, 3) == 0;

	ref_trace_init(trace, n_layer, n_expert, top_k, n_token);
	trace->gating = below(seed, 2) ? REF_SOFTMAX : REF_SIGMOID;
	for (size_t i = 0; i < (size_t)n_token * n_layer * n_expert; i++)
		trace->logit[i] = (float)below(seed, spread) / 4.0f - 2.0f;
	for (size_t i = 0; i < (size_t)n_token * n_layer; i++) {
		if (absent)
			trace->present[i] = below(seed, 3) != 0;
		/* R3: a row whose p are all 0 under sigmoid gating. */
		if (below(seed, 40) == 0)
			for (uint32_t e = 0; e < n_expert; e++)
				trace->logit[i * n_expert + e] = -1000.0f;
	}
	for (uint32_t l = 0; l < n_layer; l++)
		trace->expert_bytes[l] = 1 + below(seed, 3);
	for (uint32_t t = 1; t < n_token; t++) {
		trace->sequence[t] = trace->sequence[t - 1] + (below(seed, 8) == 0);
		trace->pass[t] = trace->pass[t - 1] + (below(seed, 3) == 0 || trace->sequence[t] != trace->sequence[t - 1]);
	}
	if (below(seed, 3) == 0) {
		trace->bias = calloc((size_t)n_layer * n_expert, sizeof(double));
		assert_non_null(trace->bias);
		for (size_t i = 0; i < (size_t)n_layer * n_expert; i++)
			trace->bias[i] = (double)below(seed, 5) / 8.0;
	}
	for (uint32_t n_group = 4; n_group > 1; n_group--) {
		uint32_t size = n_expert / n_group;

		if (n_expert % n_group != 0 || below(seed, 4) != 0)
			continue;
		trace->n_group = n_group;
		trace->topk_group = (top_k + size - 1) / size;
		break;
	}
}

/* Times are small integers, so that sums are exact and equalities happen. */
static void random_config(struct world *w, uint64_t *seed)
{
	struct ref_config *config = &w->config;
	uint32_t n_layer = w->trace.n_layer;

	for (uint32_t l = 0; l < n_layer; l++) {
		w->slots[l] = below(seed, w->trace.n_expert + 2);
		w->dense_us[l] = below(seed, 8);
		w->gpu_expert_us[l] = below(seed, 4);
		w->cpu_expert_us[l] = below(seed, 4);
	}
	config->scope = below(seed, 2) ? REF_SCOPE_GLOBAL : REF_SCOPE_LAYER;
	config->pool_bytes = below(seed, n_layer * w->trace.n_expert * 2);
	config->evict = (enum ref_evict)below(seed, REF_BELADY_BYPASS + 1);
	config->half_life = 1 + below(seed, 8);
	config->miss = (enum ref_miss)below(seed, REF_CPU + 1);
	config->tau = (double)below(seed, 8) / 8.0;
	config->background = below(seed, 4) != 0;
	config->beta = (double)below(seed, 8) / 8.0;
	config->prefill_batch = (int)below(seed, 2);
	config->warmup = below(seed, 3) == 0 ? below(seed, 12) : 0;
	config->reset_per_sequence = (int)below(seed, 2);
	config->preload_all = below(seed, 4) == 0;
	config->cpu_roundtrip_us = below(seed, 8);
	config->token_us = below(seed, 4);
	config->link_gb_s = below(seed, 2) ? 0.0009765625 : 0; /* 2^-10 */
	config->link_latency_us = below(seed, 40);
	config->disk = (int)below(seed, 2);
	config->disk_latency_us = below(seed, 40);
	config->host_expert_bytes = below(seed, 12);
}

static void assert_invariants(const struct world *w)
{
	const struct ref_counters *c = &w->result.counters;
	uint64_t bytes = 0;
	uint64_t pool = 0;
	struct ref_token sum = {0};

	assert_int_equal(c->accesses, c->hits + c->late_hits + c->misses);
	assert_int_equal(c->picks, c->rows * w->trace.top_k);
	assert_true(c->bypasses <= c->fetches);
	assert_true(c->fetches <= c->misses);
	assert_split(&w->trace, &w->result);
	for (uint32_t l = 0; l < w->trace.n_layer; l++) {
		const struct ref_counters *one = &w->result.layer[l];
		uint64_t used = 0;

		bytes += (one->fetches + one->background_copies) * w->trace.expert_bytes[l];
		for (uint32_t e = 0; e < w->trace.n_expert; e++)
			used += w->result.place[(size_t)l * w->trace.n_expert + e] != REF_ABSENT;
		pool += used * w->trace.expert_bytes[l];
		if (w->config.scope == REF_SCOPE_LAYER)
			assert_true(used <= w->slots[l]);
	}
	assert_int_equal(c->link_bytes, bytes);
	if (w->config.scope == REF_SCOPE_GLOBAL)
		assert_true(pool <= w->config.pool_bytes);
	for (uint32_t t = w->config.warmup; t < w->trace.n_token; t++) {
		sum.hits += w->result.token[t].hits;
		sum.fetches += w->result.token[t].fetches;
		sum.substitutions += w->result.token[t].substitutions;
		sum.substituted_mass += w->result.token[t].substituted_mass;
	}
	assert_int_equal(sum.hits, c->hits);
	assert_int_equal(sum.fetches, c->fetches);
	assert_int_equal(sum.substitutions, c->substitutions);
	assert_near(sum.substituted_mass, c->substituted_mass);
}

/* Every rule and every rare branch is reached by small random runs. */
static void test_random_coverage(void **state)
{
	uint64_t seed = 1;
	struct ref_coverage coverage = {{0}};

	(void)state;
	for (int n = 0; n < 4000; n++) {
		uint32_t n_layer = 1 + below(&seed, 3);
		uint32_t n_expert = 2 + below(&seed, 9);
		uint32_t top_k = 1 + below(&seed, n_expert < 4 ? n_expert : 4);
		struct ref_trace other;
		struct world w;

		world_init(&w, n_layer, n_expert, top_k, 1, 0);
		ref_trace_free(&w.trace);
		random_trace(&w.trace, &seed, n_layer, n_expert, top_k);
		random_trace(&other, &seed, n_layer, n_expert, top_k);
		random_config(&w, &seed);
		if (!w.config.preload_all && below(&seed, 3) == 0)
			w.config.preload = &other;
		w.coverage = coverage;
		run(&w);
		coverage = w.coverage;
		assert_invariants(&w);
		world_free(&w);
		ref_trace_free(&other);
	}
	for (unsigned i = 0; i < REF_N_BRANCH; i++)
		assert_non_null(ref_branch_name((enum ref_branch)i));
	if (getenv("REF_COVERAGE"))
		ref_coverage_print(&coverage, stderr);
	for (unsigned i = 0; i < REF_N_BRANCH; i++)
		if (coverage.times[i] == 0)
			fail_msg("never reached: %s", ref_branch_name((enum ref_branch)i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page_case),
		cmocka_unit_test(test_page_disk_example),
		cmocka_unit_test(test_routing),
		cmocka_unit_test(test_routing_by_logit),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_preload),
		cmocka_unit_test(test_preload_all),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_warmup),
		cmocka_unit_test(test_absent_rows),
		cmocka_unit_test(test_late_under_way),
		cmocka_unit_test(test_late_queued),
		cmocka_unit_test(test_fetch_overtakes),
		cmocka_unit_test(test_fetch_for_all_rows),
		cmocka_unit_test(test_fallback_other_row_keeps),
		cmocka_unit_test(test_substitute_choice),
		cmocka_unit_test(test_bypass),
		cmocka_unit_test(test_atomic_classification),
		cmocka_unit_test(test_global_pool),
		cmocka_unit_test(test_background_refused),
		cmocka_unit_test(test_background_batch),
		cmocka_unit_test(test_threshold_and_drop),
		cmocka_unit_test(test_gpu_and_link_time),
		cmocka_unit_test(test_cpu_time),
		cmocka_unit_test(test_disk_and_queue),
		cmocka_unit_test(test_host_lru),
		cmocka_unit_test(test_reserved_slot),
		cmocka_unit_test(test_fifo_head_blocks),
		cmocka_unit_test(test_eviction),
		cmocka_unit_test(test_belady),
		cmocka_unit_test(test_random_coverage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
