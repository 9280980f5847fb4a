/* The stand-in's functions (see fake_cuda.h). */
#include "tests/fake_cuda/fake_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .random = 1};

static _Thread_local int current_device;
static _Thread_local cudaError_t last_error;

void fake_problem(const char *format, ...)
{
	size_t used = strlen(fake.problems);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(fake.problems + used, sizeof(fake.problems) - used, format, arguments);
	va_end(arguments);
	used = strlen(fake.problems);
	snprintf(fake.problems + used, sizeof(fake.problems) - used, "\n");
}

uint64_t fake_random(void)
{
	fake.random = fake.random * 6364136223846793005u + 1442695040888963407u;
	return fake.random >> 16;
}

void fake_clock_merge(struct clock *into, const struct clock *from)
{
	for (unsigned i = 0; i < FAKE_MAX_STREAM; i++)
		if (from->seen[i] > into->seen[i])
			into->seen[i] = from->seen[i];
}

static unsigned n_device(void)
{
	return fake.options.no_device ? 0 : fake.options.n_device ? fake.options.n_device : 1;
}

/* Every function begins with enter and ends with leave. */
static cudaError_t enter(const char *function)
{
	bool fails;

	pthread_mutex_lock(&fake.lock);
	fake.n_call++;
	fails = fake.fail_call && (fake.n_call == fake.fail_call || (fake.fail_for_ever && fake.n_call > fake.fail_call));
	if (fails)
		fake.failed = function;
	return fails ? fake.call_error : fake.lost;
}

static cudaError_t leave(cudaError_t error)
{
	pthread_mutex_unlock(&fake.lock);
	if (error != cudaSuccess && error != cudaErrorNotReady)
		last_error = error;
	return error;
}

/* --- control --- */

void fake_cuda_reset(const struct fake_cuda_options *options)
{
	pthread_mutex_lock(&fake.lock);
	for (unsigned i = 0; i < FAKE_MAX_STREAM; i++)
		fake_stream_end(&fake.stream[i]);
	memset(fake.stream, 0, sizeof(fake.stream));
	while (fake.events) {
		struct CUevent_st *next = fake.events->next;

		free(fake.events);
		fake.events = next;
	}
	fake_memory_free_all();
	memset(&fake.host, 0, sizeof(fake.host));
	fake.n_event = fake.n_call = fake.fail_call = fake.n_copy = fake.fail_copy = 0;
	fake.failed = NULL;
	fake.lost = cudaSuccess;
	fake.problems[0] = '\0';
	fake.options = *options;
	fake.random = options->seed;
	current_device = 0;
	last_error = cudaSuccess;
	pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_fail_call(unsigned n, cudaError_t error, bool for_ever)
{
	pthread_mutex_lock(&fake.lock);
	fake.n_call = 0;
	fake.fail_call = n;
	if (n)
		fake.failed = NULL;
	fake.call_error = error;
	fake.fail_for_ever = for_ever;
	pthread_mutex_unlock(&fake.lock);
}

const char *fake_cuda_failed_call(void)
{
	return fake.failed ? fake.failed : "none";
}

unsigned fake_cuda_calls(void)
{
	unsigned n;

	pthread_mutex_lock(&fake.lock);
	n = fake.n_call;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

void fake_cuda_fail_copy(unsigned n, cudaError_t error)
{
	pthread_mutex_lock(&fake.lock);
	fake.n_copy = 0;
	fake.fail_copy = n;
	fake.copy_error = error;
	pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_set_capturing(cudaStream_t stream, bool capturing)
{
	pthread_mutex_lock(&fake.lock);
	stream->capturing = capturing;
	pthread_mutex_unlock(&fake.lock);
}

const char *fake_cuda_problems(void)
{
	return fake.problems;
}

unsigned fake_cuda_left(void)
{
	unsigned n;

	pthread_mutex_lock(&fake.lock);
	n = fake.n_event;
	for (unsigned i = FAKE_MAX_DEVICE; i < FAKE_MAX_STREAM; i++)
		n += fake.stream[i].used && !fake.stream[i].destroyed;
	for (unsigned i = 0; i < FAKE_MAX_MEMORY; i++)
		n += fake.memory[i].kind == MEMORY_DEVICE || fake.memory[i].kind == MEMORY_PINNED;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

const struct gm_cuda *fake_cuda_table(void)
{
	static const struct gm_cuda table = {
#define FAKE_ENTRY(name, arguments) .name = name,
		GM_CUDA_FUNCTIONS(FAKE_ENTRY)
#undef FAKE_ENTRY
			.cudaGetErrorString = cudaGetErrorString,
	};

	return &table;
}

/* --- devices and errors --- */

const char *cudaGetErrorString(cudaError_t error)
{
	switch (error) {
	case cudaErrorMemoryAllocation:
		return "out of memory";
	case cudaErrorNoDevice:
		return "no CUDA-capable device is detected";
	case cudaErrorIllegalAddress:
		return "an illegal memory access was encountered";
	default:
		return error == cudaSuccess ? "no error" : "fake error";
	}
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last_error;

	last_error = cudaSuccess;
	return error;
}

cudaError_t cudaGetDeviceCount(int *count)
{
	cudaError_t error = enter(__func__);

	*count = (int)n_device();
	return leave(error == cudaSuccess && *count == 0 ? cudaErrorNoDevice : error);
}

int fake_current_device(void)
{
	return current_device;
}

cudaError_t cudaGetDevice(int *device)
{
	cudaError_t error = enter(__func__);

	*device = current_device;
	return leave(error);
}

cudaError_t cudaSetDevice(int device)
{
	cudaError_t error = enter(__func__);

	if (error == cudaSuccess && (device < 0 || (unsigned)device >= n_device()))
		error = cudaErrorInvalidDevice;
	if (error == cudaSuccess)
		current_device = device;
	return leave(error);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device)
{
	cudaError_t error = enter(__func__);

	snprintf(id, (size_t)size, "0000:%02x:00.0", (unsigned)device);
	return leave(error);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = 0;
	return leave(enter(__func__));
}

/* --- memory --- */

static cudaError_t new_memory(enum memory_kind kind, size_t size, void **memory)
{
	cudaError_t error = enter(kind == MEMORY_DEVICE ? "cudaMalloc" : "cudaHostAlloc");

	if (error == cudaSuccess)
		error = fake_memory_new(kind, current_device, size, memory);
	return leave(error);
}

static cudaError_t delete_memory(enum memory_kind kind, void *memory)
{
	cudaError_t error = enter(kind == MEMORY_DEVICE ? "cudaFree" : "cudaFreeHost");

	if (error == cudaSuccess)
		error = fake_memory_delete(kind, memory);
	return leave(error);
}

cudaError_t cudaMalloc(void **memory, size_t size)
{
	return new_memory(MEMORY_DEVICE, size, memory);
}

cudaError_t cudaFree(void *memory)
{
	return delete_memory(MEMORY_DEVICE, memory);
}

cudaError_t cudaHostAlloc(void **memory, size_t size, unsigned int flags)
{
	(void)flags;
	return new_memory(MEMORY_PINNED, size, memory);
}

cudaError_t cudaFreeHost(void *memory)
{
	return delete_memory(MEMORY_PINNED, memory);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	cudaError_t error = enter(__func__);

	*total_bytes = fake.options.device_bytes ? fake.options.device_bytes : (size_t)1 << 30;
	*free_bytes = *total_bytes - fake.device_used;
	return leave(error);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory)
{
	cudaError_t error = enter(__func__);
	const struct memory *m = fake_memory_find(memory);

	memset(attributes, 0, sizeof(*attributes));
	if (m && m->kind != MEMORY_FREED) {
		attributes->type = m->kind == MEMORY_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
		attributes->device = m->device;
	}
	return leave(error);
}

/* --- work --- */

static cudaError_t enqueue(cudaStream_t stream, enum cudaMemcpyKind kind, const struct work *work)
{
	bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
	bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
	cudaError_t error = enter("a copy");
	struct work nothing = {.kind = WORK_NOTHING};
	size_t n_problem = strlen(fake.problems);

	if (error != cudaSuccess)
		return leave(error);
	stream = fake_stream_of(stream);
	if (!stream)
		return leave(cudaErrorInvalidResourceHandle);
	fake_stream_begin_work(stream);
	if (!fake_memory_touch(work->to, work->to_pitch, work->width, work->height, true, to_device, stream) ||
	    (work->from &&
	     !fake_memory_touch(work->from, work->from_pitch, work->width, work->height, false, from_device, stream))) {
		fake_stream_add(stream, &nothing);
		return leave(cudaErrorInvalidValue);
	}
	if (strlen(fake.problems) > n_problem) /* or two threads would really race for the bytes */
		work = &nothing;
	return leave(fake_stream_add(stream, work) ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
			      enum cudaMemcpyKind kind, cudaStream_t stream)
{
	return enqueue(stream, kind,
		       &(struct work){.kind = WORK_COPY,
				      .to = to,
				      .from = from,
				      .to_pitch = to_pitch,
				      .from_pitch = from_pitch,
				      .width = width,
				      .height = height});
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	return cudaMemcpy2DAsync(to, size, from, size, size, 1, kind, stream);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t size, cudaStream_t stream)
{
	return enqueue(stream, cudaMemcpyHostToDevice,
		       &(struct work){.kind = WORK_SET, .to = memory, .value = value, .width = size, .height = 1});
}

/* --- streams --- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
	cudaError_t error = enter(__func__);

	if (error == cudaSuccess && flags != cudaStreamNonBlocking) {
		fake_problem("only non-blocking streams are played here");
		error = cudaErrorInvalidValue;
	}
	if (error == cudaSuccess && !(*stream = fake_stream_new(current_device)))
		error = cudaErrorMemoryAllocation;
	return leave(error);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	cudaError_t error = enter(__func__);

	if (error == cudaSuccess && !fake_stream_of(stream))
		error = cudaErrorInvalidResourceHandle;
	if (error == cudaSuccess)
		fake_stream_end(stream);
	return leave(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	cudaError_t error = enter(__func__);

	if (error == cudaSuccess && !(stream = fake_stream_of(stream)))
		error = cudaErrorInvalidResourceHandle;
	if (error == cudaSuccess) {
		struct clock clock = stream->clock; /* others may enqueue meanwhile */

		fake_stream_wait(stream);
		fake_clock_merge(&fake.host, &clock);
		error = fake.lost;
	}
	return leave(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
	cudaError_t error = enter(__func__);

	stream = error == cudaSuccess ? fake_stream_of(stream) : NULL;
	if (stream)
		*status = stream->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
	else if (error == cudaSuccess)
		error = cudaErrorInvalidResourceHandle;
	return leave(error);
}

/* --- events --- */

static cudaError_t check_event(cudaEvent_t event)
{
	if (event && !event->destroyed)
		return cudaSuccess;
	fake_problem("an event is used that is not there");
	return cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	cudaError_t error = enter(__func__);

	(void)flags;
	if (error == cudaSuccess) {
		*event = calloc(1, sizeof(**event));
		if (!*event)
			return leave(cudaErrorMemoryAllocation);
		(*event)->device = current_device;
		(*event)->next = fake.events;
		fake.events = *event;
		fake.n_event++;
	}
	return leave(error);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	cudaError_t error = enter(__func__);

	if (error == cudaSuccess)
		error = check_event(event);
	if (error == cudaSuccess) {
		event->destroyed = true;
		fake.n_event--;
	}
	return leave(error);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	cudaError_t error = enter(__func__);

	if (error == cudaSuccess)
		error = check_event(event);
	if (error == cudaSuccess && (!(stream = fake_stream_of(stream)) || stream->device != event->device))
		error = cudaErrorInvalidResourceHandle;
	if (error == cudaSuccess) {
		fake_stream_begin_work(stream);
		event->recorded = true;
		event->stream = stream->id;
		event->work = stream->enqueued;
		event->clock = stream->clock;
		if (!fake_stream_add(stream, &(struct work){.kind = WORK_NOTHING}))
			error = cudaErrorMemoryAllocation;
	}
	return leave(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	cudaError_t error = enter(__func__);

	(void)flags;
	if (error == cudaSuccess)
		error = check_event(event);
	if (error == cudaSuccess && !(stream = fake_stream_of(stream)))
		error = cudaErrorInvalidResourceHandle;
	if (error == cudaSuccess && event->recorded) {
		fake_clock_merge(&stream->clock, &event->clock);
		fake_stream_begin_work(stream);
		if (!fake_stream_add(
			    stream,
			    &(struct work){.kind = WORK_WAIT, .wait_stream = event->stream, .wait_work = event->work}))
			error = cudaErrorMemoryAllocation;
	}
	return leave(error);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	cudaError_t error = enter(__func__);

	if (error == cudaSuccess)
		error = check_event(event);
	if (error == cudaSuccess && event->recorded && fake.stream[event->stream].done < event->work)
		error = cudaErrorNotReady;
	else if (error == cudaSuccess && event->recorded)
		fake_clock_merge(&fake.host, &event->clock);
	return leave(error);
}
