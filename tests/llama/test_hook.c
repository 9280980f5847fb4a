/* The hook on every kind of router llama.cpp has: what it reads explains what the model does, and reading changes nothing. */
#include "tests/llama/support.h"

#include "recorder/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_TOKEN 300u

static const uint32_t ubatches[] = {512, 7, 1};

static void each_fixture(void (*test)(const struct fixture_info *info, const char *path))
{
	for (unsigned i = 0; i < GM_FIXTURE_N_RECORDABLE; i++)
		test(fixture_info(i), support_fixture(fixture_info(i)->name));
}

static void assert_clean(const struct watcher *watcher, const char *what, uint64_t n_row)
{
	const struct gm_check_result *result = gm_check_result(watcher->check);

	print_message("%-28s %6llu rows %7llu picks: %llu mismatches, %llu ties, weights within %.1e\n", what,
		      (unsigned long long)result->n_row, (unsigned long long)result->n_pick,
		      (unsigned long long)result->n_mismatch, (unsigned long long)result->n_tie, result->weight_error);
	if (result->n_mismatch || result->n_weight_mismatch)
		fail_msg("%s: %s", what, result->first);
	assert_int_equal(result->n_row, n_row);
	for (uint32_t layer = 0; layer < gm_hook_model(watcher->hook)->n_layer; layer++)
		assert_int_equal(watcher->n_row[layer], n_row / gm_hook_model(watcher->hook)->n_layer);
}

/* A whole text at once, in passes of 7, and token by token: every row comes, and explains the model's selection and weights. */
static void score(const struct fixture_info *info, const char *path)
{
	uint32_t n_layer = info->n_layer - info->n_dense_lead;
	int32_t token[N_TOKEN];

	support_tokens(token, N_TOKEN, 7);
	for (size_t i = 0; i < sizeof(ubatches) / sizeof(ubatches[0]); i++) {
		struct gm_hook_options options = support_options(ubatches[i]);
		struct gm_hook *hook = support_open(path, &options);
		struct watcher watcher;
		char what[64];

		watcher_begin(&watcher, hook);
		support_run(hook, token, N_TOKEN, NULL);
		snprintf(what, sizeof(what), "%s, ubatch %u", info->name, ubatches[i]);
		assert_clean(&watcher, what, (uint64_t)N_TOKEN * n_layer);
		watcher_end(&watcher);
		gm_hook_close(hook);
	}
}

static void test_score(void **state)
{
	(void)state;
	each_fixture(score);
}

/* A prompt, then token by token what the model says itself; twice, with a new sequence between: the same again. */
static void generate(const struct fixture_info *info, const char *path)
{
	enum { N_PROMPT = 40, N_MORE = 24 };
	struct gm_hook_options options = support_options(512);
	struct gm_hook *hook = support_open(path, &options);
	uint32_t n_layer = info->n_layer - info->n_dense_lead;
	int32_t token[N_PROMPT], said[2][N_MORE];
	struct gm_error err = {0};
	struct watcher watcher;

	support_tokens(token, N_PROMPT, 3);
	watcher_begin(&watcher, hook);
	for (int run = 0; run < 2; run++) {
		struct gm_sampler sampler = {.temperature = 1, .state = 42};

		gm_hook_begin_sequence(hook);
		support_run(hook, token, N_PROMPT, NULL);
		for (int i = 0; i < N_MORE; i++) {
			const float *output = gm_hook_output(hook, i ? 0 : N_PROMPT - 1);

			said[run][i] = gm_sample(&sampler, output, gm_hook_info(hook)->n_vocab);
			assert_ok(gm_hook_pass(hook, &said[run][i], 1, &err), &err);
		}
		assert_int_equal(gm_hook_position(hook), N_PROMPT + N_MORE);
	}
	assert_memory_equal(said[0], said[1], sizeof(said[0]));
	assert_clean(&watcher, info->name, 2 * (uint64_t)(N_PROMPT + N_MORE) * n_layer);
	watcher_end(&watcher);
	gm_hook_close(hook);
}

static void test_generate(void **state)
{
	(void)state;
	each_fixture(generate);
}

static float *outputs_of(const char *path, uint32_t n_ubatch, bool bare, const struct gm_hook_ops *ops, void *user)
{
	struct gm_hook_options options = support_options(n_ubatch);
	struct gm_hook *hook;
	int32_t token[N_TOKEN];
	float *output;

	options.bare = bare;
	hook = support_open(path, &options);
	gm_hook_set_ops(hook, ops, user);
	support_tokens(token, N_TOKEN, 11);
	output = calloc((size_t)N_TOKEN * gm_hook_info(hook)->n_vocab, sizeof(float));
	assert_non_null(output);
	support_run(hook, token, N_TOKEN, output);
	gm_hook_close(hook);
	return output;
}

/* Writes back what it read: the same routing through the other door. */
static int rewrite_topk(void *user, uint32_t layer, uint32_t first, uint32_t n, int32_t *expert, bool *changed,
			struct gm_error *err)
{
	(void)user, (void)layer, (void)first, (void)n, (void)expert, (void)err;
	*changed = true;
	return 0;
}

static int rewrite_gates(void *user, uint32_t layer, uint32_t first, uint32_t n, float *gate, bool *changed,
			 struct gm_error *err)
{
	(void)user, (void)layer, (void)first, (void)n, (void)gate, (void)err;
	*changed = true;
	return 0;
}

static int read_logits(void *user, uint32_t layer, uint32_t first, uint32_t n, const float *logits, struct gm_error *err)
{
	(void)user, (void)layer, (void)first, (void)n, (void)logits, (void)err;
	return 0;
}

/* Without an observer, with one that looks at the logits, and with one that writes everything back: bit-equal outputs. */
static void unchanged(const struct fixture_info *info, const char *path)
{
	static const struct gm_hook_ops looks = {.on_logits = read_logits};
	static const struct gm_hook_ops rewrites = {
		.on_topk = rewrite_topk, .on_weights = rewrite_gates, .on_gates = rewrite_gates};
	const size_t size = (size_t)N_TOKEN * 288 * sizeof(float);

	(void)info;
	for (size_t i = 0; i < sizeof(ubatches) / sizeof(ubatches[0]); i++) {
		float *bare = outputs_of(path, ubatches[i], true, NULL, NULL);
		float *looked = outputs_of(path, ubatches[i], false, &looks, NULL);
		float *rewritten = outputs_of(path, ubatches[i], false, &rewrites, NULL);

		assert_memory_equal(bare, looked, size);
		assert_memory_equal(bare, rewritten, size);
		free(bare);
		free(looked);
		free(rewritten);
	}
}

static void test_unchanged(void **state)
{
	(void)state;
	each_fixture(unchanged);
}

/* Puts another expert into rank 2 of token 5 in the last layer, in the first pass (rows count from there). */
struct substitution {
	uint32_t layer, n_expert, top_k;
	uint32_t n_done;
};

static int substitute(void *user, uint32_t layer, uint32_t first, uint32_t n, int32_t *expert, bool *changed,
		      struct gm_error *err)
{
	struct substitution *sub = user;
	int32_t *row = expert + (size_t)(5 - first) * sub->top_k;

	(void)err;
	if (sub->n_done || layer != sub->layer || first > 5 || first + n <= 5)
		return 0;
	for (int32_t other = 0; other < (int32_t)sub->n_expert; other++) {
		bool selected = false;

		for (uint32_t rank = 0; rank < sub->top_k; rank++)
			selected |= row[rank] == other;
		if (!selected) {
			row[1] = other;
			sub->n_done++;
			*changed = true;
			return 0;
		}
	}
	return 0;
}

/* The change reaches the output of that token, and of no other (in the last layer nothing else reads it). */
static void substituted(const struct fixture_info *info, const char *path)
{
	static const struct gm_hook_ops ops = {.on_topk = substitute};
	const size_t n_vocab = 288;

	for (size_t i = 0; i < 2; i++) {
		struct substitution sub = {info->n_layer - info->n_dense_lead - 1, info->n_expert, info->top_k, 0};
		float *plain = outputs_of(path, ubatches[i], true, NULL, NULL);
		float *changed = outputs_of(path, ubatches[i], false, &ops, &sub);

		assert_int_equal(sub.n_done, 1);
		for (uint32_t token = 0; token < N_TOKEN; token++) {
			bool equal =
				memcmp(plain + token * n_vocab, changed + token * n_vocab, n_vocab * sizeof(float)) == 0;

			assert_int_equal(equal, token != 5);
		}
		free(plain);
		free(changed);
	}
}

static void test_substituted(void **state)
{
	(void)state;
	each_fixture(substituted);
}

/* With only its first expert left (the other gates 0, no renormalisation) a token's output still differs from the full one. */
static int drop_gates(void *user, uint32_t layer, uint32_t first, uint32_t n, float *gate, bool *changed,
		      struct gm_error *err)
{
	const uint32_t *top_k = user;

	(void)layer, (void)first, (void)err;
	for (uint32_t row = 0; row < n; row++)
		for (uint32_t rank = 1; rank < *top_k; rank++)
			gate[row * *top_k + rank] = 0;
	*changed = true;
	return 0;
}

static void dropped(const struct fixture_info *info, const char *path)
{
	static const struct gm_hook_ops ops = {.on_gates = drop_gates};
	uint32_t top_k = info->top_k;
	float *plain = outputs_of(path, 512, true, NULL, NULL), *less = outputs_of(path, 512, false, &ops, &top_k);

	assert_memory_not_equal(plain, less, 288 * sizeof(float));
	free(plain);
	free(less);
}

static void test_dropped(void **state)
{
	(void)state;
	each_fixture(dropped);
}

/* --- model facts --- */

static void facts(const struct fixture_info *info, const char *path)
{
	struct gm_hook_options options = support_options(512);
	struct gm_hook *hook = support_open(path, &options);
	const struct gm_model *model = gm_hook_model(hook);
	bool groups = strcmp(info->name, "deepseek2-groups") == 0;
	/* gate, up and down of 64 x 32 float32, for gpt-oss with their biases */
	uint64_t expert_bytes = (3u * 64 * 32 + (strcmp(info->name, "gpt-oss") == 0 ? 2 * 32 + 64 : 0)) * sizeof(float);

	assert_string_equal(model->name, info->name);
	assert_int_equal(model->n_layer, info->n_layer - info->n_dense_lead);
	assert_int_equal(model->n_expert, info->n_expert);
	assert_int_equal(model->top_k, info->top_k);
	assert_int_equal(model->gating, groups ? GM_GATING_SIGMOID : GM_GATING_SOFTMAX);
	assert_int_equal(model->n_group, groups ? 4 : 0);
	assert_int_equal(model->topk_group, groups ? 2 : 0);
	assert_int_equal(model->bias != NULL, groups);
	for (uint32_t layer = 0; layer < model->n_layer; layer++) {
		assert_int_equal(gm_hook_info(hook)->model_layer[layer], layer + info->n_dense_lead);
		assert_int_equal(model->expert_bytes[layer], expert_bytes);
		assert_true(model->dense_bytes[layer] > info->n_expert * 64 * sizeof(float)); /* the router alone */
	}
	assert_int_equal(gm_hook_info(hook)->n_vocab, 288);
	assert_int_equal(gm_hook_info(hook)->softmax_after_selection, strcmp(info->name, "gpt-oss") == 0);
	assert_string_equal(gm_hook_info(hook)->expert_type, "f32");
	gm_hook_close(hook);
}

static void test_facts(void **state)
{
	(void)state;
	each_fixture(facts);
}

/* Dense bytes to the byte, by hand, for mixtral: norms 2 x 64, q and output 64 x 64, k and v 64 x 32, router 64 x 8. */
static void test_dense_bytes(void **state)
{
	struct gm_hook_options options = support_options(512);
	struct gm_hook *hook = support_open(support_fixture("mixtral"), &options);

	(void)state;
	assert_int_equal(gm_hook_model(hook)->dense_bytes[0],
			 (2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 64 * 8) * sizeof(float));
	gm_hook_close(hook);
}

/* Sizes are those of the stored type, and a quantised model's rows are explained as well. */
static void test_quantised(void **state)
{
	static const struct {
		const char *type;
		unsigned block_bytes; /* of 32 values */
	} types[] = {{"f16", 64}, {"q8_0", 34}, {"q4_0", 18}};
	struct gm_error err = {0};
	int32_t token[N_TOKEN];

	(void)state;
	support_tokens(token, N_TOKEN, 7);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		const char *path = support_path("quantised.gguf");
		struct gm_hook_options options = support_options(512);
		struct watcher watcher;
		struct gm_hook *hook;

		assert_ok(fixture_write("qwen3moe", path, 2, types[i].type, &err), &err);
		hook = support_open(path, &options);
		assert_int_equal(gm_hook_model(hook)->expert_bytes[0], 3 * 64 * types[i].block_bytes);
		assert_string_equal(gm_hook_info(hook)->expert_type, types[i].type);
		watcher_begin(&watcher, hook);
		support_run(hook, token, N_TOKEN, NULL);
		assert_clean(&watcher, types[i].type, (uint64_t)N_TOKEN * 4);
		watcher_end(&watcher);
		gm_hook_close(hook);
	}
}

/* A model in three files is the model in one. */
static void test_split(void **state)
{
	struct gm_hook_options options = support_options(512);
	struct gm_hook *whole = support_open(support_fixture("qwen3moe"), &options), *split;
	struct gm_error err = {0};

	(void)state;
	assert_ok(fixture_write_split("qwen3moe", support_path("parts"), 1, 3, &err), &err);
	split = support_open(support_path("parts-00001-of-00003.gguf"), &options);
	assert_string_equal(gm_hook_model(split)->name, "parts");
	assert_int_equal(gm_hook_model(split)->n_layer, 4);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(gm_hook_model(split)->expert_bytes[i], gm_hook_model(whole)->expert_bytes[i]);
		assert_int_equal(gm_hook_model(split)->dense_bytes[i], gm_hook_model(whole)->dense_bytes[i]);
	}
	gm_hook_close(whole);
	gm_hook_close(split);
	assert_null(gm_hook_open(support_path("parts-00002-of-00003.gguf"), &options, &err));
	assert_int_equal(err.code, GM_ERR_USAGE);
	print_message("%s\n", err.text);
	memset(&err, 0, sizeof(err));
	assert_int_equal(remove(support_path("parts-00003-of-00003.gguf")), 0);
	assert_null(gm_hook_open(support_path("parts-00001-of-00003.gguf"), &options, &err));
	assert_int_equal(err.code, GM_ERR_IO);
	print_message("%s\n", err.text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_score),       cmocka_unit_test(test_generate),  cmocka_unit_test(test_unchanged),
		cmocka_unit_test(test_substituted), cmocka_unit_test(test_dropped),   cmocka_unit_test(test_facts),
		cmocka_unit_test(test_dense_bytes), cmocka_unit_test(test_quantised), cmocka_unit_test(test_split),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
