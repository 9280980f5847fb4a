/* Replay of one configuration over the windows of a trace. */
#ifndef GM_SIM_REPLAY_H
#define GM_SIM_REPLAY_H

#include "policies/core.h"
#include "sim/clock.h"
#include "sim/landings.h"
#include "sim/window.h"

struct gm_replay_config {
	struct gm_core_config core;
	const struct gm_hw *hw; /* NULL or hw->instant: counts only, background copies land at the layer's next event */
	bool timed;             /* false with hw: counts only, but hw's bytes are known */
	enum gm_prefill prefill;
	uint64_t warmup; /* tokens left out of every statistic */
	bool reset_per_sequence;
	bool head_only; /* a substitute that would have to be sought beyond the ranking is a fallback (head_exhausted) */
	const uint32_t *preload; /* [n_preload] as gm_core_preload takes it, or NULL */
	size_t n_preload;
	void *memory; /* [gm_core_bytes(&core)] zeroed, for the core's state; NULL: the replay's own */
	/* Where nothing but copies in the background ties layers together, go layer by layer: gm_replay_is_late tells whether the results hold. */
	bool ahead;
	/* Copies in the background land when these say, NULL: when the clock does. Not timed, --prefill token. */
	const struct gm_landings *landings;
};

/* What one token (or one layer, or one sequence, or the whole trace) came to. */
struct gm_tally {
	uint64_t tokens;
	struct gm_counters count;
	struct gm_time_split time_us; /* sums over counted passes; zeros where nothing is timed */
	uint64_t timed_tokens;        /* tokens of the counted passes (R17) */
};
void gm_tally_add(struct gm_tally *to, const struct gm_tally *from);

/* Optional outputs; NULL members are not wanted. */
struct gm_replay_sink {
	/* one counted token with all its layers; in batches the pass's time stands at its first token */
	void (*token)(void *user, uint64_t token, uint32_t sequence, const struct gm_tally *tally);
	void *user;
	const struct gm_span_sink *span; /* timeline of tokens span_from ... span_to - 1 */
	uint64_t span_from, span_to;
	bool per_sequence; /* keep tallies by sequence */
};

struct gm_replay;

/* Bytes that a replay of this configuration holds (to plan how many fit side by side). */
size_t gm_replay_bytes(const struct gm_replay_config *config);
size_t gm_replay_hw_bytes(const struct gm_replay_config *config); /* for each hardware that is added */

/* config, sink and what they point to must outlive the replay. NULL on failure (configuration errors: GM_ERR_USAGE). */
struct gm_replay *gm_replay_new(const struct gm_replay_config *config, const struct gm_replay_sink *sink,
				struct gm_scratch *scratch, struct gm_error *err);
void gm_replay_free(struct gm_replay *replay);

/* Replays window [n], what gm_windows_next gave; windows come in order. `windows` answers for experts beyond the ranking. */
int gm_replay_windows(struct gm_replay *replay, struct gm_windows *windows, const struct gm_window *window, uint32_t n,
		      struct gm_error *err);

/* After the last window: GM_ERR_FORMAT if there are landings that no event has met. */
int gm_replay_end(const struct gm_replay *replay, struct gm_error *err);

/* Whether such a replay, with neither a token nor a span sink nor tallies by sequence, only counts its events by their work: then its counters
 * do not depend on the hardware's times, and one replay gives the times on any hardware with the same expert bytes. */
bool gm_replay_counts_work(const struct gm_replay_config *config);

/* Whether such a replay goes ahead of copies in the background (sim/ahead.h): then its counters do not depend on the hardware's times either. */
bool gm_replay_goes_ahead(const struct gm_replay_config *config);

/* One that goes ahead gives the times on other hardware with the same expert bytes, if it is added before the first window; elsewhere without
 * effect. It must outlive the replay. */
int gm_replay_add_hw(struct gm_replay *replay, const struct gm_hw *hw, struct gm_error *err);

/* One that goes ahead: a copy came late on this hardware, the configuration's own or an added one. There are no results for it: replay it again
 * with `ahead` false. */
bool gm_replay_is_late(const struct gm_replay *replay, const struct gm_hw *hw);

/* Results so far; layers and sequences after the total. hw: NULL for the configuration's own; another where gm_replay_counts_work, or that was
 * added. */
void gm_replay_total(struct gm_replay *replay, const struct gm_hw *hw, struct gm_tally *total);
const struct gm_tally *gm_replay_layers(const struct gm_replay *replay); /* [n_layer]; token time is in none */
const struct gm_tally *gm_replay_sequences(const struct gm_replay *replay, uint32_t *n_sequence); /* if asked for */

/* Popularity of a trace's experts for preloading (R5): items layer * n_expert + expert, most requested first, ties to the lower id; scope
 * layer: layer after layer; scope global: over all layers. *order [n_layer * n_expert] is the caller's to free. */
int gm_popularity(struct gm_trace *trace, enum gm_scope scope, uint32_t **order, struct gm_error *err);

#endif
