/* R5: what is there before the first token: nothing, or the preload; and the reset at a new sequence. */
#include "tests/reference/reference_private.h"

#include <stdlib.h>
#include <string.h>

/* R5: how many rows of the preload trace select each expert. */
int ref_count_popularity(struct replay *r)
{
	const struct ref_trace *trace = r->config->preload;
	struct routes routes = {0};
	int status;

	if (!trace)
		return REF_OK;
	if (!ref_trace_is_valid(trace) || trace->n_layer != r->trace->n_layer || trace->n_expert != r->trace->n_expert)
		return REF_BAD_TRACE;
	status = ref_routes_init(&routes, trace, NULL);
	if (status)
		return status;
	for (uint32_t t = 0; t < trace->n_token; t++)
		for (uint32_t l = 0; l < trace->n_layer; l++) {
			size_t row = row_index(trace, t, l);

			if (!trace->present[row])
				continue;
			for (uint32_t i = 0; i < trace->top_k; i++)
				r->popularity[expert_id(r, l, routes.selected[row * trace->top_k + i])]++;
		}
	ref_routes_free(&routes);
	return REF_OK;
}

/* R5: inserts ranked[0 .. n-1], least popular first, with ticks of their own and count 0. */
static void insert_preloaded(struct replay *r, const size_t *ranked, size_t n)
{
	for (size_t i = n; i > 0; i--) {
		struct expert *x = &r->expert[ranked[i - 1]];

		x->place = REF_RESIDENT;
		x->insertion = ++r->insertion_clock;
		x->last_access = ++r->access_clock;
		x->preloaded = 1;
		reach(r->coverage, r->config->preload ? REF_R5_PRELOAD : REF_R5_PRELOAD_ALL);
		if (r->config->preload && r->popularity[ranked[i - 1]] == 0)
			reach(r->coverage, REF_R5_PRELOAD_UNREQUESTED);
	}
}

/* Full sort of n ids by popularity, most popular first, ties to the lower id. */
static void rank_by_popularity(const struct replay *r, size_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t j = i + 1; j < n; j++) {
			uint64_t pi = r->popularity[ids[i]];
			uint64_t pj = r->popularity[ids[j]];

			if (pj > pi || (pj == pi && ids[j] < ids[i])) {
				size_t swap = ids[i];

				ids[i] = ids[j];
				ids[j] = swap;
			}
		}
}

/* R5: fills the cache. */
static void preload(struct replay *r)
{
	uint32_t n_expert = r->trace->n_expert;
	size_t *ranked = zalloc(n_id(r), sizeof(size_t));
	size_t n = 0;

	if (r->config->scope == REF_SCOPE_LAYER) {
		for (uint32_t l = 0; l < r->trace->n_layer; l++) {
			for (uint32_t e = 0; e < n_expert; e++)
				ranked[e] = expert_id(r, l, e);
			rank_by_popularity(r, ranked, n_expert);
			n = 0;
			while (n < n_expert && n < r->config->slots[l])
				n++;
			if (n > 0 && n < n_expert && r->popularity[ranked[n - 1]] == r->popularity[ranked[n]])
				reach(r->coverage, REF_R5_PRELOAD_TIE);
			insert_preloaded(r, ranked, n);
		}
	} else {
		uint64_t bytes = 0;

		for (size_t id = 0; id < n_id(r); id++)
			ranked[id] = id;
		rank_by_popularity(r, ranked, n_id(r));
		while (n < n_id(r) && bytes + bytes_of(r, ranked[n]) <= r->config->pool_bytes) {
			bytes += bytes_of(r, ranked[n]);
			n++;
		}
		if (n < n_id(r))
			reach(r->coverage, REF_R5_PRELOAD_POOL_FULL);
		insert_preloaded(r, ranked, n);
	}
	free(ranked);
}

/* R5: everything as before the first token: residents, copies, accumulators, counts, host RAM and all clocks. */
void ref_start(struct replay *r)
{
	memset(r->expert, 0, n_id(r) * sizeof(*r->expert));
	r->access_clock = 0;
	r->insertion_clock = 0;
	r->queue_clock = 0;
	r->host_clock = 0;
	r->now_us = 0;
	r->link_free_us = 0;
	r->disk_free_us = 0;
	if (r->config->preload || r->config->preload_all)
		preload(r);
	else
		reach(r->coverage, REF_R5_COLD);
}

void ref_reset(struct replay *r)
{
	reach(r->coverage, REF_R5_RESET);
	for (size_t id = 0; id < n_id(r); id++) {
		if (r->expert[id].place == REF_QUEUED || r->expert[id].place == REF_UNDER_WAY)
			reach(r->coverage, REF_R5_RESET_DROPS_COPY);
		if (r->expert[id].acc > 0)
			reach(r->coverage, REF_R5_RESET_DROPS_ACC);
	}
	ref_start(r);
}
