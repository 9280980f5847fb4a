/* Time per token against the gate weight that was substituted (or dropped), with a front for each cache size: what waiting buys. */
#include "report/figure.h"

#include <math.h>
#include <stdlib.h>

#define MAX_FRONTS 8 /* cache sizes that get a front of their own */

struct view {
	struct gm_figure *figure;
	const struct gm_results *results;
	struct gm_chart chart;
	size_t *row;      /* [n_point] of data */
	double time_unit; /* what a µs is on the axis */
};

static bool is_shown(const struct gm_results *r, size_t i, size_t scene)
{
	const struct gm_point *p = &r->point[i];

	return p->scene == scene && !p->failed && p->time_us > 0 && !isnan(p->lost_mass);
}

static int put_data(struct view *v, struct gm_error *err)
{
	static const char *const names[] = {"trace", "policy", "cache", "cache_fraction", "lost_mass", "time_per_token_us",
					    "front", NULL};
	const struct gm_results *r = v->results;
	struct gm_sheet *data = &v->figure->data;

	GM_TRY(gm_figure_columns(v->figure, names, err));
	v->figure->group = 1;
	for (size_t s = 0; s < r->n_scene && s < GM_MAX_PANELS; s++)
		for (size_t i = 0; i < r->n_point; i++) {
			if (!is_shown(r, i, s))
				continue;
			GM_TRY(gm_figure_row(v->figure, r->point[i].row, &v->row[i], err));
			GM_TRY(gm_sheet_put(data, r->scene[s].text, err));
			GM_TRY(gm_sheet_put(data, gm_point_policy(r, i), err));
			GM_TRY(gm_sheet_put(data, gm_point_cache(r, i), err));
			GM_TRY(gm_sheet_put_number(data, r->point[i].cache_fraction, err));
			GM_TRY(gm_sheet_put_number(data, r->point[i].lost_mass, err));
			GM_TRY(gm_sheet_put_number(data, r->point[i].time_us, err));
			GM_TRY(gm_sheet_put(data, r->point[i].on_front ? "yes" : "no", err));
		}
	return GM_OK;
}

static int by_mass(const void *a, const void *b, void *view)
{
	const struct gm_point *point = ((const struct view *)view)->results->point;
	const struct gm_point *p = &point[*(const size_t *)a], *q = &point[*(const size_t *)b];

	return p->lost_mass < q->lost_mass ? -1 : p->lost_mass > q->lost_mass;
}

/* A stair through the front of one cache size: nothing lies below and left of it. Named at its first step. */
static void put_front(struct view *v, size_t scene, size_t cache, size_t *index, double *x, double *y)
{
	const struct gm_results *r = v->results;
	struct gm_chart *c = &v->chart;
	size_t n = 0, corners = 0;

	for (size_t i = 0; i < r->n_point; i++)
		if (is_shown(r, i, scene) && r->point[i].cache == cache && r->point[i].on_front)
			index[n++] = i;
	if (n == 0)
		return;
	qsort_r(index, n, sizeof(*index), by_mass, v);
	for (size_t i = 0; i < n; i++) {
		const struct gm_point *p = &r->point[index[i]];

		if (i > 0) {
			x[corners] = 100 * p->lost_mass;
			y[corners] = y[corners - 1];
			corners++;
		}
		x[corners] = 100 * p->lost_mass;
		y[corners++] = p->time_us * v->time_unit;
	}
	gm_chart_line(c, "front", x, y, corners, GM_CHART_NO_INDEX);
	if (r->n_cache > 1)
		gm_svg_text(&c->svg, "small halo", gm_scale_at(&c->x, x[0]) + 8, gm_scale_at(&c->y, y[0]) - 6,
			    r->cache[cache].text);
}

static int put_fronts(struct view *v, size_t scene, struct gm_error *err)
{
	const struct gm_results *r = v->results;
	size_t *index = gm_alloc(r->n_point, sizeof(*index), err);
	double *x = gm_alloc(2 * r->n_point, sizeof(*x), err), *y = gm_alloc(2 * r->n_point, sizeof(*y), err);
	int status = index && x && y ? GM_OK : GM_ERR_MEMORY;
	size_t shown = r->n_cache < MAX_FRONTS ? r->n_cache : MAX_FRONTS;

	/* Of many sizes some that lie evenly, the smallest and the largest among them. */
	for (size_t i = 0; i < shown && status == GM_OK; i++)
		put_front(v, scene, shown < 2 ? 0 : i * (r->n_cache - 1) / (shown - 1), index, x, y);
	free(index);
	free(x);
	free(y);
	return status;
}

static void set_scales(struct view *v, size_t scene)
{
	const struct gm_results *r = v->results;
	double low = (double)INFINITY, high = 0, mass = 0;

	for (size_t i = 0; i < r->n_point; i++) {
		if (!is_shown(r, i, scene))
			continue;
		low = fmin(low, r->point[i].time_us);
		high = fmax(high, r->point[i].time_us);
		mass = fmax(mass, r->point[i].lost_mass);
	}
	v->time_unit = high >= 5000 ? 1e-3 : 1;
	v->chart.x = gm_scale_nice(0, 100 * mass, 6);
	v->chart.y = gm_scale_nice(low * v->time_unit, high * v->time_unit, 6);
}

static int put_panel(struct view *v, size_t scene, struct gm_error *err)
{
	const struct gm_results *r = v->results;
	struct gm_legend legend[GM_MAX_COLOURS + 1];
	bool used[GM_MAX_COLOURS + 1] = {false};
	size_t n_shown = 0, n_legend;

	for (size_t i = 0; i < r->n_point; i++)
		if (is_shown(r, i, scene)) {
			used[r->point[i].colour] = true;
			n_shown++;
		}
	if (n_shown == 0)
		return GM_OK;
	n_legend = gm_figure_legend(r, used, legend);
	GM_TRY(gm_figure_begin(v->figure, &v->chart, r->scene[scene].text, GM_CHART_HEIGHT + 30,
			       "Scatter plot: time per token against substituted gate weight, one mark for each result",
			       err));
	set_scales(v, scene);
	gm_chart_legend(&v->chart, legend, n_legend);
	gm_chart_axes(&v->chart, r->has_dropped ? "gate weight substituted or dropped" : "gate weight substituted",
		      v->time_unit < 1 ? "ms a token" : "\xc2\xb5s a token", true, false);
	GM_TRY(put_fronts(v, scene, err));
	for (int front = 0; front < 2; front++) /* the front on top */
		for (size_t i = 0; i < r->n_point; i++) {
			const struct gm_point *p = &r->point[i];

			if (is_shown(r, i, scene) && p->on_front == (front == 1))
				gm_chart_mark(&v->chart, p->colour, front ? GM_MARK_BEST : GM_MARK_REST, 100 * p->lost_mass,
					      p->time_us * v->time_unit, v->row[i]);
		}
	return gm_figure_end(v->figure, &v->chart, err);
}

int gm_figure_tradeoff(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err)
{
	const struct gm_results *r = &study->results;
	struct view view = {.figure = figure, .results = r};
	int status;

	if (!r->has_times)
		return GM_OK;
	view.row = gm_alloc(r->n_point, sizeof(*view.row), err);
	if (!view.row)
		return GM_ERR_MEMORY;
	gm_figure_note(
		figure,
		"Lower and further left is better. The stairs join the results of one cache size that no other result "
		"of that size beats in both.");
	if (r->n_cache > MAX_FRONTS)
		gm_figure_note(figure, "Stairs are drawn for %d of the %zu cache sizes.", MAX_FRONTS, r->n_cache);
	status = put_data(&view, err);
	for (size_t s = 0; s < r->n_scene && s < GM_MAX_PANELS && status == GM_OK; s++)
		status = put_panel(&view, s, err);
	free(view.row);
	return status;
}
