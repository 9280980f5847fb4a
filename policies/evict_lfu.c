/* lfu: the resident with the fewest accesses since the start of the trace leaves first; counts are kept for life, also while an
 * item is not resident. Ties: smallest last access (ticks are unique, so none is left for the id).
 */
#include "policies/minima.h"

/* Behind the minima, whose values are counts and whose ties are ticks of the last access. */
struct own {
	uint64_t tick;
};

static struct own *own_of(struct gm_minima *minima)
{
	return (struct own *)(void *)((char *)minima + minima->end);
}

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return gm_minima_bytes(dims->n_item) + sizeof(struct own);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	(void)arg, (void)again;
	gm_minima_init(state, dims->n_item);
	own_of(state)->tick = 0;
}

static void access_all(void *state, const struct gm_requests *requests)
{
	const struct gm_minima_arrays arrays = gm_minima_arrays(state);
	struct own *own = own_of(state);
	uint64_t tick = own->tick;

	gm_minima_enter_pending(state);
	for (uint32_t i = 0; i < requests->n; i++) {
		uint32_t item = requests->first_item + requests->expert[i];

		gm_minima_grow(&arrays, item, arrays.key[item] + 1, ++tick);
	}
	own->tick = tick;
}

static void insert(void *state, uint32_t item, bool preload)
{
	if (preload)
		gm_minima_ties(state)[item] = ++own_of(state)->tick;
	gm_minima_land(state, item);
}

extern const struct gm_evict_ops gm_evict_lfu;
const struct gm_evict_ops gm_evict_lfu = {
	.info = {.name = "lfu", .help = "least frequently used: smallest count since the start, kept for life"},
	.state_bytes = state_bytes,
	.init = init,
	.access = access_all,
	.insert = insert,
	.reserve = gm_minima_reserve,
	.land = gm_minima_land,
	.victim = gm_minima_victim,
	.forget = gm_minima_forget,
};
