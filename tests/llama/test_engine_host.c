/* The engine for other programs: the example host with the shared library, and the library as ggml loads it. */
#include "tests/llama/support.h"

#include <ggml-backend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static const char *build_folder(void)
{
	const char *build = getenv("GM_BUILD");

	return build ? build : "build";
}

/* Runs a shell command; its output, without what it says on stderr unless asked for there. */
static int run(const char *command, char *output, size_t size)
{
	FILE *stream = popen(command, "r");
	size_t n;

	assert_non_null(stream);
	n = fread(output, 1, size - 1, stream);
	output[n] = 0;
	return WEXITSTATUS(pclose(stream));
}

static void run_host(const char *cache, const char *policy, char *output, size_t size)
{
	char command[1024];

	snprintf(command, sizeof(command), "%s/tests/host %s 'Once upon a time' '--cache %s --policy %s' 2>/dev/null",
		 build_folder(), TINYMOE, cache, policy);
	assert_int_equal(run(command, output, size), 0);
}

static char *last_line(char *text)
{
	char *end = strrchr(text, '\n'), *line;

	assert_non_null(end);
	*end = 0;
	line = strrchr(text, '\n');
	assert_non_null(line);
	*line = 0;
	return line + 1;
}

static void test_host(void **state)
{
	char all[4096], quarter[4096], rule[4096], pool[4096], batch[4096], mine[4096], command[1024];

	(void)state;
	run_host("128", "fetch-all", all, sizeof(all));
	run_host("25%", "fetch-all", quarter, sizeof(quarter));
	run_host("25%", "rule-0.15", rule, sizeof(rule));
	run_host("25%", "speed-first", mine, sizeof(mine)); /* ends while copies are under way */
	assert_non_null(strstr(last_line(mine), "of experts were in a slot"));
	run_host("25% --cache-scope global", "fetch-all", pool, sizeof(pool)); /* the prompt's tokens come one by one */
	assert_non_null(strstr(last_line(pool), "of experts were in a slot"));
	run_host("25% --cache-scope global --prefill batch", "fetch-all", batch,
		 sizeof(batch)); /* the prompt is one event */
	assert_non_null(strstr(last_line(batch), "of experts were in a slot"));
	print_message("%s%s%s", all, quarter, rule);
	assert_non_null(strstr(last_line(all), "of experts were in a slot"));
	assert_string_not_equal(last_line(quarter), last_line(rule));
	assert_string_equal(all, quarter); /* the text is the model's own */
	assert_string_equal(all, pool);
	assert_string_equal(all, batch);
	assert_string_not_equal(all, rule);
	snprintf(command, sizeof(command),
		 "%s/bin/engine run -m %s -p 'Once upon a time' -n 32 -t 1 -q --policy rule-0.15 --cache 25%%",
		 build_folder(), TINYMOE);
	assert_int_equal(run(command, mine, sizeof(mine)), 0);
	assert_int_equal(strncmp(mine, rule, strlen(rule)), 0);
}

static void test_host_errors(void **state)
{
	static const struct {
		const char *arguments, *words;
	} cases[] = {
		{"", "usage: host"},
		{"nofile.gguf a ''", "cannot read: nofile.gguf"},
		{TINYMOE " a '--cache 25% --policy nothing'", "nothing"},
		{TINYMOE " a '--cache 1GiB --policy fetch-everything'", "fetch-everything"},
		{TINYMOE " a '--cache 25% --policy stock-ncmoe:2'", "stock-ncmoe"},
		{TINYMOE " a 'cache 25%'", "no such policy option: cache"},
		{TINYMOE " a '--cache'", "--cache"},
		{TINYMOE " a '--cachet 25%'", "no such policy option: --cachet"},
	};
	char command[1024], output[4096];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(command, sizeof(command), "%s/tests/host %s 2>&1", build_folder(), cases[i].arguments);
		assert_int_equal(run(command, output, sizeof(output)), 2);
		if (!strstr(output, cases[i].words))
			fail_msg("%s: %s", cases[i].arguments, output);
	}
}

static void test_library(void **state)
{
	char path[512];
	ggml_backend_reg_t registry;

	(void)state;
	gm_hook_load_library();
	snprintf(path, sizeof(path), "%s/lib/libgatemass-engine.so", build_folder());
	registry = ggml_backend_load(path);
	assert_non_null(registry);
	assert_string_equal(ggml_backend_reg_name(registry), "gatemass");
	assert_int_equal(ggml_backend_reg_dev_count(registry), 1);
	assert_int_equal(ggml_backend_dev_type(ggml_backend_reg_dev_get(registry, 0)), GGML_BACKEND_DEVICE_TYPE_ACCEL);
	assert_string_equal(ggml_backend_dev_name(ggml_backend_reg_dev_get(registry, 0)), "gatemass-CPU");
	/* models without an engine are none the worse for it */
	struct gm_hook_options options = support_options(8);
	struct gm_hook *hook = support_open(support_fixture("qwen3moe"), &options);
	int32_t token[20];

	support_tokens(token, 20, 1);
	support_run(hook, token, 20, NULL);
	gm_hook_close(hook);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host),
		cmocka_unit_test(test_host_errors),
		cmocka_unit_test(test_library),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
