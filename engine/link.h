/* The link from host to device: copies of experts into slots, one at a time, by a thread of its own (docs/semantics.md, R6 and R14).
 *
 *   link = gm_link_open(&(struct gm_link_options){.ops = {.copy = ..., .finish = ..., .user = device}, .max_job = 512}, &err);
 *   T1:     while ((status = gm_link_poll(link, T1, &arrival, &err)) > 0) ... arrival.tag's copy has landed ...
 *   fetch:  gm_link_demand(link, &request, &job, &err)         late hit: gm_link_promote(link, job, &err)
 *   admit:  gm_link_background(link, &request, &job, &err)
 *   before the expert is computed: gm_link_wait(link, job, &times, &err); when nobody needs the job any more: gm_link_release(link, job)
 *   gm_link_close(link, &err);
 *
 * Order. Demand jobs start in the order of gm_link_demand and gm_link_promote, ahead of all background jobs, which start in theirs. A copy that has
 * started is never interrupted. A job whose bytes are still being read (gm_link_request.pending) holds up those behind it, as R14 and R18
 * say: the link stands idle for a demand job's read even if there are background jobs; a background job's read does not keep demand jobs waiting.
 *
 * Two kinds of ends. A background job is taken by gm_link_poll when it has arrived, which releases it. A demand job, and a background job that was
 * promoted, belongs to the caller: it waits (as often as it likes) and releases; gm_link_poll does not show it.
 *
 * Errors. A copy or read that fails fails its job (gm_link_wait, gm_link_poll) and makes the link refuse new jobs, since its slot holds
 * something undefined; jobs already queued go on. gm_link_clear makes it usable again. If the device is lost (ops return GM_LINK_LOST) the
 * worker ends and every job fails, now and later. No function waits for a worker that has ended.
 *
 * Any thread may call; open, clear and close want nobody else inside (but gm_link_wake).
 */
#ifndef GM_ENGINE_LINK_H
#define GM_ENGINE_LINK_H

#include "base/error.h"
#include "engine/pace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_link;
struct gm_expert_store;
struct gm_link_times;

#define GM_LINK_MAX_PIECE 4u /* GM_EXPERT_STORE_MAX_PART */
#define GM_LINK_LOST (-100)  /* the device is gone: for the ops alone, callers see GM_ERR_IO */

/* The device. Called by the worker's thread only, never with a lock held. Return 0, a negative enum gm_status, or GM_LINK_LOST, with err
 * filled in. */
struct gm_link_ops {
	/* Does or enqueues one piece: bytes from host memory to `to` (a tensor, a device address, ...) at offset. */
	int (*copy)(void *user, void *to, size_t offset, const void *from, size_t bytes, struct gm_error *err);
	/* Waits until every piece enqueued so far has arrived. Called once a job, also after a failed piece. NULL: copy returns when it is
	 * done. */
	int (*finish)(void *user, struct gm_error *err);
	void *user;
};

/* memcpy to (char *)to + offset: the device is host memory. */
extern const struct gm_link_ops gm_link_memcpy;

/* Bytes that may still be on their way to host memory: gm_link_expert_store(store), or a test's own. */
struct gm_link_source {
	/* 1: there, from[] filled in, since ready_us; 0: not yet (gm_link_wake will be called); negative: failed. Must not wait, and must not
	 * call the link. */
	int (*ready)(void *user, uint32_t read, const void *from[GM_LINK_MAX_PIECE], double *ready_us,
		     struct gm_error *err);
	/* The bytes are not needed any more. Called once a pending job, whatever becomes of it, once it is accepted. */
	void (*done)(void *user, uint32_t read);
	/* Called by gm_link_open with gm_link_wake and the link, and by gm_link_close with NULL, after which gm_link_wake must not be called any
	 * more. */
	void (*listen)(void *user, void (*changed)(void *link), void *link);
	void *user;
};
/* The store's reads as a source. */
struct gm_link_source gm_link_expert_store(struct gm_expert_store *store);

struct gm_link_options {
	struct gm_link_ops ops;
	struct gm_link_source source;      /* all zero: no pending jobs */
	uint32_t max_job;                  /* jobs queued, under way, or not released; 1 ... 2^20 */
	struct gm_throttle throttle;       /* of a job, see below */
	const struct gm_pace_clock *clock; /* NULL: the real one */
	/* Hears of every copy that has arrived; may be NULL. demand: it was started as one. Called by any thread with the link's lock held: must not call
	 * the link. */
	void (*on_copied)(void *user, uint64_t tag, bool demand, const struct gm_link_times *times);
	void *user;
};

/* Throttled, a job counts from the moment when the link was free and the job and its bytes were there, so that the thread's waking up and the
 * copy itself cost nothing as long as they are faster than the throttle.
 * NULL on failure: GM_ERR_USAGE, GM_ERR_MEMORY. */
struct gm_link *gm_link_open(const struct gm_link_options *options, struct gm_error *err);

/* For a source: a pending job's bytes are there, or failed. `link` is a struct gm_link *. Any thread; not from within `ready`. */
void gm_link_wake(void *link);

/* --- jobs --- */

struct gm_link_piece {
	void *to; /* handed to ops.copy with offset */
	size_t offset;
	const void *from; /* NULL for a pending job: the source's from[] of the same index */
	size_t bytes;     /* 0: left out */
};

struct gm_link_request {
	uint64_t tag; /* the caller's, for gm_link_poll */
	struct gm_link_piece piece[GM_LINK_MAX_PIECE];
	bool pending;  /* the bytes come from the source's read */
	uint32_t read; /* which the link releases (source.done), also if the job fails; not if the call itself fails */
};

/* Queue a job; the request is copied, its source bytes must stay valid until it has arrived. GM_ERR_USAGE: a request that makes no sense.
 * GM_ERR_MEMORY: max_job are in use. Otherwise the link's first error. */
int gm_link_demand(struct gm_link *link, const struct gm_link_request *request, uint32_t *job, struct gm_error *err);
int gm_link_background(struct gm_link *link, const struct gm_link_request *request, uint32_t *job, struct gm_error *err);

/* Makes a background job that gm_link_poll has not returned a demand job, behind those that are queued. One that is under way or has arrived only
 * changes hands. */
int gm_link_promote(struct gm_link *link, uint32_t job, struct gm_error *err);

/* µs of the clock. */
struct gm_link_times {
	double queued_us;  /* gm_link_demand or gm_link_background was called */
	double started_us; /* the copy began (throttled: the moment from which it counts) */
	double arrived_us; /* the copy was done (throttled: as the throttle says, unless it took longer) */
};

/* Waits until a demand or promoted job has arrived, and returns its status. times may be NULL; not filled in for a job that failed. */
int gm_link_wait(struct gm_link *link, uint32_t job, struct gm_link_times *times, struct gm_error *err);

/* Gives back a demand or promoted job. If it has not arrived yet it goes on, and is given back then. */
void gm_link_release(struct gm_link *link, uint32_t job);

struct gm_link_arrival {
	uint64_t tag;
	uint32_t job; /* as gm_link_background gave it; released already */
	struct gm_link_times times;
};

/* Takes the next background job, in the order of arrival, that arrived by by_us (HUGE_VAL: by now). 1: one was taken; 0: there is none;
 * negative: one that failed was taken, its tag and job are filled in. */
int gm_link_poll(struct gm_link *link, double by_us, struct gm_link_arrival *arrival, struct gm_error *err);

/* --- the link as a whole --- */

/* Waits until no job is queued or under way. Returns the link's first error, if any. */
int gm_link_drain(struct gm_link *link, struct gm_error *err);

/* Drops the queued jobs, waits for the one under way, gives back all jobs and forgets errors (R5, --reset-per-sequence; or after a failure, with
 * everything else of the cache). Returns an error only if the worker has ended. */
int gm_link_clear(struct gm_link *link, struct gm_error *err);

struct gm_link_stats {
	uint64_t n_demand, n_background, n_promoted; /* accepted jobs; promoted ones while still queued */
	uint64_t n_copied, bytes;                    /* that arrived */
	double busy_us;                              /* from start to arrival, added up */
	uint32_t n_used;                             /* jobs in use now */
};
void gm_link_stats(struct gm_link *link, struct gm_link_stats *stats);

/* Drops what is queued, waits for the job under way, ends the thread and frees everything; NULL is fine. Returns the link's first error. */
int gm_link_close(struct gm_link *link, struct gm_error *err);

#endif
