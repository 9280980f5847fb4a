/* CSV as in RFC 4180: comma, optional double quotes, a quote doubled inside quotes, LF or CRLF. */
#ifndef GM_BASE_CSV_H
#define GM_BASE_CSV_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* --- writing: fields one after the other, then the end of the row. Write errors are found by gm_output_commit. --- */
struct gm_csv_writer {
	FILE *stream;
	bool inside_row; /* private */
	bool blank;      /* private: the row so far is one empty field */
};

void gm_csv_text(struct gm_csv_writer *csv, const char *text); /* quoted where needed; NULL: an empty field */
void gm_csv_uint(struct gm_csv_writer *csv, uint64_t value);
void gm_csv_double(struct gm_csv_writer *csv, double value);                   /* full precision; NaN: an empty field */
void gm_csv_doubles(struct gm_csv_writer *csv, const double *value, size_t n); /* in one field, semicolons between them */
void gm_csv_end_row(struct gm_csv_writer *csv);

/* --- reading --- */
struct gm_csv_reader {
	FILE *stream;
	const char *name;   /* file name for messages; not owned */
	uint64_t line;      /* line on which the row just read begins, from 1 */
	uint64_t next_line; /* private */
	char *text;         /* private: the row's fields, each NUL-terminated */
	size_t text_size;
	char **field; /* the fields of the row just read */
	size_t n_field, max_field;
	size_t *offset; /* private */
};

void gm_csv_open(struct gm_csv_reader *csv, FILE *stream, const char *name);

/* Next row. Returns 1, 0 at the end, or an error that names file and line (an unclosed quote, text after a quote, a NUL
 * byte, a row of more than 16 MiB). Lines that are empty are skipped. */
int gm_csv_next(struct gm_csv_reader *csv, struct gm_error *err);
void gm_csv_close(struct gm_csv_reader *csv); /* frees; does not close the stream */

#endif
