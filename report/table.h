/* Tables of results for papers, web pages and terminals. */
#ifndef GM_REPORT_TABLE_H
#define GM_REPORT_TABLE_H

#include "report/summary.h"

enum gm_table_format { GM_TABLE_TEXT, GM_TABLE_MARKDOWN, GM_TABLE_LATEX };

/* A column of the table. */
struct gm_table_column {
	size_t column; /* of the summary */
	int best;      /* -1: the smallest value is marked, 1: the largest, 0: none */
};

struct gm_table {
	const struct gm_sheet *summary;
	const struct gm_results *results; /* best values are those of one trace and hardware */
	struct gm_table_column *column;   /* [n_column] */
	size_t n_column;
	size_t *row; /* [n_row] in the order of the table */
	size_t n_row;
	enum gm_table_format format;
	bool full; /* numbers as the file has them */
};

/* Where the summary has columns NAME_low and NAME_high, a value of NAME is followed by its interval. */
int gm_table_write(const struct gm_table *table, FILE *out, struct gm_error *err);

#endif
