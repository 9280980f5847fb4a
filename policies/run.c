/* Runs of events of one layer: the same rules as event.c, with what is the same for all events of a layer done once. */
#include "policies/core_private.h"

/* Everything is resident: the picks are read, looked up and counted. */
static void run_all_resident(struct event *ev, const struct gm_rows *rows)
{
	const uint8_t *residency = ev->residency;
	uint32_t top_k = ev->top_k, n_hit = 0;

	for (uint32_t i = 0; i < rows->n; i++) {
		const uint16_t *pick = rows->ranked + (size_t)i * rows->n_ranked;

		for (uint32_t r = 0; r < top_k; r++)
			n_hit += residency[pick[r]] >= GM_RESIDENT;
	}
	ev->counters->rows += rows->n;
	ev->counters->accesses += (uint64_t)rows->n * top_k;
	ev->counters->hits += n_hit;
}

/* --- row by row --- */

struct run {
	const struct gm_rows *rows;
	uint64_t first_token;
	uint64_t *work; /* may be NULL */
};

/* Points the event at the first row. */
static void begin_rows(struct event *ev, const struct run *run)
{
	const struct gm_rows *rows = run->rows;

	ev->rows = rows;
	ev->pick = rows->ranked;
	ev->pick_stride = rows->n_ranked;
	ev->gate = rows->gate;
}

static void set_token(struct event *ev, const struct run *run, uint32_t i)
{
	ev->token = run->first_token + (run->rows->token ? run->rows->token[i] : i);
	ev->first_row = i;
}

static void next_row(struct event *ev)
{
	ev->pick += ev->pick_stride;
	if (ev->gate)
		ev->gate += ev->top_k;
}

/* Row i, at which the event points, as one like any other; row is room for it. */
static int run_event(struct event *ev, struct gm_rows *row, const struct run *run, uint32_t i, struct gm_error *err)
{
	const struct gm_rows *rows = run->rows;

	*row = *rows;
	row->n = 1;
	row->token = NULL;
	row->ranked = ev->pick;
	row->gate = ev->gate;
	row->logit = rows->logit ? rows->logit + (size_t)i * rows->n_ranked : NULL;
	row->next_use = rows->next_use ? rows->next_use + (size_t)i * ev->top_k : NULL;
	ev->rows = row;
	GM_TRY(gm_event_one(ev, err));
	ev->rows = rows;
	ev->pick = row->ranked; /* not those of a reroute */
	ev->pick_stride = rows->n_ranked;
	ev->gate = row->gate;
	if (run->work)
		run->work[(size_t)ev->n_ready * (ev->top_k + 1) + ev->log.n_work]++;
	return GM_OK;
}

/* R11: an expert that is to be fetched takes the place of another one. False: it is used once and not kept. pin: somebody has to be pinned. */
static GM_INNER bool replace(struct event *ev, uint32_t e, bool pin)
{
	if (pin)
		gm_event_pin_row(ev);
	uint32_t victim = ev->evict->victim(ev->evict_state, &ev->candidates, e);

	if (victim == GM_NO_ITEM || victim == e) {
		ev->counters->bypasses++;
		return false;
	}
	ev->residency[victim] = GM_ABSENT;
	ev->evict->forget(ev->evict_state, victim);
	ev->counters->evictions++;
	return true;
}

/* R10, R11 for some picks of one row, all of them true misses; returns how many they are. Nothing is reserved. */
static GM_INNER uint32_t fetch_all(struct event *ev, const uint16_t *pick, uint64_t picks, bool pin)
{
	void (*insert)(void *, uint32_t, bool) = ev->evict->insert;
	struct pool *pool = ev->pool;
	uint32_t n = 0;

	for (; picks; picks &= picks - 1, n++) {
		uint32_t e = pick[__builtin_ctzll(picks)];

		if (pool->n_resident < pool->n_slot)
			pool->n_resident++;
		else if (!replace(ev, e, pin))
			continue;
		ev->residency[e] = GM_RESIDENT;
		insert(ev->evict_state, e, false);
	}
	return n;
}

/* Scope layer, every miss fetched, at most GM_MAX_PICK experts a row: nothing to decide, and nobody to tell. pin: the policy does not spare
 * requests by itself. */
static GM_INNER void fetch_rows(struct event *ev, uint64_t first_token, const struct gm_rows *rows, uint64_t *work,
				bool pin)
{
	struct gm_requests *requests = &ev->requests;
	void (*access)(void *, const struct gm_requests *) = ev->evict->access;
	uint32_t top_k = ev->top_k, all_ready = top_k * (top_k + 1); /* work[top_k][0] */
	const uint16_t *pick = rows->ranked;
	gm_find_misses *find_misses;
	uint64_t fetches = 0;

	ev->pick_stride = rows->n_ranked;
	find_misses = gm_event_miss_finder(ev);
	gm_event_next_stamp(ev);
	for (uint32_t i = 0; i < rows->n; i++, pick += rows->n_ranked) {
		uint64_t missed = find_misses(ev->residency, pick, top_k);
		uint32_t n_missed = 0;

		requests->expert = pick;
		ev->token = requests->token = first_token + (rows->token ? rows->token[i] : i);
		for (uint32_t r = 0; rows->next_use && r < top_k; r++)
			gm_event_note_next_use(ev, r, (size_t)i * top_k + r);
		access(ev->evict_state, requests);
		if (missed) {
			ev->candidates.token = requests->token;
			if (pin) {
				gm_event_next_stamp(ev);
				ev->pick = pick;
				ev->pinned = false;
			}
			n_missed = fetch_all(ev, pick, missed, pin);
			fetches += n_missed;
		}
		if (work)
			work[all_ready - n_missed * top_k]++; /* work[top_k - n_missed][n_missed] */
	}
	ev->counters->rows += rows->n;
	ev->counters->accesses += (uint64_t)rows->n * top_k;
	ev->counters->hits += (uint64_t)rows->n * top_k - fetches;
	ev->counters->fetches += fetches;
	ev->counters->link_bytes += fetches * ev->expert_bytes;
}

static GM_APART void run_fetches(struct event *ev, uint64_t first_token, const struct gm_rows *rows, uint64_t *work)
{
	fetch_rows(ev, first_token, rows, work, true);
}

static GM_APART void run_spared_fetches(struct event *ev, uint64_t first_token, const struct gm_rows *rows, uint64_t *work)
{
	fetch_rows(ev, first_token, rows, work, false);
}

/* --- some fetched, some substituted --- */

/* A row with misses, some of which are substituted by residents behind its picks. */
static void settle(struct event *ev, uint64_t missed, uint64_t substituted)
{
	gm_event_next_stamp(ev);
	ev->pinned = ev->spares;
	ev->log.n_work = fetch_all(ev, ev->pick, missed & ~substituted, true);
	if (substituted)
		gm_event_count_substituted(ev, substituted);
}

/* Scope layer, at most GM_MAX_PICK experts a row, a rule that knows by rank and weight what it fetches, and copies that land before the next event:
 * then hits, fetches and substitutes of a row are known at once. Where substitutes have to be searched for beyond the ranking, a row is an event like
 * any other. */
static GM_APART int run_decided(struct event *ev, struct run *run, struct gm_rows *row, struct gm_error *err)
{
	const struct gm_miss_ops *rule = ev->config->miss.ops;
	struct gm_requests *requests = &ev->requests;
	bool next_use = run->rows->next_use != NULL;
	void (*access)(void *, const struct gm_requests *) = ev->evict->access;
	bool told = ev->core->arrivals->end != NULL;
	uint32_t top_k = ev->top_k, n_row = run->rows->n;
	uint64_t *work = run->work, n_fetch = 0, n_substituted = 0;
	gm_find_misses *find_misses;

	begin_rows(ev, run);
	ev->request = ev->s->identity;
	find_misses = gm_event_miss_finder(ev);
	for (uint32_t i = 0; i < run->rows->n; i++, next_row(ev)) {
		uint64_t missed, substituted = 0;

		set_token(ev, run, i);
		if (ev->pool->n_reserved)
			gm_event_land_all(ev);
		missed = find_misses(ev->residency, ev->pick, top_k);
		ev->n_loose = 0;
		if (missed)
			substituted = missed & ~rule->fetches(ev->config->miss.arg, ev->gate, top_k);
		if (substituted && !gm_event_has_substitutes(ev, substituted)) {
			int status = gm_event_fall_back(ev, missed, &substituted, err);

			GM_TRY(status);
			if (status == 0) {
				GM_TRY(run_event(ev, row, run, i, err));
				n_row--;
				continue;
			}
		}
		n_substituted += ev->n_loose;
		requests->expert = ev->expert = ev->pick;
		requests->token = ev->token;
		for (uint32_t r = 0; next_use && r < top_k; r++)
			gm_event_note_next_use(ev, r, (size_t)i * top_k + r);
		ev->log.n_work = ev->log.n_queued = 0;
		access(ev->evict_state, requests);
		if (missed)
			settle(ev, missed, substituted);
		n_fetch += ev->log.n_work;
		ev->n_ready = top_k - ev->log.n_work;
		if (work)
			work[(size_t)ev->n_ready * (top_k + 1) + ev->log.n_work]++;
		if (told)
			gm_event_tell_fetches(ev, missed & ~substituted);
	}
	ev->counters->rows += n_row;
	ev->counters->accesses += (uint64_t)n_row * top_k;
	ev->counters->hits += (uint64_t)n_row * top_k - n_fetch - n_substituted;
	ev->counters->fetches += n_fetch;
	ev->counters->link_bytes += n_fetch * ev->expert_bytes;
	return GM_OK;
}

/* --- any other run --- */

static int run_any(struct event *ev, struct run *run, struct gm_rows *row, struct gm_error *err)
{
	begin_rows(ev, run);
	for (uint32_t i = 0; i < run->rows->n; i++, next_row(ev)) {
		set_token(ev, run, i);
		GM_TRY(run_event(ev, row, run, i, err));
	}
	return GM_OK;
}

/* Whether copies land by the layer's next event, and nobody wants to know more of it than what it had to do. */
static bool is_plain(const struct gm_core *core)
{
	const struct gm_arrivals *arrivals = core->arrivals;

	return !arrivals->begin && !arrivals->wants_requests && !core->config->reroute.ops &&
	       core->config->scope == GM_SCOPE_LAYER;
}

int gm_event_run(struct gm_core *core, uint32_t layer, uint64_t first_token, const struct gm_rows *rows,
		 struct gm_counters *counters, uint64_t *work, struct gm_error *err)
{
	const struct gm_core_config *config = core->config;
	struct run run = {.rows = rows, .first_token = first_token, .work = work};
	bool plain = is_plain(core);
	struct gm_counters unwanted;
	struct gm_rows row;
	struct event ev;

	if (config->top_k > core->scratch->max_pick)
		GM_TRY(gm_scratch_grow(core->scratch, 1, err));
	gm_event_set_up(&ev, core, layer);
	ev.requests = (struct gm_requests){.n = config->top_k, .next_use = rows->next_use ? ev.s->next_use : NULL};
	ev.rows = rows;
	ev.counters = counters ? counters : memset(&unwanted, 0, sizeof(unwanted));
	ev.shared = true;
	if (plain && gm_core_all_resident(config) && !core->arrivals->end) {
		run_all_resident(&ev, rows);
		if (work)
			work[(size_t)config->top_k * (config->top_k + 1)] += rows->n;
		return GM_OK;
	}
	if (plain && (config->miss.ops->info.flags & GM_ONLY_FETCHES) && !core->arrivals->end &&
	    config->top_k <= GM_MAX_PICK) {
		(ev.spares ? run_spared_fetches : run_fetches)(&ev, first_token, rows, work);
		return GM_OK;
	}
	if (plain && config->miss.ops->fetches && config->top_k <= GM_MAX_PICK)
		return run_decided(&ev, &run, &row, err);
	return run_any(&ev, &run, &row, err);
}
