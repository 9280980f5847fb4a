/* Perplexity against substituted mass, with intervals where the results hold them (columns NAME_low and NAME_high). */
#include "report/figure.h"
#include "report/interval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct view {
	struct gm_figure *figure;
	const struct gm_results *results;
	const struct gm_sheet *sequences;
	const char *measure; /* the column */
	double *value, *low, *high;
};

static bool is_shown(const struct view *v, size_t i, size_t scene)
{
	const struct gm_point *p = &v->results->point[i];

	return p->scene == scene && !p->failed && !isnan(p->lost_mass) && !isnan(v->value[p->row]);
}

static int put_row(struct view *v, size_t i, size_t *row, struct gm_error *err)
{
	const struct gm_results *r = v->results;
	struct gm_sheet *data = &v->figure->data;

	GM_TRY(gm_figure_row(v->figure, r->point[i].row, row, err));
	GM_TRY(gm_sheet_put(data, r->scene[r->point[i].scene].text, err));
	GM_TRY(gm_sheet_put(data, gm_point_policy(r, i), err));
	GM_TRY(gm_sheet_put(data, gm_point_cache(r, i), err));
	GM_TRY(gm_sheet_put_number(data, r->point[i].lost_mass, err));
	GM_TRY(gm_sheet_put_number(data, v->value[r->point[i].row], err));
	GM_TRY(gm_sheet_put_number(data, v->low[r->point[i].row], err));
	return gm_sheet_put_number(data, v->high[r->point[i].row], err);
}

static void put_interval(struct gm_chart *chart, const struct view *v, size_t i)
{
	const struct gm_point *p = &v->results->point[i];
	double x = gm_scale_at(&chart->x, 100 * p->lost_mass), low, high;
	char class[32];

	if (isnan(v->low[p->row]) || isnan(v->high[p->row]))
		return;
	low = gm_scale_at(&chart->y, v->low[p->row]);
	high = gm_scale_at(&chart->y, v->high[p->row]);
	snprintf(class, sizeof(class), "whisker s%zu", p->colour);
	gm_svg_line(&chart->svg, class, x, low, x, high);
	gm_svg_line(&chart->svg, class, x - 4, low, x + 4, low);
	gm_svg_line(&chart->svg, class, x - 4, high, x + 4, high);
}

static int put_panel(struct view *v, size_t scene, struct gm_error *err)
{
	const struct gm_results *r = v->results;
	const bool change = strcmp(v->measure, "perplexity_change_pct") == 0;
	struct gm_legend legend[GM_MAX_COLOURS + 1];
	bool used[GM_MAX_COLOURS + 1] = {false};
	double mass = 0, low = (double)INFINITY, high = -(double)INFINITY;
	struct gm_chart chart;
	size_t row;

	for (size_t i = 0; i < r->n_point; i++) {
		if (!is_shown(v, i, scene))
			continue;
		const size_t at = r->point[i].row;
		used[r->point[i].colour] = true;
		mass = fmax(mass, r->point[i].lost_mass);
		low = fmin(low, fmin(v->value[at], v->low[at])); /* fmin and fmax pass NaNs over */
		high = fmax(high, fmax(v->value[at], v->high[at]));
	}
	if (!(low <= high))
		return GM_OK;
	GM_TRY(gm_figure_begin(v->figure, &chart, r->scene[scene].text, GM_CHART_HEIGHT + 30,
			       "Scatter plot: perplexity against substituted gate weight, one mark for each result", err));
	gm_chart_legend(&chart, legend, gm_figure_legend(r, used, legend));
	chart.x = gm_scale_nice(0, 100 * mass, 6);
	chart.y = gm_scale_nice(change ? fmin(low, 0) : low, high, 6);
	gm_chart_axes(&chart, r->has_dropped ? "gate weight substituted or dropped" : "gate weight substituted",
		      change ? "perplexity against the baseline" : "perplexity", true, change);
	for (size_t i = 0; i < r->n_point; i++)
		if (is_shown(v, i, scene))
			put_interval(&chart, v, i);
	for (size_t i = 0; i < r->n_point; i++) {
		if (!is_shown(v, i, scene))
			continue;
		GM_TRY(put_row(v, i, &row, err));
		gm_chart_mark(&chart, r->point[i].colour, GM_MARK_PLAIN, 100 * r->point[i].lost_mass,
			      v->value[r->point[i].row], row);
	}
	return gm_figure_end(v->figure, &chart, err);
}

static int build(struct view *v, struct gm_error *err)
{
	char low[64], high[64];
	const char *const names[] = {"trace", "policy", "cache", "lost_mass", v->measure, low, high, NULL};
	bool intervals = false, made = false;

	snprintf(low, sizeof(low), "%s_low", v->measure);
	snprintf(high, sizeof(high), "%s_high", v->measure);
	v->value = gm_sheet_numbers(v->results->sheet, v->measure, err);
	v->low = gm_sheet_numbers(v->results->sheet, low, err);
	v->high = gm_sheet_numbers(v->results->sheet, high, err);
	if (!v->value || !v->low || !v->high)
		return err->code;
	if (gm_sheet_find(v->results->sheet, low) == GM_NO_COLUMN && strcmp(v->measure, "perplexity_change_pct") == 0 &&
	    gm_sheet_find(v->sequences, "nll") != GM_NO_COLUMN) {
		GM_TRY(gm_intervals_make(v->results, v->sequences, v->low, v->high, err));
		made = true;
	}
	for (size_t row = 0; row < v->results->n_point; row++)
		intervals = intervals || (!isnan(v->low[row]) && !isnan(v->high[row]));
	if (!intervals)
		gm_figure_note(v->figure, "No intervals are known: small differences may be chance. (Give the "
					  "--per-sequence file of emulate.)");
	else if (made)
		gm_figure_note(v->figure, "Whiskers: 95 %% intervals by paired bootstrap over sequences.");
	else
		gm_figure_note(v->figure, "Whiskers are the intervals that the file gives.");
	GM_TRY(gm_figure_columns(v->figure, names, err));
	v->figure->group = 1;
	for (size_t s = 0; s < v->results->n_scene && v->figure->n_panel < GM_MAX_PANELS; s++)
		GM_TRY(put_panel(v, s, err));
	return GM_OK;
}

int gm_figure_perplexity(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err)
{
	const struct gm_sheet *sheet = study->results.sheet;
	struct view view = {.figure = figure,
			    .results = &study->results,
			    .sequences = &study->inputs.sheet[GM_INPUT_SEQUENCES],
			    .measure = "perplexity_change_pct"};
	int status;

	if (gm_sheet_find(sheet, view.measure) == GM_NO_COLUMN)
		view.measure = "perplexity";
	if (gm_sheet_find(sheet, view.measure) == GM_NO_COLUMN)
		return GM_OK;
	status = build(&view, err);
	free(view.value);
	free(view.low);
	free(view.high);
	return status;
}
