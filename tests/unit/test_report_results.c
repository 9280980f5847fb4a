/* Results as points: names, scenes, colours, fronts, the choice of some of many. */
#include "report/interval.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- rows of results --- */

static void begin(struct gm_sheet *sheet)
{
	static const char *const names[] = {"trace",
					    "cache_slots",
					    "cache_fraction",
					    "cache_scope",
					    "evict",
					    "miss",
					    "admit",
					    "prefill",
					    "hw",
					    "hit_rate",
					    "substituted_mass",
					    "dropped_mass",
					    "time_per_token_us",
					    "trace_hash",
					    "settings_hash",
					    "error"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		assert_int_equal(gm_sheet_add_column(sheet, names[i], NULL), GM_OK);
}

static void add(struct gm_sheet *sheet, const char *trace, double fraction, const char *scope, const char *policy,
		double mass, double time, const char *hash)
{
	char parts[64], settings[32];
	char *evict = parts, *miss, *admit;

	snprintf(parts, sizeof(parts), "%s", policy); /* "lfu fetch fetch" */
	miss = strchr(parts, ' ');
	*miss++ = '\0';
	admit = strchr(miss, ' ');
	*admit++ = '\0';
	snprintf(settings, sizeof(settings), "%08zx", sheet->n_row * 2654435761u % 1000003);
	const char *cells[] = {trace, "",   NULL, scope, evict, miss, admit,    "token",
			       "hw",  NULL, NULL, "0",   NULL,  hash, settings, ""};
	for (size_t i = 0; i < sizeof(cells) / sizeof(*cells); i++) {
		double value = i == 2 ? fraction : i == 9 ? 0.5 : i == 10 ? mass : time;
		assert_int_equal(cells[i] ? gm_sheet_put(sheet, cells[i], NULL) : gm_sheet_put_number(sheet, value, NULL),
				 GM_OK);
	}
}

static void test_names(void **state)
{
	static const struct {
		const char *policy, *scope, *name;
	} cases[] = {
		{"lfu fetch fetch", "layer", "fetch-all"},
		{"lfu threshold:0.15 background:0.5", "layer", "quality-first"},
		{"lru threshold:0.15 background:0.5", "layer", "threshold:0.15 + lru + background:0.5"},
		{"lru fetch fetch", "global", "fetch + lru, global"},
		{"lfu none fetch", "layer", "baseline + lfu"},
	};
	struct gm_inputs inputs = {0};
	struct gm_results results;
	struct gm_sheet *sheet = &inputs.sheet[GM_INPUT_RESULTS];

	(void)state;
	begin(sheet);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		add(sheet, "/a/b/x.gmt", i == 1 ? (double)NAN : 0.25, cases[i].scope, cases[i].policy, 0, 1, "h1");
	add(sheet, "/a/c/x.gmt", 0.1015625, "layer", "lfu fetch fetch", 0, 1, "h2"); /* another content of that name */
	add(sheet, "y.gmt", 0.5, "layer", "lfu fetch fetch", 0, 1, "h3");
	assert_int_equal(gm_results_make(&results, &inputs, NULL), GM_OK);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(gm_point_policy(&results, i), cases[i].name);
	assert_string_equal(gm_point_cache(&results, 0), "25 %");
	assert_string_equal(gm_point_cache(&results, 1), "other");
	assert_string_equal(gm_point_cache(&results, 5), "10.2 %");
	/* By size, what is not known last. */
	assert_int_equal(results.n_cache, 4);
	assert_string_equal(results.cache[0].text, "10.2 %");
	assert_string_equal(results.cache[3].text, "other");
	assert_int_equal(results.n_scene, 3);
	assert_string_equal(results.scene[0].text, "x.gmt on hw#h1");
	assert_string_equal(results.scene[1].text, "x.gmt on hw#h2");
	assert_string_equal(results.scene[2].text, "y.gmt on hw");
	for (size_t i = 0; i < sheet->n_row; i++)
		assert_int_equal(gm_results_find(&results, gm_sheet_text(sheet, i, 0),
						 gm_sheet_text(sheet, i, gm_sheet_find(sheet, "settings_hash"))),
				 i);
	assert_int_equal(gm_results_find(&results, "x.gmt", "nothing"), GM_NO_POINT);
	gm_results_free(&results);
	gm_inputs_free(&inputs);
}

/* 30 policies at three sizes: colours by what has few values, a choice at a quarter with the front first. */
static void test_many(void **state)
{
	struct gm_inputs inputs = {0};
	struct gm_results results;
	struct gm_sheet *sheet = &inputs.sheet[GM_INPUT_RESULTS];
	size_t chosen[8], cache, n_left, n, front = 0;
	char policy[64];

	(void)state;
	begin(sheet);
	for (int p = 0; p < 30; p++)
		for (int c = 1; c <= 3; c++) {
			snprintf(policy, sizeof(policy), "%s threshold:%g fetch", p % 2 ? "lru" : "lfu",
				 0.01 * (1 + p / 2));
			/* Every tenth policy is on the front. */
			add(sheet, "x.gmt", 0.125 * c, "layer", policy, p % 10 == 0 ? 0.1 + 0.01 * p : 0.9,
			    p % 10 == 0 ? 100 - p : 200 + p, "h");
		}
	assert_int_equal(gm_results_make(&results, &inputs, NULL), GM_OK);
	assert_int_equal(results.n_series, 30);
	assert_int_equal(results.n_colour, 2);
	assert_string_equal(results.colour[0].text, "lfu");
	n = gm_results_choose(&results, 0, 8, chosen, &cache, &n_left);
	assert_int_equal(n, 8);
	assert_int_equal(n_left, 22);
	assert_string_equal(results.cache[cache].text, "25 %");
	for (size_t i = 0; i < n; i++)
		front += results.point[chosen[i]].on_front;
	assert_int_equal(front, 3);
	gm_results_free(&results);
	gm_inputs_free(&inputs);
}

/* Points that drop weight are no better than those that substitute it; failed ones are on no front. */
static void test_front_counts_what_is_lost(void **state)
{
	struct gm_inputs inputs = {0};
	struct gm_results results;
	struct gm_sheet *sheet = &inputs.sheet[GM_INPUT_RESULTS];

	(void)state;
	begin(sheet);
	add(sheet, "x.gmt", 0.25, "layer", "lfu fetch fetch", 0, 100, "h");
	add(sheet, "x.gmt", 0.25, "layer", "lfu substitute fetch", 0.5, 50, "h");
	add(sheet, "x.gmt", 0.25, "layer", "lfu drop:0.1 fetch", 0, 60, "h");
	sheet->cell[2 * sheet->n_column + gm_sheet_find(sheet, "dropped_mass")] =
		sheet->cell[1 * sheet->n_column + gm_sheet_find(sheet, "substituted_mass")];
	add(sheet, "x.gmt", 0.25, "layer", "lfu cpu fetch", 0, 10, "h");
	sheet->cell[3 * sheet->n_column + gm_sheet_find(sheet, "error")] = sheet->cell[0];
	assert_int_equal(gm_results_make(&results, &inputs, NULL), GM_OK);
	assert_true(results.point[2].lost_mass == 0.5);
	assert_true(results.point[0].on_front && results.point[1].on_front);
	assert_false(results.point[2].on_front || results.point[3].on_front);
	assert_int_equal(results.n_failed, 1);
	gm_results_free(&results);
	gm_inputs_free(&inputs);
}

/* Against what is known: for n sequences of equal length the mean of d has the standard error s / sqrt(n), and the bootstrap's interval is
 * close to 1.96 of it on either side. A seed gives the same interval again. */
static void test_interval(void **state)
{
	const struct gm_bootstrap bootstrap = {.seed = 7, .n_sample = 2000};
	double d[200], n[200], mean = 0, square = 0;
	struct gm_estimate change, again;

	(void)state;
	srand(3);
	for (size_t i = 0; i < 200; i++) {
		d[i] = 10 * (0.02 + 0.01 * (rand() % 1000 / 500.0 - 1));
		n[i] = 10;
		mean += d[i] / 10 / 200;
		square += d[i] / 10 * d[i] / 10 / 200;
	}
	double error = sqrt((square - mean * mean) / 200);
	assert_int_equal(gm_interval_change(d, n, 200, &bootstrap, &change, NULL), GM_OK);
	assert_true(fabs(change.value - 100 * expm1(mean)) < 1e-9);
	assert_true(fabs(change.low - 100 * expm1(mean - 1.96 * error)) < 0.1 * 100 * error);
	assert_true(fabs(change.high - 100 * expm1(mean + 1.96 * error)) < 0.1 * 100 * error);
	assert_int_equal(gm_interval_change(d, n, 200, &bootstrap, &again, NULL), GM_OK);
	assert_true(again.low == change.low && again.high == change.high);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_front_counts_what_is_lost),
		cmocka_unit_test(test_interval),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
