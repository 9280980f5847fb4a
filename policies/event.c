/* One event, rule by rule (docs/semantics.md, R6-R13). */
#include "policies/core_private.h"

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

/* --- R7 --- */

/* An event of one row: its picks are the requests. */
static void classify_row(struct event *ev)
{
	uint32_t top_k = ev->top_k;

	gm_event_classify(ev);
	ev->expert = ev->pick;
	ev->row_of = ev->s->no_row;
	ev->request = ev->s->identity;
	ev->n_request = top_k;
	ev->n_ready = top_k - ev->n_missed;
	ev->pinned = ev->spares;
	ev->counters->rows++;
	ev->counters->accesses += top_k;
	ev->counters->hits += ev->n_ready;
	for (uint32_t r = 0; ev->rows->next_use && r < top_k; r++)
		gm_event_note_next_use(ev, r, r);
}

/* Several rows: the requests are their distinct picks in order of first appearance. */
static void classify_rows(struct event *ev)
{
	struct gm_scratch *s = ev->s;

	if (++s->stamp == 0) { /* wrapped around: no old stamp may match by chance */
		memset(s->stamp_of, 0, s->n_expert * sizeof(*s->stamp_of));
		s->stamp = 1;
	}
	ev->expert = s->expert;
	ev->row_of = s->row_of;
	ev->request = s->request;
	ev->n_request = ev->n_missed = 0;
	for (uint32_t i = 0; i < ev->rows->n; i++) {
		const uint16_t *pick = event_picks(ev, i);
		struct gm_counters *counters = event_counters(ev, i);

		counters->rows++;
		for (uint32_t r = 0; r < ev->top_k; r++) {
			uint16_t e = pick[r];
			size_t p = (size_t)i * ev->top_k + r;

			if (s->stamp_of[e] != s->stamp) {
				uint32_t q = ev->n_request++;

				s->stamp_of[e] = s->stamp;
				s->request_of[e] = q;
				s->expert[q] = e;
				s->class[q] = gm_event_class_of(ev->residency[e]);
				s->row_of[q] = i;
				s->missed[ev->n_missed] = q;
				ev->n_missed += s->class[q] != GM_HIT;
				ev->pin[e] = ev->candidates.stamp;
				counters->accesses++;
				counters->hits += s->class[q] == GM_HIT;
				if (ev->rows->next_use)
					gm_event_note_next_use(ev, q, p);
			}
			s->request[p] = s->request_of[e];
		}
	}
	ev->n_ready = ev->n_request - ev->n_missed;
	ev->pinned = true;
}

/* --- R8 --- */

/* The miss rule's answers for one row of several. */
static void decide_row(struct event *ev, uint32_t i)
{
	struct gm_scratch *s = ev->s;
	size_t first = (size_t)i * ev->top_k;
	const uint32_t *request = ev->request + first;
	struct gm_miss_row row = {
		.layer = ev->layer,
		.token = ev->token + (ev->rows->token ? ev->rows->token[i] : i),
		.top_k = ev->top_k,
		.expert = event_picks(ev, i),
		.gate = ev->gate ? ev->gate + first : NULL,
		.missed = s->row_missed,
		.class = s->row_class,
		.residency = ev->residency,
	};

	for (uint32_t r = 0; r < ev->top_k; r++) {
		s->row_class[r] = s->class[request[r]];
		s->row_missed[row.n_missed] = r;
		row.n_missed += s->row_class[r] != GM_HIT;
	}
	ev->config->miss.ops->decide(gm_core_at(ev->core, ev->core->miss), ev->config->miss.arg, &row, s->action + first);
}

static void find_wanting(struct event *ev)
{
	struct gm_scratch *s = ev->s;

	ev->wanting = s->wanting;
	ev->n_wanting = 0;
	for (uint32_t p = 0; p < ev->rows->n * ev->top_k; p++)
		if (s->class[ev->request[p]] != GM_HIT)
			s->wanting[ev->n_wanting++] = p;
}

/* A FETCH of any row holds for all. */
static void decide(struct event *ev)
{
	struct gm_scratch *s = ev->s;

	for (uint32_t i = 0; i < ev->rows->n; i++)
		decide_row(ev, i);
	find_wanting(ev);
	for (uint32_t i = 0; i < ev->n_missed; i++)
		s->flags[s->missed[i]] = 0;
	for (uint32_t i = 0; i < ev->n_wanting; i++) {
		uint8_t action = s->action[ev->wanting[i]];

		ev->actions |= 1u << action;
		if (action == GM_FETCH)
			s->flags[ev->request[ev->wanting[i]]] |= FETCHED;
	}
	for (uint32_t i = 0; i < ev->n_wanting; i++)
		if (s->flags[ev->request[ev->wanting[i]]] & FETCHED)
			s->action[ev->wanting[i]] = GM_FETCH;
}

/* R13, and the counters of picks. A row's mass is summed first: then totals are the same to the bit however rows are tallied. */
static void count_picks(struct event *ev)
{
	struct gm_scratch *s = ev->s;

	for (uint32_t i = 0; i < ev->n_wanting;) {
		uint32_t row = event_row_of_pick(ev, ev->wanting[i]);
		struct gm_counters *counters = event_counters(ev, row);
		double substituted = 0, dropped = 0;

		for (; i < ev->n_wanting && event_row_of_pick(ev, ev->wanting[i]) == row; i++) {
			uint32_t p = ev->wanting[i];

			if (s->action[p] == GM_SUBSTITUTE) {
				counters->substitutions++;
				substituted += ev->gate[p];
			} else if (s->action[p] == GM_DROP) {
				counters->drops++;
				dropped += ev->gate[p];
			} else if (s->action[p] == GM_CPU) {
				counters->cpu_picks++;
				s->flags[ev->request[p]] |= ON_CPU;
			}
		}
		counters->substituted_mass += substituted;
		counters->dropped_mass += dropped;
	}
}

/* --- R10, R11 --- */

static bool fits(const struct event *ev)
{
	const struct pool *pool = ev->pool;

	if (ev->config->scope == GM_SCOPE_GLOBAL)
		return ev->room_bytes <= pool->bytes_left;
	return pool->n_resident + pool->n_reserved < pool->n_slot;
}

static void evict(struct event *ev, uint32_t item)
{
	struct pool *pool = ev->pool;

	gm_core_pool_residency(ev->core, pool)[item] = GM_ABSENT;
	pool->n_resident--;
	if (ev->config->scope == GM_SCOPE_GLOBAL)
		pool->bytes_left += gm_core_room_bytes(ev->config, item / ev->config->n_expert);
	ev->evict->forget(ev->evict_state, item);
}

/* R11: room for one expert. incoming: the fetched item, or GM_NO_ITEM for a background admission. False: nothing is left to evict, or the
 * policy does not keep it. */
static bool make_room(struct event *ev, uint32_t incoming, struct gm_counters *counters)
{
	while (!fits(ev)) {
		gm_event_pin_row(ev);
		uint32_t victim = ev->evict->victim(ev->evict_state, &ev->candidates, incoming);

		if (victim == GM_NO_ITEM || victim == incoming)
			return false;
		evict(ev, victim);
		counters->evictions++;
	}
	ev->pool->bytes_left -= ev->room_bytes;
	return true;
}

/* One fetched expert, in request order. */
static void fetch(struct event *ev, uint32_t q)
{
	struct gm_counters *counters = event_counters(ev, ev->row_of[q]);
	uint16_t e = ev->expert[q];
	uint32_t item = ev->first_item + e;

	if (ev->s->class[q] == GM_LATE) {
		gm_core_land_item(ev->core, ev->pool, item);
		counters->late_hits++;
		return;
	}
	counters->fetches++;
	counters->link_bytes += ev->expert_bytes;
	if (!make_room(ev, item, counters)) {
		counters->bypasses++;
		return;
	}
	ev->residency[e] = GM_RESIDENT;
	ev->pool->n_resident++;
	ev->evict->insert(ev->evict_state, item, false);
}

static void record_access(struct event *ev)
{
	ev->requests = (struct gm_requests){
		.n = ev->n_request,
		.expert = ev->expert,
		.first_item = ev->first_item,
		.next_use = ev->rows->next_use ? ev->s->next_use : NULL,
		.token = ev->token,
	};
	ev->evict->access(ev->evict_state, &ev->requests);
}

static void add_work(struct event *ev, uint32_t q, unsigned kind)
{
	ev->log.work_kinds |= kind;
	ev->s->work[ev->log.n_work++] = (struct gm_work){.expert = ev->expert[q], .kind = (uint16_t)kind};
}

static void fetch_decided(struct event *ev)
{
	const struct gm_scratch *s = ev->s;

	for (uint32_t i = 0; i < ev->n_missed; i++) {
		uint32_t q = s->missed[i];
		unsigned kind = s->flags[q] & ON_CPU ? GM_WORK_CPU : 0;

		if (s->flags[q] & FETCHED) {
			kind |= s->class[q] == GM_LATE ? GM_WORK_LATE : GM_WORK_FETCH;
			fetch(ev, q);
		}
		if (kind)
			add_work(ev, q, kind);
	}
}

/* The same where the rule fetches every miss, so that nothing was decided. */
static void fetch_misses(struct event *ev)
{
	const uint32_t *missed = ev->s->missed;

	for (uint32_t i = 0; i < ev->n_missed; i++) {
		uint32_t q = missed[i];

		add_work(ev, q, ev->s->class[q] == GM_LATE ? GM_WORK_LATE : GM_WORK_FETCH);
		fetch(ev, q);
	}
}

/* --- R12 --- */

static void reserve(struct event *ev, uint32_t q)
{
	uint32_t *reserved = gm_core_at(ev->core, ev->pool->reserved);
	uint32_t item = ev->first_item + ev->expert[q];

	reserved[ev->pool->n_reserved++] = item;
	ev->residency[ev->expert[q]] = GM_RESERVED;
	ev->evict->reserve(ev->evict_state, item);
	ev->s->flags[q] |= QUEUED;
	ev->s->queued[ev->log.n_queued++] = ev->expert[q];
}

/* A background copy of one that admission asked for. */
GM_RARE static void copy_asked(struct event *ev, uint32_t q, void *state, struct gm_counters *counters)
{
	if (!make_room(ev, GM_NO_ITEM, counters))
		return;
	reserve(ev, q);
	ev->config->admit.ops->queued(state, ev->first_item + ev->expert[q]);
	counters->background_copies++;
	counters->link_bytes += ev->expert_bytes;
}

/* Substituted true misses of one row: bit r of picks is its pick first + r. */
static void admit(struct event *ev, uint32_t row, uint32_t first, uint64_t picks)
{
	const struct gm_admit *policy = &ev->config->admit;
	void *state = gm_core_at(ev->core, ev->pool->admit);
	size_t p = (size_t)row * ev->top_k + first;
	uint64_t asked = policy->ops->substituted(state, policy->arg, ev->first_item, event_picks(ev, row) + first,
						  ev->gate + p, picks);

	for (; asked; asked &= asked - 1)
		copy_asked(ev, ev->request[p + (uint32_t)__builtin_ctzll(asked)], state, event_counters(ev, row));
}

/* Several rows, one after the other: what one of them queues or fetches, the others no longer wait for. */
static void admit_rows(struct event *ev)
{
	const struct gm_scratch *s = ev->s;

	for (uint32_t i = 0; i < ev->n_wanting;) {
		uint32_t row = event_row_of_pick(ev, ev->wanting[i]), first_pick = row * ev->top_k;
		uint32_t first = (ev->wanting[i] - first_pick) / GM_MAX_PICK * GM_MAX_PICK;
		uint64_t picks = 0;

		for (; i < ev->n_wanting && event_row_of_pick(ev, ev->wanting[i]) == row; i++) {
			uint32_t p = ev->wanting[i], q = ev->request[p], r = p - first_pick - first;

			if (r >= GM_MAX_PICK)
				break;
			if (s->action[p] == GM_SUBSTITUTE && s->class[q] == GM_MISS && !(s->flags[q] & (FETCHED | QUEUED)))
				picks |= UINT64_C(1) << r;
		}
		if (picks)
			admit(ev, row, first, picks);
	}
}

/* --- the event --- */

static void tell(const struct event *ev, struct gm_decision *decision)
{
	const struct gm_scratch *s = ev->s;
	bool decided = !(ev->config->miss.ops->info.flags & GM_ONLY_FETCHES);

	for (size_t p = 0; p < (size_t)ev->rows->n * ev->top_k; p++) {
		uint32_t q = ev->request[p];
		uint8_t otherwise = decided ? s->action[p] : (uint8_t)GM_FETCH;

		decision[p] = (struct gm_decision){.class = s->class[q], .expert = ev->expert[q]};
		decision[p].action = s->class[q] == GM_HIT ? (uint8_t)GM_USE : otherwise;
		if (decision[p].action == GM_SUBSTITUTE)
			decision[p].substitute = s->substitute[p];
	}
}

static void tell_arrivals(struct event *ev)
{
	struct gm_arrivals *arrivals = ev->core->arrivals;

	ev->log.n_row = ev->rows->n;
	ev->log.n_ready = ev->n_ready;
	if (arrivals->wants_requests) {
		ev->log.n_request = ev->n_request;
		ev->log.expert = ev->expert;
		ev->log.class = ev->s->class;
	}
	arrivals->end(arrivals, &ev->log);
}

void gm_event_land_all(struct event *ev)
{
	while (ev->pool->n_reserved)
		gm_core_land_item(ev->core, ev->pool, *(uint32_t *)gm_core_at(ev->core, ev->pool->reserved));
}

void gm_event_tell_fetches(struct event *ev, uint64_t picks)
{
	ev->log.n_row = 1;
	ev->log.n_ready = ev->n_ready;
	ev->log.n_work = ev->log.work_kinds = 0;
	for (; picks; picks &= picks - 1)
		add_work(ev, (uint32_t)__builtin_ctzll(picks), GM_WORK_FETCH);
	ev->core->arrivals->end(ev->core->arrivals, &ev->log);
}

static void begin(struct event *ev)
{
	struct gm_core *core = ev->core;

	if (core->arrivals->begin) {
		core->arrivals->begin(core->arrivals, core, ev->layer);
		return;
	}
	gm_event_land_all(ev);
}

/* Several rows, and a rule that decides. */
static int settle_rows(struct event *ev, struct gm_error *err)
{
	decide(ev);
	if (ev->actions & 1u << GM_SUBSTITUTE)
		GM_TRY(gm_event_substitute(ev, err));
	count_picks(ev);
	fetch_decided(ev);
	if ((ev->actions & 1u << GM_SUBSTITUTE) && ev->config->admit.ops->substituted)
		admit_rows(ev);
	return GM_OK;
}

/* One row of at most GM_MAX_PICK picks. They are its requests, and nobody else can overrule what was decided about them. */

/* Which of those that are no hits have an action, or a class, as bits. One by one, for they were written so a moment ago: a wide load would have to
 * wait until all of them are in the cache. */
static uint64_t misses_with(const struct event *ev, const uint8_t *of_pick, uint8_t wanted)
{
	const uint32_t *missed = ev->s->missed, *end = missed + ev->n_missed;
	uint64_t with = 0;

	for (; missed < end; missed++)
		with |= (uint64_t)(of_pick[*missed] == wanted) << *missed;
	return with;
}

/* R13 */
static void count_substituted(const struct event *ev, uint64_t picks)
{
	const double *gate = ev->gate;
	double mass = 0;
	uint32_t n = 0;

	for (; picks; picks &= picks - 1, n++)
		mass += gate[__builtin_ctzll(picks)];
	ev->counters->substitutions += n;
	ev->counters->substituted_mass += mass;
}

void gm_event_count_substituted(struct event *ev, uint64_t picks)
{
	count_substituted(ev, picks);
	if (ev->config->admit.ops->substituted)
		admit(ev, 0, 0, picks);
}

GM_RARE static void count_dropped(const struct event *ev, uint64_t picks)
{
	double mass = 0;

	for (; picks; picks &= picks - 1) {
		mass += ev->gate[__builtin_ctzll(picks)];
		ev->counters->drops++;
	}
	ev->counters->dropped_mass += mass;
}

/* R10 */
static void fetch_row(struct event *ev, uint64_t picks)
{
	for (; picks; picks &= picks - 1) {
		uint32_t q = (uint32_t)__builtin_ctzll(picks);

		if (ev->s->action[q] == GM_CPU) {
			add_work(ev, q, GM_WORK_CPU);
			ev->counters->cpu_picks++;
			continue;
		}
		add_work(ev, q, ev->s->class[q] == GM_LATE ? GM_WORK_LATE : GM_WORK_FETCH);
		fetch(ev, q);
	}
}

/* The same as settle_rows. */
static int settle_row(struct event *ev, struct gm_error *err)
{
	struct gm_scratch *s = ev->s;
	const struct gm_miss_row row = {
		.layer = ev->layer,
		.token = ev->token + (ev->rows->token ? ev->rows->token[0] : 0),
		.top_k = ev->top_k,
		.expert = ev->pick,
		.gate = ev->gate,
		.missed = s->missed,
		.n_missed = ev->n_missed,
		.class = s->class,
		.residency = ev->residency,
	};
	uint64_t missed = ev->missed, fallbacks = ev->counters->substitute_fallbacks, asked = 0, substituted;

	if (ev->config->admit.ops->substituted)
		asked = ev->pool->n_reserved ? misses_with(ev, s->class, GM_MISS) : missed;
	ev->config->miss.ops->decide(gm_core_at(ev->core, ev->core->miss), ev->config->miss.arg, &row, s->action);
	ev->wanting = s->missed;
	ev->n_wanting = ev->n_missed;
	substituted = misses_with(ev, s->action, GM_SUBSTITUTE);
	if (substituted) {
		GM_TRY(gm_event_substitute(ev, err));
		if (ev->counters->substitute_fallbacks != fallbacks)
			substituted = misses_with(ev, s->action, GM_SUBSTITUTE);
		count_substituted(ev, substituted);
	}
	if (substituted != missed) {
		uint64_t dropped = misses_with(ev, s->action, GM_DROP);

		if (dropped)
			count_dropped(ev, dropped);
		fetch_row(ev, missed & ~(substituted | dropped));
	}
	if (substituted & asked)
		admit(ev, 0, 0, substituted & asked);
	return GM_OK;
}

int gm_event_one(struct event *ev, struct gm_error *err)
{
	bool one_row = ev->rows->n == 1;

	gm_event_next_stamp(ev);
	begin(ev);
	if (ev->config->reroute.ops)
		reroute(ev);
	if (one_row)
		classify_row(ev);
	else
		classify_rows(ev);
	ev->log.n_work = ev->log.n_queued = 0;
	ev->log.work_kinds = 0;
	ev->actions = 0;
	ev->n_loose = 0;
	record_access(ev);
	if (ev->n_missed && (ev->config->miss.ops->info.flags & GM_ONLY_FETCHES)) {
		ev->actions = 1u << GM_FETCH;
		fetch_misses(ev);
	} else if (ev->n_missed) {
		GM_TRY(one_row && ev->top_k <= GM_MAX_PICK ? settle_row(ev, err) : settle_rows(ev, err));
	}
	if (ev->core->arrivals->end)
		tell_arrivals(ev);
	return GM_OK;
}

void gm_event_set_up(struct event *ev, struct gm_core *core, uint32_t layer)
{
	const struct gm_core_config *config = core->config;
	struct pool *pool = gm_core_pool(core, layer);
	size_t first = (size_t)layer * config->n_expert;

	ev->core = core;
	ev->config = config;
	ev->evict = config->evict.ops;
	ev->s = core->scratch;
	ev->pool = pool;
	ev->evict_state = gm_core_at(core, pool->evict);
	ev->residency = (uint8_t *)gm_core_at(core, core->residency) + first;
	ev->pin = (uint8_t *)gm_core_at(core, core->pin) + first;
	ev->candidates.requests = &ev->requests;
	ev->candidates.residency = gm_core_pool_residency(core, pool);
	ev->candidates.pin = (const uint8_t *)gm_core_at(core, core->pin) + pool->first_item;
	ev->layer = layer;
	ev->top_k = config->top_k;
	ev->first_item = (uint32_t)(first - pool->first_item);
	ev->expert_bytes = config->expert_bytes ? config->expert_bytes[layer] : 0;
	ev->room_bytes = gm_core_room_bytes(config, layer);
	ev->log = (struct gm_event_log){.layer = layer, .work = ev->s->work, .queued = ev->s->queued};
	ev->spares = (config->evict.ops->info.flags & GM_SPARES_REQUESTS) != 0;
	ev->n_loose = 0;
}

int gm_event(struct gm_core *core, uint32_t layer, uint64_t first_token, const struct gm_rows *rows,
	     struct gm_counters *counters, bool shared_counters, struct gm_decision *decision, struct gm_error *err)
{
	struct gm_counters unwanted;
	struct event ev;

	if ((size_t)rows->n * core->config->top_k > core->scratch->max_pick)
		GM_TRY(gm_scratch_grow(core->scratch, rows->n, err));
	gm_event_set_up(&ev, core, layer);
	ev.token = first_token;
	ev.rows = rows;
	ev.first_row = 0;
	ev.pick = rows->ranked;
	ev.pick_stride = rows->n_ranked;
	ev.gate = rows->gate;
	ev.counters = counters;
	ev.shared = shared_counters;
	if (!counters) {
		ev.counters = memset(&unwanted, 0, sizeof(unwanted));
		ev.shared = true;
	}
	GM_TRY(gm_event_one(&ev, err));
	if (decision)
		tell(&ev, decision);
	return GM_OK;
}
