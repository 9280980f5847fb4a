/* sim run: one point. */
#include "sim/commands.h"

#include "sim/table.h"
#include "sim/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option_id { JSON = 1, TRACE_EVENTS, TRACE_TOKENS, ARRIVALS };

static const struct gm_option run_options[] = {
	{JSON, 0, "json", NULL, "print one JSON object instead of the table"},
	{TRACE_EVENTS, 0, "trace-events", "FILE", "write the simulated timeline as Chrome trace events (for Perfetto)"},
	{TRACE_TOKENS, 0, "trace-tokens", "FROM..TO", "of these tokens, both ends included [0..15]"},
	{ARRIVALS, 0, "arrivals", "FILE",
	 "let copies in the background land as they did in the run of engine that\nrecorded TRACE and FILE; only counts"},
	{0, 0, NULL, NULL, NULL},
};
static const struct gm_option *const tables[] = {gm_policy_options, run_options, gm_split_options};

struct state {
	struct gm_sim_state common;
	bool json, has_range;
	uint64_t from, to; /* inclusive */
	struct gm_landings landings;
};

static int option(int id, const char *value, void *data, struct gm_error *err)
{
	struct state *state = data;

	switch (id) {
	case JSON:
		state->json = true;
		return GM_OK;
	case TRACE_EVENTS:
		state->common.other = value;
		state->common.other_option = "--trace-events";
		return GM_OK;
	case TRACE_TOKENS:
		state->has_range = true;
		return gm_timeline_tokens(value, &state->from, &state->to, err);
	case ARRIVALS:
		state->common.arrivals = value;
		return GM_OK;
	default:
		return gm_sim_option(&state->common, false, id, value, err);
	}
}

static int print_json(const struct gm_sweep *sweep, bool extra, struct gm_error *err)
{
	struct gm_result result;

	gm_sweep_result(sweep, 0, &result);
	struct gm_json *object = gm_result_json(&result, extra);
	char *text = object ? gm_json_print(object, true) : NULL;
	gm_json_free(object);
	if (!text)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory: the result as JSON");
	printf("%s\n", text);
	free(text);
	return GM_OK;
}

static int check(const struct state *state, const struct gm_settings *settings, struct gm_error *err)
{
	if (state->has_range && !state->common.other)
		return gm_fail(err, GM_ERR_USAGE,
			       "tokens of a timeline that is not written: --trace-tokens: give --trace-events FILE");
	if (state->common.other && settings->profile->instant)
		return gm_fail(err, GM_ERR_USAGE,
			       "no timeline without times: --hw instant: give a hardware profile with times");
	if (state->json && gm_sim_writes_stdout(&state->common))
		return gm_fail(err, GM_ERR_USAGE,
			       "two outputs on standard output: --json and a file \"-\": give the file a name");
	return GM_OK;
}

/* Measured arrivals leave nothing to simulate: the default profile gives way to one that only counts. */
static int expand(struct state *state, const struct gm_settings **settings, struct gm_error *err)
{
	size_t n;

	GM_TRY(gm_sim_expand(&state->common, false, settings, &n, err));
	if (!state->common.arrivals || (*settings)->hw_given)
		return GM_OK;
	GM_TRY(gm_grid_option(state->common.grid, GM_OPTION_HW, "instant", err));
	return gm_sim_expand(&state->common, false, settings, &n, err);
}

static int read_arrivals(struct state *state, struct gm_sweep_options *options, struct gm_error *err)
{
	if (!state->common.arrivals)
		return GM_OK;
	options->landings = &state->landings;
	return gm_landings_read(&state->landings, state->common.arrivals, err);
}

/* Runs the point; its own failure is the command's. */
static int replay(struct gm_sweep *sweep, struct gm_trace *trace, const struct gm_settings *settings,
		  struct gm_preloads *preloads, const struct gm_sweep_options *options, struct gm_error *err)
{
	GM_TRY(gm_sweep_run(sweep, trace, settings, 1, preloads, options, err));
	if (sweep->point->error.code)
		return gm_fail(err, sweep->point->error.code, "%s", sweep->point->error.text);
	if (options->span && !sweep->point->plan.timed)
		return gm_fail(err, GM_ERR_USAGE, "no timeline without times: --trace-events: %s",
			       sweep->point->plan.untimed);
	return GM_OK;
}

static int write_outputs(struct state *state, struct gm_sweep *sweep, struct gm_sweep_output *files,
			 struct gm_output *events, bool extra, struct gm_error *err)
{
	GM_TRY(gm_sweep_output_write(files, sweep, err));
	if (state->json)
		GM_TRY(print_json(sweep, extra, err));
	else if (!gm_sim_writes_stdout(&state->common))
		gm_table_run(stdout, sweep);
	if (events->stream)
		GM_TRY(gm_output_commit(events, err));
	return gm_sweep_output_commit(files, err);
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	struct state *state = data;
	struct gm_sweep_options options = {0};
	struct gm_sweep sweep = {0};
	struct gm_sweep_output files = {0};
	struct gm_output events = {0};
	struct gm_timeline timeline;
	struct gm_preloads *preloads = NULL;
	struct gm_trace *trace = NULL;
	const struct gm_settings *settings;
	int status;

	GM_TRY(expand(state, &settings, err));
	GM_TRY(check(state, settings, err));
	GM_TRY(gm_sim_check_files(&state->common, n_operand, operand, err));
	GM_TRY(read_arrivals(state, &options, err));
	gm_sim_wants(&state->common, &options);
	if (!(preloads = gm_preloads_new(err)) || !(trace = gm_trace_open(operand[0], err))) {
		status = err->code;
		goto out;
	}
	GM_TRY_OUT(gm_sweep_output_open(&files, state->common.path, settings->head_only, err));
	if (state->common.other) {
		GM_TRY_OUT(gm_output_open(&events, state->common.other, err));
		gm_timeline_begin(&timeline, events.stream, gm_trace_path(trace));
		options.span = &timeline.sink;
		options.span_from = state->from;
		options.span_to = state->has_range ? state->to + 1 : GM_TIMELINE_TOKENS;
	}
	GM_TRY_OUT(replay(&sweep, trace, settings, preloads, &options, err));
	if (state->common.other)
		gm_timeline_end(&timeline);
	gm_sim_tell_untimed(&sweep);
	status = write_outputs(state, &sweep, &files, &events, settings->head_only, err);
out:
	gm_output_discard(&events);
	gm_sweep_output_discard(&files);
	gm_sweep_free(&sweep);
	gm_trace_close(trace);
	gm_preloads_free(preloads);
	return status;
}

static void release(void *data)
{
	struct state *state = data;

	gm_landings_free(&state->landings);
	gm_sim_release(&state->common);
}

const struct gm_command gm_sim_run = {
	.name = "run",
	.usage = "[options] TRACE",
	.help = "Replays a trace under one policy and says what it would cost in time and in substituted gate weight.",
	.example = "sim run traces/samples/tinymoe.gmt --policy quality-first --cache 25%",
	.options = tables,
	.n_table = sizeof(tables) / sizeof(*tables),
	.min_operand = 1,
	.max_operand = 1,
	.run = run,
	.option = option,
	.state_bytes = sizeof(struct state),
	.release = release,
};
