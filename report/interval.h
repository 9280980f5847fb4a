/* Intervals by bootstrap: how far a perplexity change could be chance of the sequences that were run. */
#ifndef GM_REPORT_INTERVAL_H
#define GM_REPORT_INTERVAL_H

#include "report/results.h"

#define GM_RESAMPLES 2000

/* The 95 % interval (percentiles, Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, ch. 13) of a perplexity change in percent,
 * 100 (exp(sum d / sum n) - 1), when sequences [n_sequence] are drawn again with replacement.
 *   d [n_sequence]  negative log-likelihood of a sequence under the policy less that under the baseline: paired
 *   n [n_sequence]  its tokens
 * The same seed gives the same interval. */
int gm_interval_change(const double *d, const double *n, size_t n_sequence, uint64_t seed, double *low, double *high,
		       struct gm_error *err);

/* The intervals of all results [n_point] from the --per-sequence files of emulate; NaN where there are none, or no baseline
 * (miss "none") of the same trace. */
int gm_intervals_make(const struct gm_results *results, const struct gm_sheet *sequences, double *low, double *high,
		      struct gm_error *err);

#endif
