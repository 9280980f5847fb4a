#include "report/correlation.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Means of one number differ by the rounding of their sums: some 1e-16 for each term. */
#define ROUNDING 1e-12

static bool is_same(double a, double b)
{
	return fabs(a - b) <= ROUNDING * fmax(fabs(a), fabs(b));
}

/* Are all known, and are there two that differ by more than rounding? */
static bool has_spread(const double *x, size_t n)
{
	double low = INFINITY, high = -INFINITY;

	for (size_t i = 0; i < n; i++) {
		if (!isfinite(x[i]))
			return false;
		low = fmin(low, x[i]);
		high = fmax(high, x[i]);
	}
	return n > 0 && !is_same(low, high);
}

double gm_pearson(const double *x, const double *y, size_t n)
{
	double mean_x = 0, mean_y = 0, xx = 0, yy = 0, xy = 0;

	if (!has_spread(x, n) || !has_spread(y, n))
		return (double)NAN;
	for (size_t i = 0; i < n; i++) {
		mean_x += x[i] / (double)n;
		mean_y += y[i] / (double)n;
	}
	for (size_t i = 0; i < n; i++) {
		xx += (x[i] - mean_x) * (x[i] - mean_x);
		yy += (y[i] - mean_y) * (y[i] - mean_y);
		xy += (x[i] - mean_x) * (y[i] - mean_y);
	}
	/* Squares may leave the range of numbers. */
	if (!(xx > 0 && yy > 0 && isfinite(xx) && isfinite(yy)))
		return (double)NAN;
	/* Rounding could lead a hair past 1. */
	return fmax(-1, fmin(1, xy / (sqrt(xx) * sqrt(yy))));
}

static int by_value(const void *a, const void *b, void *values)
{
	double x = ((const double *)values)[*(const size_t *)a], y = ((const double *)values)[*(const size_t *)b];

	return x < y ? -1 : x > y;
}

void gm_ranks(const double *x, size_t n, size_t *order, double *rank)
{
	for (size_t i = 0; i < n; i++)
		order[i] = i;
	qsort_r(order, n, sizeof(*order), by_value, (void *)x);
	for (size_t from = 0, to; from < n; from = to) {
		for (to = from + 1; to < n && is_same(x[order[to]], x[order[from]]);)
			to++;
		for (size_t i = from; i < to; i++)
			rank[order[i]] = (double)(from + 1 + to) / 2;
	}
}

double gm_spearman(const double *x, const double *y, size_t n, size_t *order, double *rank)
{
	/* Ranks of what is not known would be an order made of nothing. */
	if (!has_spread(x, n) || !has_spread(y, n))
		return (double)NAN;
	gm_ranks(x, n, order, rank);
	gm_ranks(y, n, order, rank + n);
	return gm_pearson(rank, rank + n, n);
}
