#include "sim/beyond.h"

#include "traces/select.h"

#include <stdlib.h>
#include <string.h>

#define N_DIGIT 8u /* bytes of a key */
#define BASE 256u
#define N_LIST 16u
#define FEW 96u /* so many are sorted faster by insertion */

struct gm_beyond {
	const struct gm_model *model;
	uint32_t n_head, n;   /* n: experts beyond the head */
	uint64_t first_token; /* of the block whose rows are kept */
	bool any;             /* there is one */
	uint16_t *ranked;     /* [n_row][n] rows layer * n_token + i */
	uint16_t *n_known;    /* [n_row] so many places of the row are ranked */
	size_t n_row, max_row;
	uint8_t *in_head;        /* [n_expert] work space, 0 between rows */
	uint16_t *expert;        /* [n + 1] the experts beyond the head of one row, by id; work space, as what follows */
	uint64_t *key;           /* [n] of each: the smaller, the earlier */
	uint16_t *order, *moved; /* [n + 1] indices of the two */
	bool by_logit;           /* scores are the float32 logits themselves */
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
	b->expert = gm_alloc((size_t)b->n + 1, sizeof(*b->expert), err);
	b->key = gm_alloc(b->n, sizeof(*b->key), err);
	b->order = gm_alloc((size_t)b->n + 1, sizeof(*b->order), err);
	b->moved = gm_alloc((size_t)b->n + 1, sizeof(*b->moved), err);
	if (!b->in_head || !b->expert || !b->key || !b->order || !b->moved) {
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
	free(b->expert);
	free(b->key);
	free(b->order);
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
	uint32_t bits, negative;

	score += 0.0f;
	memcpy(&bits, &score, sizeof(bits));
	negative = (uint32_t) - (int32_t)(bits >> 31);
	return bits ^ (~negative & 0x7fffffffu); /* a smaller one turns its other bits over */
}

/* The first n of `order` by key, equal keys as they stand. */
static const uint16_t *sort_few(struct gm_beyond *b, uint32_t n)
{
	const uint64_t *key = b->key;
	uint16_t *order = b->order;

	for (uint32_t j = 1; j < n; j++) {
		uint16_t moved = order[j];
		uint32_t at = j;

		for (; at > 0 && key[order[at - 1]] > key[moved]; at--)
			order[at] = order[at - 1];
		order[at] = moved;
	}
	return order;
}

/* The same by radix, digit by digit from the least; digits that all share are skipped. */
static const uint16_t *sort(struct gm_beyond *b, uint32_t n)
{
	const uint32_t n_digit = b->by_logit ? N_DIGIT / 2 : N_DIGIT;
	uint32_t count[N_DIGIT][BASE];
	const uint64_t *key = b->key;
	uint16_t *from = b->order, *to = b->moved;

	memset(count, 0, n_digit * sizeof(count[0]));
	for (uint32_t j = 0; j < n; j++)
		for (uint32_t d = 0; d < n_digit; d++)
			count[d][key[from[j]] >> 8 * d & 0xff]++;
	for (uint32_t d = 0; d < n_digit; d++) {
		uint32_t start = 0;

		if (n == 0 || count[d][key[from[0]] >> 8 * d & 0xff] == n)
			continue;
		for (uint32_t digit = 0; digit < BASE; digit++) {
			uint32_t n_here = count[d][digit];

			count[d][digit] = start;
			start += n_here;
		}
		for (uint32_t j = 0; j < n; j++)
			to[count[d][key[from[j]] >> 8 * d & 0xff]++] = from[j];
		uint16_t *swap = from;
		from = to;
		to = swap;
	}
	return from;
}

static void find_keys(struct gm_beyond *b, const struct gm_block *block, uint32_t layer, size_t row)
{
	const uint16_t *head = block->head + row * b->n_head;
	const float *tail = block->tail + row * b->n;
	uint32_t n = 0;

	for (uint32_t r = 0; r < b->n_head; r++)
		b->in_head[head[r]] = 1;
	for (uint32_t e = 0; e < b->model->n_expert; e++) {
		b->expert[n] = (uint16_t)e;
		n += !b->in_head[e];
	}
	for (uint32_t r = 0; r < b->n_head; r++)
		b->in_head[head[r]] = 0;
	for (uint32_t j = 0; j < n && b->by_logit; j++)
		b->key[j] = key_of_float(tail[j]);
	for (uint32_t j = 0; j < n && !b->by_logit; j++)
		b->key[j] = key_of_double(gm_selection_score(b->model, layer, b->expert[j], tail[j], block->lse[row]));
}

static uint32_t choose_all(struct gm_beyond *b)
{
	for (uint32_t j = 0; j < b->n; j++)
		b->order[j] = (uint16_t)j;
	return b->n;
}

/* Starts `order` with the first of the experts, in a fraction of the time that sorting all of them would take: of each of 16 interleaved lists, the
 * first one is among them. Returns how many. */
static uint32_t choose_first(struct gm_beyond *b)
{
	uint64_t least[N_LIST], most = 0;
	uint32_t n = 0, n_whole = b->n / N_LIST * N_LIST;

	if (b->n < 8 * N_LIST)
		return choose_all(b);
	memcpy(least, b->key, sizeof(least));
	for (uint32_t j = N_LIST; j < n_whole; j += N_LIST)
		for (uint32_t l = 0; l < N_LIST; l++)
			least[l] = b->key[j + l] < least[l] ? b->key[j + l] : least[l];
	for (uint32_t l = 0; l < N_LIST; l++)
		most = least[l] > most ? least[l] : most;
	for (uint32_t j = 0; j < b->n; j++) {
		b->order[n] = (uint16_t)j;
		n += b->key[j] <= most;
	}
	return n;
}

/* Ranks the row's first places, or all of them. */
static void rank(struct gm_beyond *b, const struct gm_block *block, uint32_t layer, size_t row, bool all)
{
	uint16_t *ranked = b->ranked + row * b->n;
	const uint16_t *sorted;
	uint32_t n;

	find_keys(b, block, layer, row);
	n = all ? choose_all(b) : choose_first(b);
	sorted = n <= FEW ? sort_few(b, n) : sort(b, n);
	for (uint32_t j = 0; j < n; j++)
		ranked[j] = b->expert[sorted[j]];
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
