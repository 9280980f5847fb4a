/* R9: the search for substitutes. */
#include "policies/core_private.h"

/* R9: where the search for substitutes of one row stands. Residency does not change during R9, so it only moves on. The order of experts comes in
 * stretches: the ranking, then what is beyond it, as far as it is asked for. */
struct search {
	uint32_t row;
	const uint16_t *expert; /* [n] the stretch, in order of selection score */
	uint32_t n, at;
	uint32_t n_seen;   /* residents before `at`, in all stretches */
	uint32_t n_beyond; /* places beyond the ranking that had their turn, or have it now */
	bool ended;        /* there is no other stretch */
	bool unknown;      /* there should be one, but it cannot be had */
};

static bool in_selection(const struct event *ev, uint32_t row, uint16_t expert)
{
	const uint16_t *pick = event_picks(ev, row);

	for (uint32_t r = 0; r < ev->top_k; r++)
		if (pick[r] == expert)
			return true;
	return false;
}

/* The next resident of the stretch; GM_NO_ITEM where it ends. */
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

/* The next stretch, if there is one. Where all residents of the layer have been seen, nobody needs to know what follows. */
static int go_on(const struct event *ev, struct search *search, struct gm_error *err)
{
	bool seen_all = ev->config->scope == GM_SCOPE_LAYER && search->n_seen == ev->pool->n_resident;
	bool wanted = ev->rows->n_ranked + search->n_beyond < ev->config->n_expert && !seen_all;

	search->n = search->at = 0;
	if (wanted && !search->ended)
		GM_TRY(ev->rows->beyond(ev->rows->user, ev->first_row + search->row, search->n_beyond, &search->expert,
					&search->n, err));
	search->ended = search->n == 0;
	search->unknown = search->ended && wanted;
	search->n_beyond += search->n;
	return GM_OK;
}

static int search_next(const struct event *ev, struct search *search, uint32_t *found, struct gm_error *err)
{
	while ((*found = search_on(ev, search)) == GM_NO_ITEM && !search->ended)
		GM_TRY(go_on(ev, search, err));
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

/* One row, nothing rerouted: every resident of the stretch is a substitute, and none has a pin yet. Returns the number of the first pick that is
 * still without one. */
static uint32_t substitute_along(struct event *ev, struct search *search, uint32_t i)
{
	const uint16_t *expert = search->expert;
	const uint8_t *residency = ev->residency, *action = ev->s->action;
	uint8_t *pin = ev->pin, stamp = ev->candidates.stamp;
	uint32_t n = search->n, at = search->at, n_found = 0;

	for (; i < ev->n_wanting; i++) {
		uint32_t p = ev->wanting[i];

		if (action[p] != GM_SUBSTITUTE)
			continue;
		while (at < n && residency[expert[at]] < GM_RESIDENT)
			at++;
		if (at == n)
			break;
		ev->s->substitute[p] = expert[at];
		pin[expert[at++]] = stamp;
		n_found++;
	}
	search->at = at;
	search->n_seen += n_found;
	ev->n_ready += n_found;
	return i;
}

static int substitute_row(struct event *ev, struct gm_error *err)
{
	struct search search = {
		.expert = ev->rows->ranked,
		.n = ev->rows->n_ranked,
		.at = ev->top_k,
		.n_seen = ev->top_k - ev->n_missed,
	};
	uint32_t i = substitute_along(ev, &search, 0);

	while (i < ev->n_wanting && !search.ended) {
		GM_TRY(go_on(ev, &search, err));
		i = substitute_along(ev, &search, i);
	}
	return i < ev->n_wanting ? substitute_from(ev, i, search, err) : GM_OK;
}

int gm_event_substitute(struct event *ev, struct gm_error *err)
{
	if (ev->rows->n == 1 && !ev->config->reroute.ops)
		return substitute_row(ev, err);
	return substitute_from(ev, 0, (struct search){.row = UINT32_MAX}, err);
}
