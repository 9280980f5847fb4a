/* Writing a `.gmt` trace (docs/trace-format.md).
 *
 * Tokens are declared in order; their rows then arrive as a forward pass delivers them: layer by layer, many tokens at a time,
 * layers in any order. A block goes out as soon as all its rows are there or its tokens were declared complete. Memory is
 * bounded by GM_WRITER_MAX_PENDING tokens; the output is written in one sequential pass, so a pipe will do; whole blocks
 * survive a crash (`traces verify --repair`).
 */
#ifndef GM_TRACES_WRITER_H
#define GM_TRACES_WRITER_H

#include "base/error.h"
#include "base/json.h"
#include "traces/model.h"

#include <stdbool.h>
#include <stdint.h>

#define GM_BLOCK_TOKENS 64u /* tokens a block; shorter: the last, one before a gm_writer_flush, those with hardly any row */
#define GM_WRITER_MAX_PENDING 16384u /* tokens declared but not yet written */
#define GM_DEFAULT_HEAD 32u

/* A block in the file. */
struct gm_block_written {
	uint64_t index, first_token, offset, bytes; /* offset and bytes: of its frame */
	uint32_t n_token, n_row;
	uint64_t hash; /* of its payload, as in the frame's header */
};

struct gm_writer_options {
	enum gm_trace_kind kind;
	/* ranked experts a row, top_k ... n_expert; 0: min(max(32, top_k), n_expert). Top-k traces: top_k */
	uint32_t n_head;
	enum gm_tail tail;  /* GM_TAIL_NONE for top-k traces */
	bool logprobs;      /* a log-probability stands beside every token */
	bool predictions;   /* rows may carry a predicted set for prefetch [top_k] */
	int level;          /* zstd level, 0: the default */
	const char *source; /* who or what recorded it, may be NULL */
	const char *tool;   /* program and version that write it, may be NULL: this library */
	/* Object whose members go into the header, copied; those that the header has by itself (model facts, kind, head, ...) are
	 * passed over, so that the whole header of an input can be given to keep its unknown keys and its source. May be NULL. */
	const struct gm_json *metadata;
	/* Called when a block has gone out whole (its bytes are with the system), in the thread that called the writer; may be NULL */
	void (*on_block)(void *user, const struct gm_block_written *block);
	void *user;
};

struct gm_writer;

/* Creates path.part (renamed by gm_writer_close) or writes to standard output ("-"), a pipe or a device. NULL on failure. model is
 * copied. A path.part that holds whole blocks of an earlier recording is refused, not overwritten: the message names the repair. */
struct gm_writer *gm_writer_open(const char *path, const struct gm_model *model, const struct gm_writer_options *options,
				 struct gm_error *err);

/* Begins a sequence: all tokens added from now on belong to it. id and label may be NULL (empty). */
int gm_writer_begin_sequence(struct gm_writer *writer, const char *id, const char *label, struct gm_error *err);

/* Declares n tokens of the current sequence that one forward pass covers. The first tokens of a sequence always begin a pass.
 *   token [n]    token ids, NULL where unknown (stored as -1)
 *   position     of the first in its sequence
 *   new_pass     true: they begin a forward pass; false: they go on in the last one (a pass delivered in parts)
 *   logprob [n]  natural-log probability of each token given those before it; NaN where there is none. NULL in a trace with
 *                log-probabilities: they come later through gm_writer_set_logprobs, and the block waits for them as it
 *                does for rows, until gm_writer_complete (what has not come by then: NaN)
 * Returns in *first the number of the first of them in the trace. */
int gm_writer_add_tokens(struct gm_writer *writer, uint32_t n, const int32_t *token, uint32_t position, bool new_pass,
			 const float *logprob, uint64_t *first, struct gm_error *err);

/* Log-probabilities of n pending tokens, from token number first on. */
int gm_writer_set_logprobs(struct gm_writer *writer, uint64_t first, uint32_t n, const float *logprob,
			   struct gm_error *err);

/* Rows of one layer for n pending tokens from number first on. logits [n][n_expert] float32, row stride in floats.
 * Errors: a row given twice, tokens not pending, a logit that is not finite or (float16 tail) that the tail cannot hold: names
 * token, layer and expert; the writer stays usable, the rows before the faulty one are kept. */
int gm_writer_append(struct gm_writer *writer, uint32_t layer, uint64_t first, uint32_t n, const float *logits,
		     size_t stride, struct gm_error *err);

/* The same for a top-k trace: expert [n][top_k] in rank order, weight [n][top_k] (>= 0, not all 0; renormalised to sum 1, and kept
 * as they are where they already do to 1e-12). Distinct ids below n_expert. */
int gm_writer_append_topk(struct gm_writer *writer, uint32_t layer, uint64_t first, uint32_t n, const uint16_t *expert,
			  const double *weight, struct gm_error *err);

/* A ranked row without all its logits (copying a trace that has no tail): ranked [n_head] and their logits [n_head] in rank order,
 * lse. With a tail: tail [n_expert - n_head] logits of the others in order of id. */
int gm_writer_append_ranked(struct gm_writer *writer, uint32_t layer, uint64_t token, const uint16_t *ranked,
			    const float *logits, double lse, const float *tail, struct gm_error *err);

/* Predicted sets [n][top_k] for n pending tokens of a layer whose rows may or may not be there yet. */
int gm_writer_append_prediction(struct gm_writer *writer, uint32_t layer, uint64_t first, uint32_t n,
				const uint16_t *expert, struct gm_error *err);

/* Tokens with numbers below `end` get no more rows: what has not arrived is absent. Without this call a block waits for every row of
 * its tokens. */
int gm_writer_complete(struct gm_writer *writer, uint64_t end, struct gm_error *err);

/* Completes all tokens and writes them out, also as a short block (a recorder's checkpoint). */
int gm_writer_flush(struct gm_writer *writer, struct gm_error *err);

/* Bytes written and whole blocks so far. */
uint64_t gm_writer_bytes(const struct gm_writer *writer);
uint64_t gm_writer_blocks(const struct gm_writer *writer);

/* Flushes, writes table and index, renames. Frees the writer in any case; after a failure the .part file stays (whole blocks can be
 * repaired) unless it holds no block. */
int gm_writer_close(struct gm_writer *writer, struct gm_error *err);

/* Ends a recording that failed: of the tokens that still wait, those before the first that lacks a row go out as the last blocks;
 * the .part file stays and is not renamed (`traces verify --repair` makes a trace of it). Frees the writer. Returns the tokens
 * kept; 0: there is no file. To standard output, a pipe or a device what is complete is written, and 0 returned. */
uint64_t gm_writer_abandon(struct gm_writer *writer);

/* Gives up: closes and removes the .part file. NULL is fine. */
void gm_writer_discard(struct gm_writer *writer);

#endif
