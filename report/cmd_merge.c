/* report merge: result files of one kind as one. */
#include "report/commands.h"

#include "base/file.h"
#include "report/doubles.h"
#include "report/inputs.h"

enum { OUT = 1 };

static const struct gm_option options[] = {
	{OUT, 'o', "out", "FILE", "the file to write [standard output]"},
	{0, 0, NULL, NULL, NULL},
};
static const struct gm_option *const tables[] = {options};

struct state {
	const char *out;
};

static int option(int id, const char *value, void *data, struct gm_error *err)
{
	(void)id, (void)err;
	((struct state *)data)->out = value;
	return GM_OK;
}

/* --- files --- */

static int read_one_kind(struct gm_inputs *inputs, int n, char **path, enum gm_input *kind, struct gm_error *err)
{
	for (int i = 0; i < n; i++) {
		enum gm_input found;

		GM_TRY(gm_inputs_read(inputs, path[i], &found, err));
		if (i > 0 && found != *kind)
			return gm_fail(err, GM_ERR_UNSUPPORTED,
				       "files of two kinds: %s is a %s, %s a %s: merge each kind by itself", path[0],
				       gm_input_name(*kind), path[i], gm_input_name(found));
		*kind = found;
	}
	return GM_OK;
}

static int write_rows(const struct gm_sheet *sheet, const char *path, struct gm_error *err)
{
	struct gm_output out;

	GM_TRY(gm_output_open(&out, path, err));
	gm_sheet_write(sheet, out.stream);
	return gm_output_commit(&out, err);
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	const char *path = ((const struct state *)data)->out;
	struct gm_inputs inputs = {0};
	enum gm_input kind = GM_INPUT_RESULTS;
	size_t n_double = 0;
	int status;

	GM_TRY(gm_inputs_spare("--out", path, n_operand, operand, err));
	GM_TRY_OUT(read_one_kind(&inputs, n_operand, operand, &kind, err));
	GM_TRY_OUT(gm_doubles_remove(&inputs.sheet[kind], &n_double, err));
	GM_TRY_OUT(write_rows(&inputs.sheet[kind], path ? path : "-", err));
	if (n_double > 0)
		gm_note("%zu row%s that stood there twice left out", n_double, n_double == 1 ? "" : "s");
out:
	gm_inputs_free(&inputs);
	return status;
}

const struct gm_command gm_report_merge = {
	.name = "merge",
	.usage = "[--out FILE] RESULTS.csv...",
	.help = "Puts result files of one kind into one: all columns, rows in order, those that say the same only once.\n"
		"Other versions of the replay rules, and two results for the same trace and settings, are errors.",
	.example = "report merge monday.csv tuesday.csv -o all.csv",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = -1,
	.run = run,
	.option = option,
	.state_bytes = sizeof(struct state),
};
