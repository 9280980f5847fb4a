/* What the tests of the reference replay share: a world to set up by hand, to run and to look into. */
#ifndef GATEMASS_TESTS_REFERENCE_COMMON_H
#define GATEMASS_TESTS_REFERENCE_COMMON_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/reference/reference.h"

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

static inline void world_init(struct world *w, uint32_t n_layer, uint32_t n_expert, uint32_t top_k, uint32_t n_token,
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

static inline void world_free(struct world *w)
{
	ref_result_free(&w->result);
	ref_trace_free(&w->trace);
}

static inline void set_times(struct world *w, double dense_us, double gpu_us, double cpu_us, double copy_us)
{
	for (uint32_t l = 0; l < w->trace.n_layer; l++) {
		w->dense_us[l] = dense_us;
		w->gpu_expert_us[l] = gpu_us;
		w->cpu_expert_us[l] = cpu_us;
	}
	w->config.link_latency_us = copy_us;
}

/* The row requests ids[0], ids[1], ... in this rank order: logits 0, -1, -2, ...; all other experts have -100. */
static inline void want(struct ref_trace *trace, uint32_t token, uint32_t layer, const uint32_t *ids)
{
	float *z = ref_trace_row(trace, token, layer);

	for (uint32_t e = 0; e < trace->n_expert; e++)
		z[e] = -100.0f;
	for (uint32_t i = 0; i < trace->top_k; i++)
		z[ids[i]] = -(float)i;
}

#define WANT(trace, token, layer, ...) want(trace, token, layer, (const uint32_t[]){__VA_ARGS__})

/* One layer, k = 1: the tokens request these experts. */
static inline void want_ones(struct ref_trace *trace, const uint32_t *ids)
{
	for (uint32_t t = 0; t < trace->n_token; t++)
		want(trace, t, 0, &ids[t]);
}

static inline const struct ref_counters *run(struct world *w)
{
	ref_result_free(&w->result);
	assert_int_equal(ref_replay(&w->trace, &w->config, &w->result, &w->coverage), REF_OK);
	return &w->result.counters;
}

static inline void assert_near(double a, double b)
{
	if (fabs(a - b) > 1e-9 * (1 + fabs(a) + fabs(b)))
		fail_msg("%.17g is not %.17g", a, b);
}

/* R19: the parts add up to the whole, in the run and in every layer. */
static inline void assert_split(const struct ref_trace *trace, const struct ref_result *result)
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

#endif
