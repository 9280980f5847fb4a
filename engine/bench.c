#include "engine/bench.h"

#include "base/file.h"
#include "base/progress.h"
#include "base/version.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct work {
	struct gm_bench *bench;
	const struct gm_bench_options *options;
	struct gm_preloads *preloads;
	struct gm_plugin *plugin;
	struct gm_hook *hook, *stock; /* with experts in the plugin, and as llama.cpp has it */
	uint64_t stock_bytes;         /* GPU memory that it takes */
	uint64_t free_before;         /* what was free there before the engine was opened */
	int32_t *token;
	uint32_t n_token;
	struct gm_progress progress;
	uint64_t n_done;
};

/* --- opening --- */

static struct gm_hook_options hook_options(const struct work *w)
{
	struct gm_hook_options hook = w->options->run.hook;

	hook.n_ubatch = 1; /* a token after the other, as in decoding */
	return hook;
}

/* How much less is free than was before. */
static uint64_t gpu_bytes_since(uint64_t free_before)
{
	uint64_t left = gm_hook_gpu_free_bytes();

	return left < free_before ? free_before - left : 0;
}

static int open_stock(struct work *w, struct gm_error *err)
{
	struct gm_hook_options hook = hook_options(w);
	uint64_t free_before = gm_hook_gpu_free_bytes();

	hook.bare = true;
	w->stock = gm_hook_open(w->options->run.model, &hook, err);
	w->stock_bytes = gpu_bytes_since(free_before);
	return w->stock ? GM_OK : err->code;
}

static int open_engine(struct work *w, struct gm_error *err)
{
	struct gm_hook_options hook = hook_options(w);
	struct gm_plugin_options plugin = w->options->run.plugin;

	w->free_before = gm_hook_gpu_free_bytes();
	plugin.model = w->options->run.model;
	plugin.gpu = hook.n_gpu_layers != 0;
	w->plugin = gm_plugin_new(&plugin, err);
	if (!w->plugin)
		return err->code;
	hook.expert_buffer = gm_plugin_buffer_type(w->plugin);
	w->hook = gm_hook_open(w->options->run.model, &hook, err);
	w->preloads = w->hook ? gm_preloads_new(err) : NULL;
	return w->preloads ? GM_OK : err->code;
}

/* Either model, for what both say alike. */
static struct gm_hook *any_hook(const struct work *w)
{
	return w->hook ? w->hook : w->stock;
}

static int read_text(struct work *w, struct gm_error *err)
{
	const struct gm_run_options *run = &w->options->run;
	uint32_t n_ctx = gm_hook_info(any_hook(w))->n_ctx;
	size_t n;

	GM_TRY(gm_hook_tokenize(any_hook(w), run->prompt, run->prompt_size, run->special, &w->token, &n, err));
	w->n_token = n < w->options->n_token ? (uint32_t)n : w->options->n_token;
	if (w->n_token > n_ctx)
		return gm_fail(err, GM_ERR_USAGE, "%u tokens: the context holds %u: --ctx", w->n_token, n_ctx);
	if (w->n_token == 0)
		return gm_fail(err, GM_ERR_USAGE, "nothing to decode: the text is empty");
	return GM_OK;
}

static int make_points(struct work *w, struct gm_error *err)
{
	const struct gm_model *model = gm_hook_model(any_hook(w));
	struct gm_bench *bench = w->bench;

	for (size_t i = 0; i < w->options->n_settings; i++)
		if (w->options->settings[i].warmup >= w->n_token)
			return gm_fail(err, GM_ERR_USAGE,
				       "no token is left after the warm-up: --warmup %" PRIu64 ": %u are decoded",
				       w->options->settings[i].warmup, w->n_token);
	bench->point = gm_alloc(w->options->n_settings + 1, sizeof(*bench->point), err);
	if (!bench->point)
		return GM_ERR_MEMORY;
	for (bench->n_point = 0; bench->n_point <= w->options->n_settings; bench->n_point++) {
		struct gm_bench_point *point = &bench->point[bench->n_point];

		point->turn = gm_alloc(bench->n_round, sizeof(*point->turn), err);
		point->round_us = gm_alloc(bench->n_round, sizeof(*point->round_us), err);
		if (!point->turn || !point->round_us) {
			bench->n_point++; /* what is to be freed */
			return GM_ERR_MEMORY;
		}
		if (bench->n_point == 0) {
			point->result = (struct gm_result){.trace = "bench",
							   .model = bench->model,
							   .n_layer = model->n_layer,
							   .n_expert = model->n_expert,
							   .n_expert_used = model->top_k,
							   .cache_slots = (double)NAN,
							   .cache_fraction = (double)NAN,
							   .miss = "none",
							   .semantics_version = GM_SEMANTICS_VERSION,
							   .version = GM_VERSION};
			continue;
		}
		point->settings = &w->options->settings[bench->n_point - 1];
		gm_result_begin(&point->result, "bench", model, point->settings);
		point->result.model = bench->model;
	}
	return GM_OK;
}

/* --- a round --- */

static void tell(struct work *w)
{
	gm_progress_update(&w->progress, ++w->n_done);
}

/* Of the warm-up of the first policy, so that the same tokens are timed. */
static uint32_t warmup_of(const struct work *w, const struct gm_bench_point *point)
{
	const struct gm_settings *settings = point->settings ? point->settings : w->options->settings;

	return (uint32_t)settings->warmup;
}

static int run_stock(struct work *w, struct gm_bench_point *point, struct gm_bench_turn *turn, struct gm_error *err)
{
	uint32_t warmup = warmup_of(w, point);
	double start = 0;

	gm_hook_begin_sequence(w->stock);
	for (uint32_t i = 0; i < w->n_token; i++) {
		if (i == warmup)
			start = gm_clock_s();
		GM_TRY(gm_hook_pass(w->stock, w->token + i, 1, err));
		tell(w);
	}
	turn->us = (gm_clock_s() - start) * 1e6 / (double)(w->n_token - warmup);
	point->gpu_bytes = w->stock_bytes;
	return GM_OK;
}

static int decode(struct work *w, struct gm_cache *cache, struct gm_bench_point *point, struct gm_bench_turn *turn,
		  struct gm_error *err)
{
	uint32_t warmup = warmup_of(w, point);
	struct gm_engine_stats before = {0};
	double start = 0;

	GM_TRY(gm_cache_begin_sequence(cache, NULL, NULL, err));
	for (uint32_t i = 0; i < w->n_token; i++) {
		float logprob;

		if (i == warmup) {
			gm_cache_stats(cache, &before);
			start = gm_clock_s();
		}
		GM_TRY(gm_cache_pass(cache, w->token + i, 1, &logprob, err));
		tell(w);
	}
	turn->us = (gm_clock_s() - start) * 1e6 / (double)(w->n_token - warmup);
	gm_cache_stats(cache, &turn->stats);
	gm_engine_stats_since(&turn->stats, &before);
	point->n_timed = w->n_token - warmup;
	return GM_OK;
}

static void take_counters(const struct gm_cache *cache, struct gm_bench_point *point)
{
	struct gm_tally total;
	struct gm_score score;

	gm_account_total(gm_cache_account(cache), &total, &score);
	gm_result_plan(&point->result, gm_cache_plan(cache));
	gm_result_count(&point->result, gm_cache_plan(cache), &total);
	point->result.has_times = false; /* nothing is simulated */
}

static int run_policy(struct work *w, struct gm_bench_point *point, struct gm_bench_turn *turn, struct gm_error *err)
{
	struct gm_cache *cache =
		gm_cache_new(w->hook, w->plugin, point->settings, w->preloads, &w->options->run.cache, &point->error);
	int status;

	if (!cache) {
		snprintf(point->result.error, sizeof(point->result.error), "%s", point->error.text);
		w->bench->n_failed++;
		return point->error.code == GM_ERR_USAGE || point->error.code == GM_ERR_UNSUPPORTED
			       ? GM_OK
			       : gm_fail(err, point->error.code, "%s", point->error.text);
	}
	status = decode(w, cache, point, turn, err);
	point->gpu_bytes = gpu_bytes_since(w->free_before);
	if (status == GM_OK)
		take_counters(cache, point);
	gm_cache_free(cache);
	return status;
}

static bool has_turn(const struct gm_bench *bench, size_t point)
{
	return bench->only == GM_BENCH_BOTH || (bench->only == GM_BENCH_STOCK) == (point == 0);
}

static uint64_t count_turns(const struct gm_bench *bench)
{
	uint64_t n = 0;

	for (size_t i = 0; i < bench->n_point; i++)
		n += has_turn(bench, i);
	return n * bench->n_round;
}

static int run_rounds(struct work *w, struct gm_error *err)
{
	struct gm_bench *bench = w->bench;

	for (uint32_t r = 0; r < bench->n_round; r++)
		for (size_t i = 0; i < bench->n_point; i++) {
			struct gm_bench_point *point = &bench->point[i];

			if (!has_turn(bench, i))
				continue;
			if (i == 0)
				GM_TRY(run_stock(w, point, &point->turn[r], err));
			else if (!point->error.code)
				GM_TRY(run_policy(w, point, &point->turn[r], err));
		}
	return GM_OK;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int compare_turns(const void *a, const void *b)
{
	const struct gm_bench_turn *x = a, *y = b;

	return compare_doubles(&x->us, &y->us);
}

/* What the rounds came to. ratio [n_round] is room. */
static void sum_up_point(const struct gm_bench *bench, struct gm_bench_point *point, double *ratio)
{
	struct gm_bench_turn *turn = point->turn;
	uint32_t n = bench->n_round;

	for (uint32_t r = 0; r < n; r++)
		point->round_us[r] = turn[r].us;
	if (bench->only == GM_BENCH_BOTH) {
		for (uint32_t r = 0; r < n; r++) /* what disturbed the machine disturbed both */
			ratio[r] = point->round_us[r] / bench->point[0].round_us[r];
		qsort(ratio, n, sizeof(*ratio), compare_doubles);
		point->ratio = (ratio[(n - 1) / 2] + ratio[n / 2]) / 2;
	}
	qsort(turn, n, sizeof(*turn), compare_turns);
	point->median_us = (turn[(n - 1) / 2].us + turn[n / 2].us) / 2;
	point->min_us = turn[0].us;
	point->max_us = turn[n - 1].us;
	point->stats = turn[(n - 1) / 2].stats;
	point->stats_us = turn[(n - 1) / 2].us;
}

static int sum_up(struct gm_bench *bench, struct gm_error *err)
{
	double *ratio = gm_alloc(bench->n_round, sizeof(*ratio), err);

	if (!ratio)
		return GM_ERR_MEMORY;
	for (size_t i = 0; i < bench->n_point; i++) {
		struct gm_bench_point *point = &bench->point[i];

		point->ratio = point->median_us = point->min_us = point->max_us = (double)NAN;
		if (!point->error.code && has_turn(bench, i))
			sum_up_point(bench, point, ratio);
	}
	free(ratio);
	return GM_OK;
}

int gm_bench_run(struct gm_bench *bench, const struct gm_bench_options *options, struct gm_error *err)
{
	struct work w = {.bench = bench, .options = options};
	int status;

	memset(bench, 0, sizeof(*bench));
	bench->n_round = options->n_round;
	bench->only = options->only;
	gm_hook_load_library();
	if (options->only != GM_BENCH_POLICIES)
		GM_TRY_OUT(open_stock(&w, err));
	if (options->only != GM_BENCH_STOCK)
		GM_TRY_OUT(open_engine(&w, err));
	snprintf(bench->model, sizeof(bench->model), "%s", gm_hook_model(any_hook(&w))->name);
	snprintf(bench->device, sizeof(bench->device), "%s", w.plugin ? gm_plugin_device(w.plugin) : "its own devices");
	GM_TRY_OUT(read_text(&w, err));
	GM_TRY_OUT(make_points(&w, err));
	gm_progress_start(&w.progress, "bench", "tokens", count_turns(bench) * w.n_token, options->quiet);
	status = run_rounds(&w, err);
	gm_progress_end(&w.progress);
	if (status == GM_OK)
		status = sum_up(bench, err);
out:
	free(w.token);
	gm_preloads_free(w.preloads);
	gm_hook_close(w.hook);
	gm_hook_close(w.stock);
	gm_plugin_free(w.plugin);
	return status;
}

void gm_bench_free(struct gm_bench *bench)
{
	for (size_t i = 0; i < bench->n_point; i++) {
		free(bench->point[i].turn);
		free(bench->point[i].round_us);
	}
	free(bench->point);
	memset(bench, 0, sizeof(*bench));
}

/* --- what it came to --- */

static void print_point(FILE *out, const struct gm_bench_point *point)
{
	const struct gm_result *r = &point->result;
	double n = point->n_timed ? (double)point->n_timed : 1;
	char name[256] = "no cache";

	if (point->settings)
		gm_settings_describe(point->settings, name, sizeof(name));
	fprintf(out, "%-72s %9.0f %8.0f %8.0f", name, point->median_us, point->min_us, point->max_us);
	if (isnan(point->ratio))
		fprintf(out, " %6s", "-");
	else
		fprintf(out, " %6.2f", point->ratio);
	fprintf(out, " %7.0f", (double)point->gpu_bytes / 1e6);
	if (point->settings)
		fprintf(out, " %8.0f %8.0f %6.2f %6.2f %9.2f", point->stats.compute_us / n, point->stats.copy_us / n,
			100 * r->hit_rate, 100 * (r->substituted_mass + r->dropped_mass),
			(double)r->fetches / (double)r->tokens);
	fputc('\n', out);
}

void gm_bench_print(FILE *out, const struct gm_bench *bench)
{
	fprintf(out, "%s, experts on %s, %u rounds\n", bench->model, bench->device, bench->n_round);
	fprintf(out, "%-72s  us/token      min      max   rel.  GPU MB  experts     wait hits %% mass %% fetch/tok\n",
		"policy");
	for (size_t i = 0; i < bench->n_point; i++)
		if (has_turn(bench, i) && !bench->point[i].error.code)
			print_point(out, &bench->point[i]);
}

static void write_point(struct gm_csv_writer *csv, const struct gm_bench *bench, const struct gm_bench_point *point)
{
	double n = point->n_timed ? (double)point->n_timed : (double)NAN;

	gm_result_csv_row(csv, &point->result, 0, GM_RESULT_ALL, false);
	gm_csv_uint(csv, bench->n_round);
	gm_csv_double(csv, point->median_us);
	gm_csv_double(csv, point->min_us);
	gm_csv_double(csv, point->max_us);
	gm_csv_doubles(csv, point->round_us, isnan(point->median_us) ? 0 : bench->n_round);
	gm_csv_double(csv, point->ratio);
	gm_csv_double(csv, point->stats.compute_us / n);
	gm_csv_double(csv, point->stats.copy_us / n);
	gm_csv_uint(csv, point->stats.device_bytes);
	gm_csv_uint(csv, point->gpu_bytes);
	gm_csv_end_row(csv);
}

int gm_bench_write(const char *path, const struct gm_bench *bench, struct gm_error *err)
{
	static const char *const names[] = {
		"rounds",         "measured_us", "measured_us_min", "measured_us_max", "measured_us_rounds",
		"ratio_to_stock", "experts_us",  "wait_us",         "device_bytes",    "gpu_bytes"};
	struct gm_output output;
	struct gm_csv_writer csv = {0};

	GM_TRY(gm_output_open(&output, path, err));
	csv.stream = output.stream;
	gm_result_csv_header(&csv, 0, GM_RESULT_ALL, false);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		gm_csv_text(&csv, names[i]);
	gm_csv_end_row(&csv);
	for (size_t i = 0; i < bench->n_point; i++)
		if (has_turn(bench, i))
			write_point(&csv, bench, &bench->point[i]);
	return gm_output_commit(&output, err);
}
