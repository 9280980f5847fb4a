/* The link's thread: picks the next job, waits for its bytes, copies, and keeps to the throttle. */
#include "engine/link_private.h"

static double later(double a, double b)
{
	return a > b ? a : b;
}

/* --- the ends of jobs; with the lock held --- */

static void end_job(struct gm_link *link, uint32_t job)
{
	struct gm_link_job *j = &link->job[job];

	j->state = GM_LINK_ARRIVED;
	if (j->released)
		gm_link_free_job(link, job);
	else if (!j->owned)
		gm_list_add_after(link->landed, link->landed[link->options.max_job].older, job);
	pthread_cond_broadcast(&link->changed);
}

static uint64_t request_bytes(const struct gm_link_request *request)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < GM_LINK_MAX_PIECE; i++)
		bytes += request->piece[i].bytes;
	return bytes;
}

void gm_link_settle(struct gm_link *link)
{
	uint32_t job = link->running;
	struct gm_link_job *j;

	if (job == GM_LINK_NONE)
		return;
	j = &link->job[job];
	if (!j->copied || (j->until_us > j->copied_us && gm_link_now_us(link) < j->until_us))
		return;
	/* what the throttle meant, not when that was noticed: so that late awakenings do not add up */
	j->times.arrived_us = link->free_us = later(j->until_us, j->copied_us);
	link->running = GM_LINK_NONE;
	link->stats.n_copied++;
	link->stats.bytes += request_bytes(&j->request);
	link->stats.busy_us += j->times.arrived_us - j->times.started_us;
	if (link->options.on_copied)
		link->options.on_copied(link->options.user, j->request.tag, j->demand, &j->times);
	end_job(link, job);
}

static void fail_job(struct gm_link *link, uint32_t job, const struct gm_error *err)
{
	struct gm_link_job *j = &link->job[job];

	j->err = *err;
	if (!link->err.code)
		link->err = *err;
	j->times.arrived_us = link->free_us = gm_link_now_us(link);
	end_job(link, job);
}

/* Nobody will copy any more: what is queued fails with the reason. */
static void fail_list(struct gm_link *link, struct gm_node *list)
{
	for (uint32_t job = gm_link_oldest(link, list); job != GM_LINK_NONE; job = gm_link_oldest(link, list)) {
		gm_list_remove(list, job);
		gm_link_drop_read(link, &link->job[job]);
		fail_job(link, job, &link->err);
	}
}

static void lose(struct gm_link *link)
{
	link->lost = true;
	fail_list(link, link->demand);
	fail_list(link, link->background);
}

/* --- one copy; without the lock --- */

/* Sees to it that a failed operation has left an error with a code of ours. */
static void take_status(int status, bool *lost, struct gm_error *err)
{
	if (status >= 0)
		return;
	*lost = *lost || status == GM_LINK_LOST;
	gm_fail(err, status, "copy failed: link to the device");
	if (err->code == GM_LINK_LOST)
		err->code = GM_ERR_IO;
}

static void copy(const struct gm_link *link, const struct gm_link_request *request, bool *lost, struct gm_error *err)
{
	const struct gm_link_ops *ops = &link->options.ops;

	for (uint32_t i = 0; i < GM_LINK_MAX_PIECE && !err->code; i++) {
		const struct gm_link_piece *piece = &request->piece[i];

		if (piece->bytes > 0)
			take_status(ops->copy(ops->user, piece->to, piece->offset, piece->from, piece->bytes, err), lost,
				    err);
	}
	/* after a failure too: what was enqueued reads host memory that others will use again */
	if (ops->finish && !*lost)
		take_status(ops->finish(ops->user, err), lost, err);
}

/* --- one job; with the lock held, which is left for the copy --- */

static void start_job(struct gm_link *link, uint32_t job, double ready_us)
{
	struct gm_link_job *j = &link->job[job];
	const struct gm_throttle *throttle = &link->options.throttle;

	j->state = GM_LINK_RUNNING;
	j->demand = j->owned;
	link->running = job;
	j->times.started_us = gm_link_now_us(link);
	if (gm_throttle_is_on(throttle)) {
		j->times.started_us = later(later(link->free_us, j->asked_us), ready_us);
		j->until_us = j->times.started_us + gm_throttle_us(throttle, request_bytes(&j->request));
		if (link->n_waiting > 0)
			pthread_cond_broadcast(&link->changed);
	}
}

static void run_job(struct gm_link *link, uint32_t job, double ready_us)
{
	struct gm_link_job *j = &link->job[job];
	struct gm_error err = {0};
	bool lost = false;
	double until;

	start_job(link, job, ready_us);
	until = j->until_us;
	pthread_mutex_unlock(&link->lock);
	copy(link, &j->request, &lost, &err);
	gm_link_drop_read(link, j);
	pthread_mutex_lock(&link->lock);
	if (err.code) {
		link->running = GM_LINK_NONE;
		fail_job(link, job, &err);
		if (lost)
			lose(link);
		return;
	}
	j->copied = true;
	j->copied_us = gm_link_now_us(link);
	/* from here on others may settle it, and use it again */
	pthread_mutex_unlock(&link->lock);
	gm_pace_until(link->options.clock, until);
	pthread_mutex_lock(&link->lock);
	gm_link_settle(link);
}

/* 1: the job's bytes are there; 0: not yet; negative: they will not come. */
static int find_bytes(struct gm_link *link, struct gm_link_job *j, double *ready_us, struct gm_error *err)
{
	const void *from[GM_LINK_MAX_PIECE] = {NULL};
	int status = 1;

	*ready_us = 0;
	if (!j->request.pending)
		return 1;
	status = link->options.source.ready(link->options.source.user, j->request.read, from, ready_us, err);
	for (uint32_t i = 0; status > 0 && i < GM_LINK_MAX_PIECE; i++) {
		if (j->request.piece[i].bytes > 0 && !from[i])
			return gm_fail(err, GM_ERR_USAGE,
				       "bytes from nowhere: link to the device: piece %u of %zu bytes was not read", i,
				       j->request.piece[i].bytes);
		j->request.piece[i].from = from[i];
	}
	return status;
}

/* Returns whether there was something to do. */
static bool work_once(struct gm_link *link)
{
	struct gm_node *list = link->demand;
	uint32_t job = gm_link_oldest(link, list);
	struct gm_error err = {0};
	double ready_us;
	int status;

	if (job == GM_LINK_NONE)
		job = gm_link_oldest(link, list = link->background);
	if (job == GM_LINK_NONE)
		return false;
	status = find_bytes(link, &link->job[job], &ready_us, &err);
	if (status == 0)
		return false;
	gm_list_remove(list, job);
	if (status > 0) {
		run_job(link, job, ready_us);
		return true;
	}
	gm_fail(&err, status, "read failed: link to the device");
	gm_link_drop_read(link, &link->job[job]);
	fail_job(link, job, &err);
	return true;
}

void *gm_link_work(void *user)
{
	struct gm_link *link = user;

	gm_pace_sharpen();
	pthread_mutex_lock(&link->lock);
	while (!link->ending && !link->lost)
		if (!work_once(link))
			pthread_cond_wait(&link->queued, &link->lock);
	pthread_mutex_unlock(&link->lock);
	return NULL;
}
