/* Rows of result files that are about the same thing: same trace (by hash) and settings, and layer, sequence, token where a file has them.
 * They may say the same; where they do not, the error names file, line and column, and the row that says otherwise. Names of files and the
 * version of the program may differ. */
#ifndef GM_REPORT_DOUBLES_H
#define GM_REPORT_DOUBLES_H

#include "report/sheet.h"

int gm_doubles_check(const struct gm_sheet *sheet, struct gm_error *err);

/* Also keeps only the first of them; *n_double counts up by those removed. */
int gm_doubles_remove(struct gm_sheet *sheet, size_t *n_double, struct gm_error *err);

#endif
