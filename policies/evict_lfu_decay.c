/* lfu-decay:HALFLIFE: lfu whose counts fade by half every HALFLIFE tokens: count <- count * 2^(-delta/h) + 1 at each access, compared after
 * decay to the current token.
 *
 * Multiplied by 2^(t/h) with t the token of its last access, a count no longer changes as time goes by. So the order of these keys is the
 * order after decay, at every token, and only accesses change it. The scale's origin moves on before 2^(t/h) overflows: all keys are then
 * faded to the new one, to 0 in the end, long after they stopped mattering.
 *
 * Keys are rounded, so two counts that differ by less than that could come out in another order than by the formula above as it stands. It is the
 * rule (docs/semantics.md), so it decides among those within NEAR of the least, and among all that faded below TINY.
 */
#include "policies/minima.h"

#include <math.h>
#include <string.h>

#define MAX_EXPONENT 256.0
#define BIAS 512.0  /* scaled counts are multiplied by 2^-BIAS: as bits, they are then below GM_MINIMA_ABSENT */
#define NEAR 1e-9   /* relative; far more than any rounding */
#define TINY 1e-300 /* doubles lose digits below 2e-308 */
#define N_FADE 256u
#define N_STEP \
	64u /* of so many tokens, the scale of all but one is the last one's product: rounding that is far below NEAR */
#define TICK_BITS 27 /* a token requests each item of a pool once at most: 2^20 (GM_MAX_LAYER_EXPERT) */

/* Behind the minima, whose keys are the scaled counts as bits: doubles >= 0 are ordered as their bits are. */
struct own {
	uint64_t tick;       /* of the last access */
	uint64_t token;      /* for which `unit` holds */
	double unit;         /* 2^((token - origin) / half_life - BIAS) */
	double step;         /* 2^(1 / half_life) */
	double origin;       /* in tokens */
	double half_life;    /* in tokens */
	double fade[N_FADE]; /* 2^(-delta / half_life) */
	struct count {
		double value;  /* at the last access */
		uint64_t tick; /* of it: its token above TICK_BITS, and below them, which access of that token it was */
	} count[];             /* [n_item] */
};

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return gm_minima_bytes(dims->n_item) + sizeof(struct own) + dims->n_item * sizeof(struct count);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	struct own *own;

	gm_minima_init(state, dims->n_item, again);
	own = gm_minima_own(state);
	if (again)
		memset(own, 0, sizeof(*own) + dims->n_item * sizeof(struct count));
	own->unit = exp2(-BIAS);
	own->step = exp2(1 / arg[0]);
	own->half_life = arg[0];
	for (uint32_t delta = 0; delta < N_FADE; delta++)
		own->fade[delta] = exp2(-(double)delta / arg[0]);
}

static double faded(const struct own *own, uint32_t item, uint64_t token)
{
	const struct count *count = &own->count[item];
	uint64_t delta = token - (count->tick >> TICK_BITS);

	return count->value * (delta < N_FADE ? own->fade[delta] : exp2(-(double)delta / own->half_life));
}

static double to_double(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint64_t to_bits(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* To this token: a whole number, so that no rounding of the origin comes between keys of before and after. */
static void move_origin(struct gm_minima *minima, struct own *own, uint64_t token)
{
	double fading = exp2((own->origin - (double)token) / own->half_life);

	own->origin = (double)token;
	for (uint32_t i = 0; i < minima->n_item; i++) {
		uint64_t absent = minima->key[i] & GM_MINIMA_ABSENT;

		minima->key[i] = absent | to_bits(to_double(gm_minima_key(minima, i)) * fading);
	}
	gm_minima_changed(minima);
}

static void set_token(struct gm_minima *minima, struct own *own, uint64_t token)
{
	double exponent = ((double)token - own->origin) / own->half_life;

	if (exponent > MAX_EXPONENT) {
		move_origin(minima, own, token);
		exponent = 0;
	}
	if (token == own->token + 1 && exponent > 0 && token % N_STEP)
		own->unit *= own->step;
	else
		own->unit = exp2(exponent - BIAS);
	own->token = token;
	if (own->tick >> TICK_BITS < token)
		own->tick = token << TICK_BITS;
}

static void expect(void *state, const struct gm_requests *requests)
{
	const struct own *own = gm_minima_own(state);

	gm_minima_expect(state, requests);
	for (uint32_t i = 0; i < requests->n; i++)
		gm_prefetch(&own->count[requests->first_item + requests->expert[i]]);
}

static void access_all(void *state, const struct gm_requests *requests)
{
	struct gm_minima *minima = state;
	struct own *own = gm_minima_own(minima);
	const uint16_t *expert = requests->expert;
	uint32_t n = requests->n, first_item = requests->first_item;
	uint64_t token = requests->token, tick;
	double unit;

	gm_minima_enter_pending(minima);
	if (token != own->token)
		set_token(minima, own, token);
	tick = own->tick;
	unit = own->unit;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t item = first_item + expert[i];
		double value = faded(own, item, token) + 1.0;
		uint64_t absent = minima->key[item] & GM_MINIMA_ABSENT;

		own->count[item] = (struct count){value, ++tick};
		gm_minima_set(minima, item, absent | to_bits(value * unit));
	}
	own->tick = tick;
}

static void insert(void *state, uint32_t item, bool preload)
{
	struct own *own = gm_minima_own(state);

	if (preload)
		own->count[item].tick = ++own->tick;
	gm_minima_land(state, item);
}

static bool comes_before(struct gm_minima *minima, uint64_t token, uint32_t a, uint32_t b)
{
	const struct own *own = gm_minima_own(minima);
	double x = faded(own, a, token), y = faded(own, b, token);

	return x < y || (!(x > y) && own->count[a].tick < own->count[b].tick);
}

static uint64_t limit(uint64_t key)
{
	double value = to_double(key);

	return to_bits((value > TINY ? value : TINY) * (1 + NEAR));
}

static uint32_t victim(void *state, const struct gm_candidates *candidates, uint32_t incoming)
{
	static const struct gm_minima_near near = {.limit = limit, .before = comes_before};

	(void)incoming;
	return gm_minima_victim_near(state, candidates, &near);
}

extern const struct gm_evict_ops gm_evict_lfu_decay;
const struct gm_evict_ops gm_evict_lfu_decay = {
	.info = {.name = "lfu-decay",
		 .help = "lfu whose counts fade by half every HALFLIFE tokens",
		 .flags = GM_SPARES_REQUESTS,
		 .n_param = 1,
		 .param = {{.name = "HALFLIFE", .help = "in tokens", .min = 0, .max = 1e12, .above_min = true}}},
	.state_bytes = state_bytes,
	.init = init,
	.expect = expect,
	.access = access_all,
	.insert = insert,
	.reserve = gm_minima_reserve,
	.land = gm_minima_land,
	.victim = victim,
	.forget = gm_minima_forget,
};
