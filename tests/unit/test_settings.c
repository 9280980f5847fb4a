/* Settings, lists, ranges and grids (sim/settings.h, sim/range.h). */
#include "sim/range.h"
#include "sim/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* --- ranges --- */

/* The texts an item stands for, joined by blanks. */
static void expand(const char *item, char *out, size_t size)
{
	struct gm_items texts = {0};
	struct gm_error err = {0};

	*out = '\0';
	if (gm_range_expand(item, "--x", &texts, &err) < 0)
		snprintf(out, size, "%s", err.text);
	for (size_t i = 0; i < texts.n && !err.code; i++)
		snprintf(out + strlen(out), size - strlen(out), "%s%s", i ? " " : "", texts.text[i]);
	gm_items_free(&texts);
}

static void ranges_count_in_decimals(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
		{"16..64/16", "16 32 48 64"},
		{"16..63/16", "16 32 48"},
		{"5..5/1", "5"},
		{"10%..50%/10%", "10% 20% 30% 40% 50%"},
		{"10%..30%/10", "10% 20% 30%"},
		{"threshold:0.05..0.25/0.05", "threshold:0.05 threshold:0.1 threshold:0.15 threshold:0.2 threshold:0.25"},
		{"a:1..2/1:0.5..1/0.5", "a:1:0.5 a:1:1 a:2:0.5 a:2:1"},
		{"1GiB..2GiB/512MiB", "1073741824B 1610612736B 2147483648B"},
		{"1GiB..3GiB/1GiB", "1GiB 2GiB 3GiB"},
		{"-1..1/1", "-1 0 1"},
		{"0.1..0.3/0.1", "0.1 0.2 0.3"},
		{"lru", "lru"},
		{"a..b/c", "a..b/c"},
		{"", ""},
	};
	char out[512];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		expand(cases[i][0], out, sizeof(out));
		assert_string_equal(out, cases[i][1]);
	}
}

static void bad_ranges_say_why(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
		{"1..4", "range without a step"},
		{"4..1/1", "empty range"},
		{"1..4/0", "empty range"},
		{"1%..4/1", "units differ"},
		{"1..x/1", "not a range"},
		{"1..1000000/1", "too many values"},
		{"1..9/1e", "units differ"},
		{"1234567890123456..2/1", "1234567890123456..2/1"},
		{"1..400:1..400/1", "range without a step"},
		{"1..400/1:1..400/1", "too many values"},
	};
	char out[512];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		expand(cases[i][0], out, sizeof(out));
		assert_non_null(strstr(out, cases[i][1]));
	}
}

static void commas_can_be_escaped(void **state)
{
	struct gm_items texts = {0};
	struct gm_error err = {0};

	(void)state;
	assert_int_equal(gm_list_split("a\\,b,c", "--x", &texts, &err), GM_OK);
	assert_int_equal(texts.n, 2);
	assert_string_equal(texts.text[0], "a,b");
	assert_string_equal(texts.text[1], "c");
	assert_int_equal(gm_list_split("a,,c", "--x", &texts, &err), GM_ERR_USAGE);
	gm_items_free(&texts);
}

/* --- grids --- */

static const struct gm_settings *expand_grid(struct gm_grid *grid, size_t *n)
{
	const struct gm_settings *settings;
	struct gm_error err = {0};

	assert_int_equal(gm_grid_expand(grid, &settings, n, &err), GM_OK);
	return settings;
}

static void take(struct gm_grid *grid, int id, const char *value)
{
	struct gm_error err = {0};

	if (gm_grid_option(grid, id, value, &err) < 0)
		fail_msg("%s", err.text);
}

static void defaults_are_those_of_the_contract(void **state)
{
	struct gm_error err = {0};
	struct gm_grid *grid = gm_grid_new(false, &err);
	size_t n;
	const struct gm_settings *s = expand_grid(grid, &n);

	(void)state;
	assert_int_equal(n, 1);
	assert_int_equal(s->cache_kind, GM_CACHE_PERCENT);
	assert_true(s->cache_percent == 25);
	assert_int_equal(s->scope, GM_SCOPE_LAYER);
	assert_string_equal(s->evict.ops->info.name, "lru");
	assert_string_equal(s->miss.ops->info.name, "fetch");
	assert_string_equal(s->admit.ops->info.name, "fetch");
	assert_int_equal(s->prefill, GM_PREFILL_TOKEN);
	assert_string_equal(s->profile->name, "rtx3090-pcie4");
	assert_false(s->hw_given);
	assert_null(s->preload);
	gm_grid_free(grid);
}

static void presets_expand_first(void **state)
{
	struct gm_error err = {0};
	struct gm_grid *grid = gm_grid_new(true, &err);
	size_t n;

	(void)state;
	take(grid, GM_OPTION_EVICT, "lru"); /* before --policy, and still above it */
	take(grid, GM_OPTION_POLICY, "rule-0.15,quality-first");
	take(grid, GM_OPTION_CACHE, "8,16..32/8");
	const struct gm_settings *s = expand_grid(grid, &n);
	assert_int_equal(n, 2 * 4);
	for (size_t i = 0; i < n; i++) {
		assert_string_equal(s[i].evict.ops->info.name, "lru");
		assert_string_equal(s[i].miss.ops->info.name, "threshold");
		assert_string_equal(s[i].admit.ops->info.name, i < 4 ? "fetch" : "background");
		assert_int_equal(s[i].cache_size, 8 * (i % 4 + 1));
	}
	gm_grid_free(grid);
}

static void the_first_option_varies_slowest(void **state)
{
	struct gm_error err = {0};
	struct gm_grid *grid = gm_grid_new(true, &err);
	size_t n;

	(void)state;
	take(grid, GM_OPTION_WARMUP, "0,5");
	take(grid, GM_OPTION_EVICT, "lru,fifo");
	take(grid, GM_OPTION_PRELOAD, "none,a\\,b.gmt");
	const struct gm_settings *s = expand_grid(grid, &n);
	assert_int_equal(n, 8);
	assert_string_equal(s[3].evict.ops->info.name, "lru");
	assert_string_equal(s[4].evict.ops->info.name, "fifo");
	assert_int_equal(s[1].warmup, 0);
	assert_int_equal(s[2].warmup, 5);
	assert_null(s[0].preload);
	assert_string_equal(s[1].preload, "a,b.gmt");
	gm_grid_free(grid);
}

static void caches_of_all_kinds(void **state)
{
	struct gm_error err = {0};
	struct gm_grid *grid = gm_grid_new(true, &err);
	size_t n;

	(void)state;
	take(grid, GM_OPTION_CACHE, "0,12.5%,6GiB,1.5MB");
	const struct gm_settings *s = expand_grid(grid, &n);
	assert_int_equal(n, 4);
	assert_int_equal(s[0].cache_kind, GM_CACHE_SLOTS);
	assert_int_equal(s[0].cache_size, 0);
	assert_true(s[1].cache_percent == 12.5);
	assert_int_equal(s[2].cache_kind, GM_CACHE_BYTES);
	assert_int_equal(s[2].cache_size, UINT64_C(6) << 30);
	assert_int_equal(s[3].cache_size, 1500000);
	gm_grid_free(grid);
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void grid_files_read_the_same(void **state)
{
	char path[] = "/tmp/gm_grid_XXXXXX";
	struct gm_error err = {0};
	struct gm_grid *grid = gm_grid_new(true, &err);
	size_t n;

	(void)state;
	close(mkstemp(path));
	write_file(path, "{\"cache\": [\"10%..30%/10%\", 8], \"evict\": \"lru,lfu\", \"reset-per-sequence\": [false, true],"
			 " \"cache_scope\": \"layer\", \"preload\": [null, \"a,b.gmt\"]}");
	assert_int_equal(gm_grid_file(grid, path, &err), GM_OK);
	const struct gm_settings *s = expand_grid(grid, &n);
	assert_int_equal(n, 4 * 2 * 2 * 2);
	assert_true(s[0].cache_percent == 10);
	assert_int_equal(s[n - 1].cache_size, 8);
	assert_true(s[n - 1].reset_per_sequence);
	assert_string_equal(s[n - 1].preload, "a,b.gmt"); /* an item of a list is one value */
	gm_grid_free(grid);

	static const char *const bad[] = {"[1]", "{\"cash\": [1]}", "{\"cache\": []}", "{\"cache\": [{}]}", "{", ""};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		err = (struct gm_error){0};
		grid = gm_grid_new(true, &err);
		write_file(path, bad[i]);
		assert_true(gm_grid_file(grid, path, &err) < 0);
		gm_grid_free(grid);
	}
	unlink(path);
}

static void stock_takes_no_cache(void **state)
{
	struct gm_error err = {0};
	struct gm_grid *grid = gm_grid_new(true, &err);
	const struct gm_settings *s;
	size_t n;

	(void)state;
	take(grid, GM_OPTION_POLICY, "stock-ncmoe:0..4/2");
	s = expand_grid(grid, &n);
	assert_int_equal(n, 3);
	assert_int_equal(s[1].cpu_layers, 2);
	assert_string_equal(s[1].miss.ops->info.name, "cpu");
	take(grid, GM_OPTION_CACHE, "25%");
	assert_int_equal(gm_grid_expand(grid, &s, &n, &err), GM_ERR_USAGE);
	assert_non_null(strstr(err.text, "stock-ncmoe:0"));
	err = (struct gm_error){0};
	take(grid, GM_OPTION_POLICY, "stock-ncmoe:1,fetch-all"); /* the other points can run */
	assert_int_equal(gm_grid_expand(grid, &s, &n, &err), GM_OK);
	gm_grid_free(grid);
}

static void single_grids_take_no_lists(void **state)
{
	struct gm_error err = {0};
	struct gm_grid *grid = gm_grid_new(false, &err);

	(void)state;
	assert_int_equal(gm_grid_option(grid, GM_OPTION_EVICT, "lru,lfu", &err), GM_ERR_USAGE);
	assert_non_null(strstr(err.text, "sim sweep"));
	take(grid, GM_OPTION_PRELOAD, "a,b.gmt");
	gm_grid_free(grid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_count_in_decimals), cmocka_unit_test(bad_ranges_say_why),
		cmocka_unit_test(commas_can_be_escaped),    cmocka_unit_test(defaults_are_those_of_the_contract),
		cmocka_unit_test(presets_expand_first),     cmocka_unit_test(the_first_option_varies_slowest),
		cmocka_unit_test(caches_of_all_kinds),      cmocka_unit_test(grid_files_read_the_same),
		cmocka_unit_test(stock_takes_no_cache),     cmocka_unit_test(single_grids_take_no_lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
