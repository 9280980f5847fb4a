/* Results as points: each row with the names people know it by, and what figures are drawn from. */
#ifndef GM_REPORT_RESULTS_H
#define GM_REPORT_RESULTS_H

#include "report/inputs.h"

#define GM_MAX_COLOURS 7 /* that can be told apart; what is beyond shares the last one */

struct gm_point {
	size_t row;    /* in the sheet of results */
	size_t scene;  /* trace and hardware: only points of one scene compare */
	size_t series; /* policy: a curve over cache sizes */
	size_t colour; /* 0 .. n_colour - 1 */
	size_t cache;  /* cache size, index in order of size */
	double cache_fraction;
	double hit_rate;
	double lost_mass; /* substituted and dropped gate weight, mean of the rows */
	double time_us;   /* a token */
	bool failed;      /* a grid point without results */
	bool on_front;    /* no point of its scene and cache size has less of both, time and lost mass */
};

/* A distinct value of something, in order of appearance. */
struct gm_name {
	char *text;
	double value; /* of cache sizes: the fraction, NaN if not known */
};

struct gm_results {
	const struct gm_sheet *sheet;
	struct gm_point *point; /* [n_point] one a row */
	size_t n_point, n_failed;
	struct gm_name *scene, *series, *colour, *cache;
	size_t n_scene, n_series, n_colour, n_cache;
	bool has_dropped, has_times; /* is there a point with dropped mass, one with times */
	size_t *by_settings;         /* [n_point] sorted by settings_hash, private */
};

/* inputs must outlive the results. No rows give no points. */
int gm_results_make(struct gm_results *results, const struct gm_inputs *inputs, struct gm_error *err);
void gm_results_free(struct gm_results *results);

/* "quality-first", "threshold:0.15 + lru", with what else differs between the rows ("global", "preload x.gmt"). */
const char *gm_point_policy(const struct gm_results *results, size_t point);
const char *gm_point_cache(const struct gm_results *results, size_t point); /* "25 %", "mixed" */

/* The point of a row of a layers, sequences or tokens file: same trace and same settings. GM_NO_POINT if there is none. */
#define GM_NO_POINT SIZE_MAX
size_t gm_results_find(const struct gm_results *results, const char *trace, const char *settings_hash);

/* At most max points of a scene for a figure in which every one needs a place of its own: all, or those at the cache size that lies next to
 * a quarter of the experts; points on the front first, then by row. Ordered by policy and cache size. chosen [max]; *cache gets the size
 * chosen, or GM_NO_POINT for all; *n_left how many of that size found no place. Returns how many were chosen. */
size_t gm_results_choose(const struct gm_results *results, size_t scene, size_t max, size_t *chosen, size_t *cache,
			 size_t *n_left);

#endif
