/* What one layer of one forward pass has to do with its slots: which slot serves each expert of each row, and which copies must
 * precede it. Knows neither policies nor devices.
 *
 * Rows that are events of their own are computed in parts: a part is a longest run of rows in which no slot that is in use is overwritten. Rows
 * that are one event together (--prefill batch) are computed by expert: all that wait for no copy, then, copy by copy, all that wait for it,
 * whatever their rows. So a slot may be filled again as soon as what waits for its last copy is computed.
 */
#ifndef GM_ENGINE_SCHEDULE_H
#define GM_ENGINE_SCHEDULE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* An expert of the layer goes into a slot before a row is computed. */
struct gm_slot_copy {
	uint32_t row, slot; /* row: 0 if the rows are one event */
	uint16_t expert;
	bool ordered; /* a queue has the copy already (a late hit): it need only be waited for */
	/* Set by gm_schedule_divide. */
	bool stays;     /* it may be made as soon as the schedule is known, and nothing else comes into its slot */
	uint32_t after; /* if not: when all is computed that waits for the copies before this number */
	uint32_t first_pick, n_pick; /* one event: those that wait for it */
};

#define GM_NO_COPY UINT32_MAX

struct gm_schedule {
	uint32_t layer, n_row, top_k;
	bool one_event;            /* of several rows */
	int32_t *slot;             /* [n_row][top_k] by place in the row's selection */
	struct gm_slot_copy *copy; /* [n_copy] rows never fall */
	uint32_t n_copy;
	uint32_t *end; /* [n_part] the row after each part's last; one part if the rows are one event */
	uint32_t n_part;
	/* of one event */
	int32_t *expert;   /* [n_row][top_k] */
	uint32_t *copy_of; /* [n_row][top_k] the copy that a place waits for, GM_NO_COPY: none */
	uint32_t *pick; /* [n_row * top_k] places, row * top_k + i: first those that wait for none, by slot, then by copy */
	uint32_t n_ready; /* of the former */
	/* private */
	uint32_t max_row, max_copy, n_slot;
	uint32_t *used; /* [n_slot] number of the part that uses a slot, from 1; counts of one event */
};

/* max_row rows of top_k; n_slot: slots of the largest pool. Release with gm_schedule_free, also after a failure. */
int gm_schedule_init(struct gm_schedule *schedule, uint32_t max_row, uint32_t top_k, uint32_t n_slot, struct gm_error *err);
void gm_schedule_free(struct gm_schedule *schedule);

/* An empty one for n_row rows, at most max_row, which are events of their own or one event. */
void gm_schedule_begin(struct gm_schedule *schedule, uint32_t layer, uint32_t n_row, bool one_event);

/* Behind those of the same row. */
int gm_schedule_copy(struct gm_schedule *schedule, const struct gm_slot_copy *copy, struct gm_error *err);

/* Divides the rows into parts, or their places by copy. All slots are set by now; of one event all experts and copies too. */
void gm_schedule_divide(struct gm_schedule *schedule);

#endif
