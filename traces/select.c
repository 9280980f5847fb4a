#include "traces/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One expert in the running for a place in the ranking. */
struct candidate {
	uint64_t key; /* order-preserving image of the score */
	uint32_t id;
};

struct gm_selector {
	const struct gm_model *model;
	uint32_t n_ranked;
	bool by_score;          /* bias or groups: R2 compares p + b in double, else the logits themselves */
	uint64_t *key;          /* [n_expert] */
	double *score;          /* [n_expert], only by_score */
	struct candidate *heap; /* [n_ranked] */
	uint8_t *barred;        /* [n_expert] not eligible (groups) or taken already */
	double *group_score;    /* [n_group] */
};

static bool has_groups(const struct gm_model *model)
{
	return model->n_group > 1;
}

struct gm_selector *gm_selector_new(const struct gm_model *model, uint32_t n_ranked, struct gm_error *err)
{
	if (n_ranked < model->top_k || n_ranked > model->n_expert) {
		gm_fail(err, GM_ERR_USAGE, "a ranking of %u experts: must be from %u (experts used) to %u (all)", n_ranked,
			model->top_k, model->n_expert);
		return NULL;
	}
	struct gm_selector *s = gm_alloc(1, sizeof(*s), err);
	if (!s)
		return NULL;
	s->model = model;
	s->n_ranked = n_ranked;
	s->by_score = model->bias || has_groups(model);
	s->key = gm_alloc(model->n_expert, sizeof(*s->key), err);
	s->score = gm_alloc(s->by_score ? model->n_expert : 0, sizeof(*s->score), err);
	s->heap = gm_alloc(n_ranked, sizeof(*s->heap), err);
	s->barred = gm_alloc(model->n_expert, 1, err);
	s->group_score = gm_alloc(model->n_group, sizeof(*s->group_score), err);
	if (!s->key || !s->score || !s->heap || !s->barred || !s->group_score) {
		gm_selector_free(s);
		return NULL;
	}
	return s;
}

void gm_selector_free(struct gm_selector *selector)
{
	if (!selector)
		return;
	free(selector->key);
	free(selector->score);
	free(selector->heap);
	free(selector->barred);
	free(selector->group_score);
	free(selector);
}

/* The image of a finite float whose unsigned order is the order of the floats; -0.0 and 0.0 are the same. */
static uint64_t key_of_logit(float value)
{
	uint32_t bits;

	value += 0.0f; /* -0.0 becomes 0.0, so that they tie as R2 compares them */
	memcpy(&bits, &value, sizeof(bits));
	return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static uint64_t key_of_score(double value)
{
	uint64_t bits;

	value += 0.0;
	memcpy(&bits, &value, sizeof(bits));
	return bits >> 63 ? ~bits : bits | 0x8000000000000000u;
}

static bool worse(const struct candidate *a, const struct candidate *b)
{
	return a->key < b->key || (a->key == b->key && a->id > b->id);
}

/* Restores the heap below slot i: the worst candidate is at the top. */
static void sift_down(struct candidate *heap, uint32_t n, uint32_t i)
{
	struct candidate moving = heap[i];

	for (;;) {
		uint32_t child = 2 * i + 1;
		if (child >= n)
			break;
		if (child + 1 < n && worse(&heap[child + 1], &heap[child]))
			child++;
		if (!worse(&heap[child], &moving))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = moving;
}

/* The n best of the experts that are not barred, best first, into ranked. Returns how many there were. */
static uint32_t best_n(struct gm_selector *s, uint32_t n, uint16_t *ranked)
{
	uint32_t n_expert = s->model->n_expert, size = 0, e = 0;
	struct candidate *heap = s->heap;

	if (n == 0)
		return 0;
	for (; e < n_expert && size < n; e++)
		if (!s->barred[e])
			heap[size++] = (struct candidate){s->key[e], e};
	for (uint32_t i = size / 2; i-- > 0;)
		sift_down(heap, size, i);
	/* Ids ascend, so that a later expert with an equal key never displaces an earlier one. */
	for (; e < n_expert; e++) {
		if (s->key[e] <= heap[0].key || s->barred[e])
			continue;
		heap[0] = (struct candidate){s->key[e], e};
		sift_down(heap, size, 0);
	}
	for (uint32_t left = size; left-- > 0;) {
		ranked[left] = (uint16_t)heap[0].id;
		heap[0] = heap[left];
		sift_down(heap, left, 0);
	}
	return size;
}

/* R2: bars the experts of all groups but the topk_group best; a group's score is the sum of its two best. */
static void bar_groups(struct gm_selector *s)
{
	const struct gm_model *model = s->model;
	uint32_t size = model->n_expert / model->n_group;

	for (uint32_t g = 0; g < model->n_group; g++) {
		const double *score = s->score + (size_t)g * size;
		double first = -INFINITY, second = -INFINITY;
		for (uint32_t i = 0; i < size; i++) {
			if (score[i] > first) {
				second = first;
				first = score[i];
			} else if (score[i] > second) {
				second = score[i];
			}
		}
		s->group_score[g] = size > 1 ? first + second : first;
	}
	memset(s->barred, 1, model->n_expert);
	for (uint32_t n = 0; n < model->topk_group; n++) {
		uint32_t best = 0;
		for (uint32_t g = 1; g < model->n_group; g++)
			if (s->group_score[g] > s->group_score[best])
				best = g;
		s->group_score[best] = -INFINITY;
		memset(s->barred + (size_t)best * size, 0, size);
	}
}

/* R1 and R2's scores in double, in order of id, and the log of the sum of exp. */
static void compute_scores(struct gm_selector *s, uint32_t layer, const float *z, float max, double *lse)
{
	const struct gm_model *model = s->model;
	bool softmax = model->gating == GM_GATING_SOFTMAX;
	uint32_t n_expert = model->n_expert;
	double sum = 0;

	if (lse || softmax) {
		for (uint32_t e = 0; e < n_expert; e++) {
			double p = exp((double)z[e] - (double)max);
			if (s->by_score)
				s->score[e] = p;
			sum += p;
		}
		if (lse)
			*lse = (double)max + log(sum);
	}
	if (!s->by_score)
		return;
	const float *bias = model->bias ? model->bias + (size_t)layer * n_expert : NULL;
	for (uint32_t e = 0; e < n_expert; e++) {
		double p = softmax ? s->score[e] / sum : 1.0 / (1.0 + exp(-(double)z[e]));
		s->score[e] = p + (bias ? (double)bias[e] : 0.0);
		s->key[e] = key_of_score(s->score[e]);
	}
}

static int check_finite(const float *z, uint32_t n_expert, struct gm_error *err)
{
	for (uint32_t e = 0; e < n_expert; e++)
		if (!isfinite(z[e]))
			return gm_fail(err, GM_ERR_FORMAT, "the logit is %s: expert %u: must be a finite number",
				       isnan(z[e]) ? "not a number" : "infinite", e);
	return GM_OK;
}

int gm_select_rank(struct gm_selector *s, uint32_t layer, const float *logits, uint16_t *ranked, double *lse,
		   struct gm_error *err)
{
	const struct gm_model *model = s->model;
	uint32_t n_expert = model->n_expert, top_k = model->top_k;
	uint32_t not_finite = 0;
	float max = logits[0];

	for (uint32_t e = 0; e < n_expert; e++) {
		uint32_t bits;
		memcpy(&bits, &logits[e], sizeof(bits));
		not_finite |= (bits & 0x7f800000u) == 0x7f800000u;
		s->key[e] = key_of_logit(logits[e]);
		if (logits[e] > max)
			max = logits[e];
	}
	if (not_finite)
		return check_finite(logits, n_expert, err);
	if (lse || s->by_score)
		compute_scores(s, layer, logits, max, lse);

	memset(s->barred, 0, n_expert);
	if (!has_groups(model)) {
		best_n(s, s->n_ranked, ranked);
		return GM_OK;
	}
	bar_groups(s);
	if (best_n(s, top_k, ranked) < top_k)
		return gm_fail(err, GM_ERR_FORMAT, "%u experts are to be used, but %u groups hold fewer", top_k,
			       model->topk_group);
	memset(s->barred, 0, n_expert);
	for (uint32_t r = 0; r < top_k; r++)
		s->barred[ranked[r]] = 1;
	best_n(s, s->n_ranked - top_k, ranked + top_k);
	return GM_OK;
}

void gm_gate_weights(enum gm_gating gating, uint32_t top_k, const float *logits, double *gate)
{
	double max = (double)logits[0], sum = 0;

	for (uint32_t i = 1; i < top_k; i++)
		if ((double)logits[i] > max)
			max = (double)logits[i];
	for (uint32_t i = 0; i < top_k; i++) {
		double z = (double)logits[i];
		gate[i] = gating == GM_GATING_SOFTMAX ? exp(z - max) : 1.0 / (1.0 + exp(-z));
		sum += gate[i];
	}
	for (uint32_t i = 0; i < top_k; i++)
		gate[i] = sum > 0 ? gate[i] / sum : 1.0 / (double)top_k;
}

bool gm_scores_are_logits(const struct gm_model *model)
{
	return !model->bias && !has_groups(model);
}

double gm_selection_score(const struct gm_model *model, uint32_t layer, uint32_t expert, float logit, double lse)
{
	if (gm_scores_are_logits(model))
		return (double)logit;
	double p = model->gating == GM_GATING_SOFTMAX ? exp((double)logit - lse) : 1.0 / (1.0 + exp(-(double)logit));
	return p + (model->bias ? (double)model->bias[(size_t)layer * model->n_expert + expert] : 0.0);
}

uint16_t gm_to_f16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
	if (magnitude > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00u); /* not a number */
	if (magnitude >= 0x477ff000u)
		return GM_F16_OVERFLOW; /* 65520 and more would round to infinity */
	if (magnitude < 0x38800000u) {
		/* Below 2^-14: a multiple of 2^-24. Adding 0.5 leaves exactly that many low bits, rounded by the FPU. */
		float scaled;
		memcpy(&scaled, &magnitude, sizeof(scaled));
		scaled += 0.5f;
		memcpy(&magnitude, &scaled, sizeof(magnitude));
		return (uint16_t)(sign | (magnitude - 0x3f000000u));
	}
	uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u); /* to nearest, ties to even */
	return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

float gm_from_f16(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu, bits;
	float value;

	if (magnitude >= 0x7c00u) {
		bits = sign | 0x7f800000u | (magnitude & 0x3ffu) << 13;
		memcpy(&value, &bits, sizeof(value));
		return value;
	}
	/* Exponent and mantissa moved into place are 2^112 too small; the product is exact, subnormals included. */
	bits = magnitude << 13;
	memcpy(&value, &bits, sizeof(value));
	value *= 0x1p112f;
	memcpy(&bits, &value, sizeof(bits));
	bits |= sign;
	memcpy(&value, &bits, sizeof(value));
	return value;
}
