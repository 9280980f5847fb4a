/* The part of CUDA's runtime C API that gatemass uses, as a table of its functions under their own names.
 *
 * A table, because the runtime comes from different places: linked into a CUDA program (recorder/capture_cuda.cu), found when the
 * program starts (gm_cuda_load), or played by tests/fake_cuda. Programs that may meet a machine without CUDA never link it.
 *
 * Without GM_CUDA_HEADER nothing of CUDA is needed to compile: the few types are declared here as CUDA 11 to 13 have them in their
 * binary interface. With it the toolkit's own header is used, so that `make cuda` finds any difference at compile time.
 */
#ifndef GM_RECORDER_CAPTURE_CUDA_H
#define GM_RECORDER_CAPTURE_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef GM_CUDA_HEADER
#include <cuda_runtime_api.h>
#else

typedef enum cudaError {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInitializationError = 3,
	cudaErrorInsufficientDriver = 35,
	cudaErrorNoDevice = 100,
	cudaErrorInvalidDevice = 101,
	cudaErrorInvalidResourceHandle = 400,
	cudaErrorNotReady = 600,
	cudaErrorIllegalAddress = 700,
	cudaErrorLaunchFailure = 719,
	cudaErrorUnknown = 999
} cudaError_t;

enum cudaMemcpyKind {
	cudaMemcpyHostToHost = 0,
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost = 2,
	cudaMemcpyDeviceToDevice = 3,
	cudaMemcpyDefault = 4
};

enum cudaMemoryType {
	cudaMemoryTypeUnregistered = 0,
	cudaMemoryTypeHost = 1,
	cudaMemoryTypeDevice = 2,
	cudaMemoryTypeManaged = 3
};

enum cudaStreamCaptureStatus {
	cudaStreamCaptureStatusNone = 0,
	cudaStreamCaptureStatusActive = 1,
	cudaStreamCaptureStatusInvalidated = 2
};

#define cudaStreamNonBlocking 0x01
#define cudaEventDisableTiming 0x02
#define cudaHostAllocDefault 0x00

/* As in CUDA 13; before, it ended with hostPointer, so a struct of this size is large enough for all. */
struct cudaPointerAttributes {
	enum cudaMemoryType type;
	int device;
	void *devicePointer;
	void *hostPointer;
	long reserved[8];
};

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

#endif

/* clang-format off */
#define GM_CUDA_FUNCTIONS(X)                                                                                              \
	X(cudaGetDeviceCount, (int *count))                                                                               \
	X(cudaGetDevice, (int *device))                                                                                   \
	X(cudaSetDevice, (int device))                                                                                    \
	X(cudaGetLastError, (void))                                                                                       \
	X(cudaMalloc, (void **memory, size_t size))                                                                       \
	X(cudaFree, (void *memory))                                                                                       \
	X(cudaHostAlloc, (void **memory, size_t size, unsigned int flags))                                                \
	X(cudaFreeHost, (void *memory))                                                                                   \
	X(cudaMemGetInfo, (size_t *free_bytes, size_t *total_bytes))                                                      \
	X(cudaMemcpyAsync, (void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream))      \
	X(cudaMemcpy2DAsync, (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, \
			      enum cudaMemcpyKind kind, cudaStream_t stream))                                             \
	X(cudaMemsetAsync, (void *memory, int value, size_t size, cudaStream_t stream))                                   \
	X(cudaStreamCreateWithFlags, (cudaStream_t *stream, unsigned int flags))                                          \
	X(cudaStreamDestroy, (cudaStream_t stream))                                                                       \
	X(cudaStreamSynchronize, (cudaStream_t stream))                                                                   \
	X(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags))                              \
	X(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status))                             \
	X(cudaEventCreateWithFlags, (cudaEvent_t *event, unsigned int flags))                                             \
	X(cudaEventDestroy, (cudaEvent_t event))                                                                          \
	X(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream))                                                      \
	X(cudaEventQuery, (cudaEvent_t event))                                                                            \
	X(cudaPointerGetAttributes, (struct cudaPointerAttributes *attributes, const void *memory))                       \
	X(cudaDeviceGetPCIBusId, (char *id, int size, int device))                                                        \
	X(cudaRuntimeGetVersion, (int *version))
/* clang-format on */

struct gm_cuda {
#define GM_CUDA_MEMBER(name, arguments) cudaError_t(*name) arguments;
	GM_CUDA_FUNCTIONS(GM_CUDA_MEMBER)
#undef GM_CUDA_MEMBER
	const char *(*cudaGetErrorString)(cudaError_t error);

	/* Two kernels of our own, for measuring; NULL where the table comes from a bare CUDA runtime.
	 * launch_read: every byte of memory is read once, and all
	 * but surely none is written. */
	cudaError_t (*launch_nothing)(cudaStream_t stream);
	cudaError_t (*launch_read)(void *memory, size_t size, cudaStream_t stream);
};

/* The runtime that this program is linked with; only in recorder/capture_cuda.cu. */
const struct gm_cuda *gm_cuda_linked(void);

/* Looks for the runtime and for a device that it can use, once a process: what $GATEMASS_CUDART names ("none": not at all),
 * libgatemass-cuda.so beside this program (`make cuda`), libcudart.so where the system finds libraries, and in $CUDA_HOME, $CUDA_PATH
 * and /usr/local/cuda. NULL with GM_ERR_UNSUPPORTED and the reason where there is none. */
const struct gm_cuda *gm_cuda_load(struct gm_error *err);

#ifdef __cplusplus
}
#endif

#endif
