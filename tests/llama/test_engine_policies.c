/* Under every policy the engine computes what the emulator computes, bit for bit, and counts what it counts; and `sim` counts the same on
 * the router's logits that the engine recorded. */
#include "tests/llama/engine_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 80 };

static void compare_outputs(const float *mine, const float *its, size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(&mine[i], &its[i], sizeof(float)) != 0)
			fail_msg("%s: value %zu: %.9g against the emulator's %.9g", what, i, (double)mine[i],
				 (double)its[i]);
}

struct both {
	struct engined run;
	struct gm_hook *stock;
	int32_t token[N];
};

static void open_both(struct both *both, const char *path, uint32_t n_ubatch, const char *const *option)
{
	struct gm_hook_options options = support_options(n_ubatch);

	engined_open(&both->run, path, &options, option);
	both->stock = support_open(path, &options);
	support_tokens(both->token, N, 23);
}

static void close_both(struct both *both)
{
	gm_hook_close(both->stock);
	engined_close(&both->run);
}

static void compare(struct both *both, const char *const *option, struct gm_override override, struct gm_counters *sum)
{
	const struct gm_model *model = gm_hook_model(both->run.hook);
	const char *path = support_path("engine.gmt");
	size_t n = (size_t)N * gm_hook_info(both->stock)->n_vocab;
	float *mine = calloc(n, sizeof(*mine)), *its = calloc(n, sizeof(*its));
	const struct gm_cache_options options = {.override = override};
	const struct gm_account *account;
	struct gm_account expected;
	struct gm_recording *recording;
	struct gm_tally layer[64];
	struct gm_error err = {0};
	char what[320];

	assert_true(mine && its && model->n_layer <= 64);
	assert_ok(engined_with(&both->run, option, &options, &err), &err);
	gm_settings_describe(gm_cache_settings(both->run.cache), what, sizeof(what));
	recording = engined_record(&both->run, path);
	assert_ok(engined_run(&both->run, both->token, N, mine, &err), &err);
	assert_ok(gm_recording_close(recording, true, NULL, &err), &err);
	engined_emulate(&both->run, both->stock, override, NULL, both->token, N, its, &expected);
	compare_outputs(mine, its, n, what);
	replayed(path, gm_cache_settings(both->run.cache), both->run.preloads, NULL, layer, model->n_layer);
	account = gm_cache_account(both->run.cache);
	for (uint32_t l = 0; l < model->n_layer; l++) {
		assert_equal_counters(&account->layer[l].count, &expected.layer[l].count, what);
		assert_equal_counters(&account->layer[l].count, &layer[l].count, what);
		gm_counters_add(sum, &account->layer[l].count);
	}
	gm_account_free(&expected);
	free(mine);
	free(its);
}

/* Miss rules by eviction by cache size, admission and weights in turn. */
static void compare_grid(const char *path, const char *const cache[3], const char *threshold, const char *drop,
			 uint32_t n_ubatch)
{
	const char *const misses[] = {"fetch", threshold, "first-choice", "substitute", drop, "compose:random:0.2"};
	static const char *const evicts[] = {"lru", "fifo", "lfu", "lfu-decay:16"}, *const admits[] = {"fetch",
												       "background:0.5"};
	const char *const first[] = {"cache", cache[0], NULL};
	struct gm_counters sum = {0};
	struct both both;
	unsigned n = 0;

	open_both(&both, path, n_ubatch, first);
	for (size_t m = 0; m < sizeof(misses) / sizeof(*misses); m++)
		for (size_t e = 0; e < 4; e++)
			for (size_t c = 0; c < 3; c++, n++) {
				const char *const option[] = {"cache", cache[c],  "evict", evicts[e],
							      "miss",  misses[m], "admit", admits[(e + c) % 2],
							      NULL};
				const struct gm_override override = {
					n % 3 ? GM_SUBSTITUTE_OWN : GM_SUBSTITUTE_MISSED,
					n % 2 ? GM_DROP_RENORMALISE : GM_DROP_KEEP,
				};

				compare(&both, option, override, &sum);
			}
	print_message("%s, passes of %u: %u policies, together %llu hits, %llu fetches, %llu bypasses, %llu substitutions, "
		      "%llu drops, %llu background copies, %llu evictions\n",
		      gm_hook_model(both.stock)->name, n_ubatch, n, (unsigned long long)sum.hits,
		      (unsigned long long)sum.fetches, (unsigned long long)sum.bypasses,
		      (unsigned long long)sum.substitutions, (unsigned long long)sum.drops,
		      (unsigned long long)sum.background_copies, (unsigned long long)sum.evictions);
	assert_true(sum.hits && sum.fetches && sum.bypasses && sum.substitutions && sum.drops && sum.background_copies &&
		    sum.evictions);
	close_both(&both);
}

static void test_tinymoe(void **state)
{
	static const char *const cache[] = {"4", "25%", "64"};

	(void)state;
	compare_grid(TINYMOE, cache, "threshold:0.15", "drop:0.15", 32);
	compare_grid(TINYMOE, cache, "threshold:0.15", "drop:0.15", 1);
}

static void test_sigmoid_groups(void **state)
{
	static const char *const cache[] = {"2", "25%", "12"};

	(void)state;
	compare_grid(support_fixture("deepseek2-groups"), cache, "threshold:0.25", "drop:0.25", 50);
}

static void test_512_of_10(void **state)
{
	static const char *const cache[] = {"5", "25%", "16"};

	(void)state;
	compare_grid(support_fixture("qwen3next"), cache, "threshold:0.15", "drop:0.15", 50);
}

static void test_softmax_after(void **state)
{
	static const char *const cache[] = {"2", "25%", "12"};

	(void)state;
	compare_grid(support_fixture("gpt-oss"), cache, "threshold:0.25", "drop:0.25", 7);
}

/* Everything else that settings may ask for. */
static void test_settings(void **state)
{
	static const char *const grids[][12] = {
		{"cache", "25%", "policy", "quality-first", "warmup", "33", NULL},
		{"cache", "30%", "cache-scope", "global", "policy", "quality-first", NULL},
		{"cache", "30%", "cache-scope", "global", "policy", "substitute-all", NULL},
		{"cache", "60%", "cache-scope", "global", "policy", "fetch-all", NULL},
		{"miss", "substitute", "evict", "nop", NULL},
		{"cache", "25%", "policy", "substitute-all", "preload", "PRELOAD", NULL},
		{"cache", "40%", "policy", "speed-first", "preload", "PRELOAD", "cache-scope", "global", NULL},
	};
	const char *preload = support_path("preload.gmt");
	struct gm_counters sum = {0};
	struct gm_error err = {0};
	struct gm_recording *recording;
	struct both both;
	char kept[192];

	(void)state;
	snprintf(kept, sizeof(kept), "%s", preload);
	open_both(&both, support_fixture("deepseek2-groups"), 1, grids[4]);
	recording = engined_record(&both.run, kept);
	assert_ok(engined_run(&both.run, both.token, N / 2, NULL, &err), &err);
	assert_ok(gm_recording_close(recording, true, NULL, &err), &err);
	for (size_t g = 0; g < sizeof(grids) / sizeof(*grids); g++) {
		const char *option[12] = {NULL};

		for (size_t i = 0; grids[g][i]; i++)
			option[i] = strcmp(grids[g][i], "PRELOAD") == 0 ? kept : grids[g][i];
		compare(&both, option, (struct gm_override){GM_SUBSTITUTE_OWN, GM_DROP_RENORMALISE}, &sum);
	}
	close_both(&both);
}

/* A cache that is emptied between texts starts over with what was preloaded. */
static void test_reset(void **state)
{
	const char *const option[] = {"cache", "40%", "policy", "quality-first", "reset-per-sequence", "", NULL};
	struct gm_hook_options options = support_options(16);
	struct gm_error err = {0};
	struct engined run;
	int32_t token[N];
	struct gm_counters once, twice;
	float *first, *second;
	size_t n;

	(void)state;
	support_tokens(token, N, 5);
	engined_open(&run, support_fixture("qwen3moe"), &options, option);
	n = (size_t)N * gm_hook_info(run.hook)->n_vocab;
	first = calloc(n, sizeof(*first));
	second = calloc(n, sizeof(*second));
	assert_true(first && second);
	assert_ok(engined_run(&run, token, N, first, &err), &err);
	once = engined_counters(&run);
	assert_ok(engined_run(&run, token, N, second, &err), &err);
	twice = engined_counters(&run);
	assert_memory_equal(first, second, n * sizeof(*first));
	assert_int_equal(twice.hits, 2 * once.hits);
	assert_int_equal(twice.fetches, 2 * once.fetches);
	assert_int_equal(twice.background_copies, 2 * once.background_copies);
	free(first);
	free(second);
	engined_close(&run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tinymoe),   cmocka_unit_test(test_sigmoid_groups),
		cmocka_unit_test(test_512_of_10), cmocka_unit_test(test_softmax_after),
		cmocka_unit_test(test_settings),  cmocka_unit_test(test_reset),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
