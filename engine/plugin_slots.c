/* Slots on the inner device, and plain copies into them. */
#include "engine/link.h"
#include "engine/plugin_private.h"

#include <stdlib.h>
#include <string.h>

int plugin_slots_make(struct plugin_slots *slots, ggml_backend_dev_t inner, const struct ggml_tensor *weight,
		      uint32_t n_slot, struct gm_error *err)
{
	const struct ggml_init_params params = {.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true};

	slots->context = ggml_init(params);
	if (!slots->context)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory");
	slots->tensor = ggml_new_tensor_3d(slots->context, weight->type, weight->ne[0], weight->ne[1], n_slot);
	ggml_format_name(slots->tensor, "slots of %s", weight->name);
	slots->buffer = ggml_backend_alloc_ctx_tensors_from_buft(slots->context, ggml_backend_dev_buffer_type(inner));
	if (!slots->buffer)
		return gm_fail(err, GM_ERR_MEMORY, "no memory for %u slots of %zu bytes: %s: a smaller --cache", n_slot,
			       slots->tensor->nb[2], ggml_backend_dev_name(inner));
	ggml_backend_buffer_clear(slots->buffer, 0); /* what is multiplied with a weight of 0 must be finite */
	ggml_backend_buffer_set_usage(slots->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
	return GM_OK;
}

void plugin_slots_free(struct plugin_slots *slots)
{
	if (slots->buffer)
		ggml_backend_buffer_free(slots->buffer);
	if (slots->context)
		ggml_free(slots->context);
	memset(slots, 0, sizeof(*slots));
}

/* --- pools --- */

static void free_pools(struct gm_plugin *plugin)
{
	for (uint32_t p = 0; plugin->slots && p < plugin->n_pool; p++)
		for (int part = 0; part < GM_PLUGIN_MAX_PART; part++)
			plugin_slots_free(&plugin->slots[p][part]);
	for (uint32_t l = 0; l < MAX_MODEL_LAYER; l++)
		for (int part = 0; part < GM_PLUGIN_MAX_PART; part++)
			plugin->weight[l][part].slots = NULL;
	free(plugin->slots);
	free(plugin->model_layer);
	plugin->slots = NULL;
	plugin->model_layer = NULL;
	plugin->n_pool = plugin->n_layer = 0;
}

static bool same_shape(const struct ggml_tensor *a, const struct ggml_tensor *b)
{
	return !a == !b && (!a || (a->type == b->type && ggml_are_same_shape(a, b)));
}

static int make_pool(struct gm_plugin *plugin, uint32_t pool, uint32_t model_layer, uint32_t n_slot, struct gm_error *err)
{
	bool any = false;

	for (int part = 0; part < GM_PLUGIN_MAX_PART; part++) {
		const struct plugin_weight *weight = &plugin->weight[model_layer][part];

		if (!weight->tensor)
			continue;
		any = true;
		GM_TRY(plugin_slots_make(&plugin->slots[pool][part], plugin_inner(plugin->device), weight->tensor, n_slot,
					 err));
	}
	return any ? GM_OK : gm_fail(err, GM_ERR_UNSUPPORTED, "no expert tensors: layer %u", model_layer);
}

static int make_pools(struct gm_plugin *plugin, const struct gm_plugin_pools *pools, struct gm_error *err)
{
	for (uint32_t l = 0; l < pools->n_layer; l++) {
		struct plugin_weight *weight = plugin->weight[pools->model_layer[l]];
		uint32_t pool = pools->shared ? 0 : l;

		if (l == 0 || !pools->shared)
			GM_TRY(make_pool(plugin, pool, pools->model_layer[l], pools->n_slot[l], err));
		for (int part = 0; part < GM_PLUGIN_MAX_PART; part++) {
			if (!same_shape(weight[part].tensor, plugin->weight[pools->model_layer[pool]][part].tensor))
				return gm_fail(
					err, GM_ERR_UNSUPPORTED,
					"one pool for experts of different shape: layers %u and %u: --cache-scope layer",
					pools->model_layer[0], pools->model_layer[l]);
			if (weight[part].tensor)
				weight[part].slots = &plugin->slots[pool][part];
		}
	}
	return GM_OK;
}

int gm_plugin_make_pools(struct gm_plugin *plugin, const struct gm_plugin_pools *pools, struct gm_error *err)
{
	int status;

	free_pools(plugin);
	memset(&plugin->stats, 0, sizeof(plugin->stats));
	plugin->n_layer = pools->n_layer;
	plugin->n_pool = pools->shared ? 1 : pools->n_layer;
	plugin->slots = gm_alloc(plugin->n_pool, sizeof(*plugin->slots), err);
	plugin->model_layer = gm_alloc(pools->n_layer, sizeof(*plugin->model_layer), err);
	status = plugin->slots && plugin->model_layer ? GM_OK : GM_ERR_MEMORY;
	for (uint32_t l = 0; l < MAX_MODEL_LAYER; l++)
		plugin->moe_layer[l] = UINT32_MAX;
	for (uint32_t l = 0; status == GM_OK && l < pools->n_layer; l++) {
		plugin->model_layer[l] = pools->model_layer[l];
		plugin->moe_layer[pools->model_layer[l]] = l;
	}
	if (status == GM_OK)
		status = make_pools(plugin, pools, err);
	if (status < 0)
		free_pools(plugin);
	return status;
}

uint64_t gm_plugin_expert_bytes(const struct gm_plugin *plugin, uint32_t model_layer)
{
	uint64_t bytes = 0;

	for (int part = 0; part < GM_PLUGIN_MAX_PART; part++) {
		const struct ggml_tensor *tensor = plugin->weight[model_layer][part].tensor;

		bytes += tensor ? tensor->nb[2] : 0;
	}
	return bytes;
}

uint64_t gm_plugin_pool_bytes(const struct gm_plugin *plugin)
{
	uint64_t bytes = 0;

	for (uint32_t p = 0; p < plugin->n_pool; p++)
		for (int part = 0; part < GM_PLUGIN_MAX_PART; part++)
			if (plugin->slots[p][part].tensor)
				bytes += ggml_nbytes(plugin->slots[p][part].tensor);
	return bytes;
}

/* --- copies --- */

int gm_plugin_request(struct gm_plugin *plugin, uint32_t layer, uint32_t expert, uint32_t slot, uint32_t only,
		      struct gm_link_request *request, struct gm_error *err)
{
	uint32_t model_layer = plugin->model_layer[layer];

	memset(request, 0, sizeof(*request));
	for (uint32_t part = 0; part < GM_PLUGIN_MAX_PART; part++) {
		const struct plugin_weight *weight = &plugin->weight[model_layer][part];
		struct gm_link_piece *piece = &request->piece[part];

		if (!weight->tensor || (only < GM_PLUGIN_MAX_PART && part != only))
			continue;
		piece->bytes = weight->tensor->nb[2];
		piece->to = weight->slots->tensor;
		piece->offset = slot * piece->bytes;
		if (!plugin->store)
			piece->from = (const char *)weight->tensor->data + expert * piece->bytes;
	}
	request->pending = plugin->store != NULL;
	if (!request->pending)
		return GM_OK;
	return gm_expert_store_issue(plugin->store, plugin->store_layer[model_layer], expert, &request->read, err);
}

void gm_plugin_give_back(struct gm_plugin *plugin, const struct gm_link_request *request)
{
	if (request->pending)
		gm_expert_store_release(plugin->store, request->read);
}

int gm_plugin_put(struct gm_plugin *plugin, uint32_t layer, uint32_t expert, uint32_t slot, struct gm_error *err)
{
	uint32_t model_layer = plugin->model_layer[layer];
	struct plugin_expert held;

	GM_TRY(plugin_hold(plugin, model_layer, expert, &held, err));
	for (int part = 0; part < GM_PLUGIN_MAX_PART; part++) {
		const struct plugin_weight *weight = &plugin->weight[model_layer][part];

		if (weight->tensor)
			ggml_backend_tensor_set(weight->slots->tensor, held.from[part], slot * weight->tensor->nb[2],
						weight->tensor->nb[2]);
	}
	plugin_let_go(plugin, &held);
	return GM_OK;
}

void gm_plugin_reset_store(struct gm_plugin *plugin)
{
	if (plugin->store)
		gm_expert_store_reset(plugin->store);
}

struct gm_link_source gm_plugin_link_source(struct gm_plugin *plugin)
{
	return plugin->store ? gm_link_expert_store(plugin->store) : (struct gm_link_source){0};
}

static int link_copy(void *user, void *to, size_t offset, const void *from, size_t bytes, struct gm_error *err)
{
	(void)err;
	ggml_backend_tensor_set_async(((struct gm_plugin *)user)->link, to, from, offset, bytes);
	return GM_OK;
}

static int link_finish(void *user, struct gm_error *err)
{
	(void)err;
	ggml_backend_synchronize(((struct gm_plugin *)user)->link);
	return GM_OK;
}

int gm_plugin_link_ops(struct gm_plugin *plugin, struct gm_link_ops *ops, struct gm_error *err)
{
	if (!plugin->link)
		plugin->link = ggml_backend_dev_init(plugin_inner(plugin->device), NULL);
	if (!plugin->link)
		return gm_fail(err, GM_ERR_MEMORY, "no stream for copies: %s", gm_plugin_device(plugin));
	*ops = (struct gm_link_ops){.copy = link_copy, .finish = link_finish, .user = plugin};
	return GM_OK;
}

void gm_plugin_set_copier(struct gm_plugin *plugin, const struct gm_plugin_copier *copier)
{
	plugin->copier = copier ? *copier : (struct gm_plugin_copier){0};
}
