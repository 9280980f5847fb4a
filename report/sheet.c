#include "report/sheet.h"

#include "base/csv.h"
#include "base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLUMNS 4096
#define SHOWN_BYTES 40 /* of a bad cell, in a message */

void gm_sheet_free(struct gm_sheet *sheet)
{
	for (size_t i = 0; i < sheet->n_column; i++)
		free(sheet->column[i]);
	for (size_t i = 0; i < sheet->n_file; i++) {
		free(sheet->file[i].name);
		free(sheet->file[i].column);
	}
	free(sheet->column);
	free(sheet->file);
	free(sheet->cell);
	free(sheet->place);
	free(sheet->text);
	*sheet = (struct gm_sheet){0};
}

/* --- growing --- */

/* Makes room for n values of an array that has room for *room. */
#define MAKE_ROOM(array, room, n, err)                          \
	do {                                                    \
		if ((n) > (room)) {                             \
			size_t more_ = (room) ? (room)*2 : 256; \
			more_ = more_ < (n) ? (n) : more_;      \
			GM_GROW(array, more_, err);             \
			(room) = more_;                         \
		}                                               \
	} while (0)

/* Copies a string into the block; empty ones share the one at its start. */
static int add_text(struct gm_sheet *sheet, const char *text, size_t *offset, struct gm_error *err)
{
	size_t size = text ? strlen(text) + 1 : 1;

	if (sheet->text_bytes == 0) {
		MAKE_ROOM(sheet->text, sheet->text_room, (size_t)1, err);
		sheet->text[sheet->text_bytes++] = '\0';
	}
	*offset = 0;
	if (size == 1)
		return GM_OK;
	MAKE_ROOM(sheet->text, sheet->text_room, sheet->text_bytes + size, err);
	memcpy(sheet->text + sheet->text_bytes, text, size);
	*offset = sheet->text_bytes;
	sheet->text_bytes += size;
	return GM_OK;
}

/* Spreads the rows so far over one column more, the last of which is empty. */
static int widen(struct gm_sheet *sheet, struct gm_error *err)
{
	const size_t old = sheet->n_column, wide = old + 1;

	MAKE_ROOM(sheet->cell, sheet->cell_room, sheet->n_row * wide, err);
	for (size_t row = sheet->n_row; row-- > 0;) {
		memmove(sheet->cell + row * wide, sheet->cell + row * old, old * sizeof(*sheet->cell));
		sheet->cell[row * wide + old] = 0;
	}
	return GM_OK;
}

int gm_sheet_add_column(struct gm_sheet *sheet, const char *name, struct gm_error *err)
{
	if (sheet->n_column >= MAX_COLUMNS)
		return gm_fail(err, GM_ERR_FORMAT, "too many columns: %.60s: at most %d", name, MAX_COLUMNS);
	GM_TRY(widen(sheet, err));
	GM_GROW(sheet->column, sheet->n_column + 1, err);
	sheet->column[sheet->n_column] = gm_strdup(name, err);
	if (!sheet->column[sheet->n_column])
		return GM_ERR_MEMORY;
	sheet->n_column++;
	return GM_OK;
}

static int add_row(struct gm_sheet *sheet, size_t file, uint64_t line, struct gm_error *err)
{
	const size_t end = (sheet->n_row + 1) * sheet->n_column;

	MAKE_ROOM(sheet->cell, sheet->cell_room, end, err);
	MAKE_ROOM(sheet->place, sheet->place_room, sheet->n_row + 1, err);
	memset(sheet->cell + sheet->n_row * sheet->n_column, 0, sheet->n_column * sizeof(*sheet->cell));
	sheet->place[sheet->n_row++] = (struct gm_sheet_place){file, line};
	return GM_OK;
}

int gm_sheet_put(struct gm_sheet *sheet, const char *text, struct gm_error *err)
{
	if (sheet->n_put == 0)
		GM_TRY(add_row(sheet, 0, 0, err));
	GM_TRY(add_text(sheet, text, &sheet->cell[(sheet->n_row - 1) * sheet->n_column + sheet->n_put], err));
	sheet->n_put = sheet->n_put + 1 == sheet->n_column ? 0 : sheet->n_put + 1;
	return GM_OK;
}

int gm_sheet_put_number(struct gm_sheet *sheet, double value, struct gm_error *err)
{
	char text[GM_NUMBER_TEXT];

	return gm_sheet_put(sheet, isnan(value) ? NULL : gm_format_double(value, text), err);
}

/* --- files --- */

struct input {
	FILE *stream;
	struct gm_csv_reader csv;
	const char *name;
};

static int map_header(struct gm_sheet *sheet, struct input *in, struct gm_error *err)
{
	struct gm_sheet_file *file = &sheet->file[0];
	char **field = in->csv.field;

	file->column = gm_alloc(in->csv.n_field, sizeof(*file->column), err);
	if (!file->column)
		return GM_ERR_MEMORY;
	file->n_field = in->csv.n_field;
	for (size_t i = 0; i < file->n_field; i++) {
		if (*field[i] == '\0')
			return gm_fail(err, GM_ERR_FORMAT,
				       "column without a name: %s, line %" PRIu64 ", column %zu: line 1 holds the names",
				       in->name, in->csv.line, i + 1);
		for (size_t j = 0; j < i; j++)
			if (strcmp(field[i], field[j]) == 0)
				return gm_fail(err, GM_ERR_FORMAT,
					       "column named twice: %s, line %" PRIu64
					       ", column %zu: \"%.40s\" is also column "
					       "%zu",
					       in->name, in->csv.line, i + 1, field[i], j + 1);
		GM_TRY(gm_sheet_add_column(sheet, field[i], err));
		file->column[i] = i;
	}
	return GM_OK;
}

static int take_row(struct gm_sheet *sheet, const struct input *in, struct gm_error *err)
{
	const struct gm_csv_reader *csv = &in->csv;
	const size_t wide = sheet->n_column;

	if (csv->n_field != wide)
		return gm_fail(err, GM_ERR_FORMAT,
			       "row of %zu fields: %s, line %" PRIu64
			       ", column %zu: the header has %zu; is the file cut off?",
			       csv->n_field, in->name, csv->line, csv->n_field < wide ? csv->n_field : wide + 1, wide);
	GM_TRY(add_row(sheet, 0, csv->line, err));
	for (size_t i = 0; i < wide; i++)
		GM_TRY(add_text(sheet, csv->field[i], &sheet->cell[(sheet->n_row - 1) * wide + i], err));
	return GM_OK;
}

static int read_rows(struct gm_sheet *sheet, struct input *in, struct gm_error *err)
{
	int got = gm_csv_next(&in->csv, err);

	if (got == 0)
		return gm_fail(err, GM_ERR_FORMAT,
			       "empty file: %s, line 1, column 1: a CSV file begins with the names of its columns",
			       in->name);
	GM_TRY(got);
	GM_TRY(map_header(sheet, in, err));
	while ((got = gm_csv_next(&in->csv, err)) > 0)
		GM_TRY(take_row(sheet, in, err));
	return got;
}

/* An empty entry in the list of files. */
static int add_file(struct gm_sheet *sheet, const char *name, struct gm_error *err)
{
	GM_GROW(sheet->file, sheet->n_file + 1, err);
	sheet->file[sheet->n_file] = (struct gm_sheet_file){.name = gm_strdup(name, err)};
	if (!sheet->file[sheet->n_file].name)
		return GM_ERR_MEMORY;
	sheet->n_file++;
	return GM_OK;
}

int gm_sheet_read(struct gm_sheet *sheet, const char *path, struct gm_error *err)
{
	const bool standard = strcmp(path, "-") == 0;
	struct input in = {.name = standard ? "standard input" : path};
	int status;

	GM_TRY(add_file(sheet, in.name, err));
	in.stream = standard ? stdin : fopen(path, "rbe");
	if (!in.stream)
		return gm_fail(err, GM_ERR_IO, "cannot read: %s: %s", path, strerror(errno));
	gm_csv_open(&in.csv, in.stream, in.name);
	status = read_rows(sheet, &in, err);
	gm_csv_close(&in.csv);
	if (!standard)
		fclose(in.stream);
	return status;
}

/* Files of more, with the columns that map [more->n_column] gives them. */
static int append_files(struct gm_sheet *sheet, const struct gm_sheet *more, const size_t *map, struct gm_error *err)
{
	for (size_t f = 0; f < more->n_file; f++) {
		const struct gm_sheet_file *from = &more->file[f];

		GM_TRY(add_file(sheet, from->name, err));
		struct gm_sheet_file *to = &sheet->file[sheet->n_file - 1];
		to->column = gm_alloc(from->n_field, sizeof(*to->column), err);
		if (!to->column)
			return GM_ERR_MEMORY;
		to->n_field = from->n_field;
		for (size_t i = 0; i < from->n_field; i++)
			to->column[i] = map[from->column[i]];
	}
	return GM_OK;
}

static int append_rows(struct gm_sheet *sheet, const struct gm_sheet *more, const size_t *map, size_t first_file,
		       struct gm_error *err)
{
	for (size_t row = 0; row < more->n_row; row++) {
		GM_TRY(add_row(sheet, more->place[row].file + first_file, more->place[row].line, err));
		size_t *cell = sheet->cell + (sheet->n_row - 1) * sheet->n_column;
		for (size_t i = 0; i < more->n_column; i++)
			GM_TRY(add_text(sheet, gm_sheet_text(more, row, i), &cell[map[i]], err));
	}
	return GM_OK;
}

int gm_sheet_append(struct gm_sheet *sheet, const struct gm_sheet *more, struct gm_error *err)
{
	const size_t first_file = sheet->n_file;
	size_t *map = gm_alloc(more->n_column, sizeof(*map), err);
	int status = map ? GM_OK : GM_ERR_MEMORY;

	for (size_t i = 0; i < more->n_column && status == GM_OK; i++) {
		map[i] = gm_sheet_find(sheet, more->column[i]);
		if (map[i] == GM_NO_COLUMN) {
			status = gm_sheet_add_column(sheet, more->column[i], err);
			map[i] = sheet->n_column - 1;
		}
	}
	if (status == GM_OK)
		status = append_files(sheet, more, map, err);
	if (status == GM_OK)
		status = append_rows(sheet, more, map, first_file, err);
	free(map);
	return status;
}

/* --- reading --- */

size_t gm_sheet_find(const struct gm_sheet *sheet, const char *name)
{
	for (size_t i = 0; i < sheet->n_column; i++)
		if (strcmp(sheet->column[i], name) == 0)
			return i;
	return GM_NO_COLUMN;
}

const char *gm_sheet_text(const struct gm_sheet *sheet, size_t row, size_t column)
{
	return column == GM_NO_COLUMN ? "" : sheet->text + sheet->cell[row * sheet->n_column + column];
}

/* The number, from 1, that a column has in the file of a row. */
static size_t column_in_file(const struct gm_sheet *sheet, size_t row, size_t column)
{
	const struct gm_sheet_file *file = sheet->n_file ? &sheet->file[sheet->place[row].file] : NULL;

	for (size_t i = 0; file && i < file->n_field; i++)
		if (file->column[i] == column)
			return i + 1;
	return column + 1;
}

const char *gm_sheet_file_name(const struct gm_sheet *sheet, size_t row)
{
	return sheet->n_file ? sheet->file[sheet->place[row].file].name : "?";
}

int gm_sheet_fail(const struct gm_sheet *sheet, size_t row, size_t column, const char *what, const char *right,
		  struct gm_error *err)
{
	const char *text = gm_sheet_text(sheet, row, column);
	const struct gm_sheet_place *place = &sheet->place[row];
	size_t n = strlen(text) > SHOWN_BYTES ? SHOWN_BYTES : strlen(text);

	while (n > 0 && text[n] && ((unsigned char)text[n] & 0xc0) == 0x80)
		n--; /* not in the middle of a character */
	return gm_fail(err, GM_ERR_FORMAT, "%s: %s, line %" PRIu64 ", column %zu (%s): \"%.*s\": %s", what,
		       gm_sheet_file_name(sheet, row), place->line, column_in_file(sheet, row, column),
		       sheet->column[column], (int)n, text, right);
}

int gm_sheet_number(const struct gm_sheet *sheet, size_t row, size_t column, double *out, struct gm_error *err)
{
	const char *text = gm_sheet_text(sheet, row, column);

	*out = (double)NAN;
	if (*text == '\0' || gm_parse_double(text, "", out, NULL) == GM_OK)
		return GM_OK;
	return gm_sheet_fail(sheet, row, column, "not a number", "a number or nothing", err);
}

double *gm_sheet_numbers(const struct gm_sheet *sheet, const char *name, struct gm_error *err)
{
	const size_t column = gm_sheet_find(sheet, name);
	double *value = gm_alloc(sheet->n_row, sizeof(*value), err);

	for (size_t row = 0; value && row < sheet->n_row; row++) {
		if (column == GM_NO_COLUMN) {
			value[row] = (double)NAN;
		} else if (gm_sheet_number(sheet, row, column, &value[row], err) < 0) {
			free(value);
			return NULL;
		}
	}
	return value;
}

bool gm_sheet_is_numeric(const struct gm_sheet *sheet, size_t column)
{
	bool any = false;
	double value;

	for (size_t row = 0; row < sheet->n_row; row++) {
		if (gm_sheet_number(sheet, row, column, &value, NULL) < 0)
			return false;
		any = any || !isnan(value);
	}
	return any;
}

void gm_sheet_write(const struct gm_sheet *sheet, FILE *out)
{
	struct gm_csv_writer csv = {.stream = out};

	for (size_t i = 0; i < sheet->n_column; i++)
		gm_csv_text(&csv, sheet->column[i]);
	gm_csv_end_row(&csv);
	for (size_t row = 0; row < sheet->n_row; row++) {
		for (size_t i = 0; i < sheet->n_column; i++)
			gm_csv_text(&csv, gm_sheet_text(sheet, row, i));
		gm_csv_end_row(&csv);
	}
}
