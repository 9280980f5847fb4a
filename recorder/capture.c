/* Rows from device memory to the host beside the forward pass (see capture.h). */
#include "recorder/capture.h"

#include "recorder/capture_cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_PIECE 256u   /* pieces on their way at most; a power of two */
#define ALIGNMENT 256u /* of a piece in the ring: what copy engines like */
#define MIN_POLL_NS 5000L
#define MAX_POLL_NS 100000L

/* Rows of one call, or as many of them as one place in the ring holds. */
struct piece {
	uint32_t layer, n;
	uint64_t first;
	size_t offset, bytes;       /* in both rings */
	cudaEvent_t staged, copied; /* in device memory of ours; in host memory */
};

struct gm_capture {
	const struct gm_cuda *cuda;
	struct gm_capture_options options;
	size_t row_bytes;
	uint32_t max_rows; /* of a piece */
	char *staging;     /* [ring_bytes] device memory */
	char *pinned;      /* [ring_bytes] host memory */
	cudaStream_t stream;
	struct piece piece[N_PIECE];
	pthread_t thread;
	bool started;

	pthread_mutex_t lock; /* for all below, and for the order of what is enqueued */
	pthread_cond_t filled, emptied;
	uint64_t head, tail; /* pieces enqueued, and done with; piece i stands in piece[i % N_PIECE] */
	size_t end;          /* where in the ring the last piece ends */
	bool ending;
	struct gm_error err; /* the first failure */
	struct gm_capture_stats stats;
};

/* --- CUDA's errors --- */

static int cuda_fail(const struct gm_cuda *cuda, cudaError_t error, const char *what, struct gm_error *err)
{
	cuda->cudaGetLastError(); /* or the program around would take it for its own */
	return gm_fail(err, error == cudaErrorMemoryAllocation ? GM_ERR_MEMORY : GM_ERR_IO, "CUDA capture failed: %s: %s",
		       what, cuda->cudaGetErrorString(error));
}

static int check(const struct gm_cuda *cuda, cudaError_t error, const char *what, struct gm_error *err)
{
	return error == cudaSuccess ? 0 : cuda_fail(cuda, error, what, err);
}

/* Keeps the first failure; called with the lock held. */
static void keep(struct gm_capture *c, const struct gm_error *err)
{
	if (!c->err.code)
		c->err = *err;
}

static int report(const struct gm_capture *c, struct gm_error *err)
{
	return c->err.code ? gm_fail(err, c->err.code, "%s", c->err.text) : 0;
}

static int enter_device(const struct gm_capture *c, int *before, struct gm_error *err)
{
	GM_TRY(check(c->cuda, c->cuda->cudaGetDevice(before), "current device", err));
	if (*before == c->options.device)
		return 0;
	return check(c->cuda, c->cuda->cudaSetDevice(c->options.device), "choosing the device", err);
}

static void leave_device(const struct gm_capture *c, int before)
{
	if (before != c->options.device && c->cuda->cudaSetDevice(before) != cudaSuccess)
		c->cuda->cudaGetLastError();
}

/* --- the ring --- */

static size_t round_up(size_t bytes)
{
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Where `bytes` fit behind the last piece; false: nowhere yet. */
static bool find_room(const struct gm_capture *c, size_t bytes, size_t *offset)
{
	size_t begin = c->piece[c->tail % N_PIECE].offset;

	*offset = 0;
	if (c->head == c->tail)
		return true;
	if (c->head - c->tail == N_PIECE)
		return false;
	if (c->end > begin && c->options.ring_bytes - c->end < bytes)
		return begin >= bytes; /* from the ring's start on */
	*offset = c->end;
	return c->end > begin || begin - c->end >= bytes;
}

/* --- the thread that delivers --- */

static int await(const struct gm_capture *c, const struct piece *piece, struct gm_error *err)
{
	long pause = MIN_POLL_NS;
	cudaError_t error;

	while ((error = c->cuda->cudaEventQuery(piece->copied)) == cudaErrorNotReady) {
		nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
		pause = 2 * pause < MAX_POLL_NS ? 2 * pause : MAX_POLL_NS;
	}
	return check(c->cuda, error, "copying rows to the host", err);
}

static int deliver(const struct gm_capture *c, const struct piece *piece, struct gm_error *err)
{
	int status;

	GM_TRY(await(c, piece, err));
	status = c->options.deliver(c->options.user, piece->layer, piece->first, piece->n,
				    (const float *)(const void *)(c->pinned + piece->offset), err);
	if (status < 0) /* recorded here only if the sink did not say more */
		gm_fail(err, status, "captured rows were not taken: layer %u", piece->layer);
	return status < 0 ? status : 0;
}

/* After a failure the pieces on their way are only taken off, so that nobody waits for ever. */
static void *deliver_all(void *user)
{
	struct gm_capture *c = user;
	struct gm_error err = {0};

	check(c->cuda, c->cuda->cudaSetDevice(c->options.device), "choosing the device", &err);
	pthread_mutex_lock(&c->lock);
	for (;;) {
		const struct piece *piece = &c->piece[c->tail % N_PIECE];

		while (c->head == c->tail && !c->ending)
			pthread_cond_wait(&c->filled, &c->lock);
		if (c->head == c->tail)
			break;
		if (!err.code) {
			pthread_mutex_unlock(&c->lock);
			deliver(c, piece, &err);
			pthread_mutex_lock(&c->lock);
		}
		if (err.code)
			keep(c, &err);
		else
			c->stats.n_delivered += piece->n;
		c->tail++;
		pthread_cond_broadcast(&c->emptied);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* --- opening --- */

static int check_options(struct gm_capture *c, struct gm_error *err)
{
	struct gm_capture_options *o = &c->options;

	if (!o->deliver || o->n_expert == 0 || o->n_expert > 65535)
		return gm_fail(err, GM_ERR_USAGE, "capture of %u experts: must be 1 to 65535, and a function to deliver to",
			       o->n_expert);
	c->row_bytes = o->n_expert * sizeof(float);
	if (o->ring_bytes == 0)
		o->ring_bytes = GM_CAPTURE_RING_BYTES;
	o->ring_bytes = o->ring_bytes / ALIGNMENT * ALIGNMENT;
	if (o->ring_bytes < 2 * round_up(c->row_bytes))
		return gm_fail(err, GM_ERR_USAGE, "a ring of %zu bytes: must hold two rows of %zu", o->ring_bytes,
			       c->row_bytes);
	/* a quarter of the ring, so that a large call is copied and delivered piece by piece at the same time */
	c->max_rows = (uint32_t)(o->ring_bytes / 4 / c->row_bytes);
	if (c->max_rows == 0)
		c->max_rows = 1;
	return 0;
}

static int make_rings(struct gm_capture *c, struct gm_error *err)
{
	const struct gm_cuda *cuda = c->cuda;
	size_t size = c->options.ring_bytes;

	GM_TRY(check(cuda, cuda->cudaMalloc((void **)&c->staging, size), "device memory for the staging ring", err));
	GM_TRY(check(cuda, cuda->cudaHostAlloc((void **)&c->pinned, size, cudaHostAllocDefault),
		     "pinned host memory for the ring", err));
	GM_TRY(check(cuda, cuda->cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "making a stream", err));
	for (size_t i = 0; i < N_PIECE; i++) {
		GM_TRY(check(cuda, cuda->cudaEventCreateWithFlags(&c->piece[i].staged, cudaEventDisableTiming),
			     "making an event", err));
		GM_TRY(check(cuda, cuda->cudaEventCreateWithFlags(&c->piece[i].copied, cudaEventDisableTiming),
			     "making an event", err));
	}
	return 0;
}

static int open_capture(struct gm_capture *c, struct gm_error *err)
{
	const struct gm_cuda *cuda = c->cuda;
	int before = 0;
	int status;

	GM_TRY(check_options(c, err));
	if (c->options.device < 0)
		GM_TRY(check(cuda, cuda->cudaGetDevice(&c->options.device), "current device", err));
	GM_TRY(enter_device(c, &before, err));
	status = make_rings(c, err);
	leave_device(c, before);
	GM_TRY(status);
	if (pthread_create(&c->thread, NULL, deliver_all, c) != 0)
		return gm_fail(err, GM_ERR_MEMORY, "no thread can be started: CUDA capture");
	c->started = true;
	return 0;
}

struct gm_capture *gm_capture_open(const struct gm_capture_options *options, struct gm_error *err)
{
	const struct gm_cuda *cuda = options->cuda ? options->cuda : gm_cuda_load(err);
	struct gm_capture *c = cuda ? gm_alloc(1, sizeof(*c), err) : NULL;

	if (!c)
		return NULL;
	c->cuda = cuda;
	c->options = *options;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->filled, NULL);
	pthread_cond_init(&c->emptied, NULL);
	if (open_capture(c, err) < 0) {
		gm_capture_close(c, NULL);
		return NULL;
	}
	return c;
}

/* --- rows --- */

/* On the caller's stream: the rows into the staging ring, after which the caller's memory is free again in the order of its stream. */
static int stage(const struct gm_capture *c, const struct piece *piece, const char *rows, size_t stride,
		 cudaStream_t stream, struct gm_error *err)
{
	char *to = c->staging + piece->offset;
	cudaError_t error;

	if (stride == c->row_bytes || piece->n == 1)
		error = c->cuda->cudaMemcpyAsync(to, rows, piece->bytes, cudaMemcpyDeviceToDevice, stream);
	else
		error = c->cuda->cudaMemcpy2DAsync(to, c->row_bytes, rows, stride, c->row_bytes, piece->n,
						   cudaMemcpyDeviceToDevice, stream);
	GM_TRY(check(c->cuda, error, "copying rows within the device", err));
	return check(c->cuda, c->cuda->cudaEventRecord(piece->staged, stream), "event after the rows", err);
}

static int fetch(const struct gm_capture *c, const struct piece *piece, struct gm_error *err)
{
	const struct gm_cuda *cuda = c->cuda;

	GM_TRY(check(cuda, cuda->cudaStreamWaitEvent(c->stream, piece->staged, 0), "waiting for the rows", err));
	GM_TRY(check(cuda,
		     cuda->cudaMemcpyAsync(c->pinned + piece->offset, c->staging + piece->offset, piece->bytes,
					   cudaMemcpyDeviceToHost, c->stream),
		     "copying rows to the host", err));
	return check(cuda, cuda->cudaEventRecord(piece->copied, c->stream), "event after the copy", err);
}

/* Called with the lock held. */
static int enqueue(struct gm_capture *c, struct piece rows, const char *data, size_t stride, cudaStream_t stream)
{
	struct gm_error err = {0};
	struct piece *piece;
	bool waited = false;
	size_t offset;

	while (!c->err.code && !find_room(c, round_up(rows.bytes), &offset)) {
		c->stats.n_wait += !waited;
		waited = true;
		pthread_cond_wait(&c->emptied, &c->lock);
	}
	if (c->err.code)
		return c->err.code;
	piece = &c->piece[c->head % N_PIECE];
	rows.staged = piece->staged;
	rows.copied = piece->copied;
	rows.offset = offset;
	*piece = rows;
	if (stage(c, piece, data, stride, stream, &err) < 0 || fetch(c, piece, &err) < 0) {
		/* half of it may be under way: it must have ended before close frees the memory. What fails here has failed above. */
		c->cuda->cudaStreamSynchronize(stream);
		c->cuda->cudaStreamSynchronize(c->stream);
		c->cuda->cudaGetLastError();
		keep(c, &err);
		return err.code;
	}
	c->end = offset + round_up(rows.bytes);
	c->head++;
	c->stats.n_row += rows.n;
	pthread_cond_signal(&c->filled);
	return 0;
}

/* A capture that failed says so whatever it is called with. */
static int check_call(struct gm_capture *c, uint32_t n, const void *rows, size_t stride, struct gm_error *err)
{
	int status;

	pthread_mutex_lock(&c->lock);
	status = report(c, err);
	pthread_mutex_unlock(&c->lock);
	GM_TRY(status);
	if (n > 0 && !rows)
		return gm_fail(err, GM_ERR_USAGE, "no rows: CUDA capture: must be one at least");
	if (stride % sizeof(float) != 0 || (n > 1 && stride < c->row_bytes))
		return gm_fail(err, GM_ERR_USAGE, "rows %zu bytes apart: CUDA capture: %u experts take %zu", stride,
			       c->options.n_expert, c->row_bytes);
	return 0;
}

static int check_stream(struct gm_capture *c, cudaStream_t stream, struct gm_error *err)
{
	enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;

	GM_TRY(check(c->cuda, c->cuda->cudaStreamIsCapturing(stream, &capturing), "the caller's stream", err));
	if (capturing != cudaStreamCaptureStatusNone)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "the stream is being captured into a CUDA graph: CUDA capture: call gm_capture_rows between "
			       "graphs");
	return 0;
}

static int enqueue_all(struct gm_capture *c, struct piece piece, uint32_t n, const char *rows, size_t stride,
		       cudaStream_t stream, struct gm_error *err)
{
	int status = 0;

	pthread_mutex_lock(&c->lock);
	while (n > 0 && status == 0) {
		piece.n = n < c->max_rows ? n : c->max_rows;
		piece.bytes = piece.n * c->row_bytes;
		status = enqueue(c, piece, rows, stride, stream);
		n -= piece.n;
		piece.first += piece.n;
		rows += piece.n * stride;
	}
	if (status < 0)
		report(c, err);
	pthread_mutex_unlock(&c->lock);
	return status;
}

/* A failure to reach the device is as final as one further in. */
static int fail_for_good(struct gm_capture *c, const struct gm_error *failure, struct gm_error *err)
{
	int status;

	pthread_mutex_lock(&c->lock);
	keep(c, failure);
	status = report(c, err);
	pthread_mutex_unlock(&c->lock);
	return status;
}

int gm_capture_rows(struct gm_capture *c, uint32_t layer, uint64_t first, uint32_t n, const void *rows, size_t stride,
		    void *stream, struct gm_error *err)
{
	struct gm_error failure = {0};
	int before = 0;
	int status;

	if (stride == 0)
		stride = c->row_bytes;
	GM_TRY(check_call(c, n, rows, stride, err));
	if (n == 0)
		return 0;
	if (enter_device(c, &before, &failure) < 0)
		return fail_for_good(c, &failure, err);
	status = check_stream(c, stream, &failure);
	if (status == 0)
		status = enqueue_all(c, (struct piece){.layer = layer, .first = first}, n, rows, stride, stream, err);
	else if (status == GM_ERR_UNSUPPORTED)
		gm_fail(err, status, "%s", failure.text);
	else
		status = fail_for_good(c, &failure, err);
	leave_device(c, before);
	return status;
}

int gm_capture_flush(struct gm_capture *c, struct gm_error *err)
{
	uint64_t head;
	int status;

	pthread_mutex_lock(&c->lock);
	head = c->head;
	while (c->tail < head)
		pthread_cond_wait(&c->emptied, &c->lock);
	status = report(c, err);
	pthread_mutex_unlock(&c->lock);
	return status;
}

void gm_capture_stats(struct gm_capture *c, struct gm_capture_stats *stats)
{
	pthread_mutex_lock(&c->lock);
	*stats = c->stats;
	pthread_mutex_unlock(&c->lock);
}

/* --- closing --- */

/* Everything is tried, whatever fails. */
static void free_rings(struct gm_capture *c, struct gm_error *err)
{
	const struct gm_cuda *cuda = c->cuda;

	if (c->stream) /* pieces that nobody waited for, after an error */
		check(cuda, cuda->cudaStreamSynchronize(c->stream), "waiting for the last copies", err);
	for (size_t i = 0; i < N_PIECE; i++) {
		if (c->piece[i].staged)
			check(cuda, cuda->cudaEventDestroy(c->piece[i].staged), "releasing an event", err);
		if (c->piece[i].copied)
			check(cuda, cuda->cudaEventDestroy(c->piece[i].copied), "releasing an event", err);
	}
	if (c->stream)
		check(cuda, cuda->cudaStreamDestroy(c->stream), "releasing the stream", err);
	if (c->pinned)
		check(cuda, cuda->cudaFreeHost(c->pinned), "freeing pinned memory", err);
	if (c->staging)
		check(cuda, cuda->cudaFree(c->staging), "freeing device memory", err);
}

int gm_capture_close(struct gm_capture *c, struct gm_error *err)
{
	struct gm_error *first;
	int before = 0;
	int status;

	if (!c)
		return 0;
	first = &c->err;
	if (c->started) {
		pthread_mutex_lock(&c->lock);
		c->ending = true;
		pthread_cond_signal(&c->filled);
		pthread_mutex_unlock(&c->lock);
		pthread_join(c->thread, NULL);
	}
	if (c->staging || c->stream) {
		bool entered = enter_device(c, &before, first) == 0;

		free_rings(c, first);
		if (entered)
			leave_device(c, before);
	}
	status = report(c, err);
	pthread_cond_destroy(&c->emptied);
	pthread_cond_destroy(&c->filled);
	pthread_mutex_destroy(&c->lock);
	free(c);
	return status;
}
