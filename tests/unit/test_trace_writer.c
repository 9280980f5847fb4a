/* The writer's promises: block boundaries, refusals that leave it usable, what stays after a failure, bounded memory. */
#include "test_trace_common.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *folder;
static char path[200], part[220];

#define REFUSED(call, code_wanted, words)                                                   \
	do {                                                                                \
		struct gm_error why = {0};                                                  \
		assert_int_equal(call, code_wanted);                                        \
		if (!strstr(why.text, words))                                               \
			fail_msg("%s: \"%s\" does not say \"%s\"", #call, why.text, words); \
	} while (0)

static struct gm_model plain(uint32_t n_layer, uint32_t n_expert, uint32_t top_k)
{
	return (struct gm_model){.name = "plain", .n_layer = n_layer, .n_expert = n_expert, .top_k = top_k};
}

static struct gm_writer *begin(const struct gm_model *m, const struct gm_writer_options *options)
{
	struct gm_error err = {0};
	struct gm_writer *w = gm_writer_open(path, m, options, &err);

	if (!w)
		fail_msg("%s", err.text);
	OK(gm_writer_begin_sequence(w, "s", "l", &err));
	return w;
}

/* n tokens with one row a layer. */
static void add_rows(struct gm_writer *w, const struct gm_model *m, uint32_t n, uint64_t *seed)
{
	float *z = must(malloc((size_t)n * m->n_expert * sizeof(*z)));
	struct gm_error err = {0};
	uint64_t first;

	OK(gm_writer_add_tokens(w, n, NULL, 0, true, NULL, &first, &err));
	for (uint32_t layer = 0; layer < m->n_layer; layer++) {
		for (size_t i = 0; i < (size_t)n * m->n_expert; i++)
			z[i] = (float)draw_normal(seed);
		OK(gm_writer_append(w, layer, first, n, z, m->n_expert, &err));
	}
	free(z);
}

static void test_boundaries(void **state)
{
	static const uint32_t counts[] = {0, 1, 63, 64, 65, 127, 128, 129, 640};
	struct gm_model m = plain(2, 8, 2);
	uint64_t seed = 3;

	(void)state;
	for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
		struct gm_writer_options options = {0};
		struct gm_error err = {0};
		struct gm_writer *w = begin(&m, &options);
		add_rows(w, &m, counts[k], &seed);
		assert_int_equal(gm_writer_blocks(w), counts[k] / 64);
		OK(gm_writer_close(w, &err));
		struct gm_trace *t = must(gm_trace_open(path, &err));
		assert_int_equal(gm_trace_n_token(t), counts[k]);
		assert_int_equal(gm_trace_n_block(t), (counts[k] + 63) / 64);
		assert_int_equal(gm_trace_n_row(t), 2 * counts[k]);
		assert_int_equal(gm_trace_n_sequence(t), 1);
		assert_int_equal(gm_trace_sequence(t, 0)->n_token, counts[k]);
		for (uint32_t i = 0; i < counts[k]; i++) {
			uint64_t block;
			OK(gm_trace_find(t, i, &block, &err));
			assert_int_equal(block, i / 64);
		}
		uint64_t block;
		assert_int_equal(gm_trace_find(t, counts[k], &block, &err), GM_ERR_USAGE);
		gm_trace_close(t);
	}
}

static void test_flush(void **state)
{
	struct gm_model m = plain(2, 8, 2);
	struct gm_writer_options options = {0};
	struct gm_error err = {0};
	struct gm_writer *w = begin(&m, &options);
	uint64_t seed = 4, block;

	(void)state;
	add_rows(w, &m, 10, &seed);
	OK(gm_writer_flush(w, &err));
	assert_int_equal(gm_writer_blocks(w), 1);
	OK(gm_writer_flush(w, &err)); /* nothing new: no empty block */
	assert_int_equal(gm_writer_blocks(w), 1);
	add_rows(w, &m, 70, &seed);
	assert_int_equal(gm_writer_blocks(w), 2);
	OK(gm_writer_close(w, &err));
	struct gm_trace *t = must(gm_trace_open(path, &err));
	assert_int_equal(gm_trace_n_block(t), 3);
	OK(gm_trace_find(t, 10, &block, &err));
	assert_int_equal(block, 1);
	OK(gm_trace_find(t, 79, &block, &err));
	assert_int_equal(block, 2);
	gm_trace_close(t);
}

static void test_not_utf8(void **state)
{
	struct gm_model m = plain(2, 4, 2), foreign = m;
	struct gm_writer_options options = {.tail = GM_TAIL_F16, .n_head = 2}, source = options;
	struct gm_writer *w = begin(&m, &options);

	(void)state;
	REFUSED(gm_writer_begin_sequence(w, "s", "l\xf6", &why), GM_ERR_USAGE, "not UTF-8");
	gm_writer_discard(w);
	foreign.name = "\xf6";
	source.source = "\xf6";
	REFUSED((w = gm_writer_open(path, &foreign, &options, &why)) ? 0 : why.code, GM_ERR_USAGE, "model for the header");
	REFUSED((w = gm_writer_open(path, &m, &source, &why)) ? 0 : why.code, GM_ERR_USAGE, "source for the header");
}

/* Bytes of 0 in a header are not known; in facts from outside they are refused. */
static void test_zero_bytes(void **state)
{
	static const char text[] = "{\"n_layer\":2,\"n_expert\":4,\"n_expert_used\":2,\"expert_bytes\":[5,0]}";
	struct gm_error err = {0};
	struct gm_json *facts = must(gm_json_parse(text, sizeof(text) - 1, "facts", &err));
	struct gm_model m;

	(void)state;
	REFUSED(gm_model_from_json(&m, facts, &why), GM_ERR_FORMAT, "layer 1 is 0");
	OK(gm_model_from_header(&m, facts, &err));
	assert_null(m.expert_bytes);
	gm_model_free(&m);
	gm_json_free(facts);
}

static int allocations_left;

static void *scarce(size_t size)
{
	return allocations_left-- > 0 ? malloc(size) : NULL;
}

static void test_json_out_of_memory(void **state)
{
	static const char text[] =
		" {\"a\": [1, -2.5e3, \"x\\n\\u00e4\\ud83d\\ude00\", {}, []], \"b\": {\"c\": null, \"d\": true}}\n";
	cJSON_Hooks hooks = {.malloc_fn = scarce, .free_fn = free};
	struct gm_json *root = NULL;

	(void)state;
	cJSON_InitHooks(&hooks);
	for (int n = 0; !root && n < 100; n++) {
		struct gm_error why = {0};

		allocations_left = n;
		root = gm_json_parse(text, sizeof(text) - 1, "t", &why);
		assert_int_equal(why.code, root ? GM_OK : GM_ERR_MEMORY);
	}
	cJSON_InitHooks(NULL);
	assert_non_null(root);
	gm_json_free(root);
}

static void test_refusals(void **state)
{
	struct gm_model m = plain(2, 4, 2);
	struct gm_writer_options options = {.tail = GM_TAIL_F16, .n_head = 2};
	struct gm_writer *w = begin(&m, &options);
	struct gm_error none = {0};
	uint64_t first;
	const float good[] = {1, 2, 3, 4, 4, 3, 2, 1}, bad[] = {1, NAN, 0, 0}, wide[] = {70000, 1, 70001, 70002};
	const float top[] = {70000, 70001, 1, 2};

	(void)state;
	assert_int_equal(gm_writer_add_tokens(w, 3, NULL, 0, true, NULL, &first, &none), GM_OK);
	REFUSED(gm_writer_append(w, 2, 0, 1, good, 4, &why), GM_ERR_USAGE, "layer 2: must be below n_layer (2)");
	REFUSED(gm_writer_append(w, 0, 2, 2, good, 4, &why), GM_ERR_USAGE, "only 3 were declared");
	REFUSED(gm_writer_append(w, 0, 1, 1, bad, 4, &why), GM_ERR_FORMAT,
		"the logit is not a number: token 1, layer 0: expert 1");
	REFUSED(gm_writer_append(w, 1, 2, 1, wide, 4, &why), GM_ERR_FORMAT,
		"the logit 70000 does not fit a float16 tail: token 2, layer 1: expert 0");
	REFUSED(gm_writer_append_topk(w, 0, 0, 1, (uint16_t[]){0, 1}, (double[]){1, 1}, &why), GM_ERR_USAGE,
		"a row without logits for a trace of kind logits");
	/* The rows before a faulty one are kept. */
	const float three[] = {1, 2, 3, 4, 5, 6, 7, 8, 1, INFINITY, 1, 1};
	REFUSED(gm_writer_append(w, 0, 0, 3, three, 4, &why), GM_ERR_FORMAT, "token 2, layer 0: expert 1");
	REFUSED(gm_writer_append(w, 0, 1, 1, good, 4, &why), GM_ERR_USAGE, "the row is given twice: token 1, layer 0");
	assert_int_equal(gm_writer_append(w, 0, 2, 1, top, 4, &none),
			 GM_OK); /* what half precision cannot hold is in the head */
	assert_int_equal(gm_writer_complete(w, 2, &none), GM_OK);
	REFUSED(gm_writer_append(w, 1, 0, 1, good, 4, &why), GM_ERR_USAGE, "a row after its token was declared complete");
	REFUSED(gm_writer_add_tokens(w, GM_WRITER_MAX_PENDING, NULL, 3, true, NULL, &first, &why), GM_ERR_USAGE,
		"at most 16384 may wait");
	REFUSED(gm_writer_add_tokens(w, 2, NULL, UINT32_MAX, true, NULL, &first, &why), GM_ERR_USAGE, "position");
	REFUSED(gm_writer_set_logprobs(w, 0, 1, good, &why), GM_ERR_USAGE, "opened without");
	REFUSED(gm_writer_append_prediction(w, 0, 0, 1, (uint16_t[]){0, 1}, &why), GM_ERR_USAGE, "opened without");
	assert_int_equal(gm_writer_close(w, &none), GM_OK);

	struct gm_trace *t = must(gm_trace_open(path, &none));
	struct gm_block b = {0};
	assert_int_equal(gm_trace_read(t, 0, GM_WANT_TAIL, &b, &none), 1);
	assert_memory_equal(b.present, ((uint8_t[]){1, 1, 1, 0, 0, 0}), 6);
	assert_memory_equal(b.head, ((uint16_t[]){3, 2, 3, 2, 1, 0}), 12);
	gm_block_free(&b);
	gm_trace_close(t);

	REFUSED((w = gm_writer_open(path, &m, &(struct gm_writer_options){.n_head = 1}, &why)) ? 0 : why.code, GM_ERR_USAGE,
		"a head of 1 experts: must be from 2");
	REFUSED((w = gm_writer_open("/nonexistent/x.gmt", &m, &options, &why)) ? 0 : why.code, GM_ERR_IO,
		"cannot be created: /nonexistent/x.gmt.part: ");
}

static void test_refusals_topk(void **state)
{
	struct gm_model m = plain(1, 4, 2);
	struct gm_writer_options options = {.kind = GM_KIND_TOPK};
	struct gm_writer *w = begin(&m, &options);
	struct gm_error none = {0};
	uint64_t first;

	(void)state;
	assert_int_equal(gm_writer_add_tokens(w, 2, NULL, 0, true, NULL, &first, &none), GM_OK);
	REFUSED(gm_writer_append_topk(w, 0, 0, 1, (uint16_t[]){1, 1}, (double[]){1, 1}, &why), GM_ERR_FORMAT,
		"expert 1 stands there twice: token 0, layer 0: rank 2");
	REFUSED(gm_writer_append_topk(w, 0, 0, 1, (uint16_t[]){1, 4}, (double[]){1, 1}, &why), GM_ERR_FORMAT,
		"rank 2: must be below n_expert (4)");
	REFUSED(gm_writer_append_topk(w, 0, 0, 1, (uint16_t[]){1, 2}, (double[]){1, -1}, &why), GM_ERR_FORMAT,
		"the weight -1: token 0, layer 0: rank 2");
	REFUSED(gm_writer_append_topk(w, 0, 0, 1, (uint16_t[]){1, 2}, (double[]){0, 0}, &why), GM_ERR_FORMAT, "sum to 0");
	REFUSED(gm_writer_append_topk(w, 0, 0, 1, (uint16_t[]){1, 2}, (double[]){1, INFINITY}, &why), GM_ERR_FORMAT,
		"sum to inf");
	double nearly[] = {0.25, 0.75 + 5e-13};
	assert_int_equal(gm_writer_append_topk(w, 0, 0, 1, (uint16_t[]){3, 0}, (double[]){3, 1}, &none), GM_OK);
	assert_int_equal(gm_writer_append_topk(w, 0, 1, 1, (uint16_t[]){0, 3}, nearly, &none), GM_OK);
	assert_int_equal(gm_writer_close(w, &none), GM_OK);
	struct gm_trace *t = must(gm_trace_open(path, &none));
	struct gm_block b = {0};
	assert_int_equal(gm_trace_read(t, 0, 0, &b, &none), 1);
	assert_memory_equal(b.weight, ((double[]){0.75, 0.25}), 16);
	assert_memory_equal(b.weight + 2, nearly, 16);
	assert_null(b.logit);
	assert_null(b.lse);
	gm_block_free(&b);
	gm_trace_close(t);
}

/* Copying rows from a trace, with and without its tail, gives the same rows. */
static void test_ranked(void **state)
{
	struct gm_model m = plain(1, 6, 2);
	struct gm_writer_options options = {.n_head = 3, .tail = GM_TAIL_F32};
	struct gm_writer *w = begin(&m, &options);
	struct gm_error none = {0};
	const uint16_t ranked[] = {5, 0, 2}, twice[] = {5, 5, 2}, wrong[] = {0, 5, 2};
	const float logits[] = {3, 2, 1}, rising[] = {1, 2, 3}, tail[] = {0.5f, 0.25f, -0.0f};
	float full[6];
	uint64_t first;

	(void)state;
	assert_int_equal(gm_writer_add_tokens(w, 1, NULL, 0, true, NULL, &first, &none), GM_OK);
	REFUSED(gm_writer_append_ranked(w, 0, 0, twice, logits, 4, tail, &why), GM_ERR_FORMAT, "stands there twice");
	REFUSED(gm_writer_append_ranked(w, 0, 0, ranked, rising, 4, tail, &why), GM_ERR_FORMAT, "belongs before");
	REFUSED(gm_writer_append_ranked(w, 0, 0, wrong, (float[]){3, 3, 1}, NAN, tail, &why), GM_ERR_FORMAT, "log-sum-exp");
	REFUSED(gm_writer_append_ranked(w, 0, 0, ranked, (float[]){3, 3, 1}, 4, tail, &why), GM_ERR_FORMAT,
		"expert 0 belongs before expert 5");
	REFUSED(gm_writer_append_ranked(w, 0, 0, ranked, logits, 4, NULL, &why), GM_ERR_USAGE, "without its tail");
	assert_int_equal(gm_writer_append_ranked(w, 0, 0, ranked, logits, 3.75, tail, &none), GM_OK);
	assert_int_equal(gm_writer_close(w, &none), GM_OK);
	struct gm_trace *t = must(gm_trace_open(path, &none));
	struct gm_block b = {0};
	assert_int_equal(gm_trace_read(t, 0, GM_WANT_TAIL, &b, &none), 1);
	gm_block_logits(&b, &m, 0, 0, full);
	assert_memory_equal(full, ((float[]){2, 0.5f, 1, 0.25f, -0.0f, 3}), sizeof(full));
	assert_true(b.lse[0] == 3.75);
	gm_block_free(&b);
	gm_trace_close(t);
}

/* A pass that comes in parts, log-probabilities that come after the rows, predictions before them. */
static void test_late_columns(void **state)
{
	struct gm_model m = plain(1, 4, 1);
	struct gm_writer_options options = {.logprobs = true, .predictions = true};
	struct gm_writer *w = begin(&m, &options);
	struct gm_error err = {0};
	float z[64 * 4], logprob[64];
	uint16_t prediction[64];
	uint64_t first;

	(void)state;
	for (int i = 0; i < 64; i++) {
		z[4 * i] = z[4 * i + 1] = z[4 * i + 2] = z[4 * i + 3] = (float)i;
		logprob[i] = (float)-i;
		prediction[i] = (uint16_t)(i % 4);
	}
	OK(gm_writer_add_tokens(w, 30, NULL, 0, true, NULL, &first, &err));
	OK(gm_writer_add_tokens(w, 34, NULL, 30, false, NULL, &first, &err));
	OK(gm_writer_append_prediction(w, 0, 0, 64, prediction, &err));
	OK(gm_writer_append(w, 0, 0, 64, z, 4, &err));
	assert_int_equal(gm_writer_blocks(w), 0); /* waits for the log-probabilities */
	OK(gm_writer_set_logprobs(w, 0, 64, logprob, &err));
	assert_int_equal(gm_writer_blocks(w), 1);
	REFUSED(gm_writer_set_logprobs(w, 0, 1, logprob, &why), GM_ERR_USAGE, "token 0 was written already");
	OK(gm_writer_close(w, &err));
	struct gm_trace *t = must(gm_trace_open(path, &err));
	struct gm_block b = {0};
	OK(gm_trace_read(t, 0, GM_WANT_PREDICTION, &b, &err));
	assert_memory_equal(b.logprob, logprob, sizeof(logprob));
	assert_memory_equal(b.prediction, prediction, sizeof(prediction));
	for (int i = 0; i < 64; i++)
		assert_int_equal(b.pass[i], 0);
	gm_block_free(&b);
	gm_trace_close(t);
}

static void test_header(void **state)
{
	struct gm_model m = plain(2, 4, 1);
	struct gm_error err = {0};
	uint64_t bytes[] = {10, 20};
	float bias[] = {0.1f, -0.25f, 3e-8f, 0, 1, 2, 3, 3.4e38f};
	static const char text[] = "{\"head\":99,\"n_layer\":7,\"corpus\":{\"name\":\"x\",\"n\":[1,2]},\"source\":\"old\"}";

	(void)state;
	m.expert_bytes = bytes;
	m.bias = bias;
	m.gating = GM_GATING_SIGMOID;
	m.n_group = 2;
	m.topk_group = 1;
	struct gm_json *metadata = must(gm_json_parse(text, strlen(text), "test", &err));
	struct gm_writer_options options = {.metadata = metadata, .tool = "tool 1"};
	struct gm_writer *w = begin(&m, &options);
	OK(gm_writer_close(w, &err));
	gm_json_free(metadata);
	struct gm_trace *t = must(gm_trace_open(path, &err));
	const struct gm_json *h = gm_trace_header(t);
	char *corpus = must(gm_json_print(gm_json_get(h, "corpus"), false));
	assert_string_equal(corpus, "{\"name\":\"x\",\"n\":[1,2]}");
	free(corpus);
	assert_string_equal(gm_json_text(gm_json_get(h, "source")), "old");
	assert_string_equal(gm_json_text(gm_json_get(h, "tool")), "tool 1");
	const struct gm_model *back = gm_trace_model(t);
	assert_int_equal(back->n_layer, 2);
	assert_int_equal(gm_trace_n_head(t), 4);
	assert_memory_equal(back->bias, bias, sizeof(bias));
	assert_memory_equal(back->expert_bytes, bytes, sizeof(bytes));
	assert_null(back->dense_bytes);
	assert_int_equal(back->gating, GM_GATING_SIGMOID);
	assert_int_equal(back->n_group, 2);
	assert_int_equal(back->topk_group, 1);
	gm_trace_close(t);
}

/* What is left of a recording that was cut off, and who may write over it. */
static void test_part(void **state)
{
	struct gm_model m = plain(2, 8, 2);
	struct gm_writer_options options = {0};
	struct gm_repair_report report;
	struct gm_error err = {0};
	uint64_t seed = 8;

	(void)state;
	unlink(path);
	struct gm_writer *w = begin(&m, &options);
	add_rows(w, &m, 10, &seed);
	assert_int_equal(access(part, F_OK), 0);
	assert_int_not_equal(access(path, F_OK), 0);
	gm_writer_discard(w);
	assert_int_not_equal(access(part, F_OK), 0);

	pid_t child = fork();
	if (child == 0) { /* as if killed: blocks are out, no close */
		w = begin(&m, &options);
		add_rows(w, &m, 200, &seed);
		_exit(0);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	REFUSED((w = gm_writer_open(path, &m, &options, &why)) ? 0 : why.code, GM_ERR_IO, "traces verify --repair OUT");
	assert_int_equal(access(part, F_OK), 0);
	OK(gm_trace_repair(part, path, &report, &err));
	assert_int_equal(report.n_token, 192);
	assert_int_equal(report.n_lost_block, 0);
	assert_false(report.had_index);
	unlink(part);
	struct gm_trace *t = must(gm_trace_open(path, &err));
	assert_int_equal(gm_trace_n_token(t), 192);
	assert_string_equal(gm_trace_sequence(t, 0)->label, "l");
	gm_trace_close(t);
}

struct told {
	uint32_t n;
	struct gm_block_written last;
};

static void hear(void *user, const struct gm_block_written *block)
{
	struct told *told = user;

	assert_int_equal(block->index, told->n);
	assert_int_equal(block->offset, told->n ? told->last.offset + told->last.bytes : block->offset);
	told->last = *block;
	told->n++;
}

/* A recording that fails keeps the tokens before the first that lacks a row, as blocks in .part. */
static void test_abandon(void **state)
{
	static const uint32_t whole[] = {0, 10, 64, 100, 192};
	struct gm_model m = plain(2, 8, 2);
	struct gm_error err = {0};
	uint64_t seed = 9, first;

	(void)state;
	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
		struct told told = {0};
		struct gm_writer_options options = {.on_block = hear, .user = &told};
		struct gm_writer *w;
		struct gm_repair_report report;
		float z[8] = {1};

		unlink(path);
		w = begin(&m, &options);
		add_rows(w, &m, whole[i], &seed);
		OK(gm_writer_add_tokens(w, 100, NULL, 0, true, NULL, &first, &err));
		OK(gm_writer_append(w, 0, first, 1, z, 8, &err)); /* of two layers one */
		assert_int_equal(told.n, whole[i] / 64);
		assert_int_equal(gm_writer_abandon(w), whole[i]);
		assert_int_equal(told.n, (whole[i] + 63) / 64);
		assert_int_not_equal(access(path, F_OK), 0);
		assert_int_equal(access(part, F_OK) == 0, whole[i] > 0);
		if (whole[i] == 0)
			continue;
		OK(gm_trace_repair(part, path, &report, &err));
		assert_int_equal(report.n_token, whole[i]);
		assert_int_equal(report.n_row, 2 * whole[i]);
		assert_int_equal(report.n_lost_block, 0);
		unlink(part);
	}
}

/* The file is taken away while it is written: said at the next block. Its folder is moved: the message says where the trace is. */
static void test_taken_away(void **state)
{
	struct gm_model m = plain(2, 8, 2);
	struct gm_writer_options options = {0};
	struct gm_error err = {0};
	uint64_t seed = 10, first;
	char inner[220], moved[220], old[240];
	struct gm_writer *w;

	(void)state;
	w = begin(&m, &options);
	add_rows(w, &m, 64, &seed);
	unlink(part);
	OK(gm_writer_add_tokens(w, 64, NULL, 0, true, NULL, &first, &err));
	REFUSED(gm_writer_flush(w, &why), GM_ERR_IO, "was removed while it was being written");
	assert_int_equal(gm_writer_abandon(w), 0);

	snprintf(inner, sizeof(inner), "%s/inner", folder);
	snprintf(moved, sizeof(moved), "%s/moved", folder);
	snprintf(old, sizeof(old), "%s/x.gmt", inner);
	assert_int_equal(mkdir(inner, 0777), 0);
	memset(&err, 0, sizeof(err));
	w = must(gm_writer_open(old, &m, &options, &err));
	OK(gm_writer_begin_sequence(w, NULL, NULL, &err));
	add_rows(w, &m, 64, &seed);
	assert_int_equal(rename(inner, moved), 0);
	REFUSED(gm_writer_close(w, &why), GM_ERR_IO, "the trace is whole and lies at ");
	snprintf(old, sizeof(old), "%s/x.gmt.part", moved);
	struct gm_trace *t = must(gm_trace_open(old, &err));
	assert_int_equal(gm_trace_n_token(t), 64);
	gm_trace_close(t);
	unlink(old);
	rmdir(moved);
}

static void test_disk_full(void **state)
{
	struct gm_model m = plain(2, 8, 2);
	struct gm_writer_options options = {.tail = GM_TAIL_F32};
	struct gm_error err = {0};

	(void)state;
	assert_null(gm_writer_open("/dev/full", &m, &options, &err));
	assert_non_null(strstr(err.text, "cannot be written: /dev/full: byte 0: No space left on device"));

	/* A limit on the file's size stands for a full disk: the blocks before it stay and can be saved. */
	struct rlimit old, limit = {.rlim_cur = 30000, .rlim_max = RLIM_INFINITY};
	unlink(path);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit.rlim_max = old.rlim_max;
	struct gm_writer *w = begin(&m, &options);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	float z[8] = {8, 7, 6, 5, 4, 3, 2, 1};
	int status = GM_OK;
	uint64_t first;
	memset(&err, 0, sizeof(err));
	uint64_t seed = 77;
	for (uint32_t i = 0; status == GM_OK && i < 10000; i++) {
		status = gm_writer_add_tokens(w, 1, NULL, i, true, NULL, &first, &err);
		for (uint32_t layer = 0; status == GM_OK && layer < 2; layer++) {
			for (int e = 0; e < 8; e++)
				z[e] = (float)draw_normal(&seed);
			status = gm_writer_append(w, layer, first, 1, z, 8, &err);
		}
	}
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(status, GM_ERR_IO);
	assert_non_null(strstr(err.text, "whole blocks before it are kept"));
	uint64_t n_block = gm_writer_blocks(w);
	assert_true(n_block > 0);
	memset(&err, 0, sizeof(err));
	assert_int_equal(gm_writer_close(w, &err), GM_ERR_IO);
	struct gm_repair_report report;
	memset(&err, 0, sizeof(err));
	OK(gm_trace_repair(part, path, &report, &err));
	assert_int_equal(report.n_block, n_block);
	unlink(part);
}

/* Almost all rows absent in a large model: the block is cut so that it does not decode to far more than it is stored in. */
static void test_sparse_blocks_are_cut(void **state)
{
	struct gm_model m = plain(512, 2048, 2);
	struct gm_writer_options options = {.tail = GM_TAIL_F16};
	struct gm_writer *w = begin(&m, &options);
	struct gm_error err = {0};
	float z[2048];
	uint64_t first;

	(void)state;
	for (int e = 0; e < 2048; e++)
		z[e] = (float)(e % 100);
	OK(gm_writer_add_tokens(w, 64, NULL, 0, true, NULL, &first, &err));
	OK(gm_writer_append(w, 5, 0, 1, z, 2048, &err));
	OK(gm_writer_append(w, 511, 63, 1, z, 2048, &err));
	OK(gm_writer_close(w, &err));
	struct gm_trace *t = must(gm_trace_open(path, &err));
	struct gm_block b = {0};
	uint64_t rows = 0, tokens = 0;
	assert_true(gm_trace_n_block(t) > 1);
	for (uint64_t i = 0; i < gm_trace_n_block(t); i++) {
		OK(gm_trace_read(t, i, GM_WANT_TAIL, &b, &err));
		for (size_t r = 0; r < (size_t)b.n_token * 512; r++)
			rows += b.present[r];
		tokens += b.n_token;
	}
	assert_int_equal(rows, 2);
	assert_int_equal(tokens, 64);
	gm_block_free(&b);
	gm_trace_close(t);
}

static long peak_kib(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_maxrss;
}

/* 20,736 tokens of 24 x 64 (more than 40 MiB on disk) in far less memory, writing and reading. */
static void test_memory(void **state)
{
	struct gm_model m = plain(24, 64, 4);
	struct gm_writer_options options = {.tail = GM_TAIL_F16, .n_head = 16};
	struct gm_writer *w = begin(&m, &options);
	struct gm_error err = {0};
	struct gm_block b = {0};
	uint64_t seed = 21;

	(void)state;
	add_rows(w, &m, 256, &seed);
	long before = peak_kib();
	for (int i = 0; i < 40; i++)
		add_rows(w, &m, 512, &seed);
	OK(gm_writer_close(w, &err));
	struct gm_trace *t = must(gm_trace_open(path, &err));
	for (uint64_t i = 0; i < gm_trace_n_block(t); i++)
		OK(gm_trace_read(t, i, GM_WANT_TAIL, &b, &err));
	assert_int_equal(gm_trace_n_token(t), 256 + 40 * 512);
	assert_true(gm_trace_bytes(t) > 40u << 20);
#if !defined(__SANITIZE_ADDRESS__)
	assert_true(peak_kib() - before < 16 * 1024);
#else
	(void)before;
#endif
	gm_block_free(&b);
	gm_trace_close(t);
}

static int set_up(void **state)
{
	(void)state;
	folder = test_folder();
	snprintf(path, sizeof(path), "%s/written.gmt", folder);
	snprintf(part, sizeof(part), "%s.part", path);
	return 0;
}

static int tear_down(void **state)
{
	char command[300];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	int status = system(command);
	free(folder);
	return status;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_boundaries), cmocka_unit_test(test_flush),
		cmocka_unit_test(test_refusals),   cmocka_unit_test(test_refusals_topk),
		cmocka_unit_test(test_ranked),     cmocka_unit_test(test_late_columns),
		cmocka_unit_test(test_header),     cmocka_unit_test(test_part),
		cmocka_unit_test(test_abandon),    cmocka_unit_test(test_taken_away),
		cmocka_unit_test(test_disk_full),  cmocka_unit_test(test_sparse_blocks_are_cut),
		cmocka_unit_test(test_memory),     cmocka_unit_test(test_not_utf8),
		cmocka_unit_test(test_zero_bytes), cmocka_unit_test(test_json_out_of_memory),
	};

	return cmocka_run_group_tests_name("trace writer", tests, set_up, tear_down);
}
