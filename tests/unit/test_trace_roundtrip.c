/* What the writer takes, the reader gives back: every kind, tail, gating, group and absence, in any order of layers. */
#include "test_trace_common.h"

#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *folder;

static char *in_folder(const char *name)
{
	static char path[2][200];
	static int turn;

	turn = !turn;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
	return path[turn];
}

static void draw_sample(struct sample *s, uint64_t *seed)
{
	static const uint32_t experts[] = {1, 2, 4, 8, 30, 60, 128, 256, 257, 300, 600, 1100};
	struct gm_model *m = &s->model;
	enum values values = (enum values)draw_below(seed, N_VALUES);
	double absent = draw_below(seed, 3) ? 0 : draw_unit(seed);

	memset(s, 0, sizeof(*s));
	m->name = must(strdup("sample"));
	m->n_expert = experts[draw_below(seed, sizeof(experts) / sizeof(experts[0]))];
	m->n_layer = 1 + draw_below(seed, 5);
	m->top_k = 1 + draw_below(seed, m->n_expert < 10 ? m->n_expert : 10);
	m->gating = draw_below(seed, 2) ? GM_GATING_SOFTMAX : GM_GATING_SIGMOID;
	if (draw_below(seed, 3) == 0) {
		m->bias = must(calloc((size_t)m->n_layer * m->n_expert, sizeof(float)));
		for (uint32_t i = 0; i < m->n_layer * m->n_expert; i++)
			m->bias[i] = (float)(0.1 * draw_normal(seed));
	}
	if (draw_below(seed, 3) == 0 && m->n_expert % 4 == 0) {
		m->n_group = draw_below(seed, 2) ? 2 : 4;
		m->topk_group = m->n_group;
		while (m->topk_group > 1 && (m->topk_group - 1) * (m->n_expert / m->n_group) >= m->top_k &&
		       draw_below(seed, 2))
			m->topk_group--;
	}
	s->options.kind = draw_below(seed, 4) ? GM_KIND_LOGITS : GM_KIND_TOPK;
	if (s->options.kind == GM_KIND_LOGITS) {
		s->options.tail = (enum gm_tail)draw_below(seed, 3);
		if (draw_below(seed, 2))
			s->options.n_head = m->top_k + draw_below(seed, m->n_expert - m->top_k + 1);
	}
	s->options.logprobs = draw_below(seed, 2);
	s->options.predictions = draw_below(seed, 2);
	s->options.level = (int)draw_below(seed, 4);
	s->n_token = draw_below(seed, 4) ? 1 + draw_below(seed, 200) : 64 * draw_below(seed, 4);
	sample_alloc(s);
	fill_tokens(s, seed, draw_below(seed, 2) ? 3 : 90);
	fill_rows(s, seed, values, absent);
}

static void test_random_traces(void **state)
{
	(void)state;
	for (uint64_t k = 0; k < 150; k++) {
		uint64_t seed = 1000 + k;
		struct gm_error err = {0};
		struct gm_verify_report report;
		struct sample s;
		const char *path = in_folder("random.gmt");

		draw_sample(&s, &seed);
		write_sample(&s, path, &seed);
		for (unsigned want = 0; want < 4; want++) {
			struct gm_trace *t = gm_trace_open(path, &err);
			if (!t)
				fail_msg("seed %llu: %s", (unsigned long long)k, err.text);
			check_trace(&s, t, want);
			gm_trace_close(t);
		}
		OK(gm_trace_verify(path, &report, &err));
		assert_int_equal(report.n_token, s.n_token);
		sample_free(&s);
	}
}

/* A pipe fed by another process gives the same. */
static void test_pipe(void **state)
{
	(void)state;
	for (uint64_t k = 0; k < 20; k++) {
		uint64_t seed = 5000 + k;
		struct gm_error err = {0};
		struct sample s;
		char path[200], fifo[200];

		snprintf(path, sizeof(path), "%s/piped.gmt", folder);
		snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
		draw_sample(&s, &seed);
		assert_int_equal(mkfifo(fifo, 0600), 0);
		bool through_writer = k % 2;
		if (!through_writer)
			write_sample(&s, path, &seed);
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			char command[450];
			if (through_writer) { /* the writer itself writes to the pipe */
				write_sample(&s, fifo, &seed);
				_exit(0);
			}
			snprintf(command, sizeof(command), "cat %s > %s", path, fifo);
			_exit(system(command) == 0 ? 0 : 1);
		}
		struct gm_trace *t = gm_trace_open(fifo, &err);
		if (!t)
			fail_msg("seed %llu: %s", (unsigned long long)k, err.text);
		assert_false(gm_trace_seekable(t));
		assert_null(gm_trace_hash(t));
		check_trace(&s, t, GM_WANT_TAIL);
		for (uint32_t i = 0; i < gm_trace_n_sequence(t); i++) {
			char id[40];
			snprintf(id, sizeof(id), "seq-%u", i);
			assert_string_equal(gm_trace_sequence(t, i)->id, id);
		}
		if (!through_writer) {
			struct gm_trace *file = gm_trace_open(path, &err);
			assert_non_null(file);
			assert_string_equal(gm_trace_hash(file), gm_trace_hash(t));
			assert_int_equal(gm_trace_n_row(file), gm_trace_n_row(t));
			assert_int_equal(gm_trace_bytes(file), gm_trace_bytes(t));
			gm_trace_close(file);
		}
		gm_trace_close(t);
		waitpid(child, NULL, 0);
		unlink(fifo);
		sample_free(&s);
	}
}

/* How often the file has these bytes. */
static uint32_t occurrences(const char *path, const uint8_t *what, size_t size)
{
	FILE *f = must(fopen(path, "rb"));
	uint32_t n = 0;

	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	size_t length = (size_t)ftell(f);
	uint8_t *data = must(malloc(length));
	rewind(f);
	assert_int_equal(fread(data, 1, length, f), length);
	fclose(f);
	for (size_t i = 0; i + size <= length; i++)
		n += memcmp(data + i, what, size) == 0;
	free(data);
	return n;
}

/* The lower planes of bfloat16 values hold zeros alone: frames of runs, one for each 128 KiB and what is left. */
static void test_constant_planes(void **state)
{
	static const uint8_t runs[4][17] = {
		{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0x00, 0x00, 0x01, 0x00, 0x03, 0x00, 0x08, 0x00}, /* 65,536 */
		{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0x00, 0x00, 0x02, 0x00, 0x03, 0x00, 0x10, 0x00}, /* 131,072 */
		{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0x00, 0x00, 0x03, 0x00, 0x02, 0x00, 0x10, 0x00, 0x03, 0x00, 0x08, 0x00},
		{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0x00, 0x00, 0x04, 0x00, 0x02, 0x00, 0x10, 0x00, 0x03, 0x00, 0x10, 0x00},
	};

	(void)state;
	for (uint32_t n_layer = 1; n_layer <= 4; n_layer++) {
		uint64_t seed = 7000 + n_layer;
		struct gm_error err = {0};
		struct sample s = {.n_token = 64};
		const char *path = in_folder("constant.gmt");

		s.model =
			(struct gm_model){.name = must(strdup("")), .n_layer = n_layer, .n_expert = 1024 + 32, .top_k = 4};
		s.options = (struct gm_writer_options){.kind = GM_KIND_LOGITS, .n_head = 32, .tail = GM_TAIL_F32};
		sample_alloc(&s);
		fill_tokens(&s, &seed, 3);
		fill_rows(&s, &seed, VALUES_BF16, 0);
		write_sample(&s, path, &seed);
		assert_int_equal(occurrences(path, runs[n_layer - 1], n_layer < 3 ? 13 : 17), 2);
		struct gm_trace *t = gm_trace_open(path, &err);
		if (!t)
			fail_msg("%s", err.text);
		check_trace(&s, t, GM_WANT_TAIL);
		gm_trace_close(t);
		sample_free(&s);
	}
}

static int set_up(void **state)
{
	(void)state;
	folder = test_folder();
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
		cmocka_unit_test(test_random_traces),
		cmocka_unit_test(test_pipe),
		cmocka_unit_test(test_constant_planes),
	};

	return cmocka_run_group_tests_name("trace round trips", tests, set_up, tear_down);
}
