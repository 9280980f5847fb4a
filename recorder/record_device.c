/* Router logits from CUDA memory (see record_device.h). */
#include "recorder/record_device.h"

#include "recorder/capture_cuda.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEVICE 16 /* as many as ggml knows */

struct place {
	struct gm_capture *capture;
	cudaStream_t stream; /* for the copies within the device */
};

struct gm_record_device {
	struct gm_record_device_options options;
	const struct gm_cuda *cuda;
	struct place place[MAX_DEVICE];
	struct gm_capture *current; /* may have deliveries under way */
	uint64_t n_row;
	struct gm_error reason; /* why nothing is taken any more */
};

int gm_parse_device_capture(const char *text, enum gm_device_capture *out, struct gm_error *err)
{
	static const char *const names[] = {
		[GM_DEVICE_CAPTURE_AUTO] = "auto", [GM_DEVICE_CAPTURE_ON] = "on", [GM_DEVICE_CAPTURE_OFF] = "off"};

	for (int i = GM_DEVICE_CAPTURE_AUTO; i <= GM_DEVICE_CAPTURE_OFF; i++)
		if (strcmp(text, names[i]) == 0) {
			*out = (enum gm_device_capture)i;
			return 0;
		}
	return gm_fail(err, GM_ERR_USAGE, "unknown value: --device-capture %.40s: auto, on or off", text);
}

struct gm_record_device *gm_record_device_new(const struct gm_record_device_options *options, struct gm_error *err)
{
	struct gm_record_device *d = gm_alloc(1, sizeof(*d), err);

	if (!d)
		return NULL;
	d->options = *options;
	d->cuda = options->cuda;
	return d;
}

static int fail_cuda(const struct gm_cuda *cuda, cudaError_t error, const char *what, struct gm_error *err)
{
	cuda->cudaGetLastError();
	return gm_fail(err, GM_ERR_IO, "CUDA failed: %s: %s", what, cuda->cudaGetErrorString(error));
}

/* --- which device --- */

/* The device that the rows lie on, or -1 with the reason. */
static int find_device(struct gm_record_device *d, const struct gm_hook_device_rows *rows, struct gm_error *err)
{
	struct cudaPointerAttributes attributes;
	cudaError_t error;

	/* ggml's other GPU backends name their devices otherwise; CUDA need not be looked for then */
	if (strncmp(rows->device, "CUDA", 4) != 0) {
		gm_fail(err, GM_ERR_UNSUPPORTED, "the router's logits lie on %.40s, not in CUDA memory", rows->device);
		return -1;
	}
	if (!d->cuda)
		d->cuda = gm_cuda_load(err);
	if (!d->cuda)
		return -1;
	memset(&attributes, 0, sizeof(attributes));
	error = d->cuda->cudaPointerGetAttributes(&attributes, rows->data);
	if (error != cudaSuccess) {
		fail_cuda(d->cuda, error, "asking where the logits lie", err);
		return -1;
	}
	if ((attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged) ||
	    attributes.device < 0 || attributes.device >= MAX_DEVICE) {
		gm_fail(err, GM_ERR_UNSUPPORTED, "CUDA does not know the memory of the router's logits (%.40s)",
			rows->device);
		return -1;
	}
	return attributes.device;
}

static int make_stream(const struct gm_record_device *d, int device, cudaStream_t *stream, struct gm_error *err)
{
	int before = 0;
	cudaError_t error = d->cuda->cudaGetDevice(&before);

	if (error == cudaSuccess)
		error = d->cuda->cudaSetDevice(device);
	if (error == cudaSuccess)
		error = d->cuda->cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
	if (error != cudaSuccess)
		fail_cuda(d->cuda, error, "making a stream", err);
	d->cuda->cudaSetDevice(before);
	return error == cudaSuccess ? 0 : GM_ERR_IO;
}

static int open_place(struct gm_record_device *d, int device, struct gm_error *err)
{
	const struct gm_capture_options options = {.cuda = d->cuda,
						   .device = device,
						   .n_expert = d->options.n_expert,
						   .ring_bytes = d->options.ring_bytes,
						   .deliver = d->options.deliver,
						   .user = d->options.user};
	struct place *place = &d->place[device];

	if (place->capture)
		return 0;
	if (!place->stream)
		GM_TRY(make_stream(d, device, &place->stream, err));
	place->capture = gm_capture_open(&options, err);
	return place->capture ? 0 : GM_ERR_UNSUPPORTED;
}

/* --- rows --- */

int gm_record_device_flush(struct gm_record_device *d, struct gm_error *err)
{
	struct gm_capture *current = d ? d->current : NULL;

	if (!current)
		return 0;
	d->current = NULL;
	return gm_capture_flush(current, err);
}

static int take(struct gm_record_device *d, struct place *place, uint32_t layer, uint32_t first, uint32_t n,
		const struct gm_hook_device_rows *rows, struct gm_error *err)
{
	cudaError_t error;

	if (d->current != place->capture)
		GM_TRY(gm_record_device_flush(d, err));
	d->current = place->capture;
	GM_TRY(gm_capture_rows(place->capture, layer, first, n, rows->data, rows->stride, place->stream, err));
	error = d->cuda->cudaStreamSynchronize(place->stream);
	if (error != cudaSuccess)
		return fail_cuda(d->cuda, error, "waiting for the copy within the device", err);
	d->n_row += n;
	return 1;
}

int gm_record_device_rows(struct gm_record_device *d, uint32_t layer, uint32_t first, uint32_t n,
			  const struct gm_hook_device_rows *rows, struct gm_error *err)
{
	struct gm_error reason = {0};
	int device;

	if (d->options.mode == GM_DEVICE_CAPTURE_OFF || d->reason.code)
		return 0;
	device = find_device(d, rows, &reason);
	if (device >= 0 && open_place(d, device, &reason) == 0)
		return take(d, &d->place[device], layer, first, n, rows, err);
	if (d->options.mode == GM_DEVICE_CAPTURE_ON) {
		gm_error_at(&reason, "--device-capture on");
		return gm_fail(err, reason.code, "%s", reason.text);
	}
	d->reason = reason;
	return 0;
}

int gm_record_device_host_rows(struct gm_record_device *d, uint32_t layer, struct gm_error *err)
{
	if (!d)
		return 0;
	if (d->options.mode == GM_DEVICE_CAPTURE_ON)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "the router's logits of MoE layer %u lie in host memory: --device-capture on: give auto",
			       layer);
	return gm_record_device_flush(d, err);
}

uint64_t gm_record_device_count(const struct gm_record_device *d)
{
	return d->n_row;
}

const char *gm_record_device_reason(const struct gm_record_device *d)
{
	return d->reason.text;
}

int gm_record_device_free(struct gm_record_device *d, struct gm_error *err)
{
	int status = 0;

	if (!d)
		return 0;
	for (int i = 0; i < MAX_DEVICE; i++) {
		int closed = gm_capture_close(d->place[i].capture, err);

		if (status == 0)
			status = closed;
		if (d->place[i].stream)
			d->cuda->cudaStreamDestroy(d->place[i].stream);
	}
	free(d);
	return status;
}
