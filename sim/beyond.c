#include "sim/beyond.h"

#include "traces/select.h"

#include <stdlib.h>
#include <string.h>

#define N_DIGIT 8u /* bytes of a key */
#define BASE 256u
#define N_LIST 32u

struct item {
	uint64_t key; /* the smaller, the earlier */
	uint64_t expert;
};

struct gm_beyond {
	const struct gm_model *model;
	uint32_t n_head, n;   /* n: experts beyond the head */
	uint64_t first_token; /* of the block whose rows are kept */
	bool any;             /* there is one */
	uint16_t *ranked;     /* [n_row][n] rows layer * n_token + i */
	uint16_t *n_known;    /* [n_row] so many places of the row are ranked */
	size_t n_row, max_row;
	uint8_t *in_head;          /* [n_expert] work space, 0 between rows */
	struct item *item, *moved; /* [n] work space */
	bool by_logit;             /* scores are the float32 logits themselves */
};

struct gm_beyond *gm_beyond_new(const struct gm_model *model, uint32_t n_head, struct gm_error *err)
{
	struct gm_beyond *b = gm_alloc(1, sizeof(*b), err);

	if (!b)
		return NULL;
	b->model = model;
	b->n_head = n_head;
	b->n = model->n_expert - n_head;
	b->by_logit = gm_scores_are_logits(model);
	b->in_head = gm_alloc(model->n_expert, sizeof(*b->in_head), err);
	b->item = gm_alloc(b->n, sizeof(*b->item), err);
	b->moved = gm_alloc(b->n, sizeof(*b->moved), err);
	if (!b->in_head || !b->item || !b->moved) {
		gm_beyond_free(b);
		return NULL;
	}
	return b;
}

void gm_beyond_free(struct gm_beyond *b)
{
	if (!b)
		return;
	free(b->ranked);
	free(b->n_known);
	free(b->in_head);
	free(b->item);
	free(b->moved);
	free(b);
}

/* The order of numbers as the order of integers, the largest first; scores are finite. */
static uint64_t key_of_double(double score)
{
	uint64_t bits;

	score += 0.0; /* -0 is 0 */
	memcpy(&bits, &score, sizeof(bits));
	return bits >> 63 ? bits : ~(bits | UINT64_C(1) << 63);
}

static uint64_t key_of_float(float score)
{
	uint32_t bits;

	score += 0.0f;
	memcpy(&bits, &score, sizeof(bits));
	return (uint64_t)(bits >> 31 ? bits : ~(bits | UINT32_C(1) << 31)) << 32;
}

/* By key, equal keys in the order in which they stand: a radix sort, digit by digit from the least; digits that all share are skipped. */
static const struct item *sort(struct gm_beyond *b, uint32_t n)
{
	const uint32_t first = b->by_logit ? N_DIGIT / 2 : 0;
	uint32_t count[N_DIGIT][BASE];
	struct item *from = b->item, *to = b->moved;

	memset(count[first], 0, (N_DIGIT - first) * sizeof(count[0]));
	for (uint32_t j = 0; j < n; j++)
		for (uint32_t d = first; d < N_DIGIT; d++)
			count[d][from[j].key >> 8 * d & 0xff]++;
	for (uint32_t d = first; d < N_DIGIT; d++) {
		uint32_t start = 0;

		if (n == 0 || count[d][from[0].key >> 8 * d & 0xff] == n)
			continue;
		for (uint32_t digit = 0; digit < BASE; digit++) {
			uint32_t n_here = count[d][digit];

			count[d][digit] = start;
			start += n_here;
		}
		for (uint32_t j = 0; j < n; j++)
			to[count[d][from[j].key >> 8 * d & 0xff]++] = from[j];
		struct item *swap = from;
		from = to;
		to = swap;
	}
	return from;
}

/* The row's experts beyond its head, in order of id. */
static void find_keys(struct gm_beyond *b, const struct gm_block *block, uint32_t layer, size_t row)
{
	const uint16_t *head = block->head + row * b->n_head;
	const float *tail = block->tail + row * b->n;
	uint32_t n = 0;

	for (uint32_t r = 0; r < b->n_head; r++)
		b->in_head[head[r]] = 1;
	for (uint32_t e = 0; e < b->model->n_expert; e++) {
		if (b->in_head[e])
			continue;
		b->item[n].key = b->by_logit
					 ? key_of_float(tail[n])
					 : key_of_double(gm_selection_score(b->model, layer, e, tail[n], block->lse[row]));
		b->item[n++].expert = e;
	}
	for (uint32_t r = 0; r < b->n_head; r++)
		b->in_head[head[r]] = 0;
}

/* Keeps only the first of the items, in about a quarter of the time that sorting all of them would take: of each of 32 interleaved lists, the
 * first item is among them. Returns how many. */
static uint32_t keep_first(struct gm_beyond *b)
{
	uint64_t least[N_LIST], most = 0;
	uint32_t n = 0;

	if (b->n < 4 * N_LIST)
		return b->n;
	for (uint32_t j = 0; j < N_LIST; j++)
		least[j] = b->item[j].key;
	for (uint32_t j = N_LIST; j < b->n; j++)
		least[j % N_LIST] = b->item[j].key < least[j % N_LIST] ? b->item[j].key : least[j % N_LIST];
	for (uint32_t j = 0; j < N_LIST; j++)
		most = least[j] > most ? least[j] : most;
	for (uint32_t j = 0; j < b->n; j++) {
		b->item[n] = b->item[j];
		n += b->item[j].key <= most;
	}
	return n;
}

/* Ranks the row's first places, or all of them. */
static void rank(struct gm_beyond *b, const struct gm_block *block, uint32_t layer, size_t row, bool all)
{
	uint16_t *ranked = b->ranked + row * b->n;
	const struct item *sorted;
	uint32_t n;

	find_keys(b, block, layer, row);
	n = all ? b->n : keep_first(b);
	sorted = sort(b, n);
	for (uint32_t j = 0; j < n; j++)
		ranked[j] = (uint16_t)sorted[j].expert;
	b->n_known[row] = (uint16_t)n;
}

/* Room for the rows of a block, none of them known. */
static int begin_block(struct gm_beyond *b, const struct gm_block *block, struct gm_error *err)
{
	b->n_row = (size_t)b->model->n_layer * block->n_token;
	b->any = false;
	if (b->n_row > b->max_row) {
		GM_GROW(b->ranked, b->n_row * b->n, err);
		GM_GROW(b->n_known, b->n_row, err);
		b->max_row = b->n_row;
	}
	memset(b->n_known, 0, b->n_row * sizeof(*b->n_known));
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
	if (from >= b->n_known[row] && from < b->n)
		rank(b, block, layer, row, b->n_known[row] > 0);
	*expert = b->ranked + row * b->n + from;
	*n = b->n_known[row] - from;
	return GM_OK;
}

size_t gm_beyond_bytes(const struct gm_beyond *b)
{
	return b->max_row * (b->n * sizeof(uint16_t) + sizeof(*b->n_known));
}
