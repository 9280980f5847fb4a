/* R1-R3: scores, selection and gate weights of a row. */
#include "tests/reference/reference_private.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * R2: opens the experts of the topk_group best groups. A group's score is the sum of its two largest scores (of its
 * only one, if groups have one expert).
 */
static void open_groups(const struct ref_trace *trace, const double *score, uint8_t *open, struct ref_coverage *coverage)
{
	uint32_t size = trace->n_expert / trace->n_group;
	double *group_score = zalloc(trace->n_group, sizeof(double));
	uint8_t *taken = zalloc(trace->n_group, 1);

	for (uint32_t g = 0; g < trace->n_group; g++) {
		const double *s = score + (size_t)g * size;
		uint32_t best = 0;
		int second = -1;

		for (uint32_t i = 1; i < size; i++)
			if (s[i] > s[best])
				best = i;
		for (uint32_t i = 0; i < size; i++)
			if (i != best && (second < 0 || s[i] > s[second]))
				second = (int)i;
		group_score[g] = s[best];
		if (second >= 0)
			group_score[g] = s[best] + s[second];
	}
	memset(open, 0, trace->n_expert);
	for (uint32_t n = 0; n < trace->topk_group; n++) {
		int best = -1;

		/* Ties to the lower group: a later group must be strictly better. */
		for (uint32_t g = 0; g < trace->n_group; g++)
			if (!taken[g] && (best < 0 || group_score[g] > group_score[best]))
				best = (int)g;
		for (uint32_t g = 0; g < trace->n_group; g++)
			if (!taken[g] && (int)g != best && group_score[g] >= group_score[best])
				reach(coverage, REF_R2_GROUP_TIE);
		taken[best] = 1;
		memset(open + (size_t)best * size, 1, size);
	}
	free(group_score);
	free(taken);
}

/* R1-R3 of one row; open [n_expert]: the expert is eligible under the group limits. */
static int route_row(const struct ref_trace *trace, uint32_t token, uint32_t layer, uint32_t *selected, double *weight,
		     double *score, uint8_t *open, struct ref_coverage *coverage)
{
	uint32_t n_expert = trace->n_expert;
	const float *z = trace->logit + row_index(trace, token, layer) * n_expert;
	const double *bias = trace->bias ? trace->bias + (size_t)layer * n_expert : NULL;
	double *p = zalloc(n_expert, sizeof(double));
	uint8_t *taken = zalloc(n_expert, 1);
	int status = REF_OK;

	/* R2: a logit that is not finite makes the trace invalid. */
	for (uint32_t e = 0; e < n_expert; e++)
		if (!isfinite(z[e]) || (bias && !isfinite(bias[e]))) {
			status = REF_BAD_TRACE;
			goto out;
		}

	/* R1: scores, in double. The largest logit is subtracted so that exp() cannot overflow. */
	if (trace->gating == REF_SOFTMAX) {
		double max = (double)z[0];
		double sum = 0;

		for (uint32_t e = 1; e < n_expert; e++)
			if ((double)z[e] > max)
				max = (double)z[e];
		for (uint32_t e = 0; e < n_expert; e++) {
			p[e] = exp((double)z[e] - max);
			sum += p[e];
		}
		for (uint32_t e = 0; e < n_expert; e++)
			p[e] = p[e] / sum;
		reach(coverage, REF_R1_SOFTMAX);
	} else {
		for (uint32_t e = 0; e < n_expert; e++)
			p[e] = 1.0 / (1.0 + exp(-(double)z[e]));
		reach(coverage, REF_R1_SIGMOID);
	}

	/* R2: what is compared. Neither bias nor groups: the logit itself. */
	if (!bias && trace->n_group <= 1) {
		for (uint32_t e = 0; e < n_expert; e++)
			score[e] = (double)z[e];
		reach(coverage, REF_R2_BY_LOGIT);
	} else {
		for (uint32_t e = 0; e < n_expert; e++)
			score[e] = p[e] + (bias ? bias[e] : 0.0);
		reach(coverage, REF_R2_BY_SCORE);
	}

	/* R2: groups. */
	memset(open, 1, n_expert);
	if (trace->n_group > 1) {
		open_groups(trace, score, open, coverage);
		reach(coverage, REF_R2_GROUPS);
	}

	/* R2: the k eligible experts with the largest score, ties to the lower id, in rank order. */
	for (uint32_t rank = 0; rank < trace->top_k; rank++) {
		int best = -1;

		for (uint32_t e = 0; e < n_expert; e++)
			if (open[e] && !taken[e] && (best < 0 || score[e] > score[best]))
				best = (int)e;
		assert(best >= 0);
		for (uint32_t e = 0; e < n_expert; e++) {
			if (open[e] && !taken[e] && (int)e != best && score[e] >= score[best])
				reach(coverage, REF_R2_TIE);
			if (!open[e] && score[e] > score[best])
				reach(coverage, REF_R2_GROUP_BARS);
		}
		taken[best] = 1;
		selected[rank] = (uint32_t)best;
	}

	/* R3: gate weights from p (not from p + b), summed in rank order. */
	double sum = 0;

	for (uint32_t rank = 0; rank < trace->top_k; rank++)
		sum += p[selected[rank]];
	for (uint32_t rank = 0; rank < trace->top_k; rank++)
		weight[rank] = sum > 0 ? p[selected[rank]] / sum : 1.0 / (double)trace->top_k;
	reach(coverage, sum > 0 ? REF_R3_WEIGHTS : REF_R3_ZERO_SUM);
out:
	free(p);
	free(taken);
	return status;
}

int ref_route(const struct ref_trace *trace, uint32_t token, uint32_t layer, uint32_t *selected, double *weight,
	      double *score)
{
	uint8_t *open;
	int status;

	if (!ref_trace_is_valid(trace))
		return REF_BAD_TRACE;
	open = zalloc(trace->n_expert, 1);
	status = route_row(trace, token, layer, selected, weight, score, open, NULL);
	free(open);
	return status;
}

void ref_routes_free(struct routes *routes)
{
	free(routes->selected);
	free(routes->weight);
	free(routes->score);
	free(routes->open);
	memset(routes, 0, sizeof(*routes));
}

int ref_routes_init(struct routes *routes, const struct ref_trace *trace, struct ref_coverage *coverage)
{
	size_t n_row = (size_t)trace->n_token * trace->n_layer;

	routes->selected = zalloc(n_row * trace->top_k, sizeof(uint32_t));
	routes->weight = zalloc(n_row * trace->top_k, sizeof(double));
	routes->score = zalloc(n_row * trace->n_expert, sizeof(double));
	routes->open = zalloc(n_row * trace->n_expert, 1);
	for (uint32_t t = 0; t < trace->n_token; t++)
		for (uint32_t l = 0; l < trace->n_layer; l++) {
			size_t row = row_index(trace, t, l);
			int status;

			if (!trace->present[row])
				continue;
			status = route_row(trace, t, l, routes->selected + row * trace->top_k,
					   routes->weight + row * trace->top_k, routes->score + row * trace->n_expert,
					   routes->open + row * trace->n_expert, coverage);
			if (status) {
				ref_routes_free(routes);
				return status;
			}
		}
	return REF_OK;
}
