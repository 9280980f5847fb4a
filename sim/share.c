#include "sim/share.h"

#include <stdlib.h>
#include <string.h>

static int by_hash(const void *a, const void *b)
{
	const struct gm_point *const *x = a, *const *y = b;
	int order = strcmp((*x)->plan.hash, (*y)->plan.hash);

	return order ? order : *x < *y ? -1 : *x > *y;
}

static int by_replay_hash(const void *a, const void *b)
{
	const struct gm_point *const *x = a, *const *y = b;
	int order = strcmp((*x)->plan.replay_hash, (*y)->plan.replay_hash);

	return order ? order : *x < *y ? -1 : *x > *y;
}

bool gm_share_is_off(const struct gm_sweep_options *options)
{
	return options->per_token || options->per_sequence || options->span;
}

int gm_share_find(struct gm_sweep *sweep, struct gm_error *err)
{
	struct gm_point **sorted = gm_alloc(sweep->n_point, sizeof(*sorted), err);
	size_t n = 0;

	if (!sorted)
		return GM_ERR_MEMORY;
	for (size_t i = 0; i < sweep->n_point; i++)
		if (!sweep->point[i].error.code)
			sorted[n++] = &sweep->point[i];
	qsort(sorted, n, sizeof(struct gm_point *), by_hash);
	for (size_t i = 1; i < n; i++)
		if (strcmp(sorted[i]->plan.hash, sorted[i - 1]->plan.hash) == 0)
			sorted[i]->twin = sorted[i - 1]->twin;
	qsort(sorted, n, sizeof(struct gm_point *), by_replay_hash);
	for (size_t i = 1; i < n && !gm_share_is_off(sweep->options); i++)
		if ((gm_replay_counts_work(&sorted[i]->plan.config) || gm_replay_goes_ahead(&sorted[i]->plan.config)) &&
		    strcmp(sorted[i]->plan.replay_hash, sorted[i - 1]->plan.replay_hash) == 0)
			sorted[i]->leader = sorted[i - 1]->leader;
	free(sorted);
	return GM_OK;
}

bool gm_share_leads(const struct gm_sweep *sweep, size_t i, enum gm_prefill prefill)
{
	const struct gm_point *point = &sweep->point[i];

	return point->twin == i && point->leader == i && point->settings->prefill == prefill && !point->done;
}

bool gm_share_is_led_by(const struct gm_sweep *sweep, size_t i, size_t leader)
{
	const struct gm_point *point = &sweep->point[i];

	return point->twin == i && point->leader == leader && !point->done;
}

uint32_t gm_share_slots(const struct gm_point *point)
{
	return point->plan.config.core.n_slot[0];
}

static int ascending(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

uint32_t gm_share_sizes(const struct gm_sweep *sweep, size_t leader, uint32_t *n_slot)
{
	uint32_t n = 0, n_distinct = 0;

	for (size_t i = leader; i < sweep->n_point; i++)
		if (gm_share_is_led_by(sweep, i, leader))
			n_slot[n++] = gm_share_slots(&sweep->point[i]);
	qsort(n_slot, n, sizeof(*n_slot), ascending);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || n_slot[i] != n_slot[n_distinct - 1])
			n_slot[n_distinct++] = n_slot[i];
	return n_distinct;
}
