/* The hook on a trained model, against an independent implementation's numbers (tests/tinymoe/README.md says how close). */
#include "tests/llama/support.h"

#include "base/file.h"
#include "base/json.h"
#include "recorder/logprob.h"
#include "recorder/record.h"
#include "tests/fixtures/pad.h"
#include "tests/fixtures/quantize.h"
#include "traces/select.h"
#include "traces/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKEN 256u

static struct gm_json *read_json(const char *path)
{
	struct gm_error err = {0};
	struct gm_json *json = gm_json_parse_file(path, &err);

	if (!json)
		fail_msg("%s", err.text);
	return json;
}

static uint32_t read_tokens(const struct gm_json *text, int32_t token[MAX_TOKEN])
{
	uint32_t n = 0;

	for (const struct gm_json *id = gm_json_first(gm_json_get(text, "tokens")); id; id = gm_json_next(id)) {
		assert_true(n < MAX_TOKEN);
		token[n++] = (int32_t)gm_json_value(id);
	}
	return n;
}

/* Sum of -ln p over the tokens after the first. */
static double nll_of(struct gm_hook *hook, const int32_t *token, uint32_t n)
{
	const uint32_t n_vocab = gm_hook_info(hook)->n_vocab;
	float *output = calloc((size_t)n * n_vocab, sizeof(float));
	double sum = 0;

	assert_non_null(output);
	gm_hook_begin_sequence(hook);
	support_run(hook, token, n, output);
	for (uint32_t i = 1; i < n; i++)
		sum -= (double)gm_logprob(output + (size_t)(i - 1) * n_vocab, n_vocab, token[i]);
	free(output);
	return sum;
}

static void test_nll(void **state)
{
	struct gm_hook_options options = support_options(512);
	struct gm_hook *hook = support_open(TINYMOE, &options);
	struct gm_json *reference = read_json("tests/tinymoe/nll.json");
	double sum = 0, expected_sum = 0, worst = 0;
	struct watcher watcher;
	uint32_t n_token = 0;

	(void)state;
	watcher_begin(&watcher, hook);
	for (const struct gm_json *text = gm_json_first(reference); text; text = gm_json_next(text)) {
		int32_t token[MAX_TOKEN];
		uint32_t n = read_tokens(text, token);
		double expected = gm_json_value(gm_json_get(text, "mean_nll")), nll = nll_of(hook, token, n);

		worst = fmax(worst, fabs(nll / (n - 1) - expected));
		sum += nll;
		expected_sum += expected * (n - 1);
		n_token += n;
	}
	n_token -= (uint32_t)gm_json_size(reference);
	print_message("mean NLL over %u tokens %.5f, reference %.5f; a text's differs by at most %.5f\n", n_token,
		      sum / n_token, expected_sum / n_token, worst);
	assert_true(fabs(sum - expected_sum) / n_token < 0.001);
	assert_true(worst < 0.01);
	if (gm_check_result(watcher.check)->n_mismatch || gm_check_result(watcher.check)->n_weight_mismatch)
		fail_msg("%s", gm_check_result(watcher.check)->first);
	print_message("%llu picks, 0 mismatches, %llu ties, weights within %.1e\n",
		      (unsigned long long)gm_check_result(watcher.check)->n_pick,
		      (unsigned long long)gm_check_result(watcher.check)->n_tie,
		      gm_check_result(watcher.check)->weight_error);
	watcher_end(&watcher);
	gm_json_free(reference);
	gm_hook_close(hook);
}

/* The tokenizer gives the reference's tokens. */
static void test_tokenize(void **state)
{
	struct gm_hook_options options = support_options(512);
	struct gm_hook *hook = support_open(TINYMOE, &options);
	struct gm_json *reference = read_json("tests/tinymoe/nll.json");
	struct gm_error err = {0};
	char *prompts = gm_read_file("tests/tinymoe/prompts.jsonl", 1 << 20, NULL, &err), *line = prompts;

	(void)state;
	assert_non_null(prompts);
	for (const struct gm_json *text = gm_json_first(reference); text; text = gm_json_next(text)) {
		size_t length = strcspn(line, "\n"), n;
		struct gm_json *prompt = gm_json_parse(line, length, "prompts.jsonl", &err);
		const char *words = gm_json_text(gm_json_get(prompt, "text"));
		int32_t expected[MAX_TOKEN], *token;

		assert_non_null(words);
		assert_ok(gm_hook_tokenize(hook, words, strlen(words), false, &token, &n, &err), &err);
		assert_int_equal(n, read_tokens(text, expected));
		assert_memory_equal(token, expected, n * sizeof(*token));
		free(token);
		gm_json_free(prompt);
		line += length + 1;
	}
	free(prompts);
	gm_json_free(reference);
	gm_hook_close(hook);
}

/* --- router logits against the reference --- */

enum { REF_TOKEN = 512, REF_LAYER = 6, REF_EXPERT = 128, NPY_HEADER = 128 };

struct comparison {
	const struct gm_hook *hook;
	uint32_t first_token; /* of this pass, in the reference */
	const float *reference;
	float *error; /* [REF_TOKEN][REF_LAYER][REF_EXPERT] */
	struct gm_selector *selector;
	bool flipped; /* in this pass a near-tie at rank 8 went the other way: all that attends to it sees other values */
	uint32_t n_row, n_equal_set, n_before_flip;
	float worst; /* logit in the layers up to a pass's first flip */
};

static bool same_set(const uint16_t *a, const uint16_t *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		bool found = false;

		for (uint32_t j = 0; j < n; j++)
			found |= a[i] == b[j];
		if (!found)
			return false;
	}
	return true;
}

static int compare_logits(void *user, uint32_t layer, uint32_t first, uint32_t n, const float *logits, struct gm_error *err)
{
	struct comparison *c = user;
	uint32_t n_equal = 0;

	for (uint32_t row = 0; row < n; row++) {
		size_t at = ((size_t)(c->first_token + first + row) * REF_LAYER + layer) * REF_EXPERT;
		const float *mine = logits + (size_t)row * REF_EXPERT;
		uint16_t ours[8], theirs[8];

		for (uint32_t e = 0; e < REF_EXPERT; e++) {
			c->error[at + e] = fabsf(mine[e] - c->reference[at + e]);
			if (!c->flipped && c->error[at + e] > c->worst)
				c->worst = c->error[at + e];
		}
		GM_TRY(gm_select_rank(c->selector, layer, mine, ours, NULL, err));
		GM_TRY(gm_select_rank(c->selector, layer, c->reference + at, theirs, NULL, err));
		n_equal += same_set(ours, theirs, 8);
	}
	c->n_row += n;
	c->n_equal_set += n_equal;
	c->n_before_flip += c->flipped ? 0 : n;
	c->flipped |= n_equal < n;
	return 0;
}

static int by_size(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

static void test_logits(void **state)
{
	static const struct gm_hook_ops ops = {.on_logits = compare_logits};
	const size_t n = (size_t)REF_TOKEN * REF_LAYER * REF_EXPERT;
	struct gm_hook_options options = support_options(256);
	struct gm_hook *hook = support_open(TINYMOE, &options);
	struct gm_json *texts = read_json("tests/tinymoe/nll.json");
	const struct gm_json *text = gm_json_first(texts);
	struct gm_error err = {0};
	size_t size;
	char *file = gm_read_file("tests/tinymoe/router_logits_first2.npy", 1 << 24, &size, &err);
	struct comparison c = {.hook = hook, .error = calloc(n, sizeof(float))};

	(void)state;
	assert_non_null(file);
	assert_non_null(c.error);
	assert_int_equal(size, NPY_HEADER + n * sizeof(float));
	c.reference = (const float *)(void *)(file + NPY_HEADER);
	c.selector = gm_selector_new(gm_hook_model(hook), 8, &err);
	assert_non_null(c.selector);
	gm_hook_set_ops(hook, &ops, &c);
	for (; c.first_token < REF_TOKEN; text = gm_json_next(text)) {
		int32_t token[MAX_TOKEN];
		uint32_t length = read_tokens(text, token);

		gm_hook_begin_sequence(hook);
		c.flipped = false;
		assert_ok(gm_hook_pass(hook, token, length, &err), &err);
		c.first_token += length;
	}
	qsort(c.error, n, sizeof(float), by_size);
	print_message(
		"router logits: median error %.5f, 99.8 %% within %.5f; largest %.5f in the %u of %u rows before a flip; "
		"%u sets equal\n",
		(double)c.error[n / 2], (double)c.error[n / 1000 * 998], (double)c.worst, c.n_before_flip, c.n_row,
		c.n_equal_set);
	assert_int_equal(c.n_row, REF_TOKEN * REF_LAYER);
	assert_true(c.error[n / 2] < 0.001f);
	assert_true(c.error[n / 1000 * 998] < 0.02f);
	assert_true(c.worst < 0.02f);
	assert_true(c.n_equal_set >= 0.995 * c.n_row);
	gm_selector_free(c.selector);
	free(c.error);
	free(file);
	gm_json_free(texts);
	gm_hook_close(hook);
}

/* Wider experts whose added columns are zero: the same function but for the order of sums (and near-ties it may turn). */
static void test_padded(void **state)
{
	struct gm_hook_options options = support_options(512);
	struct gm_json *texts = read_json("tests/tinymoe/nll.json");
	struct gm_error err = {0};
	struct gm_hook *hook;
	int32_t token[MAX_TOKEN];
	uint32_t n = read_tokens(gm_json_first(texts), token);
	double nll[2];

	(void)state;
	assert_ok(fixture_pad(TINYMOE, support_path("padded.gguf"), 64, &err), &err);
	for (int i = 0; i < 2; i++) {
		hook = support_open(i ? support_path("padded.gguf") : TINYMOE, &options);
		assert_int_equal(gm_hook_model(hook)->expert_bytes[0], 3 * 128 * (i ? 64 : 32) * 2);
		nll[i] = nll_of(hook, token, n) / (n - 1);
		gm_hook_close(hook);
	}
	print_message("mean NLL %.7f, padded %.7f\n", nll[0], nll[1]);
	assert_true(fabs(nll[0] - nll[1]) < 1e-3);
	gm_json_free(texts);
}

/* --- quantised by llama.cpp itself, and recorded --- */

/* Mean NLL of the first n texts in the reference, by tokens. */
static double reference_nll(uint32_t n)
{
	struct gm_json *reference = read_json("tests/tinymoe/nll.json");
	double sum = 0, n_token = 0;

	for (const struct gm_json *text = gm_json_first(reference); text && n > 0; text = gm_json_next(text), n--) {
		double scored = (double)gm_json_size(gm_json_get(text, "tokens")) - 1;

		sum += scored * gm_json_value(gm_json_get(text, "mean_nll"));
		n_token += scored;
	}
	gm_json_free(reference);
	return sum / n_token;
}

static void record_q8(struct gm_hook *hook, const struct gm_texts *texts, bool generate)
{
	struct gm_record_options options = {.output = support_path("q8.gmt"),
					    .generate = generate,
					    .n_generate = 32,
					    .tail = GM_TAIL_F16,
					    .verify = true,
					    .quiet = true,
					    .device_capture = GM_DEVICE_CAPTURE_OFF};
	static struct gm_verify_report report;
	struct gm_record_result result;
	struct gm_error err = {0};

	assert_ok(gm_record(hook, texts, &options, &result, &err), &err);
	assert_ok(gm_trace_verify(options.output, &report, &err), &err);
	print_message("Q8_0, %s: %llu tokens, %llu picks, %llu mismatches, %llu ties, mean NLL %.4f\n",
		      generate ? "generate" : "score", (unsigned long long)result.n_token,
		      (unsigned long long)result.check.n_pick, (unsigned long long)result.check.n_mismatch,
		      (unsigned long long)result.check.n_tie, result.nll / (double)result.n_scored);
	if (result.check.n_mismatch || result.check.n_weight_mismatch)
		fail_msg("%s", result.check.first);
	assert_int_equal(result.check.n_row, result.n_token * REF_LAYER);
	assert_int_equal(report.n_row, result.n_token * REF_LAYER);
	if (!generate) /* Q8_0 costs little: 0.003 over all 72 texts when the model was made */
		assert_true(fabs(result.nll / (double)result.n_scored - reference_nll((uint32_t)texts->n)) < 0.02);
}

static void test_quantized(void **state)
{
	struct gm_hook_options options = support_options(64);
	struct gm_texts texts = {0};
	struct gm_error err = {0};
	struct gm_hook *hook;
	size_t all;

	(void)state;
	assert_ok(fixture_quantize_q8_0(TINYMOE, support_path("q8.gguf"), &err), &err);
	options.extra_bufts = true; /* repacked weights, as a user has them */
	hook = support_open(support_path("q8.gguf"), &options);
	assert_string_equal(gm_hook_info(hook)->expert_type, "q8_0");
	assert_int_equal(gm_hook_model(hook)->expert_bytes[0], 3 * 128 * 32 / 32 * 34);
	assert_ok(gm_texts_add_prompts(&texts, "tests/tinymoe/prompts.jsonl", &err), &err);
	all = texts.n;
	assert_int_equal(all, 72);
	texts.n = 6;
	record_q8(hook, &texts, false);
	record_q8(hook, &texts, true);
	texts.n = all;
	gm_texts_free(&texts);
	gm_hook_close(hook);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quantized), cmocka_unit_test(test_nll),    cmocka_unit_test(test_tokenize),
		cmocka_unit_test(test_logits),    cmocka_unit_test(test_padded),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
