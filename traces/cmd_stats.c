/* `traces stats`: popularity, reuse, weights by rank and overlap across label changes, layer by layer. */
#include "base/file.h"
#include "traces/commands.h"
#include "traces/stats.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { CSV = 1 };

static const struct gm_option options[] = {
	{CSV, 0, "csv", "FILE", "write all of it, a row for each value (-: standard output)"},
	{0, 0, NULL, NULL, NULL},
};
static const struct gm_option *const tables[] = {options};

struct state {
	const char *csv;
};

static int take_option(int id, const char *value, void *state, struct gm_error *err)
{
	(void)id, (void)err;
	((struct state *)state)->csv = value;
	return GM_OK;
}

/* --- a table on the terminal --- */

/* Share of the picks that the n most requested experts of a layer get. */
static double top_share(const struct gm_stats *s, uint32_t layer, uint32_t n)
{
	const uint64_t *requests = s->requests + (size_t)layer * s->n_expert;
	uint64_t sum = 0, above = UINT64_MAX;
	uint32_t taken = 0;

	/* Counts from the largest down, all experts of one count together. */
	while (taken < n) {
		uint64_t next = 0;
		uint32_t equal = 0;

		for (uint32_t e = 0; e < s->n_expert; e++)
			if (requests[e] < above && requests[e] > next)
				next = requests[e];
		for (uint32_t e = 0; e < s->n_expert && next > 0; e++)
			equal += requests[e] == next;
		if (equal == 0)
			break;
		equal = equal < n - taken ? equal : n - taken;
		sum += equal * next;
		taken += equal;
		above = next;
	}
	return s->rows[layer] ? (double)sum / ((double)s->rows[layer] * s->top_k) : (double)NAN;
}

static void put_percent(double share)
{
	if (isnan(share))
		printf("  %8s", "-");
	else
		printf("  %8.1f", 100 * share);
}

static void print_table(const struct gm_stats *s, const struct gm_trace *trace)
{
	const uint32_t quarter = s->hot_size[1];

	printf("%s: %" PRIu32 " of %" PRIu32 " experts a token; by chance %.1f %% are chosen again\n\n",
	       gm_trace_path(trace), s->top_k, s->n_expert, 100.0 * s->top_k / s->n_expert);
	printf("%5s  %8s  %8s  %8s  %8s  %8s  %8s\n", "", "reuse %", "", "top 25%", "gate %", "hot set kept %", "");
	printf("%5s  %8s  %8s  %8s  %8s  %8s  %8s\n", "layer", "1 later", "16", "gets %", "rank 1", "same", "change");
	for (uint32_t layer = 0; layer < s->n_layer; layer++) {
		printf("%5" PRIu32, layer);
		put_percent(gm_mean_value(&s->reuse[(size_t)layer * GM_STATS_LAGS]));
		put_percent(gm_mean_value(&s->reuse[(size_t)layer * GM_STATS_LAGS + 15]));
		put_percent(top_share(s, layer, quarter));
		put_percent(gm_mean_value(&s->gate_rank[(size_t)layer * s->top_k]));
		put_percent(gm_mean_value(&s->overlap[0][(size_t)layer * GM_STATS_HOT + 1]));
		put_percent(gm_mean_value(&s->overlap[1][(size_t)layer * GM_STATS_HOT + 1]));
		putchar('\n');
	}
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	const struct state *state = data;
	const struct gm_file_use use[] = {{operand[0], "TRACE", false}, {state->csv, "--csv", true}};
	struct gm_stats stats;
	struct gm_trace *trace;
	int status;

	(void)n_operand;
	GM_TRY(gm_files_check(use, 2, err));
	trace = gm_trace_open(operand[0], err);
	if (!trace)
		return err->code;
	status = gm_stats_collect(&stats, trace, err);
	if (status == GM_OK) {
		if (state->csv)
			status = gm_stats_write_csv(&stats, trace, state->csv, err);
		else
			print_table(&stats, trace);
		gm_stats_free(&stats);
	}
	gm_trace_close(trace);
	return status;
}

const struct gm_command gm_traces_stats = {
	.name = "stats",
	.usage = "[--csv FILE] TRACE.gmt",
	.help = "Say what experts are popular and how long a choice lasts, layer by layer.\n"
		"With --csv: popularity by expert, reuse at lags 1 to 64 and by rank, gate weights by rank, overlap of\n"
		"popular experts across label changes (docs/reports.md); report html draws it.",
	.example = "traces stats --csv stats.csv model.gmt",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = 1,
	.run = run,
	.option = take_option,
	.state_bytes = sizeof(struct state),
};
