/* The page: one HTML file that holds all it needs (docs/reports.md). */
#ifndef GM_REPORT_PAGE_H
#define GM_REPORT_PAGE_H

#include "base/error.h"

#include <stdio.h>

/* Makes the page of result files [n_path], recognised by their columns, under the name `out`. title: NULL for the model's name. */
int gm_report_page(int n_path, char *const *path, const char *out, const char *title, struct gm_error *err);

#endif
