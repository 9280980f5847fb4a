/* Does what was read from the router explain what the model did? Recomputes selection and gate weights from the logits
 * (docs/semantics.md, R1-R3) and compares them with the model's own. */
#ifndef GM_RECORDER_CHECK_H
#define GM_RECORDER_CHECK_H

#include "base/error.h"
#include "traces/model.h"

#include <stdbool.h>
#include <stdint.h>

/* Gates are floats in the model; weights may differ by this much. */
#define GM_CHECK_TOLERANCE 1e-5

struct gm_check_result {
	uint64_t n_row, n_pick;
	uint64_t n_mismatch;        /* picks that differ, ties left out */
	uint64_t n_tie;             /* picks that differ where the two scores are within 2 float32 ulp: either is right */
	uint64_t n_weight_mismatch; /* gate weights or probabilities off by more than the tolerance */
	double weight_error;        /* the largest difference of a gate weight or probability */
	char first[160];            /* the first mismatch in words, "" if there was none */
};

struct gm_check;

/* softmax_after_selection: as struct gm_hook_info says. The model must outlive the check. */
struct gm_check *gm_check_new(const struct gm_model *model, bool softmax_after_selection, struct gm_error *err);
void gm_check_free(struct gm_check *check);

/* The rows of one layer of one pass, as the hook's functions of the same names deliver them, in this order. gm_check_gates compares;
 * rows of which some part is missing are an error. */
int gm_check_logits(struct gm_check *check, uint32_t n, const float *logits, struct gm_error *err);
int gm_check_topk(struct gm_check *check, uint32_t n, const int32_t *expert, struct gm_error *err);
int gm_check_weights(struct gm_check *check, uint32_t n, const float *weight, struct gm_error *err);
int gm_check_gates(struct gm_check *check, uint32_t layer, uint32_t n, const float *gate, struct gm_error *err);

const struct gm_check_result *gm_check_result(const struct gm_check *check);

#endif
