/* sim curve: LRU hit rates of all cache sizes in one pass. */
#include "sim/commands.h"

#include "base/csv.h"
#include "base/file.h"
#include "base/number.h"
#include "base/progress.h"
#include "sim/curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum option_id { CSV = 1, PER_LAYER, WARMUP, RESET, QUIET };

static const struct gm_option options[] = {
	{CSV, 0, "csv", "FILE", "write hits for every number of slots as CSV"},
	{PER_LAYER, 0, "per-layer", "FILE", "write the same for each layer as CSV"},
	{WARMUP, 0, "warmup", "N", "leave the first N tokens out of every count"},
	{RESET, 0, "reset-per-sequence", NULL, "begin every sequence with an empty cache"},
	{QUIET, 'q', "quiet", NULL, "no progress on the terminal"},
	{0, 0, NULL, NULL, NULL},
};
static const struct gm_option *const tables[] = {options};

struct state {
	const char *csv, *per_layer;
	uint64_t warmup;
	bool reset, quiet;
};

static int option(int id, const char *value, void *data, struct gm_error *err)
{
	struct state *state = data;

	switch (id) {
	case CSV:
		state->csv = value;
		return GM_OK;
	case PER_LAYER:
		state->per_layer = value;
		return GM_OK;
	case WARMUP:
		return gm_parse_u64(value, "--warmup", 0, UINT64_MAX, &state->warmup, err);
	case RESET:
		state->reset = true;
		return GM_OK;
	default:
		state->quiet = true;
		return GM_OK;
	}
}

static int read_trace(struct gm_curve *curve, struct gm_trace *trace, bool quiet, struct gm_error *err)
{
	struct gm_windows *windows = gm_windows_new(trace, GM_PREFILL_TOKEN, 0, err);
	const struct gm_window *window;
	struct gm_progress progress;
	int n;

	if (!windows)
		return err->code;
	gm_progress_start(&progress, "curve", "tokens", gm_trace_n_token(trace), quiet);
	while ((n = gm_windows_next(windows, &window, err)) > 0) {
		for (int i = 0; i < n; i++)
			gm_curve_window(curve, &window[i]);
		gm_progress_update(&progress, window[n - 1].first_token + window[n - 1].n_token);
	}
	gm_progress_end(&progress);
	gm_curve_finish(curve);
	gm_windows_free(windows);
	return n;
}

/* --- output --- */

struct point {
	uint64_t hits, accesses, bytes; /* bytes of the cache in all layers; 0: not known */
};

static struct point point_at(const struct gm_curve *curve, const struct gm_model *model, uint32_t n_slot)
{
	struct point point = {0};

	for (uint32_t l = 0; l < model->n_layer; l++) {
		point.hits += gm_curve_hits(curve, l, n_slot);
		point.accesses += gm_curve_accesses(curve, l);
		point.bytes += model->expert_bytes ? model->expert_bytes[l] * n_slot : 0;
	}
	return point;
}

static double rate(const struct point *point)
{
	return point->accesses ? (double)point->hits / (double)point->accesses : NAN;
}

static void write_row(struct gm_csv_writer *csv, const struct gm_model *model, uint32_t n_slot, const struct point *point)
{
	gm_csv_uint(csv, n_slot);
	gm_csv_double(csv, (double)n_slot / model->n_expert);
	gm_csv_double(csv, point->bytes ? (double)point->bytes : NAN);
	gm_csv_uint(csv, point->accesses);
	gm_csv_uint(csv, point->hits);
	gm_csv_double(csv, rate(point));
	gm_csv_end_row(csv);
}

static int write_csv(const char *path, bool by_layer, const struct gm_curve *curve, const struct gm_model *model,
		     struct gm_error *err)
{
	static const char *const columns[] = {"cache_slots", "cache_fraction", "cache_bytes",
					      "accesses",    "hits",           "hit_rate"};
	struct gm_output out;

	GM_TRY(gm_output_open(&out, path, err));
	struct gm_csv_writer csv = {.stream = out.stream};

	if (by_layer)
		gm_csv_text(&csv, "layer");
	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
		gm_csv_text(&csv, columns[i]);
	gm_csv_end_row(&csv);
	for (uint32_t l = 0; l < (by_layer ? model->n_layer : 1); l++) {
		for (uint32_t n_slot = model->top_k; n_slot <= model->n_expert; n_slot++) {
			struct point point = point_at(curve, model, n_slot);

			if (by_layer) {
				point.hits = gm_curve_hits(curve, l, n_slot);
				point.accesses = gm_curve_accesses(curve, l);
				point.bytes = model->expert_bytes ? model->expert_bytes[l] * n_slot : 0;
				gm_csv_uint(&csv, l);
			}
			write_row(&csv, model, n_slot, &point);
		}
	}
	return gm_output_commit(&out, err);
}

/* For a reader: the smallest cache for each of some hit rates. */
static void print_table(const struct gm_curve *curve, const struct gm_trace *trace)
{
	const struct gm_model *model = gm_trace_model(trace);
	struct point all = point_at(curve, model, model->n_expert);
	double best = rate(&all);
	char bytes[GM_NUMBER_TEXT];

	printf("%s: %s, %u layers x %u experts, %u used; lru, every miss fetched\n", gm_trace_path(trace), model->name,
	       model->n_layer, model->n_expert, model->top_k);
	printf("with everything that was ever used kept: %.2f %% hits\n\n", 100 * best);
	printf("hits %%  slots a layer  of all  expert bytes\n");
	for (int percent = 30; percent <= 98; percent += percent < 90 ? 10 : percent < 95 ? 5 : 3) {
		uint32_t n_slot = model->top_k;
		struct point point = point_at(curve, model, n_slot);

		while (n_slot < model->n_expert && rate(&point) < percent / 100.0)
			point = point_at(curve, model, ++n_slot);
		if (!(rate(&point) >= percent / 100.0)) {
			printf("%6d  out of reach\n", percent);
			continue;
		}
		printf("%6d  %13u  %4.1f %%  %12s\n", percent, n_slot, 100.0 * n_slot / model->n_expert,
		       point.bytes ? gm_format_bytes(point.bytes, bytes) : "not known");
	}
}

static bool is_stdout(const char *path)
{
	return path && strcmp(path, "-") == 0;
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	const struct state *state = data;
	const struct gm_file_use files[] = {
		{operand[0], "TRACE", false}, {state->csv, "--csv", true}, {state->per_layer, "--per-layer", true}};
	struct gm_curve *curve = NULL;
	struct gm_trace *trace;
	int status = GM_OK;

	(void)n_operand;
	GM_TRY(gm_files_check(files, sizeof(files) / sizeof(*files), err));
	GM_TRY(gm_streams_check(files, sizeof(files) / sizeof(*files), err));
	if (!(trace = gm_trace_open(operand[0], err)) ||
	    !(curve = gm_curve_new(gm_trace_model(trace), state->warmup, state->reset, err))) {
		status = err->code;
		goto out;
	}
	GM_TRY_OUT(read_trace(curve, trace, state->quiet, err));
	if (state->csv)
		GM_TRY_OUT(write_csv(state->csv, false, curve, gm_trace_model(trace), err));
	if (state->per_layer)
		GM_TRY_OUT(write_csv(state->per_layer, true, curve, gm_trace_model(trace), err));
	if (!is_stdout(state->csv) && !is_stdout(state->per_layer))
		print_table(curve, trace);
out:
	gm_curve_free(curve);
	gm_trace_close(trace);
	return status;
}

const struct gm_command gm_sim_curve = {
	.name = "curve",
	.usage = "[options] TRACE",
	.help = "Finds the LRU hit rate of every cache size in one pass over a trace.",
	.example = "sim curve traces/samples/tinymoe.gmt --csv curve.csv",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = 1,
	.run = run,
	.option = option,
	.state_bytes = sizeof(struct state),
};
