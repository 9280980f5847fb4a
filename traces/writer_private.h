/* The writer's insides, shared by writer.c (container, blocks going out) and writer_rows.c (tokens and rows coming in). */
#ifndef GM_TRACES_WRITER_PRIVATE_H
#define GM_TRACES_WRITER_PRIVATE_H

#include "traces/codec.h"
#include "traces/format_out.h"
#include "traces/select.h"
#include "traces/writer.h"

/* A block being filled. Rows lie [n_layer][GM_BLOCK_TOKENS]. */
struct gm_pending {
	uint64_t first; /* number of its first token */
	uint32_t n_token;
	uint32_t n_waiting;                /* sum of waiting[] */
	uint32_t waiting[GM_BLOCK_TOKENS]; /* rows (and a log-probability) a token still waits for */
	bool complete[GM_BLOCK_TOKENS];    /* gets no more rows */
	bool logprob_waits[GM_BLOCK_TOKENS];
	int32_t *token;
	uint32_t *sequence, *position, *pass;
	float *logprob;
	uint8_t *present;
	uint16_t *head;
	float *logit;
	double *lse, *weight;
	uint16_t *tail_16;
	float *tail_32;
	uint16_t *prediction;
};

#define GM_MAX_QUEUED (GM_WRITER_MAX_PENDING / GM_BLOCK_TOKENS + 1)

struct gm_writer {
	struct gm_trace_out out;
	struct gm_model model;
	struct gm_geometry geometry;
	struct gm_codec *codec;
	struct gm_selector *selector; /* NULL for top-k traces */
	int level;
	void (*on_block)(void *user, const struct gm_block_written *block);
	void *user;
	uint64_t n_token; /* declared */
	uint32_t n_pass;
	bool pass_ended; /* the next tokens begin a pass whatever the caller says: a sequence began */
	struct gm_pending *queue[GM_MAX_QUEUED]; /* in order of tokens; all but the last are full */
	uint32_t n_queued;
	struct gm_pending *spare; /* one block's room for reuse, or NULL */
	struct gm_buffer frame;
	uint8_t *in_head; /* [n_expert], zero between rows */
};

void gm_pending_free(struct gm_pending *pending);

/* A fresh block at the end of the queue. NULL when out of memory. */
struct gm_pending *gm_writer_new_block(struct gm_writer *writer, struct gm_error *err);

/* Writes the blocks at the front that are full and wait for nothing; all: every block as it is. */
int gm_writer_pump(struct gm_writer *writer, bool all, struct gm_error *err);

#endif
