#include "report/bootstrap.h"

#include <math.h>
#include <stdlib.h>

/* SplitMix64 (Steele, Lea and Flood, 2014). */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static int upwards(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double gm_percentile(const double *sorted, size_t n, double p)
{
	double at = p * (double)(n - 1);
	size_t below = (size_t)floor(at), above = below + 1 < n ? below + 1 : below;

	return sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
}

struct work {
	size_t *unit;  /* [n_unit] as drawn */
	double *value; /* [n_value] of one draw */
	double *found; /* [n_value][n_sample] that are numbers */
	size_t *n;     /* [n_value] how many */
};

static void draw_all(const struct gm_bootstrap *b, size_t n_unit, gm_bootstrap_statistic *statistic, void *data,
		     size_t n_value, struct work *w)
{
	uint64_t random = b->seed;

	for (size_t r = 0; r < b->n_sample; r++) {
		for (size_t i = 0; i < n_unit; i++)
			w->unit[i] = (size_t)(next_random(&random) % n_unit);
		statistic(data, w->unit, n_unit, w->value);
		for (size_t v = 0; v < n_value; v++)
			if (isfinite(w->value[v]))
				w->found[v * b->n_sample + w->n[v]++] = w->value[v];
	}
}

static void estimate_all(const struct gm_bootstrap *b, size_t n_unit, gm_bootstrap_statistic *statistic, void *data,
			 size_t n_value, struct work *w, struct gm_estimate *estimate)
{
	for (size_t i = 0; i < n_unit; i++)
		w->unit[i] = i;
	statistic(data, w->unit, n_unit, w->value);
	for (size_t v = 0; v < n_value; v++)
		estimate[v] = (struct gm_estimate){w->value[v], (double)NAN, (double)NAN};
	if (n_unit < 2)
		return;
	draw_all(b, n_unit, statistic, data, n_value, w);
	for (size_t v = 0; v < n_value; v++) {
		double *found = w->found + v * b->n_sample;

		/* Of a number that most samples do not give, the few that do are no picture. */
		if (!isfinite(estimate[v].value) || 2 * w->n[v] < b->n_sample)
			continue;
		qsort(found, w->n[v], sizeof(*found), upwards);
		estimate[v].low = gm_percentile(found, w->n[v], 0.025);
		estimate[v].high = gm_percentile(found, w->n[v], 0.975);
	}
}

int gm_bootstrap_run(const struct gm_bootstrap *bootstrap, size_t n_unit, gm_bootstrap_statistic *statistic, void *data,
		     size_t n_value, struct gm_estimate *estimate, struct gm_error *err)
{
	struct work w = {
		.unit = gm_alloc(n_unit, sizeof(*w.unit), err),
		.value = gm_alloc(n_value, sizeof(*w.value), err),
		.found = gm_alloc(n_value * bootstrap->n_sample, sizeof(*w.found), err),
		.n = gm_alloc(n_value, sizeof(*w.n), err),
	};
	int status = w.unit && w.value && w.found && w.n ? GM_OK : GM_ERR_MEMORY;

	if (status == GM_OK)
		estimate_all(bootstrap, n_unit, statistic, data, n_value, &w, estimate);
	free(w.unit);
	free(w.value);
	free(w.found);
	free(w.n);
	return status;
}
