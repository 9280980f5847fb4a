/* What happens around topic switches: means over the tokens at equal distance from a change of label. */
#include "report/figure.h"
#include "report/switches.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BEFORE 32 /* tokens looked at before a switch, and after it */
#define AFTER 128
#define BIN 8
#define N_BIN ((BEFORE + AFTER) / BIN)

enum measure { HIT_RATE, LOST_MASS, TIME, N_MEASURE };

static const struct {
	const char *title, *axis, *label;
	double factor;
} measures[N_MEASURE] = {
	{"Hit rate", "hit rate", "Line chart: hit rate by distance from a topic switch", 100},
	{"Lost gate weight", "gate weight lost", "Line chart: lost gate weight by distance from a topic switch", 100},
	{"Time", "\xc2\xb5s a token", "Line chart: time per token by distance from a topic switch", 1},
};

struct bin {
	uint64_t n_token, n_timed;
	double hits, accesses, mass, rows, time;
};

/* One chosen result. */
struct line {
	size_t point;
	struct bin bin[N_BIN];
	size_t row[N_BIN]; /* of the figure's data */
	uint64_t n_switch;
};

struct view {
	struct gm_figure *figure;
	const struct gm_results *results;
	const struct gm_sheet *sheet;
	struct gm_tokens tokens;
	long *since; /* [n_row] tokens since the last switch, of one result */
	double *rows, *accesses, *hits, *substituted, *dropped, *time; /* columns [n_row] */
	struct line line[GM_MAX_COLOURS];
	size_t n_line, cache;
};

static void add_token(const struct view *v, struct line *line, size_t row, long distance)
{
	struct bin *bin;

	if (distance < -BEFORE || distance >= AFTER)
		return;
	bin = &line->bin[(distance + BEFORE) / BIN];
	bin->n_token++;
	bin->hits += v->hits[row];
	bin->accesses += v->accesses[row];
	bin->rows += v->rows[row];
	if (!isnan(v->substituted[row]))
		bin->mass += v->rows[row] * (v->substituted[row] + (isnan(v->dropped[row]) ? 0 : v->dropped[row]));
	if (!isnan(v->time[row])) {
		bin->time += v->time[row];
		bin->n_timed++;
	}
}

/* The rows from..to-1 are the tokens of one result in order. */
static void add_rows(const struct view *v, struct line *line, size_t from, size_t to)
{
	size_t last = to; /* the switch before this token; `to`: none */

	line->n_switch += gm_switches_find(&v->tokens, from, to, v->since);
	for (size_t row = from; row < to; row++) {
		if (v->since[row - from] == 0) {
			size_t start = row - from > BEFORE ? row - BEFORE : from;

			/* Tokens before it, but not past the switch before it. */
			if (last != to && start < last)
				start = last;
			for (size_t before = start; before < row; before++)
				add_token(v, line, before, (long)before - (long)row);
			last = row;
		}
		if (last != to)
			add_token(v, line, row, v->since[row - from]);
	}
}

static struct line *find_line(struct view *v, size_t point)
{
	for (size_t k = 0; k < v->n_line; k++)
		if (v->line[k].point == point)
			return &v->line[k];
	return NULL;
}

static void collect(struct view *v)
{
	for (size_t from = 0, to; from < v->sheet->n_row; from = to) {
		to = gm_tokens_end(&v->tokens, from);
		struct line *line = find_line(v, gm_results_find(v->results, gm_sheet_text(v->sheet, from, v->tokens.trace),
								 gm_sheet_text(v->sheet, from, v->tokens.settings)));
		if (line)
			add_rows(v, line, from, to);
	}
}

static double bin_value(const struct bin *bin, enum measure m)
{
	switch (m) {
	case HIT_RATE:
		return bin->accesses > 0 ? bin->hits / bin->accesses : (double)NAN;
	case LOST_MASS:
		return bin->rows > 0 ? bin->mass / bin->rows : (double)NAN;
	default:
		return bin->n_timed > 0 ? bin->time / (double)bin->n_timed : (double)NAN;
	}
}

static int put_rows(struct view *v, struct gm_error *err)
{
	struct gm_sheet *data = &v->figure->data;

	for (size_t k = 0; k < v->n_line; k++)
		for (int b = 0; b < N_BIN; b++) {
			const struct gm_point *point = &v->results->point[v->line[k].point];
			const struct bin *bin = &v->line[k].bin[b];

			GM_TRY(gm_figure_row(v->figure, point->row, &v->line[k].row[b], err));
			GM_TRY(gm_sheet_put(data, v->results->scene[point->scene].text, err));
			GM_TRY(gm_sheet_put(data, gm_point_policy(v->results, v->line[k].point), err));
			GM_TRY(gm_sheet_put(data, gm_point_cache(v->results, v->line[k].point), err));
			GM_TRY(gm_sheet_put_number(data, b * BIN - BEFORE, err));
			GM_TRY(gm_sheet_put_number(data, b * BIN - BEFORE + BIN - 1, err));
			GM_TRY(gm_sheet_put_number(data, (double)bin->n_token, err));
			for (int m = 0; m < N_MEASURE; m++)
				GM_TRY(gm_sheet_put_number(data, bin_value(bin, (enum measure)m), err));
		}
	return GM_OK;
}

static void put_line(struct gm_chart *chart, const struct line *line, enum measure m, size_t colour)
{
	double x[N_BIN], y[N_BIN];
	char class[32];

	for (int b = 0; b < N_BIN; b++) {
		x[b] = b * BIN - BEFORE + (BIN - 1) / 2.0;
		y[b] = measures[m].factor * bin_value(&line->bin[b], m);
	}
	snprintf(class, sizeof(class), "line s%zu", colour);
	gm_chart_line(chart, class, x, y, N_BIN, line->row[0]);
	for (int b = 0; b < N_BIN; b++)
		gm_chart_mark(chart, colour, GM_MARK_PLAIN, x[b], y[b], line->row[b]);
}

static int put_panel(struct view *v, size_t scene, enum measure m, struct gm_error *err)
{
	struct gm_legend legend[GM_MAX_COLOURS];
	size_t points[GM_MAX_COLOURS];
	char name[GM_MAX_COLOURS][128], title[400];
	double low = (double)INFINITY, high = -(double)INFINITY;
	struct gm_chart chart;

	for (size_t k = 0; k < v->n_line; k++)
		for (int b = 0; b < N_BIN; b++) {
			low = fmin(low, measures[m].factor * bin_value(&v->line[k].bin[b], m));
			high = fmax(high, measures[m].factor * bin_value(&v->line[k].bin[b], m));
		}
	if (!(low <= high) || (m == LOST_MASS && high == 0))
		return GM_OK;
	for (size_t k = 0; k < v->n_line; k++) {
		points[k] = v->line[k].point;
		legend[k].name = gm_figure_point_name(v->results, points[k], v->cache, name[k], sizeof(name[k]));
	}
	gm_figure_colours(v->results, points, v->n_line, legend);
	snprintf(title, sizeof(title), "%s: %s%s%s", measures[m].title, v->results->scene[scene].text,
		 v->cache == GM_NO_POINT ? "" : ", cache ",
		 v->cache == GM_NO_POINT ? "" : v->results->cache[v->cache].text);
	GM_TRY(gm_figure_begin(v->figure, &chart, title, GM_CHART_HEIGHT, measures[m].label, err));
	gm_chart_legend(&chart, legend, v->n_line);
	chart.x = gm_scale_nice(-BEFORE, AFTER, 6);
	chart.x.low = -BEFORE;
	chart.x.high = AFTER;
	chart.x.step = BEFORE;
	chart.y = gm_scale_nice(m == TIME ? low : 0, high, 5);
	gm_chart_axes(&chart, "tokens since the topic switch", measures[m].axis, false, m != TIME);
	gm_svg_line(&chart.svg, "mark-line", gm_scale_at(&chart.x, -0.5), chart.top, gm_scale_at(&chart.x, -0.5),
		    chart.bottom);
	for (size_t k = 0; k < v->n_line; k++)
		put_line(&chart, &v->line[k], m, legend[k].colour);
	return gm_figure_end(v->figure, &chart, err);
}

static int put_scene(struct view *v, size_t scene, struct gm_error *err)
{
	size_t chosen[GM_MAX_COLOURS], n_left;
	uint64_t n_switch = 0;

	v->n_line = gm_results_choose(v->results, scene, GM_MAX_COLOURS, chosen, &v->cache, &n_left);
	memset(v->line, 0, sizeof(v->line));
	for (size_t k = 0; k < v->n_line; k++)
		v->line[k].point = chosen[k];
	collect(v);
	for (size_t k = 0; k < v->n_line; k++)
		n_switch = v->line[k].n_switch > n_switch ? v->line[k].n_switch : n_switch;
	if (n_switch == 0)
		return GM_OK;
	if (v->figure->n_panel == 0)
		gm_figure_note(v->figure, "Means over %llu switches, %d tokens a mark.", (unsigned long long)n_switch, BIN);
	GM_TRY(put_rows(v, err));
	for (int m = 0; m < N_MEASURE; m++)
		GM_TRY(put_panel(v, scene, (enum measure)m, err));
	return GM_OK;
}

static int build(struct view *v, struct gm_error *err)
{
	static const char *const names[] = {"trace",  "policy",   "cache",     "from_token", "to_token",
					    "tokens", "hit_rate", "lost_mass", "time_us",    NULL};
	struct {
		double **values;
		const char *name;
	} columns[] = {{&v->rows, "rows"},
		       {&v->accesses, "accesses"},
		       {&v->hits, "hits"},
		       {&v->substituted, "substituted_mass"},
		       {&v->dropped, "dropped_mass"},
		       {&v->time, "time_us"}};

	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
		if (!(*columns[i].values = gm_sheet_numbers(v->sheet, columns[i].name, err)))
			return err->code;
	v->since = gm_alloc(v->sheet->n_row, sizeof(*v->since), err);
	if (!v->since)
		return GM_ERR_MEMORY;
	GM_TRY(gm_tokens_make(&v->tokens, v->sheet, err));
	GM_TRY(gm_figure_columns(v->figure, names, err));
	v->figure->group = 1;
	for (size_t s = 0; s < v->results->n_scene && v->figure->n_panel < GM_MAX_PANELS; s++)
		GM_TRY(put_scene(v, s, err));
	return GM_OK;
}

int gm_figure_switch(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err)
{
	struct view view = {.figure = figure, .results = &study->results, .sheet = &study->inputs.sheet[GM_INPUT_TOKENS]};
	int status;

	if (view.sheet->n_row == 0)
		return GM_OK;
	status = build(&view, err);
	gm_tokens_free(&view.tokens);
	free(view.since);
	free(view.rows);
	free(view.accesses);
	free(view.hits);
	free(view.substituted);
	free(view.dropped);
	free(view.time);
	return status;
}
