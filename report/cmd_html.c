/* report html: one page from result files. */
#include "report/commands.h"

#include "report/inputs.h"
#include "report/page.h"

enum { OUT = 1, TITLE };

static const struct gm_option options[] = {
	{OUT, 'o', "out", "FILE", "the page to write; - for standard output"},
	{TITLE, 0, "title", "TEXT", "heading of the page [the model's name]"},
	{0, 0, NULL, NULL, NULL},
};
static const struct gm_option *const tables[] = {options};

struct state {
	const char *out, *title;
};

static int option(int id, const char *value, void *data, struct gm_error *err)
{
	struct state *state = data;

	(void)err;
	*(id == OUT ? &state->out : &state->title) = value;
	return GM_OK;
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	const struct state *state = data;

	if (!state->out)
		return gm_fail(err, GM_ERR_USAGE, "no output: --out: give the page a name, such as -o page.html");
	GM_TRY(gm_inputs_spare("--out", state->out, n_operand, operand, err));
	return gm_report_page(n_operand, operand, state->out, state->title, err);
}

const struct gm_command gm_report_html = {
	.name = "html",
	.usage = "--out PAGE.html [options] RESULTS.csv...",
	.help = "Makes one page that shows results: tables to sort and filter, figures with their data.\n"
		"Files are recognised by their columns: CSV of sim sweep and emulate, their --per-layer, --per-sequence\n"
		"and --per-token files, and CSV of traces stats. The page needs no network and no other file.",
	.example = "report html out.csv layers.csv tokens.csv stats.csv -o page.html",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = -1,
	.run = run,
	.option = option,
	.state_bytes = sizeof(struct state),
};
