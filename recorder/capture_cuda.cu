/* The project's only CUDA source: the runtime it is linked with as a table, and two kernels for measuring (see capture_cuda.h).
 * A CUDA program that records links this file; `make cuda` also makes libgatemass-cuda.so of it, which record-traces and
 * probe-machine look for. The table has the types of capture_cuda.h and the functions of the toolkit: the compiler holds one against the
 * other. */
#include "recorder/capture_cuda.h"

#include <cuda_runtime.h>

#include <stddef.h>

#ifndef GM_CUDA_HEADER
#error "compile with -DGM_CUDA_HEADER: the toolkit's own types are wanted here"
#endif

__global__ static void do_nothing(void)
{
}

static cudaError_t launch_nothing(cudaStream_t stream)
{
	do_nothing<<<1, 1, 0, stream>>>();
	return cudaGetLastError();
}

/* Reads n vectors of 16 bytes, each thread four at a time so that enough loads are under way. The sum is written only if it has a value
 * that it practically never has (and never over zeros): without a use the compiler would drop the loads. */
__global__ static void read_all(const uint4 *vector, size_t n, unsigned *unlikely)
{
	size_t step = (size_t)gridDim.x * blockDim.x;
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	unsigned sum = 0;

	for (; i + 3 * step < n; i += 4 * step) {
		uint4 a = vector[i], b = vector[i + step], c = vector[i + 2 * step], d = vector[i + 3 * step];

		sum += a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
	}
	for (; i < n; i += step)
		sum += vector[i].x ^ vector[i].y ^ vector[i].z ^ vector[i].w;
	if (sum == 0x9e3779b9u)
		*unlikely = sum;
}

static cudaError_t launch_read(void *memory, size_t size, cudaStream_t stream)
{
	/* 1,024 blocks of 256 threads keep any GPU's memory busy, and are few enough to start at once */
	read_all<<<1024, 256, 0, stream>>>((const uint4 *)memory, size / sizeof(uint4), (unsigned *)memory);
	return cudaGetLastError();
}

extern "C" const struct gm_cuda *gm_cuda_linked(void)
{
	static struct gm_cuda table;

	/* the same values whoever comes first */
#define ENTRY(name, arguments) table.name = name;
	GM_CUDA_FUNCTIONS(ENTRY)
#undef ENTRY
	table.cudaGetErrorString = cudaGetErrorString;
	table.launch_nothing = launch_nothing;
	table.launch_read = launch_read;
	return &table;
}

/* What capture_cuda.h declares for programs that are compiled without the toolkit. */
static_assert(cudaErrorInvalidValue == 1 && cudaErrorMemoryAllocation == 2 && cudaErrorInitializationError == 3 &&
		      cudaErrorInsufficientDriver == 35 && cudaErrorNoDevice == 100 && cudaErrorInvalidDevice == 101 &&
		      cudaErrorInvalidResourceHandle == 400 && cudaErrorNotReady == 600 && cudaErrorIllegalAddress == 700 &&
		      cudaErrorLaunchFailure == 719 && cudaErrorUnknown == 999,
	      "error numbers");
static_assert(cudaMemcpyHostToDevice == 1 && cudaMemcpyDeviceToHost == 2 && cudaMemcpyDeviceToDevice == 3 &&
		      cudaMemoryTypeHost == 1 && cudaMemoryTypeDevice == 2 && cudaMemoryTypeManaged == 3,
	      "kinds");
static_assert(cudaStreamCaptureStatusNone == 0 && cudaStreamNonBlocking == 1 && cudaEventDisableTiming == 2 &&
		      cudaHostAllocDefault == 0,
	      "flags");
static_assert(sizeof(cudaError_t) == sizeof(int) && sizeof(cudaPointerAttributes) <= 24 + 8 * sizeof(long) &&
		      offsetof(cudaPointerAttributes, type) == 0 && offsetof(cudaPointerAttributes, device) == 4,
	      "layout");
