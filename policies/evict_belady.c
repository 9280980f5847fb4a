/* belady and belady-bypass: bounds that know the future. The resident that the trace requests again the latest leaves first (never
 * counts as latest; ties to the lower id). Next uses are told per event (docs/semantics.md); two experts whose next request is in the
 * same event tie. belady admits every fetch; belady-bypass does not keep a fetched expert that comes first in its own order.
 *
 * L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966.
 */
#include "policies/minima.h"

/* The values of the minima: the farther the next request, the smaller; events are fewer than 2^63. Ties are ids. */
static uint64_t value_of(uint64_t next)
{
	return next == GM_NEVER ? 0 : GM_MINIMA_ABSENT - 1 - next;
}

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return gm_minima_bytes(dims->n_item);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	(void)arg;
	if (again) {
		gm_minima_empty(state); /* the future is the trace's, a reset does not change it */
		return;
	}
	gm_minima_init(state, dims->n_item);
	for (uint32_t i = 0; i < dims->n_item; i++) {
		gm_minima_set_value(state, i, value_of(dims->first_use ? dims->first_use[i] : GM_NEVER));
		gm_minima_ties(state)[i] = i;
	}
}

static void access_all(void *state, const struct gm_requests *requests)
{
	gm_minima_enter_pending(state);
	for (uint32_t i = 0; i < requests->n; i++) {
		uint32_t item = requests->first_item + requests->expert[i];

		gm_minima_set_value(state, item, value_of(requests->next_use[i]));
		if (gm_minima_has(state, item))
			gm_minima_enter(state, item); /* its next request moved away: its value shrank */
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
	uint64_t least, own;

	if (best == GM_NO_ITEM || incoming == GM_NO_ITEM)
		return best;
	least = gm_minima_value(state, best);
	own = gm_minima_value(state, incoming);
	return own < least || (incoming < best && own == least) ? incoming : best;
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
	.reserve = gm_minima_reserve,
	.land = gm_minima_land,
	.victim = gm_minima_victim,
	.forget = gm_minima_forget,
};

const struct gm_evict_ops gm_evict_belady_bypass = {
	.info = {.name = "belady-bypass",
		 .help = "bound: belady that does not keep a fetched expert whose own next request is the farthest",
		 .flags = GM_NEEDS_NEXT_USE},
	.state_bytes = state_bytes,
	.init = init,
	.access = access_all,
	.insert = insert,
	.reserve = gm_minima_reserve,
	.land = gm_minima_land,
	.victim = victim_or_bypass,
	.forget = gm_minima_forget,
};
