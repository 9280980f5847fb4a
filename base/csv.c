#include "base/csv.h"

#include "base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROW_BYTES ((size_t)16 << 20)

static const char byte_order_mark[] = "\xef\xbb\xbf"; /* of UTF-8 */

/* --- writing --- */

static void begin_field(struct gm_csv_writer *csv, bool empty)
{
	if (csv->inside_row)
		fputc(',', csv->stream);
	csv->blank = !csv->inside_row && empty;
	csv->inside_row = true;
}

void gm_csv_text(struct gm_csv_writer *csv, const char *text)
{
	begin_field(csv, !text || *text == '\0');
	if (!text)
		return;
	/* Quotes also keep what looks like a byte order mark from being taken for one. */
	if (!strpbrk(text, ",\"\r\n") && strncmp(text, byte_order_mark, 3) != 0) {
		fputs(text, csv->stream);
		return;
	}
	fputc('"', csv->stream);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', csv->stream);
		fputc(*text, csv->stream);
	}
	fputc('"', csv->stream);
}

void gm_csv_uint(struct gm_csv_writer *csv, uint64_t value)
{
	begin_field(csv, false);
	fprintf(csv->stream, "%" PRIu64, value);
}

void gm_csv_double(struct gm_csv_writer *csv, double value)
{
	char text[GM_NUMBER_TEXT];

	begin_field(csv, isnan(value));
	if (!isnan(value))
		fputs(gm_format_double(value, text), csv->stream);
}

void gm_csv_doubles(struct gm_csv_writer *csv, const double *value, size_t n)
{
	char text[GM_NUMBER_TEXT];

	begin_field(csv, n == 0);
	for (size_t i = 0; i < n; i++)
		fprintf(csv->stream, "%s%s", i ? ";" : "", gm_format_double(value[i], text));
}

void gm_csv_end_row(struct gm_csv_writer *csv)
{
	if (csv->blank) /* one empty field alone would read as an empty line */
		fputs("\"\"", csv->stream);
	fputc('\n', csv->stream);
	csv->inside_row = csv->blank = false;
}

/* --- reading --- */

void gm_csv_open(struct gm_csv_reader *csv, FILE *stream, const char *name)
{
	*csv = (struct gm_csv_reader){.stream = stream, .name = name, .next_line = 1};
}

void gm_csv_close(struct gm_csv_reader *csv)
{
	free(csv->text);
	free(csv->field);
	free(csv->offset);
	*csv = (struct gm_csv_reader){0};
}

/* Where in a row the reader stands. */
enum place { FIELD_START, PLAIN, QUOTED, QUOTE_CLOSED };

static int bad_row(const struct gm_csv_reader *csv, const char *what, const char *right, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_FORMAT, "%s: %s, line %" PRIu64 ": %s", what, csv->name, csv->line, right);
}

/* Makes room for one more byte; n is what the row holds. */
static int grow_text(struct gm_csv_reader *csv, size_t n, struct gm_error *err)
{
	if (n < csv->text_size)
		return GM_OK;
	if (n >= MAX_ROW_BYTES)
		return bad_row(csv, "row too long", "at most 16 MiB; is a quote left open?", err);
	size_t size = csv->text_size ? csv->text_size * 2 : 1024;
	char *text = gm_realloc(csv->text, size, 1, err);
	if (!text)
		return GM_ERR_MEMORY;
	csv->text = text;
	csv->text_size = size;
	return GM_OK;
}

static int begin_next_field(struct gm_csv_reader *csv, size_t at, struct gm_error *err)
{
	if (csv->n_field == csv->max_field) {
		size_t max = csv->max_field ? csv->max_field * 2 : 64;
		char **field = gm_realloc(csv->field, max, sizeof(*field), err);
		if (!field)
			return GM_ERR_MEMORY;
		csv->field = field;
		size_t *offset = gm_realloc(csv->offset, max, sizeof(*offset), err);
		if (!offset)
			return GM_ERR_MEMORY;
		csv->offset = offset;
		csv->max_field = max;
	}
	csv->offset[csv->n_field++] = at; /* as an offset: the text may still move */
	return GM_OK;
}

/* Next byte with CRLF as one '\n'; inside quotes bytes stay as they are. */
static int next_byte(struct gm_csv_reader *csv, enum place place)
{
	int c = getc_unlocked(csv->stream);

	if (c == '\r' && place != QUOTED) {
		int after = getc_unlocked(csv->stream);
		if (after == '\n')
			c = after;
		else if (after != EOF)
			ungetc(after, csv->stream);
	}
	if (c == '\n')
		csv->next_line++;
	return c;
}

/* The row's first byte, with empty lines skipped; EOF at the end. */
static int first_byte(struct gm_csv_reader *csv)
{
	int c;

	do {
		csv->line = csv->next_line;
		c = next_byte(csv, FIELD_START);
	} while (c == '\n');
	return c;
}

/* Spreadsheets put a UTF-8 byte order mark before the first field: it is no part of that field. */
static bool starts_with_mark(const struct gm_csv_reader *csv, enum place place)
{
	return csv->line == 1 && csv->n_field == 1 && place == PLAIN && memcmp(csv->text, byte_order_mark, 3) == 0;
}

/* Reads one row into text and offset, from its first byte c. */
static int read_row(struct gm_csv_reader *csv, int c, struct gm_error *err)
{
	enum place place = FIELD_START;
	size_t n = 0;

	csv->n_field = 0;
	GM_TRY(begin_next_field(csv, 0, err));
	for (;; c = next_byte(csv, place)) {
		GM_TRY(grow_text(csv, n, err));
		if (c == '\0')
			return bad_row(csv, "NUL byte in text", "is this a CSV file?", err);
		if (place == QUOTED && c == EOF && !ferror(csv->stream))
			return bad_row(csv, "quote left open", "close it with \"", err);
		if (c == EOF || (place != QUOTED && (c == '\n' || c == ','))) {
			csv->text[n++] = '\0';
			if (c != ',')
				return GM_OK;
			GM_TRY(begin_next_field(csv, n, err));
			place = FIELD_START;
		} else if (c == '"' && place == FIELD_START) {
			place = QUOTED;
		} else if (c == '"' && place == QUOTED) {
			place = QUOTE_CLOSED;
		} else if (place == QUOTE_CLOSED && c != '"') {
			return bad_row(csv, "text after a closing quote", "write a quote inside quotes twice", err);
		} else {
			place = place == QUOTE_CLOSED || place == QUOTED ? QUOTED : PLAIN;
			csv->text[n++] = (char)c;
			if (n == 3 && starts_with_mark(csv, place)) {
				n = 0;
				place = FIELD_START;
			}
		}
	}
}

int gm_csv_next(struct gm_csv_reader *csv, struct gm_error *err)
{
	int c = first_byte(csv);

	if (c != EOF)
		GM_TRY(read_row(csv, c, err));
	if (ferror(csv->stream))
		return gm_fail(err, GM_ERR_IO, "cannot read: %s, line %" PRIu64 ": %s", csv->name, csv->line,
			       strerror(errno));
	if (c == EOF)
		return 0;
	for (size_t i = 0; i < csv->n_field; i++)
		csv->field[i] = csv->text + csv->offset[i];
	return 1;
}
