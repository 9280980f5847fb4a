/* Link and memory of a GPU, and what launches and waiting cost (see probe.h). */
#include "base/progress.h"
#include "recorder/capture_cuda.h"
#include "recorder/probe/probe.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_BYTES ((size_t)256 << 20) /* copied from at changing places: not from the CPU's cache */
#define MEMORY_BYTES ((size_t)1 << 30)
#define SMALL_BYTES ((size_t)16 << 10) /* activations of a token: 8,192 values of 2 bytes */
#define N_LAUNCH 1000
#define N_SYNC 301

struct bench {
	const struct gm_cuda *cuda;
	const struct gm_probe_options *options;
	cudaStream_t stream;
	char *device, *pinned, *pageable;
	size_t device_bytes, host_bytes;
};

static int check(const struct bench *b, cudaError_t error, const char *what, struct gm_error *err)
{
	if (error == cudaSuccess)
		return 0;
	b->cuda->cudaGetLastError();
	return gm_fail(err, error == cudaErrorMemoryAllocation ? GM_ERR_MEMORY : GM_ERR_IO, "CUDA failed: %s: %s", what,
		       b->cuda->cudaGetErrorString(error));
}

/* --- what it is --- */

static void first_line(const char *path, const char *key, char *text, size_t size)
{
	FILE *stream = fopen(path, "re");
	char line[256];

	*text = '\0';
	while (stream && !*text && fgets(line, sizeof(line), stream)) {
		const char *at = line;

		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		at += strlen(key);
		at += strspn(at, " \t");
		snprintf(text, size, "%.*s", (int)strcspn(at, "\n"), at);
	}
	if (stream)
		fclose(stream);
}

/* The driver and the PCI bus say it in /proc and /sys. */
static void describe(const struct bench *b, struct gm_probe_gpu *gpu)
{
	char id[32] = "", path[128], model[64], speed[24], width[8];

	if (b->cuda->cudaDeviceGetPCIBusId(id, sizeof(id), b->options->device) != cudaSuccess)
		b->cuda->cudaGetLastError();
	for (char *c = id; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%s/information", id);
	first_line(path, "Model:", model, sizeof(model));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/current_link_speed", id);
	first_line(path, "", speed, sizeof(speed));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/current_link_width", id);
	first_line(path, "", width, sizeof(width));
	snprintf(gpu->name, sizeof(gpu->name), "%s%s%s%s%s", *model ? model : "CUDA device ", *model ? "" : id,
		 *speed ? ", link at rest " : "", speed, *speed ? " x" : "");
	if (*speed)
		snprintf(gpu->name + strlen(gpu->name), sizeof(gpu->name) - strlen(gpu->name), "%s", width);
}

/* --- copies --- */

static int time_copy(const struct bench *b, char *to, const char *from, size_t size, enum cudaMemcpyKind kind, double *us,
		     struct gm_error *err)
{
	double started = gm_clock_s();

	GM_TRY(check(b, b->cuda->cudaMemcpyAsync(to, from, size, kind, b->stream), "a copy", err));
	GM_TRY(check(b, b->cuda->cudaStreamSynchronize(b->stream), "a copy", err));
	*us = (gm_clock_s() - started) * 1e6;
	return 0;
}

/* spread [n_size]: copies of every size from memory on the host */
static int time_copies(const struct bench *b, const char *host, struct gm_spread *spread, struct gm_error *err)
{
	double value[GM_PROBE_MAX_REPEAT], warm;
	size_t at = 0;

	for (uint32_t i = 0; i < b->options->n_size; i++) {
		size_t size = (size_t)b->options->size[i];

		GM_TRY(time_copy(b, b->device, host, size, cudaMemcpyHostToDevice, &warm, err));
		for (uint32_t k = 0; k < b->options->n_repeat; k++) {
			if (at + size > b->host_bytes)
				at = 0;
			GM_TRY(time_copy(b, b->device, host + at, size, cudaMemcpyHostToDevice, &value[k], err));
			at += (size + 4095) / 4096 * 4096;
		}
		spread[i] = gm_spread_of(value, b->options->n_repeat);
	}
	return 0;
}

static int time_small(const struct bench *b, struct gm_spread *spread, struct gm_error *err)
{
	double value[N_SYNC], back;

	for (uint32_t k = 0; k < N_SYNC; k++) {
		GM_TRY(time_copy(b, b->pinned, b->device, SMALL_BYTES, cudaMemcpyDeviceToHost, &value[k], err));
		GM_TRY(time_copy(b, b->device, b->pinned, SMALL_BYTES, cudaMemcpyHostToDevice, &back, err));
		value[k] += back;
	}
	*spread = gm_spread_of(value, N_SYNC);
	return 0;
}

/* --- memory and launches --- */

/* Without our kernel: one half copied onto the other, which reads and writes as many bytes. */
static int read_memory(const struct bench *b, struct gm_error *err)
{
	size_t half = b->device_bytes / 2;

	if (b->cuda->launch_read)
		return check(b, b->cuda->launch_read(b->device, b->device_bytes, b->stream), "reading memory", err);
	return check(b, b->cuda->cudaMemcpyAsync(b->device, b->device + half, half, cudaMemcpyDeviceToDevice, b->stream),
		     "a copy within the device", err);
}

static int time_memory(const struct bench *b, struct gm_spread *spread, struct gm_error *err)
{
	double value[GM_PROBE_MAX_REPEAT];

	for (uint32_t k = 0; k <= b->options->n_repeat; k++) { /* the first is not counted */
		double started = gm_clock_s();

		GM_TRY(read_memory(b, err));
		GM_TRY(check(b, b->cuda->cudaStreamSynchronize(b->stream), "reading memory", err));
		if (k > 0)
			value[k - 1] = (double)b->device_bytes * 1e-9 / (gm_clock_s() - started);
	}
	*spread = gm_spread_of(value, b->options->n_repeat);
	return 0;
}

/* Without our kernel: setting four bytes, which the driver does with one of its own. */
static int launch(const struct bench *b, struct gm_error *err)
{
	if (b->cuda->launch_nothing)
		return check(b, b->cuda->launch_nothing(b->stream), "a launch", err);
	return check(b, b->cuda->cudaMemsetAsync(b->device, 0, 4, b->stream), "a launch", err);
}

/* µs of n launches and waiting for the last */
static int time_launches(const struct bench *b, uint32_t n, double *us, struct gm_error *err)
{
	double started = gm_clock_s();

	for (uint32_t i = 0; i < n; i++)
		GM_TRY(launch(b, err));
	GM_TRY(check(b, b->cuda->cudaStreamSynchronize(b->stream), "a launch", err));
	*us = (gm_clock_s() - started) * 1e6;
	return 0;
}

static int time_overheads(const struct bench *b, struct gm_probe_gpu *gpu, struct gm_error *err)
{
	double value[GM_PROBE_MAX_REPEAT], warm;

	GM_TRY(time_launches(b, N_LAUNCH, &warm, err));
	for (uint32_t k = 0; k < b->options->n_repeat; k++) {
		GM_TRY(time_launches(b, N_LAUNCH, &value[k], err));
		value[k] /= N_LAUNCH;
	}
	gpu->launch_us = gm_spread_of(value, b->options->n_repeat);
	for (uint32_t k = 0; k < N_SYNC; k++)
		GM_TRY(time_launches(b, 1, &value[k], err));
	gpu->sync_us = gm_spread_of(value, N_SYNC);
	return time_small(b, &gpu->small_us, err);
}

/* --- all --- */

static int prepare(struct bench *b, struct gm_error *err)
{
	size_t largest = (size_t)b->options->size[b->options->n_size - 1], free_bytes = 0, total_bytes = 0;
	const struct gm_cuda *cuda = b->cuda;

	GM_TRY(check(b, cuda->cudaSetDevice(b->options->device), "choosing the device (--device)", err));
	GM_TRY(check(b, cuda->cudaMemGetInfo(&free_bytes, &total_bytes), "device memory", err));
	b->device_bytes = free_bytes / 4 < MEMORY_BYTES ? free_bytes / 4 / 4096 * 4096 : MEMORY_BYTES;
	b->host_bytes = largest > HOST_BYTES ? largest : HOST_BYTES;
	if (b->device_bytes < largest || b->device_bytes < 2 * SMALL_BYTES)
		return gm_fail(err, GM_ERR_MEMORY, "only %zu bytes of device memory are free: end what uses the GPU",
			       free_bytes);
	GM_TRY(check(b, cuda->cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking), "a stream", err));
	GM_TRY(check(b, cuda->cudaMalloc((void **)&b->device, b->device_bytes), "device memory", err));
	GM_TRY(check(b, cuda->cudaHostAlloc((void **)&b->pinned, b->host_bytes, cudaHostAllocDefault), "pinned memory",
		     err));
	b->pageable = gm_alloc(b->host_bytes, 1, err);
	if (!b->pageable)
		return GM_ERR_MEMORY;
	memset(b->pinned, 1, b->host_bytes);
	memset(b->pageable, 1, b->host_bytes);
	GM_TRY(check(b, cuda->cudaMemsetAsync(b->device, 0, b->device_bytes, b->stream), "device memory", err));
	return check(b, cuda->cudaStreamSynchronize(b->stream), "device memory", err);
}

static void release(struct bench *b)
{
	if (b->stream)
		b->cuda->cudaStreamSynchronize(b->stream);
	if (b->pinned)
		b->cuda->cudaFreeHost(b->pinned);
	if (b->device)
		b->cuda->cudaFree(b->device);
	if (b->stream)
		b->cuda->cudaStreamDestroy(b->stream);
	free(b->pageable);
}

static int measure(const struct bench *b, struct gm_probe_gpu *gpu, struct gm_error *err)
{
	describe(b, gpu);
	gpu->kernels = b->cuda->launch_read != NULL;
	gpu->memory_bytes = b->device_bytes;
	GM_TRY(time_memory(b, &gpu->memory_gb_s, err));
	GM_TRY(time_copies(b, b->pinned, gpu->pinned_us, err));
	GM_TRY(time_copies(b, b->pageable, gpu->pageable_us, err));
	gpu->pinned = gm_line_fit(b->options->size, gpu->pinned_us, b->options->n_size);
	gpu->pageable = gm_line_fit(b->options->size, gpu->pageable_us, b->options->n_size);
	return time_overheads(b, gpu, err);
}

int gm_probe_gpu(const struct gm_probe_options *options, struct gm_probe_gpu *gpu, struct gm_error *err)
{
	struct bench b = {.options = options};
	int status;

	if (options->device < 0)
		return gm_fail(err, GM_ERR_UNSUPPORTED, "not asked for (--no-gpu)");
	b.cuda = gm_cuda_load(err);
	if (!b.cuda)
		return GM_ERR_UNSUPPORTED;
	GM_TRY_OUT(prepare(&b, err));
	status = measure(&b, gpu, err);
out:
	release(&b);
	return status;
}
