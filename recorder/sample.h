/* Choosing the next token when generating: greedy, or drawn from softmax(logit / temperature) with an explicit seed. */
#ifndef GM_RECORDER_SAMPLE_H
#define GM_RECORDER_SAMPLE_H

#include <stdint.h>

struct gm_sampler {
	double temperature; /* 0: the likeliest token, ties to the lower id */
	uint64_t state;     /* of the random numbers; the seed, to begin with */
};

/* The next token after logit [n_vocab]. Of the draws, one is used up a call. */
int32_t gm_sample(struct gm_sampler *sampler, const float *logit, uint32_t n_vocab);

#endif
