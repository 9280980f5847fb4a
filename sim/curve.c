#include "sim/curve.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK 32u /* experts compared at a time */

struct gm_curve {
	const struct gm_model *model;
	uint64_t warmup;
	bool reset_per_sequence;
	uint32_t last_sequence; /* UINT32_MAX: none yet */
	uint32_t stride;        /* of a stack: n_expert in whole chunks, and one chunk */
	uint16_t *stack;        /* [n_layer][stride] experts by last request, newest first */
	uint32_t *depth;        /* [n_layer] how many are in the stack */
	uint32_t *place;        /* [top_k] room for one row */
	uint64_t *at;           /* [n_layer][n_expert + 1] requests found at each place of the stack; the last: not in it */
};

struct gm_curve *gm_curve_new(const struct gm_model *model, uint64_t warmup, bool reset_per_sequence, struct gm_error *err)
{
	struct gm_curve *c = gm_alloc(1, sizeof(*c), err);

	if (!c)
		return NULL;
	c->model = model;
	c->warmup = warmup;
	c->reset_per_sequence = reset_per_sequence;
	c->last_sequence = UINT32_MAX;
	c->stride = (model->n_expert / CHUNK + 2) * CHUNK;
	c->stack = gm_alloc((size_t)model->n_layer * c->stride, sizeof(*c->stack), err);
	c->depth = gm_alloc(model->n_layer, sizeof(*c->depth), err);
	c->at = gm_alloc((size_t)model->n_layer * (model->n_expert + 1), sizeof(*c->at), err);
	c->place = gm_alloc(model->top_k, sizeof(*c->place), err);
	if (!c->stack || !c->depth || !c->place || !c->at) {
		gm_curve_free(c);
		return NULL;
	}
	return c;
}

void gm_curve_free(struct gm_curve *c)
{
	if (!c)
		return;
	free(c->stack);
	free(c->depth);
	free(c->place);
	free(c->at);
	free(c);
}

/* Place of an expert in a stack; depth if it is not there. Whole chunks are compared at once, so that the compiler can
 * use vectors; what lies behind depth is looked at, but does not count. */
static uint32_t find(const uint16_t *stack, uint32_t depth, uint16_t expert)
{
	for (uint32_t i = 0; i < depth; i += CHUNK) {
		uint16_t found = 0;

		for (uint32_t j = 0; j < CHUNK; j++)
			found |= (uint16_t)(stack[i + j] == expert);
		for (uint32_t j = 0; found && j < CHUNK && i + j < depth; j++)
			if (stack[i + j] == expert)
				return i + j;
	}
	return depth;
}

/* Moves a row's requests to the top of the stack. place [n_found]: where they stood, ascending; n_new: how many stood nowhere. An expert
 * goes down by as many places as there were requests from below it. */
static void move_to_top(uint16_t *stack, uint32_t *depth, const uint16_t *pick, uint32_t top_k, const uint32_t *place,
			uint32_t n_found, uint32_t n_new)
{
	uint32_t end = *depth;

	for (uint32_t f = n_found + 1; f-- > 0;) {
		uint32_t begin = f ? place[f - 1] + 1 : 0, down = n_found - f + n_new;

		if (down)
			memmove(stack + begin + down, stack + begin, (end - begin) * sizeof(*stack));
		end = f ? place[f - 1] : 0;
	}
	for (uint32_t i = 0; i < top_k; i++)
		stack[i] = pick[top_k - 1 - i];
	*depth += n_new;
}

static void request_row(struct gm_curve *c, uint32_t layer, const uint16_t *pick, bool counted)
{
	uint16_t *stack = c->stack + (size_t)layer * c->stride;
	uint64_t *at = c->at + (size_t)layer * (c->model->n_expert + 1);
	uint32_t depth = c->depth[layer], top_k = c->model->top_k, n_found = 0;
	uint32_t *place = c->place;

	for (uint32_t i = 0; i < top_k; i++) {
		uint32_t found = find(stack, depth, pick[i]), f = n_found;

		at[found == depth ? c->model->n_expert : found] += counted;
		if (found == depth)
			continue;
		for (; f > 0 && place[f - 1] > found; f--)
			place[f] = place[f - 1];
		place[f] = found;
		n_found++;
	}
	move_to_top(stack, &c->depth[layer], pick, top_k, place, n_found, top_k - n_found);
}

void gm_curve_window(struct gm_curve *c, const struct gm_window *w)
{
	uint32_t begin = 0;

	/* runs of tokens that nothing interrupts, each layer after layer */
	while (begin < w->n_token) {
		uint32_t end = begin + 1;

		if (c->reset_per_sequence && c->last_sequence != w->sequence[begin])
			memset(c->depth, 0, c->model->n_layer * sizeof(*c->depth));
		c->last_sequence = w->sequence[begin];
		while (end < w->n_token && (!c->reset_per_sequence || w->sequence[end] == c->last_sequence))
			end++;
		for (uint32_t layer = 0; layer < c->model->n_layer; layer++) {
			for (uint32_t i = begin; i < end; i++) {
				size_t row = (size_t)layer * w->stride + i;

				if (w->present[row])
					request_row(c, layer, w->ranked + row * w->n_ranked,
						    w->first_token + i >= c->warmup);
			}
		}
		begin = end;
	}
}

uint64_t gm_curve_accesses(const struct gm_curve *c, uint32_t layer)
{
	return gm_curve_hits(c, layer, c->model->n_expert) +
	       c->at[(size_t)layer * (c->model->n_expert + 1) + c->model->n_expert];
}

uint64_t gm_curve_hits(const struct gm_curve *c, uint32_t layer, uint32_t n_slot)
{
	const uint64_t *at = c->at + (size_t)layer * (c->model->n_expert + 1);
	uint64_t hits = 0;

	for (uint32_t place = 0; place < n_slot && place < c->model->n_expert; place++)
		hits += at[place];
	return hits;
}
