/* lfu: the resident with the fewest accesses since the start of the trace leaves first; counts are kept for life, also while an
 * item is not resident. Ties: smallest last access, then id.
 *
 * lfu-decay:h: the same, but the count fades by half every h tokens: count <- count * 2^(-delta/h) + 1 at each access, compared after
 * decay to the current token.
 */
#include "policies/policy.h"

#include <math.h>

struct lfu_use {
	uint64_t count;
	uint64_t last; /* tick of the last access, 0: never */
};

struct lfu_state {
	uint64_t tick;
	struct lfu_use use[];
};

static size_t lfu_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return sizeof(struct lfu_state) + dims->n_item * sizeof(struct lfu_use);
}

static void lfu_init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	struct lfu_state *s = state;

	(void)arg, (void)again;
	s->tick = 0;
	for (uint32_t i = 0; i < dims->n_item; i++)
		s->use[i] = (struct lfu_use){0, 0};
}

static void lfu_access(void *state, const struct gm_requests *requests)
{
	struct lfu_state *s = state;

	for (uint32_t i = 0; i < requests->n; i++) {
		struct lfu_use *use = &s->use[requests->first_item + requests->expert[i]];

		use->count++;
		use->last = ++s->tick;
	}
}

static void lfu_insert(void *state, uint32_t item, bool preload)
{
	struct lfu_state *s = state;

	if (preload)
		s->use[item].last = ++s->tick;
}

static void nothing(void *state, uint32_t item)
{
	(void)state, (void)item;
}

static uint32_t lfu_victim(void *state, const struct gm_candidates *c, uint32_t incoming)
{
	const struct lfu_state *s = state;
	uint32_t best = GM_NO_ITEM;
	struct lfu_use least = {UINT64_MAX, UINT64_MAX};

	(void)incoming;
	for (uint32_t i = 0; i < c->n_resident; i++) {
		uint32_t item = c->resident[i];
		struct lfu_use use = s->use[item];

		if (use.count > least.count || (use.count == least.count && use.last > least.last))
			continue; /* ticks are unique: no tie is left for the id */
		if (!gm_is_candidate(c, item))
			continue;
		best = item;
		least = use;
	}
	return best;
}

extern const struct gm_evict_ops gm_evict_lfu;
const struct gm_evict_ops gm_evict_lfu = {
	.info = {.name = "lfu", .help = "least frequently used: smallest count since the start, kept for life"},
	.state_bytes = lfu_bytes,
	.init = lfu_init,
	.access = lfu_access,
	.insert = lfu_insert,
	.reserve = nothing,
	.land = nothing,
	.victim = lfu_victim,
	.forget = nothing,
};

struct decay_use {
	double count;
	uint64_t token; /* of the last access */
	uint64_t last;  /* tick of the last access */
};

struct decay_state {
	uint64_t tick;
	double half_life; /* in tokens */
	struct decay_use use[];
};

static size_t decay_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return sizeof(struct decay_state) + dims->n_item * sizeof(struct decay_use);
}

static void decay_init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	struct decay_state *s = state;

	(void)again;
	s->tick = 0;
	s->half_life = arg[0];
	for (uint32_t i = 0; i < dims->n_item; i++)
		s->use[i] = (struct decay_use){0, 0, 0};
}

static double decayed(const struct decay_state *s, const struct decay_use *use, uint64_t token)
{
	return use->count * exp2(-(double)(token - use->token) / s->half_life);
}

static void decay_access(void *state, const struct gm_requests *requests)
{
	struct decay_state *s = state;

	for (uint32_t i = 0; i < requests->n; i++) {
		struct decay_use *use = &s->use[requests->first_item + requests->expert[i]];

		use->count = decayed(s, use, requests->token) + 1.0;
		use->token = requests->token;
		use->last = ++s->tick;
	}
}

static void decay_insert(void *state, uint32_t item, bool preload)
{
	struct decay_state *s = state;

	if (preload)
		s->use[item].last = ++s->tick;
}

static uint32_t decay_victim(void *state, const struct gm_candidates *c, uint32_t incoming)
{
	const struct decay_state *s = state;
	uint32_t best = GM_NO_ITEM;
	uint64_t least_last = 0;
	double least = 0;

	(void)incoming;
	for (uint32_t i = 0; i < c->n_resident; i++) {
		uint32_t item = c->resident[i];

		if (!gm_is_candidate(c, item))
			continue;
		double count = decayed(s, &s->use[item], c->token);
		if (best == GM_NO_ITEM || count < least || (!(count > least) && s->use[item].last < least_last)) {
			best = item;
			least = count;
			least_last = s->use[item].last;
		}
	}
	return best;
}

extern const struct gm_evict_ops gm_evict_lfu_decay;
const struct gm_evict_ops gm_evict_lfu_decay = {
	.info = {.name = "lfu-decay",
		 .help = "lfu whose counts fade by half every HALFLIFE tokens",
		 .n_param = 1,
		 .param = {{.name = "HALFLIFE", .help = "in tokens", .min = 0, .max = 1e12, .above_min = true}}},
	.state_bytes = decay_bytes,
	.init = decay_init,
	.access = decay_access,
	.insert = decay_insert,
	.reserve = nothing,
	.land = nothing,
	.victim = decay_victim,
	.forget = nothing,
};
