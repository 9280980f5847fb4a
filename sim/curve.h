/* LRU hit rates for all cache sizes in one pass: stack distances (Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage
 * hierarchies", IBM Systems Journal 9(2), 1970), for scope layer, every miss fetched, every token its own pass.
 *
 * With at least top_k slots an LRU cache of C slots holds, at the start of every event, the C experts requested last; so a request hits in all
 * caches larger than its place in the list of experts by last request. Events are atomic (docs/semantics.md, R7): the places are those at the
 * event's start. With fewer than top_k slots an event pushes out what it fetched itself and this no longer holds: `sim run` answers that.
 */
#ifndef GM_SIM_CURVE_H
#define GM_SIM_CURVE_H

#include "sim/window.h"

struct gm_curve;

struct gm_curve *gm_curve_new(const struct gm_model *model, uint64_t warmup, bool reset_per_sequence, struct gm_error *err);
void gm_curve_free(struct gm_curve *curve);

/* Windows of GM_PREFILL_TOKEN, in order. */
void gm_curve_window(struct gm_curve *curve, const struct gm_window *window);

/* Hits of one layer with n_slot slots, top_k ... n_expert, so far; and its accesses. */
uint64_t gm_curve_hits(const struct gm_curve *curve, uint32_t layer, uint32_t n_slot);
uint64_t gm_curve_accesses(const struct gm_curve *curve, uint32_t layer);

#endif
