#include "sim/sweep.h"

#include "base/arena.h"
#include "base/progress.h"
#include "sim/ahead.h"
#include "sim/share.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum gm_prefill prefills[] = {GM_PREFILL_TOKEN, GM_PREFILL_BATCH};
#define N_PREFILL (sizeof(prefills) / sizeof(*prefills))

/* A point's own failure, which leaves the others alone. */
static bool is_impossible(int status)
{
	return status == GM_ERR_USAGE || status == GM_ERR_UNSUPPORTED;
}

/* Sorts a failure to read the trace: running out of memory ends everything, damage is kept as what all points have. */
static int reading_failed(struct gm_sweep *sweep, const struct gm_error *why, struct gm_error *err)
{
	if (why->code == GM_ERR_MEMORY)
		return gm_fail(err, why->code, "%s", why->text);
	return gm_fail(&sweep->damage, why->code, "%s", why->text);
}

/* --- planning --- */

static int plan_points(struct gm_sweep *sweep, const struct gm_settings *settings, struct gm_preloads *preloads,
		       struct gm_error *err)
{
	for (size_t i = 0; i < sweep->n_point; i++) {
		struct gm_point *point = &sweep->point[i];

		point->settings = &settings[i];
		point->twin = point->leader = i;
		point->sweep = sweep;
		int status = gm_plan_make(&point->plan, point->settings, sweep->trace, preloads, &point->error);

		if (status == GM_OK && sweep->options->landings)
			status = gm_plan_land(&point->plan, point->settings, sweep->trace, sweep->options->landings,
					      &point->error);
		if (gm_share_is_off(sweep->options))
			point->plan.config.ahead = false;
		if (status == GM_ERR_MEMORY) /* another is the point's, such as a damaged preload trace */
			return gm_fail(err, status, "%s", point->error.text);
	}
	return GM_OK;
}

static bool has_work(const struct gm_sweep *sweep, size_t i, enum gm_prefill prefill)
{
	return !sweep->point[i].error.code && gm_share_leads(sweep, i, prefill);
}

/* The points that one reading of the trace serves. */
struct batch {
	enum gm_prefill prefill;
	unsigned flags;    /* of the windows: what any point of this prefill needs, so that all get one decoding */
	size_t begin, end; /* the points among [begin, end) that have work */
	size_t n;          /* how many */
};

/* What windows hold that are decoded at a time, roughly, and the work space of replays. */
static size_t window_bytes(const struct gm_trace *trace, unsigned flags)
{
	const struct gm_model *model = gm_trace_model(trace);
	size_t row = 64 + gm_trace_n_head(trace) * 8 + model->top_k * 16;

	if (flags & GM_WINDOWS_TAIL)
		row += (model->n_expert - gm_trace_n_head(trace)) * (sizeof(float) + sizeof(uint16_t));
	return (size_t)model->n_layer * GM_WINDOWS_TOKENS * row + gm_ahead_event_bytes(model->n_layer, GM_WINDOWS_TOKENS);
}

/* What the points hold while they do not run: plan and times by layer. */
static size_t idle_bytes(const struct gm_sweep *sweep)
{
	const size_t per_layer =
		6 * sizeof(double) + sizeof(uint32_t) + sweep->options->per_layer * sizeof(struct gm_tally);

	return sweep->n_point * (sizeof(struct gm_point) + gm_trace_model(sweep->trace)->n_layer * per_layer);
}

/* What a running point holds besides. */
static size_t point_bytes(const struct gm_sweep *sweep, size_t leader)
{
	const struct gm_point *point = &sweep->point[leader];
	size_t bytes = gm_replay_bytes(&point->plan.config);

	if (gm_lru_serves(&point->plan.config))
		return gm_lru_bytes(&point->plan.config, (uint32_t)sweep->n_point);
	if (sweep->options->per_sequence)
		bytes += gm_trace_n_sequence(sweep->trace) * sizeof(struct gm_tally);
	if (sweep->options->per_token)
		bytes += 64 * sizeof(struct gm_token_record);
	for (size_t i = leader + 1; gm_replay_goes_ahead(&point->plan.config) && i < sweep->n_point; i++)
		if (gm_share_is_led_by(sweep, i, leader))
			bytes += gm_replay_hw_bytes(&point->plan.config);
	return bytes;
}

/* The next batch of points without results from point `begin` on: as many as fit. n is 0 where nothing is left. */
static struct batch next_batch(const struct gm_sweep *sweep, enum gm_prefill prefill, size_t begin)
{
	struct batch batch = {.prefill = prefill, .begin = begin, .end = begin};
	size_t room = sweep->options->memory_bytes, used;

	for (size_t i = 0; i < sweep->n_point; i++)
		if (has_work(sweep, i, prefill))
			batch.flags |= sweep->point[i].plan.window_flags;
	used = window_bytes(sweep->trace, batch.flags) + idle_bytes(sweep);
	for (; batch.end < sweep->n_point; batch.end++) {
		if (!has_work(sweep, batch.end, prefill))
			continue;
		size_t bytes = point_bytes(sweep, batch.end);
		if (batch.n > 0 && (used > room || bytes > room - used))
			break;
		used += bytes;
		batch.n++;
	}
	return batch;
}

/* A trace on a pipe can be read once. */
static int check_passes(const struct gm_sweep *sweep, struct gm_error *err)
{
	size_t n = 0;

	if (gm_trace_seekable(sweep->trace))
		return GM_OK;
	for (size_t p = 0; p < N_PREFILL; p++) {
		struct batch batch = next_batch(sweep, prefills[p], 0);
		for (; batch.n > 0; batch = next_batch(sweep, prefills[p], batch.end))
			n++;
	}
	if (n <= 1)
		return GM_OK;
	return gm_fail(
		err, GM_ERR_USAGE,
		"trace on a pipe, needed %zu times: %.60s: give a file, one --prefill, fewer points or more --memory", n,
		gm_trace_path(sweep->trace));
}

/* --- running --- */

static void keep_token(void *user, uint64_t token, uint32_t sequence, const struct gm_tally *tally)
{
	const struct gm_point *point = user;
	const struct gm_counters *c = &tally->count;
	/* Copied whole into a file: no byte of it may be left unset. */
	struct gm_token_record record;

	memset(&record, 0, sizeof(record));
	record.token = token;
	record.sequence = sequence;
	record.rows = (uint32_t)c->rows;
	record.accesses = (uint32_t)c->accesses;
	record.hits = (uint32_t)c->hits;
	record.late_hits = (uint32_t)c->late_hits;
	record.fetches = (uint32_t)c->fetches;
	record.substitutions = (uint32_t)c->substitutions;
	record.drops = (uint32_t)c->drops;
	record.cpu_picks = (uint32_t)c->cpu_picks;
	record.substituted_mass = c->substituted_mass;
	record.dropped_mass = c->dropped_mass;
	record.time_us = gm_time_total(&tally->time_us);
	gm_spool_put(point->sweep->tokens, (uint32_t)(point - point->sweep->point), &record);
}

static void stop_point(struct gm_point *point)
{
	gm_replay_free(point->replay);
	gm_lru_free(point->lru);
	point->replay = NULL;
	point->lru = NULL;
}

/* What the replays of a batch share while it runs. */
struct shared {
	struct gm_windows *windows;
	struct gm_scratch *scratch;
	struct gm_arena *arena; /* the state of all of them */
};

static int start_point(struct gm_sweep *sweep, size_t leader, const struct shared *shared, struct gm_error *err)
{
	const struct gm_sweep_options *options = sweep->options;
	struct gm_point *point = &sweep->point[leader];

	point->sink = (struct gm_replay_sink){
		.token = options->per_token ? keep_token : NULL,
		.user = point,
		.span = options->span,
		.span_from = options->span_from,
		.span_to = options->span_to,
		.per_sequence = options->per_sequence,
	};
	point->plan.config.core.first_use = gm_windows_first_use(shared->windows);
	point->plan.config.memory = gm_arena_take(shared->arena, gm_core_bytes(&point->plan.config.core));
	point->replay = gm_replay_new(&point->plan.config, &point->sink, shared->scratch, &point->error);
	if (!point->replay && !is_impossible(point->error.code))
		return gm_fail(err, point->error.code, "%s", point->error.text);
	for (size_t i = leader + 1; point->replay && i < sweep->n_point; i++)
		if (gm_share_is_led_by(sweep, i, leader))
			GM_TRY(gm_replay_add_hw(point->replay, &sweep->point[i].plan.hw, err));
	return GM_OK;
}

/* A point that leads others of other sizes: all of them in one replay. The rest: each its own. */
static int start_leader(struct gm_sweep *sweep, size_t leader, const struct shared *shared, struct gm_error *err)
{
	struct gm_point *point = &sweep->point[leader];
	uint32_t *n_slot, n;

	if (!gm_lru_serves(&point->plan.config) || gm_share_is_off(sweep->options))
		return start_point(sweep, leader, shared, err);
	if (!(n_slot = gm_alloc(sweep->n_point, sizeof(*n_slot), err)))
		return GM_ERR_MEMORY;
	n = gm_share_sizes(sweep, leader, n_slot);
	if (n > 1)
		point->lru = gm_lru_new(&point->plan.config, n_slot, n, err);
	free(n_slot);
	if (n > 1)
		return point->lru ? GM_OK : GM_ERR_MEMORY;
	return start_point(sweep, leader, shared, err);
}

static int copy_tallies(struct gm_tally **to, const struct gm_tally *from, uint32_t n, struct gm_error *err)
{
	if (!(*to = gm_alloc(n, sizeof(**to), err)))
		return GM_ERR_MEMORY;
	if (n)
		memcpy(*to, from, n * sizeof(**to));
	return GM_OK;
}

/* A point's results from a pass over all sizes. */
static int take_lru_results(struct gm_sweep *sweep, struct gm_point *point, const struct gm_lru *lru, struct gm_error *err)
{
	const struct gm_replay_config *config = &point->plan.config;

	if (!(point->layer = gm_alloc(config->core.n_layer, sizeof(*point->layer), err)))
		return GM_ERR_MEMORY;
	gm_lru_total(lru, gm_share_slots(point), config->timed ? &point->plan.hw : NULL, &point->total, point->layer);
	if (!sweep->options->per_layer) {
		free(point->layer);
		point->layer = NULL;
	}
	return GM_OK;
}

/* A point's results from a replay, its own or its leader's. If there are none, since a copy came late, it is to be replayed once more. */
static int take_results(struct gm_sweep *sweep, struct gm_point *point, struct gm_replay *replay, struct gm_error *err)
{
	if (gm_replay_is_late(replay, &point->plan.hw)) {
		point->plan.config.ahead = false;
		point->leader = (size_t)(point - sweep->point);
		point->done = false;
		return GM_OK;
	}
	gm_replay_total(replay, &point->plan.hw, &point->total);
	if (sweep->options->per_layer)
		GM_TRY(copy_tallies(&point->layer, gm_replay_layers(replay), gm_trace_model(sweep->trace)->n_layer, err));
	if (sweep->options->per_sequence) {
		const struct gm_tally *sequences = gm_replay_sequences(replay, &point->n_sequence);
		GM_TRY(copy_tallies(&point->sequence, sequences, point->n_sequence, err));
	}
	return GM_OK;
}

/* Not one that was led in this batch and is to be replayed once more. */
static bool has_run(const struct gm_point *point)
{
	return point->replay || point->lru || point->error.code;
}

/* Takes the results of a replay over, for all points that it serves, and frees it. */
static int finish_leader(struct gm_sweep *sweep, size_t leader, struct gm_error *err)
{
	struct gm_point *point = &sweep->point[leader];
	int status = GM_OK;

	if (point->replay)
		GM_TRY_OUT(gm_replay_end(point->replay, err));
	for (size_t i = leader; i < sweep->n_point; i++) {
		struct gm_point *led = &sweep->point[i];

		if (!gm_share_is_led_by(sweep, i, leader))
			continue;
		led->done = true;
		if (point->lru)
			GM_TRY_OUT(take_lru_results(sweep, led, point->lru, err));
		else if (point->replay)
			GM_TRY_OUT(take_results(sweep, led, point->replay, err));
		else
			led->error = point->error;
	}
	if (sweep->tokens && point->replay)
		status = gm_spool_end(sweep->tokens, (uint32_t)leader, err);
out:
	stop_point(point);
	return status;
}

/* Decoded windows through every replay of the batch. */
static int replay_windows(struct gm_sweep *sweep, const struct batch *batch, struct gm_windows *windows,
			  const struct gm_window *window, uint32_t n, struct gm_progress *progress, uint64_t *done,
			  struct gm_error *err)
{
	uint64_t n_token = window[n - 1].first_token + window[n - 1].n_token - window[0].first_token;

	for (size_t i = batch->begin; i < batch->end; i++) {
		struct gm_point *point = &sweep->point[i];
		int status = GM_OK;

		for (uint32_t j = 0; point->lru && j < n; j++)
			gm_lru_window(point->lru, &window[j]);
		if (point->replay)
			status = gm_replay_windows(point->replay, windows, window, n, &point->error);
		else if (!point->lru)
			continue;
		if (status < 0) {
			stop_point(point);
			if (!is_impossible(status))
				return reading_failed(sweep, &point->error, err);
		}
		*done += n_token;
		gm_progress_update(progress, *done);
	}
	return GM_OK;
}

static int start_batch(struct gm_sweep *sweep, const struct batch *batch, struct shared *shared, struct gm_error *err)
{
	size_t bytes = 0;

	for (size_t i = batch->begin; i < batch->end; i++)
		if (has_work(sweep, i, batch->prefill))
			bytes += gm_arena_bytes(gm_core_bytes(&sweep->point[i].plan.config.core));
	if (!(shared->arena = gm_arena_new(bytes, err)))
		return GM_ERR_MEMORY;
	for (size_t i = batch->begin; i < batch->end; i++)
		if (has_work(sweep, i, batch->prefill))
			GM_TRY(start_leader(sweep, i, shared, err));
	return GM_OK;
}

static int run_batch(struct gm_sweep *sweep, const struct batch *batch, struct gm_scratch *scratch,
		     struct gm_progress *progress, uint64_t *done, struct gm_error *err)
{
	struct gm_error why = {0};
	struct shared shared = {.windows = gm_windows_new(sweep->trace, batch->prefill, batch->flags, &why),
				.scratch = scratch};
	const struct gm_window *window;
	int status = GM_OK;

	if (!shared.windows)
		return reading_failed(sweep, &why, err);
	GM_TRY_OUT(start_batch(sweep, batch, &shared, err));
	while ((status = gm_windows_next(shared.windows, &window, &why)) > 0)
		GM_TRY_OUT(replay_windows(sweep, batch, shared.windows, window, (uint32_t)status, progress, done, err));
	if (status < 0)
		status = reading_failed(sweep, &why, err);
	for (size_t i = batch->begin; status == GM_OK && i < batch->end; i++)
		if (gm_share_leads(sweep, i, batch->prefill) && has_run(&sweep->point[i]))
			status = finish_leader(sweep, i, err);
out:
	for (size_t i = batch->begin; i < batch->end; i++)
		stop_point(&sweep->point[i]);
	gm_arena_free(shared.arena);
	gm_windows_free(shared.windows);
	return status;
}

static uint64_t tokens_left(const struct gm_sweep *sweep)
{
	uint64_t n = 0;

	for (size_t i = 0; i < sweep->n_point; i++)
		n += has_work(sweep, i, sweep->point[i].settings->prefill);
	return gm_trace_n_token(sweep->trace) * n;
}

static int run_points(struct gm_sweep *sweep, struct gm_error *err)
{
	const struct gm_model *model = gm_trace_model(sweep->trace);
	struct gm_scratch *scratch = gm_scratch_new(model->n_expert, model->top_k, err);
	struct gm_progress progress;
	uint64_t done = 0;
	int status = scratch ? GM_OK : GM_ERR_MEMORY;

	gm_progress_start(&progress, "replay", "tokens", tokens_left(sweep), sweep->options->quiet);
	for (size_t p = 0; p < N_PREFILL; p++) {
		for (struct batch batch; status == GM_OK && (batch = next_batch(sweep, prefills[p], 0)).n > 0;) {
			status = run_batch(sweep, &batch, scratch, &progress, &done, err);
			progress.total = done + tokens_left(sweep);
		}
	}
	gm_progress_end(&progress);
	gm_scratch_free(scratch);
	return status;
}

/* A damaged trace gives no results, not even those of points that were done before the damage was met. */
static void spread_damage(struct gm_sweep *sweep)
{
	for (size_t i = 0; i < sweep->n_point; i++) {
		struct gm_point *point = &sweep->point[i];

		stop_point(point);
		gm_fail(&point->error, sweep->damage.code, "%s", sweep->damage.text);
	}
}

int gm_sweep_run(struct gm_sweep *sweep, struct gm_trace *trace, const struct gm_settings *settings, size_t n_point,
		 struct gm_preloads *preloads, const struct gm_sweep_options *options, struct gm_error *err)
{
	*sweep = (struct gm_sweep){
		.trace = trace, .path = gm_trace_path(trace), .model = gm_trace_model(trace), .options = options};
	if (!(sweep->point = gm_alloc(n_point, sizeof(*sweep->point), err)))
		return GM_ERR_MEMORY;
	sweep->n_point = n_point;
	GM_TRY(plan_points(sweep, settings, preloads, err));
	GM_TRY(gm_share_find(sweep, err));
	GM_TRY(check_passes(sweep, err));
	if (options->per_token && !(sweep->tokens = gm_spool_new((uint32_t)n_point, sizeof(struct gm_token_record), err)))
		return err->code;
	int status = run_points(sweep, err);
	if (sweep->damage.code)
		spread_damage(sweep);
	else if (status < 0)
		return status;
	for (size_t i = 0; i < n_point; i++)
		sweep->n_failed += gm_sweep_point(sweep, i)->error.code != 0;
	return GM_OK;
}

int gm_sweep_lost(struct gm_sweep *sweep, const char *path, const struct gm_model *model,
		  const struct gm_settings *settings, size_t n_point, const struct gm_error *why, struct gm_error *err)
{
	*sweep = (struct gm_sweep){.path = path, .model = model, .damage = *why};
	if (!(sweep->point = gm_alloc(n_point, sizeof(*sweep->point), err)))
		return GM_ERR_MEMORY;
	sweep->n_point = sweep->n_failed = n_point;
	for (size_t i = 0; i < n_point; i++) {
		sweep->point[i].settings = &settings[i];
		sweep->point[i].twin = i;
	}
	spread_damage(sweep);
	return GM_OK;
}

void gm_sweep_free(struct gm_sweep *sweep)
{
	for (size_t i = 0; sweep->point && i < sweep->n_point; i++) {
		struct gm_point *point = &sweep->point[i];

		stop_point(point);
		gm_plan_free(&point->plan);
		free(point->layer);
		free(point->sequence);
	}
	free(sweep->point);
	gm_spool_free(sweep->tokens);
	*sweep = (struct gm_sweep){0};
}

void gm_sweep_result(const struct gm_sweep *sweep, size_t i, struct gm_result *result)
{
	const struct gm_point *point = &sweep->point[i], *twin = gm_sweep_point(sweep, i);
	const char *hash = sweep->trace ? gm_trace_hash(sweep->trace) : NULL;

	gm_result_begin(result, sweep->path, sweep->model, point->settings);
	snprintf(result->trace_hash, sizeof(result->trace_hash), "%s", hash ? hash : "");
	if (point->plan.hash[0])
		gm_result_plan(result, &point->plan);
	if (twin->error.code)
		snprintf(result->error, sizeof(result->error), "%s", twin->error.text);
	else
		gm_result_count(result, &twin->plan, &twin->total);
}
