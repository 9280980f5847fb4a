/* lfu: the resident with the fewest accesses since the start of the trace leaves first; counts are kept for life, also while an
 * item is not resident. Ties: smallest last access (ticks are unique, so none is left for the id).
 */
#include "policies/minima.h"

/* A key is the count above the tick of the last access. Ticks are numbered anew when they run out, which changes no order; counts end at
 * MAX_COUNT, 3.2 thousand million, which they cannot pass before that. */
#ifndef GM_LFU_TICK_BITS
#define GM_LFU_TICK_BITS 30
#endif
#define LAST_TICK ((UINT64_C(1) << GM_LFU_TICK_BITS) - 1)
#define MAX_COUNT ((GM_MINIMA_ABSENT >> GM_LFU_TICK_BITS) - 1 - LAST_TICK)

struct own {
	uint64_t tick;
};

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return gm_minima_bytes(dims->n_item) + sizeof(struct own);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	struct own *own;

	(void)arg;
	gm_minima_init(state, dims->n_item, again);
	own = gm_minima_own(state);
	own->tick = 0;
}

/* The item with the smallest tick above `last`; GM_NO_ITEM: there is none. */
static uint32_t next_accessed(const struct gm_minima *minima, uint64_t last)
{
	uint32_t next = GM_NO_ITEM;
	uint64_t least = LAST_TICK + 1;

	for (uint32_t i = 0; i < minima->n_item; i++) {
		uint64_t tick = minima->key[i] & LAST_TICK;

		if (tick > last && tick < least) {
			least = tick;
			next = i;
		}
	}
	return next;
}

/* Ticks become 1, 2, ... in their order. */
static void number_anew(struct gm_minima *minima, struct own *own)
{
	uint64_t last = 0;
	uint32_t item;

	own->tick = 0;
	while ((item = next_accessed(minima, last)) != GM_NO_ITEM) {
		uint64_t absent = minima->key[item] & GM_MINIMA_ABSENT;
		uint64_t count = gm_minima_key(minima, item) >> GM_LFU_TICK_BITS;

		last = minima->key[item] & LAST_TICK;
		count = count < MAX_COUNT ? count : MAX_COUNT;
		minima->key[item] = absent | count << GM_LFU_TICK_BITS | ++own->tick;
	}
	gm_minima_changed(minima);
}

static void access_all(void *state, const struct gm_requests *requests)
{
	struct gm_minima *minima = state;
	struct own *own = gm_minima_own(minima);

	gm_minima_enter_pending(minima);
	if (own->tick + requests->n > LAST_TICK)
		number_anew(minima, own);
	const uint16_t *expert = requests->expert;
	uint32_t n = requests->n, first_item = requests->first_item;
	uint64_t tick = own->tick;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t item = first_item + expert[i];

		gm_minima_set(minima, item, (minima->key[item] | LAST_TICK) + 1 + ++tick);
	}
	own->tick = tick;
}

static void insert(void *state, uint32_t item, bool preload)
{
	struct gm_minima *minima = state;

	if (preload)
		minima->key[item] += ++((struct own *)gm_minima_own(minima))->tick; /* its count and tick were 0 */
	gm_minima_land(minima, item);
}

extern const struct gm_evict_ops gm_evict_lfu;
const struct gm_evict_ops gm_evict_lfu = {
	.info = {.name = "lfu",
		 .help = "least frequently used: smallest count since the start, kept for life",
		 .flags = GM_SPARES_REQUESTS},
	.state_bytes = state_bytes,
	.init = init,
	.expect = gm_minima_expect,
	.access = access_all,
	.insert = insert,
	.reserve = gm_minima_reserve,
	.land = gm_minima_land,
	.victim = gm_minima_victim,
	.forget = gm_minima_forget,
};
