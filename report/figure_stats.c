/* Figures of `traces stats`: popularity of experts, reuse from token to token, weight and reuse by rank, popular experts across changes of
 * label. A line for each layer, coloured from the first to the last. */
#include "report/figure.h"
#include "report/layer_stats.h"

#include <math.h>
#include <stdlib.h>

#define N_SHARE 32 /* points of a popularity curve */

struct view {
	struct gm_figure *figure;
	struct gm_layer_stats stats;
	size_t trace;
	struct gm_chart chart;
	double *x, *y; /* [n_value] of one line */
	size_t *row;   /* [n_value] of data */
	size_t n;
};

typedef int (*panel_function)(struct view *v, struct gm_error *err);

/* --- lines --- */

static int begin(struct view *v, const char *title, const char *label, struct gm_error *err)
{
	char last[40], full[400];

	snprintf(last, sizeof(last), "layer %zu", v->stats.n_layer - 1);
	snprintf(full, sizeof(full), "%s%s%s", title, *title ? ": " : "", v->stats.trace[v->trace]);
	GM_TRY(gm_figure_begin(v->figure, &v->chart, full, GM_CHART_HEIGHT, label, err));
	gm_chart_ramp(&v->chart, "d", "layer 0", last);
	return GM_OK;
}

/* The line in x, y and row. */
static void put_line(struct view *v, size_t layer)
{
	const int step = gm_chart_step((double)layer, 0, v->stats.n_layer > 1 ? (double)(v->stats.n_layer - 1) : 1);
	char class[32];

	snprintf(class, sizeof(class), "line d%d", step);
	gm_chart_line(&v->chart, class, v->x, v->y, v->n, GM_CHART_NO_INDEX);
	for (size_t i = 0; i < v->n; i++)
		gm_chart_dot(&v->chart, step, v->x[i], v->y[i], v->row[i]);
}

static int add_value(struct view *v, double x, double y, size_t layer, const double *value, size_t n_value,
		     struct gm_error *err)
{
	struct gm_sheet *data = &v->figure->data;

	GM_TRY(gm_figure_row(v->figure, GM_NO_POINT, &v->row[v->n], err));
	GM_TRY(gm_sheet_put(data, v->stats.trace[v->trace], err));
	GM_TRY(gm_sheet_put_number(data, (double)layer, err));
	for (size_t i = 0; i < n_value; i++)
		GM_TRY(gm_sheet_put_number(data, value[i], err));
	v->x[v->n] = x;
	v->y[v->n++] = y;
	return GM_OK;
}

static double largest(const struct view *v, enum gm_statistic statistic)
{
	double most = 0;

	for (size_t i = 0; i < v->stats.n; i++)
		if (v->stats.stat[i].trace == v->trace && v->stats.stat[i].statistic == statistic)
			most = fmax(most, v->stats.stat[i].value);
	return most;
}

/* A dashed line at what chance gives. */
static void put_chance(struct view *v, double value)
{
	const double x[] = {v->chart.x.low, v->chart.x.high}, y[] = {value, value};

	if (isnan(value))
		return;
	gm_chart_line(&v->chart, "front", x, y, 2, GM_CHART_NO_INDEX);
	gm_svg_text(&v->chart.svg, "end small halo", v->chart.right - 4, gm_scale_at(&v->chart.y, value) - 5, "chance");
}

/* --- popularity --- */

static int downwards(const void *a, const void *b)
{
	double x = ((const struct gm_stat *)a)->value, y = ((const struct gm_stat *)b)->value;

	return x > y ? -1 : x < y;
}

/* What share of the picks the most popular experts get. */
static int popularity_line(struct view *v, size_t layer, struct gm_error *err)
{
	const struct gm_stat *first;
	size_t n = gm_layer_stats_get(&v->stats, v->trace, GM_STAT_POPULARITY, layer, &first), next = 0;
	double all = 0, sum = 0;

	v->n = 0;
	for (size_t i = 0; i < n; i++)
		all += first[i].value;
	if (!(all > 0))
		return GM_OK;
	/* Sorted in place: nothing asks for popularity by expert afterwards. */
	qsort(v->stats.stat + (first - v->stats.stat), n, sizeof(*first), downwards);
	for (size_t i = 0; i <= n; i++) {
		if (i == next || i == n) {
			const double value[] = {(double)i, (double)i / (double)n, sum / all};

			GM_TRY(add_value(v, 100 * value[1], 100 * value[2], layer, value, 3, err));
			next += (n + N_SHARE - 1) / N_SHARE;
		}
		sum += i < n ? first[i].value : 0;
	}
	return GM_OK;
}

static int popularity_panel(struct view *v, struct gm_error *err)
{
	const double x[] = {0, 100};

	GM_TRY(begin(v, "", "Line chart: share of the picks that the most popular experts get, a line for each layer",
		     err));
	v->chart.x = gm_scale_nice(0, 100, 5);
	v->chart.y = gm_scale_nice(0, 100, 5);
	gm_chart_axes(&v->chart, "most popular experts", "of the picks", true, true);
	gm_chart_line(&v->chart, "front", x, x, 2, GM_CHART_NO_INDEX);
	for (size_t layer = 0; layer < v->stats.n_layer; layer++) {
		GM_TRY(popularity_line(v, layer, err));
		put_line(v, layer);
	}
	return gm_figure_end(v->figure, &v->chart, err);
}

/* --- reuse --- */

static int reuse_panel(struct view *v, struct gm_error *err)
{
	const struct gm_stat *first;
	double high = largest(v, GM_STAT_REUSE), chance = gm_layer_stats_chance(&v->stats, v->trace);

	GM_TRY(begin(v, "",
		     "Line chart: share of a token's experts that are chosen again, by distance in tokens, a line for each "
		     "layer",
		     err));
	v->chart.x = gm_scale_nice(0, 64, 8);
	v->chart.x.high = 64;
	v->chart.x.step = 8;
	v->chart.y = gm_scale_nice(0, 100 * fmax(high, isnan(chance) ? 0 : chance), 5);
	gm_chart_axes(&v->chart, "tokens later", "experts chosen again", false, true);
	put_chance(v, 100 * chance);
	for (size_t layer = 0; layer < v->stats.n_layer; layer++) {
		size_t n = gm_layer_stats_get(&v->stats, v->trace, GM_STAT_REUSE, layer, &first);

		v->n = 0;
		for (size_t i = 0; i < n; i++) {
			const double value[] = {first[i].index, first[i].value};

			GM_TRY(add_value(v, value[0], 100 * value[1], layer, value, 2, err));
		}
		put_line(v, layer);
	}
	return gm_figure_end(v->figure, &v->chart, err);
}

/* --- ranks --- */

/* Both statistics of a rank stand in one row of data: the first panel makes the rows, the second finds them. */
static int rank_lines(struct view *v, bool second, size_t *base, struct gm_error *err)
{
	const struct gm_stat *gate, *reuse;

	for (size_t layer = 0; layer < v->stats.n_layer; layer++) {
		size_t n = gm_layer_stats_get(&v->stats, v->trace, GM_STAT_GATE_RANK, layer, &gate),
		       n_reuse = gm_layer_stats_get(&v->stats, v->trace, GM_STAT_REUSE_RANK, layer, &reuse);

		v->n = 0;
		for (size_t i = 0; i < n; i++) {
			const double value[] = {gate[i].index, gate[i].value, i < n_reuse ? reuse[i].value : (double)NAN};

			if (second) {
				v->row[v->n] = (*base)++;
				v->x[v->n] = value[0];
				v->y[v->n++] = 100 * value[2];
			} else {
				GM_TRY(add_value(v, value[0], 100 * value[1], layer, value, 3, err));
			}
		}
		put_line(v, layer);
	}
	return GM_OK;
}

static int rank_chart(struct view *v, bool second, size_t *base, struct gm_error *err)
{
	double ranks = 2, chance = gm_layer_stats_chance(&v->stats, v->trace);

	for (size_t i = 0; i < v->stats.n; i++)
		if (v->stats.stat[i].trace == v->trace && v->stats.stat[i].statistic == GM_STAT_GATE_RANK)
			ranks = fmax(ranks, v->stats.stat[i].index);
	GM_TRY(begin(v, second ? "Reuse" : "Gate weight",
		     second ? "Line chart: share of tokens whose expert of a rank is among those of the token before, a "
			      "line for each layer"
			    : "Line chart: mean gate weight by rank, a line for each layer",
		     err));
	v->chart.x = gm_scale_nice(1, ranks, 8);
	v->chart.x.low = 1;
	v->chart.x.high = ranks;
	v->chart.x.step = fmax(1, v->chart.x.step);
	v->chart.y = gm_scale_nice(0,
				   100 * fmax(largest(v, second ? GM_STAT_REUSE_RANK : GM_STAT_GATE_RANK),
					      second && !isnan(chance) ? chance : 0),
				   5);
	gm_chart_axes(&v->chart, "rank", second ? "chosen by the token before too" : "mean gate weight", false, true);
	if (second)
		put_chance(v, 100 * chance);
	GM_TRY(rank_lines(v, second, base, err));
	return gm_figure_end(v->figure, &v->chart, err);
}

static int rank_panels(struct view *v, struct gm_error *err)
{
	size_t base = v->figure->n_result;

	GM_TRY(rank_chart(v, false, &base, err));
	return rank_chart(v, true, &base, err);
}

/* --- overlap --- */

/* The smallest hot set of which there are both kinds of overlap in some layer, next to a quarter of the experts. */
static double hot_set(const struct view *v)
{
	const struct gm_stat *first;
	double best = (double)NAN, distance = (double)INFINITY, n_expert = 0;

	for (size_t layer = 0; layer < v->stats.n_layer; layer++)
		n_expert =
			fmax(n_expert, (double)gm_layer_stats_get(&v->stats, v->trace, GM_STAT_POPULARITY, layer, &first));
	for (size_t layer = 0; layer < v->stats.n_layer; layer++) {
		size_t n = gm_layer_stats_get(&v->stats, v->trace, GM_STAT_OVERLAP_CHANGE, layer, &first);

		for (size_t i = 0; i < n; i++)
			if (fabs(first[i].index - n_expert / 4) < distance) {
				distance = fabs(first[i].index - n_expert / 4);
				best = first[i].index;
			}
	}
	return best;
}

static double value_at(const struct view *v, enum gm_statistic statistic, size_t layer, double index)
{
	const struct gm_stat *first;
	size_t n = gm_layer_stats_get(&v->stats, v->trace, statistic, layer, &first);

	for (size_t i = 0; i < n; i++)
		if (first[i].index == index)
			return first[i].value;
	return (double)NAN;
}

static int overlap_rows(struct view *v, double size, double *same, double *change, struct gm_error *err)
{
	v->n = 0;
	for (size_t layer = 0; layer < v->stats.n_layer; layer++) {
		const double value[] = {size, value_at(v, GM_STAT_OVERLAP_SAME, layer, size),
					value_at(v, GM_STAT_OVERLAP_CHANGE, layer, size)};

		same[layer] = 100 * value[1];
		change[layer] = 100 * value[2];
		GM_TRY(add_value(v, (double)layer, 0, layer, value, 3, err));
	}
	return GM_OK;
}

static int overlap_chart(struct view *v, double size, double *same, double *change, struct gm_error *err)
{
	const struct gm_legend legend[] = {{"same label", 0}, {"label changes", 1}};
	const struct gm_stat *first;
	size_t n_expert = gm_layer_stats_get(&v->stats, v->trace, GM_STAT_POPULARITY, 0, &first);
	double deepest = fmax(1, (double)(v->stats.n_layer - 1));

	GM_TRY(gm_figure_begin(
		v->figure, &v->chart, v->stats.trace[v->trace], GM_CHART_HEIGHT,
		"Line chart: share of the popular experts of a sequence that are popular in the next, by layer", err));
	gm_chart_legend(&v->chart, legend, 2);
	v->chart.x = gm_scale_nice(0, deepest, 8);
	v->chart.x.step = fmax(1, v->chart.x.step);
	v->chart.x.high = ceil(deepest / v->chart.x.step) * v->chart.x.step;
	v->chart.y = gm_scale_nice(0, 100, 5);
	gm_chart_axes(&v->chart, "layer", "stays popular in the next sequence", false, true);
	if (n_expert > 0)
		put_chance(v, 100 * size / (double)n_expert);
	gm_chart_line(&v->chart, "line s0", v->x, same, v->n, GM_CHART_NO_INDEX);
	gm_chart_line(&v->chart, "line s1", v->x, change, v->n, GM_CHART_NO_INDEX);
	for (size_t i = 0; i < v->n; i++) {
		gm_chart_mark(&v->chart, 0, GM_MARK_PLAIN, v->x[i], same[i], v->row[i]);
		gm_chart_mark(&v->chart, 1, GM_MARK_PLAIN, v->x[i], change[i], v->row[i]);
	}
	return gm_figure_end(v->figure, &v->chart, err);
}

static int overlap_panel(struct view *v, struct gm_error *err)
{
	const double size = hot_set(v);
	double *same, *change;
	int status;

	if (isnan(size))
		return GM_OK; /* no label changes */
	same = gm_alloc(v->stats.n_layer, sizeof(*same), err);
	change = gm_alloc(v->stats.n_layer, sizeof(*change), err);
	status = same && change ? overlap_rows(v, size, same, change, err) : GM_ERR_MEMORY;
	if (status == GM_OK)
		status = overlap_chart(v, size, same, change, err);
	if (status == GM_OK)
		gm_figure_note(
			v->figure,
			"Of the %g most popular experts of a sequence, how many are among the %g most popular of the next "
			"(mean over neighbours).",
			size, size);
	free(same);
	free(change);
	return status;
}

/* --- all --- */

static int build(struct gm_figure *figure, const struct gm_study *study, const char *const *columns,
		 panel_function put_panel, struct gm_error *err)
{
	const struct gm_sheet *sheet = &study->inputs.sheet[GM_INPUT_STATS];
	struct view v = {.figure = figure};
	int status;

	if (sheet->n_row == 0)
		return GM_OK;
	GM_TRY(gm_layer_stats_make(&v.stats, sheet, err));
	v.x = gm_alloc(v.stats.n + v.stats.n_layer, sizeof(*v.x), err);
	v.y = gm_alloc(v.stats.n + v.stats.n_layer, sizeof(*v.y), err);
	v.row = gm_alloc(v.stats.n + v.stats.n_layer, sizeof(*v.row), err);
	status = v.x && v.y && v.row ? gm_figure_columns(figure, columns, err) : GM_ERR_MEMORY;
	for (v.trace = 0; v.trace < v.stats.n_trace && v.trace < GM_MAX_PANELS && status == GM_OK; v.trace++)
		status = put_panel(&v, err);
	free(v.x);
	free(v.y);
	free(v.row);
	gm_layer_stats_free(&v.stats);
	return status;
}

int gm_figure_popularity(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err)
{
	static const char *const columns[] = {"trace", "layer", "experts", "experts_share", "picks_share", NULL};

	gm_figure_note(
		figure,
		"How much of the traffic a fixed set of experts could serve. The dashed line is a layer that uses all "
		"experts alike: the further above it, the more of a hot set there is.");
	return build(figure, study, columns, popularity_panel, err);
}

int gm_figure_reuse(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err)
{
	static const char *const columns[] = {"trace", "layer", "tokens_later", "reuse", NULL};

	gm_figure_note(figure, "How likely an expert of a token is chosen again some tokens later, within a sequence.");
	return build(figure, study, columns, reuse_panel, err);
}

int gm_figure_ranks(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err)
{
	static const char *const columns[] = {"trace", "layer", "rank", "gate_weight", "reuse", NULL};

	gm_figure_note(figure,
		       "Rank 1 is the router's first choice. Low ranks with little weight are cheap to substitute.");
	return build(figure, study, columns, rank_panels, err);
}

int gm_figure_overlap(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err)
{
	static const char *const columns[] = {"trace", "layer", "hot_set", "overlap_same", "overlap_change", NULL};

	return build(figure, study, columns, overlap_panel, err);
}
