#include "sim/lru.h"

#include "sim/stack.h"
#include "traces/select.h"

#include <stdlib.h>
#include <string.h>

struct gm_lru {
	const struct gm_replay_config *config;
	uint32_t n_size;
	uint32_t *n_slot;    /* [n_size] ascending */
	uint32_t *too_small; /* [n_expert + 1] sizes that miss a request found at a place */
	size_t stack_bytes;
	char *stacks;    /* [n_layer] of stack_bytes */
	uint32_t *place; /* [top_k] room for one row */
	/* [n_size + 1] room for one row: picks by how many sizes are too small for them; 0 between rows */
	uint32_t *missed;
	uint32_t *depth_before; /* [n_layer] experts requested in the warm-up */
	uint64_t *rows;         /* [n_layer][n_size][top_k + 1] counted rows by how many of their picks missed */
	uint64_t tokens;
};

bool gm_lru_serves(const struct gm_replay_config *config)
{
	const struct gm_core_config *core = &config->core;

	if (strcmp(core->evict.ops->info.name, "lru") != 0 || !(core->miss.ops->info.flags & GM_ONLY_FETCHES) ||
	    !gm_replay_counts_work(config) || config->preload)
		return false;
	for (uint32_t l = 0; l < core->n_layer; l++)
		if (core->n_slot[l] != core->n_slot[0] || core->n_slot[l] < core->top_k)
			return false;
	return true;
}

static size_t n_rows(const struct gm_core_config *core, uint32_t n_size)
{
	return (size_t)core->n_layer * n_size * (core->top_k + 1);
}

size_t gm_lru_bytes(const struct gm_replay_config *config, uint32_t n_size)
{
	const struct gm_core_config *core = &config->core;

	return sizeof(struct gm_lru) + core->n_layer * (gm_stack_bytes(core->n_expert, core->top_k) + sizeof(uint32_t)) +
	       n_rows(core, n_size) * sizeof(uint64_t) + (core->n_expert + core->top_k + 2 * n_size) * sizeof(uint32_t);
}

static struct gm_stack *stack_of(const struct gm_lru *lru, uint32_t layer)
{
	return (struct gm_stack *)(void *)(lru->stacks + layer * lru->stack_bytes);
}

static uint64_t *rows_of(const struct gm_lru *lru, uint32_t layer, uint32_t size)
{
	return lru->rows + ((size_t)layer * lru->n_size + size) * (lru->config->core.top_k + 1);
}

static int allocate(struct gm_lru *lru, struct gm_error *err)
{
	const struct gm_core_config *core = &lru->config->core;

	lru->stack_bytes = gm_stack_bytes(core->n_expert, core->top_k);
	lru->n_slot = gm_alloc(lru->n_size, sizeof(*lru->n_slot), err);
	lru->too_small = gm_alloc(core->n_expert + 1, sizeof(*lru->too_small), err);
	lru->stacks = gm_alloc(core->n_layer, lru->stack_bytes, err);
	lru->place = gm_alloc(core->top_k, sizeof(*lru->place), err);
	lru->missed = gm_alloc(lru->n_size + 1, sizeof(*lru->missed), err);
	lru->depth_before = gm_alloc(core->n_layer, sizeof(*lru->depth_before), err);
	lru->rows = gm_alloc(n_rows(core, lru->n_size), sizeof(*lru->rows), err);
	return lru->n_slot && lru->too_small && lru->stacks && lru->place && lru->missed && lru->depth_before && lru->rows
		       ? GM_OK
		       : GM_ERR_MEMORY;
}

struct gm_lru *gm_lru_new(const struct gm_replay_config *config, const uint32_t *n_slot, uint32_t n_size,
			  struct gm_error *err)
{
	const struct gm_core_config *core = &config->core;
	struct gm_lru *lru = gm_alloc(1, sizeof(*lru), err);

	if (!lru)
		return NULL;
	lru->config = config;
	lru->n_size = n_size;
	if (allocate(lru, err) < 0) {
		gm_lru_free(lru);
		return NULL;
	}
	memcpy(lru->n_slot, n_slot, n_size * sizeof(*n_slot));
	for (uint32_t place = 0; place <= core->n_expert; place++)
		for (uint32_t i = 0; i < n_size; i++)
			lru->too_small[place] += place == core->n_expert || n_slot[i] <= place;
	for (uint32_t l = 0; l < core->n_layer; l++)
		gm_stack_init(lru->stacks + l * lru->stack_bytes, core->n_expert, core->top_k);
	return lru;
}

void gm_lru_free(struct gm_lru *lru)
{
	if (!lru)
		return;
	free(lru->n_slot);
	free(lru->too_small);
	free(lru->stacks);
	free(lru->place);
	free(lru->missed);
	free(lru->depth_before);
	free(lru->rows);
	free(lru);
}

/* Of one row: how many picks miss in each size. */
static void count_row(struct gm_lru *lru, uint32_t layer)
{
	uint32_t top_k = lru->config->core.top_k, n_missed = 0;
	uint64_t *rows = rows_of(lru, layer, lru->n_size);

	for (uint32_t r = 0; r < top_k; r++)
		lru->missed[lru->too_small[lru->place[r]]]++;
	for (uint32_t size = lru->n_size; size-- > 0;) {
		rows -= top_k + 1;
		n_missed += lru->missed[size + 1];
		lru->missed[size + 1] = 0;
		rows[n_missed]++;
	}
	lru->missed[0] = 0;
}

void gm_lru_window(struct gm_lru *lru, const struct gm_window *w)
{
	uint64_t warmup = lru->config->warmup;
	uint32_t counted_from = 0;

	if (w->first_token < warmup)
		counted_from = warmup - w->first_token < w->n_token ? (uint32_t)(warmup - w->first_token) : w->n_token;
	for (uint32_t layer = 0; layer < lru->config->core.n_layer; layer++) {
		struct gm_stack *stack = stack_of(lru, layer);

		for (uint32_t i = 0; i < w->n_token; i++) {
			size_t row = (size_t)layer * w->stride + i;

			if (!w->present[row])
				continue;
			gm_stack_request(stack, w->ranked + row * w->n_ranked, lru->place);
			if (i >= counted_from)
				count_row(lru, layer);
			else
				lru->depth_before[layer] = gm_stack_depth(stack);
		}
	}
	lru->tokens += w->n_token - counted_from;
}

static uint32_t residents(uint32_t n_slot, uint32_t depth)
{
	return depth < n_slot ? depth : n_slot;
}

/* Counters and times of a layer with the size-th number of slots. */
static struct gm_tally layer_total(const struct gm_lru *lru, uint32_t layer, uint32_t size, const struct gm_hw *hw)
{
	const struct gm_core_config *core = &lru->config->core;
	const uint64_t *rows = rows_of(lru, layer, size);
	uint32_t top_k = core->top_k, n_slot = lru->n_slot[size];
	struct gm_tally tally = {0};
	struct gm_counters *count = &tally.count;

	for (uint32_t n_missed = top_k + 1; n_missed-- > 0;) {
		if (!rows[n_missed])
			continue;
		count->rows += rows[n_missed];
		count->fetches += rows[n_missed] * n_missed;
		if (hw)
			gm_clock_count_event(hw, layer, top_k - n_missed, n_missed, rows[n_missed], &tally.time_us);
	}
	count->accesses = count->rows * top_k;
	count->hits = count->accesses - count->fetches;
	count->link_bytes = core->expert_bytes ? count->fetches * core->expert_bytes[layer] : 0;
	/* what was fetched and did not fill a free slot pushed something out */
	count->evictions = count->fetches - (residents(n_slot, gm_stack_depth(stack_of(lru, layer))) -
					     residents(n_slot, lru->depth_before[layer]));
	return tally;
}

void gm_lru_total(const struct gm_lru *lru, uint32_t n_slot, const struct gm_hw *hw, struct gm_tally *total,
		  struct gm_tally *layer)
{
	uint32_t size = 0;

	while (size + 1 < lru->n_size && lru->n_slot[size] < n_slot)
		size++;
	*total = (struct gm_tally){.tokens = lru->tokens, .timed_tokens = lru->tokens};
	for (uint32_t l = 0; l < lru->config->core.n_layer; l++) {
		layer[l] = layer_total(lru, l, size, hw);
		gm_tally_add(total, &layer[l]);
	}
	total->time_us.token = hw ? (double)lru->tokens * hw->token_us : 0;
}
