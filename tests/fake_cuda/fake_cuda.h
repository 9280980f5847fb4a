/* A stand-in for CUDA's runtime that needs no GPU: "device" memory is host memory, each stream is a thread that works off what was
 * enqueued, in order, each piece after a random pause.
 *
 * It watches what real hardware lets pass until it does not: every access to its memory by an enqueued copy must be ordered
 * against earlier ones to the same bytes by stream order, an event that was waited for, or the host having seen its end. That is decided from the
 * calls (vector clocks), so a missing order is found however the threads happen to run. So are memory that is used after it was freed
 * or freed while in use, copies past its end, and streams and events used after their destruction.
 *
 * What it lacks: streams that wait for the legacy default stream by themselves (all are non-blocking), graphs, kernels.
 */
#ifndef GM_TESTS_FAKE_CUDA_H
#define GM_TESTS_FAKE_CUDA_H

#include "tests/fake_cuda/cuda_runtime_api.h"

#include <stdbool.h>
#include <stdint.h>

struct fake_cuda_options {
	uint64_t seed;
	unsigned max_delay_us;             /* of each piece of work */
	size_t device_bytes, pinned_bytes; /* how much can be had; 0: no limit */
	unsigned n_device;                 /* 0: one */
	bool no_device;
};

/* Waits for all work, forgets everything and begins anew. Memory of before stays readable to nobody. */
void fake_cuda_reset(const struct fake_cuda_options *options);

/* The n-th call from now on (from 1; 0: none) fails with this error; for_ever: and all that follow. */
void fake_cuda_fail_call(unsigned n, cudaError_t error, bool for_ever);
const char *fake_cuda_failed_call(void); /* its name, "a copy" for all kinds of copies */
unsigned fake_cuda_calls(void);          /* since the reset or the last fake_cuda_fail_call */

/* The n-th copy executed from now on fails when its turn comes, as an illegal address would: no work is done any more, and every later call
 * returns the error. */
void fake_cuda_fail_copy(unsigned n, cudaError_t error);

void fake_cuda_set_capturing(cudaStream_t stream, bool capturing);

/* The host is about to read these bytes, and has read them. Every copy into them must have been seen to end, and none may
 * be enqueued meanwhile. */
void fake_cuda_host_begin(const void *memory, size_t size);
void fake_cuda_host_end(const void *memory);

/* What went wrong, oldest first; "" if nothing. Lives until the next reset. */
const char *fake_cuda_problems(void);

/* Allocations, streams and events that are still there. */
unsigned fake_cuda_left(void);

/* The stand-in's functions as a table. */
const struct gm_cuda *fake_cuda_table(void);

#endif
