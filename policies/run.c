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

/* --- every miss fetched --- */

/* R11: an expert that is to be fetched takes the place of another one. False: it is used once and not kept. */
static bool replace(struct event *ev, uint32_t e)
{
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

/* R10, R11 for the misses of one row; returns how many they are. Nothing is ever reserved here: only substitutes are admitted in the
 * background. */
static uint32_t fetch_all(struct event *ev, const uint16_t *pick, uint64_t missed)
{
	void (*insert)(void *, uint32_t, bool) = ev->evict->insert;
	struct pool *pool = ev->pool;
	uint32_t n_missed = 0;

	for (; missed; missed &= missed - 1, n_missed++) {
		uint32_t e = pick[__builtin_ctzll(missed)];

		if (pool->n_resident < pool->n_slot)
			pool->n_resident++;
		else if (!replace(ev, e))
			continue;
		ev->residency[e] = GM_RESIDENT;
		insert(ev->evict_state, e, false);
	}
	return n_missed;
}

/* Scope layer, every miss fetched, at most GM_MAX_PICK experts a row: nothing to decide, and nobody to tell. */
static void run_fetches(struct event *ev, uint64_t first_token, const struct gm_rows *rows, uint64_t *work)
{
	struct gm_requests requests = {.n = ev->top_k, .next_use = rows->next_use ? ev->s->next_use : NULL};
	void (*access)(void *, const struct gm_requests *) = ev->evict->access;
	uint32_t top_k = ev->top_k, all_ready = top_k * (top_k + 1); /* work[top_k][0] */
	gm_find_misses *find_misses;
	uint64_t fetches = 0;

	ev->pick_stride = rows->n_ranked;
	find_misses = gm_event_miss_finder(ev);
	requests.expert = rows->ranked;
	for (uint32_t i = 0; i < rows->n; i++, requests.expert += rows->n_ranked) {
		uint64_t missed = find_misses(ev->residency, requests.expert, top_k);
		uint32_t n_missed = 0;

		ev->token = requests.token = first_token + (rows->token ? rows->token[i] : i);
		for (uint32_t r = 0; rows->next_use && r < top_k; r++)
			gm_event_note_next_use(ev, r, (size_t)i * top_k + r);
		access(ev->evict_state, &requests);
		if (missed) {
			gm_event_next_stamp(ev);
			ev->pick = requests.expert;
			ev->pinned = ev->spares;
			n_missed = fetch_all(ev, requests.expert, missed);
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

/* --- any other run --- */

/* row: room for the rows of one event */
static int run_any(struct event *ev, uint64_t first_token, const struct gm_rows *rows, struct gm_rows *row, uint64_t *work,
		   struct gm_error *err)
{
	*row = *rows;
	row->n = 1;
	row->token = NULL;
	ev->rows = row;
	for (uint32_t i = 0; i < rows->n; i++) {
		ev->token = first_token + (rows->token ? rows->token[i] : i);
		ev->first_row = i;
		ev->pick = row->ranked;
		ev->pick_stride = row->n_ranked;
		ev->gate = row->gate;
		GM_TRY(gm_event_one(ev, err));
		if (work)
			work[(size_t)ev->n_ready * (ev->top_k + 1) + ev->log.n_work]++;
		row->ranked += row->n_ranked;
		if (row->gate)
			row->gate += ev->top_k;
		if (row->logit)
			row->logit += row->n_ranked;
		if (row->next_use)
			row->next_use += ev->top_k;
	}
	return GM_OK;
}

int gm_event_run(struct gm_core *core, uint32_t layer, uint64_t first_token, const struct gm_rows *rows,
		 struct gm_counters *counters, uint64_t *work, struct gm_error *err)
{
	const struct gm_core_config *config = core->config;
	bool plain =
		!core->arrivals->begin && !core->arrivals->end && !config->reroute.ops && config->scope == GM_SCOPE_LAYER;
	struct gm_counters unwanted;
	struct gm_rows row;
	struct event ev;

	if (config->top_k > core->scratch->max_pick)
		GM_TRY(gm_scratch_grow(core->scratch, 1, err));
	gm_event_set_up(&ev, core, layer);
	ev.rows = rows;
	ev.counters = counters ? counters : memset(&unwanted, 0, sizeof(unwanted));
	ev.shared = true;
	if (plain && gm_core_all_resident(config)) {
		run_all_resident(&ev, rows);
		if (work)
			work[(size_t)config->top_k * (config->top_k + 1)] += rows->n;
	} else if (plain && (config->miss.ops->info.flags & GM_ONLY_FETCHES) && config->top_k <= GM_MAX_PICK) {
		run_fetches(&ev, first_token, rows, work);
	} else {
		return run_any(&ev, first_token, rows, &row, work, err);
	}
	return GM_OK;
}
