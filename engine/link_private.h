/* What the files of the link share: link.c (what callers see), link_worker.c (the thread). */
#ifndef GM_ENGINE_LINK_PRIVATE_H
#define GM_ENGINE_LINK_PRIVATE_H

#include "engine/link.h"
#include "policies/list.h"

#include <pthread.h>

#define GM_LINK_NONE UINT32_MAX

enum gm_link_state { GM_LINK_FREE, GM_LINK_QUEUED, GM_LINK_RUNNING, GM_LINK_ARRIVED };

struct gm_link_job {
	enum gm_link_state state;
	bool demand;   /* it was started as one */
	bool owned;    /* by the caller: a demand job or a promoted one */
	bool released; /* the owner does not wait for it */
	struct gm_link_request request;
	struct gm_link_times times;
	double asked_us; /* no start counts from before */
	double until_us; /* running: does not arrive before; not throttled: 0 */
	bool copied;     /* running: nothing is left but to wait for until_us, which anybody can see; see gm_link_settle */
	double copied_us;
	struct gm_error err;
	uint32_t next_free;
};

struct gm_link {
	struct gm_link_options options;
	pthread_t thread;
	bool started;

	pthread_mutex_t lock;           /* for all below */
	pthread_cond_t queued, changed; /* for the worker; for waiters */
	bool ending, lost;              /* lost: the worker has ended, or is about to */
	uint32_t n_waiting;             /* threads in gm_link_wait that want to know when a job starts */
	struct gm_link_job *job;        /* [max_job] */
	uint32_t first_free, running;
	struct gm_node *demand, *background,
		*landed;     /* [max_job + 1]: oldest first; landed: background jobs for gm_link_poll */
	double free_us;      /* throttled: when the link has done what it began */
	struct gm_error err; /* the first failure */
	struct gm_link_stats stats;
};

/* All with the lock held. */
void gm_link_free_job(struct gm_link *link, uint32_t job);
void gm_link_drop_read(struct gm_link *link, struct gm_link_job *job);
uint32_t gm_link_oldest(const struct gm_link *link, const struct gm_node *list); /* or GM_LINK_NONE */
double gm_link_now_us(const struct gm_link *link);
/* The job under way arrives, if its time has come. Called by the worker, and by all who want to know: a worker that is late to wake up keeps
 * nobody waiting. */
void gm_link_settle(struct gm_link *link);

void *gm_link_work(void *link);

#endif
