#include "engine/slots.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The slots that compete for the same experts as a pool of the core does. */
struct slot_pool {
	uint32_t n_slot;
	uint32_t *item; /* [n_slot] layer * n_expert + expert, GM_NO_SLOT: free */
	uint32_t *free; /* [n_slot] */
	uint32_t n_free;
};

struct gm_slots {
	struct gm_arrivals arrivals; /* the core calls these */
	const struct gm_core_config *config;
	struct gm_slots_background background;
	void (*on_landed)(void *user, uint64_t event, uint32_t layer, uint32_t expert);
	void *user;
	uint64_t n_event;
	struct gm_core *core;
	struct slot_pool *pool; /* [n_pool] */
	uint32_t n_pool, n_scratch;
	uint32_t *slot_of; /* [n_layer * n_expert] GM_NO_SLOT: on the host only */
	struct gm_schedule schedule;
	struct gm_error err; /* of an arrival, which cannot return it */
	/* the layer under way */
	uint32_t n_decided;
	uint16_t *expert;          /* [max_row][top_k] by rank: what the decisions compute */
	uint32_t *slot;            /* [max_row][top_k] by rank */
	struct gm_slot_copy *late; /* [n_late] background copies that wait for the end of the rows */
	uint32_t n_late, max_late;
	/* the row under way, and how many scratch slots each row has taken */
	uint16_t *scratch; /* [n_scratch] experts */
	uint32_t n_scratch_used;
	uint32_t *n_row_scratch; /* [max_row] */
	/* an event of several rows */
	uint32_t *copy_of; /* [n_expert] an expert's copy in the schedule, GM_NO_COPY */
	uint32_t n_bypass; /* which take the scratch slots by turns */
};

/* --- sizes --- */

static bool is_all_resident(const struct gm_core_config *config)
{
	return (config->evict.ops->info.flags & GM_ALL_RESIDENT) != 0;
}

uint32_t gm_slots_needed(const struct gm_core_config *config, uint32_t layer)
{
	uint64_t n_item = (uint64_t)config->n_layer * config->n_expert, fit;

	if (config->scope == GM_SCOPE_LAYER)
		return is_all_resident(config) || config->n_slot[layer] > config->n_expert ? config->n_expert
											   : config->n_slot[layer];
	fit = config->pool_bytes / config->expert_bytes[layer];
	return (uint32_t)(is_all_resident(config) || fit > n_item ? n_item : fit);
}

uint32_t gm_slots_scratch(const struct gm_core_config *config, bool in_flight, bool batch)
{
	bool admits = config->admit.ops && config->admit.ops->substituted;

	/* every pick of a row finds room where nothing but its own picks is pinned */
	for (uint32_t l = 0; l < config->n_layer; l++)
		if (gm_slots_needed(config, l) < config->top_k || (in_flight && admits))
			return config->top_k + 1;
	return batch ? 2 : 1;
}

/* --- life --- */

static int init_pool(struct slot_pool *pool, uint32_t n_slot, struct gm_error *err)
{
	pool->n_slot = n_slot;
	pool->item = gm_alloc(n_slot, sizeof(*pool->item), err);
	pool->free = gm_alloc(n_slot, sizeof(*pool->free), err);
	return pool->item && pool->free ? GM_OK : GM_ERR_MEMORY;
}

static int init_slots(struct gm_slots *s, const struct gm_slots_options *options, struct gm_error *err)
{
	const struct gm_core_config *config = options->config;
	size_t n = (size_t)options->max_row * config->top_k;
	uint32_t most = 0;

	s->n_pool = config->scope == GM_SCOPE_GLOBAL ? 1 : config->n_layer;
	s->pool = gm_alloc(s->n_pool, sizeof(*s->pool), err);
	if (!s->pool)
		return GM_ERR_MEMORY;
	for (uint32_t p = 0; p < s->n_pool; p++) {
		GM_TRY(init_pool(&s->pool[p], gm_slots_needed(config, p), err));
		most = s->pool[p].n_slot > most ? s->pool[p].n_slot : most;
	}
	s->slot_of = gm_alloc((size_t)config->n_layer * config->n_expert, sizeof(*s->slot_of), err);
	s->expert = gm_alloc(n, sizeof(*s->expert), err);
	s->slot = gm_alloc(n, sizeof(*s->slot), err);
	s->scratch = gm_alloc(s->n_scratch, sizeof(*s->scratch), err);
	s->n_row_scratch = gm_alloc(options->max_row, sizeof(*s->n_row_scratch), err);
	s->copy_of = gm_alloc(config->n_expert, sizeof(*s->copy_of), err);
	if (!s->slot_of || !s->expert || !s->slot || !s->scratch || !s->n_row_scratch || !s->copy_of)
		return GM_ERR_MEMORY;
	return gm_schedule_init(&s->schedule, options->max_row, config->top_k, most + s->n_scratch, err);
}

static void on_begin(struct gm_arrivals *self, struct gm_core *core, uint32_t layer);
static void on_end(struct gm_arrivals *self, const struct gm_event_log *log);

struct gm_slots *gm_slots_new(const struct gm_slots_options *options, struct gm_error *err)
{
	struct gm_slots *s = gm_alloc(1, sizeof(*s), err);

	if (!s)
		return NULL;
	s->arrivals = (struct gm_arrivals){.begin = on_begin, .end = on_end};
	s->config = options->config;
	s->background = options->background;
	s->on_landed = options->on_landed;
	s->user = options->user;
	s->n_scratch = options->n_scratch;
	if (init_slots(s, options, err) < 0) {
		gm_slots_free(s);
		return NULL;
	}
	return s;
}

void gm_slots_free(struct gm_slots *s)
{
	if (!s)
		return;
	for (uint32_t p = 0; s->pool && p < s->n_pool; p++) {
		free(s->pool[p].item);
		free(s->pool[p].free);
	}
	free(s->pool);
	free(s->slot_of);
	free(s->expert);
	free(s->slot);
	free(s->late);
	free(s->scratch);
	free(s->n_row_scratch);
	free(s->copy_of);
	gm_schedule_free(&s->schedule);
	free(s);
}

struct gm_arrivals *gm_slots_arrivals(struct gm_slots *s)
{
	return &s->arrivals;
}

/* --- slots --- */

static struct slot_pool *pool_of(struct gm_slots *s, uint32_t layer)
{
	return &s->pool[s->n_pool == 1 ? 0 : layer];
}

static uint32_t item_of(const struct gm_slots *s, uint32_t layer, uint32_t expert)
{
	return layer * s->config->n_expert + expert;
}

/* The core has room for an expert where it gives it one, and every slot of an item that it does not hold is free. */
static uint32_t take(struct gm_slots *s, uint32_t layer, uint32_t expert)
{
	struct slot_pool *pool = pool_of(s, layer);
	uint32_t item = item_of(s, layer, expert), slot;

	assert(pool->n_free && s->slot_of[item] == GM_NO_SLOT);
	slot = pool->free[--pool->n_free];
	pool->item[slot] = item;
	s->slot_of[item] = slot;
	return slot;
}

static uint8_t residency_of(const struct gm_core *core, uint32_t n_expert, uint32_t item)
{
	return gm_core_residency(core, item / n_expert)[item % n_expert];
}

static void take_back_evicted(struct gm_slots *s, uint32_t layer)
{
	struct slot_pool *pool = pool_of(s, layer);

	for (uint32_t slot = 0; slot < pool->n_slot; slot++) {
		uint32_t item = pool->item[slot];

		if (item == GM_NO_SLOT || residency_of(s->core, s->config->n_expert, item) != GM_ABSENT)
			continue;
		s->slot_of[item] = GM_NO_SLOT;
		pool->item[slot] = GM_NO_SLOT;
		pool->free[pool->n_free++] = slot;
	}
}

static void empty(struct gm_slots *s)
{
	for (uint32_t item = 0; item < s->config->n_layer * s->config->n_expert; item++)
		s->slot_of[item] = GM_NO_SLOT;
	for (uint32_t p = 0; p < s->n_pool; p++) {
		struct slot_pool *pool = &s->pool[p];

		for (uint32_t slot = 0; slot < pool->n_slot; slot++) { /* the first is taken first */
			pool->item[slot] = GM_NO_SLOT;
			pool->free[slot] = pool->n_slot - 1 - slot;
		}
		pool->n_free = pool->n_slot;
	}
	s->n_late = 0;
	memset(&s->err, 0, sizeof(s->err));
}

int gm_slots_start(struct gm_slots *s, const struct gm_core *core,
		   int (*put)(void *user, uint32_t layer, uint32_t expert, uint32_t slot, struct gm_error *err), void *user,
		   struct gm_error *err)
{
	empty(s);
	for (uint32_t layer = 0; layer < s->config->n_layer; layer++) {
		const uint8_t *residency = gm_core_residency(core, layer);

		for (uint32_t e = 0; e < s->config->n_expert; e++)
			if (residency[e] >= GM_RESIDENT)
				GM_TRY(put(user, layer, e, take(s, layer, e), err));
	}
	return GM_OK;
}

uint32_t gm_slots_of(const struct gm_slots *s, uint32_t layer, uint32_t expert)
{
	return s->slot_of[item_of(s, layer, expert)];
}

/* --- what the core tells: R6, and what an event fetched and queued --- */

static int add_copy(struct gm_slots *s, uint32_t expert, uint32_t slot, bool ordered)
{
	const struct gm_slot_copy copy = {
		.row = s->n_decided,
		.slot = slot,
		.expert = (uint16_t)expert,
		.ordered = ordered,
	};

	s->copy_of[expert] = s->schedule.n_copy;
	return gm_schedule_copy(&s->schedule, &copy, &s->err);
}

/* All rows use it before another takes its slot. */
static uint32_t next_scratch(struct gm_slots *s)
{
	return pool_of(s, s->schedule.layer)->n_slot + s->n_bypass++ % s->n_scratch;
}

/* Instantly: every copy of the layer's pool has landed by now. */
static void land_all(struct gm_slots *s, uint32_t layer)
{
	const uint32_t *reserved;
	uint32_t n;

	while (reserved = gm_core_reserved(s->core, layer, &n), n > 0) {
		uint32_t item = s->n_pool == 1 ? reserved[0] : item_of(s, layer, reserved[0]);

		gm_slots_landed(s, item / s->config->n_expert, item % s->config->n_expert);
	}
}

static void on_begin(struct gm_arrivals *self, struct gm_core *core, uint32_t layer)
{
	struct gm_slots *s = (struct gm_slots *)self;

	s->core = core;
	if (s->background.poll) /* a failure is told with the row's decisions */
		s->background.poll(s->background.user, &s->err);
	else
		land_all(s, layer);
	s->n_event++;
}

void gm_slots_landed(struct gm_slots *s, uint32_t layer, uint32_t expert)
{
	gm_core_land(s->core, layer, expert);
	if (s->on_landed)
		s->on_landed(s->user, s->n_event, layer, expert);
}

static int to_scratch(struct gm_slots *s, uint32_t expert)
{
	uint32_t n_slot = pool_of(s, s->schedule.layer)->n_slot;

	if (s->schedule.one_event)
		return add_copy(s, expert, next_scratch(s), false);
	if (s->n_scratch_used == s->n_scratch)
		return gm_fail(&s->err, GM_ERR_UNSUPPORTED, "no scratch slot is left: layer %u: there are %u",
			       s->schedule.layer, s->n_scratch);
	s->scratch[s->n_scratch_used] = (uint16_t)expert;
	return add_copy(s, expert, n_slot + s->n_scratch_used++, false);
}

/* A copy that was admitted while the rows under way were decided has not been given to the queue. */
static bool take_late(struct gm_slots *s, uint32_t expert)
{
	for (uint32_t i = 0; i < s->n_late; i++)
		if (s->late[i].expert == expert) {
			memmove(s->late + i, s->late + i + 1, (--s->n_late - i) * sizeof(*s->late));
			return true;
		}
	return false;
}

static int fetch_late(struct gm_slots *s, uint32_t layer, uint32_t expert)
{
	uint32_t slot = gm_slots_of(s, layer, expert);

	if (take_late(s, expert))
		return add_copy(s, expert, slot, false);
	GM_TRY(s->background.promote(s->background.user, layer, expert, &s->err));
	return add_copy(s, expert, slot, true);
}

static int fetch(struct gm_slots *s, uint32_t layer, uint32_t expert)
{
	if (gm_core_residency(s->core, layer)[expert] < GM_RESIDENT)
		return to_scratch(s, expert);
	return add_copy(s, expert, take(s, layer, expert), false);
}

/* What the row under way has pinned lies in other slots: the copy may come before the row. */
static int admit(struct gm_slots *s, uint32_t layer, uint32_t expert)
{
	uint32_t slot = take(s, layer, expert);

	if (!s->background.queue)
		return add_copy(s, expert, slot, false);
	if (s->n_late == s->max_late) {
		uint32_t more = s->max_late ? s->max_late * 2 : 64;

		GM_GROW(s->late, more, &s->err);
		s->max_late = more;
	}
	s->late[s->n_late++] = (struct gm_slot_copy){.slot = slot, .expert = (uint16_t)expert};
	return GM_OK;
}

static void on_end(struct gm_arrivals *self, const struct gm_event_log *log)
{
	struct gm_slots *s = (struct gm_slots *)self;

	s->n_scratch_used = 0;
	if (s->err.code || (!log->n_work && !log->n_queued))
		return;
	take_back_evicted(s, log->layer);
	for (uint32_t i = 0; i < log->n_work && !s->err.code; i++) {
		if (log->work[i].kind & GM_WORK_LATE)
			fetch_late(s, log->layer, log->work[i].expert);
		else if (log->work[i].kind & GM_WORK_FETCH)
			fetch(s, log->layer, log->work[i].expert);
	}
	for (uint32_t i = 0; i < log->n_queued && !s->err.code; i++)
		admit(s, log->layer, log->queued[i]);
}

/* --- rows --- */

void gm_slots_begin(struct gm_slots *s, uint32_t layer, uint32_t n_row, bool one_event)
{
	gm_schedule_begin(&s->schedule, layer, n_row, one_event);
	s->n_decided = s->n_bypass = 0;
	for (uint32_t e = 0; s->schedule.one_event && e < s->config->n_expert; e++)
		s->copy_of[e] = GM_NO_COPY;
}

/* What was decided last lies there, at the latest when its copy has arrived. */
static uint32_t slot_in_row(const struct gm_slots *s, uint32_t expert)
{
	uint32_t layer = s->schedule.layer;

	if (s->schedule.one_event && s->copy_of[expert] != GM_NO_COPY)
		return s->schedule.copy[s->copy_of[expert]].slot;
	for (uint32_t i = 0; i < s->n_scratch_used; i++)
		if (s->scratch[i] == expert)
			return s->pool[s->n_pool == 1 ? 0 : layer].n_slot + i;
	return gm_slots_of(s, layer, expert);
}

static bool is_among(const uint32_t *slot, uint32_t n, uint32_t wanted)
{
	for (uint32_t i = 0; i < n; i++)
		if (slot[i] == wanted)
			return true;
	return false;
}

/* A dropped expert is multiplied with 0: it takes any slot that the row does not use. Slots of a row must be distinct. */
static void fill_dropped(uint32_t *slot, uint32_t top_k)
{
	uint32_t next = 0;

	for (uint32_t r = 0; r < top_k; r++) {
		if (slot[r] != GM_NO_SLOT)
			continue;
		while (is_among(slot, top_k, next))
			next++;
		slot[r] = next;
	}
}

int gm_slots_decided(struct gm_slots *s, const struct gm_decision *decision, struct gm_error *err)
{
	uint32_t top_k = s->config->top_k, row = s->n_decided;
	uint16_t *expert = s->expert + (size_t)row * top_k;
	uint32_t *slot = s->slot + (size_t)row * top_k;

	if (s->err.code)
		return gm_fail(err, s->err.code, "%s", s->err.text);
	for (uint32_t r = 0; r < top_k; r++) {
		const struct gm_decision *d = &decision[r];

		if (d->action == GM_CPU)
			return gm_fail(err, GM_ERR_UNSUPPORTED,
				       "an expert for the CPU: layer %u: the engine computes all of them on the device",
				       s->schedule.layer);
		expert[r] = d->action == GM_SUBSTITUTE ? d->substitute : d->expert;
		slot[r] = d->action == GM_DROP ? GM_NO_SLOT : slot_in_row(s, expert[r]);
		assert(d->action == GM_DROP || slot[r] != GM_NO_SLOT);
	}
	if (!s->schedule.one_event)
		fill_dropped(slot, top_k);
	s->n_row_scratch[row] = s->n_scratch_used;
	s->n_decided++;
	return GM_OK;
}

static uint32_t rank_of(const uint16_t *mine, uint32_t top_k, int32_t expert)
{
	for (uint32_t r = 0; r < top_k; r++)
		if (mine[r] == expert)
			return r;
	return top_k;
}

/* The expert of a decision that the model has not selected. */
static uint32_t left_out(const uint16_t *mine, const int32_t *expert, uint32_t top_k)
{
	for (uint32_t r = 0; r < top_k; r++) {
		uint32_t i = 0;

		while (i < top_k && expert[i] != mine[r])
			i++;
		if (i == top_k)
			return r;
	}
	return 0; /* never: one of the model's is in no decision, and both have top_k distinct experts */
}

/* The model broke a tie otherwise than R2. Its expert is used once, from a scratch slot; with none left, R2's expert is computed. */
static int place_tie(struct gm_slots *s, uint32_t row, int32_t *expert, uint32_t i, bool *changed, struct gm_error *err)
{
	uint32_t top_k = s->config->top_k, r;
	int32_t *place = s->schedule.slot + (size_t)row * top_k + i;
	struct gm_slot_copy copy = {.row = row, .expert = (uint16_t)expert[i]};

	if (s->n_row_scratch[row] < s->n_scratch) {
		copy.slot = pool_of(s, s->schedule.layer)->n_slot + s->n_row_scratch[row]++;
		*place = (int32_t)copy.slot;
		return gm_schedule_copy(&s->schedule, &copy, err);
	}
	r = left_out(s->expert + (size_t)row * top_k, expert, top_k);
	expert[i] = s->expert[(size_t)row * top_k + r];
	*place = (int32_t)s->slot[(size_t)row * top_k + r];
	*changed = true;
	return GM_OK;
}

/* In an event of several rows an expert lies where it is resident, or where its copy goes. What is neither, the model has chosen by a tie otherwise
 * than R2: it is copied, too. */
static int place_in_event(struct gm_slots *s, uint32_t row, uint32_t i, uint32_t expert, struct gm_error *err)
{
	uint32_t top_k = s->config->top_k, layer = s->schedule.layer;
	size_t first = (size_t)row * top_k;
	uint32_t r = rank_of(s->expert + first, top_k, (int32_t)expert);
	bool dropped = r < top_k && s->slot[first + r] == GM_NO_SLOT;

	if (!dropped && s->copy_of[expert] == GM_NO_COPY && gm_core_residency(s->core, layer)[expert] < GM_RESIDENT &&
	    to_scratch(s, expert) < 0)
		return gm_fail(err, s->err.code, "%s", s->err.text);
	s->schedule.expert[first + i] = (int32_t)expert;
	s->schedule.copy_of[first + i] = dropped ? GM_NO_COPY : s->copy_of[expert];
	s->schedule.slot[first + i] = (int32_t)(dropped ? GM_NO_SLOT : slot_in_row(s, expert));
	return GM_OK;
}

/* A dropped expert is multiplied with 0: of an event of several rows, computed by expert, it takes the slot of another. */
static void place_dropped(struct gm_slots *s)
{
	struct gm_schedule *schedule = &s->schedule;
	uint32_t n = schedule->n_row * s->config->top_k, other = 0;

	while (other < n && (schedule->slot[other] < 0 || schedule->copy_of[other] != GM_NO_COPY))
		other++;
	for (uint32_t p = 0; p < n; p++) {
		if (schedule->slot[p] >= 0)
			continue;
		schedule->copy_of[p] = other < n ? GM_NO_COPY : 0;
		schedule->slot[p] = other < n ? schedule->slot[other] : (int32_t)schedule->copy[0].slot;
	}
}

int gm_slots_experts(struct gm_slots *s, uint32_t first, uint32_t n, int32_t *expert, bool *changed, struct gm_error *err)
{
	uint32_t top_k = s->config->top_k;

	if (first + n > s->n_decided)
		return gm_fail(err, GM_ERR_UNSUPPORTED, "%u rows without a decision: layer %u: %u were decided", first + n,
			       s->schedule.layer, s->n_decided);
	for (uint32_t row = first; row < first + n; row++, expert += top_k)
		for (uint32_t i = 0; i < top_k; i++) {
			size_t at = (size_t)row * top_k;
			uint32_t r = rank_of(s->expert + at, top_k, expert[i]);

			if (s->schedule.one_event)
				GM_TRY(place_in_event(s, row, i, (uint32_t)expert[i], err));
			else if (r < top_k)
				s->schedule.slot[at + i] = (int32_t)s->slot[at + r];
			else
				GM_TRY(place_tie(s, row, expert, i, changed, err));
		}
	return GM_OK;
}

const struct gm_schedule *gm_slots_schedule(struct gm_slots *s)
{
	struct gm_schedule *schedule = &s->schedule;

	if (schedule->one_event && schedule->n_copy > 0)
		place_dropped(s);
	else if (schedule->one_event) /* computed row by row */
		for (uint32_t row = 0; row < schedule->n_row; row++)
			fill_dropped((uint32_t *)schedule->slot + (size_t)row * s->config->top_k, s->config->top_k);
	gm_schedule_divide(schedule);
	return &s->schedule;
}

int gm_slots_end(struct gm_slots *s, struct gm_error *err)
{
	for (uint32_t i = 0; i < s->n_late; i++)
		GM_TRY(s->background.queue(s->background.user, s->schedule.layer, s->late[i].expert, s->late[i].slot, err));
	s->n_late = 0;
	return GM_OK;
}
