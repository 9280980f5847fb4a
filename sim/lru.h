/* LRU caches of several sizes replayed in one pass, by stack distances (sim/stack.h): the same counters and times, exactly, as a gm_replay of
 * each size gives. For a sweep whose grid has many sizes.
 */
#ifndef GM_SIM_LRU_H
#define GM_SIM_LRU_H

#include "sim/replay.h"

struct gm_lru;

/* Whether a configuration, with neither sinks nor tallies by sequence, can be one of the sizes: lru, every miss fetched, the same number of slots in
 * every layer and at least top_k, cold and never reset, every token its own pass, no tier below. */
bool gm_lru_serves(const struct gm_replay_config *config);

/* Bytes that such a replay of n_size sizes holds. */
size_t gm_lru_bytes(const struct gm_replay_config *config, uint32_t n_size);

/* config: any of those served (they differ in slots and times only); it must outlive the replay. n_slot [n_size] ascending. NULL: no memory. */
struct gm_lru *gm_lru_new(const struct gm_replay_config *config, const uint32_t *n_slot, uint32_t n_size,
			  struct gm_error *err);
void gm_lru_free(struct gm_lru *lru);

/* Windows of GM_PREFILL_TOKEN, in order. */
void gm_lru_window(struct gm_lru *lru, const struct gm_window *window);

/* Results of the size n_slot, with the times of hw (NULL: not timed). layer [n_layer] out, as gm_replay_layers gives them. */
void gm_lru_total(const struct gm_lru *lru, uint32_t n_slot, const struct gm_hw *hw, struct gm_tally *total,
		  struct gm_tally *layer);

#endif
