/* Random traces go out through every exporter and come back through its importer: the same file, byte for byte. */
#include "tests/unit/test_trace_common.h"

#include "traces/commands.h"
#include "traces/export_common.h"
#include "traces/import_common.h"

#include <unistd.h>

#define N_ROUND 60

static char *folder;

static const char *in_folder(const char *name)
{
	static char path[4][256];
	static int next;

	next = (next + 1) % 4;
	snprintf(path[next], sizeof(path[next]), "%s/%s", folder, name);
	return path[next];
}

static char *read_all(const char *path, size_t *size)
{
	FILE *file = must(fopen(path, "rb"));

	fseek(file, 0, SEEK_END);
	*size = (size_t)ftell(file);
	rewind(file);
	char *bytes = must(malloc(*size + 1));
	assert_int_equal(fread(bytes, 1, *size, file), *size);
	bytes[*size] = '\0';
	fclose(file);
	return bytes;
}

static void assert_same_file(const char *a, const char *b, uint64_t seed)
{
	size_t n, m;
	char *x = read_all(a, &n), *y = read_all(b, &m);

	if (n != m || memcmp(x, y, n) != 0)
		fail_msg("seed %llu: %s and %s differ", (unsigned long long)seed, a, b);
	free(x);
	free(y);
}

/* A model of any shape: groups, bias, both gatings, known or unknown bytes. */
static void draw_model(struct gm_model *m, uint64_t *seed)
{
	*m = (struct gm_model){.n_layer = 1 + draw_below(seed, 4), .n_expert = 1 + draw_below(seed, 24)};
	m->name = must(strdup(draw_below(seed, 4) ? "a \"model\" \xc3\xa9" : ""));
	m->top_k = 1 + draw_below(seed, m->n_expert);
	m->gating = draw_below(seed, 2) ? GM_GATING_SIGMOID : GM_GATING_SOFTMAX;
	if (m->n_expert % 4 == 0 && draw_below(seed, 2)) {
		m->n_group = 4;
		m->topk_group = 2;
		m->top_k = 1 + draw_below(seed, m->n_expert / 2);
	}
	if (draw_below(seed, 2)) {
		m->bias = must(calloc((size_t)m->n_layer * m->n_expert, sizeof(*m->bias)));
		for (uint32_t i = 0; i < m->n_layer * m->n_expert; i++)
			m->bias[i] = (float)draw_normal(seed);
	}
	if (draw_below(seed, 2)) {
		m->expert_bytes = must(calloc(m->n_layer, sizeof(*m->expert_bytes)));
		for (uint32_t i = 0; i < m->n_layer; i++)
			m->expert_bytes[i] = 1000 + draw_below(seed, 2);
	}
	if (draw_below(seed, 2)) {
		m->dense_bytes = must(calloc(m->n_layer, sizeof(*m->dense_bytes)));
		for (uint32_t i = 0; i < m->n_layer; i++)
			m->dense_bytes[i] = UINT64_C(1) << 40;
	}
}

static void draw_sample(struct sample *s, uint64_t seed, enum gm_trace_kind kind)
{
	memset(s, 0, sizeof(*s));
	draw_model(&s->model, &seed);
	s->options = (struct gm_writer_options){.kind = kind, .tool = GM_TRACES_TOOL, .source = "a test"};
	s->options.n_head =
		kind == GM_KIND_LOGITS ? s->model.top_k + draw_below(&seed, s->model.n_expert - s->model.top_k + 1) : 0;
	s->options.tail = kind == GM_KIND_LOGITS ? GM_TAIL_F32 : GM_TAIL_NONE;
	s->options.logprobs = kind == GM_KIND_LOGITS && draw_below(&seed, 2);
	s->n_token = 2 + draw_below(&seed, 200);
	sample_alloc(s);
	fill_tokens(s, &seed, 1 + draw_below(&seed, 6));
	fill_rows(s, &seed, (enum values)draw_below(&seed, N_VALUES), kind == GM_KIND_LOGITS && seed % 2 ? 0.2 : 0.0);
	s->logprob[0] = -1.0f; /* a column without a number would not come back */
	write_sample(s, in_folder("a.gmt"), &seed);
}

static void export_as(const char *format, const char *trace_path, const char *output, bool extra)
{
	struct gm_error err = {0};
	const struct gm_exporter *exporter = gm_exporter_find(format, &err);
	struct gm_export_options options = {.output = output, .extra = extra, .quiet = true};
	struct gm_trace *trace = gm_trace_open(trace_path, &err);

	if (!trace)
		fail_msg("%s", err.text);
	assert_non_null(exporter);
	OK(exporter->run(trace, &options, &err));
	gm_trace_close(trace);
}

static void import_as(const char *format, const char *input_path, const char *meta, uint32_t n_head, const char *output)
{
	struct gm_error err = {0};
	const struct gm_importer *importer = gm_importer_find(format, &err);
	struct gm_import_options options = {
		.output = output, .meta = meta, .n_head = n_head, .tail = GM_TAIL_F32, .tail_given = true, .quiet = true};
	struct gm_feed *input = gm_feed_open(input_path, &err);

	if (!input)
		fail_msg("%s", err.text);
	assert_non_null(importer);
	OK(importer->run(input, &options, &err));
	gm_feed_close(input);
}

/* The lines of a file but its first n in random order. */
static void shuffle_lines(const char *path, uint32_t n_keep, uint64_t *seed)
{
	size_t size;
	char *text = read_all(path, &size), *save = NULL;
	char **line = must(malloc((size + 1) * sizeof(*line)));
	uint32_t n = 0;

	for (char *at = strtok_r(text, "\n", &save); at; at = strtok_r(NULL, "\n", &save))
		line[n++] = at;
	for (uint32_t i = n_keep + 1; i < n; i++) {
		uint32_t j = n_keep + draw_below(seed, i - n_keep + 1);
		char *swap = line[i];

		line[i] = line[j];
		line[j] = swap;
	}
	FILE *file = must(fopen(path, "wb"));

	for (uint32_t i = 0; i < n; i++)
		fprintf(file, "%s\n", line[i]);
	fclose(file);
	free(line);
	free(text);
}

static void test_jsonl(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < N_ROUND; seed++) {
		struct sample s;
		uint64_t order = seed;

		draw_sample(&s, seed, GM_KIND_LOGITS);
		export_as("jsonl", in_folder("a.gmt"), in_folder("a.jsonl"), false);
		import_as("jsonl", in_folder("a.jsonl"), NULL, s.options.n_head, in_folder("b.gmt"));
		assert_same_file(in_folder("a.gmt"), in_folder("b.gmt"), seed);
		shuffle_lines(in_folder("a.jsonl"), 1, &order);
		import_as("jsonl", in_folder("a.jsonl"), NULL, s.options.n_head, in_folder("b.gmt"));
		assert_same_file(in_folder("a.gmt"), in_folder("b.gmt"), seed);
		sample_free(&s);
	}
}

static void test_npy(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < N_ROUND; seed++) {
		struct sample s;

		draw_sample(&s, seed, GM_KIND_LOGITS);
		export_as("npy", in_folder("a.gmt"), in_folder("a.npy"), false);
		import_as("npy", in_folder("a.npy"), in_folder("a.npy.json"), s.options.n_head, in_folder("b.gmt"));
		assert_same_file(in_folder("a.gmt"), in_folder("b.gmt"), seed);
		sample_free(&s);
	}
}

/* Selection bias and groups have no place in a comment line, and the ids of sequences become numbers: rows and tokens count. */
static void test_topk_csv(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < N_ROUND; seed++) {
		struct gm_error err = {0};
		struct sample s;
		uint64_t order = seed;

		draw_sample(&s, seed, GM_KIND_TOPK);
		export_as("topk-csv", in_folder("a.gmt"), in_folder("a.csv"), true);
		for (int round = 0; round < 2; round++) {
			import_as("topk-csv", in_folder("a.csv"), NULL, 0, in_folder("b.gmt"));
			struct gm_trace *trace = must(gm_trace_open(in_folder("b.gmt"), &err));

			check_trace(&s, trace, GM_WANT_HEAD);
			assert_string_equal(gm_trace_model(trace)->name, s.model.name);
			gm_trace_close(trace);
			/* Rows of one line can come in any order. */
			if (s.model.top_k > 1)
				break;
			shuffle_lines(in_folder("a.csv"), 2, &order);
		}
		sample_free(&s);
	}
}

/* The weights of a logits trace are those of its selected experts. */
static void test_topk_of_logits(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < N_ROUND; seed++) {
		struct gm_error err = {0};
		struct gm_block a = {0}, b = {0};
		struct sample s;

		draw_sample(&s, seed * 2 + 1, GM_KIND_LOGITS);
		export_as("topk-csv", in_folder("a.gmt"), in_folder("a.csv"), true);
		import_as("topk-csv", in_folder("a.csv"), NULL, 0, in_folder("b.gmt"));
		struct gm_trace *x = must(gm_trace_open(in_folder("a.gmt"), &err));
		struct gm_trace *y = must(gm_trace_open(in_folder("b.gmt"), &err));

		/* A token without rows is lost on the way: with one, the blocks do not match. */
		if (gm_trace_n_token(x) == gm_trace_n_token(y)) {
			double *gate = must(malloc(s.model.top_k * sizeof(*gate)));

			OK(gm_trace_read(x, 0, GM_WANT_HEAD, &a, &err));
			OK(gm_trace_read(y, 0, GM_WANT_HEAD, &b, &err));
			for (size_t row = 0; row < (size_t)a.n_token * a.n_layer; row++) {
				if (!a.present[row])
					continue;
				gm_gate_weights(s.model.gating, a.top_k, a.logit + row * a.n_head, gate);
				for (uint32_t r = 0; r < a.top_k; r++) {
					assert_int_equal(a.head[row * a.n_head + r], b.head[row * b.n_head + r]);
					assert_true(fabs(gate[r] - b.weight[row * b.top_k + r]) < 1e-12);
				}
			}
			free(gate);
		}
		gm_block_free(&a);
		gm_block_free(&b);
		gm_trace_close(x);
		gm_trace_close(y);
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
	static const char *const names[] = {"a.gmt", "b.gmt", "a.jsonl", "a.npy", "a.npy.json", "a.csv"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(in_folder(names[i]));
	/* Nothing else was left behind: no .part, no temporary file. */
	int status = rmdir(folder);

	free(folder);
	return status;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_jsonl),
		cmocka_unit_test(test_npy),
		cmocka_unit_test(test_topk_csv),
		cmocka_unit_test(test_topk_of_logits),
	};

	return cmocka_run_group_tests_name("import and export", tests, set_up, tear_down);
}
