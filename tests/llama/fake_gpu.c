#include "tests/llama/fake_gpu.h"

#include "recorder/capture_cuda.h"

#include <dlfcn.h>
#include <ggml-backend-impl.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 128u

/* ggml keeps pointers to these, so there is one of each. */
static const struct gm_cuda *runtime;
static struct ggml_backend_buffer_type buffer_type;
static struct ggml_backend_device device;
static struct ggml_backend_reg registry;

static ggml_backend_dev_t cpu(void)
{
	return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

/* --- memory --- */

static const char *buffer_type_name(ggml_backend_buffer_type_t type)
{
	(void)type;
	return "CUDA0";
}

static size_t alignment(ggml_backend_buffer_type_t type)
{
	(void)type;
	return ALIGNMENT;
}

static bool is_host(ggml_backend_buffer_type_t type)
{
	(void)type;
	return false;
}

static void free_buffer(ggml_backend_buffer_t buffer)
{
	runtime->cudaFree(buffer->context);
}

static void *get_base(ggml_backend_buffer_t buffer)
{
	return (void *)(((uintptr_t)buffer->context + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

static void memset_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset,
			  size_t size)
{
	(void)buffer;
	memset((char *)tensor->data + offset, value, size);
}

static void set_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset,
		       size_t size)
{
	(void)buffer;
	memcpy((char *)tensor->data + offset, data, size);
}

static void get_tensor(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset,
		       size_t size)
{
	(void)buffer;
	memcpy(data, (const char *)tensor->data + offset, size);
}

static void clear(ggml_backend_buffer_t buffer, uint8_t value)
{
	memset(get_base(buffer), value, buffer->size);
}

static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size)
{
	const struct ggml_backend_buffer_i iface = {.free_buffer = free_buffer,
						    .get_base = get_base,
						    .memset_tensor = memset_tensor,
						    .set_tensor = set_tensor,
						    .get_tensor = get_tensor,
						    .clear = clear};
	void *memory;

	if (runtime->cudaMalloc(&memory, size + ALIGNMENT) != cudaSuccess)
		return NULL;
	return ggml_backend_buffer_init(type, iface, memory, size);
}

/* --- computing --- */

static const char *device_name(ggml_backend_dev_t dev)
{
	(void)dev;
	return "CUDA0";
}

static const char *backend_name(ggml_backend_t backend)
{
	(void)backend;
	return "CUDA0";
}

static void backend_free(ggml_backend_t backend)
{
	ggml_backend_free(backend->context);
	free(backend);
}

static atomic_ulong n_down;

static bool is_down(const struct ggml_tensor *node)
{
	return node->op == GGML_OP_MUL_MAT_ID && node->ne[0] > node->src[1]->ne[0];
}

static enum ggml_status compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
	for (int i = 0; i < ggml_graph_n_nodes(graph); i++)
		n_down += is_down(ggml_graph_node(graph, i));
	return ggml_backend_graph_compute(backend->context, graph);
}

unsigned long fake_gpu_n_down(void)
{
	return n_down;
}

static ggml_guid_t guid(void)
{
	static ggml_guid bytes = {'g', 'm', 'f', 'a', 'k', 'e'};

	return &bytes;
}

/* The CPU backend with one thread: more, on cores that are not free, are hundreds of times slower. */
static ggml_backend_t init_cpu(void)
{
	ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(cpu());
	ggml_backend_t backend = ggml_backend_dev_init(cpu(), NULL);
	ggml_backend_set_n_threads_t set_n_threads;

	*(void **)&set_n_threads = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
	if (backend && set_n_threads)
		set_n_threads(backend, 1);
	return backend;
}

static ggml_backend_t init_backend(ggml_backend_dev_t dev, const char *params)
{
	ggml_backend_t backend = calloc(1, sizeof(*backend));

	(void)params;
	if (!backend)
		return NULL;
	backend->guid = guid();
	backend->device = dev;
	backend->context = init_cpu();
	backend->iface.get_name = backend_name;
	backend->iface.free = backend_free;
	backend->iface.graph_compute = compute;
	return backend;
}

/* --- the device --- */

static void get_memory(ggml_backend_dev_t dev, size_t *free_bytes, size_t *total_bytes)
{
	(void)dev;
	*free_bytes = *total_bytes = (size_t)8 << 30;
}

static enum ggml_backend_dev_type get_type(ggml_backend_dev_t dev)
{
	(void)dev;
	return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void get_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props)
{
	memset(props, 0, sizeof(*props));
	props->name = props->description = device_name(dev);
	props->type = get_type(dev);
	get_memory(dev, &props->memory_free, &props->memory_total);
}

static ggml_backend_buffer_type_t get_buffer_type(ggml_backend_dev_t dev)
{
	(void)dev;
	return &buffer_type;
}

static bool supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op)
{
	(void)dev;
	return ggml_backend_dev_supports_op(cpu(), op);
}

static bool supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t type)
{
	return type->iface.get_name == buffer_type_name && type->device == dev; /* as ggml's CUDA backend does it */
}

static const char *registry_name(ggml_backend_reg_t reg)
{
	(void)reg;
	return "CUDA";
}

static size_t device_count(ggml_backend_reg_t reg)
{
	(void)reg;
	return 1;
}

static ggml_backend_dev_t get_device(ggml_backend_reg_t reg, size_t index)
{
	(void)reg, (void)index;
	return &device;
}

static void *no_address(ggml_backend_reg_t reg, const char *name)
{
	(void)reg, (void)name;
	return NULL;
}

static void register_device(const struct gm_cuda *cuda)
{
	runtime = cuda;
	buffer_type.iface = (struct ggml_backend_buffer_type_i){
		.get_name = buffer_type_name, .alloc_buffer = alloc_buffer, .get_alignment = alignment, .is_host = is_host};
	buffer_type.device = &device;
	device.iface = (struct ggml_backend_device_i){.get_name = device_name,
						      .get_description = device_name,
						      .get_memory = get_memory,
						      .get_type = get_type,
						      .get_props = get_props,
						      .init_backend = init_backend,
						      .get_buffer_type = get_buffer_type,
						      .supports_op = supports_op,
						      .supports_buft = supports_buft};
	device.reg = &registry;
	registry.api_version = GGML_BACKEND_API_VERSION;
	registry.iface = (struct ggml_backend_reg_i){.get_name = registry_name,
						     .get_device_count = device_count,
						     .get_device = get_device,
						     .get_proc_address = no_address};
	ggml_backend_register(&registry);
}

int fake_gpu_begin(struct fake_gpu *gpu, const struct fake_cuda_options *options)
{
	const char *build = getenv("GM_BUILD");
	const struct gm_cuda *cuda;
	char path[512];
	void *handle;

	snprintf(path, sizeof(path), "%s/tests/libfakecudart.so", build ? build : "build");
	setenv("GATEMASS_CUDART", path, 1);
	handle = dlopen(path, RTLD_NOW);
	cuda = gm_cuda_load(NULL);
	if (!handle || !cuda)
		return -1;
	*(void **)&gpu->reset = dlsym(handle, "fake_cuda_reset");
	*(void **)&gpu->problems = dlsym(handle, "fake_cuda_problems");
	if (!gpu->reset || !gpu->problems)
		return -1;
	gpu->reset(options);
	register_device(cuda);
	return 0;
}
