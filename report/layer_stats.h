/* What `traces stats` found, by trace, statistic and layer (docs/reports.md, "Statistics of a trace"). */
#ifndef GM_REPORT_LAYER_STATS_H
#define GM_REPORT_LAYER_STATS_H

#include "report/sheet.h"

enum gm_statistic {
	GM_STAT_POPULARITY,
	GM_STAT_REUSE,
	GM_STAT_REUSE_RANK,
	GM_STAT_GATE_RANK,
	GM_STAT_OVERLAP_SAME,
	GM_STAT_OVERLAP_CHANGE,
	GM_N_STATISTIC
};

struct gm_stat {
	size_t trace, layer;
	enum gm_statistic statistic;
	double index, value;
};

struct gm_layer_stats {
	struct gm_stat *stat;       /* [n] by trace, statistic, layer and index */
	size_t n, n_trace, n_layer; /* n_layer: of the deepest trace */
	char **trace;               /* [n_trace] names for people */
};

int gm_layer_stats_make(struct gm_layer_stats *stats, const struct gm_sheet *sheet, struct gm_error *err);
void gm_layer_stats_free(struct gm_layer_stats *stats);

/* The values of one layer in order of their index; returns how many. */
size_t gm_layer_stats_get(const struct gm_layer_stats *stats, size_t trace, enum gm_statistic statistic, size_t layer,
			  const struct gm_stat **first);

/* Experts used a token over experts a layer: what reuse and overlap of unrelated sets come to; NaN if not known. */
double gm_layer_stats_chance(const struct gm_layer_stats *stats, size_t trace);

#endif
