/* LRU hit rates for all cache sizes in one pass by stack distances (sim/stack.h), for scope layer, every miss fetched, every token its own pass.
 *
 * With fewer than top_k slots an event pushes out what it fetched itself, and a request's place no longer tells: `sim run` answers that.
 */
#ifndef GM_SIM_CURVE_H
#define GM_SIM_CURVE_H

#include "sim/window.h"

struct gm_curve;

struct gm_curve *gm_curve_new(const struct gm_model *model, uint64_t warmup, bool reset_per_sequence, struct gm_error *err);
void gm_curve_free(struct gm_curve *curve);

/* Windows of GM_PREFILL_TOKEN, in order. */
void gm_curve_window(struct gm_curve *curve, const struct gm_window *window);

/* Ends the counting: to be called once, after the last window. */
void gm_curve_finish(struct gm_curve *curve);

/* Hits of one layer with n_slot slots, top_k ... n_expert; and its accesses. */
uint64_t gm_curve_hits(const struct gm_curve *curve, uint32_t layer, uint32_t n_slot);
uint64_t gm_curve_accesses(const struct gm_curve *curve, uint32_t layer);

#endif
