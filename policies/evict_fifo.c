/* fifo: the resident that took its slot first leaves first. A background copy takes its slot when it is reserved. */
#include "policies/list.h"
#include "policies/policy.h"

struct state {
	uint32_t n_item;
	struct gm_node list[];
};

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return sizeof(struct state) + gm_list_bytes(dims->n_item);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	struct state *s = state;

	(void)arg, (void)again;
	s->n_item = dims->n_item;
	gm_list_init(s->list, dims->n_item);
}

static void access_all(void *state, const struct gm_requests *requests)
{
	(void)state, (void)requests;
}

static void reserve(void *state, uint32_t item)
{
	struct state *s = state;

	gm_list_add_after(s->list, s->list[s->n_item].older, item);
}

static void insert(void *state, uint32_t item, bool preload)
{
	(void)preload;
	reserve(state, item);
}

static void land(void *state, uint32_t item)
{
	(void)state, (void)item;
}

static uint32_t victim(void *state, const struct gm_candidates *candidates, uint32_t incoming)
{
	struct state *s = state;
	uint32_t item = s->list[s->n_item].newer;

	(void)incoming;
	while (item != s->n_item && !gm_is_candidate(candidates, item))
		item = s->list[item].newer;
	return item == s->n_item ? GM_NO_ITEM : item;
}

static void forget(void *state, uint32_t item)
{
	struct state *s = state;

	gm_list_remove(s->list, item);
}

extern const struct gm_evict_ops gm_evict_fifo;
const struct gm_evict_ops gm_evict_fifo = {
	.info = {.name = "fifo", .help = "first in, first out: smallest insertion"},
	.state_bytes = state_bytes,
	.init = init,
	.access = access_all,
	.insert = insert,
	.reserve = reserve,
	.land = land,
	.victim = victim,
	.forget = forget,
};
