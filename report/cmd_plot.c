/* report plot: a figure for a paper, through gnuplot. */
#include "report/commands.h"

#include "base/file.h"
#include "report/inputs.h"
#include "report/plot.h"

#include <stdio.h>
#include <string.h>

enum { FIGURE = 1, OUT, FILES, WIDE };

static const struct gm_option options[] = {
	{FIGURE, 0, "figure", "NAME",
	 "pareto    time against substituted mass\n"
	 "curve     hit rate against cache size\n"
	 "time      where the time goes\n"
	 "layers    hit rate by layer (with a --per-layer file)\n"
	 "switch    around topic switches (with a --per-token file)\n"
	 "mass-ppl  perplexity against mass (results of emulate)"},
	{OUT, 'o', "out", "FILE", "the figure: .svg, .pdf or .png"},
	{FILES, 0, "files", "FOLDER", "write data and gnuplot scripts there, to copy and change"},
	{WIDE, 0, "wide", NULL, "as wide as a page of two columns, not as a column"},
	{0, 0, NULL, NULL, NULL},
};
static const struct gm_option *const tables[] = {options};

struct state {
	const struct gm_figure_kind *kind;
	const char *out, *files;
	bool wide;
};

static int set_figure(struct state *state, const char *value, struct gm_error *err)
{
	for (state->kind = gm_figure_kinds; state->kind->id; state->kind++)
		if (state->kind->plot && strcmp(state->kind->plot, value) == 0)
			return GM_OK;
	return gm_fail(err, GM_ERR_USAGE,
		       "no such figure: --figure \"%.60s\": pareto, curve, time, layers, switch or mass-ppl", value);
}

static int option(int id, const char *value, void *data, struct gm_error *err)
{
	struct state *state = data;

	switch (id) {
	case FIGURE:
		return set_figure(state, value, err);
	case OUT:
		state->out = value;
		return GM_OK;
	case FILES:
		state->files = value;
		return GM_OK;
	default:
		state->wide = true;
		return GM_OK;
	}
}

static int plot(const struct state *state, struct gm_plot *p, struct gm_error *err)
{
	if (p->figure->n_panel == 0)
		return gm_fail(err, GM_ERR_UNSUPPORTED, "nothing to draw: --figure %s: it needs %s", state->kind->plot,
			       state->kind->needs);
	if (state->files)
		GM_TRY(gm_plot_files(p, state->files, err));
	return state->out ? gm_plot_draw(p, state->out, err) : GM_OK;
}

/* What --out and --files would write must be none of the inputs. */
static int check_files(const struct state *state, int n_operand, char **operand, struct gm_error *err)
{
	char script[64], path[4200];
	const char *const names[] = {"data.tsv", "settings.gp", "style.gp", script};

	snprintf(script, sizeof(script), "%s.gp", state->kind->plot);
	GM_TRY(gm_inputs_spare("--out", state->out, n_operand, operand, err));
	for (size_t i = 0; state->files && i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "%.4000s/%s", state->files, names[i]);
		const struct gm_file_use use[] = {{path, "--files", true}, {state->out, "--out", true}};
		GM_TRY(gm_files_check(use, 2, err));
		GM_TRY(gm_inputs_spare("--files", path, n_operand, operand, err));
	}
	return GM_OK;
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	const struct state *state = data;
	struct gm_study study;
	struct gm_figure figure = {0};
	struct gm_plot p = {.study = &study, .figure = &figure, .wide = state->wide};
	int status;

	if (!state->kind)
		return gm_fail(err, GM_ERR_USAGE, "no figure: --figure: pareto, curve, time, layers, switch or mass-ppl");
	if (!state->out && !state->files)
		return gm_fail(err, GM_ERR_USAGE, "no output: --out: give the figure a name, such as -o figure.pdf");
	GM_TRY(check_files(state, n_operand, operand, err));
	if (state->out)
		GM_TRY(gm_plot_format(state->out, &p.format, err));
	GM_TRY(gm_study_read(&study, n_operand, operand, err));
	status = gm_figure_make(&figure, state->kind, &study, err);
	if (status == GM_OK)
		status = plot(state, &p, err);
	gm_figure_free(&figure);
	gm_study_free(&study);
	return status;
}

const struct gm_command gm_report_plot = {
	.name = "plot",
	.usage = "--figure NAME --out FIGURE.svg|.pdf|.png [options] RESULTS.csv...",
	.help = "Draws a figure for a paper through gnuplot: sized for a column (3.35 in) or, with --wide, a page (7 in) "
		"of a\n"
		"two-column layout, in colours that colour-blind readers can tell apart. --files gives the data and the\n"
		"gnuplot scripts, to change what does not fit.",
	.example = "report plot out.csv --figure pareto -o pareto.pdf",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = -1,
	.run = run,
	.option = option,
	.state_bytes = sizeof(struct state),
};
