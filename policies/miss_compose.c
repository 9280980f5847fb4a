/* compose: substitute a gate mass of MASS a row in the mean, made up of few heavy picks, many light ones, or picks at random
 *
 * An experiment, not a policy for use: rules with the same MASS differ in what the mass is made of and in nothing else. Each layer
 * keeps its debt, the mass that it should have substituted so far less what it has, and a pick that misses is substituted when its
 * weight passes a bar that the debt moves:
 *   heavy    w >= 1 - GAIN * debt: the bar falls from 1 as the debt grows
 *   light    w <= GAIN * debt: the bar rises from 0
 *   random   with probability GAIN * debt
 * The debt is bounded by 1 / GAIN, so after T rows the mean mass is off by at most 1 / (GAIN * T) whatever the weights, as long as
 * what misses is enough; where it is not, the debt stays at its bound and the mean mass falls short of MASS. First choices are
 * not spared. The rest is fetched.
 */
#include "policies/policy.h"

#define GAIN 0.2

enum order { HEAVY, LIGHT, RANDOM };

struct layer {
	double debt;
	uint64_t rng;
	uint64_t next; /* token after the last that was decided about; 0: none yet */
};

static size_t state_bytes(uint32_t n_layer, const double *arg)
{
	(void)arg;
	return n_layer * sizeof(struct layer);
}

static void init(void *state, uint32_t n_layer, const double *arg, uint64_t seed)
{
	struct layer *layer = state;

	(void)arg;
	for (uint32_t l = 0; l < n_layer; l++)
		layer[l].rng = seed + l * UINT64_C(0x9e3779b97f4a7c15);
}

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): [0, 1) */
static double uniform(uint64_t *rng)
{
	uint64_t z = *rng += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static void decide(void *state, const double *arg, const struct gm_miss_row *row, uint8_t *action)
{
	struct layer *layer = (struct layer *)state + row->layer;
	enum order order = (enum order)arg[0];
	/* rows without a miss are not asked about, but count */
	uint64_t n_row = layer->next && row->token >= layer->next ? row->token + 1 - layer->next : 1;
	double moved, mass = 0;

	layer->next = row->token + 1;
	layer->debt += arg[1] * (double)n_row;
	if (layer->debt > 1 / GAIN)
		layer->debt = 1 / GAIN;
	moved = GAIN * layer->debt;
	for (uint32_t i = 0; i < row->n_missed; i++) {
		uint32_t rank = row->missed[i];
		double w = row->gate[rank];
		bool substitute;

		substitute = order == HEAVY ? w >= 1 - moved : order == LIGHT ? w <= moved : uniform(&layer->rng) < moved;
		action[rank] = substitute ? GM_SUBSTITUTE : GM_FETCH;
		if (substitute)
			mass += w;
	}
	layer->debt -= mass;
}

static const char *const orders[] = {"heavy", "light", "random", NULL};

extern const struct gm_miss_ops gm_miss_compose;
const struct gm_miss_ops gm_miss_compose = {
	.info = {.name = "compose",
		 .help = "substitute MASS a row in the mean by few heavy or many light picks (an experiment)",
		 .flags = GM_NEEDS_RANKING | GM_NEEDS_GATES,
		 .n_param = 2,
		 .param = {{.name = "ORDER", .help = "which picks", .words = orders},
			   {.name = "MASS", .help = "gate weight a row", .min = 0, .max = 1, .above_min = true}}},
	.state_bytes = state_bytes,
	.init = init,
	.decide = decide,
};
