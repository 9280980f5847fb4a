/* Forward passes under policies. Any number of followers watch the router of a pass; at most one of them, the lead, changes what the
 * model computes, and all see the router's choices that follow from it. Without a lead the model runs as it is.
 *
 * Rows come layer by layer in the order of the text, so a cache of its own in every layer evolves as it would token by token: the
 * size of a pass makes no difference (docs/emulator.md).
 */
#ifndef GM_EMULATE_DRIVER_H
#define GM_EMULATE_DRIVER_H

#include "emulate/follower.h"
#include "emulate/override.h"
#include "recorder/hook.h"
#include "recorder/recording.h"

struct gm_driver;

/* hook must outlive the driver; its ops are the driver's until gm_driver_free. */
struct gm_driver *gm_driver_new(struct gm_hook *hook, struct gm_error *err);
void gm_driver_free(struct gm_driver *driver);

/* Most tokens of a pass. */
uint32_t gm_driver_max_pass(const struct gm_driver *driver);

/* Who watches the passes that follow, until the next call. */
struct gm_driver_setup {
	struct gm_follower *const *follower; /* [n_follower] */
	size_t n_follower, lead;             /* lead: an index, or n_follower for none */
	bool substitutes, drops;             /* what the lead may do */
	struct gm_override override;         /* how the lead's weights are set */
	struct gm_recording *recording;      /* takes the rows of every pass, may be NULL */
	/* Hears which experts [n][top_k] rows first ... first + n - 1 of a layer will compute, after what the lead changed, and may change them
	 * once more: then sets *changed. May be NULL; needs a lead. */
	int (*on_experts)(void *user, uint32_t layer, uint32_t first, uint32_t n, int32_t *expert, bool *changed,
			  struct gm_error *err);
	/* what the pass computes from here on is worth nothing; may be NULL */
	void (*on_failure)(void *user, const struct gm_error *why);
	void *user;
	/* Passes are not run by gm_driver_pass but by whoever owns the context that the hook is attached to: one begins with the rows of the
	 * first layer. Nothing goes into accounts but counters by layer. */
	bool observes;
};
void gm_driver_set(struct gm_driver *driver, const struct gm_driver_setup *setup);

int gm_driver_begin_sequence(struct gm_driver *driver, const char *id, const char *label, struct gm_error *err);

/* One pass over the next n tokens of the sequence. first_token: number of the first in the run. logprob [n] out: log-probability of
 * each token given those before it, NaN for the first of a sequence. */
int gm_driver_pass(struct gm_driver *driver, uint64_t first_token, const int32_t *token, uint32_t n, float *logprob,
		   struct gm_error *err);

/* The likeliest next token, and whether it ends the text. */
int32_t gm_driver_next(const struct gm_driver *driver, bool *is_end);

uint64_t gm_driver_n_token(const struct gm_driver *driver); /* of the passes that it observes */

/* Rows whose selection by R2 was not the model's own: ties that it broke otherwise. */
uint64_t gm_driver_n_tie(const struct gm_driver *driver);

#endif
