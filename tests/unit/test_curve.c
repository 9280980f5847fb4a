/* sim/curve.h and sim/lru.h against the simulator: the same hits for every cache size, and the same counters for several sizes at once, on random
 * traces and on the embedded one. */
#include "policies/table.h"
#include "sim/curve.h"
#include "sim/lru.h"
#include "sim/replay.h"
#include "tests/support/random_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
	struct gm_trace *trace;
	const struct gm_model *model;
	struct gm_scratch *scratch;
	struct gm_curve *curve;
	struct gm_lru *lru; /* all sizes */
	struct gm_replay_config lru_config;
	uint32_t *n_slot; /* [n_layer] of lru_config */
};

static void set_config(struct gm_replay_config *config, const struct fixture *f, uint32_t *n_slot, uint64_t warmup,
		       bool reset)
{
	struct gm_error err = {0};

	*config = (struct gm_replay_config){
		.core = {.n_layer = f->model->n_layer,
			 .n_expert = f->model->n_expert,
			 .top_k = f->model->top_k,
			 .expert_bytes = f->model->expert_bytes,
			 .n_slot = n_slot},
		.warmup = warmup,
		.reset_per_sequence = reset,
	};
	assert_int_equal(gm_evict_parse("lru", &config->core.evict, &err), 0);
	assert_int_equal(gm_miss_parse("fetch", &config->core.miss, &err), 0);
	assert_int_equal(gm_admit_parse("fetch", &config->core.admit, &err), 0);
}

static uint32_t *slots(const struct fixture *f, uint32_t n_slot)
{
	uint32_t *list = calloc(f->model->n_layer, sizeof(*list));

	assert_non_null(list);
	for (uint32_t l = 0; l < f->model->n_layer; l++)
		list[l] = n_slot;
	return list;
}

/* All sizes from top_k on in one replay; never with resets. */
static void start_lru(struct fixture *f, uint64_t warmup)
{
	uint32_t n = f->model->n_expert - f->model->top_k + 1, *sizes = calloc(n, sizeof(*sizes));
	struct gm_error err = {0};

	assert_non_null(sizes);
	for (uint32_t i = 0; i < n; i++)
		sizes[i] = f->model->top_k + i;
	f->n_slot = slots(f, f->model->top_k);
	set_config(&f->lru_config, f, f->n_slot, warmup, false);
	assert_true(gm_lru_serves(&f->lru_config));
	f->lru = gm_lru_new(&f->lru_config, sizes, n, &err);
	assert_non_null(f->lru);
	free(sizes);
}

static void start(struct fixture *f, const char *path, uint64_t warmup, bool reset)
{
	struct gm_error err = {0};
	const struct gm_window *window;
	int n;

	*f = (struct fixture){0};
	f->trace = gm_trace_open(path, &err);
	if (!f->trace)
		fail_msg("%s", err.text);
	f->model = gm_trace_model(f->trace);
	f->scratch = gm_scratch_new(f->model->n_expert, f->model->top_k, &err);
	f->curve = gm_curve_new(f->model, warmup, reset, &err);
	struct gm_windows *windows = gm_windows_new(f->trace, GM_PREFILL_TOKEN, 0, &err);

	assert_true(f->scratch && f->curve && windows);
	if (!reset)
		start_lru(f, warmup);
	while ((n = gm_windows_next(windows, &window, &err)) > 0) {
		for (int i = 0; i < n; i++) {
			gm_curve_window(f->curve, &window[i]);
			if (f->lru)
				gm_lru_window(f->lru, &window[i]);
		}
	}
	gm_curve_finish(f->curve);
	gm_windows_free(windows);
}

static void stop(struct fixture *f)
{
	gm_curve_free(f->curve);
	gm_lru_free(f->lru);
	free(f->n_slot);
	gm_scratch_free(f->scratch);
	gm_trace_close(f->trace);
}

static void check_lru(const struct fixture *f, uint32_t n_slot, const struct gm_tally *total, const struct gm_tally *layer)
{
	struct gm_tally *lru_layer = calloc(f->model->n_layer, sizeof(*lru_layer)), lru_total;

	assert_non_null(lru_layer);
	gm_lru_total(f->lru, n_slot, NULL, &lru_total, lru_layer);
	assert_memory_equal(&lru_total, total, sizeof(*total));
	assert_memory_equal(lru_layer, layer, f->model->n_layer * sizeof(*layer));
	free(lru_layer);
}

static void check_size(const struct fixture *f, uint32_t n_slot, uint64_t warmup, bool reset)
{
	struct gm_error err = {0};
	uint32_t *n_slots = slots(f, n_slot);
	struct gm_replay_config config;
	const struct gm_window *window;
	struct gm_tally total;
	int n;

	set_config(&config, f, n_slots, warmup, reset);
	struct gm_windows *windows = gm_windows_new(f->trace, GM_PREFILL_TOKEN, 0, &err);
	struct gm_replay *replay = gm_replay_new(&config, NULL, f->scratch, &err);

	assert_true(windows && replay);
	while ((n = gm_windows_next(windows, &window, &err)) > 0)
		assert_int_equal(gm_replay_windows(replay, windows, window, (uint32_t)n, &err), 0);
	gm_replay_total(replay, NULL, &total);
	for (uint32_t l = 0; l < f->model->n_layer; l++) {
		assert_int_equal(gm_curve_accesses(f->curve, l), gm_replay_layers(replay)[l].count.accesses);
		assert_int_equal(gm_curve_hits(f->curve, l, n_slot), gm_replay_layers(replay)[l].count.hits);
	}
	if (f->lru)
		check_lru(f, n_slot, &total, gm_replay_layers(replay));
	gm_replay_free(replay);
	gm_windows_free(windows);
	free(n_slots);
}

static void test_random_traces(void **state)
{
	char path[64];

	(void)state;
	snprintf(path, sizeof(path), "/tmp/gatemass-curve-%d.gmt", (int)getpid());
	for (uint64_t seed = 1; seed <= 150; seed++) {
		uint64_t warmup = seed % 3 ? 0 : seed % 40;
		bool reset = seed % 4 == 0;
		struct random_case c;
		struct fixture f;

		random_case_make(&c, seed);
		random_case_write(&c, &c.trace, path);
		start(&f, path, warmup, reset);
		for (uint32_t n_slot = f.model->top_k; n_slot <= f.model->n_expert; n_slot++)
			check_size(&f, n_slot, warmup, reset);
		stop(&f);
		random_case_free(&c);
	}
	unlink(path);
}

static void test_embedded_trace(void **state)
{
	struct fixture f;

	(void)state;
	start(&f, "traces/samples/tinymoe.gmt", 0, false);
	check_size(&f, 8, 0, false);
	check_size(&f, 32, 0, false);
	check_size(&f, 127, 0, false);
	stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_traces), cmocka_unit_test(test_embedded_trace)};

	return cmocka_run_group_tests_name("curve", tests, NULL, NULL);
}
