#include "report/layer_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LAYER 1e6

static const char *const names[GM_N_STATISTIC] = {"popularity", "reuse",        "reuse_rank",
						  "gate_rank",  "overlap_same", "overlap_change"};

static int compare(const void *a, const void *b)
{
	const struct gm_stat *p = a, *q = b;

	if (p->trace != q->trace)
		return p->trace < q->trace ? -1 : 1;
	if (p->statistic != q->statistic)
		return p->statistic < q->statistic ? -1 : 1;
	if (p->layer != q->layer)
		return p->layer < q->layer ? -1 : 1;
	return p->index < q->index ? -1 : p->index > q->index;
}

static int trace_index(struct gm_layer_stats *stats, const char *path, size_t *index, struct gm_error *err)
{
	const char *slash = strrchr(path, '/'), *name = slash && slash[1] ? slash + 1 : path;

	for (*index = stats->n_trace; *index > 0; --*index)
		if (strcmp(stats->trace[*index - 1], name) == 0) {
			--*index;
			return GM_OK;
		}
	GM_GROW(stats->trace, stats->n_trace + 1, err);
	stats->trace[stats->n_trace] = gm_strdup(name, err);
	if (!stats->trace[stats->n_trace])
		return GM_ERR_MEMORY;
	*index = stats->n_trace++;
	return GM_OK;
}

static int take_row(struct gm_layer_stats *stats, const struct gm_sheet *sheet, const size_t column[5], size_t row,
		    struct gm_error *err)
{
	const char *statistic = gm_sheet_text(sheet, row, column[1]), *trace = gm_sheet_text(sheet, row, column[4]);
	struct gm_stat *stat = &stats->stat[stats->n];
	double layer;
	int which = 0;

	while (which < GM_N_STATISTIC && strcmp(statistic, names[which]) != 0)
		which++;
	if (which == GM_N_STATISTIC)
		return GM_OK; /* of a later version */
	GM_TRY(gm_sheet_number(sheet, row, column[0], &layer, err));
	GM_TRY(gm_sheet_number(sheet, row, column[2], &stat->index, err));
	GM_TRY(gm_sheet_number(sheet, row, column[3], &stat->value, err));
	if (!(layer >= 0 && layer < MAX_LAYER && layer == floor(layer)))
		return gm_sheet_fail(sheet, row, column[0], "not a layer", "a whole number from 0", err);
	stat->layer = (size_t)layer;
	stat->statistic = (enum gm_statistic)which;
	GM_TRY(trace_index(stats, *trace ? trace : "trace", &stat->trace, err));
	if (stat->layer + 1 > stats->n_layer)
		stats->n_layer = stat->layer + 1;
	stats->n++;
	return GM_OK;
}

int gm_layer_stats_make(struct gm_layer_stats *stats, const struct gm_sheet *sheet, struct gm_error *err)
{
	const size_t column[] = {gm_sheet_find(sheet, "layer"), gm_sheet_find(sheet, "statistic"),
				 gm_sheet_find(sheet, "index"), gm_sheet_find(sheet, "value"),
				 gm_sheet_find(sheet, "trace")};
	int status = GM_OK;

	*stats = (struct gm_layer_stats){.stat = gm_alloc(sheet->n_row, sizeof(*stats->stat), err)};
	if (!stats->stat)
		return GM_ERR_MEMORY;
	for (size_t row = 0; row < sheet->n_row && status == GM_OK; row++)
		status = take_row(stats, sheet, column, row, err);
	if (status < 0)
		gm_layer_stats_free(stats);
	else
		qsort(stats->stat, stats->n, sizeof(*stats->stat), compare);
	return status;
}

void gm_layer_stats_free(struct gm_layer_stats *stats)
{
	for (size_t i = 0; i < stats->n_trace; i++)
		free(stats->trace[i]);
	free(stats->trace);
	free(stats->stat);
	*stats = (struct gm_layer_stats){0};
}

size_t gm_layer_stats_get(const struct gm_layer_stats *stats, size_t trace, enum gm_statistic statistic, size_t layer,
			  const struct gm_stat **first)
{
	const struct gm_stat wanted = {.trace = trace, .statistic = statistic, .layer = layer, .index = -(double)INFINITY};
	size_t low = 0, high = stats->n, end;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare(&stats->stat[middle], &wanted) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (end = low; end < stats->n && stats->stat[end].trace == trace && stats->stat[end].statistic == statistic &&
			stats->stat[end].layer == layer;)
		end++;
	*first = stats->stat + low;
	return end - low;
}

double gm_layer_stats_chance(const struct gm_layer_stats *stats, size_t trace)
{
	const struct gm_stat *first;

	for (size_t layer = 0; layer < stats->n_layer; layer++) {
		size_t n_expert = gm_layer_stats_get(stats, trace, GM_STAT_POPULARITY, layer, &first),
		       n_used = gm_layer_stats_get(stats, trace, GM_STAT_GATE_RANK, layer, &first);
		if (n_expert > 0 && n_used > 0)
			return (double)n_used / (double)n_expert;
	}
	return (double)NAN;
}
