/* Log-probabilities from output logits, fast enough not to matter beside a forward pass over a vocabulary of 150,000. */
#ifndef GM_RECORDER_LOGPROB_H
#define GM_RECORDER_LOGPROB_H

#include <stdint.h>

/* ln(sum(exp(logit))) over n > 0 logits, to about 1e-6. NaN if one of them is NaN or +inf; -inf counts as probability 0. */
double gm_log_sum_exp(const float *logit, uint32_t n);

/* ln of token's probability under softmax(logit [n_vocab]). */
float gm_logprob(const float *logit, uint32_t n_vocab, int32_t token);

#endif
