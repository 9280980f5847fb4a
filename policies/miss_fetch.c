/* fetch: fetch every miss and wait for it */
#include "policies/policy.h"

static void decide(void *state, const double *arg, const struct gm_miss_row *row, uint8_t *action)
{
	(void)state, (void)arg;
	for (uint32_t i = 0; i < row->n_missed; i++)
		action[row->missed[i]] = GM_FETCH;
}

static uint64_t fetches(const double *arg, const double *gate, uint32_t n)
{
	(void)arg, (void)gate, (void)n;
	return UINT64_MAX;
}

extern const struct gm_miss_ops gm_miss_fetch;
const struct gm_miss_ops gm_miss_fetch = {
	.info = {.name = "fetch", .help = "fetch every miss and wait for it", .flags = GM_ONLY_FETCHES},
	.decide = decide,
	.fetches = fetches,
};
