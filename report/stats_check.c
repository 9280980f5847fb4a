/* Are the files whole, possible, and of the same texts? Numbers of files that are not would be made in silence. */
#include "report/stats.h"

#include "base/number.h"
#include "report/doubles.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

#define ROUNDING 1e-6 /* of float sums in the files: relative, and of shares */

/* What columns of results can hold. */
static const struct {
	const char *name;
	double most;
	const char *right;
} bounds[] = {
	{"nll", DBL_MAX, "0 or more"},          {"baseline_nll", DBL_MAX, "0 or more"},
	{"n_scored", DBL_MAX, "0 or more"},     {"rows", DBL_MAX, "0 or more"},
	{"hits", DBL_MAX, "0 or more"},         {"accesses", DBL_MAX, "0 or more"},
	{"perplexity", DBL_MAX, "0 or more"},   {"hit_rate", 1, "from 0 to 1"},
	{"substituted_rate", 1, "from 0 to 1"}, {"substituted_mass", 1, "from 0 to 1"},
	{"dropped_mass", 1, "from 0 to 1"},
};

/* A pick is substituted or dropped, not both. */
static int check_lost(const struct gm_sheet *sheet, struct gm_error *err)
{
	const size_t substituted = gm_sheet_find(sheet, "substituted_mass"), dropped = gm_sheet_find(sheet, "dropped_mass");
	double a, b;

	for (size_t row = 0; row < sheet->n_row && substituted != GM_NO_COLUMN && dropped != GM_NO_COLUMN; row++) {
		GM_TRY(gm_sheet_number(sheet, row, substituted, &a, err));
		GM_TRY(gm_sheet_number(sheet, row, dropped, &b, err));
		if (a + b > 1 + ROUNDING)
			return gm_sheet_fail(sheet, row, dropped, "a value that cannot be",
					     "with substituted_mass not more than 1", err);
	}
	return GM_OK;
}

static int check_values(const struct gm_sheet *sheet, struct gm_error *err)
{
	for (size_t i = 0; i < sizeof(bounds) / sizeof(*bounds); i++) {
		const size_t column = gm_sheet_find(sheet, bounds[i].name);
		double value;

		for (size_t row = 0; row < sheet->n_row && column != GM_NO_COLUMN; row++) {
			GM_TRY(gm_sheet_number(sheet, row, column, &value, err));
			if (value < -ROUNDING || value > bounds[i].most + ROUNDING)
				return gm_sheet_fail(sheet, row, column, "a value that cannot be", bounds[i].right, err);
		}
	}
	return check_lost(sheet, err);
}

int gm_report_stats_prepare(struct gm_study *study, struct gm_error *err)
{
	static const enum gm_input split[] = {GM_INPUT_SEQUENCES, GM_INPUT_TOKENS};
	size_t n_double = 0;

	GM_TRY(check_values(study->results.sheet, err));
	GM_TRY(gm_doubles_check(study->results.sheet, err)); /* its rows are points already */
	for (size_t i = 0; i < sizeof(split) / sizeof(*split); i++) {
		GM_TRY(check_values(&study->inputs.sheet[split[i]], err));
		GM_TRY(gm_doubles_remove(&study->inputs.sheet[split[i]], &n_double, err));
	}
	return GM_OK;
}

static bool has_column(const struct gm_sheet_file *file, size_t column)
{
	for (size_t i = 0; i < file->n_field; i++)
		if (file->column[i] == column)
			return true;
	return false;
}

int gm_report_stats_need(const struct gm_sheet *sheet, const char *column, const char *kind, struct gm_error *err)
{
	const size_t index = gm_sheet_find(sheet, column);

	for (size_t i = 0; i < sheet->n_file; i++)
		if (!has_column(&sheet->file[i], index))
			return gm_fail(err, GM_ERR_UNSUPPORTED, "no column %s: %s: give a %s", column, sheet->file[i].name,
				       kind);
	return GM_OK;
}

static double number(const struct gm_report_stats *stats, size_t point, const char *column)
{
	double value;

	return gm_parse_double(gm_report_stats_cell(stats, point, column), "", &value, NULL) == GM_OK ? value : (double)NAN;
}

int gm_report_stats_check_sum(const struct gm_report_stats *stats, size_t point, double n, double nll, const char *file,
			      struct gm_error *err)
{
	const struct gm_results *results = &stats->study->results;
	const size_t row = results->point[point].row;
	const double n_scored = number(stats, point, "n_scored"), sum = n_scored * number(stats, point, "nll");

	if (isnan(sum))
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "no n_scored and nll: %.60s, line %" PRIu64
			       ": give the --csv file of emulate that belongs to %.60s",
			       gm_sheet_file_name(results->sheet, row), results->sheet->place[row].line, file);
	if (n == n_scored && fabs(nll - sum) <= ROUNDING * sum)
		return GM_OK;
	return gm_fail(
		err, GM_ERR_UNSUPPORTED,
		"not the texts of the results: %.60s: %.40s has %.0f tokens scored, sum of nll %.9g: %.60s, line %" PRIu64
		" has %.0f and %.9g: give whole files of one run",
		file, gm_point_policy(results, point), n, nll, gm_sheet_file_name(results->sheet, row),
		results->sheet->place[row].line, n_scored, sum);
}
