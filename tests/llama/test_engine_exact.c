/* With every miss fetched the engine computes what llama.cpp computes by itself, bit for bit: all architectures, types, evictions, cache
 * sizes and sizes of a pass. */
#include "tests/llama/engine_support.h"

#include "tests/fixtures/quantize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 60 };

static const struct gm_cache_options at_once,
	beside = {.beside = true, .throttle = {.latency_us = 100}}; /* copies are under way while experts are computed */
static const char *const evicts[] = {"lru", "fifo", "lfu", "lfu-decay:16"};
#define N_EVICT ((unsigned)(sizeof(evicts) / sizeof(*evicts)))

/* Output logits [n][n_vocab] without a cache. */
static float *stock(const char *path, uint32_t n_ubatch, const int32_t *token, uint32_t n)
{
	struct gm_hook_options options = support_options(n_ubatch);
	struct gm_hook *hook = support_open(path, &options);
	float *output = calloc((size_t)n * gm_hook_info(hook)->n_vocab, sizeof(*output));

	assert_non_null(output);
	support_run(hook, token, n, output);
	gm_hook_close(hook);
	return output;
}

static void check(struct engined *run, const char *const *option, const struct gm_cache_options *options,
		  const int32_t *token, uint32_t n, const float *expected, struct gm_counters *sum)
{
	size_t n_value = (size_t)n * gm_hook_info(run->hook)->n_vocab;
	float *output = calloc(n_value, sizeof(*output));
	struct gm_error err = {0};
	struct gm_engine_stats stats;
	const struct gm_model *model = gm_hook_model(run->hook);
	uint64_t n_pick = (uint64_t)n * model->n_layer * model->top_k;
	struct gm_counters count;
	char what[256];

	assert_non_null(output);
	assert_ok(engined_with(run, option, options, &err), &err);
	assert_ok(engined_run(run, token, n, output, &err), &err);
	for (size_t i = 0; i < n_value; i++)
		if (memcmp(&output[i], &expected[i], sizeof(float)) != 0)
			fail_msg("%s, %s, passes of %u: value %zu of token %zu: %.9g is %.9g without a cache",
				 gm_hook_model(run->hook)->name,
				 gm_settings_describe(gm_cache_settings(run->cache), what, sizeof(what)),
				 gm_hook_info(run->hook)->n_ubatch, i % gm_hook_info(run->hook)->n_vocab,
				 i / gm_hook_info(run->hook)->n_vocab, (double)output[i], (double)expected[i]);
	count = engined_counters(run);
	gm_counters_add(sum, &count);
	if (gm_cache_settings(run->cache)->prefill == GM_PREFILL_TOKEN || gm_hook_info(run->hook)->n_ubatch == 1)
		assert_int_equal(count.accesses, n_pick);
	else /* an expert once an event */
		assert_true(count.accesses < n_pick);
	assert_int_equal(count.fetches, count.accesses - count.hits);
	/* what was counted was copied, and nothing else (gpt-oss counts biases, which are no part of a slot) */
	gm_cache_stats(run->cache, &stats);
	if (strcmp(gm_hook_info(run->hook)->architecture, "gpt-oss") == 0)
		assert_true(stats.copied_bytes >= count.link_bytes / 2 && stats.copied_bytes <= count.link_bytes);
	else
		assert_int_equal(stats.copied_bytes, count.link_bytes);
	free(output);
}

/* From one slot a layer over as many as a token has experts to all. */
static void check_sizes(struct engined *run, const char *prefill, const int32_t *token, uint32_t n, const float *expected,
			struct gm_counters *sum)
{
	uint32_t n_expert = gm_hook_model(run->hook)->n_expert, top_k = gm_hook_model(run->hook)->top_k;
	const uint32_t sizes[] = {1, top_k, (top_k + n_expert) / 2, n_expert};
	char text[16];

	for (size_t e = 0; e < N_EVICT; e++)
		for (size_t c = 0; c < sizeof(sizes) / sizeof(*sizes); c++) {
			const char *const option[] = {"cache", text, "evict", evicts[e], "prefill", prefill, NULL};

			snprintf(text, sizeof(text), "%u", sizes[c]);
			check(run, option, &at_once, token, n, expected, sum);
		}
}

/* The same as a share of the pool of all layers, which keeps a token's experts of one layer at least. */
static void check_pool(struct engined *run, const char *prefill, const int32_t *token, uint32_t n, const float *expected,
		       struct gm_counters *sum)
{
	static const char *const shares[] = {"20%", "60%"};

	for (size_t e = 0; e < N_EVICT; e++)
		for (size_t c = 0; c < sizeof(shares) / sizeof(*shares); c++) {
			const char *const option[] = {"cache",   shares[c], "cache-scope", "global", "evict",
						      evicts[e], "prefill", prefill,       NULL};

			check(run, option, &at_once, token, n, expected, sum);
		}
}

/* Tokens one by one, or passes as one event. */
static unsigned check_passes(const char *path, uint32_t n_ubatch, const char *prefill, const int32_t *token,
			     struct gm_counters *sum)
{
	const char *const all[] = {"evict", "nop", "prefill", prefill, NULL},
			  *const half[] = {"cache", "50%", "prefill", prefill, NULL},
			  *const few[] = {"cache", "2", "prefill", prefill, NULL}, *const pool[] = {"cache",       "40%",
												    "cache-scope", "global",
												    "prefill",     prefill,
												    NULL};
	struct gm_hook_options options = support_options(n_ubatch);
	bool has_pool = n_ubatch == 1 || strcmp(prefill, "batch") == 0;
	float *expected = stock(path, n_ubatch, token, N);
	struct engined run;

	engined_open(&run, path, &options, all);
	check_sizes(&run, prefill, token, N, expected, sum);
	check(&run, all, &at_once, token, N, expected, sum);
	check(&run, half, &beside, token, N, expected, sum);
	check(&run, few, &beside, token, N, expected, sum);
	if (has_pool) {
		check_pool(&run, prefill, token, N, expected, sum);
		check(&run, pool, &beside, token, N, expected, sum);
	}
	engined_close(&run);
	free(expected);
	return N_EVICT * (has_pool ? 6 : 4) + 3 + has_pool;
}

static void check_model(const char *path, uint64_t seed)
{
	static const uint32_t ubatches[] = {1, 7, 512};
	struct gm_counters sum = {0};
	unsigned n_setting = 0;
	int32_t token[N];

	support_tokens(token, N, seed);
	for (size_t u = 0; u < sizeof(ubatches) / sizeof(*ubatches); u++) {
		n_setting += check_passes(path, ubatches[u], "token", token, &sum);
		if (ubatches[u] > 1)
			n_setting += check_passes(path, ubatches[u], "batch", token, &sum);
	}
	print_message("%s: bit-equal in %u settings: %llu hits, %llu fetches, %llu bypasses, %llu evictions\n", path,
		      n_setting, (unsigned long long)sum.hits, (unsigned long long)sum.fetches,
		      (unsigned long long)sum.bypasses, (unsigned long long)sum.evictions);
	assert_true(sum.hits && sum.fetches && sum.bypasses && sum.evictions);
}

static void test_architectures(void **state)
{
	(void)state;
	for (unsigned i = 0; i < GM_FIXTURE_N_RECORDABLE; i++)
		check_model(support_fixture(fixture_info(i)->name), i);
}

static void test_types(void **state)
{
	static const char *const types[] = {"f16", "q8_0", "q4_0"};
	struct gm_error err = {0};

	(void)state;
	for (unsigned i = 0; i < GM_FIXTURE_N_RECORDABLE; i++)
		for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++) {
			const char *path = support_path("typed.gguf");

			assert_ok(fixture_write(fixture_info(i)->name, path, 2, types[t], &err), &err);
			print_message("%s %s: ", fixture_info(i)->name, types[t]);
			check_model(path, i);
		}
}

static void test_tinymoe(void **state)
{
	(void)state;
	check_model(TINYMOE, 11);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_architectures),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_tinymoe),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
