/* Rows of a foreign recording that come in any order: put aside in an unlinked temporary file, then written as a trace in order
 * of sequence, position and layer. Memory: 16 bytes a row, whatever a row holds. */
#ifndef GM_TRACES_IMPORT_STORE_H
#define GM_TRACES_IMPORT_STORE_H

#include "traces/import_common.h"

#define GM_NO_LAYER 0xffffu  /* in place of a layer: a token, but no row of it */
#define GM_NO_PASS INT64_MIN /* pass not said */
#define GM_NO_TOKEN (-1)     /* token id not said */

struct gm_store_row {
	uint32_t sequence, position;
	uint32_t layer; /* or GM_NO_LAYER */
	uint64_t line;  /* of the input, for messages */
	int64_t pass;   /* rows of neighbouring tokens with the same number belong to one forward pass; or GM_NO_PASS */
	int32_t token;  /* or GM_NO_TOKEN */
	float logprob;  /* NaN: not said */
};

struct gm_store;

/* near: a path; the temporary file is made in its folder (disk space is needed there anyway), or in TMPDIR for "-".
 * input_name stands in messages. payload: n_expert floats a row (logits), or top_k doubles (weights) and top_k uint16
 * (experts) for a top-k trace. NULL on failure. */
struct gm_store *gm_store_new(const char *near, const char *input_name, enum gm_trace_kind kind,
			      const struct gm_model *model, struct gm_error *err);
void gm_store_free(struct gm_store *store); /* NULL is fine */

/* Row of a logits trace: logits [n_expert]; NULL without a layer. */
int gm_store_add(struct gm_store *store, const struct gm_store_row *row, const float *logits, struct gm_error *err);

/* Row of a top-k trace: experts in rank order and their weights, [top_k] each. Weights that are all 0 become 1/top_k. */
int gm_store_add_topk(struct gm_store *store, const struct gm_store_row *row, const uint16_t *expert, const double *weight,
		      struct gm_error *err);

/* The label of a sequence; it may be said again, but not otherwise. */
int gm_store_label(struct gm_store *store, uint32_t sequence, const char *label, uint64_t line, struct gm_error *err);

uint64_t gm_store_n_row(const struct gm_store *store);
bool gm_store_has_logprobs(const struct gm_store *store);
uint64_t gm_store_n_unweighted(const struct gm_store *store); /* rows whose weights were all 0 */

/* Writes all that was added. table [n_table] (may be NULL): sequence s is entry s of it. Otherwise its id is its number.
 * A token's facts may stand at any of its rows and must agree; a row given twice is an error that names both lines. */
int gm_store_write(struct gm_store *store, struct gm_writer *writer, const struct gm_import_sequence *table,
		   uint32_t n_table, const struct gm_import_options *options, struct gm_error *err);

#endif
