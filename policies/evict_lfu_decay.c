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

#define MAX_EXPONENT 512.0

/* Behind the minima, whose values are the scaled counts (doubles >= 0 are ordered as their bits are) and whose ties are ticks of the last
 * access. */
struct own {
	uint64_t tick;
	uint64_t token;   /* for which `unit` holds */
	double unit;      /* 2^((token - origin) / half_life): what an access adds now */
	double origin;    /* in tokens */
	double half_life; /* in tokens */
};

static struct own *own_of(struct gm_minima *minima)
{
	return (struct own *)(void *)((char *)minima + minima->end);
}

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return gm_minima_bytes(dims->n_item) + sizeof(struct own);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	(void)again;
	gm_minima_init(state, dims->n_item);
	*own_of(state) = (struct own){.unit = 1, .half_life = arg[0]};
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
	uint64_t *value = gm_minima_values(minima);
	double k = floor(exponent);

	own->origin += k * own->half_life;
	for (uint32_t i = 0; i < minima->n_item; i++) {
		value[i] = to_bits(ldexp(to_double(value[i]), k < 4096 ? -(int)k : -4096));
		if (gm_minima_keys(minima)[i] != GM_MINIMA_ABSENT)
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
	struct own *own = own_of(state);
	const uint64_t *value = gm_minima_values(state);
	uint64_t tick = own->tick;

	gm_minima_enter_pending(state);
	if (requests->token != own->token)
		set_token(state, own, requests->token);
	double unit = own->unit;

	for (uint32_t i = 0; i < requests->n; i++) {
		uint32_t item = requests->first_item + requests->expert[i];

		gm_minima_grow(state, item, to_bits(to_double(value[item]) + unit), ++tick);
	}
	own->tick = tick;
}

static void insert(void *state, uint32_t item, bool preload)
{
	if (preload)
		gm_minima_ties(state)[item] = ++own_of(state)->tick;
	gm_minima_land(state, item);
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
	.victim = gm_minima_victim,
	.forget = gm_minima_forget,
};
