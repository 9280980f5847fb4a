/* Open loop against closed loop: what sim says of a policy from a recording of the undisturbed model, and what emulate found when the
 * policy's substitutions changed what later layers and tokens asked for. Joined by the hash of the settings. */
#include "report/correlation.h"
#include "report/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name, *open, *closed, *error; /* columns: of the results, and of the table */
} measures[] = {
	{"hit_rate", "hit_rate_open", "hit_rate_closed", "hit_rate_error"},
	{"substituted_rate", "substituted_rate_open", "substituted_rate_closed", "substituted_rate_error"},
	{"lost_mass", "lost_mass_open", "lost_mass_closed", "lost_mass_error"},
};
#define N_MEASURE (sizeof(measures) / sizeof(*measures))

struct view {
	const struct gm_report_stats *stats;
	const struct gm_results *results;
	double *nll, *value[N_MEASURE]; /* [n_point] */
	double *open, *closed;          /* [n] lost mass of those that were found in both */
	size_t n, n_open;
};

/* The row of emulate with the settings of a row of sim, or GM_NO_POINT. */
static size_t find_closed(const struct view *v, size_t open)
{
	const char *hash = gm_report_stats_cell(v->stats, open, "settings_hash");

	for (size_t i = 0; i < v->results->n_point; i++)
		if (!isnan(v->nll[i]) && !v->results->point[i].failed &&
		    strcmp(gm_report_stats_cell(v->stats, i, "settings_hash"), hash) == 0)
			return i;
	return GM_NO_POINT;
}

/* A replay of other texts, or of another model, says nothing of this emulation. */
static int check_same(const struct view *v, size_t open, size_t closed, struct gm_error *err)
{
	static const char *const columns[] = {"n_layer", "n_expert", "n_expert_used", "tokens", "rows", "picks"};
	const struct gm_sheet *sheet = v->results->sheet;

	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++) {
		const size_t column = gm_sheet_find(sheet, columns[i]);
		const char *mine = gm_sheet_text(sheet, v->results->point[open].row, column),
			   *other = gm_sheet_text(sheet, v->results->point[closed].row, column);
		char right[128];

		if (strcmp(mine, other) == 0)
			continue;
		snprintf(right, sizeof(right),
			 "%.20s in the emulation with these settings: replay a recording of the same texts", other);
		return gm_sheet_fail(sheet, v->results->point[open].row, column, "not the same texts", right, err);
	}
	return GM_OK;
}

static int put_point(struct view *v, struct gm_report_stats_table *t, size_t open, size_t closed, struct gm_error *err)
{
	GM_TRY(check_same(v, open, closed, err));
	GM_TRY(gm_report_stats_row(t, v->results, closed, err));
	for (size_t m = 0; m < N_MEASURE; m++) {
		GM_TRY(gm_sheet_put_number(&t->sheet, v->value[m][open], err));
		GM_TRY(gm_sheet_put_number(&t->sheet, v->value[m][closed], err));
		GM_TRY(gm_sheet_put_number(&t->sheet, v->value[m][open] - v->value[m][closed], err));
	}
	v->open[v->n] = v->results->point[open].lost_mass;
	v->closed[v->n++] = v->results->point[closed].lost_mass;
	return GM_OK;
}

static int put_points(struct view *v, struct gm_report_stats_table *t, struct gm_error *err)
{
	static const char *const columns[] = {"hit_rate_open",           "hit_rate_closed",
					      "hit_rate_error",          "substituted_rate_open",
					      "substituted_rate_closed", "substituted_rate_error",
					      "lost_mass_open",          "lost_mass_closed",
					      "lost_mass_error",         NULL};

	GM_TRY(gm_report_stats_begin(t, "open_loop", columns, err));
	for (size_t i = 0; i < v->results->n_point; i++) {
		size_t closed;

		/* The same settings once: rows that stand there twice say the same. */
		if (!isnan(v->nll[i]) || v->results->point[i].failed ||
		    gm_results_find(v->results, gm_report_stats_cell(v->stats, i, "trace"),
				    gm_report_stats_cell(v->stats, i, "settings_hash")) != i)
			continue;
		v->n_open++;
		closed = find_closed(v, i);
		if (closed != GM_NO_POINT)
			GM_TRY(put_point(v, t, i, closed, err));
	}
	if (v->n_open > 0 && v->n == 0)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "no settings in common: %s: replay the policies of the emulation, with --hw instant",
			       v->results->sheet->file[0].name);
	return GM_OK;
}

static double largest(const double *a, const double *b, size_t n)
{
	double most = 0;

	for (size_t i = 0; i < n; i++)
		most = fmax(most, fabs(a[i] - b[i]));
	return most;
}

static int make(struct view *v, struct gm_report_stats *stats, struct gm_report_stats_table *t, struct gm_error *err)
{
	static const char *const shown[] = {"policy",
					    "cache",
					    "hit_rate_open",
					    "hit_rate_closed",
					    "substituted_rate_open",
					    "substituted_rate_closed",
					    "lost_mass_open",
					    "lost_mass_closed",
					    NULL};
	size_t *order = gm_alloc(v->results->n_point, sizeof(*order), err);
	double *rank = gm_alloc(2 * v->results->n_point, sizeof(*rank), err);
	int status = order && rank ? put_points(v, t, err) : GM_ERR_MEMORY;

	if (status == GM_OK)
		status = gm_report_stats_end(
			stats, t, "Replay of the undisturbed model (open loop) against emulation (closed)", shown, err);
	if (status == GM_OK && v->n > 1)
		fprintf(stats->out,
			"%zu settings of %zu; largest error in lost mass %.4f; order by lost mass: Spearman %.4f\n", v->n,
			v->n_open, largest(v->open, v->closed, v->n), gm_spearman(v->open, v->closed, v->n, order, rank));
	free(order);
	free(rank);
	return status;
}

static int read_columns(struct view *v, struct gm_error *err)
{
	const size_t n = v->results->n_point;

	v->nll = gm_sheet_numbers(v->results->sheet, "nll", err);
	v->open = gm_alloc(n, sizeof(*v->open), err);
	v->closed = gm_alloc(n, sizeof(*v->closed), err);
	if (!v->nll)
		return err->code;
	if (!v->open || !v->closed)
		return GM_ERR_MEMORY;
	for (size_t m = 0; m < N_MEASURE; m++)
		if (!(v->value[m] = gm_sheet_numbers(v->results->sheet, measures[m].name, err)))
			return err->code;
	for (size_t i = 0; i < n; i++)
		v->value[N_MEASURE - 1][i] = v->results->point[i].lost_mass;
	return GM_OK;
}

int gm_report_stats_open_loop(struct gm_report_stats *stats, struct gm_error *err)
{
	struct view view = {.stats = stats, .results = &stats->study->results};
	struct gm_report_stats_table t = {0};
	int status = GM_OK;

	/* Without an emulation there is nothing to hold a replay against. */
	if (gm_sheet_find(view.results->sheet, "nll") == GM_NO_COLUMN)
		return GM_OK;
	status = read_columns(&view, err);
	if (status == GM_OK)
		status = make(&view, stats, &t, err);
	gm_sheet_free(&t.sheet);
	free(view.nll);
	free(view.open);
	free(view.closed);
	for (size_t m = 0; m < N_MEASURE; m++)
		free(view.value[m]);
	return status;
}
