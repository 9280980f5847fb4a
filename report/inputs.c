#include "report/inputs.h"

#include "base/file.h"
#include "report/columns.h"

#include <inttypes.h>
#include <string.h>

#define MAX_NEEDED 6

/* The more special come first: a file of layers has the columns of results too. */
static const struct {
	enum gm_input kind;
	const char *name, *needed[MAX_NEEDED];
} kinds[] = {
	{GM_INPUT_STATS, "statistics of traces stats", {"trace_hash", "layer", "statistic", "index", "value", NULL}},
	{GM_INPUT_LAYERS, "--per-layer file", {"settings_hash", "semantics_version", "layer", "hits", "misses", NULL}},
	{GM_INPUT_SEQUENCES, "--per-sequence file", {"settings_hash", "semantics_version", "sequence", "id", NULL}},
	{GM_INPUT_TOKENS, "--per-token file", {"settings_hash", "token", "sequence", "label", "hits", NULL}},
	{GM_INPUT_RESULTS,
	 "results of sim sweep or emulate",
	 {"trace_hash", "settings_hash", "semantics_version", "miss", NULL}},
};
#define N_KIND (sizeof(kinds) / sizeof(*kinds))

const char *gm_input_name(enum gm_input kind)
{
	for (size_t i = 0; i < N_KIND; i++)
		if (kinds[i].kind == kind)
			return kinds[i].name;
	return "?";
}

void gm_inputs_free(struct gm_inputs *inputs)
{
	for (int i = 0; i < GM_N_INPUT; i++)
		gm_sheet_free(&inputs->sheet[i]);
}

/* The first column that a kind needs and the sheet lacks, or NULL. */
static const char *lacking(const struct gm_sheet *sheet, size_t kind)
{
	for (size_t i = 0; kinds[kind].needed[i]; i++)
		if (gm_sheet_find(sheet, kinds[kind].needed[i]) == GM_NO_COLUMN)
			return kinds[kind].needed[i];
	return NULL;
}

static int recognise(const struct gm_sheet *sheet, enum gm_input *kind, struct gm_error *err)
{
	for (size_t i = 0; i < N_KIND; i++)
		if (!lacking(sheet, i)) {
			*kind = kinds[i].kind;
			return GM_OK;
		}
	return gm_fail(err, GM_ERR_FORMAT,
		       "not a result file: %s, line 1, column 1 (%.40s): no column \"%s\"; report reads CSV of sim sweep, "
		       "emulate and "
		       "traces stats",
		       sheet->file[0].name, sheet->column[0], lacking(sheet, N_KIND - 1));
}

static int check_numbers(const struct gm_sheet *sheet, struct gm_error *err)
{
	double value;

	for (size_t column = 0; column < sheet->n_column; column++) {
		if (!gm_is_number_column(gm_known_column(sheet->column[column])))
			continue;
		for (size_t row = 0; row < sheet->n_row; row++)
			GM_TRY(gm_sheet_number(sheet, row, column, &value, err));
	}
	return GM_OK;
}

/* All files, of whatever kind, must have been made by the same rules. */
static int check_versions(const struct gm_inputs *inputs, const struct gm_sheet *sheet, struct gm_error *err)
{
	const size_t column = gm_sheet_find(sheet, "semantics_version");
	const char *first = NULL;
	char right[128];

	if (column == GM_NO_COLUMN)
		return GM_OK;
	for (int i = 0; i < GM_N_INPUT && !first; i++)
		if (inputs->sheet[i].n_row > 0 && gm_sheet_find(&inputs->sheet[i], "semantics_version") != GM_NO_COLUMN)
			first = gm_sheet_text(&inputs->sheet[i], 0, gm_sheet_find(&inputs->sheet[i], "semantics_version"));
	first = first ? first : gm_sheet_text(sheet, 0, column);
	for (size_t row = 0; row < sheet->n_row; row++) {
		const char *text = gm_sheet_text(sheet, row, column);

		if (*text == '\0')
			return gm_sheet_fail(sheet, row, column, "no version of the rules", "a number, such as 1", err);
		if (strcmp(text, first) != 0) {
			snprintf(right, sizeof(right), "the rows before it are of %.20s, and only equal versions compare",
				 first);
			return gm_sheet_fail(sheet, row, column, "other version of the replay rules", right, err);
		}
	}
	return GM_OK;
}

static int check(const struct gm_inputs *inputs, const struct gm_sheet *sheet, enum gm_input *kind, struct gm_error *err)
{
	GM_TRY(recognise(sheet, kind, err));
	if (sheet->n_row == 0)
		return gm_fail(err, GM_ERR_FORMAT, "no rows: %s, line 2, column 1: there is only a header",
			       sheet->file[0].name);
	GM_TRY(check_numbers(sheet, err));
	return check_versions(inputs, sheet, err);
}

int gm_inputs_read(struct gm_inputs *inputs, const char *path, enum gm_input *kind, struct gm_error *err)
{
	struct gm_sheet sheet = {0};
	enum gm_input found = GM_INPUT_RESULTS;
	int status = gm_sheet_read(&sheet, path, err);

	if (status == GM_OK)
		status = check(inputs, &sheet, &found, err);
	if (status == GM_OK && inputs->sheet[found].n_file == 0) {
		inputs->sheet[found] = sheet;
		sheet = (struct gm_sheet){0};
	} else if (status == GM_OK) {
		status = gm_sheet_append(&inputs->sheet[found], &sheet, err);
	}
	gm_sheet_free(&sheet);
	if (kind)
		*kind = found;
	return status;
}

int gm_inputs_spare(const char *option, const char *path, int n_path, char *const *input, struct gm_error *err)
{
	for (int i = 0; i < n_path; i++) {
		const struct gm_file_use use[] = {{input[i], "input", false}, {path, option, true}};

		GM_TRY(gm_files_check(use, 2, err));
	}
	return GM_OK;
}

int gm_inputs_read_all(struct gm_inputs *inputs, int n_path, char *const *path, struct gm_error *err)
{
	int status = GM_OK;

	for (int i = 0; i < n_path && status == GM_OK; i++)
		status = gm_inputs_read(inputs, path[i], NULL, err);
	if (status < 0)
		gm_inputs_free(inputs);
	return status;
}
