/* What one layer of one forward pass has to do with its slots: which slot serves each expert of each row, and which copies must
 * precede it. The rows are computed in parts: a part is a longest run of rows in which no slot that is in use is overwritten. Knows
 * neither policies nor devices.
 */
#ifndef GM_ENGINE_SCHEDULE_H
#define GM_ENGINE_SCHEDULE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* An expert of the layer goes into a slot before a row is computed. */
struct gm_slot_copy {
	uint32_t row, slot;
	uint16_t expert;
	bool ordered; /* a queue has the copy already (a late hit): it need only be waited for */
};

struct gm_schedule {
	uint32_t layer, n_row, top_k;
	int32_t *slot;             /* [n_row][top_k] by place in the row's selection */
	struct gm_slot_copy *copy; /* [n_copy] rows never fall */
	uint32_t n_copy;
	uint32_t *end; /* [n_part] the row after each part's last */
	uint32_t n_part;
	/* private */
	uint32_t max_row, max_copy, n_slot;
	uint32_t *used; /* [n_slot] number of the part that uses a slot, from 1 */
};

/* max_row rows of top_k; n_slot: slots of the largest pool. Release with gm_schedule_free, also after a failure. */
int gm_schedule_init(struct gm_schedule *schedule, uint32_t max_row, uint32_t top_k, uint32_t n_slot, struct gm_error *err);
void gm_schedule_free(struct gm_schedule *schedule);

/* An empty one for n_row rows, at most max_row. */
void gm_schedule_begin(struct gm_schedule *schedule, uint32_t layer, uint32_t n_row);

/* Behind those of the same row. */
int gm_schedule_copy(struct gm_schedule *schedule, const struct gm_slot_copy *copy, struct gm_error *err);

/* Divides the rows, whose slots are all set by now, into parts. */
void gm_schedule_divide(struct gm_schedule *schedule);

#endif
