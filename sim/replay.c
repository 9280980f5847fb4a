#include "sim/replay.h"

#include "sim/ahead.h"
#include "sim/player.h"
#include "traces/select.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct gm_replay {
	const struct gm_replay_config *config;
	const struct gm_replay_sink *sink;
	struct gm_core_config core_config; /* the core's own copy: next uses may be added to it */
	void *own_memory;                  /* the core's, unless the configuration has it */
	struct gm_core *core;
	struct gm_scratch *scratch;
	struct gm_clock *clock;   /* NULL: counts only, or timed by_layer */
	struct gm_ahead *ahead;   /* times where copies beside the work are replayed by_layer; else NULL */
	struct gm_player *player; /* NULL: copies land by the clock, or instantly */
	struct gm_arrivals instant;
	struct gm_tally *layer; /* [n_layer] */
	uint64_t tokens, timed_tokens;
	/* [n_layer][top_k + 1][top_k + 1] events by what was ready and what was not, where nothing else decides times */
	uint64_t *work;
	double token_us;           /* R17 of counted passes */
	struct gm_tally *sequence; /* [n_sequence] where asked for */
	uint32_t n_sequence;
	uint32_t last_sequence; /* UINT32_MAX: none yet */
	bool by_token;          /* rows are tallied one by one first: some output or a warm-up inside a pass needs it */
	bool by_layer;          /* layers do not meet each other but in sums: a window is replayed layer by layer */
	struct gm_tally *row;   /* [max_row] tallies of the tokens of one pass */
	uint32_t max_row;
	/* one event's rows, packed where some are absent */
	uint32_t *offset;
	uint16_t *ranked;
	double *gate;
	uint32_t *next_use;
	size_t max_packed;         /* rows */
	struct gm_counters *count; /* [max_count] */
	uint32_t max_count;
	/* for gm_windows_beyond */
	struct gm_windows *windows;
	const struct gm_window *event_window;
	uint32_t event_layer, event_first;
	const uint32_t *event_offset;
};

void gm_tally_add(struct gm_tally *to, const struct gm_tally *from)
{
	to->tokens += from->tokens;
	to->timed_tokens += from->timed_tokens;
	gm_counters_add(&to->count, &from->count);
	to->time_us.dense += from->time_us.dense;
	to->time_us.gpu += from->time_us.gpu;
	to->time_us.link_wait += from->time_us.link_wait;
	to->time_us.disk_wait += from->time_us.disk_wait;
	to->time_us.cpu_wait += from->time_us.cpu_wait;
	to->time_us.token += from->time_us.token;
}

static bool is_timed(const struct gm_replay_config *config)
{
	return config->timed && config->hw && !config->hw->instant;
}

size_t gm_replay_bytes(const struct gm_replay_config *config)
{
	const struct gm_core_config *core = &config->core;
	size_t bytes = sizeof(struct gm_replay) + gm_core_bytes(core) + core->n_layer * sizeof(struct gm_tally);

	bytes += (size_t)core->n_layer * (core->top_k + 1) * (core->top_k + 1) * sizeof(uint64_t);
	if (gm_replay_goes_ahead(config))
		bytes += gm_ahead_bytes(core->n_layer, core->top_k, 1);
	else if (is_timed(config))
		bytes += gm_clock_bytes(core->n_layer, core->n_expert, config->hw->disk);
	return bytes;
}

size_t gm_replay_hw_bytes(const struct gm_replay_config *config)
{
	return gm_ahead_bytes(config->core.n_layer, config->core.top_k, 1);
}

/* Cold, or preloaded (R5); clocks and copies start anew. */
static void start(struct gm_replay *r, bool again)
{
	const struct gm_hw *hw = r->config->hw;

	if (r->clock)
		gm_clock_init(r->clock, hw, r->config->core.n_expert);
	if (again)
		gm_core_reset(r->core);
	if (r->config->preload)
		gm_core_preload(r->core, r->config->preload, r->config->n_preload);
}

/* Whether events of one layer can run ahead of the other layers' without changing any result, but for copies beside the work. The disk tier and
 * one pool for all layers tie layers together; a fetch does not: it has arrived before its layer ends. */
static bool only_copies_tie_layers(const struct gm_replay_config *config)
{
	const struct gm_core_config *core = &config->core;

	if (config->prefill == GM_PREFILL_BATCH || config->reset_per_sequence || core->scope == GM_SCOPE_GLOBAL ||
	    config->landings)
		return false;
	if ((core->evict.ops->info.flags | core->miss.ops->info.flags | core->admit.ops->info.flags) & GM_NEEDS_TOKEN_ORDER)
		return false;
	return !is_timed(config) || !config->hw->disk;
}

static bool times_copies(const struct gm_replay_config *config)
{
	return is_timed(config) && config->core.admit.ops->substituted;
}

bool gm_replay_counts_work(const struct gm_replay_config *config)
{
	return only_copies_tie_layers(config) && !times_copies(config);
}

bool gm_replay_goes_ahead(const struct gm_replay_config *config)
{
	return config->ahead && only_copies_tie_layers(config) && times_copies(config);
}

static int prepare_ahead(struct gm_replay *r, struct gm_error *err)
{
	if (!(r->ahead = gm_ahead_new(r->config->core.n_layer, r->config->core.top_k, r->scratch, err)))
		return GM_ERR_MEMORY;
	return gm_ahead_add(r->ahead, r->config->hw, err);
}

static int prepare(struct gm_replay *r, struct gm_error *err)
{
	const struct gm_core_config *core = &r->core_config;
	struct gm_arrivals *arrivals = &r->instant;

	r->instant = gm_arrivals_instant;
	r->by_layer =
		(gm_replay_counts_work(r->config) || gm_replay_goes_ahead(r->config)) && !r->by_token && !r->sink->span;
	GM_TRY(gm_core_check(core, err));
	r->layer = gm_alloc(core->n_layer, sizeof(*r->layer), err);
	if (!r->config->memory)
		r->own_memory = gm_alloc(1, gm_core_bytes(core), err);
	if (!r->layer || !(r->config->memory || r->own_memory))
		return GM_ERR_MEMORY;
	if (is_timed(r->config) && gm_replay_counts_work(r->config)) {
		r->work = gm_alloc((size_t)core->n_layer * (core->top_k + 1), (core->top_k + 1) * sizeof(*r->work), err);
		if (!r->work)
			return GM_ERR_MEMORY;
	}
	if (is_timed(r->config) && !r->by_layer) {
		r->clock = gm_alloc(1, gm_clock_bytes(core->n_layer, core->n_expert, r->config->hw->disk), err);
		if (!r->clock)
			return GM_ERR_MEMORY;
		arrivals = gm_clock_arrivals(r->clock);
	}
	if (r->by_layer && gm_replay_goes_ahead(r->config)) {
		GM_TRY(prepare_ahead(r, err));
		arrivals = gm_ahead_arrivals(r->ahead);
	}
	if (r->config->landings) {
		if (!(r->player = gm_player_new(r->config->landings, core, err)))
			return GM_ERR_MEMORY;
		arrivals = gm_player_arrivals(r->player);
	}
	r->core = gm_core_init(r->own_memory ? r->own_memory : r->config->memory, core, arrivals, r->scratch);
	start(r, false);
	return GM_OK;
}

struct gm_replay *gm_replay_new(const struct gm_replay_config *config, const struct gm_replay_sink *sink,
				struct gm_scratch *scratch, struct gm_error *err)
{
	static const struct gm_replay_sink nothing;
	struct gm_replay *r = gm_alloc(1, sizeof(*r), err);

	if (!r)
		return NULL;
	r->config = config;
	r->core_config = config->core;
	r->sink = sink ? sink : &nothing;
	r->last_sequence = UINT32_MAX;
	r->by_token = r->sink->token || r->sink->per_sequence || config->prefill == GM_PREFILL_BATCH;
	r->scratch = scratch;
	if (prepare(r, err) < 0) {
		gm_replay_free(r);
		return NULL;
	}
	return r;
}

void gm_replay_free(struct gm_replay *r)
{
	if (!r)
		return;
	free(r->own_memory);
	free(r->work);
	free(r->clock);
	gm_ahead_free(r->ahead);
	gm_player_free(r->player);
	free(r->layer);
	free(r->sequence);
	free(r->row);
	free(r->offset);
	free(r->ranked);
	free(r->gate);
	free(r->next_use);
	free(r->count);
	free(r);
}

/* --- one event --- */

static int beyond(void *user, uint32_t row, uint32_t from, const uint16_t **expert, uint32_t *n, struct gm_error *err)
{
	struct gm_replay *r = user;
	uint32_t offset = r->event_offset ? r->event_offset[row] : row;

	*n = 0;
	if (r->config->head_only)
		return GM_OK;
	return gm_windows_beyond(r->windows, r->event_window, r->event_layer, r->event_first + offset, from, expert, n,
				 err);
}

static int reserve_packed(struct gm_replay *r, const struct gm_window *w, uint32_t n, struct gm_error *err)
{
	size_t k = r->config->core.top_k;

	if (n <= r->max_packed)
		return GM_OK;
	GM_GROW(r->offset, n, err);
	GM_GROW(r->ranked, (size_t)n * w->n_ranked, err);
	GM_GROW(r->gate, n * k, err);
	GM_GROW(r->next_use, n * k, err);
	r->max_packed = n;
	return GM_OK;
}

/* The rows of tokens i ... end - 1 in a layer: as they lie in the window, or packed where some are absent. */
static int gather(struct gm_replay *r, const struct gm_window *w, uint32_t layer, uint32_t i, uint32_t end,
		  struct gm_rows *rows, struct gm_error *err)
{
	size_t first = (size_t)layer * w->stride + i, k = r->config->core.top_k;
	uint32_t n = 0;

	*rows = (struct gm_rows){
		.n = end - i,
		.ranked = w->ranked + first * w->n_ranked,
		.n_ranked = w->n_ranked,
		.gate = w->gate ? w->gate + first * k : NULL,
		.next_use = w->next_use ? w->next_use + first * k : NULL,
		.beyond = beyond,
		.user = r,
	};
	if (w->all_present || !memchr(w->present + first, 0, end - i))
		return GM_OK;
	GM_TRY(reserve_packed(r, w, end - i, err));
	for (uint32_t j = 0; j < end - i; j++) {
		if (!w->present[first + j])
			continue;
		r->offset[n] = j;
		memcpy(r->ranked + (size_t)n * w->n_ranked, w->ranked + (first + j) * w->n_ranked,
		       w->n_ranked * sizeof(uint16_t));
		if (w->gate)
			memcpy(r->gate + n * k, w->gate + (first + j) * k, k * sizeof(double));
		if (w->next_use)
			memcpy(r->next_use + n * k, w->next_use + (first + j) * k, k * sizeof(uint32_t));
		n++;
	}
	rows->n = n;
	rows->token = r->offset;
	rows->ranked = r->ranked;
	rows->gate = w->gate ? r->gate : NULL;
	rows->next_use = w->next_use ? r->next_use : NULL;
	return GM_OK;
}

/* Adds what happened at each row of an event to the tallies of its token and its layer. */
static void tally_rows(struct gm_replay *r, const struct gm_rows *rows, uint32_t layer, uint32_t counted_from)
{
	for (uint32_t j = 0; j < rows->n; j++) {
		uint32_t offset = rows->token ? rows->token[j] : j;

		if (offset < counted_from)
			continue;
		gm_counters_add(&r->layer[layer].count, &r->count[j]);
		gm_counters_add(&r->row[offset].count, &r->count[j]);
	}
}

/* --- one pass --- */

struct pass {
	uint32_t begin, end; /* tokens of the window */
	uint64_t first_token;
	uint32_t counted_from; /* tokens of the pass before this one are warm-up */
	bool timed;            /* the pass counts (R17) */
};

static int reserve_rows(struct gm_replay *r, uint32_t n, struct gm_error *err)
{
	if (n <= r->max_row)
		return GM_OK;
	GM_GROW(r->row, n, err);
	GM_GROW(r->count, n, err);
	r->max_row = n;
	return GM_OK;
}

static void add_time(struct gm_time_split *to, const struct gm_time_split *from)
{
	struct gm_tally a = {.time_us = *to}, b = {.time_us = *from};

	gm_tally_add(&a, &b);
	*to = a.time_us;
}

static uint64_t *layer_work(const struct gm_replay *r, uint32_t layer)
{
	size_t n = r->config->core.top_k + 1;

	return r->work ? r->work + layer * n * n : NULL;
}

static int replay_event(struct gm_replay *r, const struct gm_window *w, const struct pass *pass, uint32_t layer,
			struct gm_error *err)
{
	uint32_t n = pass->end - pass->begin;
	struct gm_time_split split = {0};
	struct gm_rows rows;
	struct gm_counters *counters;

	GM_TRY(gather(r, w, layer, pass->begin, pass->end, &rows, err));
	if (rows.n == 0)
		return GM_OK; /* an event without rows does not exist */
	r->event_window = w;
	r->event_layer = layer;
	r->event_first = pass->begin;
	r->event_offset = rows.token;
	if (r->by_token) {
		memset(r->count, 0, n * sizeof(*r->count));
		counters = r->count;
	} else {
		counters = pass->counted_from == 0 ? &r->layer[layer].count : NULL;
	}
	if (r->clock && r->work)
		gm_clock_set_work(r->clock, pass->timed ? layer_work(r, layer) : NULL, r->config->core.top_k);
	if (r->clock)
		gm_clock_set_split(r->clock, !pass->timed ? NULL : r->by_token ? &split : &r->layer[layer].time_us);
	GM_TRY(gm_event(r->core, layer, pass->first_token, &rows, counters, !r->by_token, NULL, err));
	if (r->by_token) {
		tally_rows(r, &rows, layer, pass->counted_from);
		add_time(&r->layer[layer].time_us, &split);
		add_time(&r->row[0].time_us, &split);
	}
	return GM_OK;
}

static int reserve_sequences(struct gm_replay *r, uint32_t n, struct gm_error *err)
{
	if (n <= r->n_sequence)
		return GM_OK;
	GM_GROW(r->sequence, n, err);
	memset(r->sequence + r->n_sequence, 0, (n - r->n_sequence) * sizeof(*r->sequence));
	r->n_sequence = n;
	return GM_OK;
}

/* Hands the tallies of a pass's tokens on. */
static int tell_tokens(struct gm_replay *r, const struct gm_window *w, const struct pass *pass, struct gm_error *err)
{
	for (uint32_t j = 0; j < pass->end - pass->begin; j++) {
		uint32_t sequence = w->sequence[pass->begin + j];
		struct gm_tally *tally = &r->row[j];

		if (j < pass->counted_from)
			continue;
		tally->tokens = 1;
		if (r->sink->per_sequence) {
			GM_TRY(reserve_sequences(r, sequence + 1, err));
			gm_tally_add(&r->sequence[sequence], tally);
		}
		if (r->sink->token)
			r->sink->token(r->sink->user, pass->first_token + j, sequence, tally);
	}
	return GM_OK;
}

static void set_timeline(struct gm_replay *r, const struct pass *pass)
{
	const struct gm_replay_sink *sink = r->sink;
	bool wanted = sink->span && pass->first_token >= sink->span_from && pass->first_token < sink->span_to;

	if (r->clock)
		gm_clock_set_sink(r->clock, wanted ? sink->span : NULL);
}

static void expect_rows(const struct gm_window *w, uint32_t layer, uint32_t i, uint32_t top_k)
{
	size_t row = (size_t)layer * w->stride + i;

	gm_prefetch(w->ranked + row * w->n_ranked);
	if (w->gate) {
		gm_prefetch(w->gate + row * top_k);
		gm_prefetch(w->gate + row * top_k + top_k - 1);
	}
}

static void expect_event(const struct gm_replay *r, const struct gm_window *w, const struct pass *pass, uint32_t layer)
{
	size_t row = (size_t)layer * w->stride + pass->begin;

	if (w->all_present || w->present[row]) /* what lies in the place of an absent one is no expert */
		gm_core_expect(r->core, layer, w->ranked + row * w->n_ranked, r->config->core.top_k);
}

static int replay_pass(struct gm_replay *r, const struct gm_window *w, const struct pass *pass, struct gm_error *err)
{
	uint32_t n = pass->end - pass->begin, n_layer = r->config->core.n_layer;
	struct gm_time_split end = {0};

	if (r->by_token) {
		GM_TRY(reserve_rows(r, n, err));
		memset(r->row, 0, n * sizeof(*r->row));
	}
	set_timeline(r, pass);
	if (r->player)
		gm_player_set_token(r->player, pass->first_token);
	for (uint32_t layer = 0; layer < n_layer; layer++) {
		/* a layer's rows and state are out of the nearer caches by the time its turn comes again */
		if (layer + 2 < n_layer)
			expect_rows(w, layer + 2, pass->begin, r->config->core.top_k);
		if (layer + 1 < n_layer)
			expect_event(r, w, pass, layer + 1);
		GM_TRY(replay_event(r, w, pass, layer, err));
	}
	if (r->player)
		GM_TRY(gm_player_check(r->player, err));
	if (r->clock) {
		gm_clock_set_split(r->clock, pass->timed ? &end : NULL);
		gm_clock_end_pass(r->clock);
	}
	r->token_us += end.token;
	r->tokens += n - pass->counted_from;
	r->timed_tokens += pass->timed ? n : 0;
	if (r->by_token) {
		r->row[0].time_us.token = end.token;
		r->row[0].timed_tokens = pass->timed ? n : 0;
		GM_TRY(tell_tokens(r, w, pass, err));
	}
	return GM_OK;
}

static struct pass pass_at(const struct gm_replay *r, const struct gm_window *w, uint32_t i)
{
	struct pass pass = {.begin = i, .end = w->pass_end[i], .first_token = w->first_token + i};
	uint64_t warmup = r->config->warmup, n = pass.end - pass.begin;

	pass.timed = pass.first_token >= warmup;
	if (!pass.timed)
		pass.counted_from = (uint32_t)(warmup - pass.first_token < n ? warmup - pass.first_token : n);
	return pass;
}

/* --- a window --- */

static int replay_by_pass(struct gm_replay *r, const struct gm_window *w, struct gm_error *err)
{
	for (uint32_t i = 0; i < w->n_token; i = w->pass_end[i]) {
		struct pass pass = pass_at(r, w, i);

		if (r->config->reset_per_sequence && r->last_sequence != UINT32_MAX && r->last_sequence != w->sequence[i])
			start(r, true);
		r->last_sequence = w->sequence[i];
		GM_TRY(replay_pass(r, w, &pass, err));
	}
	return GM_OK;
}

/* Some tokens of a window. */
struct span {
	const struct gm_window *window;
	uint32_t begin, end;
};

static int replay_span(struct gm_replay *r, const struct span *span, uint32_t layer, uint32_t before, bool counted,
		       struct gm_error *err)
{
	struct gm_rows rows;

	GM_TRY(gather(r, span->window, layer, span->begin, span->end, &rows, err));
	r->event_window = span->window;
	r->event_layer = layer;
	r->event_first = span->begin;
	r->event_offset = rows.token;
	if (r->ahead)
		gm_ahead_set_layer(r->ahead, layer, before, rows.token);
	return gm_event_run(r->core, layer, span->window->first_token + span->begin, &rows,
			    counted ? &r->layer[layer].count : NULL, counted ? layer_work(r, layer) : NULL, err);
}

/* Tokens that follow each other, all of them counted or none, every token its own pass: layer after layer. */
static int replay_by_layer(struct gm_replay *r, const struct span *span, uint32_t n, bool counted, struct gm_error *err)
{
	uint32_t n_layer = r->config->core.n_layer, n_token = 0;

	for (uint32_t i = 0; i < n; i++)
		n_token += span[i].end - span[i].begin;
	if (n_token == 0 || (r->ahead && gm_ahead_all_late(r->ahead)))
		return GM_OK;
	if (r->ahead)
		GM_TRY(gm_ahead_begin(r->ahead, n_token, err));
	for (uint32_t layer = 0; layer < n_layer; layer++) {
		uint32_t before = 0;

		if (layer + 1 < n_layer)
			gm_core_expect_layer(r->core, layer + 1);
		for (uint32_t i = 0; i < n; before += span[i].end - span[i].begin, i++)
			GM_TRY(replay_span(r, &span[i], layer, before, counted, err));
	}
	if (r->ahead)
		gm_ahead_end(r->ahead, counted);
	if (counted) {
		r->tokens += n_token;
		r->timed_tokens += n_token;
	}
	return GM_OK;
}

/* How many tokens of a window are warm-up. */
static uint32_t n_warmup(const struct gm_replay *r, const struct gm_window *w)
{
	uint64_t warmup = r->config->warmup, left = warmup > w->first_token ? warmup - w->first_token : 0;

	return left < w->n_token ? (uint32_t)left : w->n_token;
}

int gm_replay_windows(struct gm_replay *r, struct gm_windows *windows, const struct gm_window *window, uint32_t n,
		      struct gm_error *err)
{
	struct span uncounted[GM_WINDOWS_MOST], counted[GM_WINDOWS_MOST];

	assert(n <= GM_WINDOWS_MOST);
	r->windows = windows;
	for (uint32_t i = 0; i < n && !r->by_layer; i++)
		GM_TRY(replay_by_pass(r, &window[i], err));
	if (!r->by_layer)
		return GM_OK;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t from = n_warmup(r, &window[i]);

		uncounted[i] = (struct span){&window[i], 0, from};
		counted[i] = (struct span){&window[i], from, window[i].n_token};
	}
	GM_TRY(replay_by_layer(r, uncounted, n, false, err));
	return replay_by_layer(r, counted, n, true, err);
}

int gm_replay_add_hw(struct gm_replay *r, const struct gm_hw *hw, struct gm_error *err)
{
	return r->ahead ? gm_ahead_add(r->ahead, hw, err) : GM_OK;
}

bool gm_replay_is_late(const struct gm_replay *r, const struct gm_hw *hw)
{
	return r->ahead && gm_ahead_is_late(r->ahead, hw);
}

int gm_replay_end(const struct gm_replay *r, struct gm_error *err)
{
	return r->player ? gm_player_check_end(r->player, err) : GM_OK;
}

/* --- results --- */

/* Time of a layer whose events were only counted by their work. */
static struct gm_time_split time_of_work(const struct gm_replay *r, const struct gm_hw *hw, uint32_t layer)
{
	const struct gm_core_config *core = &r->config->core;
	uint32_t n = core->top_k + 1;
	bool on_cpu = (core->miss.ops->info.flags & GM_NEEDS_CPU) != 0;
	struct gm_time_split split = {0};

	for (uint32_t ready = 0; ready < n; ready++) {
		for (uint32_t other = 0; other < n; other++) {
			uint64_t n_event = layer_work(r, layer)[(size_t)ready * n + other];

			if (n_event && on_cpu)
				gm_clock_count_cpu_event(hw, layer, ready, other, n_event, &split);
			else if (n_event)
				gm_clock_count_event(hw, layer, ready, other, n_event, &split);
		}
	}
	return split;
}

void gm_replay_total(struct gm_replay *r, const struct gm_hw *hw, struct gm_tally *total)
{
	const struct gm_time_split *times = NULL;

	hw = hw ? hw : r->config->hw;
	if (r->ahead)
		times = gm_ahead_times(r->ahead, hw, &r->token_us);
	for (uint32_t l = 0; times && l < r->config->core.n_layer; l++)
		r->layer[l].time_us = times[l];
	for (uint32_t l = 0; r->work && l < r->config->core.n_layer; l++)
		r->layer[l].time_us = time_of_work(r, hw, l);
	if (r->work)
		r->token_us = (double)r->timed_tokens * hw->token_us;
	*total = (struct gm_tally){.tokens = r->tokens, .timed_tokens = r->timed_tokens};
	for (uint32_t l = 0; l < r->config->core.n_layer; l++)
		gm_tally_add(total, &r->layer[l]);
	total->time_us.token = r->token_us;
}

const struct gm_tally *gm_replay_layers(const struct gm_replay *r)
{
	return r->layer;
}

const struct gm_tally *gm_replay_sequences(const struct gm_replay *r, uint32_t *n_sequence)
{
	*n_sequence = r->n_sequence;
	return r->sequence;
}
