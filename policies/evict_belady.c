/* belady and belady-bypass: bounds that know the future. The resident that the trace requests again the latest leaves first (never
 * counts as latest; ties to the lower id). Next uses are told per event (docs/semantics.md); two experts whose next request is in the
 * same event tie. belady admits every fetch; belady-bypass does not keep a fetched expert that comes first in its own order.
 *
 * L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966.
 */
#include "policies/policy.h"

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return dims->n_item * sizeof(uint64_t);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	uint64_t *next = state;

	(void)arg;
	if (again)
		return; /* the future is the trace's, a reset does not change it */
	for (uint32_t i = 0; i < dims->n_item; i++)
		next[i] = dims->first_use ? dims->first_use[i] : GM_NEVER;
}

static void access_all(void *state, const struct gm_requests *requests)
{
	uint64_t *next = state;

	for (uint32_t i = 0; i < requests->n; i++)
		next[requests->first_item + requests->expert[i]] = requests->next_use[i];
}

static void insert(void *state, uint32_t item, bool preload)
{
	(void)state, (void)item, (void)preload;
}

static void nothing(void *state, uint32_t item)
{
	(void)state, (void)item;
}

static bool leaves_before(const uint64_t *next, uint32_t a, uint32_t b)
{
	return next[a] > next[b] || (next[a] == next[b] && a < b);
}

static uint32_t victim(void *state, const struct gm_candidates *c, uint32_t incoming)
{
	const uint64_t *next = state;
	uint32_t best = GM_NO_ITEM;

	(void)incoming;
	for (uint32_t i = 0; i < c->n_resident; i++) {
		uint32_t item = c->resident[i];

		if ((best == GM_NO_ITEM || leaves_before(next, item, best)) && gm_is_candidate(c, item))
			best = item;
	}
	return best;
}

static uint32_t victim_or_bypass(void *state, const struct gm_candidates *c, uint32_t incoming)
{
	uint32_t best = victim(state, c, incoming);

	if (best != GM_NO_ITEM && incoming != GM_NO_ITEM && leaves_before(state, incoming, best))
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
	.reserve = nothing,
	.land = nothing,
	.victim = victim,
	.forget = nothing,
};
const struct gm_evict_ops gm_evict_belady_bypass = {
	.info = {.name = "belady-bypass",
		 .help = "bound: belady that does not keep a fetched expert whose own next request is the farthest",
		 .flags = GM_NEEDS_NEXT_USE},
	.state_bytes = state_bytes,
	.init = init,
	.access = access_all,
	.insert = insert,
	.reserve = nothing,
	.land = nothing,
	.victim = victim_or_bypass,
	.forget = nothing,
};
