/* lfu: the resident with the fewest accesses since the start of the trace leaves first; counts are kept for life, also while an
 * item is not resident. Ties: smallest last access (ticks are unique, so none is left for the id).
 */
#include "policies/minima.h"

#include <string.h>

struct state {
	uint64_t tick;
	uint32_t
		n_pending; /* entered since the last access: they count from the next one on, pinned as they are until then */
	size_t pending;    /* offset of uint32_t [n_item] */
	size_t minima;     /* offset of struct gm_minima: residents by count, ties by last access (kept for all) */
	uint64_t count[];
};

static struct gm_minima *minima_of(struct state *s)
{
	return (struct gm_minima *)(void *)((char *)s + s->minima);
}

static uint32_t *pending_of(struct state *s)
{
	return (uint32_t *)(void *)((char *)s + s->pending);
}

static size_t pending_offset(uint32_t n_item)
{
	return sizeof(struct state) + n_item * sizeof(uint64_t);
}

static size_t minima_offset(uint32_t n_item)
{
	return (pending_offset(n_item) + n_item * sizeof(uint32_t) + 63) / 64 * 64;
}

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return minima_offset(dims->n_item) + gm_minima_bytes(dims->n_item);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	struct state *s = state;

	(void)arg, (void)again;
	s->tick = 0;
	s->n_pending = 0;
	s->pending = pending_offset(dims->n_item);
	s->minima = minima_offset(dims->n_item);
	memset(s->count, 0, dims->n_item * sizeof(*s->count));
	gm_minima_init(minima_of(s), dims->n_item);
}

static void enter_pending(struct state *s)
{
	const uint32_t *pending = pending_of(s);

	for (uint32_t i = 0; i < s->n_pending; i++) {
		uint32_t item = pending[i];

		gm_minima_enter(minima_of(s), item, s->count[item], gm_minima_ties(minima_of(s))[item]);
	}
	s->n_pending = 0;
}

static void access_all(void *state, const struct gm_requests *requests)
{
	struct state *s = state;
	struct gm_minima *minima = minima_of(s);
	const uint64_t *key = gm_minima_keys(minima);
	uint64_t tick = s->tick;

	enter_pending(s);
	for (uint32_t i = 0; i < requests->n; i++) {
		uint32_t item = requests->first_item + requests->expert[i];
		uint64_t count = ++s->count[item];

		if (key[item] != GM_MINIMA_ABSENT)
			gm_minima_grew(minima, item, count, ++tick);
		else
			gm_minima_ties(minima)[item] = ++tick;
	}
	s->tick = tick;
}

static void land(void *state, uint32_t item)
{
	struct state *s = state;

	pending_of(s)[s->n_pending++] = item;
}

static void insert(void *state, uint32_t item, bool preload)
{
	struct state *s = state;

	if (preload)
		gm_minima_ties(minima_of(s))[item] = ++s->tick;
	land(state, item);
}

static void reserve(void *state, uint32_t item)
{
	(void)state, (void)item;
}

static uint32_t victim(void *state, const struct gm_candidates *candidates, uint32_t incoming)
{
	(void)incoming;
	return gm_minima_least(minima_of(state), candidates);
}

static void forget(void *state, uint32_t item)
{
	gm_minima_leave(minima_of(state), item);
}

extern const struct gm_evict_ops gm_evict_lfu;
const struct gm_evict_ops gm_evict_lfu = {
	.info = {.name = "lfu", .help = "least frequently used: smallest count since the start, kept for life"},
	.state_bytes = state_bytes,
	.init = init,
	.access = access_all,
	.insert = insert,
	.reserve = reserve,
	.land = land,
	.victim = victim,
	.forget = forget,
};
