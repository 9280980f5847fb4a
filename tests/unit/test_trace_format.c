/* The format itself: the specification's worked example byte for byte, and the golden file of version 1, kept for ever. */
#include "test_trace_common.h"

#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN "tests/data/format-v1.gmt"
#define SPECIFICATION "docs/trace-format.md"
#define GOLDEN_HASH "7556ec7831533063"

static uint8_t *load(const char *name, size_t *size)
{
	FILE *f = fopen(name, "rb");
	struct stat st;

	if (!f)
		fail_msg("%s: cannot be opened: the test runs in the repository's root", name);
	assert_int_equal(fstat(fileno(f), &st), 0);
	*size = (size_t)st.st_size;
	uint8_t *data = must(calloc(*size + 1, 1));
	assert_int_equal(fread(data, 1, *size, f), *size);
	fclose(f);
	return data;
}

/* --- the worked example --- */

static void write_example(const char *path)
{
	struct gm_model m = {.name = "tiny", .n_layer = 1, .n_expert = 3, .top_k = 1};
	struct gm_writer_options options = {.n_head = 2, .tail = GM_TAIL_F16, .tool = "example"};
	struct gm_error err = {0};
	struct gm_writer *w = gm_writer_open(path, &m, &options, &err);
	uint64_t first;

	if (!w)
		fail_msg("%s", err.text);
	OK(gm_writer_begin_sequence(w, "s0", "maths", &err));
	OK(gm_writer_add_tokens(w, 2, (int32_t[]){7, 300}, 0, true, NULL, &first, &err));
	OK(gm_writer_append(w, 0, 0, 2, (float[]){0.5f, 2.0f, 1.0f, -1.0f, 0.25f, 4.0f}, 3, &err));
	OK(gm_writer_close(w, &err));
}

/* The bytes of the specification's example: lines "0123  12 34 ...  | words" between two marks. */
static size_t parse_example(uint8_t *out, size_t max)
{
	size_t size, n = 0;
	char *text = (char *)load(SPECIFICATION, &size);
	char *line = strstr(text, "<!-- example begins -->"), *end = strstr(text, "<!-- example ends -->");

	assert_non_null(line);
	assert_non_null(end);
	for (; line < end; line = strchr(line, '\n') + 1) {
		unsigned offset, value;
		int used = 0;
		if (sscanf(line, "%4x  %n", &offset, &used) != 1 || used != 6)
			continue;
		assert_int_equal(offset, n);
		const char *p = line + used;
		while (p[0] != ' ' && p[0] != '|' && sscanf(p, "%2x", &value) == 1) {
			assert_true(n < max);
			out[n++] = (uint8_t)value;
			p += p[2] == ' ' ? 3 : 2;
		}
	}
	free(text);
	return n;
}

static void test_example(void **state)
{
	char path[] = "/tmp/gm-example-XXXXXX";
	uint8_t wanted[4096];
	size_t size;

	(void)state;
	close(mkstemp(path));
	write_example(path);
	uint8_t *written = load(path, &size);
	if (getenv("GM_KEEP_EXAMPLE"))
		assert_int_equal(rename(path, getenv("GM_KEEP_EXAMPLE")), 0);
	else
		unlink(path);
	assert_int_equal(parse_example(wanted, sizeof(wanted)), size);
	for (size_t i = 0; i < size; i++)
		if (written[i] != wanted[i])
			fail_msg("byte %#zx: the writer says %02x, the specification %02x", i, written[i], wanted[i]);
	free(written);
}

/* --- the golden file --- */

/* One seed for ever: 80 tokens of 3 layers x 300 experts with bias and groups, absent rows, log-probabilities, predictions. */
static void golden_sample(struct sample *s)
{
	uint64_t seed = 20240601;
	struct gm_model *m = &s->model;

	memset(s, 0, sizeof(*s));
	m->name = must(strdup("golden"));
	m->n_layer = 3;
	m->n_expert = 300;
	m->top_k = 6;
	m->n_group = 4;
	m->topk_group = 2;
	m->gating = GM_GATING_SIGMOID;
	m->bias = must(calloc(900, sizeof(float)));
	m->expert_bytes = must(calloc(3, sizeof(uint64_t)));
	for (int i = 0; i < 900; i++)
		m->bias[i] = (float)((int)draw_below(&seed, 200) - 100) / 1024;
	for (uint64_t i = 0; i < 3; i++)
		m->expert_bytes[i] = 1000000 + i;
	s->options = (struct gm_writer_options){.n_head = 20,
						.tail = GM_TAIL_F16,
						.logprobs = true,
						.predictions = true,
						.source = "tests/unit/test_trace_format.c",
						.tool = "gatemass golden"};
	s->n_token = 80;
	sample_alloc(s);
	fill_tokens(s, &seed, 4);
	fill_rows(s, &seed, VALUES_NORMAL, 0.05);
}

static void test_golden(void **state)
{
	struct gm_verify_report report;
	struct gm_error err = {0};
	struct sample s;
	uint64_t seed = 1;

	(void)state;
	golden_sample(&s);
	if (getenv("GM_MAKE_GOLDEN")) /* once, when the format was born */
		write_sample(&s, GOLDEN, &seed);
	struct gm_trace *t = gm_trace_open(GOLDEN, &err);
	if (!t)
		fail_msg("%s", err.text);
	check_trace(&s, t, GM_WANT_TAIL | GM_WANT_PREDICTION);
	const struct gm_model *m = gm_trace_model(t);
	assert_string_equal(m->name, "golden");
	assert_int_equal(m->n_group, 4);
	assert_int_equal(m->topk_group, 2);
	assert_int_equal(m->gating, GM_GATING_SIGMOID);
	assert_memory_equal(m->bias, s.model.bias, 900 * sizeof(float));
	assert_memory_equal(m->expert_bytes, s.model.expert_bytes, 3 * sizeof(uint64_t));
	assert_int_equal(gm_trace_n_sequence(t), s.sequence[s.n_token - 1] + 1);
	assert_string_equal(gm_trace_sequence(t, 1)->id, "seq-1");
	assert_string_equal(gm_trace_sequence(t, 1)->label, "topic");
	assert_string_equal(gm_trace_hash(t), GOLDEN_HASH);
	gm_trace_close(t);
	OK(gm_trace_verify(GOLDEN, &report, &err));
	assert_string_equal(report.hash, GOLDEN_HASH);
	sample_free(&s);
}

/* --- seeds of the fuzzer --- */

/* One small trace of each kind in tests/fuzz/corpus/trace, behind the byte that tells the fuzzer what to do. They must be there; GM_MAKE_CORPUS
 * makes them anew. */
static void test_corpus(void **state)
{
	(void)state;
	for (uint32_t k = 0; k < 6; k++) {
		uint64_t seed = k;
		struct sample s = {.n_token = k == 5 ? 1 : 3 + k};
		char name[80];
		s.model = (struct gm_model){
			.name = must(strdup("")), .n_layer = 1 + k % 2, .n_expert = k == 5 ? 600 : 6, .top_k = 2};
		if (k == 3) {
			s.model.n_group = 3;
			s.model.topk_group = 1;
			s.model.gating = GM_GATING_SIGMOID;
		}
		s.options = (struct gm_writer_options){.kind = k == 2 ? GM_KIND_TOPK : GM_KIND_LOGITS,
						       .n_head = k == 2 ? 0 : 2 + k % 3,
						       .tail = k == 2 ? GM_TAIL_NONE : (enum gm_tail)(k % 3),
						       .logprobs = k % 2,
						       .predictions = k % 2,
						       .tool = ""};
		snprintf(name, sizeof(name), "tests/fuzz/corpus/trace/seed-%u", k);
		if (getenv("GM_MAKE_CORPUS")) {
			char path[] = "/tmp/gm-seed-XXXXXX";
			size_t size;
			sample_alloc(&s);
			fill_tokens(&s, &seed, 2);
			fill_rows(&s, &seed, VALUES_NORMAL, k == 1 ? 0.5 : 0);
			close(mkstemp(path));
			write_sample(&s, path, &seed);
			uint8_t *data = load(path, &size);
			FILE *f = must(fopen(name, "wb"));
			fputc((int)(k * 3 + 1), f);
			assert_int_equal(fwrite(data, 1, size, f), size);
			assert_int_equal(fclose(f), 0);
			unlink(path);
			free(data);
		}
		size_t size;
		uint8_t *data = load(name, &size);
		assert_memory_equal(data + 1, "\x89GMT", 4);
		free(data);
		sample_free(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_example),
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_corpus),
	};

	return cmocka_run_group_tests_name("trace format", tests, NULL, NULL);
}
