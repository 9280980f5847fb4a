#include "report/interval.h"

#include "report/scores.h"

#include <math.h>
#include <stdlib.h>

struct change {
	const double *d, *n;
};

static void measure_change(void *data, const size_t *unit, size_t n, double *value)
{
	const struct change *c = data;
	double sum = 0, tokens = 0;

	for (size_t i = 0; i < n; i++) {
		sum += c->d[unit[i]];
		tokens += c->n[unit[i]];
	}
	*value = 100 * expm1(sum / tokens);
}

int gm_interval_change(const double *d, const double *n, size_t n_sequence, const struct gm_bootstrap *bootstrap,
		       struct gm_estimate *change, struct gm_error *err)
{
	struct change data = {d, n};

	return gm_bootstrap_run(bootstrap, n_sequence, measure_change, &data, 1, change, err);
}

/* Those of the policies of one scene. */
static int make_scene(const struct gm_scores *s, double *low, double *high, struct gm_error *err)
{
	const struct gm_bootstrap bootstrap = GM_BOOTSTRAP_USUAL;
	double *d = gm_alloc(s->n_sequence, sizeof(*d), err), *n = gm_alloc(s->n_sequence, sizeof(*n), err);
	struct gm_estimate change;
	int status = d && n ? GM_OK : GM_ERR_MEMORY;

	for (size_t p = 0; p < s->n_policy && status == GM_OK; p++) {
		if (s->baseline[p] == GM_NO_POINT || gm_scores_is_baseline(s, p))
			continue;
		size_t count = gm_scores_pair(s, p, s->baseline[p], d, n);
		if (count < 2)
			continue;
		status = gm_interval_change(d, n, count, &bootstrap, &change, err);
		low[s->point[p]] = change.low;
		high[s->point[p]] = change.high;
	}
	free(d);
	free(n);
	return status;
}

int gm_intervals_make(const struct gm_results *results, const struct gm_sheet *sequences, double *low, double *high,
		      struct gm_error *err)
{
	int status = GM_OK;

	for (size_t i = 0; i < results->n_point; i++)
		low[i] = high[i] = (double)NAN;
	for (size_t scene = 0; scene < results->n_scene && status == GM_OK; scene++) {
		struct gm_scores scores;

		status = gm_scores_make(&scores, results, sequences, scene, err);
		if (status == GM_OK)
			status = make_scene(&scores, low, high, err);
		gm_scores_free(&scores);
	}
	return status;
}
