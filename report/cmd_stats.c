/* report stats: what can be said of an emulation, with intervals. */
#include "report/commands.h"

#include "base/file.h"
#include "base/number.h"
#include "report/stats.h"

#include <stdlib.h>

enum { CSV = 1, SEED, SAMPLES };

#define MIN_SAMPLES 100
#define MAX_SAMPLES 1000000

static const struct gm_option options[] = {
	{CSV, 0, "csv", "FILE", "write all numbers of all tables, more than are shown"},
	{SEED, 0, "seed", "N", "of the samples; the same seed draws the same [1]"},
	{SAMPLES, 0, "samples", "N", "how often the texts are drawn again [2000]"},
	{0, 0, NULL, NULL, NULL},
};
static const struct gm_option *const tables[] = {options};

struct state {
	const char *csv;
	uint64_t seed, n_sample;
	bool has_seed;
};

static int option(int id, const char *value, void *data, struct gm_error *err)
{
	struct state *state = data;

	switch (id) {
	case CSV:
		state->csv = value;
		return GM_OK;
	case SEED:
		state->has_seed = true;
		return gm_parse_u64(value, "--seed", 0, UINT64_MAX, &state->seed, err);
	default:
		return gm_parse_u64(value, "--samples", MIN_SAMPLES, MAX_SAMPLES, &state->n_sample, err);
	}
}

/* What --csv names is opened before the work, which would be lost if it could not be. */
static int make(struct gm_report_stats *stats, const char *path, struct gm_error *err)
{
	struct gm_output out = {0};
	int status = GM_OK;

	if (path)
		GM_TRY(gm_output_open(&out, path, err));
	GM_TRY_OUT(gm_report_stats_make(stats, err));
	if (path) {
		gm_sheet_write(&stats->all, out.stream);
		status = gm_output_commit(&out, err);
	}
out:
	gm_output_discard(&out);
	return status;
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	const struct state *state = data;
	struct gm_study study;
	struct gm_report_stats stats = {.study = &study, .bootstrap = GM_BOOTSTRAP_USUAL, .out = stdout};
	int status;

	if (state->has_seed)
		stats.bootstrap.seed = state->seed;
	if (state->n_sample > 0)
		stats.bootstrap.n_sample = (size_t)state->n_sample;
	/* With the numbers on standard output there is no room for text. */
	if (state->csv && state->csv[0] == '-' && state->csv[1] == '\0')
		stats.out = stderr;
	GM_TRY(gm_inputs_spare("--csv", state->csv, n_operand, operand, err));
	GM_TRY(gm_study_read(&study, n_operand, operand, err));
	status = gm_report_stats_prepare(&study, err);
	if (status == GM_OK)
		status = make(&stats, state->csv, err);
	gm_report_stats_free(&stats);
	gm_study_free(&study);
	return status;
}

const struct gm_command gm_report_stats = {
	.name = "stats",
	.usage = "[options] RESULTS.csv...",
	.help = "What can be said of an emulation, with 95 % intervals. From the results of emulate and its --per-sequence "
		"file:\n"
		"perplexity against the baseline and policy against policy, mass against perplexity, the same mass made "
		"up\n"
		"otherwise. From its --per-token file: what happens after topic switches. From results of sim sweep on a\n"
		"recording of the same texts: how far the replay was off.",
	.example = "report stats out.csv sequences.csv tokens.csv sim.csv --csv stats.csv",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = -1,
	.run = run,
	.option = option,
	.state_bytes = sizeof(struct state),
};
