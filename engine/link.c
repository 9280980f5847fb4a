#include "engine/link_private.h"

#include <stdlib.h>
#include <string.h>

#define MAX_JOB (1u << 20)

static int copy_memory(void *user, void *to, size_t offset, const void *from, size_t bytes, struct gm_error *err)
{
	(void)user;
	(void)err;
	memcpy((char *)to + offset, from, bytes);
	return 0;
}

const struct gm_link_ops gm_link_memcpy = {.copy = copy_memory};

/* --- jobs, with the lock held --- */

double gm_link_now_us(const struct gm_link *link)
{
	return link->options.clock->now_us(link->options.clock->user);
}

uint32_t gm_link_oldest(const struct gm_link *link, const struct gm_node *list)
{
	uint32_t job = list[link->options.max_job].newer;

	return job == link->options.max_job ? GM_LINK_NONE : job;
}

static void add_newest(const struct gm_link *link, struct gm_node *list, uint32_t job)
{
	gm_list_add_after(list, list[link->options.max_job].older, job);
}

void gm_link_free_job(struct gm_link *link, uint32_t job)
{
	link->job[job].state = GM_LINK_FREE;
	link->job[job].next_free = link->first_free;
	link->first_free = job;
	link->stats.n_used--;
}

void gm_link_drop_read(struct gm_link *link, struct gm_link_job *job)
{
	if (job->request.pending)
		link->options.source.done(link->options.source.user, job->request.read);
}

static int report(const struct gm_link *link, struct gm_error *err)
{
	return link->err.code ? gm_fail(err, link->err.code, "%s", link->err.text) : 0;
}

/* --- opening and closing --- */

static int check_options(const struct gm_link_options *o, struct gm_error *err)
{
	const struct gm_link_source *s = &o->source;

	if (!o->ops.copy)
		return gm_fail(err, GM_ERR_USAGE, "no function that copies: link to the device");
	if (o->max_job == 0 || o->max_job > MAX_JOB)
		return gm_fail(err, GM_ERR_USAGE, "%u jobs: link to the device: must be 1 to %u", o->max_job, MAX_JOB);
	if (!s->ready != !s->done || !s->ready != !s->listen)
		return gm_fail(err, GM_ERR_USAGE, "half a source: link to the device: must have ready, done and listen");
	return 0;
}

static int allocate(struct gm_link *link, struct gm_error *err)
{
	struct gm_node **const lists[] = {&link->demand, &link->background, &link->landed};
	uint32_t n = link->options.max_job;

	if (!(link->job = gm_alloc(n, sizeof(*link->job), err)))
		return GM_ERR_MEMORY;
	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
		if (!(*lists[i] = gm_alloc(1, gm_list_bytes(n), err)))
			return GM_ERR_MEMORY;
		gm_list_init(*lists[i], n);
	}
	return 0;
}

/* Every job free, the first one first. */
static void free_all(struct gm_link *link)
{
	uint32_t n = link->options.max_job;

	gm_list_init(link->landed, n);
	for (uint32_t i = 0; i < n; i++) {
		link->job[i].state = GM_LINK_FREE;
		link->job[i].next_free = i + 1 < n ? i + 1 : GM_LINK_NONE;
	}
	link->first_free = 0;
	link->stats.n_used = 0;
}

static int start(struct gm_link *link, struct gm_error *err)
{
	GM_TRY(check_options(&link->options, err));
	GM_TRY(allocate(link, err));
	free_all(link);
	if (pthread_create(&link->thread, NULL, gm_link_work, link) != 0)
		return gm_fail(err, GM_ERR_MEMORY, "no thread can be started: link to the device");
	link->started = true;
	if (link->options.source.listen)
		link->options.source.listen(link->options.source.user, gm_link_wake, link);
	return 0;
}

struct gm_link *gm_link_open(const struct gm_link_options *options, struct gm_error *err)
{
	struct gm_link *link = gm_alloc(1, sizeof(*link), err);

	if (!link)
		return NULL;
	link->options = *options;
	if (!link->options.clock)
		link->options.clock = &gm_pace_real;
	link->running = GM_LINK_NONE;
	pthread_mutex_init(&link->lock, NULL);
	pthread_cond_init(&link->queued, NULL);
	pthread_cond_init(&link->changed, NULL);
	if (start(link, err) < 0) {
		gm_link_close(link, NULL);
		return NULL;
	}
	return link;
}

void gm_link_wake(void *user)
{
	struct gm_link *link = user;

	pthread_mutex_lock(&link->lock);
	pthread_cond_signal(&link->queued);
	pthread_mutex_unlock(&link->lock);
}

static void drop_list(struct gm_link *link, struct gm_node *list)
{
	for (uint32_t job = gm_link_oldest(link, list); job != GM_LINK_NONE; job = gm_link_oldest(link, list)) {
		gm_list_remove(list, job);
		gm_link_drop_read(link, &link->job[job]);
	}
}

/* With the lock held, which is left while the job under way ends. */
static void drop_all(struct gm_link *link)
{
	drop_list(link, link->demand);
	drop_list(link, link->background);
	while (link->running != GM_LINK_NONE)
		pthread_cond_wait(&link->changed, &link->lock);
}

int gm_link_clear(struct gm_link *link, struct gm_error *err)
{
	int status = 0;

	pthread_mutex_lock(&link->lock);
	drop_all(link);
	free_all(link);
	if (link->lost)
		status = report(link, err);
	else
		link->err = (struct gm_error){0};
	pthread_mutex_unlock(&link->lock);
	return status;
}

int gm_link_close(struct gm_link *link, struct gm_error *err)
{
	int status;

	if (!link)
		return 0;
	if (link->started) {
		if (link->options.source.listen)
			link->options.source.listen(link->options.source.user, NULL, NULL);
		pthread_mutex_lock(&link->lock);
		drop_all(link);
		link->ending = true;
		pthread_cond_signal(&link->queued);
		pthread_mutex_unlock(&link->lock);
		pthread_join(link->thread, NULL);
	}
	status = report(link, err);
	pthread_cond_destroy(&link->changed);
	pthread_cond_destroy(&link->queued);
	pthread_mutex_destroy(&link->lock);
	free(link->job);
	free(link->demand);
	free(link->background);
	free(link->landed);
	free(link);
	return status;
}

/* --- queueing --- */

static int check_request(const struct gm_link *link, const struct gm_link_request *request, struct gm_error *err)
{
	if (request->pending && !link->options.source.ready)
		return gm_fail(err, GM_ERR_USAGE, "a pending job without a source: link to the device");
	for (uint32_t i = 0; i < GM_LINK_MAX_PIECE && !request->pending; i++)
		if (request->piece[i].bytes > 0 && !request->piece[i].from)
			return gm_fail(err, GM_ERR_USAGE, "bytes from nowhere: link to the device: piece %u of %zu bytes",
				       i, request->piece[i].bytes);
	return 0;
}

/* With the lock held. */
static int queue(struct gm_link *link, const struct gm_link_request *request, bool demand, uint32_t *job,
		 struct gm_error *err)
{
	struct gm_link_job *j;

	GM_TRY(report(link, err));
	if (link->first_free == GM_LINK_NONE)
		return gm_fail(err, GM_ERR_MEMORY,
			       "all %u jobs are in use: link to the device: release some, or allow more",
			       link->options.max_job);
	*job = link->first_free;
	j = &link->job[*job];
	link->first_free = j->next_free;
	j->state = GM_LINK_QUEUED;
	j->owned = demand;
	j->released = false;
	j->request = *request;
	j->times = (struct gm_link_times){.queued_us = gm_link_now_us(link)};
	j->asked_us = j->times.queued_us;
	j->until_us = 0;
	j->err = (struct gm_error){0};
	j->copied = false;
	add_newest(link, demand ? link->demand : link->background, *job);
	link->stats.n_used++;
	link->stats.n_demand += demand;
	link->stats.n_background += !demand;
	pthread_cond_signal(&link->queued);
	return 0;
}

int gm_link_demand(struct gm_link *link, const struct gm_link_request *request, uint32_t *job, struct gm_error *err)
{
	int status;

	GM_TRY(check_request(link, request, err));
	pthread_mutex_lock(&link->lock);
	status = queue(link, request, true, job, err);
	pthread_mutex_unlock(&link->lock);
	return status;
}

int gm_link_background(struct gm_link *link, const struct gm_link_request *request, uint32_t *job, struct gm_error *err)
{
	int status;

	GM_TRY(check_request(link, request, err));
	pthread_mutex_lock(&link->lock);
	status = queue(link, request, false, job, err);
	pthread_mutex_unlock(&link->lock);
	return status;
}

/* With the lock held: whether this is a job, and of the caller's own or not. */
static int check_job(const struct gm_link *link, uint32_t job, bool owned, struct gm_error *err)
{
	if (job >= link->options.max_job || link->job[job].state == GM_LINK_FREE || link->job[job].owned != owned)
		return gm_fail(err, GM_ERR_USAGE, "no such job: link to the device: %u is no %s job", job,
			       owned ? "demand or promoted" : "background");
	return 0;
}

static void promote(struct gm_link *link, uint32_t job)
{
	struct gm_link_job *j = &link->job[job];

	j->owned = true;
	if (j->state == GM_LINK_ARRIVED)
		gm_list_remove(link->landed, job);
	if (j->state != GM_LINK_QUEUED)
		return;
	gm_list_remove(link->background, job);
	add_newest(link, link->demand, job);
	j->asked_us = gm_link_now_us(link); /* it may have been kept from starting until now */
	link->stats.n_promoted++;
	pthread_cond_signal(&link->queued);
}

int gm_link_promote(struct gm_link *link, uint32_t job, struct gm_error *err)
{
	int status;

	pthread_mutex_lock(&link->lock);
	status = check_job(link, job, false, err);
	if (status == 0)
		promote(link, job);
	pthread_mutex_unlock(&link->lock);
	return status;
}

/* --- ends --- */

/* With the lock held. Where the throttle says when a job will arrive, the waiter looks at the clock itself: to be woken up takes longer. */
static void await(struct gm_link *link, const struct gm_link_job *j)
{
	bool looked = false;

	link->n_waiting++;
	while (j->state != GM_LINK_ARRIVED) {
		if (j->state != GM_LINK_RUNNING || j->until_us == 0 || looked) {
			pthread_cond_wait(&link->changed, &link->lock);
			continue;
		}
		double until = j->until_us;

		pthread_mutex_unlock(&link->lock);
		gm_pace_until(link->options.clock, until);
		pthread_mutex_lock(&link->lock);
		gm_link_settle(link);
		looked = true;
	}
	link->n_waiting--;
}

int gm_link_wait(struct gm_link *link, uint32_t job, struct gm_link_times *times, struct gm_error *err)
{
	int status;

	pthread_mutex_lock(&link->lock);
	status = check_job(link, job, true, err);
	if (status == 0) {
		const struct gm_link_job *j = &link->job[job];

		await(link, j);
		if (j->err.code)
			status = gm_fail(err, j->err.code, "%s", j->err.text);
		else if (times)
			*times = j->times;
	}
	pthread_mutex_unlock(&link->lock);
	return status;
}

void gm_link_release(struct gm_link *link, uint32_t job)
{
	pthread_mutex_lock(&link->lock);
	if (check_job(link, job, true, NULL) == 0) {
		link->job[job].released = true;
		if (link->job[job].state == GM_LINK_ARRIVED)
			gm_link_free_job(link, job);
	}
	pthread_mutex_unlock(&link->lock);
}

/* With the lock held. */
static int take_landed(struct gm_link *link, double by_us, struct gm_link_arrival *arrival, struct gm_error *err)
{
	uint32_t job;
	struct gm_link_job *j;

	gm_link_settle(link);
	job = gm_link_oldest(link, link->landed);
	if (job == GM_LINK_NONE || link->job[job].times.arrived_us > by_us)
		return 0;
	j = &link->job[job];
	*arrival = (struct gm_link_arrival){.tag = j->request.tag, .job = job, .times = j->times};
	gm_list_remove(link->landed, job);
	gm_link_free_job(link, job);
	return j->err.code ? gm_fail(err, j->err.code, "%s", j->err.text) : 1;
}

int gm_link_poll(struct gm_link *link, double by_us, struct gm_link_arrival *arrival, struct gm_error *err)
{
	int status;

	pthread_mutex_lock(&link->lock);
	status = take_landed(link, by_us, arrival, err);
	pthread_mutex_unlock(&link->lock);
	return status;
}

int gm_link_drain(struct gm_link *link, struct gm_error *err)
{
	int status;

	pthread_mutex_lock(&link->lock);
	while (link->running != GM_LINK_NONE || gm_link_oldest(link, link->demand) != GM_LINK_NONE ||
	       gm_link_oldest(link, link->background) != GM_LINK_NONE)
		pthread_cond_wait(&link->changed, &link->lock);
	status = report(link, err);
	pthread_mutex_unlock(&link->lock);
	return status;
}

void gm_link_stats(struct gm_link *link, struct gm_link_stats *stats)
{
	pthread_mutex_lock(&link->lock);
	*stats = link->stats;
	pthread_mutex_unlock(&link->lock);
}
