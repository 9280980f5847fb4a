/* Recordings: what stands in the trace is what the model did. Also the cases that a text may be. */
#include "tests/llama/support.h"

#include "recorder/logprob.h"
#include "recorder/record.h"
#include "recorder/recording.h"
#include "tests/fixtures/random.h"
#include "traces/reader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gm_text text_of(const char *bytes, size_t size, const char *id, const char *label)
{
	struct gm_text text = {.text = malloc(size + 1), .size = size, .id = strdup(id), .label = strdup(label)};

	assert_non_null(text.text);
	memcpy(text.text, bytes, size);
	text.text[size] = '\0';
	return text;
}

/* One text of n random letters (a token each). */
static struct gm_texts random_text(size_t n)
{
	struct gm_texts texts = {.text = calloc(1, sizeof(struct gm_text)), .n = 1, .max = 1};
	struct fixture_random random = {n};
	char *bytes = malloc(n);

	assert_non_null(bytes);
	for (size_t i = 0; i < n; i++)
		bytes[i] = (char)('!' + fixture_next(&random) % 94);
	texts.text[0] = text_of(bytes, n, "random", "noise");
	free(bytes);
	return texts;
}

static struct gm_trace *open_trace(const char *path)
{
	struct gm_error err = {0};
	struct gm_trace *trace = gm_trace_open(path, &err);

	if (!trace)
		fail_msg("%s", err.text);
	return trace;
}

static struct gm_record_result record(struct gm_hook *hook, const struct gm_texts *texts,
				      const struct gm_record_options *options)
{
	struct gm_record_result result;
	struct gm_error err = {0};

	assert_ok(gm_record(hook, texts, options, &result, &err), &err);
	return result;
}

/* --- every kind of router, every size of pass, both modes --- */

static const uint32_t ubatches[] = {512, 7, 1};

static void verify_all(bool generate)
{
	for (unsigned f = 0; f < GM_FIXTURE_N_RECORDABLE; f++)
		for (size_t u = 0; u < sizeof(ubatches) / sizeof(ubatches[0]); u++) {
			const struct fixture_info *info = fixture_info(f);
			struct gm_hook_options hook_options = support_options(ubatches[u]);
			struct gm_hook *hook = support_open(support_fixture(info->name), &hook_options);
			struct gm_texts texts = random_text(150);
			struct gm_record_options options = {.output = support_path("all.gmt"),
							    .generate = generate,
							    .n_generate = 20,
							    .temperature = 1,
							    .tail = GM_TAIL_F16,
							    .verify = true,
							    .quiet = true};
			struct gm_record_result result = record(hook, &texts, &options);
			uint64_t n_layer = info->n_layer - info->n_dense_lead;
			struct gm_trace *trace = open_trace(options.output);

			if (result.check.n_mismatch || result.check.n_weight_mismatch)
				fail_msg("%s, ubatch %u: %s", info->name, ubatches[u], result.check.first);
			assert_in_range(result.n_token, 150, generate ? 170 : 150);
			assert_int_equal(result.n_scored, result.n_token - 1);
			assert_int_equal(result.check.n_row, result.n_token * n_layer);
			assert_int_equal(gm_trace_n_token(trace), result.n_token);
			assert_int_equal(gm_trace_n_row(trace), result.n_token * n_layer);
			gm_trace_close(trace);
			gm_texts_free(&texts);
			gm_hook_close(hook);
		}
}

static void test_score(void **state)
{
	(void)state;
	verify_all(false);
}

static void test_generate(void **state)
{
	(void)state;
	verify_all(true);
}

/* --- content --- */

enum { N = 200, EXPERTS = 32, LAYERS = 3 };

struct seen {
	float logits[N][LAYERS][EXPERTS];
	uint32_t first; /* token of the pass */
};

static int see(void *user, uint32_t layer, uint32_t first, uint32_t n, const float *logits, struct gm_error *err)
{
	struct seen *seen = user;

	(void)err;
	for (uint32_t i = 0; i < n; i++)
		memcpy(seen->logits[seen->first + first + i][layer], logits + (size_t)i * EXPERTS,
		       sizeof(seen->logits[0][0]));
	return 0;
}

static void compare_block(const struct gm_block *block, const struct gm_model *model, const struct seen *seen,
			  const int32_t *token, const float *logprob, const uint32_t *layers)
{
	float logits[EXPERTS];

	for (uint32_t i = 0; i < block->n_token; i++) {
		uint64_t at = block->first_token + i;

		assert_int_equal(block->token[i], token[at]);
		assert_int_equal(block->position[i], at);
		assert_int_equal(block->pass[i], at / 7);
		assert_memory_equal(&block->logprob[i], &logprob[at], sizeof(float));
		for (uint32_t layer = 0; layer < model->n_layer; layer++) {
			assert_int_equal(block->present[layer * block->n_token + i], 1);
			gm_block_logits(block, model, layer, i, logits);
			assert_memory_equal(logits, seen->logits[at][layers[layer]], sizeof(logits));
		}
	}
}

/* Reads a trace of the text back and compares it, bit for bit, with what the hook shows and the model puts out. */
static void assert_content(const char *path, struct gm_hook *hook, const struct gm_text *text, const uint32_t *layers)
{
	static const struct gm_hook_ops ops = {.on_logits = see};
	struct seen *seen = calloc(1, sizeof(*seen));
	struct gm_trace *trace = open_trace(path);
	struct gm_block block = {0};
	struct gm_error err = {0};
	float logprob[N];
	int32_t *token;
	size_t n;

	assert_non_null(seen);
	assert_ok(gm_hook_tokenize(hook, text->text, text->size, false, &token, &n, &err), &err);
	assert_int_equal(n, N);
	gm_hook_set_ops(hook, &ops, seen);
	gm_hook_begin_sequence(hook);
	logprob[0] = NAN;
	for (uint32_t i = 0; i < N; i += 7) {
		uint32_t pass = N - i < 7 ? N - i : 7;

		seen->first = i;
		assert_ok(gm_hook_pass(hook, token + i, pass, &err), &err);
		for (uint32_t k = 0; k < pass && i + k + 1 < N; k++)
			logprob[i + k + 1] = gm_logprob(gm_hook_output(hook, k), 288, token[i + k + 1]);
	}
	for (uint64_t b = 0; gm_trace_read(trace, b, GM_WANT_TAIL, &block, &err) == 1; b++)
		compare_block(&block, gm_trace_model(trace), seen, token, logprob, layers);
	assert_ok(err.code, &err);
	gm_block_free(&block);
	gm_trace_close(trace);
	free(token);
	free(seen);
}

static void test_content(void **state)
{
	static const uint32_t all[] = {0, 1, 2}, some[] = {0, 2};
	struct gm_hook_options hook_options = support_options(7);
	struct gm_hook *hook = support_open(support_fixture("deepseek2-groups"), &hook_options);
	struct gm_texts texts = random_text(N);
	struct gm_record_options options = {
		.output = support_path("content.gmt"), .tail = GM_TAIL_F32, .n_head = 8, .quiet = true};
	struct gm_trace *trace;

	(void)state;
	record(hook, &texts, &options);
	assert_content(options.output, hook, &texts.text[0], all);
	options.layers = "0,2";
	record(hook, &texts, &options);
	assert_content(options.output, hook, &texts.text[0], some);
	trace = open_trace(options.output);
	assert_int_equal(gm_trace_model(trace)->n_layer, 2);
	assert_memory_equal(gm_trace_model(trace)->bias + EXPERTS, gm_hook_model(hook)->bias + 2 * EXPERTS,
			    EXPERTS * sizeof(float));
	gm_trace_close(trace);
	gm_texts_free(&texts);
	gm_hook_close(hook);
}

/* What a token costs in the file at 48 layers of 512 experts with 32 ranked ones in float32 and no tail: from four such layers. */
static void test_size(void **state)
{
	struct gm_hook_options hook_options = support_options(512);
	struct gm_hook *hook = support_open(support_fixture("qwen3next"), &hook_options);
	struct gm_texts texts = random_text(512);
	struct gm_record_options options = {
		.output = support_path("size.gmt"), .tail = GM_TAIL_NONE, .n_head = 32, .quiet = true};
	struct gm_trace *trace;
	double per_token;

	(void)state;
	record(hook, &texts, &options);
	trace = open_trace(options.output);
	assert_int_equal(gm_trace_model(trace)->n_layer, 4);
	assert_int_equal(gm_trace_model(trace)->n_expert, 512);
	per_token = 48 / 4 * (double)gm_trace_bytes(trace) / (double)gm_trace_n_token(trace);
	print_message("%.0f bytes a token at 48 layers\n", per_token);
	assert_true(per_token <= 6800);
	gm_trace_close(trace);
	gm_texts_free(&texts);
	gm_hook_close(hook);
}

/* --- texts --- */

struct notes {
	char text[1024];
	unsigned n_asked, stop_after;
};

static void take_note(void *user, const char *text)
{
	struct notes *notes = user;
	size_t used = strlen(notes->text);

	snprintf(notes->text + used, sizeof(notes->text) - used, "%s\n", text);
}

static bool stop(void *user)
{
	struct notes *notes = user;

	return notes->stop_after && ++notes->n_asked > notes->stop_after;
}

static void test_texts(void **state)
{
	struct gm_hook_options hook_options = support_options(100);
	struct gm_hook *hook = support_open(support_fixture("mixtral"), &hook_options);
	struct gm_texts texts = {.text = calloc(4, sizeof(struct gm_text)), .n = 4, .max = 4}, one = random_text(600);
	struct notes notes = {.text = ""};
	struct gm_record_options options = {.output = support_path("texts.gmt"),
					    .tail = GM_TAIL_NONE,
					    .quiet = true,
					    .note = take_note,
					    .stopped = stop,
					    .user = &notes};
	struct gm_record_result result;
	struct gm_trace *trace;

	(void)state;
	texts.text[0] = text_of("\xc3\xa4\0x\xff", 5, "bytes", "a"); /* a damaged byte becomes U+FFFD: 3 tokens */
	texts.text[1] = text_of("", 0, "nothing", "b");
	texts.text[2] = one.text[0]; /* longer than the context of 512 */
	texts.text[3] = text_of("z", 1, "last", "");
	free(one.text);
	result = record(hook, &texts, &options);
	assert_string_equal(notes.text,
			    "nothing is empty: left out\n"
			    "random: 600 tokens, longer than the context of 512: split into 2 sequences (--ctx)\n");
	assert_int_equal(result.n_token, 7 + 600 + 1);
	assert_int_equal(result.n_sequence, 4);
	assert_int_equal(result.n_pass, 1 + 6 + 1 + 1);
	assert_int_equal(result.n_scored, 6 + 511 + 87);
	trace = open_trace(options.output);
	assert_int_equal(gm_trace_n_sequence(trace), 4);
	assert_string_equal(gm_trace_sequence(trace, 0)->label, "a");
	assert_string_equal(gm_trace_sequence(trace, 1)->id, "random");
	assert_string_equal(gm_trace_sequence(trace, 2)->id, "random#2");
	assert_string_equal(gm_trace_sequence(trace, 2)->label, "noise");
	assert_int_equal(gm_trace_sequence(trace, 2)->n_token, 88);
	gm_trace_close(trace);

	options.max_tokens = 250;
	result = record(hook, &texts, &options);
	assert_int_equal(result.n_token, 250);
	options.max_tokens = 0;
	notes.stop_after = 3;
	result = record(hook, &texts, &options);
	assert_true(result.stopped);
	trace = open_trace(options.output);
	assert_int_equal(gm_trace_n_token(trace), result.n_token);
	assert_in_range(result.n_token, 7, 400);
	gm_trace_close(trace);
	gm_texts_free(&texts);
	gm_hook_close(hook);
}

static void assert_record_fails(struct gm_hook *hook, const struct gm_texts *texts, const struct gm_record_options *options,
				int code, const char *message)
{
	struct gm_record_result result;
	struct gm_error err = {0};

	assert_int_equal(gm_record(hook, texts, options, &result, &err), code);
	if (!strstr(err.text, message))
		fail_msg("\"%s\": must be \"%s\"", err.text, message);
}

static void test_failures(void **state)
{
	struct gm_hook_options hook_options = support_options(100);
	struct gm_hook *hook = support_open(support_fixture("mixtral"), &hook_options);
	struct gm_texts texts = random_text(500), none = {0};
	struct gm_record_options options = {.output = support_path("never.gmt"), .quiet = true};

	(void)state;
	assert_record_fails(hook, &none, &options, GM_ERR_USAGE, "nothing to record");
	options.layers = "4";
	assert_record_fails(hook, &texts, &options, GM_ERR_USAGE, "--layers");
	options.layers = NULL;
	options.generate = true;
	options.n_generate = 13;
	assert_record_fails(hook, &texts, &options, GM_ERR_USAGE, "a prompt of 500 tokens and 13 more: ");
	options.generate = false;
	options.n_head = 1;
	assert_record_fails(hook, &texts, &options, GM_ERR_USAGE, "a head of 1 experts");
	options.n_head = 0;
	options.output = support_path("no/such/folder.gmt");
	assert_record_fails(hook, &texts, &options, GM_ERR_IO, "No such file");
	options.output = "/dev/full";
	assert_record_fails(hook, &texts, &options, GM_ERR_IO, "No space left");
	assert_null(fopen(support_path("never.gmt"), "r"));
	assert_null(fopen(support_path("never.gmt.part"), "r"));
	gm_texts_free(&texts);
	gm_hook_close(hook);
}

static void test_prompts(void **state)
{
	static const char good[] =
		"{\"text\":\"one\",\"label\":\"l\",\"id\":\"first\",\"more\":1}\r\n\n{\"text\":\"\\u00e4\"}";
	static const char bad[] = "{\"text\":\"one\"}\n{\"label\":\"x\"}\n";
	const char *path = support_path("prompts.jsonl");
	struct gm_texts texts = {0};
	struct gm_error err = {0};
	FILE *stream = fopen(path, "w");

	(void)state;
	assert_non_null(stream);
	fputs(good, stream);
	fclose(stream);
	assert_ok(gm_texts_add_prompts(&texts, path, &err), &err);
	assert_int_equal(texts.n, 2);
	assert_string_equal(texts.text[0].id, "first");
	assert_string_equal(texts.text[0].label, "l");
	assert_string_equal(texts.text[1].id, "prompts.jsonl:3");
	assert_string_equal(texts.text[1].text, "\xc3\xa4");
	gm_texts_free(&texts);
	stream = fopen(path, "w");
	assert_non_null(stream);
	fputs(bad, stream);
	fclose(stream);
	assert_int_equal(gm_texts_add_prompts(&texts, path, &err), GM_ERR_FORMAT);
	assert_non_null(strstr(err.text, "prompts.jsonl:2: "));
	gm_texts_free(&texts);
}

/* --- the queue --- */

/* A queue with room for next to nothing: every row waits for the writer, and all arrive. */
static void test_back_pressure(void **state)
{
	enum { N_PASS = 300, N_ROW = 5, E = 16 };
	struct gm_model model = {.name = (char[]){"queue"}, .n_layer = 2, .n_expert = E, .top_k = 2};
	struct gm_writer_options options = {.kind = GM_KIND_LOGITS, .tail = GM_TAIL_F32, .logprobs = true};
	struct gm_error err = {0};
	const char *path = support_path("queue.gmt");
	struct gm_writer *writer = gm_writer_open(path, &model, &options, &err);
	struct gm_recording *recording;
	struct fixture_random random = {1};
	struct gm_trace *trace;

	(void)state;
	assert_non_null(writer);
	recording = gm_recording_open(writer, E, 1, &err);
	assert_non_null(recording);
	assert_ok(gm_recording_begin_sequence(recording, NULL, NULL, &err), &err);
	for (uint32_t pass = 0; pass < N_PASS; pass++) {
		float logits[N_ROW * E];
		int32_t token[N_ROW] = {0};

		for (int i = 0; i < N_ROW * E; i++)
			logits[i] = (float)fixture_normal(&random);
		for (uint32_t layer = 0; layer < 2; layer++)
			assert_ok(gm_recording_append(recording, layer, 0, N_ROW, logits, &err), &err);
		if (pass % 3 == 2) /* a pass that failed leaves nothing */
			gm_recording_drop(recording);
		else
			assert_ok(gm_recording_commit(recording, N_ROW, token, (pass - pass / 3) * N_ROW, NULL, &err),
				  &err);
	}
	assert_ok(gm_recording_close(recording, true, NULL, &err), &err);
	trace = open_trace(path);
	assert_int_equal(gm_trace_n_row(trace), N_PASS / 3 * 2 * N_ROW * 2);
	gm_trace_close(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_score),   cmocka_unit_test(test_generate),      cmocka_unit_test(test_content),
		cmocka_unit_test(test_size),    cmocka_unit_test(test_texts),         cmocka_unit_test(test_failures),
		cmocka_unit_test(test_prompts), cmocka_unit_test(test_back_pressure),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
