/* A table of text in memory: what a CSV file holds, and what a figure or a table of a report is made from. Cells keep the text of the
 * file, so that nothing is rounded on its way through; numbers are read from them when they are needed.
 */
#ifndef GM_REPORT_SHEET_H
#define GM_REPORT_SHEET_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Where a row stands in the files, for messages. */
struct gm_sheet_place {
	size_t file; /* index in gm_sheet.file */
	uint64_t line;
};

/* A file that rows came from. */
struct gm_sheet_file {
	char *name;
	size_t n_field, *column; /* [n_field] the sheet's column of each of its fields */
};

/* Zero it first. Text lies in one block and is named by its offset there: the block moves while it grows. */
struct gm_sheet {
	size_t n_column, n_row, n_file;
	char **column;                /* [n_column] */
	struct gm_sheet_file *file;   /* [n_file] as they were read */
	size_t *cell;                 /* [n_row][n_column] offsets in text */
	struct gm_sheet_place *place; /* [n_row] all zero for rows that were not read from a file */
	char *text;                   /* begins with an empty string */
	size_t text_bytes, text_room, row_room, place_room, cell_room; /* private */
	size_t n_put;                                                  /* private: cells of the row being built */
};

void gm_sheet_free(struct gm_sheet *sheet);

/* Reads a CSV file ("-": standard input) into an empty sheet.
 * Errors (GM_ERR_FORMAT) name file, line and column: no header, a column without a name or named twice, a row that is shorter or
 * longer than its header. A file without rows is fine here. */
int gm_sheet_read(struct gm_sheet *sheet, const char *path, struct gm_error *err);

/* Appends the rows of another sheet. Columns that are new are added; rows that lack some get empty cells there. */
int gm_sheet_append(struct gm_sheet *sheet, const struct gm_sheet *more, struct gm_error *err);

/* --- building: columns first, then rows cell by cell --- */
int gm_sheet_add_column(struct gm_sheet *sheet, const char *name, struct gm_error *err);
int gm_sheet_put(struct gm_sheet *sheet, const char *text, struct gm_error *err);    /* NULL: empty */
int gm_sheet_put_number(struct gm_sheet *sheet, double value, struct gm_error *err); /* NaN: empty */

/* --- reading --- */
#define GM_NO_COLUMN SIZE_MAX
size_t gm_sheet_find(const struct gm_sheet *sheet, const char *name);               /* GM_NO_COLUMN if there is none */
const char *gm_sheet_text(const struct gm_sheet *sheet, size_t row, size_t column); /* "" for GM_NO_COLUMN */

/* The file that a row was read from, "?" if it was not. */
const char *gm_sheet_file_name(const struct gm_sheet *sheet, size_t row);

/* A cell as a number, NaN where it is empty. Errors name file, line and column. */
int gm_sheet_number(const struct gm_sheet *sheet, size_t row, size_t column, double *out, struct gm_error *err);

/* A whole column [n_row]; NaN throughout where the sheet has no such column. NULL on failure; free() it. */
double *gm_sheet_numbers(const struct gm_sheet *sheet, const char *name, struct gm_error *err);

/* Do all cells that are not empty read as numbers, and is there one? */
bool gm_sheet_is_numeric(const struct gm_sheet *sheet, size_t column);

/* Records a GM_ERR_FORMAT of a cell: "what: file, line L, column C (name): "text": right". Returns its code. */
int gm_sheet_fail(const struct gm_sheet *sheet, size_t row, size_t column, const char *what, const char *right,
		  struct gm_error *err);

/* Writes the sheet as CSV; write errors are found by gm_output_commit. */
void gm_sheet_write(const struct gm_sheet *sheet, FILE *out);

#endif
