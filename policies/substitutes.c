/* R9: the search for substitutes. */
#include "policies/core_private.h"

/* R9: where the search for substitutes of one row stands. Residency does not change during R9, so it only moves on. */
struct search {
	uint32_t row;
	const uint16_t *expert; /* [n] the ranking, then what is beyond it: both in order of selection score */
	uint32_t n, at;
	uint32_t n_seen; /* residents before `at` */
	bool beyond;     /* what is beyond the ranking is in use, or known to be of none */
	bool unknown;    /* it was asked for and cannot be had */
};

static bool in_selection(const struct event *ev, uint32_t row, uint16_t expert)
{
	const uint16_t *pick = event_picks(ev, row);

	for (uint32_t r = 0; r < ev->top_k; r++)
		if (pick[r] == expert)
			return true;
	return false;
}

/* The next resident of the row's order; GM_NO_ITEM where it ends. */
static uint32_t search_on(const struct event *ev, struct search *search)
{
	bool rerouted = ev->config->reroute.ops != NULL;

	while (search->at < search->n) {
		uint16_t e = search->expert[search->at++];

		if (ev->residency[e] < GM_RESIDENT)
			continue;
		search->n_seen++;
		if (!(rerouted && in_selection(ev, search->row, e)))
			return e;
	}
	return GM_NO_ITEM;
}

/* The ranking has ended. Where all residents of the layer stand in it, nobody needs to know what is beyond. */
static int go_beyond(const struct event *ev, struct search *search, struct gm_error *err)
{
	bool seen_all = ev->config->scope == GM_SCOPE_LAYER && search->n_seen == ev->pool->n_resident;
	bool wanted = ev->rows->n_ranked < ev->config->n_expert && !seen_all;

	search->beyond = true;
	search->n = search->at = 0;
	if (wanted)
		GM_TRY(ev->rows->beyond(ev->rows->user, ev->first_row + search->row, &search->expert, &search->n, err));
	search->unknown = wanted && search->n == 0;
	return GM_OK;
}

static int search_next(const struct event *ev, struct search *search, uint32_t *found, struct gm_error *err)
{
	*found = search_on(ev, search);
	if (*found == GM_NO_ITEM && !search->beyond) {
		GM_TRY(go_beyond(ev, search, err));
		*found = search_on(ev, search);
	}
	return GM_OK;
}

/* A search for the row whose first wanting pick is number i of them. */
static struct search search_row(const struct event *ev, uint32_t i)
{
	uint32_t row = event_row_of_pick(ev, ev->wanting[i]), n_wanting = 0;
	struct search search = {
		.row = row, .expert = ev->rows->ranked + (size_t)row * ev->rows->n_ranked, .n = ev->rows->n_ranked};

	if (ev->config->reroute.ops)
		return search; /* its picks may stand anywhere in the ranking */
	while (i + n_wanting < ev->n_wanting && event_row_of_pick(ev, ev->wanting[i + n_wanting]) == row)
		n_wanting++;
	search.at = ev->top_k;
	search.n_seen = ev->top_k - n_wanting;
	return search;
}

/* Substitutes for the picks from number i on. */
static int substitute_from(struct event *ev, uint32_t i, struct search search, struct gm_error *err)
{
	struct gm_scratch *s = ev->s;

	for (; i < ev->n_wanting; i++) {
		uint32_t p = ev->wanting[i], row = event_row_of_pick(ev, p), found;

		if (row != search.row)
			search = search_row(ev, i);
		if (s->action[p] != GM_SUBSTITUTE)
			continue;
		GM_TRY(search_next(ev, &search, &found, err));
		if (found == GM_NO_ITEM) {
			s->action[p] = GM_FETCH;
			ev->actions |= 1u << GM_FETCH;
			s->flags[ev->request[p]] |= FETCHED;
			event_counters(ev, row)->substitute_fallbacks++;
			event_counters(ev, row)->head_exhausted += search.unknown;
			continue;
		}
		s->substitute[p] = (uint16_t)found;
		if (ev->pin[found] != ev->candidates.stamp) {
			ev->pin[found] = ev->candidates.stamp;
			ev->n_ready++;
		}
	}
	return GM_OK;
}

/* One row, nothing rerouted: as long as the ranking lasts, what comes behind the selection is all there is to look at, and no substitute has a pin
 * yet. */
static int substitute_row(struct event *ev, struct gm_error *err)
{
	const uint16_t *ranked = ev->rows->ranked;
	const uint8_t *residency = ev->residency, *action = ev->s->action;
	const uint32_t *wanting = ev->wanting;
	uint8_t *pin = ev->pin, stamp = ev->candidates.stamp;
	uint32_t n_ranked = ev->rows->n_ranked, at = ev->top_k, n_found = 0;

	for (uint32_t i = 0; i < ev->n_wanting; i++) {
		uint32_t p = wanting[i];

		if (action[p] != GM_SUBSTITUTE)
			continue;
		while (at < n_ranked && residency[ranked[at]] < GM_RESIDENT)
			at++;
		if (at == n_ranked) {
			struct search search = search_row(ev, 0);

			search.at = at;
			search.n_seen += n_found;
			ev->n_ready += n_found;
			return substitute_from(ev, i, search, err);
		}
		ev->s->substitute[p] = ranked[at];
		pin[ranked[at++]] = stamp;
		n_found++;
	}
	ev->n_ready += n_found;
	return GM_OK;
}

int gm_event_substitute(struct event *ev, struct gm_error *err)
{
	if (ev->rows->n == 1 && !ev->config->reroute.ops)
		return substitute_row(ev, err);
	return substitute_from(ev, 0, (struct search){.row = UINT32_MAX}, err);
}
