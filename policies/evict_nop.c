/* nop: everything is resident. The floor of every benchmark, and the answer to "what if it all fitted?". */
#include "policies/policy.h"

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)dims, (void)arg;
	return 0;
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	(void)state, (void)dims, (void)arg, (void)again;
}

static void access_all(void *state, const struct gm_requests *requests)
{
	(void)state, (void)requests;
}

static void insert(void *state, uint32_t item, bool preload)
{
	(void)state, (void)item, (void)preload;
}

static void ignore(void *state, uint32_t item)
{
	(void)state, (void)item;
}

static uint32_t victim(void *state, const struct gm_candidates *candidates, uint32_t incoming)
{
	(void)state, (void)candidates, (void)incoming;
	return GM_NO_ITEM;
}

extern const struct gm_evict_ops gm_evict_nop;
const struct gm_evict_ops gm_evict_nop = {
	.info = {.name = "nop", .help = "no cache: every expert is resident, everything hits", .flags = GM_ALL_RESIDENT},
	.state_bytes = state_bytes,
	.init = init,
	.access = access_all,
	.insert = insert,
	.reserve = ignore,
	.land = ignore,
	.victim = victim,
	.forget = ignore,
};
