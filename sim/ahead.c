#include "sim/ahead.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What one event had to do. */
struct work {
	uint16_t exists; /* the row is there */
	uint16_t n_ready, n_fetch, n_queued;
};

struct copy {
	double when; /* time queued; once it has started, its arrival */
	uint32_t layer;
};

/* One hardware. Copies start and arrive in the order in which they are queued, so that counting them says where each of them is. */
struct clock {
	const struct gm_hw *hw;
	bool late;
	double now, link_free; /* T of docs/semantics.md */
	double token_us;
	uint64_t n_queued, n_started, n_landed;
	uint64_t *n_due;             /* [n_layer] so many have to have landed by the layer's next event */
	struct copy *copy;           /* [n_copy] copy i is at i % n_copy, until it has landed */
	struct gm_time_split *layer; /* [n_layer] */
};

struct gm_ahead {
	struct gm_arrivals arrivals; /* first: a pointer to it is a pointer to this */
	struct gm_scratch *scratch;
	uint32_t n_layer, n_token;
	uint64_t n_copy;    /* a power of 2, of at least as many as can be under way: top_k of each layer */
	struct work *event; /* [n_layer][stride(n_token)] in the scratch */
	bool other_work;    /* some event had work that no clock here can time */
	struct clock *clock;
	uint32_t n_clock;
	/* the layer whose events come */
	struct work *row; /* of the first of them */
	const uint32_t *offset;
	uint32_t n_event;
};

static uint64_t ring_size(uint32_t n_layer, uint32_t top_k)
{
	uint64_t n = 1;

	while (n < (uint64_t)n_layer * top_k)
		n *= 2;
	return n;
}

size_t gm_ahead_bytes(uint32_t n_layer, uint32_t top_k, uint32_t n_hw)
{
	size_t per_hw = sizeof(struct clock) + n_layer * (sizeof(uint64_t) + sizeof(struct gm_time_split)) +
			ring_size(n_layer, top_k) * sizeof(struct copy);

	return sizeof(struct gm_ahead) + n_hw * per_hw;
}

/* Events from one layer to the next: one more cache line than tokens fill, for a power of 2 would put all layers of a token into a few sets of the
 * cache. */
static size_t stride(uint32_t n_token)
{
	return (size_t)n_token + 64 / sizeof(struct work);
}

size_t gm_ahead_event_bytes(uint32_t n_layer, uint32_t n_token)
{
	return n_layer * stride(n_token) * sizeof(struct work);
}

static void keep_event(struct gm_arrivals *self, const struct gm_event_log *log)
{
	struct gm_ahead *a = (struct gm_ahead *)(void *)self;
	uint32_t i = a->offset ? a->offset[a->n_event] : a->n_event;

	a->row[i] = (struct work){1, (uint16_t)log->n_ready, (uint16_t)log->n_work, (uint16_t)log->n_queued};
	a->n_event++;
	a->other_work |= (log->work_kinds & ~(unsigned)GM_WORK_FETCH) != 0;
}

struct gm_ahead *gm_ahead_new(uint32_t n_layer, uint32_t top_k, struct gm_scratch *scratch, struct gm_error *err)
{
	struct gm_ahead *a = gm_alloc(1, sizeof(*a), err);

	if (!a)
		return NULL;
	a->arrivals.end = keep_event;
	a->scratch = scratch;
	a->n_layer = n_layer;
	a->n_copy = ring_size(n_layer, top_k);
	return a;
}

void gm_ahead_free(struct gm_ahead *a)
{
	if (!a)
		return;
	for (uint32_t i = 0; i < a->n_clock; i++) {
		free(a->clock[i].n_due);
		free(a->clock[i].copy);
		free(a->clock[i].layer);
	}
	free(a->clock);
	free(a);
}

int gm_ahead_add(struct gm_ahead *a, const struct gm_hw *hw, struct gm_error *err)
{
	struct clock *clock;

	assert(!hw->disk);
	GM_GROW(a->clock, a->n_clock + 1, err);
	clock = &a->clock[a->n_clock++];
	*clock = (struct clock){.hw = hw};
	clock->n_due = gm_alloc(a->n_layer, sizeof(*clock->n_due), err);
	clock->copy = gm_alloc(a->n_copy, sizeof(*clock->copy), err);
	clock->layer = gm_alloc(a->n_layer, sizeof(*clock->layer), err);
	return clock->n_due && clock->copy && clock->layer ? GM_OK : GM_ERR_MEMORY;
}

struct gm_arrivals *gm_ahead_arrivals(struct gm_ahead *a)
{
	return &a->arrivals;
}

int gm_ahead_begin(struct gm_ahead *a, uint32_t n_token, struct gm_error *err)
{
	size_t bytes = gm_ahead_event_bytes(a->n_layer, n_token);

	if (!(a->event = gm_scratch_room(a->scratch, bytes, err)))
		return GM_ERR_MEMORY;
	a->n_token = n_token;
	memset(a->event, 0, bytes);
	return GM_OK;
}

void gm_ahead_set_layer(struct gm_ahead *a, uint32_t layer, uint32_t first, const uint32_t *offset)
{
	a->row = a->event + layer * stride(a->n_token) + first;
	a->offset = offset;
	a->n_event = 0;
}

/* --- times --- */

/* R6 */
static void let_copies_land(struct clock *c, uint64_t mask, double t1)
{
	while (c->n_started < c->n_queued) {
		struct copy *copy = &c->copy[c->n_started & mask];
		double start = copy->when > c->link_free ? copy->when : c->link_free;

		if (start > t1)
			break;
		copy->when = c->link_free = start + c->hw->copy_us[copy->layer];
		c->n_started++;
	}
	while (c->n_landed < c->n_started && c->copy[c->n_landed & mask].when <= t1)
		c->n_landed++;
}

static void queue_copies(struct clock *c, uint64_t mask, uint32_t layer, uint32_t n, double t1)
{
	for (uint32_t i = 0; i < n; i++)
		c->copy[c->n_queued++ & mask] = (struct copy){.when = t1, .layer = layer};
	c->n_due[layer] = c->n_queued;
}

/* R14, R15, R19 as in sim/clock.c. False: a copy of this layer has not arrived. */
static bool pass_event(struct clock *c, uint64_t mask, uint32_t layer, const struct work *event, bool timed)
{
	double gpu_us = c->hw->gpu_expert_us[layer], copy_us = c->hw->copy_us[layer];
	double t1 = c->now + c->hw->dense_us[layer], computed = event->n_ready * gpu_us, waited = 0;
	double gpu = t1 + computed;

	if (c->n_landed < c->n_queued)
		let_copies_land(c, mask, t1);
	if (c->n_landed < c->n_due[layer])
		return false;
	if (event->n_fetch) {
		double arrival = t1 > c->link_free ? t1 : c->link_free;

		for (uint32_t i = 0; i < event->n_fetch; i++) {
			arrival += copy_us;
			waited += arrival > gpu ? arrival - gpu : 0;
			computed += gpu_us;
			gpu = (arrival > gpu ? arrival : gpu) + gpu_us;
		}
		c->link_free = arrival;
	}
	if (event->n_queued)
		queue_copies(c, mask, layer, event->n_queued, t1);
	if (timed) {
		c->layer[layer].dense += t1 - c->now;
		c->layer[layer].gpu += computed;
		c->layer[layer].link_wait += waited;
	}
	c->now = gpu;
	return true;
}

static void pass_events(const struct gm_ahead *a, struct clock *c, bool timed)
{
	for (uint32_t i = 0; i < a->n_token; i++) {
		for (uint32_t layer = 0; layer < a->n_layer; layer++) {
			const struct work *event = &a->event[layer * stride(a->n_token) + i];

			if (event->exists && !pass_event(c, a->n_copy - 1, layer, event, timed)) {
				c->late = true;
				return;
			}
		}
		c->now += c->hw->token_us;
		c->token_us += timed ? c->hw->token_us : 0;
	}
}

void gm_ahead_end(struct gm_ahead *a, bool timed)
{
	for (uint32_t i = 0; i < a->n_clock; i++) {
		a->clock[i].late |= a->other_work;
		if (!a->clock[i].late)
			pass_events(a, &a->clock[i], timed);
	}
}

static const struct clock *clock_of(const struct gm_ahead *a, const struct gm_hw *hw)
{
	uint32_t i = 0;

	while (a->clock[i].hw != hw)
		i++;
	return &a->clock[i];
}

bool gm_ahead_is_late(const struct gm_ahead *a, const struct gm_hw *hw)
{
	return clock_of(a, hw)->late;
}

bool gm_ahead_all_late(const struct gm_ahead *a)
{
	for (uint32_t i = 0; i < a->n_clock; i++)
		if (!a->clock[i].late)
			return false;
	return true;
}

const struct gm_time_split *gm_ahead_times(const struct gm_ahead *a, const struct gm_hw *hw, double *token_us)
{
	const struct clock *clock = clock_of(a, hw);

	*token_us = clock->token_us;
	return clock->layer;
}
