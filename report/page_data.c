#include "report/page_data.h"

#include "report/columns.h"
#include "report/escape.h"
#include "report/summary.h"

#include <string.h>

#define MAX_NAMES 200 /* distinct texts of a column that are worth a list of their own */

/* Distinct texts and who has which, where there are few; else nothing, and false. */
static bool put_names(FILE *out, const struct gm_sheet *sheet, size_t column)
{
	size_t first[MAX_NAMES], n = 0; /* a row that has the name */

	for (int pass = 0; pass < 2; pass++) {
		for (size_t row = 0; row < sheet->n_row; row++) {
			const char *text = gm_sheet_text(sheet, row, column);
			size_t k = 0;

			while (k < n && strcmp(gm_sheet_text(sheet, first[k], column), text) != 0)
				k++;
			if (k == MAX_NAMES)
				return false;
			if (k == n)
				first[n++] = row;
			if (pass == 1)
				fprintf(out, "%s%zu", row > 0 ? "," : "", k);
		}
		for (size_t k = 0; k < n && pass == 0; k++) {
			fputs(k > 0 ? "," : "\"names\":[", out);
			gm_put_json(out, gm_sheet_text(sheet, first[k], column));
		}
		fputs(pass == 0 ? "],\"at\":[" : "]", out);
	}
	return true;
}

static void put_values(FILE *out, const struct gm_sheet *sheet, size_t column)
{
	fputs("\"values\":[", out);
	for (size_t row = 0; row < sheet->n_row; row++) {
		fputs(row > 0 ? "," : "", out);
		gm_put_json(out, gm_sheet_text(sheet, row, column));
	}
	fputc(']', out);
}

static void put_column(FILE *out, const struct gm_sheet *sheet, size_t column, bool usual)
{
	static const char *const forms[] = {"text", "count", "real", "share", "percent"};
	const struct gm_known_column *known = gm_known_column(sheet->column[column]);
	const bool number = gm_sheet_is_numeric(sheet, column) && (!known || known->form != GM_FORM_TEXT);

	fputs("{\"name\":", out);
	gm_put_json(out, sheet->column[column]);
	fputs(",\"title\":", out);
	gm_put_json(out, known ? known->title : sheet->column[column]);
	fprintf(out, ",\"number\":%s,\"form\":\"%s\",\"better\":%d,\"usual\":%s,", number ? "true" : "false",
		forms[known && number ? known->form
		      : number        ? GM_FORM_REAL
				      : GM_FORM_TEXT],
		known ? known->better : 0, usual ? "true" : "false");
	if (sheet->n_row > 0 && gm_summary_is_constant(sheet, column)) {
		fputs("\"all\":", out);
		gm_put_json(out, gm_sheet_text(sheet, 0, column));
	} else if (number || !put_names(out, sheet, column)) {
		put_values(out, sheet, column);
	}
	fputc('}', out);
}

void gm_page_put_data(FILE *out, const struct gm_sheet *sheet, const struct gm_figure *figure)
{
	fprintf(out, "{\"n\":%zu,\"columns\":[", sheet->n_row);
	for (size_t c = 0; c < sheet->n_column; c++) {
		fputs(c > 0 ? ",\n" : "\n", out);
		put_column(out, sheet, c, !figure && gm_summary_is_usual(sheet, c));
	}
	fputs("]", out);
	if (figure) {
		fputs(",\"result\":[", out);
		for (size_t row = 0; row < figure->n_result; row++) {
			fputs(row > 0 ? "," : "", out);
			if (figure->result[row] == GM_NO_POINT)
				fputs("-1", out);
			else
				fprintf(out, "%zu", figure->result[row]);
		}
		fputc(']', out);
	}
	fputc('}', out);
}
