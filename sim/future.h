/* The future of a trace: for every pick the first token of the next pass that requests the same expert of the same layer. Found in
 * one pass backwards and kept in an unnamed temporary file, so that memory does not grow with the trace. */
#ifndef GM_SIM_FUTURE_H
#define GM_SIM_FUTURE_H

#include "sim/window.h"

struct gm_future;

/* Reads the whole trace, last block first; it must be seekable and hold fewer than 2^32 - 1 tokens. NULL on failure. */
struct gm_future *gm_future_new(struct gm_trace *trace, enum gm_prefill prefill, struct gm_error *err);
void gm_future_free(struct gm_future *future);

/* Next uses of one block: next_use [n_layer][n_token][top_k], UINT32_MAX for never; rows that are absent: undefined. */
int gm_future_read(struct gm_future *future, const struct gm_block *block, uint32_t *next_use, struct gm_error *err);

/* Event numbers of first requests [n_layer][n_expert], as struct gm_core_config takes them. */
const uint64_t *gm_future_first_use(const struct gm_future *future);

#endif
