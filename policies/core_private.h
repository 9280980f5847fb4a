/* What core.c (state, room) and event.c (one event) share; nobody else includes it. */
#ifndef GM_POLICIES_CORE_PRIVATE_H
#define GM_POLICIES_CORE_PRIVATE_H

#include "policies/core.h"

/* A set of items that compete for room. */
struct pool {
	uint32_t first_item; /* index of item 0 in the core's per-expert arrays */
	uint32_t n_item;
	uint32_t n_slot, n_resident, n_reserved;
	uint64_t bytes_left; /* scope global */
	size_t resident;     /* offset of uint32_t [n_slot] in the block: items */
	size_t reserved;     /* offset of uint32_t [n_slot]: items in order of reservation */
	size_t evict, admit; /* offsets of the policies' states */
};

struct gm_core {
	const struct gm_core_config *config;
	struct gm_arrivals *arrivals;
	struct gm_scratch *scratch;
	uint32_t n_pool;
	uint32_t stamp;   /* of the current event, for pins */
	size_t pools;     /* offset of struct pool [n_pool] */
	size_t residency; /* offset of uint8_t [n_layer][n_expert] */
	size_t place;     /* offset of uint32_t [n_layer][n_expert]: index in the pool's resident list */
	size_t pin;       /* offset of uint32_t [n_layer][n_expert] */
	size_t miss;      /* offset of the miss rule's state */
	size_t bytes;
};

static inline void *gm_core_at(struct gm_core *core, size_t offset)
{
	return (char *)core + offset;
}

static inline struct pool *gm_core_pool(struct gm_core *core, uint32_t layer)
{
	struct pool *pools = gm_core_at(core, core->pools);

	return &pools[core->n_pool == 1 ? 0 : layer];
}

/* R11: room for one expert of a layer, evicting if need be. incoming: the fetched item, or GM_NO_ITEM for a background admission.
 * False: nothing is left to evict, or the policy does not keep it. */
bool gm_core_make_room(struct gm_core *core, struct pool *pool, uint32_t layer, uint32_t incoming, uint64_t token,
		       uint64_t *evictions);

/* After gm_core_make_room: a fetched item becomes resident; a slot is reserved for a background copy; a late item lands. */
void gm_core_insert(struct gm_core *core, struct pool *pool, uint32_t item);
void gm_core_reserve(struct gm_core *core, struct pool *pool, uint32_t item);
void gm_core_land_item(struct gm_core *core, struct pool *pool, uint32_t item);

#endif
