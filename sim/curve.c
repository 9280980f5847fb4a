#include "sim/curve.h"

#include "sim/stack.h"

#include <stdlib.h>

struct gm_curve {
	const struct gm_model *model;
	uint64_t warmup;
	bool reset_per_sequence;
	uint32_t last_sequence; /* UINT32_MAX: none yet */
	size_t stack_bytes;
	char *stacks;    /* [n_layer] of stack_bytes */
	uint32_t *place; /* [top_k] room for one row */
	/* [n_layer][n_expert + 2] requests found at each place of the stack; the last but one: never requested before. Once
	 * finished: hits with so many slots, and accesses */
	uint64_t *hits;
};

static struct gm_stack *stack_of(const struct gm_curve *c, uint32_t layer)
{
	return (struct gm_stack *)(void *)(c->stacks + layer * c->stack_bytes);
}

static uint64_t *hits_of(const struct gm_curve *c, uint32_t layer)
{
	return c->hits + (size_t)layer * (c->model->n_expert + 2);
}

struct gm_curve *gm_curve_new(const struct gm_model *model, uint64_t warmup, bool reset_per_sequence, struct gm_error *err)
{
	struct gm_curve *c = gm_alloc(1, sizeof(*c), err);

	if (!c)
		return NULL;
	c->model = model;
	c->warmup = warmup;
	c->reset_per_sequence = reset_per_sequence;
	c->last_sequence = UINT32_MAX;
	c->stack_bytes = gm_stack_bytes(model->n_expert, model->top_k);
	c->stacks = gm_alloc(model->n_layer, c->stack_bytes, err);
	c->hits = gm_alloc((size_t)model->n_layer * (model->n_expert + 2), sizeof(*c->hits), err);
	c->place = gm_alloc(model->top_k, sizeof(*c->place), err);
	if (!c->stacks || !c->place || !c->hits) {
		gm_curve_free(c);
		return NULL;
	}
	for (uint32_t layer = 0; layer < model->n_layer; layer++)
		gm_stack_init(c->stacks + layer * c->stack_bytes, model->n_expert, model->top_k);
	return c;
}

void gm_curve_free(struct gm_curve *c)
{
	if (!c)
		return;
	free(c->stacks);
	free(c->place);
	free(c->hits);
	free(c);
}

/* The rows of tokens begin ... end - 1 in one layer. */
static void request_rows(struct gm_curve *c, const struct gm_window *w, uint32_t layer, uint32_t begin, uint32_t end)
{
	struct gm_stack *stack = stack_of(c, layer);
	uint64_t *found = hits_of(c, layer);
	uint32_t top_k = c->model->top_k;

	for (uint32_t i = begin; i < end; i++) {
		size_t row = (size_t)layer * w->stride + i;

		if (!w->present[row])
			continue;
		gm_stack_request(stack, w->ranked + row * w->n_ranked, c->place);
		for (uint32_t r = 0; r < top_k && w->first_token + i >= c->warmup; r++)
			found[c->place[r]]++;
	}
}

void gm_curve_window(struct gm_curve *c, const struct gm_window *w)
{
	uint32_t begin = 0;

	/* runs of tokens that nothing interrupts, each layer after layer */
	while (begin < w->n_token) {
		uint32_t end = begin + 1;

		if (c->reset_per_sequence && c->last_sequence != w->sequence[begin])
			for (uint32_t layer = 0; layer < c->model->n_layer; layer++)
				gm_stack_clear(stack_of(c, layer));
		c->last_sequence = w->sequence[begin];
		while (end < w->n_token && (!c->reset_per_sequence || w->sequence[end] == c->last_sequence))
			end++;
		for (uint32_t layer = 0; layer < c->model->n_layer; layer++)
			request_rows(c, w, layer, begin, end);
		begin = end;
	}
}

void gm_curve_finish(struct gm_curve *c)
{
	for (uint32_t layer = 0; layer < c->model->n_layer; layer++) {
		uint64_t *hits = hits_of(c, layer), before = 0;

		for (uint32_t n_slot = 0; n_slot < c->model->n_expert + 2; n_slot++) {
			uint64_t at = hits[n_slot];

			hits[n_slot] = before;
			before += at;
		}
	}
}

uint64_t gm_curve_accesses(const struct gm_curve *c, uint32_t layer)
{
	return hits_of(c, layer)[c->model->n_expert + 1];
}

uint64_t gm_curve_hits(const struct gm_curve *c, uint32_t layer, uint32_t n_slot)
{
	return hits_of(c, layer)[n_slot];
}
