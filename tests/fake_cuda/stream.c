/* The stand-in's streams: a thread each. All but the thread itself is called with the lock held. */
#include "tests/fake_cuda/fake_private.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void pause_at_random(unsigned max_us, uint64_t random)
{
	long ns = max_us ? (long)(random % max_us) * 1000 : 0;

	/* one in four is not kept waiting at all: pieces should meet in all kinds of ways */
	if (ns > 0 && (random >> 32) % 4 != 0)
		nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

static void do_work(const struct work *work)
{
	for (size_t i = 0; i < work->height; i++) {
		if (work->kind == WORK_COPY)
			memcpy(work->to + i * work->to_pitch, work->from + i * work->from_pitch, work->width);
		else if (work->kind == WORK_SET)
			memset(work->to + i * work->to_pitch, work->value, work->width);
	}
}

/* Returns whether the work may be done: not once something failed. */
static bool may_run(const struct work *work)
{
	if (work->kind == WORK_COPY && ++fake.n_copy == fake.fail_copy)
		fake.lost = fake.copy_error;
	return fake.lost == cudaSuccess;
}

static void *run_stream(void *user)
{
	struct CUstream_st *stream = user;

	pthread_mutex_lock(&fake.lock);
	for (;;) {
		struct work *work;
		uint64_t random;

		while (!stream->head && !stream->ending)
			pthread_cond_wait(&fake.changed, &fake.lock);
		work = stream->head;
		if (!work)
			break;
		while (work->kind == WORK_WAIT && fake.stream[work->wait_stream].done < work->wait_work)
			pthread_cond_wait(&fake.changed, &fake.lock);
		random = fake_random();
		if (may_run(work)) {
			unsigned max_delay_us = fake.options.max_delay_us;

			pthread_mutex_unlock(&fake.lock);
			pause_at_random(max_delay_us, random);
			do_work(work);
			pthread_mutex_lock(&fake.lock);
		}
		stream->head = work->next;
		if (!stream->head)
			stream->tail = &stream->head;
		stream->done++;
		free(work);
		pthread_cond_broadcast(&fake.changed);
	}
	pthread_mutex_unlock(&fake.lock);
	return NULL;
}

static bool start(struct CUstream_st *stream, int device)
{
	memset(stream, 0, sizeof(*stream));
	stream->id = (unsigned)(stream - fake.stream);
	stream->device = device;
	stream->tail = &stream->head;
	stream->used = pthread_create(&stream->thread, NULL, run_stream, stream) == 0;
	return stream->used;
}

struct CUstream_st *fake_stream_new(int device)
{
	for (struct CUstream_st *s = fake.stream + FAKE_MAX_DEVICE; s < fake.stream + FAKE_MAX_STREAM; s++)
		if (!s->used)
			return start(s, device) ? s : NULL;
	return NULL;
}

struct CUstream_st *fake_stream_of(cudaStream_t stream)
{
	if (!stream) {
		int device = fake_current_device();

		stream = &fake.stream[device];
		if (!stream->used && !start(stream, device))
			return NULL;
	}
	if (stream < fake.stream || stream >= fake.stream + FAKE_MAX_STREAM || !stream->used || stream->destroyed) {
		fake_problem("a stream is used that is not there");
		return NULL;
	}
	return stream;
}

void fake_stream_begin_work(struct CUstream_st *stream)
{
	stream->enqueued++;
	fake_clock_merge(&stream->clock, &fake.host);
	stream->clock.seen[stream->id] = stream->enqueued;
}

bool fake_stream_add(struct CUstream_st *stream, const struct work *work)
{
	struct work *copy = malloc(sizeof(*copy));

	if (!copy)
		return false;
	*copy = *work;
	copy->next = NULL;
	*stream->tail = copy;
	stream->tail = &copy->next;
	pthread_cond_broadcast(&fake.changed);
	return true;
}

void fake_stream_wait(const struct CUstream_st *stream)
{
	uint64_t until = stream->enqueued;

	while (stream->done < until)
		pthread_cond_wait(&fake.changed, &fake.lock);
}

void fake_stream_end(struct CUstream_st *stream)
{
	if (!stream->used || stream->destroyed)
		return;
	stream->ending = stream->destroyed = true;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
	pthread_join(stream->thread, NULL);
	pthread_mutex_lock(&fake.lock);
}
