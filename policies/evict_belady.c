/* belady and belady-bypass: bounds that know the future. The resident that the trace requests again the latest leaves first (never
 * counts as latest; ties to the lower id). Next uses are told per event (docs/semantics.md); two experts whose next request is in the
 * same event tie. belady admits every fetch; belady-bypass does not keep a fetched expert that comes first in its own order.
 *
 * L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966.
 */
#include "policies/minima.h"

struct state {
	size_t minima;   /* offset of struct gm_minima: residents, the farthest next use first, ties by id */
	uint64_t next[]; /* [n_item] event number of the next request */
};

static struct gm_minima *minima_of(struct state *s)
{
	return (struct gm_minima *)(void *)((char *)s + s->minima);
}

static size_t minima_offset(uint32_t n_item)
{
	return (sizeof(struct state) + n_item * sizeof(uint64_t) + 63) / 64 * 64;
}

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return minima_offset(dims->n_item) + gm_minima_bytes(dims->n_item);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	struct state *s = state;

	(void)arg;
	s->minima = minima_offset(dims->n_item);
	gm_minima_init(minima_of(s), dims->n_item);
	if (again)
		return; /* the future is the trace's, a reset does not change it */
	for (uint32_t i = 0; i < dims->n_item; i++)
		s->next[i] = dims->first_use ? dims->first_use[i] : GM_NEVER;
}

/* The farthest has the smallest key. Event 0 is never the next one of anybody who could be evicted, so its key may meet event 1's. */
static uint64_t key_of(uint64_t next)
{
	return next ? GM_NEVER - next : GM_NEVER - 1;
}

static void access_all(void *state, const struct gm_requests *requests)
{
	struct state *s = state;
	struct gm_minima *minima = minima_of(s);
	const uint64_t *key = gm_minima_keys(minima);

	for (uint32_t i = 0; i < requests->n; i++) {
		uint32_t item = requests->first_item + requests->expert[i];

		s->next[item] = requests->next_use[i];
		if (key[item] != GM_MINIMA_ABSENT)
			gm_minima_enter(minima, item, key_of(s->next[item]), item);
	}
}

static void land(void *state, uint32_t item)
{
	struct state *s = state;

	gm_minima_enter(minima_of(s), item, key_of(s->next[item]), item);
}

static void insert(void *state, uint32_t item, bool preload)
{
	(void)preload;
	land(state, item);
}

static void reserve(void *state, uint32_t item)
{
	(void)state, (void)item;
}

static void forget(void *state, uint32_t item)
{
	gm_minima_leave(minima_of(state), item);
}

static uint32_t victim(void *state, const struct gm_candidates *candidates, uint32_t incoming)
{
	(void)incoming;
	return gm_minima_least(minima_of(state), candidates);
}

static uint32_t victim_or_bypass(void *state, const struct gm_candidates *candidates, uint32_t incoming)
{
	const struct state *s = state;
	uint32_t best = victim(state, candidates, incoming);

	if (best == GM_NO_ITEM || incoming == GM_NO_ITEM)
		return best;
	if (s->next[incoming] > s->next[best] || (s->next[incoming] == s->next[best] && incoming < best))
		return incoming;
	return best;
}

extern const struct gm_evict_ops gm_evict_belady, gm_evict_belady_bypass;
const struct gm_evict_ops gm_evict_belady = {
	.info = {.name = "belady",
		 .help = "bound: farthest next request in the trace, every fetch is admitted",
		 .flags = GM_NEEDS_NEXT_USE},
	.state_bytes = state_bytes,
	.init = init,
	.access = access_all,
	.insert = insert,
	.reserve = reserve,
	.land = land,
	.victim = victim,
	.forget = forget,
};
const struct gm_evict_ops gm_evict_belady_bypass = {
	.info = {.name = "belady-bypass",
		 .help = "bound: belady that does not keep a fetched expert whose own next request is the farthest",
		 .flags = GM_NEEDS_NEXT_USE},
	.state_bytes = state_bytes,
	.init = init,
	.access = access_all,
	.insert = insert,
	.reserve = reserve,
	.land = land,
	.victim = victim_or_bypass,
	.forget = forget,
};
