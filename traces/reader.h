/* Reading a `.gmt` trace (docs/trace-format.md): streaming from a pipe, or random access by the footer index. Memory does not
 * depend on the length of the trace but for 32 bytes a block (index) and the sequence table. */
#ifndef GM_TRACES_READER_H
#define GM_TRACES_READER_H

#include "base/error.h"
#include "base/json.h"
#include "traces/model.h"

#include <stdbool.h>
#include <stdint.h>

struct gm_sequence {
	const char *id, *label; /* never NULL */
	uint64_t first_token;
	uint64_t n_token; /* so far, where the trace is streamed */
};

struct gm_trace;

/* Opens a file, or standard input for "-" (and any path that cannot seek). Checks header, index and trailer. A file without an
 * index (cut off) is refused with a message that names `traces verify --repair`. NULL on failure. */
struct gm_trace *gm_trace_open(const char *path, struct gm_error *err);
void gm_trace_close(struct gm_trace *trace); /* NULL is fine */

const char *gm_trace_path(const struct gm_trace *trace);
const struct gm_model *gm_trace_model(const struct gm_trace *trace);
const struct gm_json *gm_trace_header(const struct gm_trace *trace); /* the whole header object, unknown keys included */
enum gm_trace_kind gm_trace_kind(const struct gm_trace *trace);
uint32_t gm_trace_n_head(const struct gm_trace *trace);   /* ranked experts a row; top_k for top-k traces */
enum gm_tail gm_trace_tail(const struct gm_trace *trace); /* as declared: with n_head == n_expert there is nothing in it */
bool gm_trace_seekable(const struct gm_trace *trace);

/* Tokens, blocks, rows (present ones) and file size; all 0 before the end where the trace is not seekable. */
uint64_t gm_trace_n_token(const struct gm_trace *trace);
uint64_t gm_trace_n_block(const struct gm_trace *trace);
uint64_t gm_trace_n_row(const struct gm_trace *trace);
uint64_t gm_trace_bytes(const struct gm_trace *trace);

/* Sequences known by now (all of them where the trace is seekable). A pointer is good until the next read of a streamed trace. */
uint32_t gm_trace_n_sequence(const struct gm_trace *trace);
const struct gm_sequence *gm_trace_sequence(const struct gm_trace *trace, uint32_t index);

/* Hash of header, sequences and block checksums, 16 hex digits: names the content. Known at once where the trace is seekable, else
 * after the last block; before that NULL. */
const char *gm_trace_hash(const struct gm_trace *trace);

/* A decoded block. Row arrays are layer-major: row r(layer, i) = layer * n_token + i; the arrays of an absent row hold zeros. */
struct gm_block {
	uint64_t index;       /* number of the block */
	uint64_t first_token; /* number of its first token in the trace */
	uint32_t n_token;
	uint32_t n_layer, n_head, top_k; /* as in the header, for stride arithmetic */
	int32_t *token;                  /* [n_token] token ids, -1 unknown */
	uint32_t *sequence;              /* [n_token] */
	uint32_t *position;              /* [n_token] in the sequence */
	uint32_t *pass;                  /* [n_token] forward pass, numbered through the trace, never decreasing */
	float *logprob;                  /* [n_token] or NULL where the trace has none; NaN: none for this token */
	uint8_t *present;                /* [n_layer][n_token] 1: the row is there */
	uint16_t *head;                  /* [n_layer][n_token][n_head] experts in rank order */
	float *logit;   /* [n_layer][n_token][n_head] their logits; NULL for top-k traces or if not wanted */
	double *weight; /* [n_layer][n_token][top_k] gate weights; top-k traces only, else NULL */
	double *lse;    /* [n_layer][n_token]; NULL for top-k traces or if not wanted */
	float *tail;    /* [n_layer][n_token][n_expert - n_head] the other logits in order of expert id; NULL if absent
			     * or not wanted */
	uint16_t *prediction; /* [n_layer][n_token][top_k] predicted set, 0xffff where none; NULL if absent or not wanted */
	size_t capacity_bytes; /* memory held; private use by the reader */
	void *memory;          /* private */
};

enum gm_want {
	GM_WANT_HEAD = 0, /* columns of tokens, presence, head ids, logits, lse (or top-k weights): always decoded */
	GM_WANT_TAIL = 1,
	GM_WANT_PREDICTION = 2,
};

/* Decodes block `index` into *block, whose memory is reused from call to call (zero the struct first; release with
 * gm_block_free). Random order needs a seekable trace; a streamed one takes only the next index.
 * Returns 1, or 0 at the end (index == number of blocks), or an error with file and offset. */
int gm_trace_read(struct gm_trace *trace, uint64_t index, unsigned want, struct gm_block *block, struct gm_error *err);
void gm_block_free(struct gm_block *block);

/* Number of the block that holds a token; GM_ERR_USAGE past the end. Seekable traces only. */
int gm_trace_find(const struct gm_trace *trace, uint64_t token, uint64_t *block, struct gm_error *err);

/* Expands one decoded row (head and tail wanted) to logits [n_expert] in order of id; experts without a stored logit: NaN. */
void gm_block_logits(const struct gm_block *block, const struct gm_model *model, uint32_t layer, uint32_t i, float *logits);

#endif
