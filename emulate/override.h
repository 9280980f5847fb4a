/* From what a policy decided about a row to what the forward pass must compute: the row's expert ids and gate weights rewritten in
 * place. Knows neither model nor library. */
#ifndef GM_EMULATE_OVERRIDE_H
#define GM_EMULATE_OVERRIDE_H

#include "policies/core.h"

/* What a substitute is multiplied with: what the router gave itself, or what it gave the expert that was missed. In both cases
 * before the model's own renormalisation, if it has one. */
enum gm_substitute_weight { GM_SUBSTITUTE_OWN, GM_SUBSTITUTE_MISSED };

/* Whether the others' weights make up for a dropped expert (by the model's own renormalisation: a model that has none leaves them as
 * they are), or stay. */
enum gm_drop_weight { GM_DROP_RENORMALISE, GM_DROP_KEEP };

struct gm_override {
	enum gm_substitute_weight substitute;
	enum gm_drop_weight drop;
};

/* Does the row compute anything else than the router chose? decision [top_k] in rank order. */
bool gm_override_is_needed(const struct gm_decision *decision, uint32_t top_k);

/* expert [top_k]: the model's own selection, each a slot; a substituted expert's slot gets the substitute. rank [top_k] out: the
 * decision that each slot stands for. A model that breaks a tie between its last experts otherwise than R2 gets the decision's
 * expert. The ids stay distinct. */
void gm_override_experts(const struct gm_decision *decision, uint32_t top_k, int32_t *expert, uint16_t *rank);

/* weight [top_k] by slot, before renormalisation; missed [top_k] by rank: what the router gave each pick. none: the weight that
 * becomes 0 in the end (0; minus infinity where the model takes the softmax over the selected afterwards). */
void gm_override_weights(const struct gm_override *override, const struct gm_decision *decision, uint32_t top_k,
			 const uint16_t *rank, const float *missed, float none, float *weight);

/* gate [top_k] by slot: what the outputs are multiplied with in the end. Dropped experts get 0. */
void gm_override_gates(const struct gm_decision *decision, uint32_t top_k, const uint16_t *rank, float *gate);

#endif
