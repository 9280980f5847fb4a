/* Hit rate against cache size, a line for each policy. */
#include "report/figure.h"

#include <math.h>
#include <stdlib.h>

static bool is_shown(const struct gm_point *p, size_t scene)
{
	return p->scene == scene && !p->failed && !isnan(p->cache_fraction) && !isnan(p->hit_rate);
}

struct order {
	const struct gm_results *results;
	size_t *point; /* those that are shown, by series and size */
	size_t n;
};

static int by_series(const void *a, const void *b, void *order)
{
	const struct gm_point *point = ((const struct order *)order)->results->point;
	const struct gm_point *p = &point[*(const size_t *)a], *q = &point[*(const size_t *)b];

	if (p->series != q->series)
		return p->series < q->series ? -1 : 1;
	if (p->cache_fraction != q->cache_fraction)
		return p->cache_fraction < q->cache_fraction ? -1 : 1;
	return p->row < q->row ? -1 : p->row > q->row;
}

static void sort_points(struct order *o, size_t scene)
{
	o->n = 0;
	for (size_t i = 0; i < o->results->n_point; i++)
		if (is_shown(&o->results->point[i], scene))
			o->point[o->n++] = i;
	qsort_r(o->point, o->n, sizeof(*o->point), by_series, o);
}

static int put_row(struct gm_figure *f, const struct gm_results *r, size_t i, size_t *row, struct gm_error *err)
{
	GM_TRY(gm_figure_row(f, r->point[i].row, row, err));
	GM_TRY(gm_sheet_put(&f->data, r->scene[r->point[i].scene].text, err));
	GM_TRY(gm_sheet_put(&f->data, gm_point_policy(r, i), err));
	GM_TRY(gm_sheet_put(&f->data, gm_point_cache(r, i), err));
	GM_TRY(gm_sheet_put_number(&f->data, r->point[i].cache_fraction, err));
	return gm_sheet_put_number(&f->data, r->point[i].hit_rate, err);
}

static void put_line(struct gm_chart *chart, const struct order *o, size_t from, size_t to, double *x, double *y,
		     size_t first_row)
{
	char class[32];

	for (size_t k = from; k < to; k++) {
		x[k - from] = 100 * o->results->point[o->point[k]].cache_fraction;
		y[k - from] = 100 * o->results->point[o->point[k]].hit_rate;
	}
	snprintf(class, sizeof(class), "line s%zu", o->results->point[o->point[from]].colour);
	gm_chart_line(chart, class, x, y, to - from, first_row);
}

static int put_panel(struct gm_figure *f, const struct order *o, size_t scene, double *x, double *y, struct gm_error *err)
{
	const struct gm_results *r = o->results;
	struct gm_legend legend[GM_MAX_COLOURS + 1];
	bool used[GM_MAX_COLOURS + 1] = {false};
	struct gm_chart chart;
	double size = 0, rate = 0;
	size_t row;

	GM_TRY(gm_figure_begin(f, &chart, r->scene[scene].text, GM_CHART_HEIGHT + 30,
			       "Line chart: hit rate against cache size, a line for each policy", err));
	for (size_t k = 0; k < o->n; k++) {
		used[r->point[o->point[k]].colour] = true;
		size = fmax(size, r->point[o->point[k]].cache_fraction);
		rate = fmax(rate, r->point[o->point[k]].hit_rate);
	}
	gm_chart_legend(&chart, legend, gm_figure_legend(r, used, legend));
	chart.x = gm_scale_nice(0, 100 * size, 6);
	chart.y = gm_scale_nice(0, 100 * rate, 6);
	gm_chart_axes(&chart, "experts that fit the cache", "hit rate", true, true);
	for (size_t from = 0, to; from < o->n; from = to) {
		for (to = from; to < o->n && r->point[o->point[to]].series == r->point[o->point[from]].series;)
			to++;
		put_line(&chart, o, from, to, x, y, f->n_result + from);
	}
	for (size_t k = 0; k < o->n; k++) {
		const struct gm_point *p = &r->point[o->point[k]];

		GM_TRY(put_row(f, r, o->point[k], &row, err));
		gm_chart_mark(&chart, p->colour, GM_MARK_PLAIN, 100 * p->cache_fraction, 100 * p->hit_rate, row);
	}
	return gm_figure_end(f, &chart, err);
}

int gm_figure_curve(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err)
{
	static const char *const names[] = {"trace", "policy", "cache", "cache_fraction", "hit_rate", NULL};
	const struct gm_results *r = &study->results;
	struct order order = {.results = r, .point = gm_alloc(r->n_point, sizeof(size_t), err)};
	double *x = gm_alloc(r->n_point, sizeof(*x), err), *y = gm_alloc(r->n_point, sizeof(*y), err);
	int status = order.point && x && y ? GM_OK : GM_ERR_MEMORY;

	if (status == GM_OK)
		status = gm_figure_columns(figure, names, err);
	figure->group = 1;
	for (size_t s = 0; s < r->n_scene && figure->n_panel < GM_MAX_PANELS && status == GM_OK; s++) {
		sort_points(&order, s);
		if (order.n > 0)
			status = put_panel(figure, &order, s, x, y, err);
	}
	gm_figure_note(figure,
		       "A line that flattens early is a policy that has what it can use; the gap between lines is what the "
		       "eviction policy and the miss rule make of one and the same memory.");
	free(order.point);
	free(x);
	free(y);
	return status;
}
