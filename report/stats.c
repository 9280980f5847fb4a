#include "report/stats.h"

#include "report/interval.h"
#include "report/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 128

/* --- tables --- */

int gm_report_stats_begin(struct gm_report_stats_table *table, const char *name, const char *const *column,
			  struct gm_error *err)
{
	static const char *const first[] = {"table", "policy", "cache", "settings_hash"};

	*table = (struct gm_report_stats_table){.name = name};
	for (size_t i = 0; i < sizeof(first) / sizeof(*first); i++)
		GM_TRY(gm_sheet_add_column(&table->sheet, first[i], err));
	for (; *column; column++) {
		static const char mark[] = "\xc2\xb1";
		const char *end = strstr(*column, mark);
		const int n = end ? (int)(end - *column) : (int)strlen(*column);
		static const char *const parts[] = {"", "_low", "_high"};

		for (size_t i = 0; i < (end ? 3 : 1); i++) {
			char text[NAME_BYTES];

			snprintf(text, sizeof(text), "%.*s%s", n, *column, parts[i]);
			GM_TRY(gm_sheet_add_column(&table->sheet, text, err));
		}
	}
	return GM_OK;
}

int gm_report_stats_row(struct gm_report_stats_table *table, const struct gm_results *results, size_t point,
			struct gm_error *err)
{
	struct gm_sheet *sheet = &table->sheet;
	const bool none = point == GM_NO_POINT;

	GM_TRY(gm_sheet_put(sheet, table->name, err));
	GM_TRY(gm_sheet_put(sheet, none ? NULL : gm_point_policy(results, point), err));
	GM_TRY(gm_sheet_put(sheet, none ? NULL : gm_point_cache(results, point), err));
	return gm_sheet_put(sheet,
			    none ? NULL
				 : gm_sheet_text(results->sheet, results->point[point].row,
						 gm_sheet_find(results->sheet, "settings_hash")),
			    err);
}

int gm_report_stats_put_against(struct gm_report_stats_table *table, const struct gm_results *results, size_t point,
				struct gm_error *err)
{
	GM_TRY(gm_sheet_put(&table->sheet, gm_point_policy(results, point), err));
	return gm_sheet_put(
		&table->sheet,
		gm_sheet_text(results->sheet, results->point[point].row, gm_sheet_find(results->sheet, "settings_hash")),
		err);
}

int gm_report_stats_put_estimate(struct gm_report_stats_table *table, const struct gm_estimate *estimate,
				 struct gm_error *err)
{
	const double value[] = {estimate->value, estimate->low, estimate->high};

	/* exp of a large difference is no number any more. */
	for (size_t i = 0; i < 3; i++)
		GM_TRY(gm_sheet_put_number(&table->sheet, isfinite(value[i]) ? value[i] : (double)NAN, err));
	return GM_OK;
}

/* What the brackets of all tables are. */
static void show_method(const struct gm_report_stats *stats)
{
	if (stats->n_text > 1)
		fprintf(stats->out,
			"In brackets: 95 %% intervals, bootstrap over the texts, %zu samples, seed %" PRIu64 "\n",
			stats->bootstrap.n_sample, stats->bootstrap.seed);
	else if (stats->n_text == 1)
		fprintf(stats->out, "One text: no intervals\n");
}

static int show(const struct gm_report_stats *stats, const struct gm_sheet *sheet, const char *title,
		const char *const *shown, struct gm_error *err)
{
	struct gm_table table = {.summary = sheet, .n_row = sheet->n_row, .format = GM_TABLE_TEXT};
	int status = GM_ERR_MEMORY;

	table.column = gm_alloc(sheet->n_column, sizeof(*table.column), err);
	table.row = gm_alloc(sheet->n_row, sizeof(*table.row), err);
	if (table.column && table.row) {
		for (; *shown; shown++)
			table.column[table.n_column++].column = gm_sheet_find(sheet, *shown);
		for (size_t i = 0; i < sheet->n_row; i++)
			table.row[i] = i;
		if (stats->n_table == 0)
			show_method(stats);
		fprintf(stats->out, "%s%s\n", stats->n_table > 0 || stats->n_text > 0 ? "\n" : "", title);
		status = gm_table_write(&table, stats->out, err);
	}
	free(table.column);
	free(table.row);
	return status;
}

int gm_report_stats_end(struct gm_report_stats *stats, struct gm_report_stats_table *table, const char *title,
			const char *const *shown, struct gm_error *err)
{
	int status = GM_OK;

	if (table->sheet.n_row > 0) {
		status = show(stats, &table->sheet, title, shown, err);
		stats->n_table++;
		if (status == GM_OK)
			status = gm_sheet_append(&stats->all, &table->sheet, err);
	}
	gm_sheet_free(&table->sheet);
	return status;
}

/* --- results --- */

const char *gm_report_stats_cell(const struct gm_report_stats *stats, size_t point, const char *column)
{
	const struct gm_results *r = &stats->study->results;

	return gm_sheet_text(r->sheet, r->point[point].row, gm_sheet_find(r->sheet, column));
}

bool gm_report_stats_same_but(const struct gm_report_stats *stats, size_t a, size_t b, const char *column)
{
	static const char *const settings[] = {"cache_slots",
					       "cache_fraction",
					       "cache_scope",
					       "evict",
					       "miss",
					       "admit",
					       "prefill",
					       "warmup",
					       "preload",
					       "trace_hash",
					       "reset_per_sequence",
					       "substitute_weight",
					       "drop_weight"};

	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
		if (strcmp(settings[i], column) != 0 &&
		    strcmp(gm_report_stats_cell(stats, a, settings[i]), gm_report_stats_cell(stats, b, settings[i])) != 0)
			return false;
	return true;
}

bool gm_report_stats_same_cache(const struct gm_report_stats *stats, size_t a, size_t b)
{
	static const char *const columns[] = {"cache_slots", "cache_fraction", "cache_scope"};

	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
		if (strcmp(gm_report_stats_cell(stats, a, columns[i]), gm_report_stats_cell(stats, b, columns[i])) != 0)
			return false;
	return true;
}

int gm_report_stats_compare(const struct gm_report_stats *stats, size_t policy, size_t other, struct gm_estimate *change,
			    struct gm_error *err)
{
	const struct gm_scores *s = stats->scores;
	double *d = gm_alloc(s->n_sequence, sizeof(*d), err), *n = gm_alloc(s->n_sequence, sizeof(*n), err);
	int status = d && n ? GM_OK : GM_ERR_MEMORY;

	if (status == GM_OK)
		status = gm_interval_change(d, n, gm_scores_pair(s, policy, other, d, n), &stats->bootstrap, change, err);
	free(d);
	free(n);
	return status;
}

/* --- all of them --- */

/* The file that has a result's texts. */
static const char *sequences_file(const struct gm_report_stats *stats, size_t point)
{
	const struct gm_sheet *sheet = &stats->study->inputs.sheet[GM_INPUT_SEQUENCES];
	const size_t settings = gm_sheet_find(sheet, "settings_hash");
	const char *hash = gm_report_stats_cell(stats, point, "settings_hash");
	size_t row = 0;

	while (row + 1 < sheet->n_row && strcmp(gm_sheet_text(sheet, row, settings), hash) != 0)
		row++;
	return gm_sheet_file_name(sheet, row);
}

/* Policies are compared over equal tokens, each with the model as it is. */
static int check_scores(const struct gm_report_stats *stats, const struct gm_scores *s, struct gm_error *err)
{
	if (s->n_policy == 0)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "no result for its rows: %s: give the file that --csv of the same run wrote, too",
			       stats->study->inputs.sheet[GM_INPUT_SEQUENCES].file[0].name);
	for (size_t p = 0; p < s->n_policy; p++) {
		const char *policy = gm_point_policy(s->results, s->point[p]);
		const char *file = sequences_file(stats, s->point[p]);
		double n = 0, nll = 0;

		if (s->baseline[p] == GM_NO_POINT)
			return gm_fail(
				err, GM_ERR_UNSUPPORTED,
				"no baseline: %s: %s of the same warm-up has none (rows whose miss is none, in both files)",
				file, policy);
		for (size_t i = 0; i < s->n_sequence; i++) {
			if (s->n[p * s->n_sequence + i] != s->n[i])
				return gm_fail(
					err, GM_ERR_UNSUPPORTED,
					"not the same tokens: %s: sequence %zu has %.0f scored of %s, %.0f of %s: give "
					"whole files of one warm-up",
					file, s->number[i], s->n[p * s->n_sequence + i], policy, s->n[i],
					gm_point_policy(s->results, s->point[0]));
			n += s->n[p * s->n_sequence + i];
			nll += s->nll[p * s->n_sequence + i];
		}
		GM_TRY(gm_report_stats_check_sum(stats, s->point[p], n, nll, file, err));
	}
	return GM_OK;
}

static int need_columns(const struct gm_study *study, struct gm_error *err)
{
	static const char *const of_results[] = {"substituted_rate", "substituted_mass", "dropped_mass"},
				 *const of_sequences[] = {"trace",    "trace_hash",       "nll",
							  "n_scored", "substituted_mass", "dropped_mass",
							  "rows"};

	for (size_t i = 0; i < sizeof(of_sequences) / sizeof(*of_sequences); i++)
		GM_TRY(gm_report_stats_need(&study->inputs.sheet[GM_INPUT_SEQUENCES], of_sequences[i],
					    "--per-sequence file of emulate", err));
	for (size_t i = 0; i < sizeof(of_results) / sizeof(*of_results); i++)
		GM_TRY(gm_report_stats_need(study->results.sheet, of_results[i], "--csv file of emulate", err));
	return GM_OK;
}

/* The scores of the only texts and model that have any. */
static int make_scores(struct gm_report_stats *stats, struct gm_scores *scores, struct gm_error *err)
{
	const struct gm_study *study = stats->study;
	const struct gm_sheet *sheet = &study->inputs.sheet[GM_INPUT_SEQUENCES];
	size_t found = 0;

	GM_TRY(need_columns(study, err));
	for (size_t scene = 0; scene < study->results.n_scene; scene++) {
		struct gm_scores more;
		int status = gm_scores_make(&more, &study->results, sheet, scene, err);

		if (status == GM_OK && more.n_policy > 0 && found++ > 0)
			status = gm_fail(err, GM_ERR_UNSUPPORTED, "more than one model or set of texts: %s: one at a time",
					 study->results.scene[scene].text);
		if (status < 0 || more.n_policy == 0) {
			gm_scores_free(&more);
			GM_TRY(status);
		} else {
			*scores = more;
		}
	}
	stats->n_text = scores->n_sequence;
	return check_scores(stats, scores, err);
}

static int make_tables(struct gm_report_stats *stats, struct gm_error *err)
{
	const struct gm_inputs *inputs = &stats->study->inputs;

	if (stats->scores) {
		GM_TRY(gm_report_stats_change(stats, err));
		GM_TRY(gm_report_stats_mass(stats, err));
		GM_TRY(gm_report_stats_compose(stats, err));
	}
	if (inputs->sheet[GM_INPUT_TOKENS].n_row > 0)
		GM_TRY(gm_report_stats_switch(stats, err));
	GM_TRY(gm_report_stats_open_loop(stats, err));
	if (stats->n_table == 0)
		return gm_fail(
			err, GM_ERR_UNSUPPORTED,
			"nothing to say: %s: give with the results of emulate its --per-sequence or --per-token file, or "
			"results of sim sweep on a recording of the same texts",
			inputs->sheet[GM_INPUT_RESULTS].n_file ? inputs->sheet[GM_INPUT_RESULTS].file[0].name
							       : "no results");
	return GM_OK;
}

int gm_report_stats_make(struct gm_report_stats *stats, struct gm_error *err)
{
	struct gm_scores scores = {0};
	int status = GM_OK;

	if (stats->study->inputs.sheet[GM_INPUT_SEQUENCES].n_row > 0) {
		status = make_scores(stats, &scores, err);
		stats->scores = &scores;
	}
	if (status == GM_OK)
		status = make_tables(stats, err);
	stats->scores = NULL;
	gm_scores_free(&scores);
	return status;
}

void gm_report_stats_free(struct gm_report_stats *stats)
{
	gm_sheet_free(&stats->all);
}
