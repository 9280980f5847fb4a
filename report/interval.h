/* Intervals by bootstrap: how far a perplexity change could be chance of the sequences that were run. */
#ifndef GM_REPORT_INTERVAL_H
#define GM_REPORT_INTERVAL_H

#include "report/bootstrap.h"
#include "report/results.h"

/* A perplexity change in percent, 100 (exp(sum d / sum n) - 1), when sequences [n_sequence] are drawn again.
 *   d [n_sequence]  negative log-likelihood of a sequence under the policy less that under the baseline: paired
 *   n [n_sequence]  its tokens */
int gm_interval_change(const double *d, const double *n, size_t n_sequence, const struct gm_bootstrap *bootstrap,
		       struct gm_estimate *change, struct gm_error *err);

/* The intervals of all results [n_point] from the --per-sequence files of emulate; NaN where there are none, or no baseline
 * (miss "none") of the same trace. */
int gm_intervals_make(const struct gm_results *results, const struct gm_sheet *sequences, double *low, double *high,
		      struct gm_error *err);

#endif
