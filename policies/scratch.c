#include "policies/core_private.h"
#include "policies/resident.h"

#include <stdlib.h>

static void list_places(uint64_t *places)
{
	for (uint32_t bits = 0; bits < 1u << GM_LIST_PICK; bits++) {
		uint32_t n = 0;

		places[bits] = 0;
		for (uint64_t place = 0; place < GM_LIST_PICK; place++)
			if (bits >> place & 1)
				places[bits] |= place << 8 * n++;
	}
}

struct gm_scratch *gm_scratch_new(uint32_t n_expert, uint32_t top_k, struct gm_error *err)
{
	struct gm_scratch *s = gm_alloc(1, sizeof(*s), err);

	if (!s)
		return NULL;
	s->n_expert = n_expert;
	s->top_k = top_k;
	s->whole_k = gm_has_avx2() ? (top_k + GM_LOOK_UP - 1) / GM_LOOK_UP * GM_LOOK_UP : UINT32_MAX;
	s->stamp_of = gm_alloc(n_expert, sizeof(*s->stamp_of), err);
	s->request_of = gm_alloc(n_expert, sizeof(*s->request_of), err);
	s->expert = gm_alloc(n_expert, sizeof(*s->expert), err);
	s->class = gm_alloc(n_expert + GM_VECTOR_BYTES, sizeof(*s->class), err);
	s->flags = gm_alloc(n_expert, sizeof(*s->flags), err);
	s->row_of = gm_alloc(n_expert, sizeof(*s->row_of), err);
	s->no_row = gm_alloc(top_k, sizeof(*s->no_row), err);
	s->identity = gm_alloc(top_k, sizeof(*s->identity), err);
	s->next_use = gm_alloc(n_expert, sizeof(*s->next_use), err);
	s->work = gm_alloc(n_expert, sizeof(*s->work), err);
	s->queued = gm_alloc(n_expert, sizeof(*s->queued), err);
	s->missed = gm_alloc(n_expert + GM_LIST_PICK, sizeof(*s->missed), err);
	s->row_missed = gm_alloc(top_k, sizeof(*s->row_missed), err);
	s->position = gm_alloc(top_k, sizeof(*s->position), err);
	s->logit = gm_alloc(top_k, sizeof(*s->logit), err);
	s->row_class = gm_alloc(top_k, sizeof(*s->row_class), err);
	if (!s->stamp_of || !s->request_of || !s->expert || !s->class || !s->flags || !s->row_of || !s->no_row ||
	    !s->identity || !s->next_use || !s->work || !s->queued || !s->missed || !s->row_missed || !s->position ||
	    !s->logit || !s->row_class) {
		gm_scratch_free(s);
		return NULL;
	}
	for (uint32_t r = 0; r < top_k; r++)
		s->identity[r] = r;
	list_places(s->places);
	return s;
}

void gm_scratch_free(struct gm_scratch *s)
{
	if (!s)
		return;
	free(s->stamp_of);
	free(s->request_of);
	free(s->expert);
	free(s->class);
	free(s->flags);
	free(s->row_of);
	free(s->no_row);
	free(s->identity);
	free(s->next_use);
	free(s->work);
	free(s->queued);
	free(s->missed);
	free(s->request);
	free(s->wanting);
	free(s->action);
	free(s->substitute);
	free(s->rerouted);
	free(s->gate);
	free(s->row_missed);
	free(s->position);
	free(s->logit);
	free(s->row_class);
	free(s->room);
	free(s);
}

void *gm_scratch_room(struct gm_scratch *s, size_t bytes, struct gm_error *err)
{
	if (bytes > s->room_bytes) {
		char *larger = gm_realloc(s->room, bytes, 1, err);

		if (!larger)
			return NULL;
		s->room = larger;
		s->room_bytes = bytes;
	}
	return s->room;
}

int gm_scratch_grow(struct gm_scratch *s, uint32_t n_row, struct gm_error *err)
{
	size_t n = (size_t)n_row * s->top_k;

	if (n <= s->max_pick)
		return GM_OK;
	GM_GROW(s->request, n, err);
	GM_GROW(s->wanting, n, err);
	GM_GROW(s->action, n, err);
	GM_GROW(s->substitute, n, err);
	GM_GROW(s->rerouted, n, err);
	GM_GROW(s->gate, n, err);
	s->max_pick = n;
	return GM_OK;
}
