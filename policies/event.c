/* One event, rule by rule (docs/semantics.md, R6-R13). */
#include "policies/core_private.h"

#include <stdlib.h>
#include <string.h>

enum request_flag { FETCHED = 1, ON_CPU = 2, QUEUED = 4 };

/* Work space. Request arrays [n_expert] hold the distinct experts of an event in request order; pick arrays [n_row][top_k]. */
struct gm_scratch {
	uint32_t n_expert, top_k;
	uint32_t stamp;
	uint32_t *stamp_of;   /* [n_expert] an expert is requested where stamp_of == stamp ... */
	uint32_t *request_of; /* [n_expert] ... and this is its request */
	uint16_t *expert;
	uint8_t *class;
	uint8_t *flags;
	uint32_t *row_of; /* row of first appearance */
	uint64_t *next_use;
	struct gm_work *work;
	uint16_t *queued;
	uint16_t *ready;
	size_t max_pick;
	uint32_t *request; /* picks: index of the request */
	uint8_t *action;
	uint16_t *substitute;
	uint16_t *rerouted; /* picks after rerouting, and their weights */
	double *gate;
	uint16_t *position; /* [top_k] */
	float *logit;       /* [top_k] */
	uint8_t *row_class; /* [top_k] */
};

struct event {
	struct gm_core *core;
	const struct gm_core_config *config;
	struct gm_scratch *s;
	struct pool *pool;
	uint8_t *residency; /* [n_expert] of the layer */
	uint32_t *pin;      /* [n_expert] of the layer */
	uint32_t layer, top_k;
	uint32_t first_item; /* pool item of the layer's expert 0 */
	uint64_t token;      /* current token */
	const struct gm_rows *rows;
	const uint16_t *pick; /* row i: pick + i * pick_stride */
	uint32_t pick_stride;
	const double *gate; /* [n][top_k] */
	uint32_t n_request, n_ready, n_work, n_queued;
	bool all_hit;
	struct gm_counters *counters;
	bool shared;
};

void gm_counters_add(struct gm_counters *to, const struct gm_counters *from)
{
	to->rows += from->rows;
	to->accesses += from->accesses;
	to->hits += from->hits;
	to->late_hits += from->late_hits;
	to->fetches += from->fetches;
	to->substitutions += from->substitutions;
	to->drops += from->drops;
	to->cpu_picks += from->cpu_picks;
	to->substitute_fallbacks += from->substitute_fallbacks;
	to->head_exhausted += from->head_exhausted;
	to->bypasses += from->bypasses;
	to->background_copies += from->background_copies;
	to->evictions += from->evictions;
	to->link_bytes += from->link_bytes;
	to->substituted_mass += from->substituted_mass;
	to->dropped_mass += from->dropped_mass;
}

static const uint16_t *row_picks(const struct event *ev, uint32_t row)
{
	return ev->pick + (size_t)row * ev->pick_stride;
}

static struct gm_counters *row_counters(const struct event *ev, uint32_t row)
{
	return &ev->counters[ev->shared ? 0 : row];
}

static uint64_t expert_bytes(const struct event *ev)
{
	return ev->config->expert_bytes ? ev->config->expert_bytes[ev->layer] : 0;
}

/* Rows as the reroute policy wants them: new selections, weights by R3. */
static void reroute(struct event *ev)
{
	const struct gm_rows *rows = ev->rows;
	struct gm_scratch *s = ev->s;

	for (uint32_t i = 0; i < rows->n; i++) {
		struct gm_reroute_row row = {
			.layer = ev->layer,
			.token = ev->token + (rows->token ? rows->token[i] : i),
			.top_k = ev->top_k,
			.n_ranked = rows->n_ranked,
			.ranked = rows->ranked + (size_t)i * rows->n_ranked,
			.logit = rows->logit + (size_t)i * rows->n_ranked,
			.residency = ev->residency,
		};

		ev->config->reroute.ops->reroute(ev->config->reroute.arg, &row, s->position);
		for (uint32_t r = 0; r < ev->top_k; r++) {
			s->rerouted[(size_t)i * ev->top_k + r] = row.ranked[s->position[r]];
			s->logit[r] = row.logit[s->position[r]];
		}
		rows->regate(rows->user, s->logit, s->gate + (size_t)i * ev->top_k);
	}
	ev->pick = s->rerouted;
	ev->pick_stride = ev->top_k;
	ev->gate = s->gate;
}

/* R7: the request list, and what each request meets. */
static void classify(struct event *ev)
{
	struct gm_scratch *s = ev->s;
	uint32_t n_layer = ev->config->n_layer;

	for (uint32_t i = 0; i < ev->rows->n; i++) {
		const uint16_t *pick = row_picks(ev, i);

		for (uint32_t r = 0; r < ev->top_k; r++) {
			uint16_t e = pick[r];
			size_t p = (size_t)i * ev->top_k + r;

			if (s->stamp_of[e] == s->stamp) {
				s->request[p] = s->request_of[e];
				continue;
			}
			uint32_t q = ev->n_request++;

			s->stamp_of[e] = s->stamp;
			s->request_of[e] = q;
			s->request[p] = q;
			s->expert[q] = e;
			s->row_of[q] = i;
			s->flags[q] = 0;
			if (ev->rows->next_use) {
				uint32_t next = ev->rows->next_use[p];

				s->next_use[q] = next == UINT32_MAX ? GM_NEVER : (uint64_t)next * n_layer + ev->layer;
			}
			row_counters(ev, i)->accesses++;
			if (ev->residency[e] >= GM_RESIDENT) {
				s->class[q] = GM_HIT;
				ev->pin[e] = ev->core->stamp;
				s->ready[ev->n_ready++] = e;
				row_counters(ev, i)->hits++;
			} else {
				s->class[q] = ev->residency[e] == GM_RESERVED ? GM_LATE : GM_MISS;
				ev->all_hit = false;
			}
		}
	}
}

/* R8: the miss rule's answers; a FETCH of any row holds for all. */
static void decide(struct event *ev)
{
	struct gm_scratch *s = ev->s;
	size_t n_pick = (size_t)ev->rows->n * ev->top_k;

	for (uint32_t i = 0; i < ev->rows->n; i++) {
		size_t first = (size_t)i * ev->top_k;
		uint8_t *action = s->action + first;
		bool any = false;

		for (uint32_t r = 0; r < ev->top_k; r++) {
			s->row_class[r] = s->class[s->request[first + r]];
			action[r] = GM_USE;
			any |= s->row_class[r] != GM_HIT;
		}
		if (!any)
			continue;
		struct gm_miss_row row = {
			.layer = ev->layer,
			.token = ev->token + (ev->rows->token ? ev->rows->token[i] : i),
			.top_k = ev->top_k,
			.expert = row_picks(ev, i),
			.gate = ev->gate ? ev->gate + first : NULL,
			.class = s->row_class,
			.residency = ev->residency,
		};

		ev->config->miss.ops->decide(gm_core_at(ev->core, ev->core->miss), ev->config->miss.arg, &row, action);
		for (uint32_t r = 0; r < ev->top_k; r++)
			if (action[r] == GM_FETCH)
				s->flags[s->request[first + r]] |= FETCHED;
	}
	if (ev->rows->n == 1)
		return;
	for (size_t p = 0; p < n_pick; p++)
		if (s->flags[s->request[p]] & FETCHED)
			s->action[p] = GM_FETCH;
}

/* R9: where the search for substitutes of one row stands. Residency does not change during R9, so it only moves on. */
struct search {
	uint32_t row;
	uint32_t rank;          /* next rank of the row's ranking to look at */
	const uint16_t *expert; /* beyond the ranking, [n] */
	const double *score;    /* [n] */
	uint32_t n;
	bool beyond;   /* the experts beyond were asked for */
	uint32_t last; /* index of the substitute found last beyond the ranking, UINT32_MAX: none yet */
};

static bool in_selection(const struct event *ev, uint32_t row, uint16_t expert)
{
	const uint16_t *pick = row_picks(ev, row);

	for (uint32_t r = 0; r < ev->top_k; r++)
		if (pick[r] == expert)
			return true;
	return false;
}

/* The best resident beyond the ranking that comes after the last one found: score descending, then id ascending. */
static int search_beyond(const struct event *ev, struct search *search, uint32_t *found, struct gm_error *err)
{
	uint32_t best = UINT32_MAX;

	if (!search->beyond) {
		if (ev->rows->n_ranked < ev->config->n_expert)
			GM_TRY(ev->rows->beyond(ev->rows->user, search->row, &search->expert, &search->score, &search->n,
						err));
		search->beyond = true;
		search->last = UINT32_MAX;
	}
	for (uint32_t j = 0; j < search->n; j++) {
		double score = search->score[j];

		if (ev->residency[search->expert[j]] < GM_RESIDENT)
			continue;
		if (search->last != UINT32_MAX &&
		    (score > search->score[search->last] || (!(score < search->score[search->last]) && j <= search->last)))
			continue;
		if (best == UINT32_MAX || score > search->score[best])
			best = j;
	}
	*found = best == UINT32_MAX ? UINT32_MAX : search->expert[best];
	search->last = best == UINT32_MAX ? search->last : best;
	return GM_OK;
}

static int search_next(const struct event *ev, struct search *search, uint32_t *found, struct gm_error *err)
{
	const uint16_t *ranked = ev->rows->ranked + (size_t)search->row * ev->rows->n_ranked;
	bool rerouted = ev->config->reroute.ops != NULL;

	while (search->rank < ev->rows->n_ranked) {
		uint16_t e = ranked[search->rank++];

		if (ev->residency[e] >= GM_RESIDENT && !(rerouted && in_selection(ev, search->row, e))) {
			*found = e;
			return GM_OK;
		}
	}
	return search_beyond(ev, search, found, err);
}

static int find_substitutes(struct event *ev, struct gm_error *err)
{
	struct gm_scratch *s = ev->s;

	for (uint32_t i = 0; i < ev->rows->n; i++) {
		struct gm_counters *counters = row_counters(ev, i);
		struct search search = {.row = i, .rank = ev->config->reroute.ops ? 0 : ev->top_k};
		uint8_t *action = s->action + (size_t)i * ev->top_k;

		for (uint32_t r = 0; r < ev->top_k; r++) {
			uint32_t found;

			if (action[r] != GM_SUBSTITUTE)
				continue;
			GM_TRY(search_next(ev, &search, &found, err));
			if (found == UINT32_MAX) {
				action[r] = GM_FETCH;
				s->flags[s->request[(size_t)i * ev->top_k + r]] |= FETCHED;
				counters->substitute_fallbacks++;
				counters->head_exhausted += search.n == 0 && ev->rows->n_ranked < ev->config->n_expert;
				continue;
			}
			s->substitute[(size_t)i * ev->top_k + r] = (uint16_t)found;
			if (ev->pin[found] != ev->core->stamp) {
				ev->pin[found] = ev->core->stamp;
				s->ready[ev->n_ready++] = (uint16_t)found;
			}
		}
	}
	return GM_OK;
}

/* R13, and the counters of picks. */
static void count_picks(struct event *ev)
{
	struct gm_scratch *s = ev->s;

	for (uint32_t i = 0; i < ev->rows->n; i++) {
		struct gm_counters *counters = row_counters(ev, i);
		double substituted = 0, dropped = 0;

		for (uint32_t r = 0; r < ev->top_k; r++) {
			size_t p = (size_t)i * ev->top_k + r;

			if (s->action[p] == GM_SUBSTITUTE) {
				counters->substitutions++;
				substituted += ev->gate[p];
			} else if (s->action[p] == GM_DROP) {
				counters->drops++;
				dropped += ev->gate[p];
			} else if (s->action[p] == GM_CPU) {
				counters->cpu_picks++;
				s->flags[s->request[p]] |= ON_CPU;
			}
		}
		counters->substituted_mass += substituted;
		counters->dropped_mass += dropped;
	}
}

/* R10, second half: one fetched expert, in request order. */
static void fetch(struct event *ev, uint32_t request)
{
	struct gm_scratch *s = ev->s;
	struct gm_counters *counters = row_counters(ev, s->row_of[request]);
	uint16_t e = s->expert[request];
	uint32_t item = ev->first_item + e;

	if (s->class[request] == GM_LATE) {
		gm_core_land_item(ev->core, ev->pool, item);
		ev->pin[e] = ev->core->stamp;
		counters->late_hits++;
		return;
	}
	counters->fetches++;
	counters->link_bytes += expert_bytes(ev);
	if (!gm_core_make_room(ev->core, ev->pool, ev->layer, item, ev->token, &counters->evictions)) {
		counters->bypasses++;
		return;
	}
	gm_core_insert(ev->core, ev->pool, item);
	ev->pin[e] = ev->core->stamp;
}

static void access_and_fetch(struct event *ev)
{
	struct gm_scratch *s = ev->s;
	struct gm_requests requests = {
		.n = ev->n_request,
		.expert = s->expert,
		.first_item = ev->first_item,
		.next_use = ev->rows->next_use ? s->next_use : NULL,
		.token = ev->token,
	};

	ev->config->evict.ops->access(gm_core_at(ev->core, ev->pool->evict), &requests);
	if (ev->all_hit)
		return;
	for (uint32_t q = 0; q < ev->n_request; q++) {
		uint16_t kind = 0;

		if (s->flags[q] & FETCHED) {
			kind |= s->class[q] == GM_LATE ? GM_WORK_LATE : GM_WORK_FETCH;
			fetch(ev, q);
		}
		if (s->flags[q] & ON_CPU)
			kind |= GM_WORK_CPU;
		if (kind)
			s->work[ev->n_work++] = (struct gm_work){.expert = s->expert[q], .kind = kind};
	}
}

/* R12 */
static void admit(struct event *ev)
{
	const struct gm_admit_ops *ops = ev->config->admit.ops;
	struct gm_scratch *s = ev->s;
	void *state = gm_core_at(ev->core, ev->pool->admit);

	for (uint32_t i = 0; i < ev->rows->n; i++) {
		struct gm_counters *counters = row_counters(ev, i);

		for (uint32_t r = 0; r < ev->top_k; r++) {
			size_t p = (size_t)i * ev->top_k + r;
			uint32_t q = s->request[p];
			uint32_t item = ev->first_item + s->expert[q];

			if (s->action[p] != GM_SUBSTITUTE || s->class[q] != GM_MISS || (s->flags[q] & (FETCHED | QUEUED)))
				continue;
			if (!ops->substituted(state, ev->config->admit.arg, item, ev->gate[p]))
				continue;
			if (!gm_core_make_room(ev->core, ev->pool, ev->layer, GM_NO_ITEM, ev->token, &counters->evictions))
				continue;
			gm_core_reserve(ev->core, ev->pool, item);
			ops->queued(state, item);
			s->flags[q] |= QUEUED;
			s->queued[ev->n_queued++] = s->expert[q];
			counters->background_copies++;
			counters->link_bytes += expert_bytes(ev);
		}
	}
}

static void tell(const struct event *ev, struct gm_decision *decision)
{
	const struct gm_scratch *s = ev->s;

	for (size_t p = 0; p < (size_t)ev->rows->n * ev->top_k; p++) {
		uint32_t q = s->request[p];
		uint8_t action = ev->all_hit ? (uint8_t)GM_USE : s->action[p];

		decision[p] = (struct gm_decision){
			.action = action,
			.class = s->class[q],
			.expert = s->expert[q],
			.substitute = action == GM_SUBSTITUTE ? s->substitute[p] : 0,
		};
	}
}

/* Pick arrays grow with the largest event seen. */
static int reserve_picks(struct gm_scratch *s, uint32_t n_row, struct gm_error *err)
{
	size_t n = (size_t)n_row * s->top_k;

	if (n <= s->max_pick)
		return GM_OK;
	GM_GROW(s->request, n, err);
	GM_GROW(s->action, n, err);
	GM_GROW(s->substitute, n, err);
	GM_GROW(s->rerouted, n, err);
	GM_GROW(s->gate, n, err);
	s->max_pick = n;
	return GM_OK;
}

/* New stamps; on wrap-around the old ones are wiped so that none can match by chance. */
static void next_stamps(struct gm_core *core, struct gm_scratch *s)
{
	size_t n = (size_t)core->config->n_layer * core->config->n_expert;

	if (++core->stamp == 0) {
		memset(gm_core_at(core, core->pin), 0, n * sizeof(uint32_t));
		core->stamp = 1;
	}
	if (++s->stamp == 0) {
		memset(s->stamp_of, 0, s->n_expert * sizeof(*s->stamp_of));
		s->stamp = 1;
	}
}

int gm_event(struct gm_core *core, uint32_t layer, uint64_t first_token, const struct gm_rows *rows,
	     struct gm_counters *counters, bool shared_counters, struct gm_decision *decision, struct gm_error *err)
{
	const struct gm_core_config *config = core->config;
	size_t first = (size_t)layer * config->n_expert;
	struct pool *pool = gm_core_pool(core, layer);
	struct gm_counters unwanted;
	struct event ev = {
		.core = core,
		.config = config,
		.s = core->scratch,
		.pool = pool,
		.residency = (uint8_t *)gm_core_at(core, core->residency) + first,
		.pin = (uint32_t *)gm_core_at(core, core->pin) + first,
		.layer = layer,
		.top_k = config->top_k,
		.first_item = (uint32_t)(first - pool->first_item),
		.token = first_token,
		.rows = rows,
		.pick = rows->ranked,
		.pick_stride = rows->n_ranked,
		.gate = rows->gate,
		.all_hit = true,
		.counters = counters ? counters : &unwanted,
		.shared = shared_counters || !counters,
	};

	GM_TRY(reserve_picks(ev.s, rows->n, err));
	next_stamps(core, ev.s);
	if (!counters)
		memset(&unwanted, 0, sizeof(unwanted));
	for (uint32_t i = 0; i < rows->n; i++)
		row_counters(&ev, i)->rows++;

	core->arrivals->begin(core->arrivals, core, layer);
	if (config->reroute.ops)
		reroute(&ev);
	classify(&ev);
	if (!ev.all_hit) {
		decide(&ev);
		if (config->miss.ops->info.flags & GM_NEEDS_RANKING)
			GM_TRY(find_substitutes(&ev, err));
		count_picks(&ev);
	}
	access_and_fetch(&ev);
	if (!ev.all_hit && config->admit.ops->substituted)
		admit(&ev);
	if (decision)
		tell(&ev, decision);
	if (core->arrivals->end) {
		struct gm_event_log log = {
			.layer = layer,
			.n_row = rows->n,
			.n_ready = ev.n_ready,
			.n_work = ev.n_work,
			.work = ev.s->work,
			.n_queued = ev.n_queued,
			.queued = ev.s->queued,
			.ready = ev.s->ready,
		};

		core->arrivals->end(core->arrivals, &log);
	}
	return GM_OK;
}

struct gm_scratch *gm_scratch_new(uint32_t n_expert, uint32_t top_k, struct gm_error *err)
{
	struct gm_scratch *s = gm_alloc(1, sizeof(*s), err);

	if (!s)
		return NULL;
	s->n_expert = n_expert;
	s->top_k = top_k;
	s->stamp_of = gm_alloc(n_expert, sizeof(*s->stamp_of), err);
	s->request_of = gm_alloc(n_expert, sizeof(*s->request_of), err);
	s->expert = gm_alloc(n_expert, sizeof(*s->expert), err);
	s->class = gm_alloc(n_expert, sizeof(*s->class), err);
	s->flags = gm_alloc(n_expert, sizeof(*s->flags), err);
	s->row_of = gm_alloc(n_expert, sizeof(*s->row_of), err);
	s->next_use = gm_alloc(n_expert, sizeof(*s->next_use), err);
	s->work = gm_alloc(n_expert, sizeof(*s->work), err);
	s->queued = gm_alloc(n_expert, sizeof(*s->queued), err);
	s->ready = gm_alloc(n_expert, sizeof(*s->ready), err);
	s->position = gm_alloc(top_k, sizeof(*s->position), err);
	s->logit = gm_alloc(top_k, sizeof(*s->logit), err);
	s->row_class = gm_alloc(top_k, sizeof(*s->row_class), err);
	if (!s->stamp_of || !s->request_of || !s->expert || !s->class || !s->flags || !s->row_of || !s->next_use ||
	    !s->work || !s->queued || !s->ready || !s->position || !s->logit || !s->row_class) {
		gm_scratch_free(s);
		return NULL;
	}
	return s;
}

void gm_scratch_free(struct gm_scratch *s)
{
	if (!s)
		return;
	free(s->stamp_of);
	free(s->request_of);
	free(s->expert);
	free(s->class);
	free(s->flags);
	free(s->row_of);
	free(s->next_use);
	free(s->work);
	free(s->queued);
	free(s->ready);
	free(s->request);
	free(s->action);
	free(s->substitute);
	free(s->rerouted);
	free(s->gate);
	free(s->position);
	free(s->logit);
	free(s->row_class);
	free(s);
}
