/* Results for people, on a terminal. */
#ifndef GM_SIM_TABLE_H
#define GM_SIM_TABLE_H

#include "sim/sweep.h"

#include <stdio.h>

/* One point on a screenful: what it was, and what each number says. */
void gm_table_run(FILE *out, const struct gm_sweep *sweep);

/* A line for each point, in the order of the grid: settings that vary, then the results most asked for. At most max_row lines. */
int gm_table_sweep(FILE *out, const struct gm_sweep *sweep, size_t max_row, struct gm_error *err);

#endif
