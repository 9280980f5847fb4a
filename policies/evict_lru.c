/* lru: the resident whose last access is the oldest leaves first.
 *
 * The list holds residents and reserved items by last access. Every access has a tick of its own, so the order is total. An item that
 * enters was accessed in the same event (a fetch) or one shortly before, so its place is found a few steps from the newest end.
 */
#include "policies/list.h"
#include "policies/policy.h"

struct state {
	uint64_t tick;
	uint32_t n_item;
	uint32_t last_offset; /* of uint64_t last[n_item], in bytes from the state */
	struct gm_node list[];
};

static uint64_t *last_access(struct state *s)
{
	return (uint64_t *)(void *)((char *)s + s->last_offset);
}

static size_t list_end(uint32_t n_item)
{
	return sizeof(struct state) + (gm_list_bytes(n_item) + 7) / 8 * 8;
}

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return list_end(dims->n_item) + dims->n_item * sizeof(uint64_t);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	struct state *s = state;

	(void)arg, (void)again;
	s->tick = 0;
	s->n_item = dims->n_item;
	s->last_offset = (uint32_t)list_end(dims->n_item);
	gm_list_init(s->list, dims->n_item);
	for (uint32_t i = 0; i < dims->n_item; i++)
		last_access(s)[i] = 0;
}

static void access_all(void *state, const struct gm_requests *requests)
{
	struct state *s = state;
	uint64_t *last = last_access(s);

	for (uint32_t i = 0; i < requests->n; i++) {
		uint32_t item = requests->first_item + requests->expert[i];

		last[item] = ++s->tick;
		if (gm_list_has(s->list, item)) {
			gm_list_remove(s->list, item);
			gm_list_add_after(s->list, s->list[s->n_item].older, item);
		}
	}
}

static void enter(struct state *s, uint32_t item)
{
	const uint64_t *last = last_access(s);
	uint32_t older = s->list[s->n_item].older;

	while (older != s->n_item && last[older] > last[item])
		older = s->list[older].older;
	gm_list_add_after(s->list, older, item);
}

static void insert(void *state, uint32_t item, bool preload)
{
	struct state *s = state;

	if (preload)
		last_access(s)[item] = ++s->tick;
	enter(s, item);
}

static void reserve(void *state, uint32_t item)
{
	enter(state, item);
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

extern const struct gm_evict_ops gm_evict_lru;
const struct gm_evict_ops gm_evict_lru = {
	.info = {.name = "lru", .help = "least recently used: smallest last access"},
	.state_bytes = state_bytes,
	.init = init,
	.access = access_all,
	.insert = insert,
	.reserve = reserve,
	.land = land,
	.victim = victim,
	.forget = forget,
};
