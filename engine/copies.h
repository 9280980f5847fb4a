/* Copies into slots by the link (engine/link.h), beside the work: what a schedule fetches starts as soon as it is known, ahead of what
 * is admitted in the background, which lands when it has arrived. Where a schedule fills a slot more than once, its copies are ordered as
 * soon as all that use it are computed.
 *
 * Without a link the plugin copies by itself, at once.
 */
#ifndef GM_ENGINE_COPIES_H
#define GM_ENGINE_COPIES_H

#include "engine/link.h"
#include "engine/plugin.h"
#include "engine/slots.h"
#include "engine/spans.h"

struct gm_copies;

struct gm_copies_options {
	uint32_t n_layer, n_expert, n_slot; /* n_slot: of all pools together */
	struct gm_throttle throttle;        /* plays a slower link */
	const struct gm_link_ops *ops;      /* NULL: the plugin's */
	struct gm_spans *spans;             /* hear of all copies; may be NULL */
};

/* Becomes the plugin's copier. plugin must outlive it. */
struct gm_copies *gm_copies_new(struct gm_plugin *plugin, const struct gm_copies_options *options, struct gm_error *err);
void gm_copies_free(struct gm_copies *copies); /* NULL is fine */

/* For the slots whose copies these are. */
struct gm_slots_background gm_copies_background(struct gm_copies *copies);
void gm_copies_set_slots(struct gm_copies *copies, struct gm_slots *slots);

/* A layer's schedule is known: those of its copies are ordered that stay. */
int gm_copies_order(struct gm_copies *copies, const struct gm_schedule *schedule, struct gm_error *err);

/* Its rows are computed. */
void gm_copies_end(struct gm_copies *copies);

/* Nothing is queued or under way any more, and nothing has arrived (before slots start anew). */
int gm_copies_clear(struct gm_copies *copies, struct gm_error *err);

struct gm_copies_stats {
	uint64_t n_copied; /* jobs that arrived */
	double busy_us;    /* the link was */
};
void gm_copies_get_stats(struct gm_copies *copies, struct gm_copies_stats *stats);

#endif
