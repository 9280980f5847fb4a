/* Experts that stay in the model's file: the same outputs, and clear errors where the file ends too early. */
#include "tests/llama/engine_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N = 40 };

static void compare(struct gm_plugin_options plugin, const char *path, uint32_t n_ubatch, bool beside, const char *prefill)
{
	const char *const option[] = {"cache", "25%", "evict", "lfu", "prefill", prefill, NULL};
	const struct gm_cache_options cache = {.beside = beside};
	struct gm_hook_options options = support_options(n_ubatch);
	struct gm_hook *stock = support_open(path, &options);
	size_t n = (size_t)N * gm_hook_info(stock)->n_vocab;
	float *expected = calloc(n, sizeof(*expected)), *output = calloc(n, sizeof(*output));
	struct gm_engine_stats stats, before;
	struct gm_error err = {0};
	struct engined run;
	int32_t token[N];

	assert_true(expected && output);
	support_tokens(token, N, 3);
	support_run(stock, token, N, expected);
	gm_hook_close(stock);
	assert_ok(engined_from(&run, plugin, path, &options, option, &err), &err);
	assert_ok(engined_with(&run, option, &cache, &err), &err);
	gm_cache_stats(run.cache, &before);
	assert_ok(engined_run(&run, token, N, output, &err), &err);
	assert_memory_equal(output, expected, n * sizeof(*output));
	gm_cache_stats(run.cache, &stats);
	gm_engine_stats_since(&stats, &before);
	assert_true(stats.evictions > 0 && stats.read_bytes > 0);
	if (!plugin.host_bytes) /* an expert is read once for all of its tensors, in the parts of a prompt too */
		assert_int_equal(stats.n_read, stats.fetches);
	engined_close(&run);
	free(expected);
	free(output);
}

static void test_exact(void **state)
{
	static const struct gm_plugin_options plugins[] = {
		{.experts = GM_EXPERT_STORE_MMAP},
		{.experts = GM_EXPERT_STORE_READ},
		{.experts = GM_EXPERT_STORE_READ, .host_bytes = 500000},
	};
	struct gm_error err = {0};

	(void)state;
	for (size_t p = 0; p < 3; p++)
		for (int beside = 0; beside < 2; beside++) {
			compare(plugins[p], support_fixture("qwen3moe"), 1, beside, "token");
			compare(plugins[p], support_fixture("deepseek2-groups"), 16, beside, "token");
			compare(plugins[p], TINYMOE, 16, beside, "token");
			compare(plugins[p], TINYMOE, 16, beside, "batch");
		}
	assert_ok(fixture_write_split("mixtral", support_path("parts"), 1, 3, &err), &err);
	compare(plugins[1], support_path("parts-00001-of-00003.gguf"), 16, true, "token");
	assert_ok(fixture_write("gpt-oss", support_path("typed.gguf"), 1, "q4_0", &err), &err);
	compare(plugins[1], support_path("typed.gguf"), 16, false, "token");
	compare(plugins[2], support_path("typed.gguf"), 16, true, "token");
	compare(plugins[2], support_path("typed.gguf"), 16, true, "batch");
}

/* A file that is cut off while it is in use (olmoe's ends with experts, the rest of it is mapped by llama.cpp): the pass that needs what is gone
 * fails, and all that follow. */
static void test_file_gets_short(void **state)
{
	static const struct gm_plugin_options plugin = {.experts = GM_EXPERT_STORE_READ};
	const char *path = support_path("short.gguf");
	struct gm_hook_options options = support_options(8);
	struct gm_error err = {0};
	struct engined run;
	struct stat status;
	int32_t token[N];
	float logprob;

	(void)state;
	support_tokens(token, N, 3);
	for (int kind = 0; kind < 4; kind++) {
		const char *const option[] = {"cache", "2", "prefill", kind / 2 ? "batch" : "token", NULL};
		const struct gm_cache_options cache = {.beside = kind % 2};

		assert_ok(fixture_write("olmoe", path, 1, NULL, &err), &err);
		assert_int_equal(stat(path, &status), 0);
		assert_ok(engined_from(&run, plugin, path, &options, option, &err), &err);
		assert_ok(engined_with(&run, option, &cache, &err), &err);
		assert_ok(engined_run(&run, token, 8, NULL, &err), &err);
		assert_int_equal(truncate(path, status.st_size - 80000), 0);
		assert_int_equal(engined_run(&run, token, N, NULL, &err), GM_ERR_FORMAT);
		if (!strstr(err.text, "short.gguf"))
			fail_msg("%s", err.text);
		memset(&err, 0, sizeof(err));
		assert_int_equal(gm_cache_pass(run.cache, token, 1, &logprob, &err), GM_ERR_FORMAT);
		memset(&err, 0, sizeof(err));
		engined_close(&run);
	}
}

/* A file that is too short from the start is refused before anything is loaded. */
static void test_file_is_short(void **state)
{
	static const struct gm_plugin_options kinds[] = {
		{.experts = GM_EXPERT_STORE_READ}, {.experts = GM_EXPERT_STORE_MMAP}, {0}};
	const char *const option[] = {"cache", "2", NULL};
	const char *path = support_path("short.gguf");
	struct gm_hook_options options = support_options(8);
	struct gm_error err = {0};
	struct engined run;

	(void)state;
	assert_ok(fixture_write("qwen3moe", path, 1, NULL, &err), &err);
	assert_int_equal(truncate(path, 200000), 0);
	for (size_t k = 0; k < 3; k++) {
		assert_int_equal(engined_from(&run, kinds[k], path, &options, option, &err), GM_ERR_FORMAT);
		if (!strstr(err.text, "short.gguf"))
			fail_msg("%s", err.text);
		engined_close(&run);
		memset(&err, 0, sizeof(err));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_file_gets_short),
		cmocka_unit_test(test_file_is_short),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
