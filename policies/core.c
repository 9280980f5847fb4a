#include "policies/core_private.h"

#include <assert.h>
#include <string.h>

/* --- layout --- */

static const void *at_const(const struct gm_core *core, size_t offset)
{
	return (const char *)core + offset;
}

/* Offset of the next part of the block, cache lines apart. */
static size_t take(size_t *end, size_t bytes)
{
	size_t offset = *end;

	*end += (bytes + 63) / 64 * 64;
	return offset;
}

static uint32_t slots_of(const struct gm_core_config *config, uint32_t pool)
{
	if (config->scope == GM_SCOPE_GLOBAL)
		return config->n_layer * config->n_expert;
	if (gm_core_all_resident(config) || config->n_slot[pool] > config->n_expert)
		return config->n_expert;
	return config->n_slot[pool];
}

static struct gm_pool_dims dims_of(const struct gm_core_config *config, uint32_t pool)
{
	uint32_t n_item = config->scope == GM_SCOPE_GLOBAL ? config->n_layer * config->n_expert : config->n_expert;

	return (struct gm_pool_dims){
		.n_item = n_item,
		.n_slot = slots_of(config, pool),
		.n_expert = config->n_expert,
		.seed = config->seed + pool,
		.first_use = config->first_use ? config->first_use + (size_t)pool * n_item : NULL,
	};
}

/* Computes all offsets; with core NULL only the size. */
static size_t lay_out(struct gm_core *core, const struct gm_core_config *config)
{
	struct gm_core plan = {0};
	size_t end = 0;
	size_t n = (size_t)config->n_layer * config->n_expert;
	uint32_t n_pool = config->scope == GM_SCOPE_GLOBAL ? 1 : config->n_layer;

	take(&end, sizeof(struct gm_core));
	plan.n_pool = n_pool;
	plan.pools = take(&end, n_pool * sizeof(struct pool));
	plan.residency = take(&end, n);
	plan.pin = take(&end, n);
	plan.miss = end;
	if (config->miss.ops->state_bytes)
		take(&end, config->miss.ops->state_bytes(config->n_layer, config->miss.arg));
	if (core)
		*core = plan;
	for (uint32_t p = 0; p < n_pool; p++) {
		struct gm_pool_dims dims = dims_of(config, p);
		struct pool pool = {.first_item = p * dims.n_item, .n_item = dims.n_item, .n_slot = dims.n_slot};

		pool.reserved = take(&end, dims.n_slot * sizeof(uint32_t));
		pool.evict = take(&end, config->evict.ops->state_bytes(&dims, config->evict.arg));
		pool.admit = end;
		if (config->admit.ops->state_bytes)
			take(&end, config->admit.ops->state_bytes(dims.n_item));
		if (core)
			((struct pool *)gm_core_at(core, core->pools))[p] = pool;
	}
	if (core)
		core->bytes = end;
	return end;
}

size_t gm_core_bytes(const struct gm_core_config *config)
{
	return lay_out(NULL, config);
}

int gm_core_check(const struct gm_core_config *config, struct gm_error *err)
{
	assert(config->top_k >= 1 && config->top_k <= config->n_expert && config->n_layer >= 1);
	if (config->reroute.ops && !config->reroute.ops->reroute)
		return gm_fail(err, GM_ERR_USAGE, "reroute %s has no function", config->reroute.ops->info.name);
	if (config->scope == GM_SCOPE_LAYER || gm_core_all_resident(config))
		return GM_OK;
	if (!config->expert_bytes)
		return gm_fail(err, GM_ERR_USAGE,
			       "cache scope global needs the bytes of an expert, which the trace does not have: "
			       "give expert_bytes in the hardware profile or at the import");
	for (uint32_t l = 0; l < config->n_layer; l++)
		if (config->expert_bytes[l] <= config->pool_bytes)
			return GM_OK;
	return gm_fail(err, GM_ERR_USAGE, "a pool of %llu bytes holds no expert: the smallest needs more",
		       (unsigned long long)config->pool_bytes);
}

/* --- residency --- */

static uint64_t item_bytes(const struct gm_core *core, const struct pool *pool, uint32_t item)
{
	return gm_core_room_bytes(core->config, (pool->first_item + item) / core->config->n_expert);
}

static void add_resident(struct gm_core *core, struct pool *pool, uint32_t item)
{
	pool->n_resident++;
	gm_core_pool_residency(core, pool)[item] = GM_RESIDENT;
}

void gm_core_land_item(struct gm_core *core, struct pool *pool, uint32_t item)
{
	uint32_t *reserved = gm_core_at(core, pool->reserved);
	uint32_t i = 0;

	while (reserved[i] != item)
		i++;
	memmove(reserved + i, reserved + i + 1, (--pool->n_reserved - i) * sizeof(*reserved));
	add_resident(core, pool, item);
	core->config->evict.ops->land(gm_core_at(core, pool->evict), item);
}

/* --- life --- */

/* Memory that is all zero, or, again, one that was in use. */
static void start_cold(struct gm_core *core, bool again)
{
	const struct gm_core_config *config = core->config;
	size_t n = (size_t)config->n_layer * config->n_expert;
	struct pool *pools = gm_core_at(core, core->pools);

	_Static_assert(GM_ABSENT == 0, "zeroed memory is absent experts");
	if (again) {
		memset(gm_core_at(core, core->residency), GM_ABSENT, n);
		memset(gm_core_at(core, core->pin), 0, n);
	}
	if (config->miss.ops->state_bytes) {
		if (again)
			memset(gm_core_at(core, core->miss), 0,
			       config->miss.ops->state_bytes(config->n_layer, config->miss.arg));
		config->miss.ops->init(gm_core_at(core, core->miss), config->n_layer, config->miss.arg, config->seed);
	}
	for (uint32_t p = 0; p < core->n_pool; p++) {
		struct gm_pool_dims dims = dims_of(config, p);
		struct pool *pool = &pools[p];

		pool->n_resident = pool->n_reserved = 0;
		pool->stamp = 0;
		pool->bytes_left = config->pool_bytes;
		config->evict.ops->init(gm_core_at(core, pool->evict), &dims, config->evict.arg, again);
		if (config->admit.ops->state_bytes && again)
			memset(gm_core_at(core, pool->admit), 0, config->admit.ops->state_bytes(dims.n_item));
		for (uint32_t item = 0; gm_core_all_resident(config) && item < dims.n_item; item++)
			add_resident(core, pool, item);
	}
}

struct gm_core *gm_core_init(void *memory, const struct gm_core_config *config, struct gm_arrivals *arrivals,
			     struct gm_scratch *scratch)
{
	struct gm_core *core = memory;

	lay_out(core, config);
	core->config = config;
	core->arrivals = arrivals;
	core->scratch = scratch;
	start_cold(core, false);
	return core;
}

void gm_core_reset(struct gm_core *core)
{
	start_cold(core, true);
}

/* How many of order [n] go into one pool, from the start: those that fit. */
static size_t preload_count(const struct gm_core *core, const struct pool *pool, const uint32_t *order, size_t n)
{
	uint64_t left = pool->bytes_left;
	size_t count = 0;

	if (core->config->scope == GM_SCOPE_LAYER)
		return n < pool->n_slot ? n : pool->n_slot;
	while (count < n && item_bytes(core, pool, order[count]) <= left)
		left -= item_bytes(core, pool, order[count++]);
	return count;
}

void gm_core_preload(struct gm_core *core, const uint32_t *order, size_t n)
{
	struct pool *pools = gm_core_at(core, core->pools);
	size_t first = 0;

	if (gm_core_all_resident(core->config))
		return;
	for (uint32_t p = 0; p < core->n_pool; p++) {
		struct pool *pool = &pools[p];
		size_t end = first;

		while (end < n && order[end] >= pool->first_item && order[end] < pool->first_item + pool->n_item)
			end++;
		for (size_t i = preload_count(core, pool, order + first, end - first); i-- > 0;) {
			uint32_t item = order[first + i] - pool->first_item;

			pool->bytes_left -= item_bytes(core, pool, item);
			add_resident(core, pool, item);
			core->config->evict.ops->insert(gm_core_at(core, pool->evict), item, true);
		}
		first = end;
	}
}

void gm_core_land(struct gm_core *core, uint32_t layer, uint32_t expert)
{
	struct pool *pool = gm_core_pool(core, layer);

	gm_core_land_item(core, pool, layer * core->config->n_expert + expert - pool->first_item);
}

void gm_core_expect(struct gm_core *core, uint32_t layer, const uint16_t *expert, uint32_t n)
{
	const struct gm_core_config *config = core->config;
	const struct pool *pool = gm_core_pool(core, layer);
	size_t first = (size_t)layer * config->n_expert;
	const uint8_t *residency = gm_core_residency(core, layer);
	struct gm_requests requests = {.n = n, .expert = expert, .first_item = (uint32_t)(first - pool->first_item)};

	for (uint32_t i = 0; i < n; i++)
		gm_prefetch(&residency[expert[i]]);
	if (config->evict.ops->expect)
		config->evict.ops->expect(gm_core_at(core, pool->evict), &requests);
	if (config->admit.ops->expect)
		config->admit.ops->expect(gm_core_at(core, pool->admit), &requests);
}

static void load(const void *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 64)
		gm_prefetch((const char *)from + i);
}

void gm_core_expect_layer(const struct gm_core *core, uint32_t layer)
{
	const struct pool *pools = at_const(core, core->pools);
	const struct pool *pool = &pools[core->n_pool == 1 ? 0 : layer];
	size_t end = pool + 1 < pools + core->n_pool ? pool[1].reserved : core->bytes;
	size_t first = (size_t)layer * core->config->n_expert;

	load((const uint8_t *)at_const(core, core->residency) + first, core->config->n_expert);
	load((const uint8_t *)at_const(core, core->pin) + first, core->config->n_expert);
	load(at_const(core, pool->evict), end - pool->evict);
}

const uint8_t *gm_core_residency(const struct gm_core *core, uint32_t layer)
{
	return (const uint8_t *)at_const(core, core->residency) + (size_t)layer * core->config->n_expert;
}

uint32_t gm_core_n_resident(const struct gm_core *core, uint32_t layer)
{
	const struct pool *pools = at_const(core, core->pools);

	return pools[core->n_pool == 1 ? 0 : layer].n_resident;
}

const uint32_t *gm_core_reserved(const struct gm_core *core, uint32_t layer, uint32_t *n)
{
	const struct pool *pools = at_const(core, core->pools);
	const struct pool *pool = &pools[core->n_pool == 1 ? 0 : layer];

	*n = pool->n_reserved;
	return at_const(core, pool->reserved);
}

const struct gm_arrivals gm_arrivals_instant = {.begin = NULL, .end = NULL};
