/* Heat maps over the layers: hit rate, misses a token, lost gate weight; a line for each chosen result. */
#include "report/figure.h"

#include <math.h>
#include <stdlib.h>

#define MAX_LINES 24
#define MAX_SCENES 2 /* three panels each */
#define LINE 20.0

enum measure { HIT_RATE, MISSES, LOST_MASS, N_MEASURE };

static const struct {
	const char *title, *label;
	const char *unit;
	double factor;
} measures[N_MEASURE] = {
	{"Hit rate", "Heat map: hit rate by layer and result", "%", 100},
	{"Misses a token", "Heat map: misses per token by layer and result", "", 1},
	{"Lost gate weight", "Heat map: substituted and dropped gate weight by layer and result", "%", 100},
};

struct cell {
	size_t line, layer;
	double value[N_MEASURE];
	size_t row; /* of the figure's data */
};

struct view {
	struct gm_figure *figure;
	const struct gm_results *results;
	const struct gm_sheet *sheet;
	double *layer, *tokens, *hit_rate, *misses, *substituted, *dropped; /* columns of the sheet [n_row] */
	size_t *point;                                                      /* [n_row] results behind the rows */
	struct cell *cell;
	size_t n_cell, n_layer;
	size_t chosen[MAX_LINES], n_chosen, cache, n_left;
};

static double sum(double a, double b)
{
	return isnan(a) ? b : isnan(b) ? a : a + b;
}

static int put_row(struct view *v, struct cell *cell, struct gm_error *err)
{
	const size_t i = v->chosen[cell->line];
	struct gm_sheet *data = &v->figure->data;

	GM_TRY(gm_figure_row(v->figure, v->results->point[i].row, &cell->row, err));
	GM_TRY(gm_sheet_put(data, v->results->scene[v->results->point[i].scene].text, err));
	GM_TRY(gm_sheet_put(data, gm_point_policy(v->results, i), err));
	GM_TRY(gm_sheet_put(data, gm_point_cache(v->results, i), err));
	GM_TRY(gm_sheet_put_number(data, (double)cell->layer, err));
	for (int m = 0; m < N_MEASURE; m++)
		GM_TRY(gm_sheet_put_number(data, cell->value[m], err));
	return GM_OK;
}

/* The cells of the chosen results, line by line. */
static int collect(struct view *v, struct gm_error *err)
{
	v->n_cell = v->n_layer = 0;
	for (size_t line = 0; line < v->n_chosen; line++)
		for (size_t row = 0; row < v->sheet->n_row; row++) {
			struct cell *cell = &v->cell[v->n_cell];

			if (v->point[row] != v->chosen[line] || !(v->layer[row] >= 0 && v->layer[row] < 1e6))
				continue;
			*cell = (struct cell){.line = line, .layer = (size_t)v->layer[row]};
			cell->value[HIT_RATE] = v->hit_rate[row];
			cell->value[MISSES] = v->tokens[row] > 0 ? v->misses[row] / v->tokens[row] : (double)NAN;
			cell->value[LOST_MASS] = sum(v->substituted[row], v->dropped[row]);
			v->n_layer = cell->layer + 1 > v->n_layer ? cell->layer + 1 : v->n_layer;
			GM_TRY(put_row(v, cell, err));
			v->n_cell++;
		}
	return GM_OK;
}

static void put_names(struct view *v, struct gm_chart *chart)
{
	char name[256], fit[256];

	for (size_t k = 0; k < v->n_chosen; k++) {
		gm_figure_point_name(v->results, v->chosen[k], v->cache, name, sizeof(name));
		gm_svg_text(&chart->svg, "end", chart->left - 6, chart->top + LINE * (double)k + 14.5,
			    gm_chart_fit(name, chart->left - 8, fit, sizeof(fit)));
	}
}

static void put_layer_numbers(const struct view *v, struct gm_chart *chart, double width)
{
	size_t step = v->n_layer <= 12 ? 1 : v->n_layer <= 24 ? 2 : v->n_layer <= 60 ? 5 : v->n_layer <= 120 ? 10 : 50;
	char text[24];

	for (size_t l = 0; l < v->n_layer; l += step) {
		snprintf(text, sizeof(text), "%zu", l);
		gm_svg_text(&chart->svg, "mid", chart->left + ((double)l + 0.5) * width, chart->bottom + 16, text);
	}
	gm_svg_text(&chart->svg, "mid label", (chart->left + chart->right) / 2, chart->bottom + 35, "layer");
}

static double name_width(const struct view *v)
{
	double width = 0;
	char name[256];

	for (size_t k = 0; k < v->n_chosen; k++) {
		gm_figure_point_name(v->results, v->chosen[k], v->cache, name, sizeof(name));
		width = fmax(width, gm_chart_text_width(name));
	}
	return width;
}

static int put_panel(struct view *v, size_t scene, enum measure m, struct gm_error *err)
{
	const double factor = measures[m].factor;
	double low = (double)INFINITY, high = -(double)INFINITY, width;
	char title[400], class[32], low_text[GM_SCALE_TEXT + 2], high_text[GM_SCALE_TEXT + 2], number[GM_SCALE_TEXT];
	struct gm_chart chart;

	for (size_t i = 0; i < v->n_cell; i++) {
		low = fmin(low, v->cell[i].value[m]);
		high = fmax(high, v->cell[i].value[m]);
	}
	if (!(low <= high) || (m == LOST_MASS && high == 0))
		return GM_OK;
	snprintf(title, sizeof(title), "%s: %s%s%s", measures[m].title, v->results->scene[scene].text,
		 v->cache == GM_NO_POINT ? "" : ", cache ",
		 v->cache == GM_NO_POINT ? "" : v->results->cache[v->cache].text);
	GM_TRY(gm_figure_begin(v->figure, &chart, title, LINE * (double)v->n_chosen + 84, measures[m].label, err));
	chart.left = fmin(name_width(v) + 10, 0.42 * chart.width);
	snprintf(low_text, sizeof(low_text), "%s%s", gm_short_number(factor * low, 3, number), measures[m].unit);
	snprintf(high_text, sizeof(high_text), "%s%s", gm_short_number(factor * high, 3, number), measures[m].unit);
	gm_chart_ramp(&chart, "h", low_text, high_text);
	chart.bottom = chart.top + LINE * (double)v->n_chosen;
	width = (chart.right - chart.left) / (double)v->n_layer;
	put_names(v, &chart);
	put_layer_numbers(v, &chart, width);
	for (size_t i = 0; i < v->n_cell; i++) {
		const struct cell *cell = &v->cell[i];

		snprintf(class, sizeof(class), "fill h%d", gm_chart_step(cell->value[m], low, high));
		gm_svg_open_rect(&chart.svg, class, chart.left + (double)cell->layer * width,
				 chart.top + LINE * (double)cell->line, width - (width > 6 ? 1 : 0), LINE - 1);
		gm_svg_number(&chart.svg, "data-i", (double)cell->row);
		gm_svg_close(&chart.svg);
	}
	return gm_figure_end(v->figure, &chart, err);
}

static int put_scene(struct view *v, size_t scene, struct gm_error *err)
{
	v->n_chosen = gm_results_choose(v->results, scene, MAX_LINES, v->chosen, &v->cache, &v->n_left);
	GM_TRY(collect(v, err));
	if (v->n_cell > 0 && v->n_left > 0)
		gm_figure_note(v->figure, "%zu of %zu results of that cache size are shown, the trade-off front first.",
			       v->n_chosen, v->n_chosen + v->n_left);
	for (int m = 0; m < N_MEASURE && v->n_cell > 0; m++)
		GM_TRY(put_panel(v, scene, (enum measure)m, err));
	return GM_OK;
}

static int find_points(struct view *v, struct gm_error *err)
{
	const size_t trace = gm_sheet_find(v->sheet, "trace"), settings = gm_sheet_find(v->sheet, "settings_hash");

	v->point = gm_alloc(v->sheet->n_row, sizeof(*v->point), err);
	v->cell = gm_alloc(v->sheet->n_row, sizeof(*v->cell), err);
	if (!v->point || !v->cell)
		return GM_ERR_MEMORY;
	for (size_t row = 0; row < v->sheet->n_row; row++)
		v->point[row] = gm_results_find(v->results, gm_sheet_text(v->sheet, row, trace),
						gm_sheet_text(v->sheet, row, settings));
	return GM_OK;
}

static int build(struct view *v, struct gm_error *err)
{
	static const char *const names[] = {"trace",    "policy",           "cache",     "layer",
					    "hit_rate", "misses_per_token", "lost_mass", NULL};
	struct {
		double **values;
		const char *name;
	} columns[] = {{&v->layer, "layer"},
		       {&v->tokens, "tokens"},
		       {&v->hit_rate, "hit_rate"},
		       {&v->misses, "misses"},
		       {&v->substituted, "substituted_mass"},
		       {&v->dropped, "dropped_mass"}};

	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
		if (!(*columns[i].values = gm_sheet_numbers(v->sheet, columns[i].name, err)))
			return err->code;
	GM_TRY(find_points(v, err));
	GM_TRY(gm_figure_columns(v->figure, names, err));
	for (size_t s = 0; s < v->results->n_scene && s < MAX_SCENES; s++)
		GM_TRY(put_scene(v, s, err));
	return GM_OK;
}

int gm_figure_layers(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err)
{
	struct view view = {.figure = figure, .results = &study->results, .sheet = &study->inputs.sheet[GM_INPUT_LAYERS]};
	int status;

	if (view.sheet->n_row == 0)
		return GM_OK;
	gm_figure_note(figure, "Each map has its own scale: look for layers that stand out.");
	status = build(&view, err);
	free(view.layer);
	free(view.tokens);
	free(view.hit_rate);
	free(view.misses);
	free(view.substituted);
	free(view.dropped);
	free(view.point);
	free(view.cell);
	return status;
}
