/* R7-R9: what each requested expert is, what is done about it, and who stands in for it. */
#include "tests/reference/reference_private.h"

#include <stdlib.h>
#include <string.h>

/* R7: the request list in order of first appearance, and each expert's judgement. */
void ref_classify(struct replay *r)
{
	uint32_t n_expert = r->trace->n_expert;
	uint8_t *from_warmup = zalloc(n_expert, 1);

	r->n_request = 0;
	for (uint32_t e = 0; e < n_expert; e++)
		r->judgement[e] = NOT_REQUESTED;
	for (uint32_t row = 0; row < r->n_row; row++)
		for (uint32_t i = 0; i < r->trace->top_k; i++) {
			uint32_t e = row_selected(r, row)[i];

			if (r->judgement[e] != NOT_REQUESTED) {
				reach(r->coverage, REF_R7_SHARED);
				if (from_warmup[e] && counted(r, r->row_token[row]))
					reach(r->coverage, REF_R5_WARMUP_SHARED_ACCESS);
				continue;
			}
			from_warmup[e] = !counted(r, r->row_token[row]);
			r->request[r->n_request++] = e;
			r->request_token[e] = r->row_token[row];
			switch (r->expert[expert_id(r, r->layer, e)].place) {
			case REF_RESIDENT:
				r->judgement[e] = HIT;
				reach(r->coverage, REF_R7_HIT);
				break;
			case REF_QUEUED:
				r->judgement[e] = LATE;
				reach(r->coverage, REF_R7_LATE_QUEUED);
				break;
			case REF_UNDER_WAY:
				r->judgement[e] = LATE;
				reach(r->coverage, REF_R7_LATE_UNDER_WAY);
				break;
			case REF_ABSENT:
				r->judgement[e] = MISS;
				reach(r->coverage, REF_R7_MISS);
				break;
			}
		}
	free(from_warmup);
}

/* The table of miss rules: the answer for a pick of rank (1, 2, ...) and weight w. */
static enum answer miss_rule(struct replay *r, uint32_t rank, double w)
{
	double tau = r->config->tau;

	switch (r->config->miss) {
	case REF_FETCH:
		return ANSWER_FETCH;
	case REF_THRESHOLD:
		if (rank != 1 && w >= tau && w <= tau)
			reach(r->coverage, REF_R8_TAU_EQUAL);
		return rank == 1 || w >= tau ? ANSWER_FETCH : ANSWER_SUBSTITUTE;
	case REF_FIRST_CHOICE:
		return rank == 1 ? ANSWER_FETCH : ANSWER_SUBSTITUTE;
	case REF_SUBSTITUTE:
		return ANSWER_SUBSTITUTE;
	case REF_DROP:
		return rank == 1 || w >= tau ? ANSWER_FETCH : ANSWER_DROP;
	case REF_CPU:
		return ANSWER_CPU;
	}
	return ANSWER_FETCH;
}

void ref_decide(struct replay *r)
{
	static const enum ref_branch branch_of[] = {
		[ANSWER_FETCH] = REF_R8_FETCH,
		[ANSWER_SUBSTITUTE] = REF_R8_SUBSTITUTE,
		[ANSWER_DROP] = REF_R8_DROP,
		[ANSWER_CPU] = REF_R8_CPU,
	};
	uint32_t top_k = r->trace->top_k;
	uint8_t *says_fetch = zalloc(r->trace->n_expert, 1);

	/* R8: every (row, expert) that is not a hit is put to the miss rule. */
	for (uint32_t row = 0; row < r->n_row; row++)
		for (uint32_t i = 0; i < top_k; i++) {
			uint32_t e = row_selected(r, row)[i];
			enum answer *answer = &row_answer(r, row)[i];

			*answer = ANSWER_HIT;
			if (r->judgement[e] == HIT)
				continue;
			*answer = miss_rule(r, i + 1, row_weight(r, row)[i]);
			reach(r->coverage, branch_of[*answer]);
			if (*answer == ANSWER_FETCH)
				says_fetch[e] = 1;
		}
	/* R8: if any row says FETCH, the expert is fetched for all rows. */
	for (uint32_t row = 0; row < r->n_row; row++)
		for (uint32_t i = 0; i < top_k; i++) {
			enum answer *answer = &row_answer(r, row)[i];

			if (!says_fetch[row_selected(r, row)[i]] || *answer == ANSWER_FETCH)
				continue;
			*answer = ANSWER_FETCH;
			reach(r->coverage, REF_R8_OVERRULED);
		}
	free(says_fetch);
}

/* R9: the substitute for one pick of a row, -1 if there is none. used [n_expert]: already a substitute in this row. */
static int find_substitute(struct replay *r, uint32_t row, const uint8_t *used)
{
	const double *score = r->routes.score + event_row(r, row) * r->trace->n_expert;
	const uint8_t *open = r->routes.open + event_row(r, row) * r->trace->n_expert;
	int best = -1;
	int best_with_used = -1;
	int tie = 0;

	for (uint32_t e = 0; e < r->trace->n_expert; e++) {
		int in_s = 0;

		for (uint32_t i = 0; i < r->trace->top_k; i++)
			if (row_selected(r, row)[i] == e)
				in_s = 1;
		if (in_s || r->expert[expert_id(r, r->layer, e)].place != REF_RESIDENT)
			continue;
		if (best_with_used < 0 || score[e] > score[best_with_used])
			best_with_used = (int)e;
		if (used[e])
			continue;
		if (best < 0 || score[e] > score[best]) {
			best = (int)e;
			tie = 0;
		} else if (score[e] >= score[best]) {
			tie = 1;
		}
	}
	if (best_with_used != best)
		reach(r->coverage, REF_R9_ALREADY_USED);
	if (best >= 0 && tie)
		reach(r->coverage, REF_R9_TIE);
	if (best >= 0 && !open[best])
		reach(r->coverage, REF_R9_IGNORES_GROUPS);
	return best;
}

void ref_substitute(struct replay *r)
{
	uint32_t top_k = r->trace->top_k;
	uint32_t n_expert = r->trace->n_expert;
	uint8_t *fell_back = zalloc(n_expert, 1);
	uint8_t *used = zalloc(n_expert, 1);

	memset(r->is_substitute, 0, n_expert);
	/* R9: row by row, in rank order of its SUBSTITUTE picks. */
	for (uint32_t row = 0; row < r->n_row; row++) {
		memset(used, 0, n_expert);
		for (uint32_t i = 0; i < top_k; i++) {
			int s;

			if (row_answer(r, row)[i] != ANSWER_SUBSTITUTE)
				continue;
			s = find_substitute(r, row, used);
			if (s < 0) {
				/* R9: no substitute: FETCH, for this row only. */
				row_answer(r, row)[i] = ANSWER_FETCH;
				fell_back[row_selected(r, row)[i]] = 1;
				layer_counters(r)->substitute_fallbacks += counted(r, r->row_token[row]);
				reach(r->coverage, REF_R9_FALLBACK);
				continue;
			}
			reach(r->coverage, REF_R9_SUBSTITUTE);
			if (r->is_substitute[s])
				reach(r->coverage, REF_R9_SHARED);
			used[s] = 1;
			r->is_substitute[s] = 1;
		}
	}
	for (uint32_t row = 0; row < r->n_row; row++)
		for (uint32_t i = 0; i < top_k; i++)
			if (row_answer(r, row)[i] == ANSWER_SUBSTITUTE && fell_back[row_selected(r, row)[i]])
				reach(r->coverage, REF_R9_FALLBACK_OTHER_KEEPS);
	free(fell_back);
	free(used);
}
