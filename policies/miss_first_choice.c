/* first-choice: fetch the first choice only, substitute the rest */
#include "policies/policy.h"

static void decide(void *state, const double *arg, const struct gm_miss_row *row, uint8_t *action)
{
	(void)state, (void)arg;
	for (uint32_t i = 0; i < row->n_missed; i++)
		action[row->missed[i]] = row->missed[i] == 0 ? GM_FETCH : GM_SUBSTITUTE;
}

static uint64_t fetches(const double *arg, const double *gate, uint32_t n)
{
	(void)arg, (void)gate, (void)n;
	return 1;
}

extern const struct gm_miss_ops gm_miss_first_choice;
const struct gm_miss_ops gm_miss_first_choice = {
	.info = {.name = "first-choice",
		 .help = "fetch the first choice only, substitute the rest",
		 .flags = GM_NEEDS_RANKING | GM_NEEDS_GATES},
	.decide = decide,
	.fetches = fetches,
};
