#include "sim/beyond.h"

#include "traces/select.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FIRST 32u
#define SAMPLE 8u /* every so manieth score is looked at for the range of all */
#define FEW 32u   /* so many are sorted faster by insertion */

struct candidate {
	double score;
	uint16_t expert;
};

struct gm_beyond {
	const struct gm_model *model;
	uint32_t n_head, n; /* n: experts beyond the head */
	/* so many of them are nearly always enough: apart from the rest, so that those of many rows lie in few cache lines */
	uint32_t n_first;
	uint64_t first_token; /* of the block whose rows are kept */
	bool any;             /* there is one */
	uint16_t *first;      /* [n_row][n_first] rows layer * n_token + i */
	uint16_t *rest;       /* [n_row][n - n_first] */
	uint8_t *known;       /* [n_row] the row is ranked */
	size_t n_row, max_row;
	/* work space of one row */
	uint8_t *in_head;            /* [n_expert] 0 between rows */
	struct candidate *candidate; /* [n + 1] by expert */
	uint32_t n_bucket;
	uint16_t *bucket;         /* [n] of each candidate */
	uint16_t *end;            /* [n_bucket] */
	struct candidate *sorted; /* [n] */
};

struct gm_beyond *gm_beyond_new(const struct gm_model *model, uint32_t n_head, struct gm_error *err)
{
	struct gm_beyond *b = gm_alloc(1, sizeof(*b), err);

	if (!b)
		return NULL;
	b->model = model;
	b->n_head = n_head;
	b->n = model->n_expert - n_head;
	b->n_first = b->n < MAX_FIRST ? b->n : MAX_FIRST;
	b->n_bucket = 2 * b->n < UINT16_MAX ? 2 * b->n + 1 : UINT16_MAX;
	b->in_head = gm_alloc(model->n_expert, sizeof(*b->in_head), err);
	b->candidate = gm_alloc((size_t)b->n + 1, sizeof(*b->candidate), err);
	b->bucket = gm_alloc(b->n, sizeof(*b->bucket), err);
	b->end = gm_alloc(b->n_bucket, sizeof(*b->end), err);
	b->sorted = gm_alloc(b->n, sizeof(*b->sorted), err);
	if (!b->in_head || !b->candidate || !b->bucket || !b->end || !b->sorted) {
		gm_beyond_free(b);
		return NULL;
	}
	return b;
}

void gm_beyond_free(struct gm_beyond *b)
{
	if (!b)
		return;
	free(b->first);
	free(b->rest);
	free(b->known);
	free(b->in_head);
	free(b->candidate);
	free(b->bucket);
	free(b->end);
	free(b->sorted);
	free(b);
}

static void find_candidates(struct gm_beyond *b, const struct gm_block *block, uint32_t layer, size_t row)
{
	const uint16_t *head = block->head + row * b->n_head;
	const float *tail = block->tail + row * b->n;
	struct candidate *candidate = b->candidate;
	bool by_logit = gm_scores_are_logits(b->model);
	uint32_t n = 0, n_expert = b->model->n_expert;

	for (uint32_t r = 0; r < b->n_head; r++)
		b->in_head[head[r]] = 1;
	for (uint32_t e = 0; e < n_expert; e++) {
		candidate[n].expert = (uint16_t)e;
		n += !b->in_head[e];
	}
	for (uint32_t r = 0; r < b->n_head; r++)
		b->in_head[head[r]] = 0;
	for (uint32_t j = 0; j < n && by_logit; j++)
		candidate[j].score = (double)tail[j];
	for (uint32_t j = 0; j < n && !by_logit; j++)
		candidate[j].score = gm_selection_score(b->model, layer, candidate[j].expert, tail[j], block->lse[row]);
}

/* Which bucket each candidate belongs to, the first with the largest scores, and how many are in each, in `end`. The range of some of them tells
 * roughly where all are. */
static void find_buckets(struct gm_beyond *b)
{
	const struct candidate *candidate = b->candidate;
	uint16_t *bucket = b->bucket, *end = b->end;
	uint32_t n = b->n;
	double most = candidate[0].score, least = most, last = b->n_bucket - 1, scale;

	for (uint32_t j = SAMPLE; j < n; j += SAMPLE) {
		most = candidate[j].score > most ? candidate[j].score : most;
		least = candidate[j].score < least ? candidate[j].score : least;
	}
	scale = last / (most - least);
	if (!(scale <= DBL_MAX)) /* they are equal, or next to it */
		scale = 0;
	memset(end, 0, b->n_bucket * sizeof(*end));
	for (uint32_t j = 0; j < n; j++) {
		double at = (most - candidate[j].score) * scale;

		at = at > 0 ? at : 0;
		at = at < last ? at : last;
		bucket[j] = (uint16_t)at;
		end[bucket[j]]++;
	}
}

static int by_score(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return x->score > y->score ? -1 : x->score < y->score ? 1 : x->expert - y->expert;
}

static void sort_large_buckets(struct gm_beyond *b)
{
	const uint16_t *end = b->end;

	for (uint32_t i = 0, start = 0; i < b->n_bucket; i++) {
		if (end[i] - start > FEW)
			qsort(b->sorted + start, end[i] - start, sizeof(*b->sorted), by_score);
		start = end[i];
	}
}

/* Puts the candidates bucket after bucket, each in the order of experts, large buckets in order. */
static void fill_buckets(struct gm_beyond *b)
{
	struct candidate *sorted = b->sorted;
	const uint16_t *bucket = b->bucket;
	uint16_t *end = b->end;
	uint32_t start = 0, most = 0;

	for (uint32_t i = 0; i < b->n_bucket; i++) {
		uint32_t n_here = end[i];

		end[i] = (uint16_t)start;
		start += n_here;
		most = n_here > most ? n_here : most;
	}
	for (uint32_t j = 0; j < b->n; j++)
		sorted[end[bucket[j]]++] = b->candidate[j];
	if (most > FEW)
		sort_large_buckets(b);
}

/* Ranks a row: nearly in order by buckets, then by insertion, which leaves equal scores as they stand. */
static void rank(struct gm_beyond *b, const struct gm_block *block, uint32_t layer, size_t row)
{
	struct candidate *sorted = b->sorted;
	uint32_t n = b->n, n_first = b->n_first;
	uint16_t *first = b->first + row * n_first, *rest = b->rest + row * (n - n_first);

	find_candidates(b, block, layer, row);
	find_buckets(b);
	fill_buckets(b);
	for (uint32_t j = 1; j < n; j++) {
		struct candidate moved = sorted[j];
		uint32_t at = j;

		if (sorted[j - 1].score >= moved.score)
			continue;
		for (; at > 0 && sorted[at - 1].score < moved.score; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = moved;
	}
	for (uint32_t j = 0; j < n_first; j++)
		first[j] = sorted[j].expert;
	for (uint32_t j = n_first; j < n; j++)
		rest[j - n_first] = sorted[j].expert;
	b->known[row] = 1;
}

/* Room for the rows of a block, none of them known. */
static int begin_block(struct gm_beyond *b, const struct gm_block *block, struct gm_error *err)
{
	b->n_row = (size_t)b->model->n_layer * block->n_token;
	b->any = false;
	if (b->n_row > b->max_row) {
		GM_GROW(b->first, b->n_row * b->n_first, err);
		GM_GROW(b->rest, b->n_row * (b->n - b->n_first), err);
		GM_GROW(b->known, b->n_row, err);
		b->max_row = b->n_row;
	}
	memset(b->known, 0, b->n_row);
	b->first_token = block->first_token;
	b->any = true;
	return GM_OK;
}

int gm_beyond_row(struct gm_beyond *b, const struct gm_block *block, uint32_t layer, uint32_t i, uint32_t from,
		  const uint16_t **expert, uint32_t *n, struct gm_error *err)
{
	size_t row = (size_t)layer * block->n_token + i;

	if (!b->any || b->first_token != block->first_token)
		GM_TRY(begin_block(b, block, err));
	if (!b->known[row] && b->n)
		rank(b, block, layer, row);
	if (from < b->n_first) {
		*expert = b->first + row * b->n_first + from;
		*n = b->n_first - from;
	} else {
		*expert = b->rest + row * (b->n - b->n_first) + (from - b->n_first);
		*n = b->n - from;
	}
	return GM_OK;
}
