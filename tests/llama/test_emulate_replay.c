/* What the emulator counted is what `sim` counts on the router's logits that the emulator saw. */
#include "tests/llama/emulate_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void compare(struct gm_hook *hook, const struct gm_texts *texts, struct gm_emulate_options options,
		    const char *const *option, struct gm_counters *sum)
{
	uint32_t n_layer = gm_hook_model(hook)->n_layer;
	struct gm_tally layer[64], total, expected;
	struct emulated run;
	char what[512];

	assert_true(n_layer <= 64);
	options.record = support_path("emulated.gmt");
	emulated_run(&run, hook, texts, &options, option);
	gm_settings_describe(run.settings, what, sizeof(what));
	total = emulated_total(&run, 0);
	expected = replayed(options.record, run.settings, run.preloads, NULL, layer, n_layer);
	assert_int_equal(total.tokens, expected.tokens);
	assert_equal_counters(&total.count, &expected.count, what);
	for (uint32_t l = 0; l < n_layer; l++)
		assert_equal_counters(&emulated_point(&run, 0)->account.layer[l].count, &layer[l].count, what);
	gm_counters_add(sum, &total.count);
	emulated_free(&run);
}

/* Miss rules by eviction by cache size, the admission in turn: 56 policies; weights in turn as well. */
static void compare_grid(const char *path, const char *const cache[2], const char *threshold, const char *drop,
			 uint32_t n_text, uint32_t length, uint32_t n_ubatch)
{
	const char *const misses[] = {"fetch", threshold, "first-choice", "substitute", drop, "cpu", "compose:random:0.2"};
	static const char *const evicts[] = {"lru", "fifo", "lfu", "lfu-decay:16"}, *const admits[] = {"fetch",
												       "background:0.5"};
	struct gm_hook_options hook_options = support_options(n_ubatch);
	struct gm_hook *hook = support_open(path, &hook_options);
	struct gm_texts texts = support_texts(n_text, length, 3);
	struct gm_counters sum = {0};
	unsigned n = 0;

	for (size_t m = 0; m < sizeof(misses) / sizeof(*misses); m++)
		for (size_t e = 0; e < 4; e++)
			for (size_t c = 0; c < 2; c++, n++) {
				const char *const option[] = {"cache", cache[c],  "evict", evicts[e],
							      "miss",  misses[m], "admit", admits[(e + c) % 2],
							      NULL};

				compare(hook, &texts,
					emulate_options(n % 3 ? GM_SUBSTITUTE_OWN : GM_SUBSTITUTE_MISSED,
							n % 2 ? GM_DROP_RENORMALISE : GM_DROP_KEEP),
					option, &sum);
			}
	print_message("%s: %u policies, together %llu hits, %llu fetches, %llu substitutions, %llu fallbacks, %llu drops, "
		      "%llu background copies, %llu evictions\n",
		      gm_hook_model(hook)->name, n, (unsigned long long)sum.hits, (unsigned long long)sum.fetches,
		      (unsigned long long)sum.substitutions, (unsigned long long)sum.substitute_fallbacks,
		      (unsigned long long)sum.drops, (unsigned long long)sum.background_copies,
		      (unsigned long long)sum.evictions);
	assert_true(n >= 40 && sum.hits && sum.substitutions && sum.drops && sum.background_copies && sum.evictions);
	gm_texts_free(&texts);
	gm_hook_close(hook);
}

static void test_tinymoe(void **state)
{
	static const char *const cache[] = {"25%", "64"};

	(void)state;
	compare_grid(TINYMOE, cache, "threshold:0.15", "drop:0.15", 3, 100, 64);
}

static void test_sigmoid_groups(void **state)
{
	static const char *const cache[] = {"25%", "12"};

	(void)state;
	compare_grid(support_fixture("deepseek2-groups"), cache, "threshold:0.25", "drop:0.25", 3, 60, 64);
}

static void test_512_of_10(void **state)
{
	static const char *const cache[] = {"25%", "16"};

	(void)state;
	compare_grid(support_fixture("qwen3next"), cache, "threshold:0.15", "drop:0.15", 2, 60, 64);
}

/* Everything else that settings may ask for. */
static void test_settings(void **state)
{
	static const char *const grids[][16] = {
		{"cache", "25%", "policy", "quality-first", "reset-per-sequence", "", NULL},
		{"cache", "25%", "policy", "quality-first", "warmup", "77", NULL},
		{"cache", "25%", "policy", "rule-0.15", "prefill", "batch", NULL},
		{"cache", "12", "miss", "drop:0.2", "evict", "lfu", "prefill", "batch", "warmup", "33", NULL},
		{"cache", "12", "policy", "speed-first", "prefill", "batch", "cache-scope", "layer", NULL},
		{"cache", "40%", "cache-scope", "global", "policy", "quality-first", "prefill", "batch", NULL},
		{"policy", "stock-ncmoe:1", NULL},
		{"miss", "substitute", "evict", "nop", NULL},
		{"cache", "25%", "policy", "substitute-all", "preload", "", NULL},
		{"cache", "25%", "policy", "speed-first", "preload", "", "reset-per-sequence", "", NULL},
	};
	struct gm_hook_options hook_options = support_options(50);
	struct gm_hook *hook = support_open(support_fixture("deepseek2-groups"), &hook_options);
	struct gm_texts texts = support_texts(3, 60, 5), others = support_texts(1, 100, 6);
	struct gm_emulate_options options = emulate_options(GM_SUBSTITUTE_OWN, GM_DROP_RENORMALISE);
	struct gm_counters sum = {0};
	struct emulated run;
	char preload[192];

	(void)state;
	snprintf(preload, sizeof(preload), "%s", support_path("preload.gmt"));
	options.record = preload;
	emulated_run(&run, hook, &others, &options, grids[6]);
	emulated_free(&run);
	for (size_t g = 0; g < sizeof(grids) / sizeof(*grids); g++) {
		const char *option[16] = {NULL};

		for (size_t i = 0; grids[g][i]; i++)
			option[i] = i > 0 && strcmp(grids[g][i - 1], "preload") == 0 ? preload : grids[g][i];
		compare(hook, &texts, options, option, &sum);
	}
	gm_hook_close(hook);

	/* one token a pass: one pool for all layers */
	hook_options = support_options(1);
	hook = support_open(support_fixture("deepseek2-groups"), &hook_options);
	for (int i = 0; i < 2; i++) {
		const char *option[] = {
			"cache", "30%", "cache-scope", "global", "policy", i ? "quality-first" : "substitute-all", NULL};

		compare(hook, &texts, options, option, &sum);
	}
	gm_texts_free(&texts);
	gm_texts_free(&others);
	gm_hook_close(hook);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tinymoe),
		cmocka_unit_test(test_sigmoid_groups),
		cmocka_unit_test(test_512_of_10),
		cmocka_unit_test(test_settings),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
