/* What cannot be recorded is refused with a message that says why; wrong use is an error, never a crash. */
#include "tests/llama/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void assert_refused(const char *path, const struct gm_hook_options *options, int code, const char *message)
{
	struct gm_error err = {0};
	struct gm_hook *hook = gm_hook_open(path, options, &err);

	if (hook)
		fail_msg("%s: must be refused", path);
	if (err.code != code || !strstr(err.text, message))
		fail_msg("%s: error %d, \"%s\": must be %d, \"%s\"", path, err.code, err.text, code, message);
}

static void write_file(const char *path, const char *data, size_t size)
{
	FILE *stream = fopen(path, "wb");

	assert_non_null(stream);
	assert_int_equal(fwrite(data, 1, size, stream), size);
	assert_int_equal(fclose(stream), 0);
}

static void test_files(void **state)
{
	struct gm_hook_options options = support_options(512);
	static char head[4096];
	FILE *whole = fopen(support_fixture("qwen3moe"), "rb");

	(void)state;
	assert_non_null(whole);
	assert_int_equal(fread(head, 1, sizeof(head), whole), sizeof(head));
	fclose(whole);
	write_file(support_path("text.gguf"), "this is no model", 16);
	write_file(support_path("empty.gguf"), "", 0);
	write_file(support_path("cut.gguf"), head, sizeof(head));
	write_file(support_path("magic.gguf"), head, 4);

	assert_refused(support_path("missing.gguf"), &options, GM_ERR_IO, "No such file");
	assert_refused(support_path(""), &options, GM_ERR_IO, "not a file");
	assert_refused(support_path("text.gguf"), &options, GM_ERR_FORMAT, "not a GGUF");
	assert_refused(support_path("empty.gguf"), &options, GM_ERR_FORMAT, "not a GGUF");
	assert_refused(support_path("magic.gguf"), &options, GM_ERR_FORMAT, "damaged or cut off");
	assert_refused(support_path("cut.gguf"), &options, GM_ERR_FORMAT, "damaged or cut off");
}

/* The header is whole, weights are missing: llama.cpp finds it, and what it says is passed on. */
static void test_cut_weights(void **state)
{
	struct gm_hook_options options = support_options(512);
	const char *path = support_path("short.gguf");
	struct gm_error err = {0};

	(void)state;
	assert_ok(fixture_write("mixtral", path, 1, NULL, &err), &err);
	assert_int_equal(truncate(path, 300000), 0);
	assert_refused(path, &options, GM_ERR_FORMAT, "llama.cpp says: ");
}

static void test_models(void **state)
{
	struct gm_hook_options options = support_options(512);

	(void)state;
	assert_refused(support_fixture("dense"), &options, GM_ERR_UNSUPPORTED, "no MoE layers");
	assert_refused(support_fixture("softplus"), &options, GM_ERR_UNSUPPORTED, "neither softmax nor sigmoid");
}

/* A model that is not understood can still be asked what its router offers. */
static void test_list_tensors(void **state)
{
	struct gm_hook_options options = support_options(512);
	char *text = NULL;
	size_t size = 0;

	(void)state;
	options.list_tensors = open_memstream(&text, &size);
	assert_non_null(options.list_tensors);
	assert_refused(support_fixture("softplus"), &options, GM_ERR_UNSUPPORTED, "--list-tensors");
	fclose(options.list_tensors);
	assert_non_null(strstr(text, "ffn_moe_logits-1 "));
	assert_non_null(strstr(text, "ffn_moe_topk-3 "));
	assert_null(strstr(text, "ffn_moe_logits-0 "));
	free(text);
}

static void test_options(void **state)
{
	const char *path = support_fixture("mixtral");
	struct gm_hook_options options = support_options(512);
	struct gm_hook *hook;

	(void)state;
	options.override_tensor = "exps=NOWHERE";
	assert_refused(path, &options, GM_ERR_USAGE,
		       "no such buffer type here: --override-tensor NOWHERE: must be one of CPU");
	options.override_tensor = "exps";
	assert_refused(path, &options, GM_ERR_USAGE, "must be REGEX=BUFFER");
	options.override_tensor = "blk\\.0\\.ffn_up_exps=CPU,blk\\.1=CPU";
	options.n_cpu_moe = 2;
	hook = support_open(path, &options);
	gm_hook_close(hook);
	options.cpu_moe = true;
	hook = support_open(path, &options);
	gm_hook_close(hook);
	options = support_options(100000);
	assert_refused(path, &options, GM_ERR_USAGE, "out of bounds");
}

static void test_passes(void **state)
{
	struct gm_hook_options options = support_options(200);
	struct gm_hook *hook = support_open(support_fixture("mixtral"), &options);
	int32_t token[201] = {0}, beyond = 288, negative = -1;
	struct gm_error err[6] = {{0}};

	(void)state;
	assert_int_equal(gm_hook_pass(hook, token, 0, &err[0]), GM_ERR_USAGE);
	assert_int_equal(gm_hook_pass(hook, token, 201, &err[1]), GM_ERR_USAGE);
	assert_int_equal(gm_hook_pass(hook, &beyond, 1, &err[2]), GM_ERR_USAGE);
	assert_int_equal(gm_hook_pass(hook, &negative, 1, &err[3]), GM_ERR_USAGE);
	assert_ok(gm_hook_pass(hook, token, 200, &err[4]), &err[4]);
	assert_ok(gm_hook_pass(hook, token, 200, &err[4]), &err[4]);
	assert_ok(gm_hook_pass(hook, token, 112, &err[4]), &err[4]);
	assert_int_equal(gm_hook_pass(hook, token, 1, &err[5]), GM_ERR_USAGE);
	assert_non_null(strstr(err[5].text, "513 tokens: the context holds 512"));
	gm_hook_begin_sequence(hook);
	assert_ok(gm_hook_pass(hook, token, 1, &err[4]), &err[4]);
	gm_hook_close(hook);
}

static int bad_expert(void *user, uint32_t layer, uint32_t first, uint32_t n, int32_t *expert, bool *changed,
		      struct gm_error *err)
{
	(void)layer, (void)first, (void)n, (void)err;
	expert[0] = *(int32_t *)user;
	*changed = true;
	return 0;
}

static int failing(void *user, uint32_t layer, uint32_t first, uint32_t n, const float *logits, struct gm_error *err)
{
	(void)user, (void)first, (void)n, (void)logits;
	return layer == 2 ? gm_fail(err, GM_ERR_IO, "disk full at layer %u", layer) : 0;
}

/* What an op does wrong ends the pass with its message; the hook goes on working after it. */
static void test_ops(void **state)
{
	static const struct gm_hook_ops bad = {.on_topk = bad_expert}, fails = {.on_logits = failing};
	struct gm_hook_options options = support_options(512);
	struct gm_hook *hook = support_open(support_fixture("mixtral"), &options);
	struct gm_error err[3] = {{0}};
	int32_t token[3] = {1, 2, 3}, id = 8;

	(void)state;
	gm_hook_set_ops(hook, &bad, &id);
	assert_int_equal(gm_hook_pass(hook, token, 3, &err[0]), GM_ERR_USAGE);
	assert_non_null(strstr(err[0].text, "expert 8 was put in: layer 0: there are 8"));
	gm_hook_begin_sequence(hook);
	gm_hook_set_ops(hook, &fails, NULL);
	assert_int_equal(gm_hook_pass(hook, token, 3, &err[1]), GM_ERR_IO);
	assert_string_equal(err[1].text, "disk full at layer 2");
	gm_hook_begin_sequence(hook);
	gm_hook_set_ops(hook, NULL, NULL);
	assert_ok(gm_hook_pass(hook, token, 3, &err[2]), &err[2]);
	gm_hook_close(hook);
}

static void test_tokenize(void **state)
{
	static const char text[] = "a\xc3\xa4\n\0b<x1>";
	struct gm_hook_options options = support_options(512);
	struct gm_hook *hook = support_open(support_fixture("mixtral"), &options);
	struct gm_error err = {0};
	char back[64];
	int32_t *token;
	size_t n, used = 0;

	(void)state;
	assert_ok(gm_hook_tokenize(hook, text, 0, false, &token, &n, &err), &err);
	assert_int_equal(n, 0);
	free(token);
	assert_ok(gm_hook_tokenize(hook, text, sizeof(text) - 1, false, &token, &n, &err), &err);
	assert_int_equal(n, sizeof(text) - 1); /* bytes, one by one */
	for (size_t i = 0; i < n; i++)
		used += gm_hook_token_text(hook, token[i], back + used, sizeof(back) - used);
	assert_int_equal(used, sizeof(text) - 1);
	assert_memory_equal(back, text, used);
	free(token);
	assert_ok(gm_hook_tokenize(hook, text, sizeof(text) - 1, true, &token, &n, &err), &err);
	assert_int_equal(n, sizeof(text) - 1 - 3);
	assert_int_equal(token[n - 1], 257);
	assert_true(gm_hook_is_end(hook, 257));
	assert_false(gm_hook_is_end(hook, 5));
	free(token);
	gm_hook_close(hook);
}

static void test_describe(void **state)
{
	char text[2048], small[8];

	(void)state;
	print_message("%s", gm_hook_describe_library(text, sizeof(text), false));
	assert_non_null(strstr(text, "llama.cpp "));
	assert_non_null(strstr(text, "CPU: "));
	assert_string_equal(gm_hook_describe_library(small, sizeof(small), false), "llama.c");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),        cmocka_unit_test(test_cut_weights), cmocka_unit_test(test_models),
		cmocka_unit_test(test_list_tensors), cmocka_unit_test(test_options),     cmocka_unit_test(test_passes),
		cmocka_unit_test(test_ops),          cmocka_unit_test(test_tokenize),    cmocka_unit_test(test_describe),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
