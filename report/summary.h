/* Results with their names in front: the table that pages and `report table` show. */
#ifndef GM_REPORT_SUMMARY_H
#define GM_REPORT_SUMMARY_H

#include "report/results.h"

/* A sheet with the columns policy, cache and front before those of the results; row i is point i. Free it also after a failure. */
int gm_summary_make(struct gm_sheet *summary, const struct gm_results *results, struct gm_error *err);

/* Is a column among those that are shown unless others are asked for? */
bool gm_summary_is_usual(const struct gm_sheet *summary, size_t column);

/* Has a column one value only? */
bool gm_summary_is_constant(const struct gm_sheet *sheet, size_t column);

#endif
