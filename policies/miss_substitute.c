/* substitute: substitute every miss */
#include "policies/policy.h"

static void decide(void *state, const double *arg, const struct gm_miss_row *row, uint8_t *action)
{
	(void)state, (void)arg;
	for (uint32_t i = 0; i < row->n_missed; i++)
		action[row->missed[i]] = GM_SUBSTITUTE;
}

static uint64_t fetches(const double *arg, const double *gate, uint32_t n)
{
	(void)arg, (void)gate, (void)n;
	return 0;
}

extern const struct gm_miss_ops gm_miss_substitute;
const struct gm_miss_ops gm_miss_substitute = {
	.info = {.name = "substitute",
		 .help = "substitute every miss",
		 .flags = GM_NEEDS_RANKING | GM_NEEDS_GATES | GM_ONLY_SUBSTITUTES},
	.decide = decide,
	.fetches = fetches,
};
