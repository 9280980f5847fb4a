/* lru: the resident whose last access is the oldest leaves first.
 *
 * The list holds residents and reserved items in order of last access. A requested item that is not among them may enter in this very
 * event, at its own place in the order of requests: until then it remembers which request came before it.
 */
#include "policies/list.h"
#include "policies/policy.h"

struct state {
	uint32_t n_item;
	uint32_t base; /* newest item of the list that the last access did not move: what came before its first request */
	uint32_t entered;      /* offset of uint8_t [n_item]: the item is in the list */
	struct gm_node list[]; /* of an item that is not: older is the request before it, the sentinel for the base */
};

static uint8_t *entered_of(struct state *s)
{
	return (uint8_t *)s + s->entered;
}

static size_t entered_offset(uint32_t n_item)
{
	return sizeof(struct state) + gm_list_bytes(n_item);
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
	s->base = dims->n_item;
	s->entered = (uint32_t)entered_offset(dims->n_item);
	gm_list_init(s->list, dims->n_item);
	for (uint32_t i = 0; i < dims->n_item; i++)
		entered_of(s)[i] = 0;
}

static void expect(void *state, const struct gm_requests *requests)
{
	const struct state *s = state;

	for (uint32_t i = 0; i < requests->n; i++)
		gm_prefetch(&s->list[requests->first_item + requests->expert[i]]);
}

static void access_all(void *state, const struct gm_requests *requests)
{
	struct state *s = state;
	const uint16_t *expert = requests->expert;
	const uint8_t *entered = entered_of(s);
	struct gm_node *list = s->list;
	uint32_t end = s->n_item, first_item = requests->first_item, n = requests->n;
	uint32_t newest = list[end].older, base = newest, before = end;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t item = first_item + expert[i];

		if (entered[item]) {
			struct gm_node node = list[item];

			base = item == base ? node.older : base;
			newest = item == newest ? node.older : newest;
			list[node.older].newer = node.newer;
			list[node.newer].older = node.older;
			list[item] = (struct gm_node){newest, end};
			list[newest].newer = item;
			newest = item;
		} else {
			list[item].older = before;
		}
		before = item;
	}
	list[end].older = newest;
	s->base = base;
}

/* Enters a requested item behind the last request before it that is in the list. */
static void enter(void *state, uint32_t item)
{
	struct state *s = state;
	const uint8_t *entered = entered_of(s);
	uint32_t before = s->list[item].older;

	while (before != s->n_item && !entered[before])
		before = s->list[before].older;
	gm_list_add_after(s->list, before == s->n_item ? s->base : before, item);
	entered_of(s)[item] = 1;
}

static void insert(void *state, uint32_t item, bool preload)
{
	struct state *s = state;

	if (preload) {
		s->list[item].older = s->n_item;
		s->base = s->list[s->n_item].older;
	}
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

	if (s->base == item)
		s->base = s->list[item].older;
	gm_list_remove(s->list, item);
	entered_of(s)[item] = 0;
}

extern const struct gm_evict_ops gm_evict_lru;
const struct gm_evict_ops gm_evict_lru = {
	.info = {.name = "lru", .help = "least recently used: smallest last access"},
	.state_bytes = state_bytes,
	.init = init,
	.expect = expect,
	.access = access_all,
	.insert = insert,
	.reserve = enter,
	.land = land,
	.victim = victim,
	.forget = forget,
};
