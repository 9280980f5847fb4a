/* cpu: compute every miss on the CPU; the cache keeps what was preloaded */
#include "policies/policy.h"

static void decide(void *state, const double *arg, const struct gm_miss_row *row, uint8_t *action)
{
	(void)state, (void)arg;
	for (uint32_t i = 0; i < row->n_missed; i++)
		action[row->missed[i]] = GM_CPU;
}

extern const struct gm_miss_ops gm_miss_cpu;
const struct gm_miss_ops gm_miss_cpu = {
	.info = {.name = "cpu",
		 .help = "compute every miss on the CPU; the cache keeps what was preloaded",
		 .flags = GM_NO_INSERT | GM_NEEDS_CPU},
	.decide = decide,
};
