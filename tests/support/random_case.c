#include "tests/support/random_case.h"

#include "policies/table.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- numbers: splitmix64 (Steele, Lea, Flood 2014) --- */

static uint64_t next(struct random_case *c)
{
	uint64_t z = c->rng += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static uint32_t below(struct random_case *c, uint32_t n)
{
	return (uint32_t)(next(c) % n);
}

static bool chance(struct random_case *c, uint32_t percent)
{
	return below(c, 100) < percent;
}

static uint32_t between(struct random_case *c, uint32_t low, uint32_t high)
{
	return low + below(c, high - low + 1);
}

static double unit(struct random_case *c)
{
	return (double)(next(c) >> 11) * 0x1p-53;
}

/* --- traces --- */

static void make_logits(struct random_case *c, struct ref_trace *t)
{
	bool ties = chance(c, 30), huge = chance(c, 3);
	uint32_t n_hot = between(c, 1, t->n_expert);
	uint32_t hot = 0;

	for (uint32_t i = 0; i < t->n_token; i++) {
		if (chance(c, 10))
			hot = below(c, t->n_expert);
		for (uint32_t l = 0; l < t->n_layer; l++) {
			float *row = ref_trace_row(t, i, l);

			for (uint32_t e = 0; e < t->n_expert; e++) {
				double z = (unit(c) + unit(c) + unit(c) - 1.5) * 2;

				if ((e + t->n_expert - hot) % t->n_expert < n_hot)
					z += 1.5;
				if (huge)
					z = z * 400 - 1000;
				row[e] = ties ? (float)(floor(z) / 2) : (float)z;
			}
		}
	}
}

static void make_shape(struct random_case *c, struct ref_trace *t)
{
	uint32_t sequence = 0, pass = 0, left = 0;
	bool batches = chance(c, 60), absent = chance(c, 30);

	for (uint32_t i = 0; i < t->n_token; i++) {
		if (i && chance(c, 5)) {
			sequence++;
			left = 0;
		}
		if (left == 0) {
			pass += i > 0;
			left = batches && chance(c, 40) ? between(c, 1, 9) : 1;
		}
		left--;
		t->sequence[i] = sequence;
		t->pass[i] = pass;
		for (uint32_t l = 0; absent && l < t->n_layer; l++)
			t->present[i * t->n_layer + l] = !chance(c, 15);
	}
}

static void make_routing(struct random_case *c, struct ref_trace *t)
{
	t->gating = chance(c, 50) ? REF_SOFTMAX : REF_SIGMOID;
	if (chance(c, 40)) {
		t->bias = calloc((size_t)t->n_layer * t->n_expert, sizeof(*t->bias));
		assert_non_null(t->bias);
		for (uint32_t i = 0; i < t->n_layer * t->n_expert; i++)
			t->bias[i] = (double)(float)((unit(c) - 0.5) * 0.3); /* the format keeps float32 */
	}
	if (t->n_expert % 4 == 0 && t->n_expert >= 8 && chance(c, 40)) {
		uint32_t group = t->n_expert / 4;

		t->n_group = 4;
		t->topk_group = between(c, (t->top_k + group - 1) / group, 4);
	}
}

static void make_trace(struct random_case *c, struct ref_trace *t, uint32_t n_layer, uint32_t n_expert, uint32_t top_k,
		       uint32_t n_token, const struct ref_trace *like)
{
	ref_trace_init(t, n_layer, n_expert, top_k, n_token);
	make_shape(c, t);
	if (!like)
		make_routing(c, t);
	make_logits(c, t);
	for (uint32_t l = 0; l < n_layer; l++)
		t->expert_bytes[l] = like ? like->expert_bytes[l] : 1024u * between(c, 1, 4);
}

void random_case_write(const struct random_case *c, const struct ref_trace *t, const char *path)
{
	struct random_case order = {.rng = c->seed ^ 0x5bd1e995};
	struct gm_error err = {0};
	float *bias = NULL;
	struct gm_model model = {
		.name = (char *)"random",
		.n_layer = t->n_layer,
		.n_expert = t->n_expert,
		.top_k = t->top_k,
		.gating = t->gating == REF_SIGMOID ? GM_GATING_SIGMOID : GM_GATING_SOFTMAX,
		.n_group = t->n_group,
		.topk_group = t->topk_group,
		.expert_bytes = t->expert_bytes,
	};
	struct gm_writer_options options = {.n_head = c->n_head, .tail = GM_TAIL_F32};

	if (t->bias) {
		bias = calloc((size_t)t->n_layer * t->n_expert, sizeof(*bias));
		assert_non_null(bias);
		for (uint32_t i = 0; i < t->n_layer * t->n_expert; i++)
			bias[i] = (float)t->bias[i];
		model.bias = bias;
	}
	struct gm_writer *w = gm_writer_open(path, &model, &options, &err);

	if (!w)
		fail_msg("%s", err.text);
	for (uint32_t i = 0, end; i < t->n_token; i = end) {
		uint32_t first_layer = below(&order, t->n_layer);
		uint64_t first = 0;

		for (end = i + 1; end < t->n_token && t->pass[end] == t->pass[i] && t->sequence[end] == t->sequence[i];)
			end++;
		if (i == 0 || t->sequence[i] != t->sequence[i - 1])
			assert_int_equal(gm_writer_begin_sequence(w, "s", "label", &err), 0);
		assert_int_equal(gm_writer_add_tokens(w, end - i, NULL, i, true, NULL, &first, &err), 0);
		for (uint32_t j = 0; j < t->n_layer; j++) {
			uint32_t l = (first_layer + j) % t->n_layer;

			for (uint32_t n = i; n < end; n++)
				if (t->present[n * t->n_layer + l] &&
				    gm_writer_append(w, l, first + n - i, 1, ref_trace_row((struct ref_trace *)t, n, l),
						     t->n_expert, &err) < 0)
					fail_msg("%s", err.text);
		}
		assert_int_equal(gm_writer_complete(w, first + end - i, &err), 0);
		if (chance(&order, 5)) /* more than a few blocks, and short ones */
			assert_int_equal(gm_writer_flush(w, &err), 0);
	}
	if (gm_writer_close(w, &err) < 0)
		fail_msg("%s", err.text);
	free(bias);
}

/* --- configurations --- */

static void make_times(struct random_case *c)
{
	static const double no_rate = 0;
	uint32_t n = c->trace.n_layer;
	/* rates of a power of two make exact microseconds of whole KiB, so that arrivals meet T1 to the bit */
	double link = chance(c, 10) ? no_rate : ldexp(1, (int)between(c, 0, 3) - 10);
	double disk = chance(c, 10) ? no_rate : ldexp(1, (int)between(c, 0, 3) - 11);
	double latency = between(c, 0, 3), disk_latency = between(c, 0, 5);
	bool fractions = chance(c, 30);

	for (uint32_t l = 0; l < n; l++) {
		double bytes = (double)c->trace.expert_bytes[l];

		c->dense_us[l] = between(c, 0, 6) + (fractions ? unit(c) : 0);
		c->gpu_us[l] = between(c, 0, 2) + (fractions ? unit(c) : 0);
		c->cpu_us[l] = between(c, 1, 9) + (fractions ? unit(c) : 0);
		c->copy_us[l] = latency + (link > 0 ? bytes / (link * 1e3) : 0);
		c->read_us[l] = disk_latency + (disk > 0 ? bytes / (disk * 1e3) : 0);
	}
	c->ref.dense_us = c->dense_us;
	c->ref.gpu_expert_us = c->gpu_us;
	c->ref.cpu_expert_us = c->cpu_us;
	c->ref.cpu_roundtrip_us = between(c, 0, 9);
	c->ref.token_us = between(c, 0, 9);
	c->ref.link_gb_s = link;
	c->ref.link_latency_us = latency;
	c->ref.disk = chance(c, 50);
	c->ref.disk_gb_s = disk;
	c->ref.disk_latency_us = disk_latency;
	c->ref.host_expert_bytes = 1024u * between(c, 1, 40);
	c->hw = (struct gm_hw){
		.n_layer = n,
		.dense_us = c->dense_us,
		.gpu_expert_us = c->gpu_us,
		.cpu_expert_us = c->cpu_us,
		.copy_us = c->copy_us,
		.read_us = c->read_us,
		.expert_bytes = c->trace.expert_bytes,
		.cpu_roundtrip_us = c->ref.cpu_roundtrip_us,
		.token_us = c->ref.token_us,
		.disk = c->ref.disk,
		.host_bytes = c->ref.host_expert_bytes,
	};
	c->config.hw = &c->hw;
	c->config.timed = true;
}

static void parse_policies(struct random_case *c, const char *evict, const char *miss, const char *admit)
{
	struct gm_error err = {0};

	if (gm_evict_parse(evict, &c->config.core.evict, &err) < 0 || gm_miss_parse(miss, &c->config.core.miss, &err) < 0 ||
	    gm_admit_parse(admit, &c->config.core.admit, &err) < 0)
		fail_msg("%s", err.text);
}

static void make_policies(struct random_case *c)
{
	static const char *const evicts[] = {"lru", "fifo", "lfu", "lfu-decay", "belady", "belady-bypass"};
	static const enum ref_evict ref_evicts[] = {REF_LRU,       REF_FIFO,   REF_LFU,
						    REF_LFU_DECAY, REF_BELADY, REF_BELADY_BYPASS};
	static const char *const misses[] = {"fetch", "threshold", "first-choice", "substitute", "drop", "cpu"};
	static const enum ref_miss ref_misses[] = {REF_FETCH,      REF_THRESHOLD, REF_FIRST_CHOICE,
						   REF_SUBSTITUTE, REF_DROP,      REF_CPU};
	/* counts that fade to nothing between two accesses, that hardly fade, and what lies between */
	static const double half_lives[] = {1e-300, 0.01, 0.1, 0.5, 0.7, 1, 1.5, 7, 33, 300, 1e6, 1e12};
	static const uint32_t miss_weights[] = {0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5};
	/* equality with a threshold is reached with two equal logits and top 2: both weights are exactly 0.5, however computed */
	bool exact = c->trace.top_k <= 2 && chance(c, 50);
	uint32_t e = below(c, 6), m = miss_weights[below(c, 13)];
	char evict[64], miss[64], admit[64];

	c->ref.evict = ref_evicts[e];
	c->ref.miss = ref_misses[m];
	c->ref.half_life = c->wide ? half_lives[below(c, sizeof(half_lives) / sizeof(*half_lives))] : between(c, 1, 20);
	c->ref.tau = exact ? 0.5 : unit(c) * 0.6;
	c->ref.background = chance(c, 60);
	c->ref.beta = exact ? 0.5 : unit(c) * 1.5;
	snprintf(evict, sizeof(evict), e == 3 ? "%s:%.17g" : "%s", evicts[e], c->ref.half_life);
	snprintf(miss, sizeof(miss), m == 1 || m == 4 ? "%s:%.17g" : "%s", misses[m], c->ref.tau);
	snprintf(admit, sizeof(admit), c->ref.background ? "background:%.17g" : "fetch", c->ref.beta);
	parse_policies(c, evict, miss, admit);
}

/* Some slots more than a row needs; in a wide case, up to all experts. */
static uint32_t make_slots(struct random_case *c)
{
	const struct ref_trace *t = &c->trace;

	if (c->wide && chance(c, 70))
		return chance(c, 5) ? t->n_expert : between(c, t->top_k, t->n_expert);
	return between(c, 1, t->top_k + 3 < t->n_expert ? t->top_k + 3 : t->n_expert);
}

static void make_room(struct random_case *c)
{
	const struct ref_trace *t = &c->trace;
	uint64_t all = 0;

	for (uint32_t l = 0; l < t->n_layer; l++) {
		c->slot[l] = make_slots(c);
		if (chance(c, 2))
			c->slot[l] = 0;
		c->ref_slot[l] = c->slot[l];
		all += t->expert_bytes[l] * t->n_expert;
	}
	c->ref.scope = chance(c, 70) ? REF_SCOPE_LAYER : REF_SCOPE_GLOBAL;
	c->ref.slots = c->ref_slot;
	c->ref.pool_bytes = chance(c, 4) ? 4096 : 4096 + next(c) % (all / 2);
	c->config.core.scope = c->ref.scope == REF_SCOPE_LAYER ? GM_SCOPE_LAYER : GM_SCOPE_GLOBAL;
	c->config.core.n_slot = c->slot;
	c->config.core.pool_bytes = c->ref.pool_bytes;
	/* a pool below the largest expert, which may then never be kept */
	if (chance(c, 4))
		c->ref.pool_bytes = c->config.core.pool_bytes = t->expert_bytes[0];
}

static void make_start(struct random_case *c)
{
	const struct ref_trace *t = &c->trace;
	size_t n = (size_t)t->n_layer * t->n_expert;

	c->ref.warmup = chance(c, 40) ? below(c, t->n_token) : 0;
	c->ref.reset_per_sequence = chance(c, 25);
	c->ref.prefill_batch = chance(c, 50);
	c->config.warmup = c->ref.warmup;
	c->config.reset_per_sequence = c->ref.reset_per_sequence;
	c->config.prefill = c->ref.prefill_batch ? GM_PREFILL_BATCH : GM_PREFILL_TOKEN;
	if (chance(c, c->ref.miss == REF_CPU ? 80 : 25)) {
		make_trace(c, &c->preload, t->n_layer, t->n_expert, t->top_k, between(c, 1, 40), t);
		c->ref.preload = &c->preload;
	} else if (chance(c, 10)) {
		c->ref.preload_all = 1;
		c->all_order = calloc(n, sizeof(*c->all_order));
		assert_non_null(c->all_order);
		for (size_t i = 0; i < n; i++)
			c->all_order[i] = (uint32_t)i;
		c->config.preload = c->all_order;
		c->config.n_preload = n;
	}
}

/* The rest of a case whose trace has these sizes. */
static void make_case(struct random_case *c, uint32_t n_layer, uint32_t n_expert, uint32_t top_k, uint32_t n_token)
{
	make_trace(c, &c->trace, n_layer, n_expert, top_k, n_token, NULL);
	c->n_head = between(c, top_k, n_expert);
	c->config.core = (struct gm_core_config){
		.n_layer = n_layer,
		.n_expert = n_expert,
		.top_k = top_k,
		.expert_bytes = c->trace.expert_bytes,
		.seed = c->seed,
	};
	make_policies(c);
	make_room(c);
	make_start(c);
	if (chance(c, 75))
		make_times(c);
}

static void begin(struct random_case *c, uint64_t seed, bool wide)
{
	*c = (struct random_case){.seed = seed, .rng = seed * 0xd1342543de82ef95u, .wide = wide};
}

void random_case_make(struct random_case *c, uint64_t seed)
{
	begin(c, seed, false);
	uint32_t n_layer = between(c, 1, RC_MAX_LAYER), n_expert = between(c, 3, 24);
	uint32_t top_k = between(c, 1, n_expert < 5 ? n_expert - 1 : 5);

	make_case(c, n_layer, n_expert, top_k, between(c, 5, 150));
}

void random_case_make_wide(struct random_case *c, uint64_t seed)
{
	begin(c, seed, true);
	uint32_t n_layer = between(c, 1, 3), n_expert = between(c, 64, chance(c, 50) ? 160 : 600);
	uint32_t most = chance(c, 50) ? 8 : chance(c, 80) ? 32 : 100; /* rows of more than 64 picks take other paths */
	uint32_t top_k = between(c, 1, most < n_expert ? most : n_expert);

	make_case(c, n_layer, n_expert, top_k, between(c, 20, 400));
}

void random_case_make_long_rows(struct random_case *c, uint64_t seed)
{
	begin(c, seed, true);
	uint32_t n_expert = between(c, 70, 160);

	make_case(c, between(c, 1, 2), n_expert, between(c, 63, n_expert < 100 ? n_expert : 100), between(c, 5, 40));
}

void random_case_free(struct random_case *c)
{
	ref_trace_free(&c->trace);
	if (c->ref.preload)
		ref_trace_free(&c->preload);
	free(c->all_order);
}

void random_case_describe(const struct random_case *c, char *out, size_t size)
{
	char evict[GM_POLICY_TEXT], miss[GM_POLICY_TEXT], admit[GM_POLICY_TEXT];

	snprintf(out, size,
		 "seed %llu: %u layers x %u experts, top %u, head %u, %u tokens, %s%s%s, scope %s, %s, %s, %s, prefill %s, "
		 "warm-up %u%s%s%s%s%s",
		 (unsigned long long)c->seed, c->trace.n_layer, c->trace.n_expert, c->trace.top_k, c->n_head,
		 c->trace.n_token, c->trace.gating == REF_SOFTMAX ? "softmax" : "sigmoid", c->trace.bias ? ", bias" : "",
		 c->trace.n_group ? ", groups" : "", c->ref.scope == REF_SCOPE_LAYER ? "layer" : "global",
		 gm_policy_format(&c->config.core.evict.ops->info, c->config.core.evict.arg, evict),
		 gm_policy_format(&c->config.core.miss.ops->info, c->config.core.miss.arg, miss),
		 gm_policy_format(&c->config.core.admit.ops->info, c->config.core.admit.arg, admit),
		 c->ref.prefill_batch ? "batch" : "token", c->ref.warmup, c->ref.reset_per_sequence ? ", reset" : "",
		 c->ref.preload ? ", preload" : "", c->ref.preload_all ? ", preload all" : "",
		 c->config.timed ? ", timed" : "", c->config.timed && c->ref.disk ? ", disk" : "");
}
