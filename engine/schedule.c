#include "engine/schedule.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int gm_schedule_init(struct gm_schedule *schedule, uint32_t max_row, uint32_t top_k, uint32_t n_slot, struct gm_error *err)
{
	*schedule = (struct gm_schedule){
		.top_k = top_k,
		.slot = gm_alloc((size_t)max_row * top_k, sizeof(*schedule->slot), err),
		.end = gm_alloc(max_row, sizeof(*schedule->end), err),
		.used = gm_alloc(n_slot, sizeof(*schedule->used), err),
		.max_row = max_row,
		.n_slot = n_slot,
	};
	return schedule->slot && schedule->end && schedule->used ? GM_OK : GM_ERR_MEMORY;
}

void gm_schedule_free(struct gm_schedule *schedule)
{
	free(schedule->slot);
	free(schedule->copy);
	free(schedule->end);
	free(schedule->used);
	memset(schedule, 0, sizeof(*schedule));
}

void gm_schedule_begin(struct gm_schedule *schedule, uint32_t layer, uint32_t n_row)
{
	assert(n_row <= schedule->max_row);
	schedule->layer = layer;
	schedule->n_row = n_row;
	schedule->n_copy = schedule->n_part = 0;
}

int gm_schedule_copy(struct gm_schedule *schedule, const struct gm_slot_copy *copy, struct gm_error *err)
{
	uint32_t at;

	if (schedule->n_copy == schedule->max_copy) {
		uint32_t more = schedule->max_copy ? schedule->max_copy * 2 : 64;

		GM_GROW(schedule->copy, more, err);
		schedule->max_copy = more;
	}
	for (at = schedule->n_copy++; at > 0 && schedule->copy[at - 1].row > copy->row; at--)
		schedule->copy[at] = schedule->copy[at - 1];
	schedule->copy[at] = *copy;
	return GM_OK;
}

/* Would the copies before a row overwrite what the part under way computes with? */
static bool overwrites(const struct gm_schedule *schedule, uint32_t first_copy, uint32_t row)
{
	for (uint32_t c = first_copy; c < schedule->n_copy && schedule->copy[c].row == row; c++)
		if (schedule->used[schedule->copy[c].slot] == schedule->n_part + 1)
			return true;
	return false;
}

void gm_schedule_divide(struct gm_schedule *schedule)
{
	uint32_t c = 0;

	memset(schedule->used, 0, schedule->n_slot * sizeof(*schedule->used));
	schedule->n_part = 0;
	for (uint32_t row = 0; row < schedule->n_row; row++) {
		if (overwrites(schedule, c, row))
			schedule->end[schedule->n_part++] = row;
		while (c < schedule->n_copy && schedule->copy[c].row == row)
			c++;
		for (uint32_t i = 0; i < schedule->top_k; i++)
			schedule->used[schedule->slot[(size_t)row * schedule->top_k + i]] = schedule->n_part + 1;
	}
	if (schedule->n_row)
		schedule->end[schedule->n_part++] = schedule->n_row;
}
