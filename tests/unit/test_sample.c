/* The sample trace (recorded with llama.cpp) against an independent implementation's logits on the same weights and texts
 * (tests/tinymoe/README.md says how close they should be). */
#include "test_trace_common.h"

#define SAMPLE "traces/samples/tinymoe.gmt"
#define REFERENCE "tests/data/tinymoe-reference.gmt"

enum { EXPERTS = 128, TOP_K = 8 };

struct compared {
	uint64_t n_row, n_equal_set;
	size_t n_error;
	float *error; /* of every logit */
};

static bool in(uint16_t expert, const uint16_t *set)
{
	for (int i = 0; i < TOP_K; i++)
		if (set[i] == expert)
			return true;
	return false;
}

static void compare_row(struct compared *c, const struct gm_block *ours, const struct gm_block *theirs,
			const struct gm_model *model, uint32_t layer, uint32_t token, uint32_t n_head)
{
	const uint16_t *a = ours->head + ((size_t)layer * ours->n_token + token) * n_head;
	const uint16_t *b = theirs->head + ((size_t)layer * theirs->n_token + token) * n_head;
	float x[EXPERTS], y[EXPERTS];
	bool equal = true;

	for (int i = 0; i < TOP_K; i++)
		equal = equal && in(a[i], b);
	gm_block_logits(ours, model, layer, token, x);
	gm_block_logits(theirs, model, layer, token, y);
	for (int e = 0; e < EXPERTS; e++)
		c->error[c->n_error++] = fabsf(x[e] - y[e]);
	c->n_row++;
	c->n_equal_set += equal;
}

static int by_size(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

static void test_logits(void **state)
{
	struct gm_error err = {0};
	struct gm_trace *ours = must(gm_trace_open(SAMPLE, &err)), *theirs = must(gm_trace_open(REFERENCE, &err));
	const struct gm_model *model = gm_trace_model(ours);
	struct gm_block a = {0}, b = {0};
	struct compared c = {.error = must(malloc(gm_trace_n_row(ours) * EXPERTS * sizeof(float)))};

	(void)state;
	assert_int_equal(gm_trace_n_token(ours), gm_trace_n_token(theirs));
	assert_int_equal(gm_trace_n_block(ours), gm_trace_n_block(theirs));
	assert_int_equal(gm_trace_n_sequence(ours), gm_trace_n_sequence(theirs));
	for (uint32_t i = 0; i < gm_trace_n_sequence(ours); i++)
		assert_string_equal(gm_trace_sequence(ours, i)->label, gm_trace_sequence(theirs, i)->label);
	for (uint64_t block = 0; block < gm_trace_n_block(ours); block++) {
		assert_int_equal(gm_trace_read(ours, block, GM_WANT_TAIL, &a, &err), 1);
		assert_int_equal(gm_trace_read(theirs, block, GM_WANT_TAIL, &b, &err), 1);
		assert_int_equal(a.n_token, b.n_token);
		assert_memory_equal(a.token, b.token, a.n_token * sizeof(*a.token));
		assert_memory_equal(a.pass, b.pass, a.n_token * sizeof(*a.pass));
		for (uint32_t layer = 0; layer < model->n_layer; layer++)
			for (uint32_t token = 0; token < a.n_token; token++)
				compare_row(&c, &a, &b, model, layer, token, gm_trace_n_head(ours));
	}
	qsort(c.error, c.n_error, sizeof(float), by_size);
	print_message("%llu of %llu sets equal, median error %.5f, 99.8 %% within %.5f\n",
		      (unsigned long long)c.n_equal_set, (unsigned long long)c.n_row, (double)c.error[c.n_error / 2],
		      (double)c.error[c.n_error / 1000 * 998]);
	assert_true((double)c.n_equal_set >= 0.995 * (double)c.n_row);
	assert_true(c.error[c.n_error / 2] < 0.001f);
	assert_true(c.error[c.n_error / 1000 * 998] < 0.02f);
	free(c.error);
	gm_block_free(&a);
	gm_block_free(&b);
	gm_trace_close(ours);
	gm_trace_close(theirs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_logits)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
