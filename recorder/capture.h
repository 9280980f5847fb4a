/* Recording from a CUDA program: rows of router logits on their way from device memory to a function on the host, while the
 * forward pass goes on.
 *
 *   capture = gm_capture_open(&(struct gm_capture_options){.cuda = gm_cuda_linked(), .device = -1, .n_expert = 512,
 *                                                          .deliver = write_rows, .user = writer}, &err);
 *   for every forward pass and layer, after the product that makes the logits was enqueued on `stream`:
 *           gm_capture_rows(capture, layer, token, n_token, logits, 0, stream, &err);
 *   gm_capture_close(capture, &err);
 *
 * recorder/examples/cublas_router.c is a whole program. recorder/capture.c and recorder/capture_cuda.cu (or, without linking CUDA,
 * recorder/capture_runtime.c) and base/error.c are all it takes.
 *
 * How. Each call enqueues, and does not wait for the device:
 *   on the caller's stream   a copy of the rows within the device, without gaps, into a staging ring; an event
 *   on the capture's stream  a wait for that event; a copy into a ring of pinned host memory at the same place; an event
 * A thread of the capture asks for the last event (cudaEventQuery) and gives the rows to `deliver`, in the order of the calls.
 * So the caller may overwrite its logits with whatever it enqueues next on the same stream, and never waits for the link.
 *
 * What it costs. The forward pass: one copy within the device and one event a call. For 512 tokens by 512 experts the copy reads and
 * writes 1 MiB each, about 3 us at 850 GB/s, beside the launch. (The other choice, to let the caller's stream wait until the rows are in host
 * memory, would need no staging, but the layer would stand still for the transfer: 41 us at 25.6 GB/s.) Device memory:
 * ring_bytes; pinned host memory: ring_bytes. When the ring is full because `deliver` is slower than the forward pass,
 * gm_capture_rows waits on the host until there is room: no row is ever dropped. No call synchronises the device but
 * gm_capture_close, whose freeing of memory does.
 */
#ifndef GM_RECORDER_CAPTURE_H
#define GM_RECORDER_CAPTURE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct gm_capture;
struct gm_cuda; /* recorder/capture_cuda.h */

#define GM_CAPTURE_RING_BYTES ((size_t)32 << 20)

struct gm_capture_options {
	const struct gm_cuda *cuda; /* gm_cuda_linked(), or NULL: gm_cuda_load() */
	int device;                 /* where the rows will lie; -1: the calling thread's current device */
	uint32_t n_expert;
	size_t ring_bytes; /* 0: GM_CAPTURE_RING_BYTES; at least two rows */

	/* Takes rows [n][n_expert] float32, host memory that is valid during the call only, on the capture's own thread. What one
	 * gm_capture_rows was given may come in several calls, in order. A negative return ends the capture: nothing further is
	 * delivered, and every later call returns the error. Must not call gm_capture_*. */
	int (*deliver)(void *user, uint32_t layer, uint64_t first, uint32_t n, const float *rows, struct gm_error *err);
	void *user;
};

/* NULL on failure, with everything released and CUDA's last error cleared, so that the caller can go on without:
 *   GM_ERR_UNSUPPORTED  no CUDA runtime or device
 *   GM_ERR_MEMORY       no room for the rings on the device or in pinned memory
 *   GM_ERR_USAGE        options that make no sense
 *   GM_ERR_IO           another CUDA error */
struct gm_capture *gm_capture_open(const struct gm_capture_options *options, struct gm_error *err);

/* Takes n rows of n_expert float32 in device memory, `stride` bytes from row to row (0: no gaps), that are complete in the order of
 * `stream`, a cudaStream_t of the capture's device (NULL: the legacy default stream; a program built for per-thread default streams
 * passes cudaStreamPerThread). layer and first, the number of the first row's token, are handed to `deliver` as they are.
 *
 * Any thread may call; several may at once, and each one's rows stay in order. The calling thread's current device and
 * CUDA's last error are left alone. GM_ERR_USAGE (n rows that cannot be) leaves the capture usable, as does
 * GM_ERR_UNSUPPORTED (the stream is being captured into a CUDA graph, whose replays would not be seen). All others are final: the error
 * of CUDA or of `deliver`, also if it happened in an earlier call's rows, comes back from every later call. */
int gm_capture_rows(struct gm_capture *capture, uint32_t layer, uint64_t first, uint32_t n, const void *rows, size_t stride,
		    void *stream, struct gm_error *err);

/* Waits until all rows given so far were delivered. Returns the capture's error if there is one. */
int gm_capture_flush(struct gm_capture *capture, struct gm_error *err);

struct gm_capture_stats {
	uint64_t n_row, n_delivered; /* given, and handed to `deliver` without a failure */
	uint64_t n_wait;             /* how often gm_capture_rows found the ring full */
};
void gm_capture_stats(struct gm_capture *capture, struct gm_capture_stats *stats);

/* Delivers what is on its way, frees everything (also after an error; NULL is fine) and returns the capture's error. */
int gm_capture_close(struct gm_capture *capture, struct gm_error *err);

#ifdef __cplusplus
}
#endif

#endif
