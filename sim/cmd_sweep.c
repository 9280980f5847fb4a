/* sim sweep: a grid of points over one trace or more. */
#include "sim/commands.h"

#include "base/number.h"
#include "sim/sweep_page.h"
#include "sim/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MEMORY (UINT64_C(200) * 1000 * 1000)
#define LEAST_MEMORY (UINT64_C(1) << 20)
#define MAX_TABLE_ROWS 200
#define MAX_TOLD 20 /* impossible points that are named on stderr; the CSV has all */

enum option_id { CSV = 1, HTML, GRID, MEMORY };

static const struct gm_option sweep_options[] = {
	{CSV, 0, "csv", "FILE", "write a row for each grid point (-: standard output)"},
	{HTML, 0, "html", "FILE", "make a page of the results, with figures (report html makes richer ones)"},
	{GRID, 0, "grid", "FILE", "read lists from JSON: {\"cache\": [\"10%\", \"25%\"], \"evict\": [\"lru\"]}"},
	{MEMORY, 0, "memory", "SIZE", "for replays side by side; more points read the trace again [200MB]"},
	{0, 0, NULL, NULL, NULL},
};
static const struct gm_option *const tables[] = {gm_policy_options, sweep_options, gm_split_options};

struct state {
	struct gm_sim_state common;
	struct gm_sweep_page page;
	uint64_t memory;
};

static int set_memory(struct state *state, const char *value, struct gm_error *err)
{
	bool has_unit;

	GM_TRY(gm_parse_bytes(value, "--memory", &state->memory, &has_unit, err));
	if (!has_unit || state->memory < LEAST_MEMORY)
		return gm_fail(err, GM_ERR_USAGE,
			       "not enough memory: --memory \"%.60s\": give a size with its unit, at least 1MiB", value);
	return GM_OK;
}

static int option(int id, const char *value, void *data, struct gm_error *err)
{
	struct state *state = data;

	switch (id) {
	case CSV:
		state->common.path[GM_FILE_POINTS] = value;
		return GM_OK;
	case HTML:
		state->common.other = value;
		state->common.other_option = "--html";
		return GM_OK;
	case GRID:
		GM_TRY(gm_sim_grid(&state->common, true, err));
		return gm_grid_file(state->common.grid, value, err);
	case MEMORY:
		return set_memory(state, value, err);
	default:
		return gm_sim_option(&state->common, true, id, value, err);
	}
}

/* How many points from number i on were left out for the same reason; 0 if an earlier one was. */
static size_t count_reason(const struct gm_sweep *sweep, size_t i)
{
	const char *why = gm_sweep_point(sweep, i)->error.text;
	size_t n = 0;

	for (size_t j = 0; j < sweep->n_point; j++) {
		const struct gm_error *error = &gm_sweep_point(sweep, j)->error;

		if (!error->code || strcmp(error->text, why) != 0)
			continue;
		if (j < i)
			return 0;
		n++;
	}
	return n;
}

/* Names the impossible points on stderr, each reason once, and a damaged trace once. */
static void tell_failures(const struct gm_sweep *sweep)
{
	size_t n_reason = 0, n_told = 0;
	char point[256], others[64];

	if (sweep->damage.code) {
		gm_note("no results of this trace: %s", sweep->damage.text);
		return;
	}
	for (size_t i = 0; i < sweep->n_point && n_reason < MAX_TOLD; i++) {
		const struct gm_error *error = &gm_sweep_point(sweep, i)->error;
		size_t n = error->code ? count_reason(sweep, i) : 0;

		if (n == 0)
			continue;
		others[0] = 0;
		if (n > 1)
			snprintf(others, sizeof(others), " and %zu more like it", n - 1);
		gm_note("grid point %zu%s left out (%s): %s", i + 1, others,
			gm_settings_describe(sweep->point[i].settings, point, sizeof(point)), error->text);
		n_reason++;
		n_told += n;
	}
	if (sweep->n_failed > n_told)
		gm_note("and %zu more grid points: see the column error", sweep->n_failed - n_told);
}

/* What the traces came to so far. */
struct progress {
	size_t n_done, n_failed; /* points with results and without */
	const char *whole;       /* the first trace that has results; "-" where it cannot be read again */
};

/* One of the traces, and what stays of it if it is lost before its turn. */
struct source {
	const char *path;
	struct gm_trace *trace; /* NULL: to be opened when its turn comes */
	struct gm_model model;
};

/* Sweeps a trace; where it can no longer be opened, all its points have that as their error. */
static int run_source(struct gm_sweep *sweep, struct source *source, const struct gm_settings *settings, size_t n,
		      struct gm_preloads *preloads, const struct gm_sweep_options *options, struct gm_error *err)
{
	struct gm_error lost = {0};

	if (!source->trace && !(source->trace = gm_trace_open(source->path, &lost))) {
		if (lost.code == GM_ERR_MEMORY)
			return gm_fail(err, lost.code, "%s", lost.text);
		return gm_sweep_lost(sweep, source->path, &source->model, settings, n, &lost, err);
	}
	return gm_sweep_run(sweep, source->trace, settings, n, preloads, options, err);
}

static int sweep_source(const struct state *state, struct source *source, const struct gm_settings *settings, size_t n,
			struct gm_preloads *preloads, struct gm_sweep_output *files, struct progress *progress,
			struct gm_error *err)
{
	struct gm_sweep_options options = {.memory_bytes = state->memory ? state->memory : DEFAULT_MEMORY};
	struct gm_sweep sweep = {0};
	int status;

	gm_sim_wants(&state->common, &options);
	GM_TRY_OUT(run_source(&sweep, source, settings, n, preloads, &options, err));
	GM_TRY_OUT(gm_sweep_output_write(files, &sweep, err));
	gm_sim_tell_untimed(&sweep);
	tell_failures(&sweep);
	progress->n_failed += sweep.n_failed;
	progress->n_done += sweep.n_point - sweep.n_failed;
	if (!progress->whole && sweep.n_failed < sweep.n_point)
		progress->whole = gm_trace_seekable(source->trace) ? source->path : "-";
	if (!gm_sim_writes_stdout(&state->common))
		status = gm_table_sweep(stdout, &sweep, MAX_TABLE_ROWS, err);
out:
	gm_sweep_free(&sweep);
	gm_trace_close(source->trace);
	source->trace = NULL;
	return status;
}

static void free_sources(struct source *source, int n)
{
	for (int i = 0; source && i < n; i++) {
		gm_trace_close(source[i].trace);
		gm_model_free(&source[i].model);
	}
	free(source);
}

/* Opens all traces, so that one which is missing is missed before the work begins. Those that can be opened again are closed meanwhile: there
 * may be more of them than files may be open. */
static int check_sources(struct source *source, int n, char *const *path, struct gm_error *err)
{
	for (int i = 0; i < n; i++) {
		source[i].path = path[i];
		if (!(source[i].trace = gm_trace_open(path[i], err)))
			return err->code;
		GM_TRY(gm_model_copy(&source[i].model, gm_trace_model(source[i].trace), err));
		if (gm_trace_seekable(source[i].trace)) {
			gm_trace_close(source[i].trace);
			source[i].trace = NULL;
		}
	}
	return GM_OK;
}

static int sweep_sources(const struct state *state, struct source *source, int n_source, const struct gm_settings *settings,
			 size_t n, struct gm_sweep_output *files, struct progress *progress, struct gm_error *err)
{
	struct gm_preloads *preloads = gm_preloads_new(err);
	int status = preloads ? GM_OK : GM_ERR_MEMORY;

	for (int i = 0; i < n_source && status == GM_OK; i++) {
		if (i > 0 && !gm_sim_writes_stdout(&state->common))
			putchar('\n');
		status = sweep_source(state, &source[i], settings, n, preloads, files, progress, err);
	}
	gm_preloads_free(preloads);
	return status;
}

static int write_page(struct state *state, const struct progress *progress, struct gm_error *err)
{
	if (progress->whole)
		return gm_sweep_page_write(&state->page, state->common.path, progress->whole, state->common.other, err);
	gm_note("no page, as no point has results: --html %s", state->common.other);
	return GM_OK;
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	struct state *state = data;
	struct gm_sweep_output files = {0};
	struct source *source = NULL;
	struct progress progress = {0};
	const struct gm_settings *settings;
	size_t n;
	int status;

	GM_TRY(gm_sim_expand(&state->common, true, &settings, &n, err));
	GM_TRY(gm_sim_check_files(&state->common, n_operand, operand, err));
	GM_TRY(gm_sim_check_preloads(&state->common, err));
	if (!(source = gm_alloc((size_t)n_operand, sizeof(*source), err)))
		return GM_ERR_MEMORY;
	GM_TRY_OUT(check_sources(source, n_operand, operand, err));
	if (state->common.other)
		GM_TRY_OUT(gm_sweep_page_begin(&state->page, state->common.path, err));
	GM_TRY_OUT(gm_sweep_output_open(&files, state->common.path, settings->head_only, err));
	GM_TRY_OUT(sweep_sources(state, source, n_operand, settings, n, &files, &progress, err));
	GM_TRY_OUT(gm_sweep_output_commit(&files, err));
	if (state->common.other)
		GM_TRY_OUT(write_page(state, &progress, err));
out:
	gm_sweep_output_discard(&files);
	free_sources(source, n_operand);
	return status == GM_OK && progress.n_failed > 0 ? GM_PARTLY_DONE : status;
}

static void release(void *data)
{
	gm_sweep_page_end(&((struct state *)data)->page);
	gm_sim_release(&((struct state *)data)->common);
}

const struct gm_command gm_sim_sweep = {
	.name = "sweep",
	.usage = "[options] TRACE...",
	.help = "Replays traces under every combination of the given values. Every policy option takes a comma list, and\n"
		"numbers also ranges from..to/step. The trace is decoded once for as many points as fit the memory.",
	.example =
		"sim sweep traces/samples/tinymoe.gmt --policy fetch-all,quality-first --cache 10%..50%/10% --csv out.csv",
	.options = tables,
	.n_table = sizeof(tables) / sizeof(*tables),
	.min_operand = 1,
	.max_operand = -1,
	.run = run,
	.option = option,
	.state_bytes = sizeof(struct state),
	.release = release,
};
