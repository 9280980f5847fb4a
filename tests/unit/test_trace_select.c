/* Ranking and weights against the slow way, and half precision for every value it has. */
#include "test_trace_common.h"

/* R2 by linear scans over doubles. */
static void rank_slowly(const struct gm_model *m, uint32_t layer, const float *z, uint32_t n, uint16_t *out)
{
	uint32_t n_expert = m->n_expert, size = m->n_group > 1 ? n_expert / m->n_group : n_expert;
	double *s = must(calloc(n_expert, sizeof(*s)));
	bool *open = must(calloc(n_expert, sizeof(*open))), *used = must(calloc(n_expert, sizeof(*used)));
	double max = (double)z[0], sum = 0;

	for (uint32_t e = 1; e < n_expert; e++)
		max = (double)z[e] > max ? (double)z[e] : max;
	for (uint32_t e = 0; e < n_expert; e++)
		sum += exp((double)z[e] - max);
	for (uint32_t e = 0; e < n_expert; e++) {
		double p = m->gating == GM_GATING_SOFTMAX ? exp((double)z[e] - max) / sum : 1 / (1 + exp(-(double)z[e]));
		s[e] = p + (m->bias ? (double)m->bias[layer * n_expert + e] : 0);
		if (!m->bias && m->n_group <= 1)
			s[e] = (double)z[e];
		open[e] = m->n_group <= 1;
	}
	for (uint32_t k = 0; m->n_group > 1 && k < m->topk_group; k++) {
		int best = -1;
		double best_score = 0;
		for (uint32_t g = 0; g < m->n_group; g++) {
			double a = -1e300, b = -1e300;
			for (uint32_t e = g * size; e < (g + 1) * size; e++) {
				if (s[e] > a) {
					b = a;
					a = s[e];
				} else if (s[e] > b) {
					b = s[e];
				}
			}
			double score = size > 1 ? a + b : a;
			if (!open[g * size] && (best < 0 || score > best_score)) {
				best = (int)g;
				best_score = score;
			}
		}
		for (uint32_t e = 0; e < size; e++)
			open[(uint32_t)best * size + e] = true;
	}
	for (uint32_t r = 0; r < n; r++) {
		int best = -1;
		for (uint32_t e = 0; e < n_expert; e++)
			if (!used[e] && (open[e] || r >= m->top_k) && (best < 0 || s[e] > s[best]))
				best = (int)e;
		used[best] = true;
		out[r] = (uint16_t)best;
	}
	free(s);
	free(open);
	free(used);
}

static void test_rank(void **state)
{
	static const uint32_t experts[] = {1, 2, 6, 16, 64, 160, 512};
	uint64_t seed = 7;

	(void)state;
	for (int k = 0; k < 3000; k++) {
		struct gm_error err = {0};
		struct gm_model m = {.name = "x", .n_layer = 2, .n_expert = experts[draw_below(&seed, 7)]};
		m.top_k = 1 + draw_below(&seed, m.n_expert < 8 ? m.n_expert : 8);
		m.gating = draw_below(&seed, 2) ? GM_GATING_SOFTMAX : GM_GATING_SIGMOID;
		float bias[2 * 512], z[512];
		for (uint32_t e = 0; e < 2 * m.n_expert; e++)
			bias[e] = draw_below(&seed, 2) ? 0.25f : (float)(0.1 * draw_normal(&seed));
		if (draw_below(&seed, 2))
			m.bias = bias;
		if (m.n_expert % 2 == 0 && draw_below(&seed, 2)) {
			m.n_group = draw_below(&seed, 2) ? 2 : m.n_expert; /* groups of one, too */
			m.topk_group = 1 + draw_below(&seed, m.n_group);
			while (m.topk_group * (m.n_expert / m.n_group) < m.top_k)
				m.topk_group++;
		}
		enum values values = (enum values)draw_below(&seed, N_VALUES);
		for (uint32_t e = 0; e < m.n_expert; e++)
			z[e] = draw_logit(&seed, values);
		OK(gm_model_check(&m, &err));
		uint32_t n = m.top_k + draw_below(&seed, m.n_expert - m.top_k + 1), layer = draw_below(&seed, 2);
		uint16_t fast[512], slow[512];
		double lse, max = -1e300, sum = 0;
		struct gm_selector *selector = must(gm_selector_new(&m, n, &err));
		OK(gm_select_rank(selector, layer, z, fast, &lse, &err));
		rank_slowly(&m, layer, z, n, slow);
		assert_memory_equal(fast, slow, n * sizeof(fast[0]));
		for (uint32_t e = 0; e < m.n_expert; e++)
			max = (double)z[e] > max ? (double)z[e] : max;
		for (uint32_t e = 0; e < m.n_expert; e++)
			sum += exp((double)z[e] - max);
		assert_true(fabs(lse - (max + log(sum))) <= 1e-12 * (1 + fabs(lse)));
		OK(gm_select_rank(selector, layer, z, slow, NULL, &err));
		assert_memory_equal(fast, slow, n * sizeof(fast[0]));
		gm_selector_free(selector);
	}
}

static void test_rank_refuses(void **state)
{
	struct gm_model m = {.name = "x", .n_layer = 1, .n_expert = 4, .top_k = 2};
	struct gm_error err = {0};
	struct gm_selector *s = must(gm_selector_new(&m, 3, &err));
	uint16_t ranked[4];

	(void)state;
	assert_int_equal(gm_select_rank(s, 0, (float[]){1, NAN, 2, 3}, ranked, NULL, &err), GM_ERR_FORMAT);
	assert_string_equal(err.text, "the logit is not a number: expert 1: must be a finite number");
	memset(&err, 0, sizeof(err));
	assert_int_equal(gm_select_rank(s, 0, (float[]){1, 2, 3, -INFINITY}, ranked, NULL, &err), GM_ERR_FORMAT);
	assert_string_equal(err.text, "the logit is infinite: expert 3: must be a finite number");
	gm_selector_free(s);
	memset(&err, 0, sizeof(err));
	assert_null(gm_selector_new(&m, 1, &err));
	memset(&err, 0, sizeof(err));
	assert_null(gm_selector_new(&m, 5, &err));
}

static void test_gate_weights(void **state)
{
	double gate[3];

	(void)state;
	gm_gate_weights(GM_GATING_SOFTMAX, 3, (float[]){0, 0, 0}, gate);
	assert_true(gate[0] == gate[1] && fabs(gate[0] - 1.0 / 3) < 1e-15);
	gm_gate_weights(GM_GATING_SOFTMAX, 2, (float[]){1000, 0}, gate);
	assert_true(gate[0] == 1 && gate[1] == 0);
	gm_gate_weights(GM_GATING_SIGMOID, 2, (float[]){0, 800}, gate);
	assert_true(fabs(gate[0] - 1.0 / 3) < 1e-15 && fabs(gate[1] - 2.0 / 3) < 1e-15);
	gm_gate_weights(GM_GATING_SIGMOID, 2, (float[]){-800, -900}, gate);
	assert_true(gate[0] == 0.5 && gate[1] == 0.5);
}

static void test_f16(void **state)
{
	(void)state;
	/* Every half comes back as itself, and every midpoint between neighbours goes to the even one. */
	for (uint32_t h = 0; h < 0x10000; h++) {
		float value = gm_from_f16((uint16_t)h);
		if ((h & 0x7c00u) == 0x7c00u) {
			assert_true(!isfinite(value));
			continue;
		}
		assert_true(ldexp((double)(h & 0x3ffu) + (h & 0x7c00u ? 1024 : 0),
				  (int)(h >> 10 & 31) - 25 + !(h & 0x7c00u)) == fabs((double)value));
		assert_int_equal(gm_to_f16(value), h);
		uint32_t next = h + 1;
		if ((next & 0x7c00u) == 0x7c00u)
			continue;
		float middle = (float)(((double)value + (double)gm_from_f16((uint16_t)next)) / 2);
		assert_int_equal(gm_to_f16(middle), h & 1 ? next : h);
		assert_int_equal(gm_to_f16(nextafterf(middle, value)), h);
		assert_int_equal(gm_to_f16(nextafterf(middle, gm_from_f16((uint16_t)next))), next);
	}
	assert_int_equal(gm_to_f16(65519.99f), 0x7bff);
	assert_int_equal(gm_to_f16(65520.0f), GM_F16_OVERFLOW);
	assert_int_equal(gm_to_f16(-65520.0f), GM_F16_OVERFLOW);
	assert_int_equal(gm_to_f16(1e30f), GM_F16_OVERFLOW);
	assert_int_equal(gm_to_f16(1e-30f), 0);
	assert_int_equal(gm_to_f16(-1e-30f), 0x8000);
	assert_true(isnan(gm_from_f16(gm_to_f16(NAN))));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rank),
		cmocka_unit_test(test_rank_refuses),
		cmocka_unit_test(test_gate_weights),
		cmocka_unit_test(test_f16),
	};

	return cmocka_run_group_tests_name("routing", tests, NULL, NULL);
}
