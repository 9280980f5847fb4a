#include "sim/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct gm_option gm_split_options[] = {
	{GM_OPTION_PER_LAYER, 0, "per-layer", "FILE", "write the counters of each layer as CSV"},
	{GM_OPTION_PER_SEQUENCE, 0, "per-sequence", "FILE", "write the counters of each sequence, with its label, as CSV"},
	{GM_OPTION_PER_TOKEN, 0, "per-token", "FILE", "write a CSV row for every token"},
	{GM_OPTION_QUIET, 'q', "quiet", NULL, "no progress on the terminal"},
	{0, 0, NULL, NULL, NULL},
};

int gm_sim_grid(struct gm_sim_state *state, bool lists, struct gm_error *err)
{
	if (!state->grid)
		state->grid = gm_grid_new(lists, err);
	return state->grid ? GM_OK : err->code;
}

int gm_sim_option(struct gm_sim_state *state, bool lists, int id, const char *value, struct gm_error *err)
{
	switch (id) {
	case GM_OPTION_PER_LAYER:
		state->path[GM_FILE_LAYERS] = value;
		return GM_OK;
	case GM_OPTION_PER_SEQUENCE:
		state->path[GM_FILE_SEQUENCES] = value;
		return GM_OK;
	case GM_OPTION_PER_TOKEN:
		state->path[GM_FILE_TOKENS] = value;
		return GM_OK;
	case GM_OPTION_QUIET:
		state->quiet = true;
		return GM_OK;
	default:
		GM_TRY(gm_sim_grid(state, lists, err));
		return gm_grid_option(state->grid, id, value, err);
	}
}

int gm_sim_expand(struct gm_sim_state *state, bool lists, const struct gm_settings **settings, size_t *n,
		  struct gm_error *err)
{
	GM_TRY(gm_sim_grid(state, lists, err));
	return gm_grid_expand(state->grid, settings, n, err);
}

int gm_sim_check_files(const struct gm_sim_state *state, int n_trace, char *const *trace, struct gm_error *err)
{
	static const char *const option[GM_N_SWEEP_FILE] = {"--csv", "--per-layer", "--per-sequence", "--per-token"};
	struct gm_file_use *use, *larger;
	size_t n;

	GM_TRY(gm_grid_inputs(state->grid, &use, &n, err));
	larger = gm_realloc(use, n + (size_t)n_trace + GM_N_SWEEP_FILE + 2, sizeof(*use), err);
	if (!larger) {
		free(use);
		return GM_ERR_MEMORY;
	}
	use = larger;
	for (int i = 0; i < n_trace; i++)
		use[n++] = (struct gm_file_use){.path = trace[i], .what = "TRACE"};
	use[n++] = (struct gm_file_use){.path = state->arrivals, .what = "--arrivals"};
	for (int i = 0; i < GM_N_SWEEP_FILE; i++)
		use[n++] = (struct gm_file_use){.path = state->path[i], .what = option[i], .is_output = true};
	use[n++] = (struct gm_file_use){.path = state->other, .what = state->other_option, .is_output = true};
	int status = gm_streams_check(use, n, err);
	if (status == GM_OK)
		status = gm_files_check(use, n, err);
	free(use);
	return status;
}

int gm_sim_check_preloads(const struct gm_sim_state *state, struct gm_error *err)
{
	struct gm_file_use *use;
	size_t n;
	int status = GM_OK;

	GM_TRY(gm_grid_inputs(state->grid, &use, &n, err));
	for (size_t i = 0; i < n && status == GM_OK; i++) {
		if (strcmp(use[i].what, "--preload") != 0 || strcmp(use[i].path, "-") == 0)
			continue;
		struct gm_trace *trace = gm_trace_open(use[i].path, err);
		status = trace ? GM_OK : err->code;
		gm_trace_close(trace);
	}
	free(use);
	return status;
}

void gm_sim_release(struct gm_sim_state *state)
{
	gm_grid_free(state->grid);
}

void gm_sim_wants(const struct gm_sim_state *state, struct gm_sweep_options *options)
{
	options->per_layer = state->path[GM_FILE_LAYERS] != NULL;
	options->per_sequence = state->path[GM_FILE_SEQUENCES] != NULL;
	options->per_token = state->path[GM_FILE_TOKENS] != NULL;
	options->quiet = state->quiet;
}

bool gm_sim_writes_stdout(const struct gm_sim_state *state)
{
	for (int i = 0; i < GM_N_SWEEP_FILE; i++)
		if (state->path[i] && strcmp(state->path[i], "-") == 0)
			return true;
	return state->other && strcmp(state->other, "-") == 0;
}

void gm_sim_tell_untimed(const struct gm_sweep *sweep)
{
	for (size_t i = 0; i < sweep->n_point; i++) {
		const struct gm_point *point = &sweep->point[i];

		if (!point->error.code && !point->plan.timed) {
			gm_note("only counting, without times: %s: %s", gm_trace_path(sweep->trace), point->plan.untimed);
			return;
		}
	}
}
