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

/* R7 for one row whose misses are all fetched: which picks they are. Every pick is pinned: those that are not resident are no candidates
 * until they are fetched, and then they are pinned. */
static uint32_t find_misses(struct event *ev, const uint16_t *pick)
{
	const uint8_t *residency = ev->residency;
	uint8_t *pin = ev->pin, stamp = ev->candidates.stamp;
	uint32_t *missed = ev->s->missed, top_k = ev->top_k, n_missed = 0;

	for (uint32_t r = 0; r < top_k; r++) {
		uint32_t e = pick[r];

		pin[e] = stamp;
		missed[n_missed] = e;
		n_missed += residency[e] < GM_RESIDENT;
	}
	return n_missed;
}

/* R10, R11 for the misses of one row. Nothing is ever reserved here: only substitutes are admitted in the background. */
static void fetch_all(struct event *ev, uint32_t n_missed)
{
	const struct gm_evict_ops *ops = ev->evict;
	const uint32_t *missed = ev->s->missed;
	uint8_t *residency = ev->residency;
	struct pool *pool = ev->pool;
	void *state = ev->evict_state;

	for (uint32_t i = 0; i < n_missed; i++) {
		uint32_t e = missed[i];

		if (pool->n_resident >= pool->n_slot) {
			uint32_t victim = ops->victim(state, &ev->candidates, e);

			if (victim == GM_NO_ITEM || victim == e) {
				ev->counters->bypasses++;
				continue;
			}
			residency[victim] = GM_ABSENT;
			pool->n_resident--;
			ops->forget(state, victim);
			ev->counters->evictions++;
		}
		residency[e] = GM_RESIDENT;
		pool->n_resident++;
		ops->insert(state, e, false);
	}
}

/* Scope layer, every miss fetched: nothing to decide, and nobody to tell. */
static void run_fetches(struct event *ev, uint64_t first_token, const struct gm_rows *rows, uint64_t *work)
{
	struct gm_requests requests = {.n = ev->top_k, .next_use = rows->next_use ? ev->s->next_use : NULL};
	void (*access)(void *, const struct gm_requests *) = ev->evict->access;
	uint64_t fetches = 0;

	for (uint32_t i = 0; i < rows->n; i++) {
		const uint16_t *pick = rows->ranked + (size_t)i * rows->n_ranked;
		uint32_t n_missed;

		ev->token = first_token + (rows->token ? rows->token[i] : i);
		gm_event_next_stamp(ev);
		n_missed = find_misses(ev, pick);
		for (uint32_t r = 0; rows->next_use && r < ev->top_k; r++)
			gm_event_note_next_use(ev, r, (size_t)i * ev->top_k + r);
		requests.expert = pick;
		requests.token = ev->token;
		access(ev->evict_state, &requests);
		if (n_missed)
			fetch_all(ev, n_missed);
		fetches += n_missed;
		if (work)
			work[(size_t)(ev->top_k - n_missed) * (ev->top_k + 1) + n_missed]++;
	}
	ev->counters->rows += rows->n;
	ev->counters->accesses += (uint64_t)rows->n * ev->top_k;
	ev->counters->hits += (uint64_t)rows->n * ev->top_k - fetches;
	ev->counters->fetches += fetches;
	ev->counters->link_bytes += fetches * ev->expert_bytes;
}

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
			work[(size_t)ev->n_ready * (ev->top_k + 1) + ev->n_work]++;
		row->ranked += row->n_ranked;
		row->gate = row->gate ? row->gate + ev->top_k : NULL;
		row->logit = row->logit ? row->logit + row->n_ranked : NULL;
		row->next_use = row->next_use ? row->next_use + ev->top_k : NULL;
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
	} else if (plain && (config->miss.ops->info.flags & GM_ONLY_FETCHES)) {
		run_fetches(&ev, first_token, rows, work);
	} else {
		return run_any(&ev, first_token, rows, &row, work, err);
	}
	return GM_OK;
}
