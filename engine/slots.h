/* Slots: where on the device each resident expert lies. The policy core decides which experts are resident; this follows it event by
 * event (it is the core's arrivals), gives every expert that comes in a slot, takes back those of the evicted, and writes down as a
 * schedule what the pass has to copy before which row. Knows neither llama.cpp nor a device.
 *
 *   gm_slots_begin(slots, layer, n_row, one_event)       the rows of a layer are there
 *   gm_event(core, ...); gm_slots_decided(slots, ...)    for each row: the core calls the arrivals, then the decisions are told
 *   gm_slots_experts(slots, ...)                         the experts that the model will compute, as they stand in its graph
 *   gm_slots_schedule(slots)
 *
 * Rows that are one event (--prefill batch): one gm_event for all, then gm_slots_decided for each.
 *
 * An expert that is used once and not kept (a bypass) lies in a scratch slot behind the pool's own until its row is done, or, in an event of several
 * rows, until all rows are that use it: then another takes its place.
 */
#ifndef GM_ENGINE_SLOTS_H
#define GM_ENGINE_SLOTS_H

#include "engine/schedule.h"
#include "policies/core.h"

struct gm_slots;

#define GM_NO_SLOT UINT32_MAX

/* Copies beside the work; NULL members: none, a background copy has landed at its layer's next event. */
struct gm_slots_background {
	/* A copy of an expert into a slot is admitted. Called when no row that is still to be computed uses the slot. */
	int (*queue)(void *user, uint32_t layer, uint32_t expert, uint32_t slot, struct gm_error *err);
	/* Calls gm_slots_landed for every copy that has arrived. */
	int (*poll)(void *user, struct gm_error *err);
	/* A copy that was queued is wanted now: what follows waits for it. */
	int (*promote)(void *user, uint32_t layer, uint32_t expert, struct gm_error *err);
	void *user;
};

struct gm_slots_options {
	const struct gm_core_config *config; /* scope global: all layers' experts of equal size */
	uint32_t max_row;                    /* rows of a pass */
	uint32_t n_scratch;                  /* slots for experts that are not kept, behind those of every pool */
	struct gm_slots_background background;
	/* Hears what has landed at the start of an event, of all layers' and rows' events the n-th from 0; may be NULL. With it a run whose copies took
	 * their time can be decided again. */
	void (*on_landed)(void *user, uint64_t event, uint32_t layer, uint32_t expert);
	void *user;
};

/* Slots that a layer's pool needs, without scratch. */
uint32_t gm_slots_needed(const struct gm_core_config *config, uint32_t layer);

/* Scratch slots that the rules can ask for in one row, and one to spare for a tie that the model breaks otherwise (R2). in_flight: background
 * copies take time, so that reserved slots cannot be evicted. batch: events of several rows fill them by turns, so that one can be copied into while
 * another is computed with. */
uint32_t gm_slots_scratch(const struct gm_core_config *config, bool in_flight, bool batch);

/* config must outlive the slots. NULL: GM_ERR_MEMORY. */
struct gm_slots *gm_slots_new(const struct gm_slots_options *options, struct gm_error *err);
void gm_slots_free(struct gm_slots *slots);

/* For the core that these slots follow. */
struct gm_arrivals *gm_slots_arrivals(struct gm_slots *slots);

/* The core is new, or was reset: no slot holds anything but what was preloaded. put is called for each expert that must be copied now. */
int gm_slots_start(struct gm_slots *slots, const struct gm_core *core,
		   int (*put)(void *user, uint32_t layer, uint32_t expert, uint32_t slot, struct gm_error *err), void *user,
		   struct gm_error *err);

/* --- a layer of a pass --- */

/* one_event: of all rows; else each is an event of its own. */
void gm_slots_begin(struct gm_slots *slots, uint32_t layer, uint32_t n_row, bool one_event);

/* What the event came to for the next row: decision [top_k] in rank order. GM_ERR_UNSUPPORTED: an expert for the CPU. */
int gm_slots_decided(struct gm_slots *slots, const struct gm_decision *decision, struct gm_error *err);

/* The model's selection [n][top_k] for rows first ... first + n - 1, in the order in which its graph has them. An expert that no decision is
 * about (a tie that the model broke otherwise than R2) takes a scratch slot; where none is left in a row's own event, the decision's expert takes its
 * place, and *changed is set. */
int gm_slots_experts(struct gm_slots *slots, uint32_t first, uint32_t n, int32_t *expert, bool *changed,
		     struct gm_error *err);

/* Of the layer that was begun last, once all its rows have their experts; valid until the next begin. */
const struct gm_schedule *gm_slots_schedule(struct gm_slots *slots);

/* The layer's rows are computed: background copies whose slots they used may start. */
int gm_slots_end(struct gm_slots *slots, struct gm_error *err);

/* From background.poll: this copy has arrived. */
void gm_slots_landed(struct gm_slots *slots, uint32_t layer, uint32_t expert);

/* Slot of a resident or reserved expert, GM_NO_SLOT. */
uint32_t gm_slots_of(const struct gm_slots *slots, uint32_t layer, uint32_t expert);

#endif
