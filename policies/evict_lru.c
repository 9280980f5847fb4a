/* lru: the resident whose last access is the oldest leaves first.
 *
 * The list holds residents and reserved items in order of last access. Requests that are not among them are linked too, in their place,
 * since they may enter in this very event; those that did not are taken out before the next.
 */
#include "policies/list.h"
#include "policies/policy.h"

struct state {
	uint32_t n_item;
	uint32_t n_waiting; /* items linked by the last access that had not entered then */
	uint32_t waiting;   /* offset of uint32_t [n_item]: these items */
	uint32_t entered;   /* offset of uint8_t [n_item] */
	struct gm_node list[];
};

static uint32_t *waiting_of(struct state *s)
{
	return (uint32_t *)(void *)((char *)s + s->waiting);
}

static uint8_t *entered_of(struct state *s)
{
	return (uint8_t *)s + s->entered;
}

static size_t waiting_offset(uint32_t n_item)
{
	return sizeof(struct state) + gm_list_bytes(n_item);
}

static size_t entered_offset(uint32_t n_item)
{
	return waiting_offset(n_item) + n_item * sizeof(uint32_t);
}

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return entered_offset(dims->n_item) + dims->n_item;
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	struct state *s = state;

	(void)arg, (void)again;
	s->n_item = dims->n_item;
	s->n_waiting = 0;
	s->waiting = (uint32_t)waiting_offset(dims->n_item);
	s->entered = (uint32_t)entered_offset(dims->n_item);
	gm_list_init(s->list, dims->n_item);
	for (uint32_t i = 0; i < dims->n_item; i++)
		entered_of(s)[i] = 0;
}

static void unlink_waiting(struct state *s)
{
	const uint32_t *waiting = waiting_of(s);
	const uint8_t *entered = entered_of(s);

	for (uint32_t i = 0; i < s->n_waiting; i++)
		if (!entered[waiting[i]])
			gm_list_remove(s->list, waiting[i]);
	s->n_waiting = 0;
}

static void access_all(void *state, const struct gm_requests *requests)
{
	struct state *s = state;
	const uint16_t *expert = requests->expert;
	const uint8_t *entered = entered_of(s);
	uint32_t *waiting = waiting_of(s);
	struct gm_node *list = s->list;
	uint32_t end = s->n_item, first_item = requests->first_item, n = requests->n, n_waiting = 0;

	unlink_waiting(s);
	uint32_t newest = list[end].older;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t item = first_item + expert[i];

		waiting[n_waiting] = item;
		n_waiting += !entered[item];
		if (item == newest)
			continue;
		if (entered[item]) {
			struct gm_node node = list[item];

			list[node.older].newer = node.newer;
			list[node.newer].older = node.older;
		}
		list[item] = (struct gm_node){newest, end};
		list[newest].newer = item;
		newest = item;
	}
	list[end].older = newest;
	s->n_waiting = n_waiting;
}

static void enter(void *state, uint32_t item)
{
	entered_of(state)[item] = 1;
}

static void insert(void *state, uint32_t item, bool preload)
{
	struct state *s = state;

	if (preload)
		gm_list_add_after(s->list, s->list[s->n_item].older, item);
	enter(s, item);
}

static void land(void *state, uint32_t item)
{
	(void)state, (void)item;
}

static uint32_t victim(void *state, const struct gm_candidates *candidates, uint32_t incoming)
{
	const struct state *s = state;
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
	entered_of(s)[item] = 0;
}

extern const struct gm_evict_ops gm_evict_lru;
const struct gm_evict_ops gm_evict_lru = {
	.info = {.name = "lru", .help = "least recently used: smallest last access"},
	.state_bytes = state_bytes,
	.init = init,
	.access = access_all,
	.insert = insert,
	.reserve = enter,
	.land = land,
	.victim = victim,
	.forget = forget,
};
