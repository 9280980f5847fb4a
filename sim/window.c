#include "sim/window.h"

#include "sim/beyond.h"
#include "sim/future.h"
#include "traces/select.h"

#include <stdlib.h>
#include <string.h>

/* The arrays of a window that holds copies of rows: recorded passes need not end where blocks end. */
struct store {
	uint32_t capacity; /* tokens; the stride of the row arrays */
	uint32_t n_token;
	uint32_t *sequence, *pass;
	uint8_t *present;
	uint16_t *ranked;
	double *gate;
	uint32_t *next_use;
};

/* What belongs to one window. */
struct part {
	struct gm_block block; /* of the window; where windows hold copies of rows: the one decoded last */
	double *gate;          /* of the block [n_layer][n_token][top_k] */
	uint32_t *next_use;    /* likewise */
	size_t n_value;        /* room in gate and next_use */
	struct gm_block tail;  /* a block of the window decoded with its tail */
	bool has_tail;
	struct gm_beyond *beyond; /* NULL until it is asked for */
};

struct gm_windows {
	struct gm_trace *trace;
	const struct gm_model *model;
	struct gm_future *future;
	enum gm_prefill prefill;
	unsigned flags, want;
	uint64_t next_block;
	bool ended;
	struct part part[GM_WINDOWS_MOST];
	struct gm_window window[GM_WINDOWS_MOST];
	/* GM_PREFILL_BATCH, whose windows come one by one: tokens of whole passes, then those of an open one */
	struct store store;
	uint32_t *pass_end; /* of all windows */
	uint32_t max_pass_end;
};

/* --- one block: gates and next uses --- */

static void fill_gates(const struct gm_windows *w, struct part *part)
{
	const struct gm_block *b = &part->block;
	uint32_t k = w->model->top_k;
	size_t n_row = (size_t)b->n_layer * b->n_token;

	if (b->weight) {
		memcpy(part->gate, b->weight, n_row * k * sizeof(double));
		return;
	}
	for (size_t row = 0; row < n_row; row++)
		if (b->present[row])
			gm_gate_weights(w->model->gating, k, b->logit + row * b->n_head, part->gate + row * k);
}

/* Decodes the next block; 0 at the end. */
static int next_block(struct gm_windows *w, struct part *part, struct gm_error *err)
{
	int status = gm_trace_read(w->trace, w->next_block, w->want, &part->block, err);
	size_t n_value = (size_t)w->model->n_layer * part->block.n_token * w->model->top_k;

	if (status <= 0)
		return status;
	w->next_block++;
	if (n_value > part->n_value) {
		GM_GROW(part->gate, n_value, err);
		GM_GROW(part->next_use, n_value, err);
		part->n_value = n_value;
	}
	if (w->flags & GM_WINDOWS_GATES)
		fill_gates(w, part);
	if (w->future)
		GM_TRY(gm_future_read(w->future, &part->block, part->next_use, err));
	return 1;
}

static int reserve_pass_ends(struct gm_windows *w, uint32_t n, struct gm_error *err)
{
	if (n <= w->max_pass_end)
		return GM_OK;
	GM_GROW(w->pass_end, n, err);
	w->max_pass_end = n;
	return GM_OK;
}

static void note_presence(struct gm_window *out, uint32_t n_layer)
{
	out->all_present = true;
	for (uint32_t l = 0; l < n_layer && out->all_present; l++)
		out->all_present = !memchr(out->present + (size_t)l * out->stride, 0, out->n_token);
}

/* --- every token its own pass: a window is a block --- */

static int next_token_window(struct gm_windows *w, uint32_t i, struct gm_error *err)
{
	struct part *part = &w->part[i];
	const struct gm_block *b = &part->block;
	int status = next_block(w, part, err);

	if (status <= 0)
		return status;
	GM_TRY(reserve_pass_ends(w, b->n_token, err));
	w->window[i] = (struct gm_window){
		.first_token = b->first_token,
		.n_token = b->n_token,
		.stride = b->n_token,
		.n_ranked = b->n_head,
		.sequence = b->sequence,
		.present = b->present,
		.ranked = b->head,
		.gate = w->flags & GM_WINDOWS_GATES ? part->gate : NULL,
		.next_use = w->future ? part->next_use : NULL,
	};
	note_presence(&w->window[i], w->model->n_layer);
	return 1;
}

static int next_token_windows(struct gm_windows *w, struct gm_error *err)
{
	uint32_t n = 0, n_token = 0, longest = 0;
	int status = 1;

	while (n < GM_WINDOWS_MOST && n_token < GM_WINDOWS_TOKENS && (status = next_token_window(w, n, err)) > 0) {
		uint32_t here = w->window[n++].n_token;

		n_token += here;
		longest = here > longest ? here : longest;
	}
	if (status < 0)
		return status;
	for (uint32_t i = 0; i < longest; i++)
		w->pass_end[i] = i + 1;
	for (uint32_t i = 0; i < n; i++)
		w->window[i].pass_end = w->pass_end;
	return (int)n;
}

/* --- recorded passes: a window is a run of whole passes, copied --- */

/* Spreads the layers of an array of rows, whose room has grown, to a larger stride; size bytes a row. */
static void spread(void *array, uint32_t n_layer, uint32_t from, uint32_t to, size_t size)
{
	char *bytes = array;

	for (uint32_t l = n_layer; l-- > 1;)
		memmove(bytes + (size_t)l * to * size, bytes + (size_t)l * from * size, from * size);
}

static int reserve_store(struct gm_windows *w, uint32_t n_token, struct gm_error *err)
{
	struct store *s = &w->store;
	uint32_t n_layer = w->model->n_layer, k = w->model->top_k, n_head = gm_trace_n_head(w->trace);
	uint32_t from = s->capacity, to = n_token < 2 * from ? 2 * from : n_token;
	size_t n_row = (size_t)n_layer * to;

	if (n_token <= from)
		return GM_OK;
	GM_GROW(s->sequence, to, err);
	GM_GROW(s->pass, to, err);
	GM_GROW(s->present, n_row, err);
	GM_GROW(s->ranked, n_row * n_head, err);
	spread(s->present, n_layer, from, to, 1);
	spread(s->ranked, n_layer, from, to, n_head * sizeof(uint16_t));
	if (w->flags & GM_WINDOWS_GATES) {
		GM_GROW(s->gate, n_row * k, err);
		spread(s->gate, n_layer, from, to, k * sizeof(double));
	}
	if (w->future) {
		GM_GROW(s->next_use, n_row * k, err);
		spread(s->next_use, n_layer, from, to, k * sizeof(uint32_t));
	}
	s->capacity = to;
	return GM_OK;
}

static void copy_rows(void *to, uint32_t to_stride, uint32_t to_first, const void *from, uint32_t from_stride,
		      uint32_t from_first, uint32_t n_layer, uint32_t n, size_t size)
{
	for (uint32_t l = 0; l < n_layer; l++)
		memmove((char *)to + ((size_t)l * to_stride + to_first) * size,
			(const char *)from + ((size_t)l * from_stride + from_first) * size, n * size);
}

static int append_block(struct gm_windows *w, struct gm_error *err)
{
	const struct part *part = &w->part[0];
	const struct gm_block *b = &part->block;
	struct store *s = &w->store;
	uint32_t n_layer = w->model->n_layer, k = w->model->top_k, n = b->n_token;

	GM_TRY(reserve_store(w, s->n_token + n, err));
	memcpy(s->sequence + s->n_token, b->sequence, n * sizeof(uint32_t));
	memcpy(s->pass + s->n_token, b->pass, n * sizeof(uint32_t));
	copy_rows(s->present, s->capacity, s->n_token, b->present, n, 0, n_layer, n, 1);
	copy_rows(s->ranked, s->capacity, s->n_token, b->head, n, 0, n_layer, n, b->n_head * sizeof(uint16_t));
	if (w->flags & GM_WINDOWS_GATES)
		copy_rows(s->gate, s->capacity, s->n_token, part->gate, n, 0, n_layer, n, k * sizeof(double));
	if (w->future)
		copy_rows(s->next_use, s->capacity, s->n_token, part->next_use, n, 0, n_layer, n, k * sizeof(uint32_t));
	s->n_token += n;
	return GM_OK;
}

/* Drops the tokens of the last window from the store; the open pass moves to the front. */
static void drop_window(struct gm_windows *w)
{
	struct store *s = &w->store;
	uint32_t n_layer = w->model->n_layer, k = w->model->top_k, first = w->window[0].n_token, n = s->n_token - first;
	size_t ranked = gm_trace_n_head(w->trace) * sizeof(uint16_t);

	memmove(s->sequence, s->sequence + first, n * sizeof(uint32_t));
	memmove(s->pass, s->pass + first, n * sizeof(uint32_t));
	copy_rows(s->present, s->capacity, 0, s->present, s->capacity, first, n_layer, n, 1);
	copy_rows(s->ranked, s->capacity, 0, s->ranked, s->capacity, first, n_layer, n, ranked);
	if (s->gate)
		copy_rows(s->gate, s->capacity, 0, s->gate, s->capacity, first, n_layer, n, k * sizeof(double));
	if (s->next_use)
		copy_rows(s->next_use, s->capacity, 0, s->next_use, s->capacity, first, n_layer, n, k * sizeof(uint32_t));
	s->n_token = n;
	w->window[0].first_token += first;
	w->window[0].n_token = 0;
}

/* How many tokens of the store lie in passes that are known to be whole. */
static uint32_t whole_tokens(const struct gm_windows *w)
{
	const struct store *s = &w->store;
	uint32_t n = s->n_token;

	if (w->ended || n == 0)
		return n;
	while (n > 0 && s->pass[n - 1] == s->pass[s->n_token - 1])
		n--;
	return n;
}

static int next_batch_window(struct gm_windows *w, struct gm_error *err)
{
	struct store *s = &w->store;
	struct gm_window *out = &w->window[0];
	uint32_t n;

	if (s->n_token)
		drop_window(w);
	while ((n = whole_tokens(w)) == 0 && !w->ended) {
		int status = next_block(w, &w->part[0], err);

		GM_TRY(status);
		if (status == 0)
			w->ended = true;
		else
			GM_TRY(append_block(w, err));
	}
	if (n == 0)
		return 0;
	GM_TRY(reserve_pass_ends(w, n, err));
	for (uint32_t i = n; i-- > 0;)
		w->pass_end[i] = i + 1 < n && s->pass[i] == s->pass[i + 1] ? w->pass_end[i + 1] : i + 1;
	*out = (struct gm_window){
		.first_token = out->first_token,
		.n_token = n,
		.stride = s->capacity,
		.n_ranked = gm_trace_n_head(w->trace),
		.sequence = s->sequence,
		.pass_end = w->pass_end,
		.present = s->present,
		.ranked = s->ranked,
		.gate = s->gate,
		.next_use = s->next_use,
	};
	note_presence(out, w->model->n_layer);
	return 1;
}

int gm_windows_next(struct gm_windows *w, const struct gm_window **window, struct gm_error *err)
{
	*window = w->window;
	return w->prefill == GM_PREFILL_TOKEN ? next_token_windows(w, err) : next_batch_window(w, err);
}

/* --- experts beyond the ranking --- */

static int no_tail(const struct gm_windows *w, uint64_t token, uint32_t layer, struct gm_error *err)
{
	if (gm_trace_kind(w->trace) == GM_KIND_TOPK)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "no expert to substitute is known: token %llu, layer %u: a top-k trace has no logits; use "
			       "--miss fetch, drop or cpu",
			       (unsigned long long)token, layer);
	return gm_fail(err, GM_ERR_UNSUPPORTED,
		       "no resident expert among the %u ranked ones: token %llu, layer %u: the trace has no tail; use "
		       "--head-only, or record with --tail f16",
		       gm_trace_n_head(w->trace), (unsigned long long)token, layer);
}

/* The block of a window that holds a token, its tail decoded. */
static int load_tail(struct gm_windows *w, struct part *part, uint64_t token, const struct gm_block **out,
		     struct gm_error *err)
{
	uint64_t block = 0;

	*out = part->block.tail ? &part->block : &part->tail; /* streamed: decoded whole */
	if (part->block.tail)
		return GM_OK;
	if (part->has_tail && token >= part->tail.first_token && token < part->tail.first_token + part->tail.n_token)
		return GM_OK;
	if (!gm_trace_seekable(w->trace))
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "substitutes of a prompt batch cannot be sought on a pipe: %s: give the trace as a file",
			       gm_trace_path(w->trace));
	part->has_tail = false;
	GM_TRY(gm_trace_find(w->trace, token, &block, err));
	GM_TRY(gm_trace_read(w->trace, block, GM_WANT_TAIL, &part->tail, err));
	part->has_tail = true;
	return GM_OK;
}

int gm_windows_beyond(struct gm_windows *w, const struct gm_window *window, uint32_t layer, uint32_t i, uint32_t from,
		      const uint16_t **expert, uint32_t *n, struct gm_error *err)
{
	struct part *part = &w->part[window - w->window];
	uint64_t token = window->first_token + i;
	const struct gm_block *block;

	*n = 0;
	if (gm_trace_tail(w->trace) == GM_TAIL_NONE)
		return no_tail(w, token, layer, err);
	GM_TRY(load_tail(w, part, token, &block, err));
	if (!part->beyond && !(part->beyond = gm_beyond_new(w->model, gm_trace_n_head(w->trace), err)))
		return GM_ERR_MEMORY;
	return gm_beyond_row(part->beyond, block, layer, (uint32_t)(token - block->first_token), from, expert, n, err);
}

/* --- life --- */

static int prepare(struct gm_windows *w, struct gm_error *err)
{
	if ((w->flags & GM_WINDOWS_TAIL) && !gm_trace_seekable(w->trace) && w->prefill == GM_PREFILL_TOKEN)
		w->want = GM_WANT_TAIL;
	if (w->flags & GM_WINDOWS_NEXT_USE) {
		w->future = gm_future_new(w->trace, w->prefill, err);
		if (!w->future)
			return GM_ERR_IO;
	}
	return GM_OK;
}

struct gm_windows *gm_windows_new(struct gm_trace *trace, enum gm_prefill prefill, unsigned flags, struct gm_error *err)
{
	struct gm_windows *w = gm_alloc(1, sizeof(*w), err);

	if (!w)
		return NULL;
	w->trace = trace;
	w->model = gm_trace_model(trace);
	w->prefill = prefill;
	w->flags = flags;
	if (prepare(w, err) < 0) {
		gm_windows_free(w);
		return NULL;
	}
	return w;
}

void gm_windows_free(struct gm_windows *w)
{
	if (!w)
		return;
	gm_future_free(w->future);
	for (uint32_t i = 0; i < GM_WINDOWS_MOST; i++) {
		gm_block_free(&w->part[i].block);
		gm_block_free(&w->part[i].tail);
		free(w->part[i].gate);
		free(w->part[i].next_use);
		gm_beyond_free(w->part[i].beyond);
	}
	free(w->store.sequence);
	free(w->store.pass);
	free(w->store.present);
	free(w->store.ranked);
	free(w->store.gate);
	free(w->store.next_use);
	free(w->pass_end);
	free(w);
}

const uint64_t *gm_windows_first_use(const struct gm_windows *w)
{
	return w->future ? gm_future_first_use(w->future) : NULL;
}
