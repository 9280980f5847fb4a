/* The plugin as ggml sees it: a registry, a device over each inner device in use, and a backend in every context (see plugin.h). */
#include "engine/plugin_private.h"

#include <stdlib.h>
#include <string.h>

/* ggml keeps pointers to registries and devices for good, so there is one of each in a process. */
enum { MAX_DEVICE = 16 };
static struct device {
	struct ggml_backend_device base;
	ggml_backend_dev_t inner;
	struct ggml_backend_buffer_type results;
	char name[64], description[128];
} devices[MAX_DEVICE];
static size_t n_device;
static struct ggml_backend_reg registry;

static struct device *device_of(ggml_backend_dev_t dev)
{
	return dev->context;
}

ggml_backend_dev_t plugin_inner(ggml_backend_dev_t dev)
{
	return device_of(dev)->inner;
}

/* --- a context's backend --- */

static const char *backend_name(ggml_backend_t backend)
{
	return device_of(backend->device)->name;
}

static void backend_free(ggml_backend_t backend)
{
	plugin_backend_close(backend->context);
	free(backend->context);
	free(backend);
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
	return plugin_compute(backend->context, graph);
}

static ggml_guid_t guid(void)
{
	static ggml_guid bytes = {'g', 'a', 't', 'e', 'm', 'a', 's', 's', ' ', 'e', 'x', 'p', 'e', 'r', 't', 's'};

	return &bytes;
}

static ggml_backend_t init_backend(ggml_backend_dev_t dev, const char *params)
{
	ggml_backend_t backend = calloc(1, sizeof(*backend));
	struct plugin_backend *context = calloc(1, sizeof(*context));

	(void)params;
	if (!backend || !context)
		goto failed;
	if (plugin_backend_open(context, plugin_inner(dev)) < 0) {
		plugin_backend_close(context);
		goto failed;
	}
	backend->guid = guid();
	backend->iface =
		(struct ggml_backend_i){.get_name = backend_name, .free = backend_free, .graph_compute = backend_compute};
	backend->device = dev;
	backend->context = context;
	return backend;
failed:
	free(backend);
	free(context);
	return NULL;
}

static void set_n_threads(ggml_backend_t backend, int n_threads)
{
	const struct plugin_backend *context = backend->context;
	ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(plugin_inner(backend->device));
	ggml_backend_set_n_threads_t set;

	*(void **)&set = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
	if (set)
		set(context->inner, n_threads);
}

/* --- the device --- */

static const char *device_name(ggml_backend_dev_t dev)
{
	return device_of(dev)->name;
}

static const char *device_description(ggml_backend_dev_t dev)
{
	return device_of(dev)->description;
}

static void device_memory(ggml_backend_dev_t dev, size_t *free_bytes, size_t *total_bytes)
{
	(void)dev;
	*free_bytes = *total_bytes = 0; /* the inner device's, which tells it itself */
}

/* So that llama.cpp takes it into every context by itself, between GPUs and CPU. */
static enum ggml_backend_dev_type device_type(ggml_backend_dev_t dev)
{
	(void)dev;
	return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static void device_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props)
{
	memset(props, 0, sizeof(*props));
	props->name = device_name(dev);
	props->description = device_description(dev);
	props->type = device_type(dev);
}

/* Activations stay in the inner device's memory. A GPU's under a type of ours, which it takes for its own: the scheduler gives what we compute to
 * another backend if it can, and has the same type, and what stands between two multiplications belongs here. */
static ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t dev)
{
	ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(plugin_inner(dev));

	return ggml_backend_buft_is_host(type) ? type : &device_of(dev)->results;
}

static bool is_ours(ggml_backend_dev_t dev, const struct ggml_tensor *tensor)
{
	const struct plugin_weight *weight = plugin_weight_of(tensor);

	return weight && weight->plugin->device == dev;
}

/* A multiplication with our tensors, or one with a bias of each expert added. */
static bool multiplies(ggml_backend_dev_t dev, const struct ggml_tensor *op)
{
	if (op && op->view_src)
		op = op->view_src;
	if (op && op->op == GGML_OP_ADD_ID)
		op = op->src[0];
	return op && op->op == GGML_OP_MUL_MAT_ID && is_ours(dev, op->src[0]);
}

/* Multiplications with our tensors; the tensors themselves, or the scheduler aborts; and what stands between two multiplications. */
static bool supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op)
{
	if (op->op == GGML_OP_NONE)
		return is_ours(dev, op);
	if (op->op == GGML_OP_GLU)
		return multiplies(dev, op->src[0]) && (!op->src[1] || multiplies(dev, op->src[1]));
	return multiplies(dev, op);
}

static bool supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t type)
{
	return type->device == dev || ggml_backend_dev_supports_buft(plugin_inner(dev), type);
}

/* --- the registry --- */

static const char *registry_name(ggml_backend_reg_t reg)
{
	(void)reg;
	return "gatemass";
}

static size_t registry_count(ggml_backend_reg_t reg)
{
	(void)reg;
	return n_device;
}

static ggml_backend_dev_t registry_device(ggml_backend_reg_t reg, size_t index)
{
	(void)reg;
	return &devices[index].base;
}

static void *registry_address(ggml_backend_reg_t reg, const char *name)
{
	void *address = NULL;

	(void)reg;
	if (strcmp(name, "ggml_backend_set_n_threads") == 0)
		*(void (**)(ggml_backend_t, int)) & address = set_n_threads;
	return address;
}

static void init_registry(void)
{
	registry.api_version = GGML_BACKEND_API_VERSION;
	registry.iface = (struct ggml_backend_reg_i){.get_name = registry_name,
						     .get_device_count = registry_count,
						     .get_device = registry_device,
						     .get_proc_address = registry_address};
}

/* Ours over an inner device. *is_new: ggml does not know it yet. */
static ggml_backend_dev_t find_device(ggml_backend_dev_t inner, bool *is_new, struct gm_error *err)
{
	struct device *device;

	*is_new = false;
	for (size_t i = 0; i < n_device; i++)
		if (devices[i].inner == inner)
			return &devices[i].base;
	if (n_device == MAX_DEVICE) {
		gm_fail(err, GM_ERR_UNSUPPORTED, "caches over %d devices in one process", MAX_DEVICE);
		return NULL;
	}
	init_registry();
	device = &devices[n_device];
	device->inner = inner;
	device->results = *ggml_backend_dev_buffer_type(inner);
	snprintf(device->name, sizeof(device->name), "gatemass-%.40s", ggml_backend_dev_name(inner));
	snprintf(device->description, sizeof(device->description), "expert cache on %.60s", ggml_backend_dev_name(inner));
	device->base.iface = (struct ggml_backend_device_i){.get_name = device_name,
							    .get_description = device_description,
							    .get_memory = device_memory,
							    .get_type = device_type,
							    .get_props = device_props,
							    .init_backend = init_backend,
							    .get_buffer_type = device_buffer_type,
							    .supports_op = supports_op,
							    .supports_buft = supports_buft};
	device->base.reg = &registry;
	device->base.context = device;
	n_device++;
	*is_new = true;
	return &device->base;
}

/* --- life --- */

static ggml_backend_dev_t choose_inner(const char *name, bool gpu, struct gm_error *err)
{
	ggml_backend_dev_t inner = NULL;

	if (name) {
		inner = ggml_backend_dev_by_name(name);
		if (!inner)
			gm_fail(err, GM_ERR_USAGE, "no such device: %.80s: a name that ggml lists", name);
		return inner;
	}
	if (gpu)
		inner = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
	if (!inner)
		inner = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
	if (!inner)
		gm_fail(err, GM_ERR_UNSUPPORTED, "ggml has no device");
	return inner;
}

ggml_backend_reg_t plugin_registry(void)
{
	ggml_backend_dev_t inner = choose_inner(NULL, true, NULL);
	bool is_new;

	init_registry();
	if (inner)
		find_device(inner, &is_new, NULL);
	return &registry;
}

static int init_plugin(struct gm_plugin *plugin, const struct gm_plugin_options *options, ggml_backend_dev_t inner,
		       struct gm_error *err)
{
	bool is_new;

	plugin->weight = gm_alloc(MAX_MODEL_LAYER, sizeof(*plugin->weight), err);
	plugin->moe_layer = gm_alloc(MAX_MODEL_LAYER, sizeof(*plugin->moe_layer), err);
	plugin->store_layer = gm_alloc(MAX_MODEL_LAYER, sizeof(*plugin->store_layer), err);
	if (!plugin->weight || !plugin->moe_layer || !plugin->store_layer)
		return GM_ERR_MEMORY;
	plugin->device = find_device(inner, &is_new, err);
	if (!plugin->device)
		return GM_ERR_UNSUPPORTED;
	if (is_new)
		ggml_backend_device_register(plugin->device);
	plugin_buffer_type_init(plugin);
	return options->experts == GM_EXPERT_STORE_MEMORY ? GM_OK : plugin_store_open(plugin, options, err);
}

struct gm_plugin *gm_plugin_new(const struct gm_plugin_options *options, struct gm_error *err)
{
	ggml_backend_dev_t inner = choose_inner(options->device, options->gpu, err);
	struct gm_plugin *plugin = inner ? gm_alloc(1, sizeof(*plugin), err) : NULL;

	if (plugin && init_plugin(plugin, options, inner, err) < 0) {
		gm_plugin_free(plugin);
		return NULL;
	}
	return plugin;
}

void gm_plugin_free(struct gm_plugin *plugin)
{
	if (!plugin)
		return;
	for (uint32_t p = 0; p < plugin->n_pool; p++)
		for (int part = 0; part < GM_PLUGIN_MAX_PART; part++)
			plugin_slots_free(&plugin->slots[p][part]);
	if (plugin->link)
		ggml_backend_free(plugin->link);
	gm_expert_store_close(plugin->store);
	free(plugin->store_layer);
	free(plugin->slots);
	free(plugin->weight);
	free(plugin->model_layer);
	free(plugin->moe_layer);
	free(plugin);
}

struct ggml_backend_buffer_type *gm_plugin_buffer_type(struct gm_plugin *plugin)
{
	return &plugin->buffer_type;
}

const char *gm_plugin_device(const struct gm_plugin *plugin)
{
	return ggml_backend_dev_name(plugin_inner(plugin->device));
}

void gm_plugin_set_spans(struct gm_plugin *plugin, struct gm_spans *spans)
{
	plugin_watch_reads(plugin, false); /* the reader's thread may be about to tell */
	plugin->spans = spans;
	plugin_watch_reads(plugin, spans != NULL);
}

void gm_plugin_schedule(struct gm_plugin *plugin, const struct gm_schedule *schedule)
{
	plugin->schedule = schedule;
	plugin->n_schedule++;
}

const struct gm_error *gm_plugin_error(const struct gm_plugin *plugin)
{
	return &plugin->err;
}

void gm_plugin_refuse(struct gm_plugin *plugin, const struct gm_error *why)
{
	gm_fail(&plugin->err, why->code, "%s", why->text);
}

void gm_plugin_stats(const struct gm_plugin *plugin, struct gm_plugin_stats *stats)
{
	struct gm_expert_store_stats store;

	*stats = plugin->stats;
	if (!plugin->store)
		return;
	gm_expert_store_stats(plugin->store, &store);
	stats->n_read = store.n_read;
	stats->read_bytes = store.bytes_read;
	stats->read_us = store.read_us;
}
