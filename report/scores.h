/* What emulate's --per-sequence files say of each text under each policy of a scene: likelihood and lost mass, as sums that can be added
 * up over any choice of texts. */
#ifndef GM_REPORT_SCORES_H
#define GM_REPORT_SCORES_H

#include "report/results.h"

struct gm_scores {
	const struct gm_results *results;
	size_t n_sequence, n_policy;
	size_t *point;    /* [n_policy] the result of each, baselines among them */
	size_t *baseline; /* [n_policy] the policy without a policy: same warm-up; GM_NO_POINT if there is none */
	size_t *number;   /* [n_sequence] of each text in the files: numbers that have no row are left out */
	double *n, *nll, *lost,
		*rows; /* [n_policy][n_sequence] tokens scored (0: none), sums of their negative log-likelihood, of
					  substituted and dropped mass over the rows (NaN: not known), and rows (likewise) */
};

/* Errors, with file, line and column: a sequence number that cannot be one, two results for one text and policy, and rows of other texts
 * (trace_hash) than the results of the same name. Results without a
 * likelihood (of sim) are left out: n_policy may be 0. Free it also after a failure. */
int gm_scores_make(struct gm_scores *scores, const struct gm_results *results, const struct gm_sheet *sequences,
		   size_t scene, struct gm_error *err);
void gm_scores_free(struct gm_scores *scores);

bool gm_scores_is_baseline(const struct gm_scores *scores, size_t policy);

/* Differences in negative log-likelihood of a policy less another (sums, d) and the tokens (n) of the texts that both have scored whole;
 * d and n have room for n_sequence. Returns how many texts. */
size_t gm_scores_pair(const struct gm_scores *scores, size_t policy, size_t other, double *d, double *n);

#endif
