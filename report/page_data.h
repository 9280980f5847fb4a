/* Data of a page as JSON: by column, so that scripts find a column at once and what all rows share stands there once. */
#ifndef GM_REPORT_PAGE_DATA_H
#define GM_REPORT_PAGE_DATA_H

#include "report/figure.h"

/* Writes a sheet: {"n": rows, "columns": [{"name", "title", "number", "form", "better", "usual", and the cells: "all" (one text for all rows),
 * or "names" and "at" (distinct texts and the index of each row's), or "values"}], "result": [rows of the results behind them]}.
 * figure: whose data it is, or NULL for the summary. Safe inside <script>. */
void gm_page_put_data(FILE *out, const struct gm_sheet *sheet, const struct gm_figure *figure);

#endif
