/* A policy, its slots and the plugin they lie in, driven by the router of a model that a hook observes. What engine.h offers to others, and
 * the program `engine`, stand on this. */
#ifndef GM_ENGINE_CACHE_H
#define GM_ENGINE_CACHE_H

#include "emulate/driver.h"
#include "engine/engine.h"
#include "engine/plugin.h"
#include "sim/landings.h"
#include "sim/plan.h"

struct gm_cache;

struct gm_cache_options {
	uint64_t device_bytes;       /* for experts, in place of the settings' cache; 0: as they say */
	struct gm_override override; /* how the weights of what is substituted or dropped are set */
	bool observes;               /* the passes are run by others: see gm_driver_setup */
	/* Copies are made by a thread of their own, and a copy in the background lands when it has arrived. Without: at once, and it has landed by
	 * its layer's next event. */
	bool beside;
	struct gm_throttle throttle;        /* with beside: plays a slower link */
	const struct gm_link_ops *link_ops; /* with beside: another's copies (tests); NULL: the plugin's */
	/* Hears what has landed before which event: of all layers' and rows' events the n-th from 0 as they are decided, and the event of the trace
	 * before which a replay, which goes token by token, must let it land. May be NULL. */
	void (*on_landed)(void *user, uint64_t event, const struct gm_landing *landing);
	void *user;
	struct gm_spans *spans; /* hear of all that takes time in the passes that they begin; may be NULL */
};

/* hook's model must have its experts in the plugin (or will have, with `observes`); both, settings and preloads must outlive the cache. The
 * hook's ops are the cache's until it is freed. */
struct gm_cache *gm_cache_new(struct gm_hook *hook, struct gm_plugin *plugin, const struct gm_settings *settings,
			      struct gm_preloads *preloads, const struct gm_cache_options *options, struct gm_error *err);
void gm_cache_free(struct gm_cache *cache);

/* recording: takes the rows of the passes that follow; may be NULL. */
void gm_cache_record(struct gm_cache *cache, struct gm_recording *recording);

int gm_cache_begin_sequence(struct gm_cache *cache, const char *id, const char *label, struct gm_error *err);

/* One pass as gm_driver_pass does it. logprob [n] out. */
int gm_cache_pass(struct gm_cache *cache, const int32_t *token, uint32_t n, float *logprob, struct gm_error *err);

const struct gm_settings *gm_cache_settings(const struct gm_cache *cache); /* with the cache's size as it came to be */
const struct gm_plan *gm_cache_plan(const struct gm_cache *cache);
const struct gm_driver *gm_cache_driver(const struct gm_cache *cache);
const struct gm_account *gm_cache_account(const struct gm_cache *cache); /* counters by layer */
void gm_cache_stats(const struct gm_cache *cache, struct gm_engine_stats *stats);

#endif
