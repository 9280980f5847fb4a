/* What a trace says of its router, layer by layer (docs/reports.md, "Statistics of a trace"): what experts are popular, how long the choice
 * of a token lasts, how weight and reuse fall with the rank, and what a change of label does. Nothing here is about a policy.
 */
#ifndef GM_TRACES_STATS_H
#define GM_TRACES_STATS_H

#include "traces/reader.h"

#define GM_STATS_LAGS 64
#define GM_STATS_HOT 3 /* sizes of hot sets: an eighth, a quarter and half of the experts (rounded, at least 1) */

/* A mean that grows. */
struct gm_mean {
	double sum;
	uint64_t n;
};

struct gm_stats {
	uint32_t n_layer, n_expert, top_k;
	uint32_t hot_size[GM_STATS_HOT];
	uint64_t *rows;             /* [n_layer] rows present */
	uint64_t *requests;         /* [n_layer][n_expert] rows whose S holds the expert */
	struct gm_mean *reuse;      /* [n_layer][GM_STATS_LAGS] share of S that is in S again lag + 1 tokens later */
	struct gm_mean *reuse_rank; /* [n_layer][top_k] is the expert of this rank in S of the token before? */
	struct gm_mean *gate_rank;  /* [n_layer][top_k] gate weight of the rank */
	/* [n_layer][GM_STATS_HOT] of the most requested experts of a sequence, the share that is among
	 * those of the next; 0: neighbours of one label, 1: the label changes */
	struct gm_mean *overlap[2];
	struct gm_stats_state *state; /* private */
};

/* Reads all of a trace, also from a pipe. Tokens count as neighbours within a sequence only. */
int gm_stats_collect(struct gm_stats *stats, struct gm_trace *trace, struct gm_error *err);
void gm_stats_free(struct gm_stats *stats);

/* All of it as CSV (docs/reports.md), a row for each value that is known; path "-": standard output. The trace must have been read to its
 * end, for its hash. */
int gm_stats_write_csv(const struct gm_stats *stats, const struct gm_trace *trace, const char *path, struct gm_error *err);

static inline double gm_mean_value(const struct gm_mean *mean) /* NaN where nothing was counted */
{
	return mean->n ? mean->sum / (double)mean->n : (double)__builtin_nan("");
}

#endif
