/* Experts that stay in the model's file, and are read when they are wanted (engine/store.h): llama.cpp gets tensors without memory. */
#include "engine/plugin_private.h"

#include <gguf.h>
#include <stdlib.h>
#include <string.h>

/* Experts that may be held at once: as many as can be on their way to slots. */
#define MAX_HELD 4096u

struct opening {
	struct gm_plugin *plugin;
	const char *path;           /* of the part of the model that is read */
	struct gguf_context *gguf;  /* its header */
	uint32_t n_layer, n_expert; /* counted so far */
};

/* Calls each for every expert tensor of the file that is open. */
static int each_tensor(struct opening *o,
		       int (*each)(struct opening *o, int64_t tensor, uint32_t layer, uint32_t part, struct gm_error *err),
		       struct gm_error *err)
{
	for (int64_t t = 0; t < gguf_get_n_tensors(o->gguf); t++) {
		uint32_t layer, part;

		if (plugin_parse_name(gguf_get_tensor_name(o->gguf, t), &layer, &part))
			GM_TRY(each(o, t, layer, part, err));
	}
	return GM_OK;
}

static int count(struct opening *o, int64_t tensor, uint32_t layer, uint32_t part, struct gm_error *err)
{
	uint32_t n_expert = (uint32_t)gguf_get_tensor_ne(o->gguf, tensor)[2];

	(void)part;
	if (o->n_expert && n_expert != o->n_expert)
		return gm_fail(err, GM_ERR_UNSUPPORTED, "layers of %u and of %u experts: %s", o->n_expert, n_expert,
			       o->path);
	o->n_expert = n_expert;
	if (o->plugin->store_layer[layer] == UINT32_MAX)
		o->plugin->store_layer[layer] = o->n_layer++;
	return GM_OK;
}

static int add(struct opening *o, int64_t tensor, uint32_t layer, uint32_t part, struct gm_error *err)
{
	const struct gm_expert_store_part desc = {
		.name = gguf_get_tensor_name(o->gguf, tensor),
		.expert_bytes = gguf_get_tensor_size(o->gguf, tensor) / o->n_expert,
		.path = o->path,
		.offset = gguf_get_data_offset(o->gguf) + gguf_get_tensor_offset(o->gguf, tensor),
	};

	return gm_expert_store_add(o->plugin->store, o->plugin->store_layer[layer], part, &desc, err);
}

static uint32_t count_splits(const struct gguf_context *gguf)
{
	int64_t key = gguf_find_key(gguf, "split.count");

	return key >= 0 && gguf_get_kv_type(gguf, key) == GGUF_TYPE_UINT16 ? gguf_get_val_u16(gguf, key) : 0;
}

/* "NAME-00001-of-00003.gguf": the path of another part. */
static int split_path(const char *first, uint32_t i, uint32_t n, char *path, size_t size, struct gm_error *err)
{
	char tail[32];
	size_t length = strlen(first), tail_length;

	snprintf(tail, sizeof(tail), "-00001-of-%05u.gguf", n);
	tail_length = strlen(tail);
	if (length < tail_length || length >= size || strcmp(first + length - tail_length, tail) != 0)
		return gm_fail(err, GM_ERR_USAGE, "not the first part of a model: %s: give ...%s", first, tail);
	snprintf(path, size, "%.*s-%05u-of-%05u.gguf", (int)(length - tail_length), first, i + 1, n);
	return GM_OK;
}

/* The same for every file of the model. */
static int each_file(struct opening *o, const char *model,
		     int (*each)(struct opening *o, int64_t tensor, uint32_t layer, uint32_t part, struct gm_error *err),
		     struct gm_error *err)
{
	const struct gguf_init_params params = {.no_alloc = true};
	char path[4096];
	uint32_t n = 1;
	int status = GM_OK;

	for (uint32_t i = 0; i < n && status == GM_OK; i++) {
		o->path = model;
		if (n > 1) {
			GM_TRY(split_path(model, i, n, path, sizeof(path), err));
			o->path = path;
		}
		o->gguf = gguf_init_from_file(o->path, params);
		if (!o->gguf)
			return gm_fail(err, GM_ERR_FORMAT, "no GGUF, or damaged: %s", o->path);
		if (i == 0 && count_splits(o->gguf) > 1)
			n = count_splits(o->gguf);
		status = each_tensor(o, each, err);
		gguf_free(o->gguf);
	}
	return status;
}

int plugin_store_open(struct gm_plugin *plugin, const struct gm_plugin_options *options, struct gm_error *err)
{
	struct opening o = {.plugin = plugin};
	struct gm_expert_store_options store = {
		.kind = options->experts,
		.host_bytes = options->host_bytes,
		.max_held = MAX_HELD,
		.throttle = options->disk,
	};

	for (uint32_t l = 0; l < MAX_MODEL_LAYER; l++)
		plugin->store_layer[l] = UINT32_MAX;
	GM_TRY(each_file(&o, options->model, count, err));
	if (o.n_layer == 0)
		return gm_fail(err, GM_ERR_UNSUPPORTED, "no expert tensors: %s", options->model);
	store.n_layer = o.n_layer;
	store.n_expert = o.n_expert;
	plugin->store = gm_expert_store_new(&store, err);
	if (!plugin->store)
		return GM_ERR_MEMORY;
	GM_TRY(each_file(&o, options->model, add, err));
	return gm_expert_store_start(plugin->store, err);
}

static void on_read(void *user, uint32_t layer, uint32_t expert, double start_us, double end_us)
{
	const struct gm_plugin *plugin = user;
	uint32_t l = 0;

	/* the store counts the file's layers with experts, the plugin those that the schedules are about */
	while (l < plugin->n_layer && plugin->store_layer[plugin->model_layer[l]] != layer)
		l++;
	gm_spans_add(plugin->spans, GM_LANE_DISK, "read", l, expert, start_us, end_us);
}

void plugin_watch_reads(struct gm_plugin *plugin, bool wanted)
{
	if (plugin->store)
		gm_expert_store_watch(plugin->store, wanted ? on_read : NULL, plugin);
}

/* --- experts, wherever they lie --- */

int plugin_hold(struct gm_plugin *plugin, uint32_t model_layer, uint32_t expert, struct plugin_expert *held,
		struct gm_error *err)
{
	int status;

	memset(held, 0, sizeof(*held));
	if (!plugin->store) {
		for (int part = 0; part < GM_PLUGIN_MAX_PART; part++) {
			const struct ggml_tensor *tensor = plugin->weight[model_layer][part].tensor;

			if (tensor)
				held->from[part] = (const char *)tensor->data + expert * tensor->nb[2];
		}
		return GM_OK;
	}
	GM_TRY(gm_expert_store_issue(plugin->store, plugin->store_layer[model_layer], expert, &held->read, err));
	status = gm_expert_store_wait(plugin->store, held->read, held->from, err);
	if (status < 0)
		gm_expert_store_release(plugin->store, held->read);
	return status;
}

void plugin_let_go(struct gm_plugin *plugin, const struct plugin_expert *held)
{
	if (plugin->store)
		gm_expert_store_release(plugin->store, held->read);
}
