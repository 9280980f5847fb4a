/* A sweep: many grid points over one trace, which is read and decoded once for as many of them as fit the memory. */
#ifndef GM_SIM_SWEEP_H
#define GM_SIM_SWEEP_H

#include "sim/lru.h"
#include "sim/result.h"
#include "sim/spool.h"

struct gm_sweep_options {
	uint64_t memory_bytes; /* for replays and decoded blocks; one replay runs however little it is */
	bool per_layer, per_sequence, per_token;
	const struct gm_span_sink *span; /* timeline of tokens span_from ... span_to - 1, or NULL */
	uint64_t span_from, span_to;
	const struct gm_landings *landings; /* of a run under the settings of all points, or NULL */
	bool quiet;                         /* no progress */
};

/* What one token of one point came to: what --per-token writes. */
struct gm_token_record {
	uint64_t token;
	uint32_t sequence, rows, accesses, hits, late_hits, fetches, substitutions, drops, cpu_picks;
	double substituted_mass, dropped_mass; /* sums over the rows */
	double time_us;
};

struct gm_point {
	const struct gm_settings *settings;
	struct gm_plan plan;
	struct gm_error error; /* why this point is impossible on this trace */
	size_t twin;           /* the first point with equal settings; results are there */
	size_t leader;         /* whose replay serves this point too, up to the times: itself, or one before it */
	struct gm_tally total;
	struct gm_tally *layer;    /* [n_layer] where asked for */
	struct gm_tally *sequence; /* [n_sequence] where asked for */
	uint32_t n_sequence;
	bool done; /* it has results, or an error */
	/* while it runs */
	struct gm_replay_sink sink;
	struct gm_replay *replay;
	struct gm_lru *lru; /* instead of a replay, where it leads points of several sizes */
	struct gm_sweep *sweep;
};

struct gm_sweep {
	struct gm_trace *trace; /* NULL: it was lost before it could be swept */
	const char *path;       /* of the trace */
	const struct gm_model *model;
	const struct gm_sweep_options *options;
	struct gm_point *point; /* [n_point] in the order of the grid */
	size_t n_point, n_failed;
	struct gm_error damage;  /* why no point has results: the trace is damaged */
	struct gm_spool *tokens; /* struct gm_token_record by point; NULL unless asked for */
};

/* Runs all points. 0 also where points are impossible, or all of them because the trace is damaged (they have an error, n_failed counts
 * them); an error ends everything: no memory, no room for temporary files, a trace that is on a pipe and needed twice. trace, settings, preloads
 * and options must outlive the sweep. Release with gm_sweep_free, also after a failure. */
int gm_sweep_run(struct gm_sweep *sweep, struct gm_trace *trace, const struct gm_settings *settings, size_t n_point,
		 struct gm_preloads *preloads, const struct gm_sweep_options *options, struct gm_error *err);
void gm_sweep_free(struct gm_sweep *sweep);

/* A sweep of a trace that can no longer be opened (one of several that was removed meanwhile): all points have the error why. path, model and
 * settings must outlive the sweep. Release with gm_sweep_free. */
int gm_sweep_lost(struct gm_sweep *sweep, const char *path, const struct gm_model *model,
		  const struct gm_settings *settings, size_t n_point, const struct gm_error *why, struct gm_error *err);

/* The row of a point. */
void gm_sweep_result(const struct gm_sweep *sweep, size_t point, struct gm_result *result);

/* The point that holds a point's results: itself or its twin. */
static inline const struct gm_point *gm_sweep_point(const struct gm_sweep *sweep, size_t point)
{
	return &sweep->point[sweep->point[point].twin];
}

#endif
