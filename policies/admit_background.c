/* background:BETA (R12): the gate weights of a substituted expert add up; at BETA it is copied in the background. */
#include "policies/policy.h"

static size_t state_bytes(uint32_t n_item)
{
	return n_item * sizeof(double);
}

static uint64_t substituted(void *state, const double *arg, uint32_t first_item, const uint16_t *expert, const double *gate,
			    uint64_t picks)
{
	double *acc = state, beta = arg[0];
	uint64_t ask = 0;

	for (; picks; picks &= picks - 1) {
		uint32_t r = (uint32_t)__builtin_ctzll(picks), item = first_item + expert[r];
		double sum = acc[item] + gate[r];

		acc[item] = sum;
		ask |= (uint64_t)(sum >= beta) << r;
	}
	return ask;
}

static void expect(void *state, const struct gm_requests *requests)
{
	const double *acc = state;

	for (uint32_t i = 0; i < requests->n; i++)
		gm_prefetch(&acc[requests->first_item + requests->expert[i]]);
}

static void queued(void *state, uint32_t item)
{
	double *acc = state;

	acc[item] = 0;
}

extern const struct gm_admit_ops gm_admit_background;
const struct gm_admit_ops gm_admit_background = {
	.info = {.name = "background",
		 .help = "as fetch, and an expert whose substituted weights add up to BETA is copied in the background",
		 .n_param = 1,
		 .param = {{.name = "BETA", .help = "sum of gate weights", .min = 0, .max = 1e12}}},
	.state_bytes = state_bytes,
	.substituted = substituted,
	.queued = queued,
	.expect = expect,
};
