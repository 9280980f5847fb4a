/* Sampling (see sample.h). Everything is computed in double, in order of id: the same logits and seed give the same token. */
#include "recorder/sample.h"

#include <math.h>

/* [0, 1): splitmix64 */
static double uniform(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

int32_t gm_sample(struct gm_sampler *sampler, const float *logit, uint32_t n_vocab)
{
	double sum = 0, left;
	uint32_t best = 0, last;

	for (uint32_t i = 1; i < n_vocab; i++)
		if (logit[i] > logit[best])
			best = i;
	if (sampler->temperature <= 0)
		return (int32_t)best;
	for (uint32_t i = 0; i < n_vocab; i++)
		sum += exp(((double)logit[i] - (double)logit[best]) / sampler->temperature);
	left = uniform(&sampler->state) * sum;
	last = best;
	for (uint32_t i = 0; i < n_vocab; i++) {
		double p = exp(((double)logit[i] - (double)logit[best]) / sampler->temperature);

		if (p == 0)
			continue;
		last = i;
		left -= p;
		if (left < 0)
			break;
	}
	return (int32_t)last; /* rounding may leave a rest: the last possible token */
}
