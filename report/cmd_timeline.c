/* report timeline: one token as a picture. */
#include "report/commands.h"

#include "base/file.h"
#include "base/number.h"
#include "report/inputs.h"
#include "report/timeline.h"

enum { OUT = 1, TOKEN, TITLE };

static const struct gm_option options[] = {
	{OUT, 'o', "out", "FILE", "the picture to write (SVG); - for standard output"},
	{TOKEN, 0, "token", "N", "which token of the file, from 0 [0]"},
	{TITLE, 0, "title", "TEXT", "heading [the trace's name]"},
	{0, 0, NULL, NULL, NULL},
};
static const struct gm_option *const tables[] = {options};

struct state {
	const char *out, *title;
	uint64_t token;
};

static int option(int id, const char *value, void *data, struct gm_error *err)
{
	struct state *state = data;

	switch (id) {
	case OUT:
		state->out = value;
		return GM_OK;
	case TOKEN:
		return gm_parse_u64(value, "--token", 0, SIZE_MAX / 2, &state->token, err);
	default:
		state->title = value;
		return GM_OK;
	}
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	const struct state *state = data;
	struct gm_timeline_file file;
	struct gm_output output;
	int status;

	if (!state->out)
		return gm_fail(err, GM_ERR_USAGE, "no output: --out: give the picture a name, such as -o token.svg");
	GM_TRY(gm_inputs_spare("--out", state->out, n_operand, operand, err));
	GM_TRY(gm_timeline_read(&file, operand[0], err));
	status = gm_output_open(&output, state->out, err);
	if (status == GM_OK) {
		status = gm_timeline_draw(&file, state->token, state->title, output.stream, err);
		if (status == GM_OK)
			status = gm_output_commit(&output, err);
		gm_output_discard(&output);
	}
	gm_timeline_free(&file);
	return status;
}

const struct gm_command gm_report_timeline = {
	.name = "timeline",
	.usage = "--out TOKEN.svg [options] TIMELINE.json",
	.help = "Draws the time of one token: what GPU, link, CPU and disk do, layer by layer. The file is what sim run "
		"or\n"
		"engine run --trace-events writes; Perfetto (ui.perfetto.dev) opens the same file to look at many tokens.",
	.example = "report timeline timeline.json --token 5 -o token.svg",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = 1,
	.run = run,
	.option = option,
	.state_bytes = sizeof(struct state),
};
