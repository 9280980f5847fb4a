/* What a replay costs: ns (and, under callgrind, instructions) a lookup and configuration, and decoding a token.
 *
 *	build/bench/replay TRACE [--once] [--only NAME] [--points N]
 *
 * A lookup is one pick of one configuration. Decoding is measured apart from replaying. A line is name, number of units, unit, ns a unit, the
 * best of three rounds (--once: one round, for counting instructions). --points: only the first N points of a grid. scripts/bench.sh makes the
 * trace, runs this plainly and under callgrind, and prints the table.
 */
#include "policies/table.h"
#include "sim/curve.h"
#include "sim/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif
#endif
#ifndef CALLGRIND_ZERO_STATS
#define CALLGRIND_ZERO_STATS
#define CALLGRIND_DUMP_STATS_AT(name)
#define CALLGRIND_TOGGLE_COLLECT
#endif

#define MAX_POINT 64

struct scenario {
	const char *name;
	const char *evict, *miss, *admit, *hw;
};

/* Points of about equal cost. */
#define THRESHOLDS                                                                                                         \
	"threshold:0.100,threshold:0.101,threshold:0.102,threshold:0.103,threshold:0.104,threshold:0.105,threshold:0.106," \
	"threshold:0.107,threshold:0.108,threshold:0.109,threshold:0.110,threshold:0.111,threshold:0.112,threshold:0.113," \
	"threshold:0.114,threshold:0.115"

static const struct scenario scenarios[] = {
	{"nop", "nop", "fetch", "fetch", "instant"},
	{"lru, fetch, counts only", "lru", "fetch", "fetch", "instant"},
	{"lru, fetch, time model", "lru", "fetch", "fetch", NULL},
	{"lfu, fetch, time model", "lfu", "fetch", "fetch", NULL},
	{"lfu-decay:64, fetch, time model", "lfu-decay:64", "fetch", "fetch", NULL},
	{"quality-first, time model", "lfu", "threshold:0.15", "background:0.5", NULL},
	{"belady, fetch, time model", "belady", "fetch", "fetch", NULL},
	{"grid of 64, each point by itself", "lru,lfu,lfu-decay:64,fifo", "fetch,threshold:0.15,first-choice,substitute",
	 "fetch,background:0.5", NULL},
	{"16 thresholds, time model", "lfu", THRESHOLDS, "background:0.5", NULL},
};
#define N_SCENARIO (sizeof(scenarios) / sizeof(*scenarios))
#define GRID 7

/* Processor time: what other programs use meanwhile does not count. */
static double cpu_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void die(const struct gm_error *err)
{
	fprintf(stderr, "bench: %s\n", err->text);
	exit(1);
}

struct run {
	struct gm_trace *trace;
	struct gm_scratch *scratch;
	struct gm_preloads *preloads;
	struct gm_grid *grid;
	const struct gm_settings *settings;
	size_t n, max_n;
	struct gm_plan plan[MAX_POINT];
	struct gm_replay *replay[MAX_POINT];
	double replay_s;
	uint64_t lookups;
};

static void set(struct run *run, int option, const char *value)
{
	struct gm_error err = {0};

	if (value && gm_grid_option(run->grid, option, value, &err) < 0)
		die(&err);
}

static void expand(struct run *run, const struct scenario *s)
{
	struct gm_error err = {0};

	run->grid = gm_grid_new(true, &err);
	run->preloads = gm_preloads_new(&err);
	if (!run->grid || !run->preloads)
		die(&err);
	set(run, GM_OPTION_CACHE, strstr(s->name, "grid") ? "12.5%,25%" : "25%");
	set(run, GM_OPTION_EVICT, s->evict);
	set(run, GM_OPTION_MISS, s->miss);
	set(run, GM_OPTION_ADMIT, s->admit);
	set(run, GM_OPTION_HW, s->hw);
	if (gm_grid_option(run->grid, GM_OPTION_HEAD_ONLY, NULL, &err) < 0)
		die(&err);
	if (gm_grid_expand(run->grid, &run->settings, &run->n, &err) < 0)
		die(&err);
	run->n = run->n < run->max_n ? run->n : run->max_n;
}

static unsigned prepare(struct run *run, const struct scenario *s)
{
	struct gm_error err = {0};
	unsigned flags = 0;

	expand(run, s);
	for (size_t i = 0; i < run->n; i++) {
		if (gm_plan_make(&run->plan[i], &run->settings[i], run->trace, run->preloads, &err) < 0)
			die(&err);
		flags |= run->plan[i].window_flags;
	}
	return flags;
}

static void start(struct run *run, const struct gm_windows *windows)
{
	struct gm_error err = {0};

	for (size_t i = 0; i < run->n; i++) {
		run->plan[i].config.core.first_use = gm_windows_first_use(windows);
		run->replay[i] = gm_replay_new(&run->plan[i].config, NULL, run->scratch, &err);
		if (!run->replay[i])
			die(&err);
	}
}

/* One pass over the trace: windows are decoded (timed), then replayed by every point (timed apart, and counted by callgrind). */
static void replay_all(struct run *run, unsigned flags)
{
	const struct gm_model *model = gm_trace_model(run->trace);
	struct gm_error err = {0};
	const struct gm_window *window;
	struct gm_windows *windows = gm_windows_new(run->trace, GM_PREFILL_TOKEN, flags, &err);
	int status;

	if (!windows)
		die(&err);
	run->replay_s = 0;
	run->lookups = 0;
	start(run, windows);
	while ((status = gm_windows_next(windows, &window, &err)) > 0) {
		double decoded = cpu_s();

		CALLGRIND_TOGGLE_COLLECT;
		for (size_t i = 0; i < run->n; i++)
			if (gm_replay_windows(run->replay[i], windows, window, (uint32_t)status, &err) < 0)
				die(&err);
		CALLGRIND_TOGGLE_COLLECT;
		run->replay_s += cpu_s() - decoded;
		for (int i = 0; i < status; i++)
			run->lookups += (uint64_t)window[i].n_token * model->n_layer * model->top_k * run->n;
	}
	if (status < 0)
		die(&err);
	for (size_t i = 0; i < run->n; i++) {
		if (gm_replay_is_late(run->replay[i], run->plan[i].config.hw)) {
			gm_fail(&err, GM_ERR_UNSUPPORTED,
				"copies come late on this trace: a sweep would replay it once more");
			die(&err);
		}
		gm_replay_free(run->replay[i]);
	}
	gm_windows_free(windows);
}

static void bench(struct gm_trace *trace, const struct scenario *s, int rounds, size_t max_n)
{
	const struct gm_model *model = gm_trace_model(trace);
	struct gm_error err = {0};
	struct run run = {.trace = trace, .max_n = max_n};
	unsigned flags;
	double best = 0;

	run.scratch = gm_scratch_new(model->n_expert, model->top_k, &err);
	if (!run.scratch)
		die(&err);
	flags = prepare(&run, s);
	for (int i = 0; i < rounds; i++) {
		CALLGRIND_ZERO_STATS;
		replay_all(&run, flags);
		best = i == 0 || run.replay_s < best ? run.replay_s : best;
	}
	CALLGRIND_DUMP_STATS_AT(s->name);
	printf("%s\t%llu\tlookup\t%.4f\n", s->name, (unsigned long long)run.lookups, best * 1e9 / (double)run.lookups);
	fflush(stdout);
	for (size_t i = 0; i < run.n; i++)
		gm_plan_free(&run.plan[i]);
	gm_preloads_free(run.preloads);
	gm_grid_free(run.grid);
	gm_scratch_free(run.scratch);
}

/* The points of a grid in one sweep, as `sim sweep` runs it: planning and decoding included, equal results computed once. */
static void bench_sweep(struct gm_trace *trace, const char *name, const struct scenario *s, int rounds)
{
	const struct gm_sweep_options options = {.memory_bytes = 512 << 20, .quiet = true};
	const struct gm_model *model = gm_trace_model(trace);
	struct gm_error err = {0};
	struct run run = {.max_n = MAX_POINT};
	uint64_t lookups;
	double best = 0;

	expand(&run, s);
	lookups = gm_trace_n_token(trace) * model->n_layer * model->top_k * run.n;
	for (int i = 0; i < rounds; i++) {
		struct gm_sweep sweep;
		double before = cpu_s();

		CALLGRIND_ZERO_STATS;
		CALLGRIND_TOGGLE_COLLECT;
		if (gm_sweep_run(&sweep, trace, run.settings, run.n, run.preloads, &options, &err) < 0)
			die(&err);
		CALLGRIND_TOGGLE_COLLECT;
		before = cpu_s() - before;
		best = i == 0 || before < best ? before : best;
		if (sweep.n_failed)
			die(&sweep.point[0].error);
		gm_sweep_free(&sweep);
	}
	CALLGRIND_DUMP_STATS_AT(name);
	printf("%s\t%llu\tlookup\t%.4f\n", name, (unsigned long long)lookups, best * 1e9 / (double)lookups);
	fflush(stdout);
	gm_preloads_free(run.preloads);
	gm_grid_free(run.grid);
}

/* LRU hit rates of all cache sizes: a lookup is one pick, for all sizes together. */
static void bench_curve(struct gm_trace *trace, const char *name, int rounds)
{
	const struct gm_model *model = gm_trace_model(trace);
	uint64_t lookups = gm_trace_n_token(trace) * model->n_layer * model->top_k;
	struct gm_error err = {0};
	double best = 0;

	for (int i = 0; i < rounds; i++) {
		struct gm_windows *windows = gm_windows_new(trace, GM_PREFILL_TOKEN, 0, &err);
		struct gm_curve *curve = gm_curve_new(model, 0, false, &err);
		const struct gm_window *window;
		double spent = 0;
		int status;

		if (!windows || !curve)
			die(&err);
		CALLGRIND_ZERO_STATS;
		while ((status = gm_windows_next(windows, &window, &err)) > 0) {
			double before = cpu_s();

			CALLGRIND_TOGGLE_COLLECT;
			for (int j = 0; j < status; j++)
				gm_curve_window(curve, &window[j]);
			CALLGRIND_TOGGLE_COLLECT;
			spent += cpu_s() - before;
		}
		if (status < 0)
			die(&err);
		gm_curve_free(curve);
		gm_windows_free(windows);
		best = i == 0 || spent < best ? spent : best;
	}
	CALLGRIND_DUMP_STATS_AT(name);
	printf("%s\t%llu\tlookup\t%.4f\n", name, (unsigned long long)lookups, best * 1e9 / (double)lookups);
}

/* Seconds of the quickest round of reading all blocks. */
static double time_decode(struct gm_trace *trace, unsigned want, int rounds)
{
	struct gm_block block = {0};
	struct gm_error err = {0};
	double best = 0;

	for (int i = 0; i < rounds; i++) {
		double before = cpu_s();
		int status = 1;

		CALLGRIND_ZERO_STATS;
		CALLGRIND_TOGGLE_COLLECT;
		for (uint64_t b = 0; status > 0; b++)
			status = gm_trace_read(trace, b, want, &block, &err);
		CALLGRIND_TOGGLE_COLLECT;
		if (status < 0)
			die(&err);
		before = cpu_s() - before;
		best = i == 0 || before < best ? before : best;
	}
	gm_block_free(&block);
	return best;
}

static void bench_decode(struct gm_trace *trace, const char *name, unsigned want, int rounds)
{
	double best = time_decode(trace, want, rounds);

	CALLGRIND_DUMP_STATS_AT(name);
	printf("%s\t%llu\ttoken\t%.2f\n", name, (unsigned long long)gm_trace_n_token(trace),
	       best * 1e9 / (double)gm_trace_n_token(trace));
}

/* What belady needs before it starts, decoding apart, which the same pass needs too. */
static void bench_next_use(struct gm_trace *trace, const char *name, int rounds)
{
	const struct gm_model *model = gm_trace_model(trace);
	uint64_t lookups = gm_trace_n_token(trace) * model->n_layer * model->top_k;
	double best = 0, decode = time_decode(trace, GM_WANT_HEAD, rounds);
	struct gm_error err = {0};

	for (int i = 0; i < rounds; i++) {
		double before = cpu_s();
		struct gm_windows *windows = gm_windows_new(trace, GM_PREFILL_TOKEN, GM_WINDOWS_NEXT_USE, &err);

		if (!windows)
			die(&err);
		before = cpu_s() - before;
		best = i == 0 || before < best ? before : best;
		gm_windows_free(windows);
	}
	printf("%s\t%llu\tlookup\t%.4f\n", name, (unsigned long long)lookups, (best - decode) * 1e9 / (double)lookups);
}

/* What the processor gives just now: additions that wait for each other take a cycle each. Where it is slowed down, or a core is shared with
 * neighbours, this line grows with the others. */
static void bench_cycle(const char *name, int rounds)
{
	const uint32_t n = 1u << 26;
	double best = 0;

	for (int i = 0; i < rounds; i++) {
		double before = cpu_s();
		uint64_t sum = 0, step = 1;

		for (uint32_t j = 0; j < n; j += 4) {
			__asm__ volatile("" : "+r"(step)); /* not known, so that they cannot be done at once */
			sum += step;
			__asm__ volatile("" : "+r"(sum));
			sum += step;
			__asm__ volatile("" : "+r"(sum));
			sum += step;
			__asm__ volatile("" : "+r"(sum));
			sum += step;
			__asm__ volatile("" : "+r"(sum));
		}
		before = cpu_s() - before;
		best = i == 0 || before < best ? before : best;
	}
	printf("%s\t%u\taddition\t%.4f\n", name, n, best * 1e9 / n);
}

int main(int argc, char **argv)
{
	const char *only = NULL;
	struct gm_error err = {0};
	size_t max_n = MAX_POINT;
	int rounds = 3;

	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--once") == 0)
			rounds = 1;
		else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
			only = argv[++i];
		else if (strcmp(argv[i], "--points") == 0 && i + 1 < argc)
			max_n = strtoul(argv[++i], NULL, 10);
	}
	struct gm_trace *trace = argc > 1 ? gm_trace_open(argv[1], &err) : NULL;

	if (!trace) {
		fprintf(stderr, "bench: %s\nusage: replay TRACE [--once] [--only NAME] [--points N]\n",
			argc > 1 ? err.text : "no trace");
		return 2;
	}
	if (!only && rounds > 1)
		bench_cycle("a cycle, by additions in a chain", rounds);
	for (size_t i = 0; i < N_SCENARIO; i++)
		if (!only || strstr(scenarios[i].name, only))
			bench(trace, &scenarios[i], rounds, max_n);
	if (!only || strcmp(only, "grid of 64 mixed points") == 0)
		bench_sweep(trace, "grid of 64 mixed points", &scenarios[GRID], rounds);
	if (!only || strcmp(only, "curve, all lru sizes") == 0)
		bench_curve(trace, "curve, all lru sizes", rounds);
	if (!only || strcmp(only, "next-use pass for belady") == 0)
		bench_next_use(trace, "next-use pass for belady", rounds);
	if (!only || strcmp(only, "decode of the head") == 0)
		bench_decode(trace, "decode of the head", GM_WANT_HEAD, rounds);
	if (gm_trace_tail(trace) != GM_TAIL_NONE && (!only || strcmp(only, "decode of head and tail") == 0))
		bench_decode(trace, "decode of head and tail", GM_WANT_TAIL, rounds);
	gm_trace_close(trace);
	return 0;
}
