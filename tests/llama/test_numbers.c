/* Log-probabilities and sampling: numbers only, no model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "recorder/logprob.h"
#include "recorder/sample.h"
#include "tests/fixtures/random.h"

#include <math.h>
#include <stdlib.h>

static double exact(const float *logit, uint32_t n)
{
	double max = -INFINITY, sum = 0;

	for (uint32_t i = 0; i < n; i++)
		max = fmax(max, (double)logit[i]);
	for (uint32_t i = 0; i < n; i++)
		sum += exp((double)logit[i] - max);
	return max + log(sum);
}

static void test_log_sum_exp(void **state)
{
	static const uint32_t sizes[] = {1, 2, 3, 4, 5, 7, 255, 256, 257, 2048, 151936};
	static const double spreads[] = {0, 1e-6, 1, 10, 100, 1e4};
	struct fixture_random random = {5};
	float *logit = calloc(151936, sizeof(float));

	(void)state;
	assert_non_null(logit);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		for (size_t w = 0; w < sizeof(spreads) / sizeof(spreads[0]); w++) {
			for (uint32_t i = 0; i < sizes[s]; i++)
				logit[i] = (float)(fixture_normal(&random) * spreads[w]);
			assert_true(fabs(gm_log_sum_exp(logit, sizes[s]) - exact(logit, sizes[s])) < 1e-6);
		}
	free(logit);
}

static void test_edges(void **state)
{
	float logit[6] = {0, -INFINITY, -INFINITY, 0, -INFINITY, -INFINITY};

	(void)state;
	assert_true(fabs(gm_log_sum_exp(logit, 6) - log(2)) < 1e-6);
	assert_true(fabsf(gm_logprob(logit, 6, 3) + (float)log(2)) < 1e-6f);
	assert_true(gm_logprob(logit, 6, 1) == -INFINITY);
	for (int i = 0; i < 6; i++) {
		float bad[6] = {0};

		bad[i] = NAN;
		assert_true(isnan(gm_log_sum_exp(bad, 6)));
		bad[i] = INFINITY;
		assert_true(isnan(gm_log_sum_exp(bad, 6)));
	}
}

static void test_greedy(void **state)
{
	const float logit[5] = {1, 3, -2, 3, 0};
	struct gm_sampler sampler = {0};

	(void)state;
	assert_int_equal(gm_sample(&sampler, logit, 5), 1);
	assert_int_equal(sampler.state, 0);
}

/* Shares of 100,000 draws within 4 standard deviations of their probabilities. */
static void test_draws(void **state)
{
	const float logit[4] = {0, 1, -1, -INFINITY};
	struct gm_sampler sampler = {.temperature = 2, .state = 9};
	unsigned count[4] = {0};
	double sum = 0;

	(void)state;
	for (int i = 0; i < 100000; i++)
		count[gm_sample(&sampler, logit, 4)]++;
	for (int i = 0; i < 4; i++)
		sum += exp((double)logit[i] / 2);
	for (int i = 0; i < 4; i++) {
		double p = exp((double)logit[i] / 2) / sum;

		assert_true(fabs(count[i] / 1e5 - p) <= 4 * sqrt(p * (1 - p) / 1e5));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_log_sum_exp),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_greedy),
		cmocka_unit_test(test_draws),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
