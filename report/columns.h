/* What the columns of result files mean (docs/cli.md, docs/reports.md): one table for checks, tables and pages. */
#ifndef GM_REPORT_COLUMNS_H
#define GM_REPORT_COLUMNS_H

#include "report/scale.h"

#include <stdbool.h>

enum gm_form {
	GM_FORM_TEXT,
	GM_FORM_COUNT,   /* whole numbers */
	GM_FORM_REAL,    /* with four significant digits for people */
	GM_FORM_SHARE,   /* 0..1, shown in percent */
	GM_FORM_PERCENT, /* already in percent */
};

struct gm_known_column {
	const char *name;
	enum gm_form form;
	const char *title; /* for people: "hit rate" */
	int better;        /* -1: smaller is better, 1: larger, 0: neither */
};

/* NULL for a column that this version does not know: its cells may hold anything. */
const struct gm_known_column *gm_known_column(const char *name);
static inline bool gm_is_number_column(const struct gm_known_column *column)
{
	return column && column->form != GM_FORM_TEXT;
}

/* A number of a column for people ("25.6 %"). Returns out. */
#define GM_SHOWN_TEXT 48
char *gm_show_number(const struct gm_known_column *column, double value, char out[GM_SHOWN_TEXT]);

#endif
