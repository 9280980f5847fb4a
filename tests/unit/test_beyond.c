/* sim/beyond.h against an order found by comparing: the experts beyond a ranked head, asked for piece by piece. */
#include "sim/beyond.h"
#include "traces/select.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_LAYER = 2, N_TOKEN = 8, N_HEAD = 8, MAX_EXPERT = 600 };

static uint64_t rng = 1;

static uint32_t below(uint32_t n)
{
	rng = rng * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)((rng >> 33) % n);
}

struct candidate {
	double score;
	uint16_t expert;
};

static int by_score(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return x->score > y->score ? -1 : x->score < y->score ? 1 : (int)x->expert - (int)y->expert;
}

/* A head of random experts and logits of some different values: of few, many are equal, also 0 and -0. */
static void fill(struct gm_block *block, const struct gm_model *model, uint32_t n_value)
{
	uint32_t n_beyond = model->n_expert - N_HEAD;

	for (uint32_t row = 0; row < N_LAYER * N_TOKEN; row++) {
		uint16_t *head = block->head + (size_t)row * N_HEAD;

		for (uint32_t r = 0; r < N_HEAD; r++)
			head[r] = (uint16_t)(below(model->n_expert / N_HEAD) * N_HEAD + r);
		for (uint32_t j = 0; j < n_beyond; j++) {
			float z = (float)below(n_value) / 16 - 1;

			block->tail[(size_t)row * n_beyond + j] = z == 0 && below(2) ? -0.0f : z;
		}
		if (n_value > 1000 && row % 2) /* far away, so that the others lie close together */
			block->tail[(size_t)row * n_beyond] = 1e9f;
		block->lse[row] = 2;
	}
}

static uint32_t expected(const struct gm_block *block, const struct gm_model *model, uint32_t layer, uint32_t i,
			 struct candidate *order)
{
	size_t row = (size_t)layer * N_TOKEN + i;
	const uint16_t *head = block->head + row * N_HEAD;
	const float *tail = block->tail + row * (model->n_expert - N_HEAD);
	uint32_t n = 0;

	for (uint32_t e = 0; e < model->n_expert; e++) {
		bool in_head = false;

		for (uint32_t r = 0; r < N_HEAD; r++)
			in_head |= head[r] == e;
		if (in_head)
			continue;
		order[n].score = gm_selection_score(model, layer, e, tail[n], block->lse[row]);
		order[n++].expert = (uint16_t)e;
	}
	qsort(order, n, sizeof(*order), by_score);
	return n;
}

/* Every row from its start, piece by piece, and again from the middle. */
static void check(const struct gm_model *model, uint32_t n_value)
{
	struct gm_block block = {.n_token = N_TOKEN, .n_layer = N_LAYER, .n_head = N_HEAD, .top_k = 4};
	static uint16_t head[N_LAYER * N_TOKEN * N_HEAD];
	static float tail[N_LAYER * N_TOKEN * MAX_EXPERT];
	static double lse[N_LAYER * N_TOKEN];
	struct gm_error err = {0};
	struct gm_beyond *beyond = gm_beyond_new(model, N_HEAD, &err);
	uint32_t n_piece = 0;

	assert_non_null(beyond);
	block.head = head;
	block.tail = tail;
	block.lse = lse;
	for (block.first_token = 0; block.first_token < 3 * N_TOKEN; block.first_token += N_TOKEN) {
		fill(&block, model, n_value);
		for (uint32_t row = 0; row < N_LAYER * N_TOKEN; row++) {
			struct candidate order[MAX_EXPERT];
			uint32_t layer = row % N_LAYER, i = row / N_LAYER,
				 n_order = expected(&block, model, layer, i, order);
			const uint16_t *expert;
			uint32_t n = 1, from = 0;

			for (; n > 0; from += n) {
				assert_int_equal(gm_beyond_row(beyond, &block, layer, i, from, &expert, &n, &err), 0);
				for (uint32_t j = 0; j < n; j++)
					assert_int_equal(expert[j], order[from + j].expert);
				n_piece++;
			}
			assert_int_equal(from, n_order);
			assert_int_equal(gm_beyond_row(beyond, &block, layer, i, n_order / 2, &expert, &n, &err), 0);
			assert_int_equal(expert[0], order[n_order / 2].expert);
		}
	}
	/* the last piece of each row, which is empty, had two others before it, where there are enough experts */
	assert_int_equal(n_piece, 3 * (model->n_expert > 64 ? 3 : 2) * N_LAYER * N_TOKEN);
	gm_beyond_free(beyond);
}

static void pieces_are_in_order(void **state)
{
	static float bias[N_LAYER * MAX_EXPERT];
	static const uint32_t n_expert[] = {16, 128, 136, 144, 512, 600}, n_value[] = {1, 3, 40, 100000};

	(void)state;
	for (uint32_t i = 0; i < N_LAYER * MAX_EXPERT; i++)
		bias[i] = (float)below(5) / 8 - 0.25f;
	for (size_t n = 0; n < sizeof(n_expert) / sizeof(*n_expert); n++) {
		for (size_t v = 0; v < sizeof(n_value) / sizeof(*n_value); v++) {
			struct gm_model model = {.n_layer = N_LAYER, .n_expert = n_expert[n], .top_k = 4};

			check(&model, n_value[v]);
			model.gating = GM_GATING_SIGMOID;
			model.bias = bias;
			check(&model, n_value[v]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_are_in_order)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
