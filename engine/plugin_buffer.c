/* Memory of the expert tensors: on the host, where copies to the inner device are fastest from, but not what ggml calls a host buffer, so
 * that no other backend computes with it. */
#include "engine/plugin_private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct memory {
	struct gm_plugin *plugin;
	void *base;
	ggml_backend_buffer_t pinned; /* holds base; NULL: the heap does */
	size_t reserved;              /* addresses alone, for tensors that stay in the file; 0: memory */
};

static const char *const part_names[GM_PLUGIN_MAX_PART] = {"gate", "up", "down", "gate_up"};

static const char *type_name(ggml_backend_buffer_type_t type)
{
	(void)type;
	return "gatemass experts";
}

static size_t type_alignment(ggml_backend_buffer_type_t type)
{
	(void)type;
	return PLUGIN_ALIGNMENT;
}

static bool type_is_host(ggml_backend_buffer_type_t type)
{
	(void)type;
	return false;
}

/* "blk.7.ffn_up_exps.weight" */
bool plugin_parse_name(const char *name, uint32_t *layer, uint32_t *part)
{
	char wanted[GGML_MAX_NAME];
	char *end;
	unsigned long number;

	if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9')
		return false;
	number = strtoul(name + 4, &end, 10);
	if (number >= MAX_MODEL_LAYER)
		return false;
	*layer = (uint32_t)number;
	for (*part = 0; *part < GM_PLUGIN_MAX_PART; ++*part) {
		snprintf(wanted, sizeof(wanted), ".ffn_%s_exps.weight", part_names[*part]);
		if (strcmp(end, wanted) == 0)
			return true;
	}
	return false;
}

static enum ggml_status init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor)
{
	struct gm_plugin *plugin = ((struct memory *)buffer->context)->plugin;
	struct plugin_weight *weight;
	uint32_t layer, part;

	if (!plugin_parse_name(tensor->name, &layer, &part)) {
		gm_fail(&plugin->err, GM_ERR_UNSUPPORTED, "not an expert tensor: %s: blk.N.ffn_*_exps.weight",
			tensor->name);
		return GGML_STATUS_FAILED;
	}
	weight = &plugin->weight[layer][part];
	*weight = (struct plugin_weight){.plugin = plugin, .tensor = tensor, .model_layer = layer, .part = part};
	tensor->extra = weight;
	return GGML_STATUS_SUCCESS;
}

struct plugin_weight *plugin_weight_of(const struct ggml_tensor *tensor)
{
	if (!tensor || !tensor->buffer || tensor->buffer->buft->iface.get_name != type_name)
		return NULL;
	return tensor->extra;
}

static void buffer_free(ggml_backend_buffer_t buffer)
{
	struct memory *memory = buffer->context;
	const struct gm_plugin_copier *copier = &memory->plugin->copier;

	if (copier->stop)
		copier->stop(copier->user);
	if (memory->reserved)
		munmap(memory->base, memory->reserved);
	else if (memory->pinned)
		ggml_backend_buffer_free(memory->pinned);
	else
		free(memory->base);
	free(memory);
}

static void *buffer_base(ggml_backend_buffer_t buffer)
{
	return ((struct memory *)buffer->context)->base;
}

static bool is_in_file(ggml_backend_buffer_t buffer)
{
	return ((struct memory *)buffer->context)->reserved > 0;
}

/* What the file holds stands there already. */
static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset,
		       size_t size)
{
	if (!is_in_file(buffer))
		memcpy((char *)tensor->data + offset, data, size);
}

static void buffer_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset,
			  size_t size)
{
	if (!is_in_file(buffer))
		memset((char *)tensor->data + offset, value, size);
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value)
{
	if (!is_in_file(buffer))
		memset(buffer_base(buffer), value, buffer->size);
}

/* ggml gives no way to say that this failed: zeros are what is read then. */
static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset,
		       size_t size)
{
	struct plugin_weight *weight = plugin_weight_of(tensor);
	char *to = data;

	(void)buffer;
	for (size_t n; size > 0; to += n, offset += n, size -= n) {
		size_t within = offset % tensor->nb[2];
		struct plugin_expert held;

		n = size < tensor->nb[2] - within ? size : tensor->nb[2] - within;
		if (plugin_hold(weight->plugin, weight->model_layer, (uint32_t)(offset / tensor->nb[2]), &held,
				&weight->plugin->err) < 0) {
			memset(to, 0, n);
			continue;
		}
		memcpy(to, (const char *)held.from[weight->part] + within, n);
		plugin_let_go(weight->plugin, &held);
	}
}

/* Memory that the inner device copies from at full speed, where it has such. */
static bool allocate(struct memory *memory, ggml_backend_dev_t inner, size_t size)
{
	ggml_backend_buffer_type_t pinned = ggml_backend_dev_host_buffer_type(inner);

	if (memory->plugin->store) {
		memory->reserved = size ? size : 1;
		memory->base = mmap(NULL, memory->reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		return memory->base != MAP_FAILED;
	}
	if (pinned && (memory->pinned = ggml_backend_buft_alloc_buffer(pinned, size))) {
		memory->base = ggml_backend_buffer_get_base(memory->pinned);
		return true;
	}
	return posix_memalign(&memory->base, PLUGIN_ALIGNMENT, size ? size : PLUGIN_ALIGNMENT) == 0;
}

static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, size_t size)
{
	const struct ggml_backend_buffer_i iface = {
		.free_buffer = buffer_free,
		.get_base = buffer_base,
		.init_tensor = init_tensor,
		.memset_tensor = buffer_memset,
		.set_tensor = buffer_set,
		.get_tensor = buffer_get,
		.clear = buffer_clear,
	};
	struct gm_plugin *plugin = type->context;
	struct memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return NULL;
	memory->plugin = plugin;
	if (!allocate(memory, plugin_inner(plugin->device), size)) {
		free(memory);
		return NULL;
	}
	return ggml_backend_buffer_init(type, iface, memory, size);
}

void plugin_buffer_type_init(struct gm_plugin *plugin)
{
	plugin->buffer_type = (struct ggml_backend_buffer_type){
		.iface = {.get_name = type_name,
			  .alloc_buffer = type_alloc,
			  .get_alignment = type_alignment,
			  .is_host = type_is_host},
		.device = plugin->device,
		.context = plugin,
	};
}
