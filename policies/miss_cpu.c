/* cpu: compute every miss on the CPU; the cache keeps what was preloaded */
#include "policies/policy.h"

static void decide(void *state, const double *arg, const struct gm_miss_row *row, uint8_t *action)
{
	(void)state, (void)arg;
	for (uint32_t rank = 0; rank < row->top_k; rank++)
		action[rank] = gm_miss_answer(row->class[rank], GM_CPU);
}

extern const struct gm_miss_ops gm_miss_cpu;
const struct gm_miss_ops gm_miss_cpu = {
	.info = {.name = "cpu",
		 .help = "compute every miss on the CPU; the cache keeps what was preloaded",
		 .flags = GM_NO_INSERT | GM_NEEDS_CPU},
	.decide = decide,
};
