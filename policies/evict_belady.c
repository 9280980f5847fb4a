/* belady and belady-bypass: bounds that know the future. The resident that the trace requests again the latest leaves first (never
 * counts as latest; ties to the lower id). Next uses are told per event (docs/semantics.md); two experts whose next request is in the
 * same event tie. belady admits every fetch; belady-bypass does not keep a fetched expert that comes first in its own order.
 *
 * L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966.
 */
#include "policies/minima.h"

/* A key: the farther the next request, the smaller, and below it the id. */
#define ID_BITS 20                                /* items of a pool: a trace has at most 2^20 (GM_MAX_LAYER_EXPERT) */
#define NEVER ((GM_MINIMA_ABSENT >> ID_BITS) - 1) /* events are fewer than 2^42: of 2^32 tokens in 1,024 layers */

static uint64_t key_of(uint32_t item, uint64_t next)
{
	return (next == GM_NEVER ? 0 : NEVER - next) << ID_BITS | item;
}

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return gm_minima_bytes(dims->n_item);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	struct gm_minima *minima = state;

	(void)arg;
	if (again) {
		gm_minima_empty(minima); /* the future is the trace's, a reset does not change it */
		return;
	}
	gm_minima_init(minima, dims->n_item, false);
	for (uint32_t i = 0; i < dims->n_item; i++)
		gm_minima_set(minima, i, GM_MINIMA_ABSENT | key_of(i, dims->first_use ? dims->first_use[i] : GM_NEVER));
}

static void access_all(void *state, const struct gm_requests *requests)
{
	struct gm_minima *minima = state;

	gm_minima_enter_pending(minima);
	for (uint32_t i = 0; i < requests->n; i++) {
		uint32_t item = requests->first_item + requests->expert[i];
		uint64_t absent = minima->key[item] & GM_MINIMA_ABSENT;

		gm_minima_set(minima, item, absent | key_of(item, requests->next_use[i]));
	}
}

static void insert(void *state, uint32_t item, bool preload)
{
	(void)preload;
	gm_minima_land(state, item);
}

static uint32_t victim_or_bypass(void *state, const struct gm_candidates *candidates, uint32_t incoming)
{
	uint32_t best = gm_minima_victim(state, candidates, incoming);

	if (best == GM_NO_ITEM || incoming == GM_NO_ITEM)
		return best;
	return gm_minima_key(state, incoming) < gm_minima_key(state, best) ? incoming : best;
}

extern const struct gm_evict_ops gm_evict_belady, gm_evict_belady_bypass;
const struct gm_evict_ops gm_evict_belady = {
	.info = {.name = "belady",
		 .help = "bound: farthest next request in the trace, every fetch is admitted",
		 .flags = GM_NEEDS_NEXT_USE | GM_SPARES_REQUESTS},
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

const struct gm_evict_ops gm_evict_belady_bypass = {
	.info = {.name = "belady-bypass",
		 .help = "bound: belady that does not keep a fetched expert whose own next request is the farthest",
		 .flags = GM_NEEDS_NEXT_USE | GM_SPARES_REQUESTS},
	.state_bytes = state_bytes,
	.init = init,
	.expect = gm_minima_expect,
	.access = access_all,
	.insert = insert,
	.reserve = gm_minima_reserve,
	.land = gm_minima_land,
	.victim = victim_or_bypass,
	.forget = gm_minima_forget,
};
