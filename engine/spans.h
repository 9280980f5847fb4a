/* What the engine really did when, as a timeline of the kind that `sim` simulates: the same lanes and names (sim/clock.h), so that the two can
 * be held against each other. Any thread; those functions that say so are for the thread that runs the passes.
 *
 *   gm_spans_begin_pass(spans, true); ... gm_spans_routed(spans); gm_spans_experts(spans, ...); ... gm_spans_end_pass(spans);
 *
 * On the GPU's lane a layer is "dense" up to the moment when the schedule of its experts is known, then comes an "expert" for each computation with
 * experts: those that were there together, and each that was waited for by itself. Between them the device waits.
 */
#ifndef GM_ENGINE_SPANS_H
#define GM_ENGINE_SPANS_H

#include "sim/clock.h"

struct gm_spans;

/* sink must outlive it, and is called by one thread at a time; its times count from the first pass that is wanted. NULL: no memory. */
struct gm_spans *gm_spans_new(const struct gm_span_sink *sink, struct gm_error *err);
void gm_spans_free(struct gm_spans *spans); /* NULL is fine */

/* µs of the clock whose times the others take (engine/pace.h). */
double gm_spans_now_us(void);

/* One span that ended while a pass was wanted. spans NULL: nothing is done, as in all that follow. expert UINT32_MAX: several. */
void gm_spans_add(struct gm_spans *spans, enum gm_lane lane, const char *what, uint32_t layer, uint32_t expert,
		  double start_us, double end_us);

/* --- for the thread that runs the passes --- */

void gm_spans_begin_pass(struct gm_spans *spans, bool wanted);
/* The experts of the next layer are decided and scheduled. */
void gm_spans_routed(struct gm_spans *spans);
/* A computation with experts of a layer. */
void gm_spans_experts(struct gm_spans *spans, uint32_t layer, uint32_t expert, double start_us, double end_us);
void gm_spans_end_pass(struct gm_spans *spans);

#endif
