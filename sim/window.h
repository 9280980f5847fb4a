/* Windows: whole passes of a trace, decoded once and replayed by any number of configurations. */
#ifndef GM_SIM_WINDOW_H
#define GM_SIM_WINDOW_H

#include "base/error.h"
#include "traces/reader.h"

enum gm_prefill {
	GM_PREFILL_TOKEN, /* every token its own pass */
	GM_PREFILL_BATCH, /* the passes as they were recorded */
};

/* Windows that are decoded at a time, at most: about 256 tokens. A replay that goes through all of them in one layer before the next has the layer's
 * state in the nearer caches meanwhile. */
#define GM_WINDOWS_MOST 4u
#define GM_WINDOWS_TOKENS 256u

/* What lies in a window. Row arrays are layer-major: row r(layer, i) = layer * stride + i. */
struct gm_window {
	uint64_t first_token;
	uint32_t n_token;
	uint32_t stride;          /* tokens from one layer to the next in the row arrays, >= n_token */
	uint32_t n_ranked;        /* experts a row */
	const uint32_t *sequence; /* [n_token] */
	const uint32_t *pass_end; /* [n_token] index one past the pass that token i belongs to */
	const uint8_t *present;   /* [n_layer][stride] */
	const uint16_t *ranked;   /* [n_layer][stride][n_ranked] S, then the others by selection score */
	const double *gate;       /* [n_layer][stride][top_k]; NULL unless asked for */
	/* [n_layer][stride][top_k] first token of the next pass that requests it; NULL unless asked for */
	const uint32_t *next_use;
	bool all_present;
};

struct gm_windows; /* an iterator over a trace */

enum gm_windows_flag {
	GM_WINDOWS_NEXT_USE = 1, /* one pass backwards first: needs a seekable trace */
	GM_WINDOWS_TAIL = 2,     /* gm_windows_beyond will be asked for; a streamed trace must then be decoded whole */
	GM_WINDOWS_GATES = 4,    /* gate weights are wanted */
};

/* The trace must outlive it. Several iterators can read one seekable trace in turn. */
struct gm_windows *gm_windows_new(struct gm_trace *trace, enum gm_prefill prefill, unsigned flags, struct gm_error *err);
void gm_windows_free(struct gm_windows *windows);

/* The next windows, in order: how many, 0 at the end, or an error. *window [n] is valid until the next call. */
int gm_windows_next(struct gm_windows *windows, const struct gm_window **window, struct gm_error *err);

/* The experts beyond the ranking of row i of one of the current windows from place `from` on, by selection score (see struct gm_rows). Errors name
 * token and layer. */
int gm_windows_beyond(struct gm_windows *windows, const struct gm_window *window, uint32_t layer, uint32_t i, uint32_t from,
		      const uint16_t **expert, uint32_t *n, struct gm_error *err);

/* Event numbers of first requests [n_layer][n_expert] (struct gm_core_config), with GM_WINDOWS_NEXT_USE; else NULL. */
const uint64_t *gm_windows_first_use(const struct gm_windows *windows);

#endif
