/* Routing: from a row of router logits to the selected experts and their gate weights (docs/semantics.md, R1-R3), and to
 * the ranking that a trace stores. One implementation serves the writer, the importers and the emulator. */
#ifndef GM_TRACES_SELECT_H
#define GM_TRACES_SELECT_H

#include "base/error.h"
#include "traces/model.h"

#include <stdbool.h>
#include <stdint.h>

/* Work space for rows of one model; not shared between threads. */
struct gm_selector;

/* n_ranked: how many experts a ranking holds, top_k <= n_ranked <= n_expert. The model must outlive the selector. */
struct gm_selector *gm_selector_new(const struct gm_model *model, uint32_t n_ranked, struct gm_error *err);
void gm_selector_free(struct gm_selector *selector);

/* Ranks one row.
 *   logits [n_expert]   router logits before any softmax, bias or scaling
 *   ranked [n_ranked]   out: S in rank order (its first top_k), then the others by selection score, group limits ignored;
 *                       ties to the lower id
 *   lse                 out, may be NULL: log(sum(exp(logits))) over all experts, double
 * Errors: GM_ERR_FORMAT for a logit that is not finite (names the expert) or fewer than top_k eligible experts. */
int gm_select_rank(struct gm_selector *selector, uint32_t layer, const float *logits, uint16_t *ranked, double *lse,
		   struct gm_error *err);

/* Gate weights of the selected experts (R3): they sum to 1.
 *   logits [top_k]  logits of the selected, in any order
 *   gate   [top_k]  out: p_i / sum p_j; 1/top_k each where the sum is 0
 * With softmax the weights are exp(z - max) / sum over the selected, which equals p_i / sum p_j: only the selected are needed. */
void gm_gate_weights(enum gm_gating gating, uint32_t top_k, const float *logits, double *gate);

/* Selection score s = p + b of one expert (R2), for comparing experts of one row: what R9 ranks substitutes by.
 * lse as from gm_select_rank. Without bias and groups (gm_scores_are_logits) scores are compared as logits: the logit itself is returned. */
bool gm_scores_are_logits(const struct gm_model *model);
double gm_selection_score(const struct gm_model *model, uint32_t layer, uint32_t expert, float logit, double lse);

/* A float32 as IEEE half precision, round to nearest even, and back. gm_to_f16 gives GM_F16_OVERFLOW (an infinity) for values that
 * half precision cannot hold (|x| >= 65520). */
#define GM_F16_OVERFLOW 0x7c00u
uint16_t gm_to_f16(float value);
float gm_from_f16(uint16_t half);

#endif
