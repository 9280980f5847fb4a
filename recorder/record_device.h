/* The recorder's device path: router logits that lie in CUDA memory go through gm_capture (capture.h) instead of being read by llama.cpp's
 * own blocking copy.
 *
 * Order. llama.cpp runs its kernels on streams that no public function names (non-blocking ones, so the legacy default stream
 * does not wait for them either), and ggml's events need the backend object, which llama_context keeps to itself. But its scheduler
 * synchronises the backend before it shows a tensor to the observer (ggml_backend_sched_compute_splits, v0.4.0), so the logits are
 * complete when we see them; and it goes on when the observer returns, after which the next kernels may reuse their memory (the
 * softmax after the router does, in place). So gm_capture_rows copies them within the device on a stream of ours, and only that copy
 * is waited for before the observer returns. The way to the host then runs beside the rest of the forward pass.
 *
 * Deliveries come on the capture's thread, but never while the caller's thread delivers too: gm_record_device_rows and
 * gm_record_device_flush wait for those of one device before another's, or the host's, begin.
 */
#ifndef GM_RECORDER_RECORD_DEVICE_H
#define GM_RECORDER_RECORD_DEVICE_H

#include "recorder/capture.h"
#include "recorder/hook.h"

enum gm_device_capture {
	GM_DEVICE_CAPTURE_AUTO, /* where it is possible */
	GM_DEVICE_CAPTURE_ON,   /* an error where it is not */
	GM_DEVICE_CAPTURE_OFF,
};

/* "auto", "on", "off" */
int gm_parse_device_capture(const char *text, enum gm_device_capture *out, struct gm_error *err);

struct gm_record_device_options {
	enum gm_device_capture mode;
	uint32_t n_expert;
	const struct gm_cuda *cuda; /* NULL: gm_cuda_load(), when the first rows come that lie on a CUDA device */
	size_t ring_bytes;          /* 0: the capture's default */
	/* as gm_capture's; first is the row's number in the pass */
	int (*deliver)(void *user, uint32_t layer, uint64_t first, uint32_t n, const float *rows, struct gm_error *err);
	void *user;
};

struct gm_record_device;

struct gm_record_device *gm_record_device_new(const struct gm_record_device_options *options, struct gm_error *err);

/* What gm_hook_ops.on_device_logits wants: 1: taken, 0: not, and the host path is to be used (never with ON, which fails instead). */
int gm_record_device_rows(struct gm_record_device *device, uint32_t layer, uint32_t first, uint32_t n,
			  const struct gm_hook_device_rows *rows, struct gm_error *err);

/* Called with rows that the host path is about to take: an error with ON. Waits for deliveries. */
int gm_record_device_host_rows(struct gm_record_device *device, uint32_t layer, struct gm_error *err);

/* Waits until all rows were delivered. */
int gm_record_device_flush(struct gm_record_device *device, struct gm_error *err);

/* Rows that were taken so far; why they are not, once the device path turned out impossible ("" otherwise). */
uint64_t gm_record_device_count(const struct gm_record_device *device);
const char *gm_record_device_reason(const struct gm_record_device *device);

int gm_record_device_free(struct gm_record_device *device, struct gm_error *err); /* NULL is fine */

#endif
