/* lfu-decay:HALFLIFE: lfu whose counts fade by half every HALFLIFE tokens: count <- count * 2^(-delta/h) + 1 at each access, compared after
 * decay to the current token.
 *
 * Multiplied by 2^(t/h), a count no longer changes as time goes by, and an access at token t adds 2^(t/h) to it. So the order of the
 * scaled counts is the order after decay, at every token, and only accesses change it. The scale's origin moves on before 2^(t/h) overflows:
 * all scaled counts are then divided by a power of two, which is exact until they fade to 0, long after they stopped mattering.
 */
#include "policies/minima.h"

#include <math.h>
#include <string.h>

struct state {
	uint64_t tick;
	uint64_t token;   /* for which `unit` holds */
	double unit;      /* 2^((token - origin) / half_life): what an access adds now */
	double origin;    /* in tokens */
	double half_life; /* in tokens */
	uint32_t n_item;
	uint32_t
		n_pending; /* entered since the last access: they count from the next one on, pinned as they are until then */
	size_t pending;    /* offset of uint32_t [n_item] */
	size_t minima;     /* offset of struct gm_minima: residents by scaled count, ties by last access (kept for all) */
	double scaled[];   /* [n_item] count * 2^((token of the last access - origin) / half_life) */
};

#define MAX_EXPONENT 512.0

static struct gm_minima *minima_of(struct state *s)
{
	return (struct gm_minima *)(void *)((char *)s + s->minima);
}

static uint32_t *pending_of(struct state *s)
{
	return (uint32_t *)(void *)((char *)s + s->pending);
}

static size_t pending_offset(uint32_t n_item)
{
	return sizeof(struct state) + n_item * sizeof(double);
}

static size_t minima_offset(uint32_t n_item)
{
	return (pending_offset(n_item) + n_item * sizeof(uint32_t) + 63) / 64 * 64;
}

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return minima_offset(dims->n_item) + gm_minima_bytes(dims->n_item);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	struct state *s = state;

	(void)again;
	memset(s, 0, sizeof(*s) + dims->n_item * sizeof(double));
	s->unit = 1;
	s->half_life = arg[0];
	s->n_item = dims->n_item;
	s->n_pending = 0;
	s->pending = pending_offset(dims->n_item);
	s->minima = minima_offset(dims->n_item);
	gm_minima_init(minima_of(s), dims->n_item);
}

/* Doubles >= 0 are ordered as their bits are. */
static uint64_t key_of(double scaled)
{
	uint64_t bits;

	memcpy(&bits, &scaled, sizeof(bits));
	return bits;
}

static void move_origin(struct state *s, double exponent)
{
	struct gm_minima *minima = minima_of(s);
	double k = floor(exponent);

	s->origin += k * s->half_life;
	for (uint32_t i = 0; i < s->n_item; i++) {
		s->scaled[i] = ldexp(s->scaled[i], k < 4096 ? -(int)k : -4096);
		if (gm_minima_keys(minima)[i] != GM_MINIMA_ABSENT)
			gm_minima_enter(minima, i, key_of(s->scaled[i]), gm_minima_ties(minima)[i]);
	}
}

static void set_token(struct state *s, uint64_t token)
{
	double exponent = ((double)token - s->origin) / s->half_life;

	if (exponent > MAX_EXPONENT) {
		move_origin(s, exponent);
		exponent = ((double)token - s->origin) / s->half_life;
	}
	s->token = token;
	s->unit = exp2(exponent);
}

static void enter_pending(struct state *s)
{
	const uint32_t *pending = pending_of(s);

	for (uint32_t i = 0; i < s->n_pending; i++) {
		uint32_t item = pending[i];

		gm_minima_enter(minima_of(s), item, key_of(s->scaled[item]), gm_minima_ties(minima_of(s))[item]);
	}
	s->n_pending = 0;
}

static void access_all(void *state, const struct gm_requests *requests)
{
	struct state *s = state;
	struct gm_minima *minima = minima_of(s);
	const uint64_t *key = gm_minima_keys(minima);

	enter_pending(s);
	if (requests->token != s->token)
		set_token(s, requests->token);
	double unit = s->unit;
	uint64_t tick = s->tick;

	for (uint32_t i = 0; i < requests->n; i++) {
		uint32_t item = requests->first_item + requests->expert[i];
		double scaled = s->scaled[item] += unit;

		if (key[item] != GM_MINIMA_ABSENT)
			gm_minima_grew(minima, item, key_of(scaled), ++tick);
		else
			gm_minima_ties(minima)[item] = ++tick;
	}
	s->tick = tick;
}

static void land(void *state, uint32_t item)
{
	struct state *s = state;

	pending_of(s)[s->n_pending++] = item;
}

static void insert(void *state, uint32_t item, bool preload)
{
	struct state *s = state;

	if (preload)
		gm_minima_ties(minima_of(s))[item] = ++s->tick;
	land(state, item);
}

static void reserve(void *state, uint32_t item)
{
	(void)state, (void)item;
}

static uint32_t victim(void *state, const struct gm_candidates *candidates, uint32_t incoming)
{
	(void)incoming;
	return gm_minima_least(minima_of(state), candidates);
}

static void forget(void *state, uint32_t item)
{
	gm_minima_leave(minima_of(state), item);
}

extern const struct gm_evict_ops gm_evict_lfu_decay;
const struct gm_evict_ops gm_evict_lfu_decay = {
	.info = {.name = "lfu-decay",
		 .help = "lfu whose counts fade by half every HALFLIFE tokens",
		 .n_param = 1,
		 .param = {{.name = "HALFLIFE", .help = "in tokens", .min = 0, .max = 1e12, .above_min = true}}},
	.state_bytes = state_bytes,
	.init = init,
	.access = access_all,
	.insert = insert,
	.reserve = reserve,
	.land = land,
	.victim = victim,
	.forget = forget,
};
