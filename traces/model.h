/* Model facts: what the header of a trace says about the model that was recorded (docs/semantics.md, "Objects"). */
#ifndef GM_TRACES_MODEL_H
#define GM_TRACES_MODEL_H

#include "base/error.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

enum gm_gating { GM_GATING_SOFTMAX, GM_GATING_SIGMOID };
enum gm_tail { GM_TAIL_NONE, GM_TAIL_F16, GM_TAIL_F32 };
enum gm_trace_kind {
	GM_KIND_LOGITS, /* rows hold router logits: ranked head, perhaps a tail */
	GM_KIND_TOPK,   /* rows hold the selected experts and their weights only */
};

/* Bounds that every trace keeps, so that no header can ask for absurd memory. */
#define GM_MAX_LAYER 4096u
#define GM_MAX_EXPERT 65535u
#define GM_MAX_LAYER_EXPERT (1u << 20)        /* n_layer * n_expert */
#define GM_MAX_PART_BYTES (UINT64_C(1) << 48) /* of an expert or of a layer's dense part: sums stay far from 2^64 */

struct gm_model {
	char *name;        /* "Qwen3-30B-A3B-Q4_K_M"; never NULL, may be "" */
	uint32_t n_layer;  /* MoE layers, 1 ... GM_MAX_LAYER */
	uint32_t n_expert; /* experts a layer, 1 ... GM_MAX_EXPERT */
	uint32_t top_k;    /* experts used a token, 1 ... n_expert */
	enum gm_gating gating;
	float *bias;            /* [n_layer][n_expert] added to the scores for selection only (R2), or NULL */
	uint32_t n_group;       /* 0 or 1: no groups; else divides n_expert */
	uint32_t topk_group;    /* groups that stay eligible, 1 ... n_group */
	uint64_t *expert_bytes; /* [n_layer] bytes of one expert as stored, or NULL where not known */
	uint64_t *dense_bytes;  /* [n_layer] bytes of the layer's weights that every token reads, or NULL where not known */
};

/* Reads the facts from a JSON object: model (absent: ""), n_layer, n_expert, n_expert_used, gating (absent: softmax),
 * expert_bytes and dense_bytes (a number from 1 to 2^48 for all layers or a list of one for each), bias ([[...]]), n_group, topk_group.
 * The keys of `jsonl` imports and of the trace header are the same. Errors name the key. On success *model must be
 * released with gm_model_free. */
int gm_model_from_json(struct gm_model *model, const struct gm_json *object, struct gm_error *err);

/* The same from the header of a trace: bytes of 0, which older files may hold, are bytes that are not known (NULL). */
int gm_model_from_header(struct gm_model *model, const struct gm_json *header, struct gm_error *err);

/* Writes the same keys into object (replacing what is there). */
int gm_model_to_json(const struct gm_model *model, struct gm_json *object, struct gm_error *err);

int gm_model_copy(struct gm_model *to, const struct gm_model *from, struct gm_error *err);
int gm_model_check(const struct gm_model *model, struct gm_error *err); /* bounds, divisibility, finite bias, bytes */
void gm_model_free(struct gm_model *model);

/* True for UTF-8 throughout: what a trace's header, ids and labels, and JSON output take. */
bool gm_is_utf8(const char *text);

#endif
