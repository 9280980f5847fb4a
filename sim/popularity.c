#include "sim/replay.h"

#include <stdlib.h>

struct popular {
	uint64_t count;
	uint32_t item;
};

static int by_popularity(const void *a, const void *b)
{
	const struct popular *x = a, *y = b;

	if (x->count != y->count)
		return x->count > y->count ? -1 : 1;
	return x->item < y->item ? -1 : x->item > y->item;
}

static void count_block(const struct gm_block *block, uint32_t n_expert, struct popular *popular)
{
	for (uint32_t l = 0; l < block->n_layer; l++) {
		for (uint32_t i = 0; i < block->n_token; i++) {
			size_t row = (size_t)l * block->n_token + i;

			for (uint32_t r = 0; block->present[row] && r < block->top_k; r++)
				popular[(size_t)l * n_expert + block->head[row * block->n_head + r]].count++;
		}
	}
}

int gm_popularity(struct gm_trace *trace, enum gm_scope scope, uint32_t **order, struct gm_error *err)
{
	const struct gm_model *model = gm_trace_model(trace);
	size_t n = (size_t)model->n_layer * model->n_expert;
	struct popular *popular = gm_alloc(n, sizeof(*popular), err);
	struct gm_block block = {0};
	int status = GM_ERR_MEMORY;

	*order = gm_alloc(n, sizeof(**order), err);
	if (!popular || !*order)
		goto out;
	for (size_t i = 0; i < n; i++)
		popular[i].item = (uint32_t)i;
	for (uint64_t b = 0; (status = gm_trace_read(trace, b, GM_WANT_HEAD, &block, err)) > 0; b++)
		count_block(&block, model->n_expert, popular);
	if (status < 0)
		goto out;
	if (scope == GM_SCOPE_GLOBAL)
		qsort(popular, n, sizeof(*popular), by_popularity);
	for (uint32_t l = 0; scope == GM_SCOPE_LAYER && l < model->n_layer; l++)
		qsort(popular + (size_t)l * model->n_expert, model->n_expert, sizeof(*popular), by_popularity);
	for (size_t i = 0; i < n; i++)
		(*order)[i] = popular[i].item;
out:
	gm_block_free(&block);
	free(popular);
	if (status < 0) {
		free(*order);
		*order = NULL;
	}
	return status;
}
