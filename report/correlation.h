/* How two numbers go together. Values within 1e-12 of each other (relative) count as equal: they differ by rounding. */
#ifndef GM_REPORT_CORRELATION_H
#define GM_REPORT_CORRELATION_H

#include <stddef.h>

/* Pearson's r of x and y [n] (Pearson, 1895); NaN with fewer than two values, where one of them never changes, and where a value is not
 * finite: a pair that is not known leaves nothing to say. */
double gm_pearson(const double *x, const double *y, size_t n);

/* Ranks from 1 of x [n], no NaN among them; equal values share the mean of their places (mid-ranks). order [n]: room to work in. */
void gm_ranks(const double *x, size_t n, size_t *order, double *rank);

/* Spearman's rho: Pearson's r of the mid-ranks, which is right with ties too (Spearman, 1904; Kendall, "Rank Correlation Methods",
 * 1948, ch. 3). NaN where Pearson's r of x and y would be for lack of values. order [n] and rank [2 n]: room to work in. */
double gm_spearman(const double *x, const double *y, size_t n, size_t *order, double *rank);

#endif
