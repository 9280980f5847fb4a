#include "base/csv.h"
#include "base/file.h"
#include "traces/stats.h"

#include <math.h>

struct rows {
	struct gm_csv_writer csv;
	const struct gm_trace *trace;
	uint32_t layer;
};

/* Values that are not known have no row. */
static void put(struct rows *rows, const char *statistic, uint64_t index, double value)
{
	if (isnan(value))
		return;
	gm_csv_text(&rows->csv, gm_trace_path(rows->trace));
	gm_csv_text(&rows->csv, gm_trace_hash(rows->trace));
	gm_csv_uint(&rows->csv, rows->layer);
	gm_csv_text(&rows->csv, statistic);
	gm_csv_uint(&rows->csv, index);
	gm_csv_double(&rows->csv, value);
	gm_csv_end_row(&rows->csv);
}

static void put_means(struct rows *rows, const char *statistic, const struct gm_mean *mean, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		put(rows, statistic, i + 1, gm_mean_value(&mean[i]));
}

static void put_layer(struct rows *rows, const struct gm_stats *s)
{
	static const char *const overlap[] = {"overlap_same", "overlap_change"};
	const size_t layer = rows->layer;

	put(rows, "rows", 0, (double)s->rows[layer]);
	for (uint32_t e = 0; e < s->n_expert && s->rows[layer] > 0; e++)
		put(rows, "popularity", e, (double)s->requests[layer * s->n_expert + e] / (double)s->rows[layer]);
	put_means(rows, "reuse", s->reuse + layer * GM_STATS_LAGS, GM_STATS_LAGS);
	put_means(rows, "reuse_rank", s->reuse_rank + layer * s->top_k, s->top_k);
	put_means(rows, "gate_rank", s->gate_rank + layer * s->top_k, s->top_k);
	for (int change = 0; change < 2; change++)
		for (uint32_t h = 0; h < GM_STATS_HOT; h++)
			put(rows, overlap[change], s->hot_size[h],
			    gm_mean_value(&s->overlap[change][layer * GM_STATS_HOT + h]));
}

int gm_stats_write_csv(const struct gm_stats *s, const struct gm_trace *trace, const char *path, struct gm_error *err)
{
	static const char *const names[] = {"trace", "trace_hash", "layer", "statistic", "index", "value"};
	struct gm_output out;
	struct rows rows = {.trace = trace};

	GM_TRY(gm_output_open(&out, path, err));
	rows.csv.stream = out.stream;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		gm_csv_text(&rows.csv, names[i]);
	gm_csv_end_row(&rows.csv);
	for (rows.layer = 0; rows.layer < s->n_layer; rows.layer++)
		put_layer(&rows, s);
	return gm_output_commit(&out, err);
}
