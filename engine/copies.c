#include "engine/copies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NO_JOB UINT32_MAX

struct gm_copies {
	struct gm_plugin *plugin;
	struct gm_link *link;
	struct gm_slots *slots;
	struct gm_spans *spans;
	uint32_t n_layer, n_expert;
	uint32_t *job_of; /* [n_layer * n_expert] of background copies that have not landed */
	uint32_t *job;    /* [n_job] of the schedule's copies; NO_JOB: not ordered, or given back */
	uint32_t n_job, max_job;
};

static void on_copied(void *user, uint64_t tag, bool demand, const struct gm_link_times *times)
{
	const struct gm_copies *copies = user;

	gm_spans_add(copies->spans, GM_LANE_LINK, demand ? "fetch" : "background", (uint32_t)tag / copies->n_expert,
		     (uint32_t)tag % copies->n_expert, times->started_us, times->arrived_us);
}

static int copy(void *user, const struct gm_schedule *schedule, uint32_t first, uint32_t n, uint32_t part,
		struct gm_error *err);
static void stop(void *user);

struct gm_copies *gm_copies_new(struct gm_plugin *plugin, const struct gm_copies_options *options, struct gm_error *err)
{
	struct gm_copies *copies = gm_alloc(1, sizeof(*copies), err);
	const struct gm_plugin_copier copier = {.copy = copy, .stop = stop, .user = copies};
	struct gm_link_options link = {.throttle = options->throttle, .on_copied = on_copied, .user = copies};
	int status = GM_OK;

	uint32_t n_item = options->n_layer * options->n_expert;

	if (!copies)
		return NULL;
	copies->plugin = plugin;
	copies->spans = options->spans;
	copies->n_layer = options->n_layer;
	copies->n_expert = options->n_expert;
	copies->job_of = gm_alloc(n_item, sizeof(*copies->job_of), err);
	if (options->ops)
		link.ops = *options->ops;
	else
		status = gm_plugin_link_ops(plugin, &link.ops, err);
	if (!copies->job_of || status < 0)
		goto failed;
	for (uint32_t item = 0; item < n_item; item++)
		copies->job_of[item] = NO_JOB;
	/* every slot may be on its way, and the layer under way may fetch as many again */
	link.max_job = 2 * options->n_slot + 64;
	link.source = gm_plugin_link_source(plugin);
	copies->link = gm_link_open(&link, err);
	if (!copies->link)
		goto failed;
	gm_plugin_set_copier(plugin, &copier);
	return copies;
failed:
	gm_copies_free(copies);
	return NULL;
}

void gm_copies_free(struct gm_copies *copies)
{
	if (!copies)
		return;
	if (copies->link)
		gm_plugin_set_copier(copies->plugin, NULL);
	gm_link_close(copies->link, NULL);
	free(copies->job_of);
	free(copies->job);
	free(copies);
}

void gm_copies_set_slots(struct gm_copies *copies, struct gm_slots *slots)
{
	copies->slots = slots;
}

/* --- background --- */

static uint32_t item_of(const struct gm_copies *copies, uint32_t layer, uint32_t expert)
{
	return layer * copies->n_expert + expert;
}

/* What the link does not take is given back. */
static int order(struct gm_copies *copies, uint32_t layer, uint32_t expert, uint32_t slot, uint32_t only, bool background,
		 uint32_t *job, struct gm_error *err)
{
	int (*give)(struct gm_link *, const struct gm_link_request *, uint32_t *, struct gm_error *) =
		background ? gm_link_background : gm_link_demand;
	struct gm_link_request request;
	int status;

	GM_TRY(gm_plugin_request(copies->plugin, layer, expert, slot, only, &request, err));
	request.tag = item_of(copies, layer, expert);
	status = give(copies->link, &request, job, err);
	if (status < 0)
		gm_plugin_give_back(copies->plugin, &request);
	return status;
}

static int queue(void *user, uint32_t layer, uint32_t expert, uint32_t slot, struct gm_error *err)
{
	struct gm_copies *copies = user;

	return order(copies, layer, expert, slot, GM_PLUGIN_MAX_PART, true, &copies->job_of[item_of(copies, layer, expert)],
		     err);
}

static int poll(void *user, struct gm_error *err)
{
	struct gm_copies *copies = user;
	struct gm_link_arrival arrival;
	int status;

	while ((status = gm_link_poll(copies->link, HUGE_VAL, &arrival, err)) > 0) {
		uint32_t item = (uint32_t)arrival.tag;

		copies->job_of[item] = NO_JOB;
		gm_slots_landed(copies->slots, item / copies->n_expert, item % copies->n_expert);
	}
	return status;
}

static int promote(void *user, uint32_t layer, uint32_t expert, struct gm_error *err)
{
	struct gm_copies *copies = user;

	return gm_link_promote(copies->link, copies->job_of[item_of(copies, layer, expert)], err);
}

struct gm_slots_background gm_copies_background(struct gm_copies *copies)
{
	return (struct gm_slots_background){.queue = queue, .poll = poll, .promote = promote, .user = copies};
}

/* --- a schedule's copies --- */

/* only: one tensor's share; GM_PLUGIN_MAX_PART: all. */
static int order_copy(struct gm_copies *copies, const struct gm_schedule *schedule, uint32_t c, uint32_t only,
		      struct gm_error *err)
{
	const struct gm_slot_copy *its = &schedule->copy[c];

	return order(copies, schedule->layer, its->expert, its->slot, only, false, &copies->job[c], err);
}

/* A background job changes hands: it is the schedule's now. */
static uint32_t take_late(struct gm_copies *copies, uint32_t item)
{
	uint32_t job = copies->job_of[item];

	copies->job_of[item] = NO_JOB;
	return job;
}

int gm_copies_order(struct gm_copies *copies, const struct gm_schedule *schedule, struct gm_error *err)
{
	if (schedule->n_copy > copies->max_job) {
		GM_GROW(copies->job, schedule->n_copy, err);
		copies->max_job = schedule->n_copy;
	}
	for (copies->n_job = 0; copies->n_job < schedule->n_copy; copies->n_job++) {
		uint32_t c = copies->n_job;

		copies->job[c] = NO_JOB;
		if (schedule->copy[c].ordered)
			copies->job[c] = take_late(copies, item_of(copies, schedule->layer, schedule->copy[c].expert));
		else if (schedule->copy[c].stays)
			GM_TRY(order_copy(copies, schedule, c, GM_PLUGIN_MAX_PART, err));
	}
	return GM_OK;
}

void gm_copies_end(struct gm_copies *copies)
{
	for (uint32_t c = 0; c < copies->n_job; c++)
		if (copies->job[c] != NO_JOB)
			gm_link_release(copies->link, copies->job[c]);
	copies->n_job = 0;
}

static int wait_for(struct gm_copies *copies, const struct gm_schedule *schedule, uint32_t c, struct gm_error *err)
{
	int status;

	if (copies->job[c] == NO_JOB) /* waited for and given back for another tensor */
		return GM_OK;
	status = gm_link_wait(copies->link, copies->job[c], NULL, err);
	if (!schedule->copy[c].stays && !schedule->copy[c].ordered) {
		gm_link_release(copies->link, copies->job[c]);
		copies->job[c] = NO_JOB;
	}
	return status;
}

/* Those that were not ordered with the schedule and whose slots are free once all is computed that waits for copies before `first`. */
static int order_next(struct gm_copies *copies, const struct gm_schedule *schedule, uint32_t first, uint32_t part,
		      struct gm_error *err)
{
	for (uint32_t c = first; c < schedule->n_copy; c++) {
		const struct gm_slot_copy *its = &schedule->copy[c];

		if (its->stays || its->ordered)
			continue;
		if (its->after > first)
			break;
		if (copies->job[c] == NO_JOB)
			GM_TRY(order_copy(copies, schedule, c, part, err));
	}
	return GM_OK;
}

static int copy(void *user, const struct gm_schedule *schedule, uint32_t first, uint32_t n, uint32_t part,
		struct gm_error *err)
{
	struct gm_copies *copies = user;
	int status = order_next(copies, schedule, first, part, err);

	for (uint32_t c = first; c < first + n && status == GM_OK; c++)
		status = wait_for(copies, schedule, c, err);
	return status;
}

int gm_copies_clear(struct gm_copies *copies, struct gm_error *err)
{
	copies->n_job = 0;
	for (uint32_t item = 0; item < copies->n_layer * copies->n_expert; item++)
		copies->job_of[item] = NO_JOB;
	return gm_link_clear(copies->link, err);
}

static void stop(void *user)
{
	gm_copies_clear(user, NULL); /* fails only where the thread has ended, and then nothing is copied either */
}

void gm_copies_get_stats(struct gm_copies *copies, struct gm_copies_stats *stats)
{
	struct gm_link_stats link;

	gm_link_stats(copies->link, &link);
	*stats = (struct gm_copies_stats){.n_copied = link.n_copied, .busy_us = link.busy_us};
}
