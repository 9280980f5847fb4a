/* The few of many results that a figure has room for. */
#include "report/results.h"

#include <math.h>
#include <stdlib.h>

static size_t count_points(const struct gm_results *r, size_t scene, size_t cache)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_point; i++)
		n += r->point[i].scene == scene && !r->point[i].failed &&
		     (cache == GM_NO_POINT || r->point[i].cache == cache);
	return n;
}

static size_t nearest_quarter(const struct gm_results *r, size_t scene)
{
	size_t best = 0;
	double distance = (double)INFINITY;

	for (size_t c = 0; c < r->n_cache; c++) {
		double d = isnan(r->cache[c].value) ? 1e9 : fabs(r->cache[c].value - 0.25);

		if (d < distance && count_points(r, scene, c) > 0) {
			distance = d;
			best = c;
		}
	}
	return best;
}

static int by_policy(const void *a, const void *b, void *points)
{
	const struct gm_point *p = &((const struct gm_point *)points)[*(const size_t *)a],
			      *q = &((const struct gm_point *)points)[*(const size_t *)b];

	if (p->series != q->series)
		return p->series < q->series ? -1 : 1;
	if (p->cache != q->cache)
		return p->cache < q->cache ? -1 : 1;
	return p->row < q->row ? -1 : p->row > q->row;
}

size_t gm_results_choose(const struct gm_results *r, size_t scene, size_t max, size_t *chosen, size_t *cache,
			 size_t *n_left)
{
	size_t n = 0, all = count_points(r, scene, GM_NO_POINT);

	*cache = GM_NO_POINT;
	if (all > max) {
		*cache = nearest_quarter(r, scene);
		all = count_points(r, scene, *cache);
	}
	for (int front = 1; front >= 0; front--)
		for (size_t i = 0; i < r->n_point && n < max; i++) {
			const struct gm_point *p = &r->point[i];

			if (p->scene == scene && !p->failed && p->on_front == (front == 1) &&
			    (*cache == GM_NO_POINT || p->cache == *cache))
				chosen[n++] = i;
		}
	*n_left = all - n;
	qsort_r(chosen, n, sizeof(*chosen), by_policy, r->point);
	return n;
}
