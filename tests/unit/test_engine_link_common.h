/* What the tests of the link share: a played device and played reads. */
#ifndef GM_TESTS_ENGINE_LINK_COMMON_H
#define GM_TESTS_ENGINE_LINK_COMMON_H

#include "engine/link.h"
#include "tests/unit/test_engine_common.h"

/* --- a device that copies when it is told to --- */

#define MAX_COPY 2048u

struct device {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool gated;               /* a copy ends when device_step lets it */
	unsigned n_begun;         /* copies (jobs) that have begun */
	unsigned n_let;           /* and that may end */
	uint64_t order[MAX_COPY]; /* their tags: the first piece's offset */
	unsigned n_piece;         /* since the last finish */
	unsigned n_finish;
	unsigned fail_copy, fail_finish; /* the how manieth job fails; 0: none */
	int fail_code;
	long pause_us;              /* of a copy */
	struct played_clock *clock; /* which a copy advances by clock_us */
	double clock_us;
};

static inline void device_init(struct device *device)
{
	memset(device, 0, sizeof(*device));
	pthread_mutex_init(&device->lock, NULL);
	pthread_cond_init(&device->changed, NULL);
	device->fail_code = GM_ERR_IO;
}

/* Each job begins with a piece whose `from` is not NULL; its tag is the offset. */
static inline int device_copy(void *user, void *to, size_t offset, const void *from, size_t bytes, struct gm_error *err)
{
	struct device *device = user;
	int status = 0;

	(void)to;
	(void)from;
	(void)bytes;
	pthread_mutex_lock(&device->lock);
	if (device->n_piece++ == 0) {
		device->order[device->n_begun++ % MAX_COPY] = offset;
		pthread_cond_broadcast(&device->changed);
		while (device->gated && device->n_let < device->n_begun)
			pthread_cond_wait(&device->changed, &device->lock);
		if (device->n_begun == device->fail_copy)
			status = gm_fail(err, device->fail_code, "the device is out of order: job %u", device->n_begun);
	}
	long pause = device->pause_us;
	pthread_mutex_unlock(&device->lock);
	if (pause > 0)
		pause_us(pause);
	if (device->clock)
		played_advance(device->clock, device->clock_us);
	return status;
}

static inline int device_finish(void *user, struct gm_error *err)
{
	struct device *device = user;
	int status = 0;

	pthread_mutex_lock(&device->lock);
	device->n_piece = 0;
	if (++device->n_finish == device->fail_finish)
		status = gm_fail(err, device->fail_code, "the event never came: job %u", device->n_finish);
	pthread_mutex_unlock(&device->lock);
	return status;
}

/* Waits, ten seconds at most, until n copies have begun. */
static inline void device_await(struct device *device, unsigned n)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 10;
	pthread_mutex_lock(&device->lock);
	while (device->n_begun < n)
		if (pthread_cond_timedwait(&device->changed, &device->lock, &until) != 0)
			break;
	unsigned begun = device->n_begun;
	pthread_mutex_unlock(&device->lock);
	assert_int_equal(begun, n);
}

static inline void device_step(struct device *device)
{
	pthread_mutex_lock(&device->lock);
	device->n_let++;
	pthread_cond_broadcast(&device->changed);
	pthread_mutex_unlock(&device->lock);
}

static inline void device_open_gate(struct device *device)
{
	pthread_mutex_lock(&device->lock);
	device->gated = false;
	pthread_cond_broadcast(&device->changed);
	pthread_mutex_unlock(&device->lock);
}

static inline void check_order(struct device *device, const uint64_t *tag, unsigned n)
{
	pthread_mutex_lock(&device->lock);
	unsigned begun = device->n_begun;
	pthread_mutex_unlock(&device->lock);
	assert_int_equal(begun, n);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(device->order[i % MAX_COPY], tag[i]);
}

/* --- reads that end when they are told to --- */

#define MAX_READ 1024u

struct reads {
	pthread_mutex_t lock;
	int state[MAX_READ]; /* 0: not there yet; 1: there; negative: failed */
	double ready_us[MAX_READ];
	unsigned n_done[MAX_READ];
	bool without_bytes; /* from[] stays empty */
	void (*changed)(void *link);
	void *link;
};

static inline void reads_init(struct reads *reads)
{
	memset(reads, 0, sizeof(*reads));
	pthread_mutex_init(&reads->lock, NULL);
}

static inline int reads_ready(void *user, uint32_t read, const void *from[GM_LINK_MAX_PIECE], double *ready_us,
			      struct gm_error *err)
{
	struct reads *reads = user;

	pthread_mutex_lock(&reads->lock);
	int state = reads->state[read];
	*ready_us = reads->ready_us[read];
	bool without_bytes = reads->without_bytes;
	pthread_mutex_unlock(&reads->lock);
	for (uint32_t i = 0; i < GM_LINK_MAX_PIECE; i++)
		from[i] = without_bytes ? NULL : "bytes";
	return state < 0 ? gm_fail(err, state, "the disk is out of order: read %u", read) : state;
}

static inline void reads_done(void *user, uint32_t read)
{
	struct reads *reads = user;

	pthread_mutex_lock(&reads->lock);
	reads->n_done[read]++;
	pthread_mutex_unlock(&reads->lock);
}

static inline void reads_listen(void *user, void (*changed)(void *link), void *link)
{
	struct reads *reads = user;

	reads->changed = changed;
	reads->link = link;
}

static inline void reads_end(struct reads *reads, uint32_t read, int state)
{
	pthread_mutex_lock(&reads->lock);
	reads->state[read] = state;
	pthread_mutex_unlock(&reads->lock);
	reads->changed(reads->link);
}

static inline struct gm_link_source source_of(struct reads *reads)
{
	return (struct gm_link_source){.ready = reads_ready, .done = reads_done, .listen = reads_listen, .user = reads};
}

/* --- links --- */

static inline struct gm_link *open_link(struct device *device, struct reads *reads, struct gm_link_options options)
{
	struct gm_error err = {0};

	options.ops = (struct gm_link_ops){.copy = device_copy, .finish = device_finish, .user = device};
	if (reads)
		options.source = source_of(reads);
	if (options.max_job == 0)
		options.max_job = 16;
	struct gm_link *link = gm_link_open(&options, &err);
	if (!link)
		fail_msg("%s", err.text);
	return link;
}

static inline void close_link(struct gm_link *link)
{
	struct gm_error err = {0};

	assert_ok(gm_link_close(link, &err), &err);
}

/* 1,000 bytes in three pieces, the second of them empty. */
static inline struct gm_link_request request_of(uint64_t tag)
{
	return (struct gm_link_request){
		.tag = tag,
		.piece = {{.offset = tag, .from = "a", .bytes = 900}, {0}, {.offset = tag, .from = "b", .bytes = 100}}};
}

static inline struct gm_link_request pending_of(uint64_t tag, uint32_t read)
{
	return (struct gm_link_request){.tag = tag,
					.piece = {{.offset = tag, .bytes = 900}, {.offset = tag, .bytes = 100}},
					.pending = true,
					.read = read};
}

static inline uint32_t demand(struct gm_link *link, uint64_t tag)
{
	const struct gm_link_request request = request_of(tag);
	struct gm_error err = {0};
	uint32_t job;

	assert_ok(gm_link_demand(link, &request, &job, &err), &err);
	return job;
}

static inline uint32_t background(struct gm_link *link, uint64_t tag)
{
	const struct gm_link_request request = request_of(tag);
	struct gm_error err = {0};
	uint32_t job;

	assert_ok(gm_link_background(link, &request, &job, &err), &err);
	return job;
}

static inline uint32_t queue_pending(struct gm_link *link, bool is_demand, uint64_t tag, uint32_t read)
{
	const struct gm_link_request request = pending_of(tag, read);
	struct gm_error err = {0};
	uint32_t job;

	if (is_demand)
		assert_ok(gm_link_demand(link, &request, &job, &err), &err);
	else
		assert_ok(gm_link_background(link, &request, &job, &err), &err);
	return job;
}

static inline struct gm_link_times await_job(struct gm_link *link, uint32_t job)
{
	struct gm_link_times times;
	struct gm_error err = {0};

	assert_ok(gm_link_wait(link, job, &times, &err), &err);
	assert_true(times.queued_us <= times.arrived_us && times.started_us <= times.arrived_us);
	return times;
}

static inline void promote(struct gm_link *link, uint32_t job)
{
	struct gm_error err = {0};

	assert_ok(gm_link_promote(link, job, &err), &err);
}

static inline void drain(struct gm_link *link)
{
	struct gm_error err = {0};

	assert_ok(gm_link_drain(link, &err), &err);
}

static inline struct gm_link_stats stats_of(struct gm_link *link)
{
	struct gm_link_stats stats;

	gm_link_stats(link, &stats);
	return stats;
}

#endif
