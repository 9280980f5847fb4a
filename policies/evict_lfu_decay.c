/* lfu-decay:HALFLIFE: lfu whose counts fade by half every HALFLIFE tokens: count <- count * 2^(-delta/h) + 1 at each access, compared after
 * decay to the current token.
 *
 * Multiplied by 2^(t/h), a count no longer changes as time goes by, and an access at token t adds 2^(t/h) to it. So the order of the
 * scaled counts is the order after decay, at every token, and only accesses change it. The scale's origin moves on before 2^(t/h) overflows:
 * all scaled counts are then divided by a power of two, which is exact until they fade to 0, long after they stopped mattering.
 *
 * Both forms are rounded, so two counts that differ by less than that could come out in another order than by the formula above as it stands.
 * It is the rule (docs/semantics.md), so it is kept beside the scaled counts, and decides among those within NEAR of the least.
 */
#include "policies/minima.h"

#include <math.h>
#include <string.h>

#define MAX_EXPONENT 512.0
#define NEAR 1e-9 /* relative; far more than either form's rounding */
#define N_FADE 256u

/* Behind the minima, whose values are the scaled counts (doubles >= 0 are ordered as their bits are) and whose ties are ticks of the last
 * access. */
struct own {
	uint64_t tick;
	uint64_t token;      /* for which `unit` holds */
	double unit;         /* 2^((token - origin) / half_life): what an access adds now */
	double origin;       /* in tokens */
	double half_life;    /* in tokens */
	double fade[N_FADE]; /* 2^(-delta / half_life) */
	struct literal {
		double count;
		uint64_t token; /* of the last access */
	} literal[];            /* [n_item] the counts as the formula has them */
};

static struct own *own_of(struct gm_minima *minima)
{
	return (struct own *)(void *)((char *)minima + minima->end);
}

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return gm_minima_bytes(dims->n_item) + sizeof(struct own) + dims->n_item * sizeof(struct literal);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	(void)again;
	gm_minima_init(state, dims->n_item);
	struct own *own = own_of(state);

	memset(own, 0, sizeof(*own) + dims->n_item * sizeof(struct literal));
	own->unit = 1;
	own->half_life = arg[0];
	for (uint32_t delta = 0; delta < N_FADE; delta++)
		own->fade[delta] = exp2(-(double)delta / arg[0]);
}

static double faded(const struct own *own, uint32_t item, uint64_t token)
{
	const struct literal *literal = &own->literal[item];
	uint64_t delta = token - literal->token;

	return literal->count * (delta < N_FADE ? own->fade[delta] : exp2(-(double)delta / own->half_life));
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

static void move_origin(struct gm_minima *minima, struct own *own, double exponent)
{
	double k = floor(exponent);

	own->origin += k * own->half_life;
	for (uint32_t i = 0; i < minima->n_item; i++) {
		double value = to_double(gm_minima_value(minima, i));

		gm_minima_set_value(minima, i, to_bits(ldexp(value, k < 4096 ? -(int)k : -4096)));
		if (gm_minima_has(minima, i))
			gm_minima_enter(minima, i);
	}
}

static void set_token(struct gm_minima *minima, struct own *own, uint64_t token)
{
	double exponent = ((double)token - own->origin) / own->half_life;

	if (exponent > MAX_EXPONENT) {
		move_origin(minima, own, exponent);
		exponent = ((double)token - own->origin) / own->half_life;
	}
	own->token = token;
	own->unit = exp2(exponent);
}

static void access_all(void *state, const struct gm_requests *requests)
{
	const struct gm_minima_arrays arrays = gm_minima_arrays(state);
	struct own *own = own_of(state);
	uint64_t tick = own->tick;

	gm_minima_enter_pending(state);
	if (requests->token != own->token)
		set_token(state, own, requests->token);
	double unit = own->unit;

	for (uint32_t i = 0; i < requests->n; i++) {
		uint32_t item = requests->first_item + requests->expert[i];
		uint64_t absent = arrays.key[item] & GM_MINIMA_ABSENT;

		gm_minima_grow(&arrays, item, to_bits(to_double(arrays.key[item] ^ absent) + unit) | absent, ++tick);
		own->literal[item] = (struct literal){faded(own, item, requests->token) + 1.0, requests->token};
	}
	own->tick = tick;
}

static void insert(void *state, uint32_t item, bool preload)
{
	if (preload)
		gm_minima_ties(state)[item] = ++own_of(state)->tick;
	gm_minima_land(state, item);
}

static bool comes_before(struct gm_minima *minima, uint64_t token, uint32_t a, uint32_t b)
{
	const struct own *own = own_of(minima);
	double x = faded(own, a, token), y = faded(own, b, token);

	return x < y || (!(x > y) && gm_minima_ties(minima)[a] < gm_minima_ties(minima)[b]);
}

static uint32_t victim(void *state, const struct gm_candidates *candidates, uint32_t incoming)
{
	uint32_t least = gm_minima_victim(state, candidates, incoming);

	if (least == GM_NO_ITEM)
		return least;
	double limit = to_double(gm_minima_value(state, least)) * (1 + NEAR);

	return gm_minima_first(state, candidates, to_bits(limit), comes_before);
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
	.reserve = gm_minima_reserve,
	.land = gm_minima_land,
	.victim = victim,
	.forget = gm_minima_forget,
};
