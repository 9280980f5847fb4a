#include "traces/verify_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Scores and sums come from exp() and log(), which differ in their last bits from one machine to another. */
#define TOLERANCE 1e-9

int gm_row_check_init(struct gm_row_check *check, const struct gm_header *header, struct gm_error *err)
{
	const struct gm_geometry *g = &header->geometry;

	memset(check, 0, sizeof(*check));
	check->header = header;
	check->logits = gm_alloc(g->n_expert, sizeof(*check->logits), err);
	check->ranked = gm_alloc(g->n_head, sizeof(*check->ranked), err);
	check->seen = gm_alloc(g->n_expert, 1, err);
	if (g->kind == GM_KIND_LOGITS)
		check->selector = gm_selector_new(&header->model, g->n_head, err);
	if (check->logits && check->ranked && check->seen && (check->selector || g->kind != GM_KIND_LOGITS))
		return GM_OK;
	gm_row_check_free(check);
	return GM_ERR_MEMORY;
}

void gm_row_check_free(struct gm_row_check *check)
{
	free(check->logits);
	free(check->ranked);
	free(check->seen);
	gm_selector_free(check->selector);
	memset(check, 0, sizeof(*check));
}

static bool by_logit(const struct gm_model *model)
{
	return !model->bias && model->n_group <= 1;
}

static double score(const struct gm_row_check *check, uint32_t layer, uint32_t expert, float logit, double lse)
{
	return gm_selection_score(&check->header->model, layer, expert, logit, lse);
}

static int check_distinct(struct gm_row_check *check, const uint16_t *head, struct gm_error *err)
{
	uint32_t n_head = check->header->geometry.n_head;
	int status = GM_OK;

	for (uint32_t r = 0; r < n_head; r++) {
		if (check->seen[head[r]])
			status = gm_fail(err, GM_ERR_FORMAT, "expert %u stands in the head twice", head[r]);
		check->seen[head[r]] = 1;
	}
	for (uint32_t r = 0; r < n_head; r++)
		check->seen[head[r]] = 0;
	return status;
}

/* Ranks 1 ... top_k fall, and so do the ranks after them; ties to the lower id. */
static int check_order(struct gm_row_check *check, uint32_t layer, const uint16_t *head, const float *logit, double lse,
		       struct gm_error *err)
{
	const struct gm_geometry *g = &check->header->geometry;
	const struct gm_model *model = &check->header->model;

	for (uint32_t r = 1; r < g->n_head; r++) {
		bool wrong;
		if (by_logit(model)) {
			wrong = logit[r] > logit[r - 1] || (logit[r] == logit[r - 1] && head[r] < head[r - 1]);
		} else if (r == g->top_k && model->n_group > 1) {
			continue; /* S came from the eligible groups only: the next may well score higher */
		} else {
			double above = score(check, layer, head[r - 1], logit[r - 1], lse);
			wrong = score(check, layer, head[r], logit[r], lse) > above + TOLERANCE * (1 + fabs(above));
		}
		if (wrong)
			return gm_fail(err, GM_ERR_FORMAT, "expert %u belongs before expert %u: rank %u", head[r],
				       head[r - 1], r + 1);
	}
	return GM_OK;
}

/* All logits are there, exactly: the ranking and the log-sum-exp must come out again. */
static int check_exact(struct gm_row_check *check, uint32_t layer, const uint16_t *head, double lse, struct gm_error *err)
{
	uint32_t n_head = check->header->geometry.n_head;
	double right;

	GM_TRY(gm_select_rank(check->selector, layer, check->logits, check->ranked, &right, err));
	for (uint32_t r = 0; r < n_head; r++) {
		uint32_t is = head[r], should = check->ranked[r];
		if (is == should)
			continue;
		double a = score(check, layer, is, check->logits[is], right);
		double b = score(check, layer, should, check->logits[should], right);
		if (by_logit(&check->header->model) || fabs(a - b) > TOLERANCE * (1 + fabs(b)))
			return gm_fail(err, GM_ERR_FORMAT, "expert %u: rank %u: must be expert %u", is, r + 1, should);
	}
	if (fabs(lse - right) > TOLERANCE * (1 + fabs(right)))
		return gm_fail(err, GM_ERR_FORMAT, "the log-sum-exp is %.17g: must be %.17g", lse, right);
	return GM_OK;
}

/* What the head alone says about the log-sum-exp: at least the head's own, at most as if all others were as large as its last. */
static int check_lse(const struct gm_row_check *check, const float *logit, double lse, struct gm_error *err)
{
	const struct gm_geometry *g = &check->header->geometry;
	float max = logit[0];

	for (uint32_t r = 1; r < g->n_head; r++)
		max = logit[r] > max ? logit[r] : max;
	double sum = exp((double)logit[0] - (double)max);
	for (uint32_t r = 1; r < g->n_head; r++)
		sum += exp((double)logit[r] - (double)max);
	double least = (double)max + log(sum), room = TOLERANCE * (1 + fabs(least));
	double most = INFINITY;
	if (by_logit(&check->header->model))
		most = (double)max + log(sum + (g->n_expert - g->n_head) * exp((double)logit[g->n_head - 1] - (double)max));
	if (lse < least - room || lse > most + room)
		return gm_fail(err, GM_ERR_FORMAT, "the log-sum-exp is %.17g: must be from %.17g to %.17g", lse, least,
			       most);
	return GM_OK;
}

/* A float16 tail ranked by logit: rounding keeps the order, so no half lies above the half of the head's last. */
static int check_half_tail(const struct gm_row_check *check, const float *tail, float last, struct gm_error *err)
{
	uint32_t n_tail = check->header->geometry.n_expert - check->header->geometry.n_head;
	uint16_t half = gm_to_f16(last);

	if (half == GM_F16_OVERFLOW)
		return GM_OK;
	for (uint32_t i = 0; i < n_tail; i++)
		if (tail[i] > gm_from_f16(half))
			return gm_fail(err, GM_ERR_FORMAT, "a logit of the tail (%g) lies above the head's last (%g)",
				       (double)tail[i], (double)last);
	return GM_OK;
}

static int check_row(struct gm_row_check *check, const struct gm_block *b, uint32_t layer, uint32_t i, struct gm_error *err)
{
	const struct gm_geometry *g = &check->header->geometry;
	size_t row = (size_t)layer * b->n_token + i;
	const uint16_t *head = b->head + row * g->n_head;

	GM_TRY(check_distinct(check, head, err));
	if (g->kind != GM_KIND_LOGITS)
		return GM_OK; /* weights were checked when the block was decoded */
	const float *logit = b->logit + row * g->n_head;
	GM_TRY(check_order(check, layer, head, logit, b->lse[row], err));
	GM_TRY(check_lse(check, logit, b->lse[row], err));
	bool exact = g->n_head == g->n_expert || (b->tail && g->tail == GM_TAIL_F32);
	if (exact) {
		gm_block_logits(b, &check->header->model, layer, i, check->logits);
		return check_exact(check, layer, head, b->lse[row], err);
	}
	if (b->tail && by_logit(&check->header->model))
		return check_half_tail(check, b->tail + row * (g->n_expert - g->n_head), logit[g->n_head - 1], err);
	return GM_OK;
}

int gm_row_check_block(struct gm_row_check *check, const struct gm_block *b, struct gm_error *err)
{
	for (uint32_t layer = 0; layer < b->n_layer; layer++)
		for (uint32_t i = 0; i < b->n_token; i++) {
			if (!b->present[(size_t)layer * b->n_token + i])
				continue;
			int status = check_row(check, b, layer, i, err);
			if (status < 0) {
				gm_error_at(err, "token %llu, layer %u", (unsigned long long)b->first_token + i, layer);
				return status;
			}
		}
	return GM_OK;
}
