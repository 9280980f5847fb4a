/* Correlations and bootstrap against values of SciPy and NumPy (tests/fixtures/statistics.py makes them), scores of texts, switches. */
#include "report/correlation.h"
#include "report/interval.h"
#include "report/scores.h"
#include "report/switches.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define N_VALUE 10
static const double x[N_VALUE] = {0.02, 0.05, 0.05, 0.11, 0.13, 0.13, 0.13, 0.2, 0.31, 0.44}; /* with ties */
static const double y[N_VALUE] = {0.3, 1.1, 0.4, 0.4, 2.5, 2.0, 2.0, -1.0, 6.0, 3.5};

#define N_TEXT 12
static const double d[N_TEXT] = {3.1, -0.4, 7.9, 2.2, 0.0, 5.5, 1.7, -2.6, 4.4, 9.3, 0.8, 3.9};
static const double n[N_TEXT] = {255, 255, 180, 255, 90, 255, 255, 120, 255, 255, 255, 200};

static void assert_near(double value, double expected, double tolerance)
{
	if (!(fabs(value - expected) <= tolerance))
		fail_msg("%.15g, expected %.15g to within %g", value, expected, tolerance);
}

static void test_correlation(void **state)
{
	static const double ranks[N_VALUE] = {1, 2.5, 2.5, 4, 6, 6, 6, 8, 9, 10};
	double rank[2 * N_VALUE], up[N_VALUE], down[N_VALUE], constant[N_VALUE] = {0};
	size_t order[N_VALUE];

	(void)state;
	gm_ranks(x, N_VALUE, order, rank);
	assert_memory_equal(rank, ranks, sizeof(ranks));
	assert_near(gm_pearson(x, y, N_VALUE), 0.63355977072202, 1e-14);
	assert_near(gm_spearman(x, y, N_VALUE, order, rank), 0.603741211878273, 1e-14);
	for (size_t i = 0; i < N_VALUE; i++) {
		up[i] = exp((double)i); /* far from a straight line, and in order */
		down[i] = 7 - 3 * x[i];
	}
	assert_near(gm_pearson(x, down, N_VALUE), -1, 1e-15);
	gm_ranks(up, N_VALUE, order, rank);
	for (size_t i = 0; i < N_VALUE; i++)
		assert_true(rank[i] == (double)i + 1);
	assert_true(gm_spearman(up, rank, N_VALUE, order, (double[2 * N_VALUE]){0}) == 1);
	assert_true(isnan(gm_pearson(x, constant, N_VALUE)) && isnan(gm_pearson(x, y, 1)));
}

static void assert_unknown(const double *a, const double *b)
{
	double rank[2 * N_VALUE];
	size_t order[N_VALUE];

	assert_true(isnan(gm_pearson(a, b, N_VALUE)) && isnan(gm_pearson(b, a, N_VALUE)));
	assert_true(isnan(gm_spearman(a, b, N_VALUE, order, rank)) && isnan(gm_spearman(b, a, N_VALUE, order, rank)));
}

/* A value that is not known, and what is one number but for rounding, leave both coefficients unknown: SciPy's nan. */
static void test_unknown(void **state)
{
	double hole[N_VALUE], endless[N_VALUE], huge[N_VALUE], mean[N_VALUE], near[N_VALUE], rank[2 * N_VALUE];
	bool differs = false;
	size_t order[N_VALUE];

	(void)state;
	for (size_t i = 0; i < N_VALUE; i++) {
		hole[i] = i == 4 ? (double)NAN : x[i];
		endless[i] = i == 4 ? (double)INFINITY : x[i];
		huge[i] = x[i] * 1e300;
		mean[i] = (0.3 * (double)(100 + i) + 0.3) / (double)(101 + i); /* 0.3, rounded */
		near[i] = x[i] * (1 + (i % 2 ? 4e-16 : -4e-16));
		differs = differs || mean[i] != mean[0];
	}
	assert_true(differs);
	assert_unknown(hole, y);
	assert_unknown(endless, y);
	assert_unknown(mean, y);
	assert_true(isnan(gm_pearson(huge, y, N_VALUE))); /* squares out of range */
	assert_near(gm_spearman(huge, y, N_VALUE, order, rank), 0.603741211878273, 1e-14);
	/* Ties stay ties. */
	assert_true(near[1] != near[2]);
	assert_near(gm_spearman(near, y, N_VALUE, order, rank), 0.603741211878273, 1e-14);
}

static void measure_spearman(void *data, const size_t *unit, size_t n_unit, double *value)
{
	double a[N_VALUE], b[N_VALUE], rank[2 * N_VALUE];
	size_t order[N_VALUE];

	assert_null(data);
	for (size_t i = 0; i < n_unit; i++) {
		a[i] = x[unit[i]];
		b[i] = y[unit[i]];
	}
	*value = gm_spearman(a, b, n_unit, order, rank);
}

/* A number in a third of the samples, and one in two thirds. */
static void measure_thirds(void *data, const size_t *unit, size_t n_unit, double *value)
{
	assert_null(data);
	assert_true(n_unit == 3);
	value[0] = unit[0] == 0 ? 1 : (double)NAN;
	value[1] = unit[0] == 2 ? (double)INFINITY : 1;
}

static void test_bootstrap(void **state)
{
	const struct gm_bootstrap bootstrap = {.seed = 7, .n_sample = 2000}, fewer = {.seed = 7, .n_sample = 500},
				  many = {.seed = 3, .n_sample = 200000};
	double sorted[N_VALUE] = {-1.0, 0.3, 0.4, 0.4, 1.1, 2.0, 2.0, 2.5, 3.5, 6.0};
	struct gm_estimate e, thirds[2];

	(void)state;
	assert_near(gm_percentile(sorted, N_VALUE, 0.025), -0.7075, 1e-15);
	assert_near(gm_percentile(sorted, N_VALUE, 0.5), 1.55, 1e-15);
	assert_near(gm_percentile(sorted, N_VALUE, 0.975), 5.4375, 1e-15);
	assert_true(gm_percentile(sorted, 1, 0.975) == -1);

	/* The same draws. */
	assert_int_equal(gm_interval_change(d, n, N_TEXT, &bootstrap, &e, NULL), GM_OK);
	assert_near(e.value, 1.3705234653029, 1e-12);
	assert_near(e.low, 0.541127577992681, 1e-12);
	assert_near(e.high, 2.23143939493532, 1e-12);
	assert_int_equal(gm_bootstrap_run(&fewer, N_VALUE, measure_spearman, NULL, 1, &e, NULL), GM_OK);
	assert_near(e.low, -0.114740585492955, 1e-12);
	assert_near(e.high, 0.987312719868721, 1e-12);

	/* Draws of its own against scipy.stats.bootstrap's, 200,000 each. */
	assert_int_equal(gm_interval_change(d, n, N_TEXT, &many, &e, NULL), GM_OK);
	assert_near(e.low, 0.560981158769827, 0.01);
	assert_near(e.high, 2.21603509505618, 0.01);

	/* One text has no interval; samples that give no number do not count, and where most give none there is none. */
	assert_int_equal(gm_interval_change(d, n, 1, &bootstrap, &e, NULL), GM_OK);
	assert_true(e.value > 0 && isnan(e.low) && isnan(e.high));
	assert_int_equal(gm_bootstrap_run(&bootstrap, 3, measure_thirds, NULL, 2, thirds, NULL), GM_OK);
	assert_true(thirds[0].value == 1 && isnan(thirds[0].low) && isnan(thirds[0].high));
	assert_true(thirds[1].value == 1 && thirds[1].low == 1 && thirds[1].high == 1);
}

/* --- sheets --- */

static void fill(struct gm_sheet *sheet, const char *columns, const char *const *rows, size_t n_row)
{
	char text[256], *cell, *rest;

	snprintf(text, sizeof(text), "%s", columns);
	for (rest = text; (cell = strsep(&rest, ","));)
		assert_int_equal(gm_sheet_add_column(sheet, cell, NULL), GM_OK);
	for (size_t i = 0; i < n_row; i++) {
		snprintf(text, sizeof(text), "%s", rows[i]);
		for (rest = text; (cell = strsep(&rest, ","));)
			assert_int_equal(gm_sheet_put(sheet, cell, NULL), GM_OK);
	}
}

static void test_scores(void **state)
{
	static const char *const points[] = {"t,h,none,,0,b", "t,h,fetch,,0,f", "t,h,none,,9,c", "u,g,fetch,,0,f"};
	/* the policy's second text stands there twice and says the same, one row belongs to no result, one has no likelihood */
	static const char *const rows[] = {"t,b,0,10,2.0,,,",        "t,b,1,20,1.0,,,",        "t,f,0,10,2.5,60,0.1,0.2",
					   "t,f,1,20,1.5,120,0.5,0", "t,f,1,20,1.5,120,0.5,0", "t,x,0,10,2.0,,,",
					   "u,f,0,,,60,0.5,0"};
	struct gm_inputs inputs = {0};
	struct gm_sheet sequences = {0};
	struct gm_results results;
	struct gm_scores scores;
	double diff[2], tokens[2];

	(void)state;
	fill(&inputs.sheet[GM_INPUT_RESULTS], "trace,trace_hash,miss,hw,warmup,settings_hash", points, 4);
	fill(&sequences, "trace,settings_hash,sequence,n_scored,nll,rows,substituted_mass,dropped_mass", rows, 7);
	assert_int_equal(gm_results_make(&results, &inputs, NULL), GM_OK);
	assert_int_equal(gm_scores_make(&scores, &results, &sequences, 0, NULL), GM_OK);
	assert_int_equal(scores.n_policy, 2);
	assert_int_equal(scores.n_sequence, 2);
	assert_int_equal(scores.baseline[1], 0);
	assert_true(gm_scores_is_baseline(&scores, 0) && !gm_scores_is_baseline(&scores, 1));
	assert_int_equal(gm_scores_pair(&scores, 1, 0, diff, tokens), 2);
	assert_true(diff[0] == 5 && diff[1] == 10 && tokens[0] == 10 && tokens[1] == 20);
	assert_near(scores.lost[2], 0.3 * 60, 1e-12);
	assert_near(scores.lost[3], 0.5 * 120, 1e-12);
	gm_scores_free(&scores);
	assert_int_equal(gm_scores_make(&scores, &results, &sequences, 1, NULL), GM_OK);
	assert_int_equal(scores.n_policy, 0);
	gm_scores_free(&scores);
	gm_sheet_free(&sequences);
	gm_results_free(&results);
	gm_inputs_free(&inputs);
}

/* Texts of a name and another hash, numbers that no text has, and mass that is not known. */
static void test_scores_texts(void **state)
{
	static const char *const points[] = {"t,h,none,,0,b", "t,h,fetch,,0,f", "t,g,none,,0,b", "t,g,fetch,,0,f"};
	static const char *const rows[] = {"t,h,b,3,10,2.0,,,",       "t,h,b,9,20,1.0,,,",     "t,h,f,3,10,2.5,60,0.1,",
					   "t,h,f,9,20,1.5,0,,",      "t,g,b,0,10,2.0,,,",     "t,g,f,0,10,2.5,,0.1,0.2",
					   "t,x,f,0,10,2.5,60,0.1,0", "u,x,f,0,10,2.5,60,0,0", "t,h,f,9,20,1.5,0,,",
					   "t,h,b,9,20,1.0,,,"};
	struct gm_inputs inputs = {0};
	struct gm_sheet sequences = {0};
	struct gm_results results;
	struct gm_scores scores;
	struct gm_error err = {0};

	(void)state;
	fill(&inputs.sheet[GM_INPUT_RESULTS], "trace,trace_hash,miss,hw,warmup,settings_hash", points, 4);
	fill(&sequences, "trace,trace_hash,settings_hash,sequence,n_scored,nll,rows,substituted_mass,dropped_mass", rows,
	     10);
	assert_int_equal(gm_results_make(&results, &inputs, NULL), GM_OK);
	assert_true(gm_scores_make(&scores, &results, &sequences, 0, &err) < 0);
	assert_non_null(strstr(err.text, "other texts than those of the results"));
	gm_scores_free(&scores);
	sequences.cell[6 * sequences.n_column + 1] = sequences.cell[0 * sequences.n_column + 2]; /* the hash of none: "b" */
	sequences.cell[6 * sequences.n_column] = sequences.cell[7 * sequences.n_column];         /* and no result's name */
	assert_int_equal(gm_scores_make(&scores, &results, &sequences, 0, NULL), GM_OK);
	assert_int_equal(scores.n_policy, 2);
	assert_int_equal(scores.n_sequence, 2);
	assert_true(scores.number[0] == 3 && scores.number[1] == 9);
	assert_true(scores.nll[0] == 20 && scores.nll[3] == 30);
	assert_true(isnan(scores.lost[2]) && scores.lost[3] == 0);
	gm_scores_free(&scores);
	assert_int_equal(gm_scores_make(&scores, &results, &sequences, 1, NULL), GM_OK);
	assert_int_equal(scores.n_policy, 2);
	assert_int_equal(scores.n_sequence, 1);
	assert_true(isnan(scores.lost[1]) && isnan(scores.rows[1]));
	gm_scores_free(&scores);
	gm_sheet_free(&sequences);
	gm_results_free(&results);
	gm_inputs_free(&inputs);
}

/* The check's message for such rows, "" if it finds none. */
static void check_tokens(const char *const *rows, size_t n_row, const char *message)
{
	struct gm_sheet sheet = {0};
	struct gm_tokens tokens;
	struct gm_error err = {0};
	int status;

	fill(&sheet, "trace,settings_hash,token,sequence,label", rows, n_row);
	assert_int_equal(gm_tokens_make(&tokens, &sheet, NULL), GM_OK);
	status = gm_tokens_check(&tokens, &err);
	assert_true(*message ? status == GM_ERR_FORMAT : status == GM_OK);
	if (strncmp(err.text, message, strlen(message)) != 0)
		fail_msg("\"%s\", expected \"%s...\"", err.text, message);
	gm_tokens_free(&tokens);
	gm_sheet_free(&sheet);
}

static void test_whole_runs(void **state)
{
	static const char *const whole[] = {"t,p,5,0,a", "t,p,6,1,b", "t,q,5,0,a", "t,q,6,1,b"},
				 *const twice[] = {"t,p,5,0,a", "t,q,5,0,a", "t,p,6,1,b", "t,q,6,1,b"},
				 *const back[] = {"t,p,6,0,a", "t,p,5,1,b"}, *const same[] = {"t,p,6,0,a", "t,p,6,1,b"},
				 *const empty[] = {"t,p,,0,a", "t,p,6,1,b"}, *const text[] = {"t,p,5,1,a", "t,p,6,0,b"},
				 *const less[] = {"t,p,5,0,a", "t,p,6,1,b", "t,q,5,0,a"},
				 *const more[] = {"t,p,5,0,a", "t,q,5,0,a", "t,q,6,0,a"},
				 *const other[] = {"t,p,5,0,a", "t,p,6,1,b", "t,q,5,0,a", "t,q,7,1,b"},
				 *const label[] = {"t,p,5,0,a", "t,q,5,0,b"};

	(void)state;
	check_tokens(whole, 4, "");
	check_tokens(twice, 4, "one result in two places: ");
	check_tokens(back, 2, "tokens out of order: ");
	check_tokens(same, 2, "tokens out of order: ");
	check_tokens(empty, 2, "no place of a token: ");
	check_tokens(text, 2, "texts out of order: ");
	check_tokens(less, 3, "not all tokens: ");
	check_tokens(more, 3, "not the same tokens: ");
	check_tokens(other, 4, "not the same tokens: ");
	check_tokens(label, 2, "not the same tokens: ");
}

static void test_switches(void **state)
{
	static const char *const rows[] = {"t,p,0,a", "t,p,0,a", "t,p,1,a", "t,p,2,b", "t,p,2,b",
					   "t,p,3,b", "t,p,4,a", "t,q,0,a", "t,q,1,b"};
	static const long expected[] = {-1, -1, -1, 0, 1, 2, 0};
	struct gm_sheet sheet = {0};
	struct gm_tokens tokens;
	long since[9];

	(void)state;
	fill(&sheet, "trace,settings_hash,sequence,label", rows, 9);
	assert_int_equal(gm_tokens_make(&tokens, &sheet, NULL), GM_OK);
	assert_int_equal(gm_tokens_end(&tokens, 0), 7);
	assert_int_equal(gm_tokens_end(&tokens, 7), 9);
	assert_int_equal(gm_switches_find(&tokens, 0, 7, since), 2);
	assert_memory_equal(since, expected, sizeof(expected));
	assert_int_equal(gm_switches_find(&tokens, 7, 9, since), 1);
	assert_true(since[0] == -1 && since[1] == 0);
	gm_tokens_free(&tokens);
	gm_sheet_free(&sheet);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_correlation), cmocka_unit_test(test_unknown),      cmocka_unit_test(test_bootstrap),
		cmocka_unit_test(test_scores),      cmocka_unit_test(test_scores_texts), cmocka_unit_test(test_whole_runs),
		cmocka_unit_test(test_switches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
