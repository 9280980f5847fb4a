/* Where the time of a token goes: stacked bars by cause (docs/semantics.md, R19). */
#include "report/figure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BARS 24
#define BAR 22.0 /* height of a bar with the gap below it */

static const struct {
	const char *column, *name;
} parts[] = {
	{"time_dense_us", "dense part"},
	{"time_gpu_us", "experts on the GPU"},
	{"time_link_wait_us", "waits for the link"},
	{"time_disk_wait_us", "waits for the disk"},
	{"time_cpu_wait_us", "waits for the CPU"},
	{"time_token_us", "once a token"},
};
#define N_PART (sizeof(parts) / sizeof(*parts))

struct view {
	struct gm_figure *figure;
	const struct gm_results *results;
	double *part[N_PART]; /* [n_row] */
	bool used[N_PART];    /* is there a bar with some of it? */
};

static int put_row(struct view *v, size_t i, size_t *row, struct gm_error *err)
{
	const struct gm_results *r = v->results;
	struct gm_sheet *data = &v->figure->data;

	GM_TRY(gm_figure_row(v->figure, r->point[i].row, row, err));
	GM_TRY(gm_sheet_put(data, r->scene[r->point[i].scene].text, err));
	GM_TRY(gm_sheet_put(data, gm_point_policy(r, i), err));
	GM_TRY(gm_sheet_put(data, gm_point_cache(r, i), err));
	for (size_t p = 0; p < N_PART; p++)
		GM_TRY(gm_sheet_put_number(data, v->part[p][r->point[i].row], err));
	return gm_sheet_put_number(data, r->point[i].time_us, err);
}

static void put_bar(struct view *v, struct gm_chart *chart, size_t i, double y, double unit, size_t row)
{
	const struct gm_point *point = &v->results->point[i];
	char class[16], text[GM_SCALE_TEXT];
	double at = 0;

	for (size_t p = 0; p < N_PART; p++) {
		double value = v->part[p][point->row];
		double from = gm_scale_at(&chart->x, at * unit), to = gm_scale_at(&chart->x, (at + value) * unit);

		if (isnan(value) || value <= 0)
			continue;
		snprintf(class, sizeof(class), "fill t%zu", p);
		gm_svg_open_rect(&chart->svg, class, from, y, to - from, BAR - 5);
		gm_svg_number(&chart->svg, "data-i", (double)row);
		gm_svg_close(&chart->svg);
		at += value;
	}
	gm_svg_text(&chart->svg, "small", gm_scale_at(&chart->x, at * unit) + 5, y + 13,
		    gm_short_number(point->time_us * unit, 4, text));
}

/* A legend of little squares, and room for the names of the bars. */
static void put_head(struct view *v, struct gm_chart *chart)
{
	double x = 4, y = 16;
	char class[16];

	for (size_t p = 0; p < N_PART; p++) {
		double width = 18 + gm_chart_text_width(parts[p].name) + 12;

		if (!v->used[p])
			continue;
		if (x + width > chart->width && x > 4) {
			x = 4;
			y += 19;
		}
		snprintf(class, sizeof(class), "fill t%zu", p);
		gm_svg_open_rect(&chart->svg, class, x, y - 10, 12, 12);
		gm_svg_close(&chart->svg);
		gm_svg_text(&chart->svg, NULL, x + 18, y, parts[p].name);
		x += width;
	}
	chart->top = y + 14;
}

static double head_height(const struct view *v)
{
	double x = 4, height = 30;

	for (size_t p = 0; p < N_PART; p++) {
		double width = 18 + gm_chart_text_width(parts[p].name) + 12;

		if (!v->used[p])
			continue;
		if (x + width > GM_CHART_WIDTH && x > 4) {
			x = 4;
			height += 19;
		}
		x += width;
	}
	return height;
}

static void look_at(struct view *v, const size_t *chosen, size_t n, double *longest, double *name_width, size_t cache)
{
	char name[256];

	memset(v->used, 0, sizeof(v->used));
	*longest = *name_width = 0;
	for (size_t k = 0; k < n; k++) {
		const struct gm_point *point = &v->results->point[chosen[k]];

		*longest = fmax(*longest, point->time_us);
		gm_figure_point_name(v->results, chosen[k], cache, name, sizeof(name));
		*name_width = fmax(*name_width, gm_chart_text_width(name));
		for (size_t p = 0; p < N_PART; p++)
			v->used[p] = v->used[p] || v->part[p][point->row] > 0;
	}
}

static int put_panel(struct view *v, size_t scene, struct gm_error *err)
{
	const struct gm_results *r = v->results;
	size_t chosen[MAX_BARS], cache, n_left, n = gm_results_choose(r, scene, MAX_BARS, chosen, &cache, &n_left), row;
	double longest, name_width, unit;
	char name[256], fit[256], title[320];
	struct gm_chart chart;

	if (n == 0)
		return GM_OK;
	look_at(v, chosen, n, &longest, &name_width, cache);
	if (!(longest > 0))
		return GM_OK;
	unit = longest >= 5000 ? 1e-3 : 1;
	snprintf(title, sizeof(title), "%s%s%s", r->scene[scene].text, cache == GM_NO_POINT ? "" : ", cache ",
		 cache == GM_NO_POINT ? "" : r->cache[cache].text);
	GM_TRY(gm_figure_begin(v->figure, &chart, title, head_height(v) + BAR * (double)n + 48,
			       "Stacked bars: time per token by cause, a bar for each result", err));
	put_head(v, &chart);
	chart.left = fmin(name_width + 10, 0.42 * chart.width);
	chart.right = chart.width - 46;
	chart.bottom = chart.top + BAR * (double)n + 2;
	chart.x = gm_scale_nice(0, longest * unit, 5);
	chart.y = gm_scale_nice(0, 1, 2);
	chart.x.from = chart.left;
	chart.x.to = chart.right;
	for (int i = 0; i < gm_scale_n_tick(&chart.x); i++) {
		double at = gm_scale_at(&chart.x, gm_scale_tick(&chart.x, i));
		char text[GM_SCALE_TEXT];

		gm_svg_line(&chart.svg, "grid", at, chart.top - 4, at, chart.bottom);
		gm_svg_text(&chart.svg, "mid", at, chart.bottom + 16,
			    gm_scale_text(&chart.x, gm_scale_tick(&chart.x, i), text));
	}
	gm_svg_text(&chart.svg, "mid label", (chart.left + chart.right) / 2, chart.bottom + 36,
		    unit < 1 ? "ms a token" : "\xc2\xb5s a token");
	for (size_t k = 0; k < n; k++) {
		double y = chart.top + BAR * (double)k;

		gm_figure_point_name(r, chosen[k], cache, name, sizeof(name));
		gm_svg_text(&chart.svg, "end", chart.left - 6, y + 13,
			    gm_chart_fit(name, chart.left - 8, fit, sizeof(fit)));
		GM_TRY(put_row(v, chosen[k], &row, err));
		put_bar(v, &chart, chosen[k], y, unit, row);
	}
	if (n_left > 0)
		gm_figure_note(v->figure, "%zu of %zu results of that cache size are shown, the trade-off front first.", n,
			       n + n_left);
	return gm_figure_end(v->figure, &chart, err);
}

int gm_figure_time(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err)
{
	static const char *const names[] = {"trace",
					    "policy",
					    "cache",
					    "time_dense_us",
					    "time_gpu_us",
					    "time_link_wait_us",
					    "time_disk_wait_us",
					    "time_cpu_wait_us",
					    "time_token_us",
					    "time_per_token_us",
					    NULL};
	const struct gm_results *r = &study->results;
	struct view view = {.figure = figure, .results = r};
	int status = GM_OK;

	if (!r->has_times)
		return GM_OK;
	for (size_t p = 0; p < N_PART && status == GM_OK; p++) {
		view.part[p] = gm_sheet_numbers(r->sheet, parts[p].column, err);
		status = view.part[p] ? GM_OK : err->code;
	}
	if (status == GM_OK)
		status = gm_figure_columns(figure, names, err);
	gm_figure_note(figure, "The parts add up to the time per token.");
	for (size_t s = 0; s < r->n_scene && s < GM_MAX_PANELS && status == GM_OK; s++)
		status = put_panel(&view, s, err);
	for (size_t p = 0; p < N_PART; p++)
		free(view.part[p]);
	return status;
}
