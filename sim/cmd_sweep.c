/* sim sweep: a grid of points over one trace or more. */
#include "sim/commands.h"

#include "base/number.h"
#include "sim/sweep_page.h"
#include "sim/table.h"

#include <stdio.h>
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
	const char *html;
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
		state->html = value;
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

/* Names the impossible points on stderr. */
static void tell_failures(const struct gm_sweep *sweep)
{
	size_t told = 0;
	char point[256];

	for (size_t i = 0; i < sweep->n_point && told < MAX_TOLD; i++) {
		const struct gm_error *error = &gm_sweep_point(sweep, i)->error;

		if (!error->code)
			continue;
		fprintf(stderr, "sim: grid point %zu left out (%s): %s\n", i + 1,
			gm_settings_describe(sweep->point[i].settings, point, sizeof(point)), error->text);
		told++;
	}
	if (sweep->n_failed > told)
		fprintf(stderr, "sim: and %zu more grid points: see the column error\n", sweep->n_failed - told);
}

static int sweep_trace(const struct state *state, const char *path, const struct gm_settings *settings, size_t n,
		       struct gm_preloads *preloads, struct gm_sweep_output *files, size_t *n_failed, struct gm_error *err)
{
	struct gm_sweep_options options = {.memory_bytes = state->memory ? state->memory : DEFAULT_MEMORY};
	struct gm_trace *trace = gm_trace_open(path, err);
	struct gm_sweep sweep = {0};
	int status;

	if (!trace)
		return err->code;
	gm_sim_wants(&state->common, &options);
	GM_TRY_OUT(gm_sweep_run(&sweep, trace, settings, n, preloads, &options, err));
	GM_TRY_OUT(gm_sweep_output_write(files, &sweep, err));
	gm_sim_tell_untimed(&sweep);
	tell_failures(&sweep);
	*n_failed += sweep.n_failed;
	if (!gm_sim_writes_stdout(&state->common))
		status = gm_table_sweep(stdout, &sweep, MAX_TABLE_ROWS, err);
out:
	gm_sweep_free(&sweep);
	gm_trace_close(trace);
	return status;
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	struct state *state = data;
	struct gm_sweep_output files;
	struct gm_preloads *preloads;
	const struct gm_settings *settings;
	size_t n, n_failed = 0;
	int status = GM_OK;

	GM_TRY(gm_sim_expand(&state->common, true, &settings, &n, err));
	if (state->html)
		GM_TRY(gm_sweep_page_begin(&state->page, state->common.path, err));
	GM_TRY(gm_sweep_output_open(&files, state->common.path, settings->head_only, err));
	preloads = gm_preloads_new(err);
	if (!preloads)
		status = GM_ERR_MEMORY;
	for (int i = 0; i < n_operand && status == GM_OK; i++) {
		if (i > 0 && !gm_sim_writes_stdout(&state->common))
			putchar('\n');
		status = sweep_trace(state, operand[i], settings, n, preloads, &files, &n_failed, err);
	}
	if (status == GM_OK)
		status = gm_sweep_output_commit(&files, err);
	if (status == GM_OK && state->html)
		status = gm_sweep_page_write(&state->page, state->common.path, operand[0], state->html, err);
	gm_sweep_output_discard(&files);
	gm_preloads_free(preloads);
	return status == GM_OK && n_failed > 0 ? GM_PARTLY_DONE : status;
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
