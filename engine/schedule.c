#include "engine/schedule.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int gm_schedule_init(struct gm_schedule *schedule, uint32_t max_row, uint32_t top_k, uint32_t n_slot, struct gm_error *err)
{
	size_t n = (size_t)max_row * top_k;

	*schedule = (struct gm_schedule){
		.top_k = top_k,
		.slot = gm_alloc(n, sizeof(*schedule->slot), err),
		.end = gm_alloc(max_row, sizeof(*schedule->end), err),
		.expert = gm_alloc(n, sizeof(*schedule->expert), err),
		.copy_of = gm_alloc(n, sizeof(*schedule->copy_of), err),
		.pick = gm_alloc(n, sizeof(*schedule->pick), err),
		.used = gm_alloc(n_slot, sizeof(*schedule->used), err),
		.max_row = max_row,
		.n_slot = n_slot,
	};
	return schedule->slot && schedule->end && schedule->expert && schedule->copy_of && schedule->pick && schedule->used
		       ? GM_OK
		       : GM_ERR_MEMORY;
}

void gm_schedule_free(struct gm_schedule *schedule)
{
	free(schedule->slot);
	free(schedule->copy);
	free(schedule->end);
	free(schedule->expert);
	free(schedule->copy_of);
	free(schedule->pick);
	free(schedule->used);
	memset(schedule, 0, sizeof(*schedule));
}

void gm_schedule_begin(struct gm_schedule *schedule, uint32_t layer, uint32_t n_row, bool one_event)
{
	assert(n_row <= schedule->max_row);
	schedule->layer = layer;
	schedule->n_row = n_row;
	schedule->one_event = one_event && n_row > 1;
	schedule->n_copy = schedule->n_part = schedule->n_ready = 0;
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

static void divide_rows(struct gm_schedule *schedule)
{
	uint32_t c = 0, first = 0;

	memset(schedule->used, 0, schedule->n_slot * sizeof(*schedule->used));
	for (uint32_t row = 0; row < schedule->n_row; row++) {
		if (overwrites(schedule, c, row)) {
			schedule->end[schedule->n_part++] = row;
			first = c;
		}
		for (; c < schedule->n_copy && schedule->copy[c].row == row; c++)
			schedule->copy[c].after = first;
		for (uint32_t i = 0; i < schedule->top_k; i++)
			schedule->used[schedule->slot[(size_t)row * schedule->top_k + i]] = schedule->n_part + 1;
	}
	if (schedule->n_row)
		schedule->end[schedule->n_part++] = schedule->n_row;
	for (c = 0; c < schedule->n_copy; c++)
		schedule->copy[c].stays = schedule->n_part == 1;
}

/* Each copy waits for the one before in its slot. */
static void chain_copies(struct gm_schedule *schedule)
{
	uint32_t *behind = schedule->used; /* the number after each slot's last copy */

	memset(behind, 0, schedule->n_slot * sizeof(*behind));
	for (uint32_t c = 0; c < schedule->n_copy; c++) {
		struct gm_slot_copy *copy = &schedule->copy[c];

		copy->after = behind[copy->slot];
		copy->stays = copy->after == 0;
		if (!copy->stays)
			schedule->copy[copy->after - 1].stays = false;
		behind[copy->slot] = c + 1;
	}
}

/* So that neighbours are an expert's. */
static void sort_picks(struct gm_schedule *schedule)
{
	uint32_t n = schedule->n_row * schedule->top_k, at = 0, *next = schedule->used;

	memset(next, 0, schedule->n_slot * sizeof(*next));
	for (uint32_t c = 0; c < schedule->n_copy; c++)
		schedule->copy[c].n_pick = 0;
	for (uint32_t p = 0; p < n; p++) {
		if (schedule->copy_of[p] == GM_NO_COPY)
			next[schedule->slot[p]]++;
		else
			schedule->copy[schedule->copy_of[p]].n_pick++;
	}
	for (uint32_t slot = 0; slot < schedule->n_slot; slot++) {
		uint32_t n_its = next[slot];

		next[slot] = at;
		at += n_its;
	}
	schedule->n_ready = at;
	for (uint32_t c = 0; c < schedule->n_copy; c++) {
		schedule->copy[c].first_pick = at;
		at += schedule->copy[c].n_pick;
		schedule->copy[c].n_pick = 0;
	}
	for (uint32_t p = 0; p < n; p++) {
		struct gm_slot_copy *copy;

		if (schedule->copy_of[p] == GM_NO_COPY) {
			schedule->pick[next[schedule->slot[p]]++] = p;
			continue;
		}
		copy = &schedule->copy[schedule->copy_of[p]];
		schedule->pick[copy->first_pick + copy->n_pick++] = p;
	}
}

void gm_schedule_divide(struct gm_schedule *schedule)
{
	schedule->n_part = 0;
	if (!schedule->one_event) {
		divide_rows(schedule);
		return;
	}
	schedule->end[schedule->n_part++] = schedule->n_row;
	chain_copies(schedule);
	sort_picks(schedule);
}
