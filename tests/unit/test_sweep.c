/* The sweep (sim/sweep.h) on the embedded trace: figures of an independent replay, and what must not depend on how a sweep is cut. */
#include "base/file.h"
#include "sim/sweep_output.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRACE "tests/data/tinymoe-reference.gmt"
#define EXPECTED "tests/data/tinymoe-expected.json"

/* Everything that a sweep needs, kept together for the tests. */
struct bench {
	struct gm_trace *trace;
	struct gm_grid *grid;
	struct gm_preloads *preloads;
	const struct gm_settings *settings;
	size_t n;
	struct gm_sweep_options options;
	struct gm_sweep sweep;
	struct gm_error err;
};

static void must(const struct bench *b, int status)
{
	if (status < 0)
		fail_msg("%s", b->err.text);
}

static void open_bench(struct bench *b)
{
	*b = (struct bench){.options = {.memory_bytes = 200000000, .quiet = true}};
	b->trace = gm_trace_open(TRACE, &b->err);
	must(b, b->trace ? 0 : b->err.code);
	b->grid = gm_grid_new(true, &b->err);
	b->preloads = gm_preloads_new(&b->err);
	assert_non_null(b->grid);
}

static void take(struct bench *b, int id, const char *value)
{
	must(b, gm_grid_option(b->grid, id, value, &b->err));
}

static void run_bench(struct bench *b)
{
	must(b, gm_grid_expand(b->grid, &b->settings, &b->n, &b->err));
	must(b, gm_sweep_run(&b->sweep, b->trace, b->settings, b->n, b->preloads, &b->options, &b->err));
}

static void close_bench(struct bench *b)
{
	gm_sweep_free(&b->sweep);
	gm_preloads_free(b->preloads);
	gm_grid_free(b->grid);
	gm_trace_close(b->trace);
}

/* --- figures of the independent replay --- */

static void write_profile(const struct gm_json *hw, const char *path)
{
	FILE *f = fopen(path, "w");
	char *text = gm_json_print(hw, false);

	assert_non_null(f);
	assert_non_null(text);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
	free(text);
}

static void compare_row(const struct gm_json *row, const struct gm_result *r)
{
	struct gm_result copy = *r;
	struct gm_json *json = gm_result_json(&copy, false);

	for (const struct gm_json *m = gm_json_first(row); m; m = gm_json_next(m)) {
		const struct gm_json *ours = gm_json_get(json, gm_json_key(m));
		double value = gm_json_value(m);

		if (gm_json_type(m) != GM_JSON_NUMBER || !ours)
			continue; /* policy, cache, hw: how it was asked for */
		if (!(fabs(gm_json_value(ours) - value) <= (value == floor(value) ? 0 : 1e-6)))
			fail_msg("%s %s, %s: %.17g, not %.17g", r->miss, r->hw, gm_json_key(m), gm_json_value(ours), value);
	}
	gm_json_free(json);
}

static void tinymoe_is_as_expected(void **state)
{
	char path[] = "/tmp/gm_hw_XXXXXX.json", cache[16];
	struct gm_error err = {0};
	struct gm_json *expected = gm_json_parse_file(EXPECTED, &err);
	size_t n_row = 0;

	(void)state;
	assert_non_null(expected);
	close(mkstemps(path, 5));
	write_profile(gm_json_get(expected, "hw_real"), path);
	for (const struct gm_json *row = gm_json_first(gm_json_get(expected, "rows")); row; row = gm_json_next(row)) {
		struct gm_result result;
		struct bench b;

		open_bench(&b);
		snprintf(cache, sizeof(cache), "%.0f", gm_json_value(gm_json_get(row, "cache")));
		take(&b, GM_OPTION_POLICY, gm_json_text(gm_json_get(row, "policy")));
		take(&b, GM_OPTION_CACHE, cache);
		take(&b, GM_OPTION_HW, strcmp(gm_json_text(gm_json_get(row, "hw")), "real") == 0 ? path : "instant");
		run_bench(&b);
		gm_sweep_result(&b.sweep, 0, &result);
		compare_row(row, &result);
		close_bench(&b);
		n_row++;
	}
	assert_int_equal(n_row, 7);
	gm_json_free(expected);
	unlink(path);
}

/* --- a sweep's results do not depend on how it is cut --- */

static void take_mixed_grid(struct bench *b)
{
	take(b, GM_OPTION_POLICY, "fetch-all,quality-first");
	take(b, GM_OPTION_CACHE, "5%,25%");
	take(b, GM_OPTION_EVICT, "lru,belady");
	take(b, GM_OPTION_PREFILL, "token,batch");
	take(b, GM_OPTION_HW, "instant");
}

/* All outputs of a sweep in one text. */
static char *outputs_of(struct bench *b)
{
	const char *const paths[GM_N_SWEEP_FILE] = {"/tmp/gm_sweep_points", "/tmp/gm_sweep_layers",
						    "/tmp/gm_sweep_sequences", "/tmp/gm_sweep_tokens"};
	char name[GM_N_SWEEP_FILE][64], *text = NULL;
	const char *path[GM_N_SWEEP_FILE];
	struct gm_sweep_output output;
	size_t size;
	FILE *all = open_memstream(&text, &size);

	for (int i = 0; i < GM_N_SWEEP_FILE; i++) {
		snprintf(name[i], sizeof(name[i]), "%s.%d", paths[i], (int)getpid());
		path[i] = name[i];
	}
	must(b, gm_sweep_output_open(&output, path, false, &b->err));
	must(b, gm_sweep_output_write(&output, &b->sweep, &b->err));
	must(b, gm_sweep_output_commit(&output, &b->err));
	for (int i = 0; i < GM_N_SWEEP_FILE; i++) {
		char *part = gm_read_file(path[i], (size_t)1 << 30, NULL, &b->err);
		assert_non_null(part);
		fputs(part, all);
		free(part);
		unlink(path[i]);
	}
	fclose(all);
	return text;
}

static void memory_changes_nothing(void **state)
{
	char *text[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct bench b;

		open_bench(&b);
		take_mixed_grid(&b);
		b.options.memory_bytes = i == 0 ? 1000000000 : 1; /* all side by side, or one at a time */
		b.options.per_layer = b.options.per_sequence = b.options.per_token = true;
		run_bench(&b);
		assert_int_equal(b.sweep.n_failed, 0);
		text[i] = outputs_of(&b);
		close_bench(&b);
	}
	assert_true(strcmp(text[0], text[1]) == 0);
	free(text[0]);
	free(text[1]);
}

static void order_changes_nothing(void **state)
{
	struct gm_result a, b;
	struct bench forward, backward;

	(void)state;
	open_bench(&forward);
	take_mixed_grid(&forward);
	run_bench(&forward);
	open_bench(&backward);
	take(&backward, GM_OPTION_POLICY, "quality-first,fetch-all");
	take(&backward, GM_OPTION_CACHE, "25%,5%");
	take(&backward, GM_OPTION_EVICT, "belady,lru");
	take(&backward, GM_OPTION_PREFILL, "batch,token");
	take(&backward, GM_OPTION_HW, "instant");
	run_bench(&backward);
	assert_int_equal(forward.n, backward.n);
	for (size_t i = 0; i < forward.n; i++) {
		gm_sweep_result(&forward.sweep, i, &a);
		gm_sweep_result(&backward.sweep, forward.n - 1 - i, &b);
		assert_string_equal(a.settings_hash, b.settings_hash);
		assert_int_equal(a.hits, b.hits);
		assert_int_equal(a.evictions, b.evictions);
		assert_true(a.substituted_mass == b.substituted_mass);
	}
	close_bench(&forward);
	close_bench(&backward);
}

/* --- the parts add up --- */

static void parts_add_up(void **state)
{
	struct bench b;

	(void)state;
	open_bench(&b);
	take(&b, GM_OPTION_POLICY, "quality-first");
	take(&b, GM_OPTION_WARMUP, "100");
	take(&b, GM_OPTION_PREFILL, "token,batch");
	take(&b, GM_OPTION_HW, "instant");
	b.options.per_layer = b.options.per_sequence = true;
	run_bench(&b);
	for (size_t p = 0; p < b.n; p++) {
		const struct gm_point *point = &b.sweep.point[p];
		struct gm_tally layers = {0}, sequences = {0};

		for (uint32_t l = 0; l < gm_trace_model(b.trace)->n_layer; l++)
			gm_tally_add(&layers, &point->layer[l]);
		for (uint32_t s = 0; s < point->n_sequence; s++)
			gm_tally_add(&sequences, &point->sequence[s]);
		assert_int_equal(point->total.tokens, gm_trace_n_token(b.trace) - 100);
		assert_int_equal(sequences.tokens, point->total.tokens);
		assert_int_equal(layers.count.hits, point->total.count.hits);
		assert_int_equal(sequences.count.hits, point->total.count.hits);
		assert_int_equal(sequences.count.substitutions, point->total.count.substitutions);
		assert_int_equal(sequences.count.background_copies, point->total.count.background_copies);
		assert_true(fabs(sequences.count.substituted_mass - point->total.count.substituted_mass) < 1e-6);
	}
	close_bench(&b);
}

static void equal_points_are_computed_once(void **state)
{
	struct gm_result result;
	struct bench b;

	(void)state;
	open_bench(&b);
	take(&b, GM_OPTION_CACHE, "32,25%,16,1kB");
	take(&b, GM_OPTION_HW, "instant");
	run_bench(&b);
	assert_int_equal(b.n, 4);
	assert_int_equal(b.sweep.point[1].twin, 0); /* 25 % of 128 is 32 */
	assert_int_equal(b.sweep.point[2].twin, 2);
	gm_sweep_result(&b.sweep, 1, &result);
	assert_true(result.hits > 0);
	assert_int_equal(b.sweep.n_failed, 1); /* 1 kB is less than a slot a layer; the others went on */
	gm_sweep_result(&b.sweep, 3, &result);
	assert_false(result.has_counts);
	assert_non_null(strstr(result.error, "less than a slot"));
	close_bench(&b);
}

/* --- points that differ only in what changes no replay share one --- */

static void take_shared_grid(struct bench *b)
{
	take(b, GM_OPTION_CACHE, "10%,25%");
	take(b, GM_OPTION_EVICT, "lru,lfu");
	take(b, GM_OPTION_MISS, "fetch,drop:0.15,cpu,threshold:0.15,substitute");
	take(b, GM_OPTION_ADMIT, "fetch,background:0.5");
	take(b, GM_OPTION_HW, "rtx3090-pcie4,rtx4090-pcie4,instant");
	take(b, GM_OPTION_WARMUP, "50");
	b->options.per_layer = true;
}

static char *json_of(const struct gm_sweep *sweep, size_t i)
{
	struct gm_result result;
	struct gm_json *json;
	char *text;

	gm_sweep_result(sweep, i, &result);
	json = gm_result_json(&result, false);
	text = gm_json_print(json, false);
	gm_json_free(json);
	return text;
}

/* Every point of two sweeps of the same grid. */
static void assert_same(const struct bench *x, const struct bench *y)
{
	size_t n_layer = gm_trace_model(x->trace)->n_layer;

	assert_int_equal(x->n, y->n);
	for (size_t i = 0; i < x->n; i++) {
		const struct gm_point *a = gm_sweep_point(&x->sweep, i), *b = gm_sweep_point(&y->sweep, i);
		char *a_json = json_of(&x->sweep, i), *b_json = json_of(&y->sweep, i);

		assert_string_equal(a_json, b_json);
		assert_memory_equal(a->layer, b->layer, n_layer * sizeof(*a->layer));
		free(a_json);
		free(b_json);
	}
}

static void shared_replays_change_nothing(void **state)
{
	size_t n_replay = 0;
	struct bench shared, apart;

	(void)state;
	open_bench(&shared);
	take_shared_grid(&shared);
	run_bench(&shared);
	open_bench(&apart);
	take_shared_grid(&apart);
	apart.options.per_sequence = true; /* every point for itself */
	run_bench(&apart);
	assert_int_equal(shared.n, 120);
	assert_same(&shared, &apart);
	for (size_t i = 0; i < shared.n; i++)
		n_replay += shared.sweep.point[i].leader == i;
	/* with times and without: fetch lru in one and 2 sizes of lfu, drop 2 sizes x 2 evictions, cpu 2 sizes, threshold 2 x 2, substitute in one;
	 * and threshold and substitute in the background */
	assert_int_equal(n_replay, 2 * (3 + 4 + 2 + 4 + 1) + 2 * (4 + 4));
	close_bench(&shared);
	close_bench(&apart);
}

static void run_sizes(struct bench *b, int id, const char *value, bool apart)
{
	open_bench(b);
	take(b, GM_OPTION_CACHE, "7,8,9,32");
	take(b, GM_OPTION_EVICT, "lru,lfu");
	take(b, GM_OPTION_MISS, "substitute");
	take(b, GM_OPTION_HW, "rtx3090-pcie4");
	take(b, id, value);
	b->options.per_layer = true;
	b->options.per_sequence = apart; /* every point for itself */
	run_bench(b);
	assert_int_equal(b->sweep.n_failed, 0);
}

/* Where all is substituted, larger sizes and other evictions share a replay, but only from a cold start, with nothing admitted beside the work and
 * the whole ranking to search. Returns how many replays there are. */
static size_t share_sizes(int id, const char *value)
{
	struct bench shared, apart;
	size_t n_replay = 0;

	run_sizes(&shared, id, value, false);
	run_sizes(&apart, id, value, true);
	assert_same(&shared, &apart);
	for (size_t i = 0; i < shared.n; i++)
		n_replay += shared.sweep.point[i].leader == i;
	close_bench(&shared);
	close_bench(&apart);
	return n_replay;
}

static void sizes_share_a_replay_where_none_matters(void **state)
{
	(void)state;
	assert_int_equal(share_sizes(GM_OPTION_WARMUP, "50"), 2); /* 8 experts are used */
	assert_int_equal(share_sizes(GM_OPTION_PRELOAD, TRACE), 4);
	assert_int_equal(share_sizes(GM_OPTION_HEAD_ONLY, NULL), 8);
	assert_int_equal(share_sizes(GM_OPTION_ADMIT, "background:0.1"), 8);
}

/* Links on which copies never come late, come late in some points, and in all: what was replayed as if they did not is replayed once more. */
static void take_late_grid(struct bench *b, const char *hw)
{
	take(b, GM_OPTION_CACHE, "10%,25%");
	take(b, GM_OPTION_EVICT, "lru,lfu-decay:64");
	take(b, GM_OPTION_MISS, "first-choice,substitute");
	take(b, GM_OPTION_ADMIT, "background:0.5");
	take(b, GM_OPTION_HW, hw);
	b->options.per_layer = true;
}

static void late_copies_are_replayed_exactly(void **state)
{
	const char text[] =
		"{\"dense_us\": 10, \"gpu_expert_us\": 1, \"link_gb_s\": 0, \"link_latency_us\": %s, \"token_us\": 5}";
	const char *const latency[] = {"1", "11", "2000"};
	char path[3][32], hw[128];
	struct bench ahead, apart;
	size_t n_late = 0;

	(void)state;
	for (int i = 0; i < 3; i++) {
		char profile[128];
		FILE *f;

		snprintf(path[i], sizeof(path[i]), "/tmp/gm_late_%d_%d.json", (int)getpid(), i);
		snprintf(profile, sizeof(profile), text, latency[i]);
		assert_non_null(f = fopen(path[i], "w"));
		fputs(profile, f);
		assert_int_equal(fclose(f), 0);
	}
	/* The first leads: where its copies come late, those on the fast link after it do not, and those on the slow one do where its own are in time. */
	snprintf(hw, sizeof(hw), "%s,%s,%s", path[1], path[2], path[0]);
	open_bench(&ahead);
	take_late_grid(&ahead, hw);
	ahead.options.memory_bytes = 1; /* one at a time */
	run_bench(&ahead);
	open_bench(&apart);
	take_late_grid(&apart, hw);
	apart.options.per_sequence = true; /* every point for itself, by its own clock */
	run_bench(&apart);
	assert_int_equal(ahead.sweep.n_failed, 0);
	assert_same(&ahead, &apart);
	for (size_t i = 0; i < ahead.n; i++)
		n_late += !ahead.sweep.point[i].plan.config.ahead;
	assert_true(n_late > ahead.n / 3 &&
		    n_late < 2 * ahead.n / 3); /* all on the slowest link, some on the one between */
	close_bench(&ahead);
	close_bench(&apart);
	for (int i = 0; i < 3; i++)
		unlink(path[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tinymoe_is_as_expected),
		cmocka_unit_test(memory_changes_nothing),
		cmocka_unit_test(order_changes_nothing),
		cmocka_unit_test(parts_add_up),
		cmocka_unit_test(equal_points_are_computed_once),
		cmocka_unit_test(shared_replays_change_nothing),
		cmocka_unit_test(sizes_share_a_replay_where_none_matters),
		cmocka_unit_test(late_copies_are_replayed_exactly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
