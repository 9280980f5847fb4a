/* What the tests of capturing share. They run on tests/fake_cuda, and with GM_CUDA_HEADER (`make check-gpu`) on a real GPU: what only
 * the stand-in can do stands in test_capture_errors.c. */
#ifndef GM_TESTS_CUDA_SUPPORT_H
#define GM_TESTS_CUDA_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "recorder/capture.h"
#include "recorder/capture_cuda.h"

#include <pthread.h>
#include <stdbool.h>

const struct gm_cuda *support_cuda(void);
/* The stand-in anew, with this seed and delays up to this; nothing on a real GPU. */
void support_begin(uint64_t seed, unsigned max_delay_us);
void support_end(void); /* nothing was left, nothing went wrong */

#define assert_cuda(call)                                                             \
	do {                                                                          \
		cudaError_t error_ = (call);                                          \
		if (error_ != cudaSuccess)                                            \
			fail_msg("%s:%d: CUDA error %d", __FILE__, __LINE__, error_); \
	} while (0)
#define assert_ok(call, err)                                                    \
	do {                                                                    \
		if ((call) < 0)                                                 \
			fail_msg("%s:%d: %s", __FILE__, __LINE__, (err)->text); \
	} while (0)

uint32_t support_random(uint64_t *state, uint32_t n); /* 0 ... n - 1 */

/* The logit that stands at one place of a recording. */
float support_value(uint32_t layer, uint64_t token, uint32_t expert);

/* --- a forward pass: makes logits on a stream --- */

struct forward {
	uint32_t n_layer, n_expert;
	uint64_t n_token;
	size_t stride; /* bytes from row to row on the device */
	float *source; /* [n_layer][n_token][n_expert] pinned host memory, what the layers will give */
	char *logits;  /* [max_rows] on the device: reused by every layer */
	uint32_t max_rows;
	cudaStream_t stream; /* NULL: the legacy default stream */
};

/* on_default_stream: does not make a stream of its own. gap: bytes between rows. */
void forward_begin(struct forward *forward, uint32_t n_layer, uint64_t n_token, uint32_t n_expert, uint32_t max_rows,
		   size_t gap, bool on_default_stream);
/* Enqueues what computes the logits of n tokens from first on. */
cudaError_t forward_layer(const struct forward *forward, uint32_t layer, uint64_t first, uint32_t n);
/* The same, and captures them. */
int forward_capture(const struct forward *forward, struct gm_capture *capture, uint32_t layer, uint64_t first, uint32_t n,
		    struct gm_error *err);
#define FORWARD_FAILED "the forward pass failed"
/* All layers over all tokens, in passes of 1 ... max_rows tokens by random (seed 0: of max_rows). */
int forward_run(const struct forward *forward, struct gm_capture *capture, uint64_t seed, struct gm_error *err);
void forward_end(struct forward *forward);

/* --- a sink: checks every row --- */

struct sink {
	uint32_t n_layer, n_expert;
	uint64_t *next; /* [n_layer] the token that must come next */
	uint64_t n_row;
	unsigned n_wrong;  /* rows with another content, or out of order */
	unsigned pause_us; /* of each delivery */
	uint64_t fail_at;  /* a delivery past so many rows fails; 0: none */
	unsigned n_after;  /* deliveries after that */
};

void sink_begin(struct sink *sink, uint32_t n_layer, uint32_t n_expert);
int sink_take(void *sink, uint32_t layer, uint64_t first, uint32_t n, const float *rows, struct gm_error *err);
void sink_check(const struct sink *sink, uint64_t n_token); /* every layer got this many, and all right */
void sink_end(struct sink *sink);

/* A capture into a sink. */
struct gm_capture *support_open(struct sink *sink, size_t ring_bytes, struct gm_error *err);

#endif
