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

/* What was counted was copied, and nothing else: of a tie that the model breaks otherwise than R2 an expert more is copied; gpt-oss counts biases,
 * which are no part of a slot. */
static void check_bytes(const struct engined *run, uint64_t link_bytes, const char *what)
{
	struct gm_engine_stats stats;

	gm_cache_stats(run->cache, &stats);
	if (gm_driver_n_tie(gm_cache_driver(run->cache)) == 0 && gm_cache_settings(run->cache)->warmup == 0 &&
	    strcmp(gm_hook_info(run->hook)->architecture, "gpt-oss") != 0 && stats.copied_bytes != link_bytes)
		fail_msg("%s: %llu bytes were copied, %llu counted", what, (unsigned long long)stats.copied_bytes,
			 (unsigned long long)link_bytes);
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
	uint64_t link_bytes = 0;
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
		link_bytes += account->layer[l].count.link_bytes;
	}
	check_bytes(&both->run, link_bytes, what);
	gm_account_free(&expected);
	free(mine);
	free(its);
}

/* How passes come to the cache. If all tokens are one pass, there is nothing to hit but what is preloaded. */
struct way {
	uint32_t n_ubatch;
	const char *prefill, *scope;
};

/* What the first half of the tokens selects, as a trace. */
static void record_half(struct both *both, char path[static 192])
{
	struct gm_recording *recording;
	struct gm_error err = {0};

	snprintf(path, 192, "%s", support_path("preload.gmt"));
	recording = engined_record(&both->run, path);
	assert_ok(engined_run(&both->run, both->token, N / 2, NULL, &err), &err);
	assert_ok(gm_recording_close(recording, true, NULL, &err), &err);
}

/* Miss rules by eviction by cache size, admission and weights in turn. */
static void compare_grid(const char *path, const char *const cache[3], const char *threshold, const char *drop,
			 struct way way)
{
	const char *const misses[] = {"fetch", threshold, "first-choice", "substitute", drop, "compose:random:0.2"};
	static const char *const evicts[] = {"lru", "fifo", "lfu", "lfu-decay:16"}, *const admits[] = {"fetch",
												       "background:0.5"};
	const char *const first[] = {"cache", cache[0], NULL};
	struct gm_counters sum = {0};
	bool preloads = way.n_ubatch >= N;
	char preload[192];
	struct both both;
	unsigned n = 0;

	open_both(&both, path, way.n_ubatch, first);
	if (preloads)
		record_half(&both, preload);
	for (size_t m = 0; m < sizeof(misses) / sizeof(*misses); m++)
		for (size_t e = 0; e < 4; e++)
			for (size_t c = 0; c < 3; c++, n++) {
				const char *const option[] = {"cache",
							      cache[c],
							      "evict",
							      evicts[e],
							      "miss",
							      misses[m],
							      "admit",
							      admits[(e + c) % 2],
							      "prefill",
							      way.prefill,
							      "cache-scope",
							      way.scope,
							      preloads ? "preload" : NULL,
							      preload,
							      NULL};
				const struct gm_override override = {
					n % 3 ? GM_SUBSTITUTE_OWN : GM_SUBSTITUTE_MISSED,
					n % 2 ? GM_DROP_RENORMALISE : GM_DROP_KEEP,
				};

				compare(&both, option, override, &sum);
			}
	print_message("%s, passes of %u, %s, %s: %u policies, together %llu hits, %llu fetches, %llu bypasses, %llu "
		      "substitutions, "
		      "%llu drops, %llu background copies, %llu evictions\n",
		      gm_hook_model(both.stock)->name, way.n_ubatch, way.prefill, way.scope, n,
		      (unsigned long long)sum.hits, (unsigned long long)sum.fetches, (unsigned long long)sum.bypasses,
		      (unsigned long long)sum.substitutions, (unsigned long long)sum.drops,
		      (unsigned long long)sum.background_copies, (unsigned long long)sum.evictions);
	assert_true(sum.hits && sum.fetches && sum.bypasses && sum.substitutions && sum.drops);
	assert_true(preloads ||
		    (sum.background_copies && sum.evictions)); /* of one event all that is resident may be pinned */
	close_both(&both);
}

static void test_tinymoe(void **state)
{
	static const char *const cache[] = {"4", "25%", "64"};

	(void)state;
	compare_grid(TINYMOE, cache, "threshold:0.15", "drop:0.15", (struct way){32, "token", "layer"});
	compare_grid(TINYMOE, cache, "threshold:0.15", "drop:0.15", (struct way){1, "token", "layer"});
}

static void test_sigmoid_groups(void **state)
{
	static const char *const cache[] = {"2", "25%", "12"};

	(void)state;
	compare_grid(support_fixture("deepseek2-groups"), cache, "threshold:0.25", "drop:0.25",
		     (struct way){50, "token", "layer"});
}

static void test_512_of_10(void **state)
{
	static const char *const cache[] = {"5", "25%", "16"};

	(void)state;
	compare_grid(support_fixture("qwen3next"), cache, "threshold:0.15", "drop:0.15",
		     (struct way){50, "token", "layer"});
}

static void test_softmax_after(void **state)
{
	static const char *const cache[] = {"2", "25%", "12"};

	(void)state;
	compare_grid(support_fixture("gpt-oss"), cache, "threshold:0.25", "drop:0.25", (struct way){7, "token", "layer"});
}

/* A pass is one event: which experts do not fit and are used once, all rows together. */
static void test_batch(void **state)
{
	static const uint32_t ubatches[] = {7, 512};
	static const char *const few[] = {"2", "25%", "12"}, *const ten[] = {"5", "25%", "100"},
				 *const tiny[] = {"4", "25%", "64"}, *const shares[] = {"3%", "25%", "70%"};

	(void)state;
	for (size_t u = 0; u < 2; u++) {
		const struct way batch = {ubatches[u], "batch", "layer"}, pool = {ubatches[u], "batch", "global"};

		compare_grid(TINYMOE, tiny, "threshold:0.15", "drop:0.15", batch);
		compare_grid(TINYMOE, shares, "threshold:0.15", "drop:0.15", pool);
		compare_grid(support_fixture("deepseek2-groups"), few, "threshold:0.25", "drop:0.25", batch);
		compare_grid(support_fixture("deepseek2-groups"), shares, "threshold:0.25", "drop:0.25", pool);
	}
	compare_grid(support_fixture("gpt-oss"), few, "threshold:0.25", "drop:0.25", (struct way){7, "batch", "layer"});
	compare_grid(support_fixture("gpt-oss"), shares, "threshold:0.25", "drop:0.25", (struct way){7, "batch", "global"});
	compare_grid(support_fixture("qwen3next"), ten, "threshold:0.15", "drop:0.15", (struct way){7, "batch", "layer"});
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
	struct gm_counters sum = {0};
	struct both both;
	char kept[192];

	(void)state;
	open_both(&both, support_fixture("deepseek2-groups"), 1, grids[4]);
	record_half(&both, kept);
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
		cmocka_unit_test(test_batch),     cmocka_unit_test(test_settings),
		cmocka_unit_test(test_reset),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
