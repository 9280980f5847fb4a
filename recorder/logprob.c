/* Log-probabilities (see logprob.h). The sum runs in four lanes by GCC's vector extension, which clang shares; the lanes are
 * added in a fixed order, so results are the same on every machine. */
#include "recorder/logprob.h"

#include <math.h>
#include <string.h>

typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));

#define LANES 4u
/* exp(x) below this is lost beside the largest term, which is 1 */
#define LOWEST (-87.0f)

/* exp(x) for x in [-87, 0], relative error below 2e-7: 2^n * exp(r), |r| <= ln(2)/2, exp(r) by its Taylor series to r^7. */
static inline f32x4 exp4(f32x4 x)
{
	const float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f; /* as in Cephes expf */
	f32x4 shifted = x * log2_e + 0x1.8p23f, n = shifted - 0x1.8p23f; /* rounds to the nearest integer */
	f32x4 r = x - n * ln2_high - n * ln2_low;
	f32x4 p = r * (1.0f / 5040) + 1.0f / 720;
	i32x4 exponent = __builtin_convertvector(n, i32x4) + 127;
	f32x4 scale;

	p = p * r + 1.0f / 120;
	p = p * r + 1.0f / 24;
	p = p * r + 1.0f / 6;
	p = p * r + 0.5f;
	p = p * r + 1.0f;
	p = p * r + 1.0f;
	exponent <<= 23;
	memcpy(&scale, &exponent, sizeof(scale));
	return p * scale;
}

static inline f32x4 load4(const float *from)
{
	f32x4 v;

	memcpy(&v, from, sizeof(v));
	return v;
}

/* Where a > b is false for a NaN, b stays: NaNs are found by the sum. */
static inline f32x4 max4(f32x4 a, f32x4 b)
{
	i32x4 greater = a > b;

	return (f32x4)(((i32x4)a & greater) | ((i32x4)b & ~greater));
}

static float largest(const float *logit, uint32_t n)
{
	f32x4 lanes = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
	float max;
	uint32_t i = 0;

	for (; i + LANES <= n; i += LANES)
		lanes = max4(load4(logit + i), lanes);
	max = fmaxf(fmaxf(lanes[0], lanes[1]), fmaxf(lanes[2], lanes[3]));
	for (; i < n; i++)
		if (logit[i] > max)
			max = logit[i];
	return max;
}

double gm_log_sum_exp(const float *logit, uint32_t n)
{
	const f32x4 lowest = {LOWEST, LOWEST, LOWEST, LOWEST};
	float max = largest(logit, n);
	double sum = 0;
	uint32_t i = 0;

	if (max == INFINITY)
		return NAN;
	/* float lanes over stretches short enough that their rounding stays below 1e-6, doubles between them */
	while (i + LANES <= n) {
		uint32_t end = n - i > 256 ? i + 256 : i + (n - i) / LANES * LANES;
		f32x4 lanes = {0};

		for (; i < end; i += LANES) {
			f32x4 x = load4(logit + i) - max;
			i32x4 is_number = ((i32x4)x & 0x7fffffff) <= 0x7f800000;

			lanes += (f32x4)(((i32x4)exp4(max4(x, lowest)) & is_number) | ((i32x4)x & ~is_number));
		}
		sum += ((double)lanes[0] + (double)lanes[1]) + ((double)lanes[2] + (double)lanes[3]);
	}
	for (; i < n; i++)
		sum += exp((double)logit[i] - (double)max);
	return (double)max + log(sum);
}

float gm_logprob(const float *logit, uint32_t n_vocab, int32_t token)
{
	return (float)((double)logit[token] - gm_log_sum_exp(logit, n_vocab));
}
