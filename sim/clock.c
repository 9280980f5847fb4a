#include "sim/clock.h"

#include "policies/list.h"
#include "policies/machine.h"

#include <string.h>

struct gm_clock {
	struct gm_arrivals arrivals; /* first: a pointer to it is a pointer to the clock */
	const struct gm_hw *hw;
	struct gm_time_split *split;
	uint64_t *work; /* see gm_clock_set_work */
	uint32_t top_k;
	const struct gm_span_sink *sink;
	uint32_t n_item, n_expert;
	double now, t1; /* T and T1 of docs/semantics.md */
	double link_free, disk_free;
	uint32_t first_queued; /* in copies; the sentinel: none */
	uint64_t host_used;
	size_t copies; /* offset of struct gm_node [n_item + 1]: copies under way in order of start, then the queued ones */
	size_t queued; /* offset of uint8_t [n_item]: the copy has not started yet */
	size_t when;   /* offset of double [n_item]: arrival of a copy under way, time queued of a queued one */
	size_t host;   /* offset of struct gm_node [n_item + 1]: experts in host RAM by last touch; with a disk tier */
	size_t host_end; /* offset of double [n_item]: end of the read that brought it */
};

double gm_time_total(const struct gm_time_split *s)
{
	return s->dense + s->gpu + s->link_wait + s->disk_wait + s->cpu_wait + s->token;
}

static void *at(struct gm_clock *c, size_t offset)
{
	return (char *)c + offset;
}

static size_t take(size_t *end, size_t bytes)
{
	size_t offset = *end;

	*end += (bytes + 63) / 64 * 64;
	return offset;
}

static size_t lay_out(struct gm_clock *c, uint32_t n_item, bool disk)
{
	size_t end = 0;

	take(&end, sizeof(*c));
	c->copies = take(&end, gm_list_bytes(n_item));
	c->queued = take(&end, n_item);
	c->when = take(&end, n_item * sizeof(double));
	if (disk) {
		c->host = take(&end, gm_list_bytes(n_item));
		c->host_end = take(&end, n_item * sizeof(double));
	}
	return end;
}

size_t gm_clock_bytes(uint32_t n_layer, uint32_t n_expert, bool disk)
{
	struct gm_clock plan;

	return lay_out(&plan, n_layer * n_expert, disk);
}

static uint32_t layer_of(const struct gm_clock *c, uint32_t item)
{
	return item / c->n_expert;
}

/* fmax and fmin that the compiler can inline: no NaN comes here. */
static double later(double a, double b)
{
	return a > b ? a : b;
}

static double earlier(double a, double b)
{
	return a < b ? a : b;
}

static void tell(const struct gm_clock *c, enum gm_lane lane, const char *what, uint32_t layer, uint32_t expert,
		 double start, double end)
{
	struct gm_span span = {
		.lane = lane, .what = what, .layer = layer, .expert = expert, .start_us = start, .end_us = end};

	if (c->sink)
		c->sink->span(c->sink->user, &span);
}

/* --- background copies --- */

static void remove_copy(struct gm_clock *c, uint32_t item)
{
	struct gm_node *copies = at(c, c->copies);

	if (c->first_queued == item)
		c->first_queued = copies[item].newer;
	gm_list_remove(copies, item);
}

/* R6 */
static void start_queued(struct gm_clock *c)
{
	const struct gm_node *copies = at(c, c->copies);
	uint8_t *queued = at(c, c->queued);
	double *when = at(c, c->when);

	while (c->first_queued != c->n_item) {
		uint32_t item = c->first_queued, layer;
		double start = later(c->link_free, when[item]);

		if (start > c->t1)
			break;
		layer = layer_of(c, item);
		when[item] = c->link_free = start + c->hw->copy_us[layer];
		tell(c, GM_LANE_LINK, "background", layer, item % c->n_expert, start, c->link_free);
		c->first_queued = copies[item].newer;
		queued[item] = 0;
	}
}

/* The link is serial, so copies arrive in the order of their start. */
GM_RARE static void let_copies_land(struct gm_clock *c, struct gm_core *core)
{
	const struct gm_node *copies = at(c, c->copies);
	const double *when = at(c, c->when);

	start_queued(c);
	for (uint32_t item = copies[c->n_item].newer; item != c->first_queued && when[item] <= c->t1;
	     item = copies[c->n_item].newer) {
		gm_core_land(core, layer_of(c, item), item % c->n_expert);
		remove_copy(c, item);
	}
}

static void begin(struct gm_arrivals *self, struct gm_core *core, uint32_t layer)
{
	struct gm_clock *c = (struct gm_clock *)(void *)self;
	const struct gm_node *copies = at(c, c->copies);

	c->t1 = c->now + c->hw->dense_us[layer];
	if (copies[c->n_item].newer != c->n_item)
		let_copies_land(c, core);
}

/* --- disk tier (R18) --- */

/* Issues one expert at T1; returns when it is in host RAM. */
static double issue(struct gm_clock *c, uint32_t layer, uint32_t expert)
{
	uint32_t item = layer * c->n_expert + expert;
	uint64_t bytes;

	if (!c->hw->disk)
		return c->t1;
	struct gm_node *host = at(c, c->host);
	double *host_end = at(c, c->host_end);

	if (gm_list_has(host, item)) {
		gm_list_remove(host, item);
		gm_list_add_after(host, host[c->n_item].older, item);
		return later(c->t1, host_end[item]);
	}
	double start = later(c->t1, c->disk_free);

	c->disk_free = start + c->hw->read_us[layer];
	tell(c, GM_LANE_DISK, "read", layer, expert, start, c->disk_free);
	bytes = c->hw->expert_bytes[layer];
	while (c->host_used + bytes > c->hw->host_bytes && host[c->n_item].newer != c->n_item) {
		uint32_t oldest = host[c->n_item].newer;

		gm_list_remove(host, oldest);
		c->host_used -= c->hw->expert_bytes[layer_of(c, oldest)];
	}
	if (c->host_used + bytes <= c->hw->host_bytes) {
		gm_list_add_after(host, host[c->n_item].older, item);
		c->host_used += bytes;
		host_end[item] = c->disk_free;
	}
	return c->disk_free;
}

/* --- one event --- */

struct event_time {
	double gpu; /* when the GPU is free */
	double cpu; /* when the CPU is free */
	struct gm_time_split add;
};

/* R15, R19: one more expert on the GPU, which waits for its read and for its arrival. */
static void compute_after(struct gm_clock *c, struct event_time *t, uint32_t layer, uint32_t expert, double read_end,
			  double arrival)
{
	double gpu_us = c->hw->gpu_expert_us[layer];
	double start = later(t->gpu, arrival), gap = later(0, arrival - t->gpu);
	double disk = earlier(gap, later(0, read_end - t->gpu));

	t->add.disk_wait += disk;
	t->add.link_wait += gap - disk;
	t->add.gpu += gpu_us;
	t->gpu = start + gpu_us;
	tell(c, GM_LANE_GPU, "expert", layer, expert, start, t->gpu);
}

/* R14: a copy that starts in this event, ahead of anything queued. */
static double copy_now(struct gm_clock *c, uint32_t layer, uint32_t expert, double not_before)
{
	double start = later(later(c->t1, c->link_free), not_before);

	c->link_free = start + c->hw->copy_us[layer];
	tell(c, GM_LANE_LINK, "fetch", layer, expert, start, c->link_free);
	return c->link_free;
}

static void late(struct gm_clock *c, struct event_time *t, uint32_t layer, uint32_t expert)
{
	uint32_t item = layer * c->n_expert + expert;
	const double *when = at(c, c->when);
	uint8_t *queued = at(c, c->queued);
	double read_end = c->t1, arrival = when[item];

	if (queued[item]) {
		queued[item] = 0;
		read_end = when[item];
		arrival = copy_now(c, layer, expert, read_end);
	}
	remove_copy(c, item);
	compute_after(c, t, layer, expert, read_end, arrival);
}

/* R16 */
static void compute_on_cpu(struct gm_clock *c, struct event_time *t, uint32_t layer, uint32_t expert, double read_end,
			   bool first)
{
	double start = later(first ? c->t1 + c->hw->cpu_roundtrip_us : t->cpu, read_end);

	t->cpu = start + c->hw->cpu_expert_us[layer];
	tell(c, GM_LANE_CPU, "cpu", layer, expert, start, t->cpu);
}

static void queue_copies(struct gm_clock *c, const struct gm_event_log *log)
{
	struct gm_node *copies = at(c, c->copies);
	uint8_t *queued = at(c, c->queued);
	double *when = at(c, c->when);

	for (uint32_t i = 0; i < log->n_queued; i++) {
		uint32_t item = log->layer * c->n_expert + log->queued[i];

		when[item] = issue(c, log->layer, log->queued[i]);
		queued[item] = 1;
		gm_list_add_after(copies, copies[c->n_item].older, item);
		if (c->first_queued == c->n_item)
			c->first_queued = item;
	}
}

/* Hits in request order, then substitutes. */
static void tell_ready(const struct gm_clock *c, const struct gm_event_log *log)
{
	double gpu_us = c->hw->gpu_expert_us[log->layer];
	uint32_t n = 0;

	for (uint32_t q = 0; q < log->n_request; q++) {
		if (log->class[q] == GM_HIT) {
			tell(c, GM_LANE_GPU, "expert", log->layer, log->expert[q], c->t1 + n * gpu_us,
			     c->t1 + (n + 1) * gpu_us);
			n++;
		}
	}
	for (; n < log->n_ready; n++)
		tell(c, GM_LANE_GPU, "substitute", log->layer, UINT32_MAX, c->t1 + n * gpu_us, c->t1 + (n + 1) * gpu_us);
}

void gm_clock_count_event(const struct gm_hw *hw, uint32_t layer, uint32_t n_ready, uint32_t n_fetch, uint64_t n_event,
			  struct gm_time_split *split)
{
	double gpu_us = hw->gpu_expert_us[layer], copy_us = hw->copy_us[layer], n = (double)n_event;
	double gpu = n_ready * gpu_us, waited = 0, arrival = 0;

	for (uint32_t i = 0; i < n_fetch; i++) {
		arrival += copy_us;
		waited += later(0, arrival - gpu);
		gpu = later(gpu, arrival) + gpu_us;
	}
	split->dense += n * hw->dense_us[layer];
	split->gpu += n * (n_ready + n_fetch) * gpu_us;
	split->link_wait += n * waited;
}

void gm_clock_count_cpu_event(const struct gm_hw *hw, uint32_t layer, uint32_t n_ready, uint32_t n_cpu, uint64_t n_event,
			      struct gm_time_split *split)
{
	double gpu = n_ready * hw->gpu_expert_us[layer], n = (double)n_event;
	double cpu = n_cpu ? hw->cpu_roundtrip_us + n_cpu * hw->cpu_expert_us[layer] : 0;

	split->dense += n * hw->dense_us[layer];
	split->gpu += n * gpu;
	split->cpu_wait += n * later(0, cpu - gpu);
}

/* The common event without a disk, a CPU, a late copy or anybody who watches: the same arithmetic as below, with less ado. */
static void end_fetches(struct gm_clock *c, const struct gm_event_log *log)
{
	double gpu_us = c->hw->gpu_expert_us[log->layer], copy_us = c->hw->copy_us[log->layer];
	double gpu = c->t1 + log->n_ready * gpu_us, computed = log->n_ready * gpu_us, waited = 0;

	if (log->n_work) {
		double arrival = later(c->t1, c->link_free);

		for (uint32_t i = 0; i < log->n_work; i++) {
			arrival += copy_us;
			waited += later(0, arrival - gpu);
			computed += gpu_us;
			gpu = later(gpu, arrival) + gpu_us;
		}
		c->link_free = arrival;
	}
	if (c->split) {
		c->split->dense += c->t1 - c->now;
		c->split->gpu += computed;
		c->split->link_wait += waited;
	}
	c->now = gpu;
}

GM_RARE static void end_any(struct gm_clock *c, const struct gm_event_log *log)
{
	double gpu_us = c->hw->gpu_expert_us[log->layer];
	struct event_time t = {.gpu = c->t1 + log->n_ready * gpu_us, .cpu = c->t1};
	bool any_cpu = false;

	tell(c, GM_LANE_GPU, "dense", log->layer, UINT32_MAX, c->now, c->t1);
	if (c->sink)
		tell_ready(c, log);
	t.add.dense = c->t1 - c->now;
	t.add.gpu = log->n_ready * gpu_us;
	for (uint32_t i = 0; i < log->n_work; i++) {
		const struct gm_work *work = &log->work[i];
		double read_end = c->t1;

		if (work->kind & (GM_WORK_FETCH | GM_WORK_CPU))
			read_end = issue(c, log->layer, work->expert);
		if (work->kind & GM_WORK_FETCH)
			compute_after(c, &t, log->layer, work->expert, read_end,
				      copy_now(c, log->layer, work->expert, read_end));
		if (work->kind & GM_WORK_LATE)
			late(c, &t, log->layer, work->expert);
		if (work->kind & GM_WORK_CPU) {
			compute_on_cpu(c, &t, log->layer, work->expert, read_end, !any_cpu);
			any_cpu = true;
		}
	}
	queue_copies(c, log);
	t.add.cpu_wait = any_cpu ? later(0, t.cpu - t.gpu) : 0;
	c->now = any_cpu ? later(t.gpu, t.cpu) : t.gpu;
	if (c->split) {
		c->split->dense += t.add.dense;
		c->split->gpu += t.add.gpu;
		c->split->link_wait += t.add.link_wait;
		c->split->disk_wait += t.add.disk_wait;
		c->split->cpu_wait += t.add.cpu_wait;
	}
}

static void end(struct gm_arrivals *self, const struct gm_event_log *log)
{
	struct gm_clock *c = (struct gm_clock *)(void *)self;

	if (c->work)
		c->work[(size_t)log->n_ready * (c->top_k + 1) + log->n_work]++;
	if (!(log->work_kinds & ~(unsigned)GM_WORK_FETCH) && !log->n_queued && !c->sink && !c->hw->disk)
		end_fetches(c, log);
	else
		end_any(c, log);
}

void gm_clock_end_pass(struct gm_clock *c)
{
	tell(c, GM_LANE_GPU, "token", UINT32_MAX, UINT32_MAX, c->now, c->now + c->hw->token_us);
	c->now += c->hw->token_us;
	if (c->split)
		c->split->token += c->hw->token_us;
}

struct gm_clock *gm_clock_init(void *memory, const struct gm_hw *hw, uint32_t n_expert)
{
	struct gm_clock *c = memory;

	memset(memory, 0, gm_clock_bytes(hw->n_layer, n_expert, hw->disk));
	lay_out(c, hw->n_layer * n_expert, hw->disk);
	c->arrivals = (struct gm_arrivals){.begin = begin, .end = end};
	c->hw = hw;
	c->n_expert = n_expert;
	c->n_item = hw->n_layer * n_expert;
	c->first_queued = c->n_item;
	gm_list_init(at(c, c->copies), c->n_item);
	if (hw->disk)
		gm_list_init(at(c, c->host), c->n_item);
	return c;
}

struct gm_arrivals *gm_clock_arrivals(struct gm_clock *c)
{
	return &c->arrivals;
}

void gm_clock_set_split(struct gm_clock *c, struct gm_time_split *split)
{
	c->split = split;
}

void gm_clock_set_work(struct gm_clock *c, uint64_t *work, uint32_t top_k)
{
	c->work = work;
	c->top_k = top_k;
}

void gm_clock_set_sink(struct gm_clock *c, const struct gm_span_sink *sink)
{
	c->sink = sink;
	c->arrivals.wants_requests = sink != NULL;
}

double gm_clock_now_us(const struct gm_clock *c)
{
	return c->now;
}
