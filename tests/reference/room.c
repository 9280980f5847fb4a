/* R4, R11 and the table of eviction policies: how much fits, and who leaves. */
#include "tests/reference/reference_private.h"

#include <assert.h>
#include <math.h>

#define NEVER UINT64_MAX

uint64_t ref_slots_percent(uint32_t n_expert, double percent)
{
	/* R4: rounded half up, at least 1. */
	double slots = floor((double)n_expert * percent / 100.0 + 0.5);

	return slots < 1 ? 1 : (uint64_t)slots;
}

uint64_t ref_slots_bytes(const struct ref_trace *trace, uint64_t bytes)
{
	/* R4: floor(bytes / sum over layers of one expert's bytes). */
	uint64_t sum = 0;

	for (uint32_t l = 0; l < trace->n_layer; l++)
		sum += trace->expert_bytes[l];
	assert(sum > 0); /* an expert has bytes */
	return bytes / sum;
}

static int row_requests(const struct replay *r, uint32_t token, uint32_t layer, uint32_t e)
{
	size_t row = row_index(r->trace, token, layer);

	if (!r->trace->present[row])
		return 0;
	for (uint32_t i = 0; i < r->trace->top_k; i++)
		if (r->routes.selected[row * r->trace->top_k + i] == e)
			return 1;
	return 0;
}

/*
 * Belady: the next event after the present one that requests the expert, as pass * n_layer + layer; NEVER if none. The
 * future is the whole rest of the trace, found by looking through it.
 */
static uint64_t next_access(const struct replay *r, size_t id)
{
	uint32_t layer = layer_of(r, id);
	uint32_t e = (uint32_t)(id % r->trace->n_expert);

	for (uint32_t pass = r->pass; pass < r->n_pass; pass++) {
		if (pass == r->pass && layer <= r->layer)
			continue;
		for (uint32_t i = 0; i < r->pass_length[pass]; i++)
			if (row_requests(r, r->pass_first[pass] + i, layer, e))
				return (uint64_t)pass * r->trace->n_layer + layer;
	}
	return NEVER;
}

double ref_decay(const struct replay *r, const struct expert *x)
{
	double delta = (double)(r->current_token - x->last_token);

	return exp2(-delta / r->config->half_life);
}

/* lfu-decay: the count after decay to the current token. */
static double count_now(const struct replay *r, size_t id)
{
	const struct expert *x = &r->expert[id];

	return x->decayed_count * ref_decay(r, x);
}

/* The table of eviction policies: is expert a evicted before expert b? */
static int goes_before(const struct replay *r, size_t a, size_t b)
{
	const struct expert *xa = &r->expert[a];
	const struct expert *xb = &r->expert[b];

	switch (r->config->evict) {
	case REF_LRU:
		return xa->last_access < xb->last_access;
	case REF_FIFO:
		return xa->insertion < xb->insertion;
	case REF_LFU:
		if (xa->count != xb->count)
			return xa->count < xb->count;
		if (xa->last_access != xb->last_access)
			return xa->last_access < xb->last_access;
		return a < b;
	case REF_LFU_DECAY: {
		double ca = count_now(r, a);
		double cb = count_now(r, b);

		if (ca < cb || ca > cb)
			return ca < cb;
		if (xa->last_access != xb->last_access)
			return xa->last_access < xb->last_access;
		return a < b;
	}
	case REF_BELADY:
	case REF_BELADY_BYPASS: {
		uint64_t na = next_access(r, a);
		uint64_t nb = next_access(r, b);

		if (na != nb)
			return na > nb;
		return a < b;
	}
	}
	return 0;
}

static int is_candidate(const struct replay *r, size_t id)
{
	if (r->expert[id].place != REF_RESIDENT || r->pinned[id])
		return 0;
	return r->config->scope == REF_SCOPE_GLOBAL || layer_of(r, id) == r->layer;
}

/* Coverage only: which policy named the victim, and was there a tie on the first criterion? */
static void reach_victim(struct replay *r, size_t victim)
{
	int tie = 0;
	uint64_t next = 0;

	if (r->config->evict == REF_BELADY || r->config->evict == REF_BELADY_BYPASS)
		next = next_access(r, victim);
	for (size_t id = 0; id < n_id(r); id++) {
		if (id == victim || !is_candidate(r, id))
			continue;
		if (r->config->evict == REF_LFU && r->expert[id].count == r->expert[victim].count)
			tie = 1;
		if (r->config->evict == REF_LFU_DECAY && count_now(r, id) <= count_now(r, victim))
			tie = 1;
		if (next != 0 && next_access(r, id) == next)
			tie = 1;
	}
	switch (r->config->evict) {
	case REF_LRU:
		reach(r->coverage, REF_EVICT_LRU);
		break;
	case REF_FIFO:
		reach(r->coverage, REF_EVICT_FIFO);
		break;
	case REF_LFU:
		reach(r->coverage, tie ? REF_EVICT_LFU_TIE : REF_EVICT_LFU);
		break;
	case REF_LFU_DECAY:
		reach(r->coverage, tie ? REF_EVICT_DECAY_TIE : REF_EVICT_DECAY);
		break;
	case REF_BELADY:
	case REF_BELADY_BYPASS:
		reach(r->coverage, next == NEVER ? REF_EVICT_BELADY_NEVER : REF_EVICT_BELADY);
		if (tie)
			reach(r->coverage, next == NEVER ? REF_EVICT_BELADY_NEVER_TIE : REF_EVICT_BELADY_EVENT_TIE);
		break;
	}
}

/* R11: does one more expert fit beside residents and reservations? */
static int fits(const struct replay *r, size_t id)
{
	uint64_t slots = 0;
	uint64_t bytes = 0;

	for (size_t i = 0; i < n_id(r); i++) {
		if (r->expert[i].place == REF_ABSENT)
			continue;
		bytes += bytes_of(r, i);
		if (layer_of(r, i) == r->layer)
			slots++;
	}
	if (r->config->scope == REF_SCOPE_GLOBAL)
		return bytes + bytes_of(r, id) <= r->config->pool_bytes;
	return slots < r->config->slots[r->layer];
}

/* R11 */
int ref_make_room(struct replay *r, size_t id, int fetch, uint32_t token)
{
	unsigned n_victim = 0;

	if (r->config->scope == REF_SCOPE_GLOBAL && bytes_of(r, id) > r->config->pool_bytes)
		reach(r->coverage, REF_R11_LARGER_THAN_POOL);
	while (!fits(r, id)) {
		size_t victim = SIZE_MAX;

		for (size_t i = 0; i < n_id(r); i++)
			if (is_candidate(r, i) && (victim == SIZE_MAX || goes_before(r, i, victim)))
				victim = i;
		if (victim == SIZE_MAX) {
			for (size_t i = 0; i < n_id(r); i++)
				if (r->expert[i].place == REF_QUEUED || r->expert[i].place == REF_UNDER_WAY) {
					reach(r->coverage, REF_R11_NO_ROOM_RESERVED);
					break;
				}
			if (fetch)
				reach(r->coverage, REF_R11_NO_ROOM);
			if (n_victim > 0)
				reach(r->coverage, REF_R11_EVICTED_IN_VAIN);
			return 0;
		}
		/* belady-bypass: the fetched expert stands in the order too; if it comes first it is not kept. */
		if (r->config->evict == REF_BELADY_BYPASS && fetch) {
			if (next_access(r, id) == next_access(r, victim))
				reach(r->coverage, REF_EVICT_BELADY_BYPASS_TIE);
			if (goes_before(r, id, victim)) {
				reach(r->coverage, REF_EVICT_BELADY_BYPASS);
				return 0;
			}
		}
		reach_victim(r, victim);
		reach(r->coverage, REF_R11_EVICT);
		if (layer_of(r, victim) != r->layer)
			reach(r->coverage, REF_R11_OTHER_LAYER);
		r->expert[victim].place = REF_ABSENT;
		layer_counters(r)->evictions += counted(r, token);
		n_victim++;
	}
	if (n_victim == 0)
		reach(r->coverage, REF_R11_FREE);
	if (n_victim > 1)
		reach(r->coverage, REF_R11_SEVERAL_VICTIMS);
	return 1;
}
