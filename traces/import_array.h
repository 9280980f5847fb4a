/* What the importers of whole arrays share: rows of every token and layer come as [tokens, layers, experts], the facts stand beside
 * them in a JSON file (--meta). Its keys are those of a jsonl file's first line, and optionally
 *	"sequences":[{"id":…,"label":…,"length":n},…]   in order of the tokens; without it all are one sequence
 *	"tokens":[…], "logprobs":[…]                    one number a token (logprobs: null where there is none)
 *	"passes":[…]                                    neighbours with the same number belong to one forward pass
 *	"positions":[…]                                 in the sequence, where they do not count up from 0
 *	"absent":"nan"                                  a row of nothing but NaN is no row
 * "n_layer" and "n_expert" may be left to the array. */
#ifndef GM_TRACES_IMPORT_ARRAY_H
#define GM_TRACES_IMPORT_ARRAY_H

#include "traces/import_common.h"

enum { GM_ARRAY_TOKENS, GM_ARRAY_LOGPROBS, GM_ARRAY_PASSES, GM_ARRAY_POSITIONS, GM_ARRAY_N_LIST };

struct gm_array_import {
	const char *input_name; /* for messages */
	const struct gm_import_options *options;
	const char *meta_name;
	struct gm_json *facts;
	struct gm_model model;
	uint64_t n_token;

	/* private */
	struct gm_import_sequence *table;
	uint32_t n_table;
	const struct gm_json *at[GM_ARRAY_N_LIST]; /* the next token's number, NULL: no such list */
	bool absent_rows;
	struct gm_writer *writer;
	float *logits; /* [GM_ARRAY_BATCH][n_layer][n_expert] */

	/* the token to come */
	uint64_t token;
	uint32_t sequence;
	uint64_t in_sequence; /* tokens of it written so far */
	int64_t pass;         /* of the last token of the sequence */
};

#define GM_ARRAY_BATCH 64u

/* Reads --meta, if there is one, into a->facts; then the caller may add to them what its input says. */
int gm_array_open(struct gm_array_import *a, const char *input_name, const struct gm_import_options *options,
		  struct gm_error *err);

/* The model and the lists, for an array of this shape. */
int gm_array_begin(struct gm_array_import *a, uint64_t n_token, uint64_t n_layer, uint64_t n_expert, struct gm_error *err);

/* Writes the trace. read fills logits [n][n_layer][n_expert] with tokens first ... first + n - 1, n <= GM_ARRAY_BATCH, in order;
 * end (may be NULL) is called after the last. */
int gm_array_write(struct gm_array_import *a,
		   int (*read)(void *user, uint64_t first, uint32_t n, float *logits, struct gm_error *err),
		   int (*end)(void *user, struct gm_error *err), void *user, struct gm_error *err);

/* Also after a failure: nothing stays behind. */
void gm_array_close(struct gm_array_import *a);

#endif
