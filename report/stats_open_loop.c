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
enum { SUBSTITUTED = 1, LOST }; /* indices of measures */

struct view {
	const struct gm_report_stats *stats;
	const struct gm_results *results;
	double *nll, *value[N_MEASURE]; /* [n_point] */
	double *open, *closed;          /* [n] lost mass of those that were found in both */
	size_t n, n_open,
		n_sure; /* settings found in both, replayed, and found in both with equal counts as they must be */
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

static int fail_texts(const struct view *v, size_t open, size_t column, const char *other, const char *why,
		      struct gm_error *err)
{
	char right[160];

	snprintf(right, sizeof(right), "%.24s in the emulation%s: replay a recording of the same texts", other, why);
	return gm_sheet_fail(v->results->sheet, v->results->point[open].row, column, "not the same texts", right, err);
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

		if (strcmp(mine, other) != 0)
			return fail_texts(v, open, column, other, " with these settings", err);
	}
	return GM_OK;
}

/* An emulation that substituted and dropped nothing is the undisturbed model: its replay must count the same. */
static int check_counts(struct view *v, size_t open, size_t closed, struct gm_error *err)
{
	static const char *const columns[] = {"accesses", "hits", "hit_rate"};
	const struct gm_sheet *sheet = v->results->sheet;
	bool sure = false;

	if (v->value[SUBSTITUTED][closed] != 0 || v->value[LOST][closed] != 0)
		return GM_OK;
	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++) {
		const size_t column = gm_sheet_find(sheet, columns[i]);
		const char *mine = gm_sheet_text(sheet, v->results->point[open].row, column),
			   *other = gm_sheet_text(sheet, v->results->point[closed].row, column);

		if (*mine == '\0' || *other == '\0')
			continue;
		if (strcmp(mine, other) != 0)
			return fail_texts(v, open, column, other, ", which loses nothing", err);
		sure = true;
	}
	v->n_sure += sure;
	return GM_OK;
}

static int put_point(struct view *v, struct gm_report_stats_table *t, size_t open, size_t closed, struct gm_error *err)
{
	GM_TRY(check_same(v, open, closed, err));
	GM_TRY(check_counts(v, open, closed, err));
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

/* The file of the first row that is a replay, or that is none. */
static const char *file_of(const struct view *v, bool replay)
{
	for (size_t i = 0; i < v->results->n_point; i++)
		if ((isnan(v->nll[i]) != 0) == replay && !v->results->point[i].failed)
			return gm_sheet_file_name(v->results->sheet, v->results->point[i].row);
	return "no results of emulate";
}

static int fail_common(const struct view *v, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_UNSUPPORTED,
		       "no settings in common: replay %.60s, emulation %.60s: replay the policies of the emulation, with "
		       "--hw instant",
		       file_of(v, true), file_of(v, false));
}

static int need_columns(const struct view *v, struct gm_error *err)
{
	static const char *const columns[] = {"hit_rate", "substituted_rate", "substituted_mass", "dropped_mass"};

	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
		GM_TRY(gm_report_stats_need(v->results->sheet, columns[i], "--csv file of sim sweep or emulate", err));
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
		if (v->n_open++ == 0)
			GM_TRY(need_columns(v, err));
		closed = find_closed(v, i);
		if (closed != GM_NO_POINT)
			GM_TRY(put_point(v, t, i, closed, err));
	}
	return v->n_open > 0 && v->n == 0 ? fail_common(v, err) : GM_OK;
}

static double largest(const double *a, const double *b, size_t n)
{
	double most = 0;

	for (size_t i = 0; i < n; i++)
		most = fmax(most, fabs(a[i] - b[i]));
	return most;
}

static void show_summary(const struct view *v, FILE *out, double spearman)
{
	if (v->n > 1) {
		fprintf(out, "%zu settings of %zu; largest error in lost mass %.4f", v->n, v->n_open,
			largest(v->open, v->closed, v->n));
		if (!isnan(spearman))
			fprintf(out, "; order by lost mass: Spearman %.4f", spearman);
		fputc('\n', out);
	}
	if (v->n_sure == 0)
		fprintf(out, "Not checked: that both ran the same texts. A policy that loses nothing (fetch-all) in both "
			     "would tell.\n");
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
	if (status == GM_OK && v->n > 0)
		show_summary(v, stats->out, gm_spearman(v->open, v->closed, v->n, order, rank));
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
	for (size_t m = 0; m < N_MEASURE; m++)
		v->value[m] = v->nll ? gm_sheet_numbers(v->results->sheet, measures[m].name, err) : NULL;
	for (size_t m = 0; m < N_MEASURE; m++)
		if (!v->value[m])
			return err->code < 0 ? err->code : GM_ERR_MEMORY;
	if (!v->open || !v->closed)
		return GM_ERR_MEMORY;
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
