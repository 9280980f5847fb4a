/* The bootstrap: how far a number could be chance of the units (texts, say) that it was computed from.
 *
 * Percentile intervals of 95 %, with percentiles between neighbours where they fall between (Efron and Tibshirani, "An Introduction to the
 * Bootstrap", 1993, ch. 13). Units are drawn again with replacement, as many as there are; the same seed draws the same units, so that
 * numbers from the same units are compared on the same draws. */
#ifndef GM_REPORT_BOOTSTRAP_H
#define GM_REPORT_BOOTSTRAP_H

#include "base/error.h"

#include <stdint.h>

struct gm_bootstrap {
	uint64_t seed;
	size_t n_sample; /* times that all units are drawn */
};
#define GM_BOOTSTRAP_USUAL ((struct gm_bootstrap){1, 2000})

struct gm_estimate {
	double value; /* from the units as they are */
	double low,
		high; /* NaN with fewer than two units, without a value, and where less than half of the samples give one */
};

/* Numbers [n_value] from the units that were drawn [n]: indices, in any order and repeated. What is not finite is no value: such samples are left
 * out. */
typedef void gm_bootstrap_statistic(void *data, const size_t *unit, size_t n, double *value);

/* Estimates [n_value] from n_unit units. */
int gm_bootstrap_run(const struct gm_bootstrap *bootstrap, size_t n_unit, gm_bootstrap_statistic *statistic, void *data,
		     size_t n_value, struct gm_estimate *estimate, struct gm_error *err);

/* A percentile, p in 0..1, of sorted values [n >= 1]. */
double gm_percentile(const double *sorted, size_t n, double p);

#endif
