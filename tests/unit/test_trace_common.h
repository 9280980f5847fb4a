/* What the tests of the trace format share: a random trace held whole in memory, written in pieces, compared with what is read. */
#ifndef GM_TESTS_TRACE_COMMON_H
#define GM_TESTS_TRACE_COMMON_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "traces/reader.h"
#include "traces/select.h"
#include "traces/verify.h"
#include "traces/writer.h"

/* splitmix64: tests draw from explicit seeds. */
static inline uint64_t draw(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static inline uint32_t draw_below(uint64_t *state, uint32_t n)
{
	return (uint32_t)(draw(state) % n);
}

static inline double draw_unit(uint64_t *state)
{
	return (double)(draw(state) >> 11) * 0x1p-53;
}

static inline double draw_normal(uint64_t *state)
{
	double sum = 0;
	for (int i = 0; i < 12; i++)
		sum += draw_unit(state);
	return sum - 6;
}

static inline void *must(void *p)
{
	assert_non_null(p);
	return p;
}

/* A call that must succeed; its message is shown when it does not. */
#define OK(call)                                                             \
	do {                                                                 \
		int ok_status_ = (call);                                     \
		if (ok_status_ < 0)                                          \
			fail_msg("%s: %d: %s", #call, ok_status_, err.text); \
	} while (0)

/* A whole trace in memory. */
struct sample {
	struct gm_model model;
	struct gm_writer_options options;
	uint32_t n_token, n_head;
	int32_t *token;
	uint32_t *sequence, *position, *pass;
	float *logprob;
	uint8_t *present;     /* [n_token][n_layer] */
	float *logit;         /* [n_token][n_layer][n_expert] */
	uint16_t *topk;       /* [n_token][n_layer][top_k], top-k traces */
	double *weight;       /* likewise */
	uint16_t *prediction; /* [n_token][n_layer][top_k] */
};

static inline void sample_free(struct sample *s)
{
	gm_model_free(&s->model);
	free(s->token);
	free(s->sequence);
	free(s->position);
	free(s->pass);
	free(s->logprob);
	free(s->present);
	free(s->logit);
	free(s->topk);
	free(s->weight);
	free(s->prediction);
}

/* How logits are drawn. */
enum values { VALUES_NORMAL, VALUES_TIES, VALUES_BF16, VALUES_WIDE, N_VALUES };

static inline float draw_logit(uint64_t *seed, enum values values)
{
	float z = (float)(2 * draw_normal(seed));
	uint32_t bits;

	if (values == VALUES_TIES)
		return (float)((int)draw_below(seed, 5) - 2) * (draw_below(seed, 2) ? 1.0f : -1.0f); /* -0.0 too */
	if (values == VALUES_WIDE)
		return (float)(draw_normal(seed) * 6000);
	if (values == VALUES_BF16) {
		memcpy(&bits, &z, sizeof(bits));
		bits &= 0xffff0000u;
		memcpy(&z, &bits, sizeof(z));
	}
	return z;
}

static inline void fill_rows(struct sample *s, uint64_t *seed, enum values values, double absent)
{
	const struct gm_model *m = &s->model;
	size_t n_row = (size_t)s->n_token * m->n_layer;

	for (size_t row = 0; row < n_row; row++) {
		s->present[row] = draw_unit(seed) >= absent;
		for (uint32_t e = 0; e < m->n_expert; e++)
			s->logit[row * m->n_expert + e] = draw_logit(seed, values);
		double sum = 0;
		for (uint32_t i = 0; i < m->top_k; i++) {
			uint16_t *list = s->topk + row * m->top_k;
			bool twice = true;
			while (twice) {
				list[i] = (uint16_t)draw_below(seed, m->n_expert);
				twice = false;
				for (uint32_t j = 0; j < i; j++)
					twice = twice || list[j] == list[i];
			}
			s->weight[row * m->top_k + i] = draw_unit(seed) + 1e-3;
			sum += s->weight[row * m->top_k + i];
			s->prediction[row * m->top_k + i] =
				draw_below(seed, 4) ? (uint16_t)draw_below(seed, m->n_expert) : 0xffff;
		}
		for (uint32_t i = 0; i < m->top_k; i++)
			s->weight[row * m->top_k + i] /= sum;
	}
}

/* Tokens in passes and sequences of random length. */
static inline void fill_tokens(struct sample *s, uint64_t *seed, uint32_t max_pass)
{
	uint32_t sequence = 0, pass = 0, position = 0;

	for (uint32_t i = 0, left = 1 + draw_below(seed, max_pass); i < s->n_token; i++, left--) {
		if (left == 0) {
			left = 1 + draw_below(seed, max_pass);
			pass++;
			if (draw_below(seed, 8) == 0) {
				sequence++;
				position = draw_below(seed, 5);
			}
		}
		s->token[i] = (int32_t)draw_below(seed, 150000);
		s->sequence[i] = sequence;
		s->position[i] = position++;
		s->pass[i] = pass;
		s->logprob[i] = draw_below(seed, 10) ? (float)-draw_unit(seed) : (float)NAN;
	}
}

static inline void sample_alloc(struct sample *s)
{
	const struct gm_model *m = &s->model;
	size_t n = s->n_token, n_row = n * m->n_layer;

	s->token = must(calloc(n + 1, sizeof(*s->token)));
	s->sequence = must(calloc(n + 1, sizeof(*s->sequence)));
	s->position = must(calloc(n + 1, sizeof(*s->position)));
	s->pass = must(calloc(n + 1, sizeof(*s->pass)));
	s->logprob = must(calloc(n + 1, sizeof(*s->logprob)));
	s->present = must(calloc(n_row + 1, 1));
	s->logit = must(calloc(n_row * m->n_expert + 1, sizeof(*s->logit)));
	s->topk = must(calloc(n_row * m->top_k + 1, sizeof(*s->topk)));
	s->weight = must(calloc(n_row * m->top_k + 1, sizeof(*s->weight)));
	s->prediction = must(calloc(n_row * m->top_k + 1, sizeof(*s->prediction)));
}

/* Writes the sample as a recorder would: pass by pass, the layers of a pass in random order and in pieces, up to `depth` passes
 * under way at once. */
static inline void write_pass(struct gm_writer *w, const struct sample *s, uint32_t from, uint32_t to, uint64_t *seed)
{
	const struct gm_model *m = &s->model;
	uint32_t *order = must(malloc(m->n_layer * sizeof(*order)));
	struct gm_error err = {0};

	for (uint32_t i = 0; i < m->n_layer; i++) {
		uint32_t j = draw_below(seed, i + 1);
		order[i] = order[j];
		order[j] = i;
	}
	for (uint32_t k = 0; k < m->n_layer; k++) {
		uint32_t layer = order[k], i = from;
		while (i < to) {
			uint32_t n = 0;
			while (i + n < to && s->present[(size_t)(i + n) * m->n_layer + layer])
				n++;
			if (n == 0) {
				i++;
				continue;
			}
			n = 1 + draw_below(seed, n);
			size_t row = (size_t)i * m->n_layer + layer;
			if (s->options.predictions)
				for (uint32_t r = 0; r < n; r++)
					OK(gm_writer_append_prediction(
						w, layer, i + r, 1,
						s->prediction + (row + (size_t)r * m->n_layer) * m->top_k, &err));
			if (s->options.kind == GM_KIND_LOGITS)
				OK(gm_writer_append(w, layer, i, n, s->logit + row * m->n_expert,
						    (size_t)m->n_layer * m->n_expert, &err));
			else
				for (uint32_t r = 0; r < n; r++)
					OK(gm_writer_append_topk(
						w, layer, i + r, 1, s->topk + (row + (size_t)r * m->n_layer) * m->top_k,
						s->weight + (row + (size_t)r * m->n_layer) * m->top_k, &err));
			i += n;
		}
	}
	OK(gm_writer_complete(w, to, &err));
	free(order);
}

static inline void write_sample(const struct sample *s, const char *path, uint64_t *seed)
{
	struct gm_error err = {0};
	struct gm_writer *w = gm_writer_open(path, &s->model, &s->options, &err);
	uint32_t i = 0, sequence = UINT32_MAX;
	char text[40];

	if (!w)
		fail_msg("gm_writer_open: %s", err.text);
	while (i < s->n_token) {
		uint32_t n = 1;
		uint64_t first;
		while (i + n < s->n_token && s->pass[i + n] == s->pass[i])
			n++;
		if (s->sequence[i] != sequence) {
			sequence = s->sequence[i];
			snprintf(text, sizeof(text), "seq-%u", sequence);
			OK(gm_writer_begin_sequence(w, text, sequence % 3 ? "topic" : NULL, &err));
		}
		bool late = s->options.logprobs && draw_below(seed, 2);
		OK(gm_writer_add_tokens(w, n, s->token + i, s->position[i], true, late ? NULL : s->logprob + i, &first,
					&err));
		assert_int_equal(first, i);
		if (late)
			OK(gm_writer_set_logprobs(w, first, n, s->logprob + i, &err));
		write_pass(w, s, i, i + n, seed);
		i += n;
	}
	OK(gm_writer_close(w, &err));
}

static inline uint32_t bits_of(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* One row of a block against the sample, by the slow way. */
static inline void check_row(const struct sample *s, const struct gm_block *b, unsigned want, uint32_t layer, uint32_t i)
{
	const struct gm_model *m = &s->model;
	size_t row = (size_t)layer * b->n_token + i, from = (size_t)(b->first_token + i) * m->n_layer + layer;
	const uint16_t *head = b->head + row * b->n_head;
	float *full = must(malloc(m->n_expert * sizeof(*full)));

	assert_int_equal(b->present[row], s->present[from]);
	if (!s->present[from]) {
		for (uint32_t r = 0; r < b->n_head; r++)
			assert_int_equal(head[r], 0);
		if (b->lse)
			assert_true(b->lse[row] == 0);
	} else if (s->options.kind == GM_KIND_TOPK) {
		assert_memory_equal(head, s->topk + from * m->top_k, m->top_k * sizeof(*head));
		assert_memory_equal(b->weight + row * m->top_k, s->weight + from * m->top_k, m->top_k * sizeof(double));
	} else {
		struct gm_error err = {0};
		struct gm_selector *selector = must(gm_selector_new(m, b->n_head, &err));
		uint16_t *ranked = must(malloc(b->n_head * sizeof(*ranked)));
		const float *z = s->logit + from * m->n_expert;
		double lse;
		OK(gm_select_rank(selector, layer, z, ranked, &lse, &err));
		assert_memory_equal(head, ranked, b->n_head * sizeof(*ranked));
		assert_true(fabs(b->lse[row] - lse) <= 1e-12 * (1 + fabs(lse))); /* exp and log differ by machine */
		for (uint32_t r = 0; r < b->n_head; r++)
			assert_int_equal(bits_of(b->logit[row * b->n_head + r]), bits_of(z[head[r]]));
		gm_block_logits(b, m, layer, i, full);
		for (uint32_t r = 0; r < b->n_head; r++) {
			assert_int_equal(bits_of(full[head[r]]), bits_of(z[head[r]]));
			full[head[r]] = NAN;
		}
		for (uint32_t e = 0; e < m->n_expert; e++) {
			bool in_head = false;
			for (uint32_t r = 0; r < b->n_head; r++)
				in_head = in_head || head[r] == e;
			if (in_head)
				continue;
			if (!(want & GM_WANT_TAIL) || s->options.tail == GM_TAIL_NONE)
				assert_true(full[e] != full[e]);
			else if (s->options.tail == GM_TAIL_F32)
				assert_int_equal(bits_of(full[e]), bits_of(z[e]));
			else
				assert_int_equal(bits_of(full[e]), bits_of(gm_from_f16(gm_to_f16(z[e]))));
		}
		gm_selector_free(selector);
		free(ranked);
	}
	if (b->prediction)
		for (uint32_t k = 0; k < m->top_k; k++)
			assert_int_equal(b->prediction[row * m->top_k + k],
					 s->present[from] ? s->prediction[from * m->top_k + k] : 0xffff);
	free(full);
}

static inline void check_block(const struct sample *s, const struct gm_block *b, unsigned want)
{
	assert_in_range(b->first_token + b->n_token, 1, s->n_token);
	for (uint32_t i = 0; i < b->n_token; i++) {
		uint64_t t = b->first_token + i;
		assert_int_equal(b->token[i], s->token[t]);
		assert_int_equal(b->sequence[i], s->sequence[t]);
		assert_int_equal(b->position[i], s->position[t]);
		assert_int_equal(b->pass[i], s->pass[t]);
		if (!s->options.logprobs)
			assert_null(b->logprob);
		else if (s->logprob[t] != s->logprob[t])
			assert_true(b->logprob[i] != b->logprob[i]);
		else
			assert_true(b->logprob[i] == s->logprob[t]);
		for (uint32_t layer = 0; layer < s->model.n_layer; layer++)
			check_row(s, b, want, layer, i);
	}
}

/* Everything of the trace, block by block in order. */
static inline void check_trace(const struct sample *s, struct gm_trace *trace, unsigned want)
{
	struct gm_block block = {0};
	struct gm_error err = {0};
	uint64_t index = 0, n_token = 0;

	for (;; index++) {
		int status = gm_trace_read(trace, index, want, &block, &err);
		OK(status);
		if (status == 0)
			break;
		assert_int_equal(block.index, index);
		assert_int_equal(block.first_token, n_token);
		check_block(s, &block, want);
		n_token += block.n_token;
	}
	assert_int_equal(n_token, s->n_token);
	assert_int_equal(gm_trace_n_token(trace), s->n_token);
	assert_int_equal(gm_trace_n_block(trace), index);
	assert_non_null(gm_trace_hash(trace));
	gm_block_free(&block);
}

/* A folder of the test's own, removed at the end; in memory where that can be, for the many small files. */
static inline char *test_folder(void)
{
	char memory[] = "/dev/shm/gm-trace-XXXXXX", disk[] = "/tmp/gm-trace-XXXXXX";
	char *name = mkdtemp(memory);

	return must(strdup(must(name ? name : mkdtemp(disk))));
}

#endif
