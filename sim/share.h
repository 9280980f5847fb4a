/* Which points of a sweep share a replay: equal sub-results are computed once. */
#ifndef GM_SIM_SHARE_H
#define GM_SIM_SHARE_H

#include "sim/sweep.h"

/* Sets twin and leader of all points, whose plans are made: points with equal settings refer to the first of them; of the others, those that differ
 * only in what does not change a replay (or in the size of an LRU cache) are led by the first. */
int gm_share_find(struct gm_sweep *sweep, struct gm_error *err);

/* Outputs that need each token's times of each point's own. */
bool gm_share_is_off(const struct gm_sweep_options *options);

/* Is this point still to be replayed, for itself and perhaps for others? */
bool gm_share_leads(const struct gm_sweep *sweep, size_t i, enum gm_prefill prefill);

/* Is point i still to be served by a leader's replay? */
bool gm_share_is_led_by(const struct gm_sweep *sweep, size_t i, size_t leader);

/* Slots of a point's first layer, which are all layers' where points of several sizes share a replay. */
uint32_t gm_share_slots(const struct gm_point *point);

/* The distinct sizes of the points that a point leads, ascending, in n_slot [n_point]; how many. */
uint32_t gm_share_sizes(const struct gm_sweep *sweep, size_t leader, uint32_t *n_slot);

#endif
