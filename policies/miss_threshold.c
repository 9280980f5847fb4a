/* threshold: fetch the first choice and weights of at least TAU, substitute the rest */
#include "policies/machine.h"
#include "policies/policy.h"

static void decide(void *state, const double *arg, const struct gm_miss_row *row, uint8_t *action)
{
	double least = arg[0];

	(void)state;
	for (uint32_t i = 0; i < row->n_missed; i++) {
		uint32_t rank = row->missed[i];

		action[rank] = rank == 0 || row->gate[rank] >= least ? GM_FETCH : GM_SUBSTITUTE;
	}
}

static uint64_t fetches(const double *arg, const double *gate, uint32_t n)
{
	double least = arg[0];
	uint64_t bits = 1;
	uint32_t r = 0;

#if GM_HAVE_X86
	for (; r + 2 <= n; r += 2)
		bits |= (uint64_t)(unsigned)_mm_movemask_pd(_mm_cmpge_pd(_mm_loadu_pd(gate + r), _mm_set1_pd(least))) << r;
#endif
	for (; r < n; r++)
		bits |= (uint64_t)(gate[r] >= least) << r;
	return bits;
}

extern const struct gm_miss_ops gm_miss_threshold;
const struct gm_miss_ops gm_miss_threshold = {
	.info = {.name = "threshold",
		 .help = "fetch the first choice and weights of at least TAU, substitute the rest",
		 .flags = GM_NEEDS_RANKING | GM_NEEDS_GATES,
		 .n_param = 1,
		 .param = {{.name = "TAU", .help = "gate weight", .min = 0, .max = 1}}},
	.decide = decide,
	.fetches = fetches,
};
