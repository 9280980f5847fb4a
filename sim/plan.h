/* A grid point held against a trace: everything a replay needs, or the reason why it cannot be. */
#ifndef GM_SIM_PLAN_H
#define GM_SIM_PLAN_H

#include "base/hash.h"
#include "sim/replay.h"
#include "sim/settings.h"

struct gm_plan {
	struct gm_replay_config config; /* points into this plan: a plan stays where it was made */
	struct gm_hw hw;
	uint32_t *n_slot;      /* [n_layer] scope layer */
	double cache_slots;    /* slots a layer where equal in all, else NaN; NaN in scope global */
	double cache_fraction; /* share of all experts (scope global: of all expert bytes) */
	unsigned window_flags; /* enum gm_windows_flag */
	bool timed;            /* times are known (all 0 with the profile "instant") */
	char untimed[256];     /* why not: what the default profile or the trace lacks; "" where timed */
	uint32_t *order;       /* private: a preload list of its own */
	char preload_hash[GM_HASH_TEXT];
	char hash[GM_HASH_TEXT]; /* of all settings and the resolved hardware that can change a result */
	char replay_hash
		[GM_HASH_TEXT]; /* of those that can change what is replayed: plans that differ in times alone may share one replay */
};

/* Popularity lists of preload traces, shared by the plans made with it. */
struct gm_preloads;
struct gm_preloads *gm_preloads_new(struct gm_error *err);
void gm_preloads_free(struct gm_preloads *preloads);

/* Resolves settings against a trace (R4, R5, docs/time-model.md). preloads must outlive the plan. GM_ERR_USAGE or GM_ERR_UNSUPPORTED for a
 * point that is impossible on this trace; other codes where a preload trace cannot be read. Release with gm_plan_free, also
 * after a failure. */
int gm_plan_make(struct gm_plan *plan, const struct gm_settings *settings, const struct gm_trace *trace,
		 struct gm_preloads *preloads, struct gm_error *err);
/* The same for rows that come from a running model, with all their logits (emulate). */
int gm_plan_make_live(struct gm_plan *plan, const struct gm_settings *settings, const struct gm_model *model,
		      struct gm_preloads *preloads, struct gm_error *err);
void gm_plan_free(struct gm_plan *plan);

/* Hash of the settings that decide what a replay does on given arrivals: of all but hardware and warm-up. hash [GM_HASH_TEXT] out. */
int gm_plan_policy_hash(const struct gm_plan *plan, const struct gm_settings *settings, char *hash, struct gm_error *err);

/* Makes copies in the background land as they did in a run of this trace, which must outlive the plan. GM_ERR_USAGE: a run of another trace or under
 * other settings, a plan with times. */
int gm_plan_land(struct gm_plan *plan, const struct gm_settings *settings, const struct gm_trace *trace,
		 const struct gm_landings *landings, struct gm_error *err);

#endif
