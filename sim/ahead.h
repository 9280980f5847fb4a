/* Times of a replay that goes layer by layer although copies are made beside the work.
 *
 * When such a copy arrives depends on all layers, but hardly ever does it matter: it only has to be there by its layer's next event, a token later.
 * So layers are replayed one after the other as if every copy were, and what each event had to do is kept. Afterwards a clock for each hardware
 * goes through the events in their own order, finds whether every copy had indeed arrived, and adds up their times: by the same arithmetic as
 * sim/clock.h, to the last bit. If one had not, the replay is none of this hardware's, and it takes one with its own clock.
 */
#ifndef GM_SIM_AHEAD_H
#define GM_SIM_AHEAD_H

#include "sim/clock.h"

struct gm_ahead;

/* For one row an event, each of top_k picks. scratch must outlive it: events are kept there between gm_ahead_begin and gm_ahead_end. */
struct gm_ahead *gm_ahead_new(uint32_t n_layer, uint32_t top_k, struct gm_scratch *scratch, struct gm_error *err);
void gm_ahead_free(struct gm_ahead *ahead);

/* Memory that it holds for n_hw, and that the events of n_token tokens take in the scratch. */
size_t gm_ahead_bytes(uint32_t n_layer, uint32_t top_k, uint32_t n_hw);
size_t gm_ahead_event_bytes(uint32_t n_layer, uint32_t n_token);

/* One more hardware, without a disk tier, before the first event; it must outlive this. */
int gm_ahead_add(struct gm_ahead *ahead, const struct gm_hw *hw, struct gm_error *err);

/* For the core: every copy lands at its layer's next event, and the events are kept. */
struct gm_arrivals *gm_ahead_arrivals(struct gm_ahead *ahead);

/* Room for the next n_token tokens, which have no events yet. */
int gm_ahead_begin(struct gm_ahead *ahead, uint32_t n_token, struct gm_error *err);

/* The next events are this layer's, of tokens from the first-th of the n_token on. offset: of each one's token behind it, in order; NULL: 0, 1, ... */
void gm_ahead_set_layer(struct gm_ahead *ahead, uint32_t layer, uint32_t first, const uint32_t *offset);

/* The events of all layers are kept: their times. timed: they count (R17). */
void gm_ahead_end(struct gm_ahead *ahead, bool timed);

/* Whether some copy had not arrived by its layer's next event on this hardware (or the CPU had work, which is not timed here). */
bool gm_ahead_is_late(const struct gm_ahead *ahead, const struct gm_hw *hw);
bool gm_ahead_all_late(const struct gm_ahead *ahead);

/* Times so far on a hardware that was added: [n_layer], and what R17 adds. */
const struct gm_time_split *gm_ahead_times(const struct gm_ahead *ahead, const struct gm_hw *hw, double *token_us);

#endif
