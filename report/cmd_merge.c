/* report merge: result files of one kind as one. */
#include "report/commands.h"

#include "base/file.h"
#include "report/inputs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { OUT = 1 };

#define N_KEY 8

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

/* --- rows that say the same --- */

struct keys {
	const struct gm_sheet *sheet;
	size_t column[N_KEY]; /* those that name what a row is about */
};

static void find_keys(struct keys *k, const struct gm_sheet *sheet)
{
	static const char *const names[N_KEY] = {"trace_hash", "settings_hash", "layer", "sequence",
						 "token",      "statistic",     "index", "substitute_weight"};

	k->sheet = sheet;
	for (size_t i = 0; i < N_KEY; i++)
		k->column[i] = gm_sheet_find(sheet, names[i]);
	if (k->column[0] == GM_NO_COLUMN) /* files by token have no hash */
		k->column[0] = gm_sheet_find(sheet, "trace");
}

static int compare_keys(const struct keys *k, size_t a, size_t b)
{
	int order = 0;

	for (size_t i = 0; i < N_KEY && order == 0; i++)
		order = strcmp(gm_sheet_text(k->sheet, a, k->column[i]), gm_sheet_text(k->sheet, b, k->column[i]));
	return order;
}

static int by_key(const void *left, const void *right, void *keys)
{
	const size_t a = *(const size_t *)left, b = *(const size_t *)right;
	int order = compare_keys(keys, a, b);

	return order ? order : (a > b) - (a < b);
}

/* Names of files and programs may differ between two runs of the same. */
static bool is_origin(const char *column)
{
	return strcmp(column, "trace") == 0 || strcmp(column, "version") == 0 || strcmp(column, "preload") == 0;
}

/* The first column in which two rows differ, or GM_NO_COLUMN. */
static size_t differ(const struct gm_sheet *sheet, size_t a, size_t b)
{
	for (size_t c = 0; c < sheet->n_column; c++)
		if (!is_origin(sheet->column[c]) && strcmp(gm_sheet_text(sheet, a, c), gm_sheet_text(sheet, b, c)) != 0)
			return c;
	return GM_NO_COLUMN;
}

/* Of rows about the same thing the first is kept; drop [n_row]. */
static int find_doubles(const struct gm_sheet *sheet, bool *drop, size_t *n_double, struct gm_error *err)
{
	size_t *order = gm_alloc(sheet->n_row, sizeof(*order), err);
	char right[160];
	struct keys keys;
	int status = order ? GM_OK : GM_ERR_MEMORY;

	find_keys(&keys, sheet);
	for (size_t i = 0; order && i < sheet->n_row; i++)
		order[i] = i;
	if (order)
		qsort_r(order, sheet->n_row, sizeof(*order), by_key, &keys);
	for (size_t i = 1, first = 0; i < sheet->n_row && status == GM_OK; i++) {
		if (compare_keys(&keys, order[first], order[i]) != 0) {
			first = i;
			continue;
		}
		size_t column = differ(sheet, order[first], order[i]);
		const struct gm_sheet_place *place = &sheet->place[order[first]];
		if (column != GM_NO_COLUMN) {
			snprintf(right, sizeof(right),
				 "%.60s, line %" PRIu64 " has \"%.30s\" for the same trace and settings",
				 sheet->file[place->file].name, place->line, gm_sheet_text(sheet, order[first], column));
			status = gm_sheet_fail(sheet, order[i], column, "two results for one thing", right, err);
		}
		drop[order[i]] = true;
		++*n_double;
	}
	free(order);
	return status;
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

static int write_rows(struct gm_sheet *sheet, const bool *drop, const char *path, struct gm_error *err)
{
	struct gm_output out;
	size_t n = 0;

	for (size_t row = 0; row < sheet->n_row; row++)
		if (!drop[row]) {
			memmove(sheet->cell + n * sheet->n_column, sheet->cell + row * sheet->n_column,
				sheet->n_column * sizeof(*sheet->cell));
			n++;
		}
	sheet->n_row = n;
	GM_TRY(gm_output_open(&out, path, err));
	gm_sheet_write(sheet, out.stream);
	return gm_output_commit(&out, err);
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	const char *path = ((const struct state *)data)->out;
	struct gm_inputs inputs = {0};
	enum gm_input kind = GM_INPUT_RESULTS;
	bool *drop = NULL;
	size_t n_double = 0;
	int status;

	GM_TRY(gm_inputs_spare("--out", path, n_operand, operand, err));
	GM_TRY_OUT(read_one_kind(&inputs, n_operand, operand, &kind, err));
	drop = gm_alloc(inputs.sheet[kind].n_row, sizeof(*drop), err);
	GM_TRY_OUT(drop ? GM_OK : GM_ERR_MEMORY);
	GM_TRY_OUT(find_doubles(&inputs.sheet[kind], drop, &n_double, err));
	GM_TRY_OUT(write_rows(&inputs.sheet[kind], drop, path ? path : "-", err));
	if (n_double > 0)
		gm_note("%zu row%s that stood there twice left out", n_double, n_double == 1 ? "" : "s");
out:
	free(drop);
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
