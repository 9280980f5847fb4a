/* Checks a model's selection and gates against its logits (see check.h). */
#include "recorder/check.h"

#include "traces/select.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of one kind, kept until the layer's gates arrive. */
struct kept {
	char *rows;
	uint32_t n, max;
};

struct gm_check {
	const struct gm_model *model;
	bool softmax_after;
	struct gm_selector *selector;
	struct kept logits, expert, weight;
	uint16_t *ranked; /* [top_k] */
	float *selected;  /* [top_k] logits of the model's picks */
	double *gate;     /* [top_k] */
	struct gm_check_result result;
};

struct gm_check *gm_check_new(const struct gm_model *model, bool softmax_after_selection, struct gm_error *err)
{
	struct gm_check *check = gm_alloc(1, sizeof(*check), err);

	if (!check)
		return NULL;
	check->model = model;
	check->softmax_after = softmax_after_selection;
	check->selector = gm_selector_new(model, model->top_k, err);
	check->ranked = gm_alloc(model->top_k, sizeof(*check->ranked), err);
	check->selected = gm_alloc(model->top_k, sizeof(*check->selected), err);
	check->gate = gm_alloc(model->top_k, sizeof(*check->gate), err);
	if (!check->selector || !check->ranked || !check->selected || !check->gate) {
		gm_check_free(check);
		return NULL;
	}
	return check;
}

void gm_check_free(struct gm_check *check)
{
	if (!check)
		return;
	gm_selector_free(check->selector);
	free(check->logits.rows);
	free(check->expert.rows);
	free(check->weight.rows);
	free(check->ranked);
	free(check->selected);
	free(check->gate);
	free(check);
}

static int keep(struct kept *kept, uint32_t n, const void *rows, size_t row_bytes, struct gm_error *err)
{
	if (n > kept->max) {
		char *grown = gm_realloc(kept->rows, n, row_bytes, err);

		if (!grown)
			return GM_ERR_MEMORY;
		kept->rows = grown;
		kept->max = n;
	}
	memcpy(kept->rows, rows, n * row_bytes);
	kept->n = n;
	return 0;
}

int gm_check_logits(struct gm_check *check, uint32_t n, const float *logits, struct gm_error *err)
{
	return keep(&check->logits, n, logits, check->model->n_expert * sizeof(float), err);
}

int gm_check_topk(struct gm_check *check, uint32_t n, const int32_t *expert, struct gm_error *err)
{
	return keep(&check->expert, n, expert, check->model->top_k * sizeof(int32_t), err);
}

int gm_check_weights(struct gm_check *check, uint32_t n, const float *weight, struct gm_error *err)
{
	return keep(&check->weight, n, weight, check->model->top_k * sizeof(float), err);
}

/* What the model multiplies the expert with before renormalisation, from its logit. */
static double probability(const struct gm_check *check, float logit, double lse)
{
	if (check->softmax_after)
		return (double)logit;
	if (check->model->gating == GM_GATING_SIGMOID)
		return 1 / (1 + exp(-(double)logit));
	return exp((double)logit - lse);
}

/* The score by which the model itself selects, in its own floats but for rounding. */
static double model_score(const struct gm_check *check, uint32_t layer, uint32_t expert, const float *logits, double lse)
{
	double score = probability(check, logits[expert], lse);

	if (check->model->bias)
		score += (double)check->model->bias[(size_t)layer * check->model->n_expert + expert];
	return score;
}

static bool is_tie(double a, double b)
{
	float larger = (float)fmax(fabs(a), fabs(b));

	return fabs(a - b) <= 2 * (double)(nextafterf(larger, INFINITY) - larger);
}

static void note(struct gm_check *check, uint32_t layer, uint32_t row, const char *what, double model, double own)
{
	if (!check->result.first[0])
		snprintf(check->result.first, sizeof(check->result.first),
			 "layer %u, row %u of its pass: %s %.9g in the model, %.9g here", layer, row, what, model, own);
}

static void compare_value(struct gm_check *check, uint32_t layer, uint32_t row, const char *what, double model, double own)
{
	double error = fabs(model - own);

	if (!(error <= check->result.weight_error)) /* NaN, too */
		check->result.weight_error = error;
	if (error <= GM_CHECK_TOLERANCE)
		return;
	check->result.n_weight_mismatch++;
	note(check, layer, row, what, model, own);
}

static void compare_picks(struct gm_check *check, uint32_t layer, uint32_t row, const float *logits, const int32_t *expert,
			  double lse)
{
	for (uint32_t rank = 0; rank < check->model->top_k; rank++) {
		uint32_t own = check->ranked[rank], theirs = (uint32_t)expert[rank];

		check->result.n_pick++;
		if (own == theirs)
			continue;
		if (is_tie(model_score(check, layer, own, logits, lse), model_score(check, layer, theirs, logits, lse))) {
			check->result.n_tie++;
			continue;
		}
		check->result.n_mismatch++;
		note(check, layer, row, "a pick is expert", theirs, own);
	}
}

static int compare_row(struct gm_check *check, uint32_t layer, uint32_t row, const float *gate, struct gm_error *err)
{
	uint32_t top_k = check->model->top_k, n_expert = check->model->n_expert;
	const float *logits = (const float *)(void *)check->logits.rows + (size_t)row * n_expert;
	const int32_t *expert = (const int32_t *)(void *)check->expert.rows + (size_t)row * top_k;
	const float *weight = (const float *)(void *)check->weight.rows + (size_t)row * top_k;
	double lse, sum = 0;

	GM_TRY(gm_select_rank(check->selector, layer, logits, check->ranked, &lse, err));
	for (uint32_t i = 0; i < top_k; i++)
		if (expert[i] < 0 || (uint32_t)expert[i] >= n_expert)
			return gm_fail(err, GM_ERR_FORMAT, "the model selected expert %d of %u: layer %u", expert[i],
				       n_expert, layer);
	compare_picks(check, layer, row, logits, expert, lse);
	for (uint32_t i = 0; i < top_k; i++) {
		check->selected[i] = logits[expert[i]];
		sum += (double)gate[i];
	}
	gm_gate_weights(check->model->gating, top_k, check->selected, check->gate);
	for (uint32_t i = 0; i < top_k; i++) {
		compare_value(check, layer, row, "a probability is", (double)weight[i],
			      probability(check, check->selected[i], lse));
		if (sum > 0) /* whatever the model does to all its gates alike, their shares are R3's weights */
			compare_value(check, layer, row, "a gate weight is", (double)gate[i] / sum, check->gate[i]);
	}
	check->result.n_row++;
	return 0;
}

int gm_check_gates(struct gm_check *check, uint32_t layer, uint32_t n, const float *gate, struct gm_error *err)
{
	if (check->logits.n != n || check->expert.n != n || check->weight.n != n)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "%u rows of logits, %u of picks, %u of weights and %u of gates: layer %u: must be as many",
			       check->logits.n, check->expert.n, check->weight.n, n, layer);
	for (uint32_t row = 0; row < n; row++)
		GM_TRY(compare_row(check, layer, row, gate + (size_t)row * check->model->top_k, err));
	check->logits.n = check->expert.n = check->weight.n = 0;
	return 0;
}

const struct gm_check_result *gm_check_result(const struct gm_check *check)
{
	return &check->result;
}
