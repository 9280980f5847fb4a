/* R9: the search for substitutes. */
#include "policies/core_private.h"

/* R9: where the search for substitutes of one row stands. Residency does not change during R9, so it only moves on. */
struct search {
	uint32_t row;
	uint32_t rank;          /* next rank of the row's ranking to look at */
	uint32_t n_seen;        /* residents among the ranks before it */
	const uint16_t *expert; /* beyond the ranking, [n] */
	const double *score;    /* [n] */
	uint32_t n;
	bool beyond;   /* what is beyond the ranking is known, or known to be of no use */
	bool unknown;  /* it was asked for and cannot be had */
	uint32_t last; /* index of the substitute found last beyond the ranking, UINT32_MAX: none yet */
};

static bool in_selection(const struct event *ev, uint32_t row, uint16_t expert)
{
	const uint16_t *pick = event_picks(ev, row);

	for (uint32_t r = 0; r < ev->top_k; r++)
		if (pick[r] == expert)
			return true;
	return false;
}

/* The best resident beyond the ranking that comes after the last one found: score descending, then id ascending. */
static int search_beyond(const struct event *ev, struct search *search, uint32_t *found, struct gm_error *err)
{
	uint32_t best = UINT32_MAX;

	if (!search->beyond) {
		/* where all residents of the layer stand in the ranking, nobody needs to know what is beyond it */
		bool seen_all = ev->config->scope == GM_SCOPE_LAYER && search->n_seen == ev->pool->n_resident;

		if (ev->rows->n_ranked < ev->config->n_expert && !seen_all)
			GM_TRY(ev->rows->beyond(ev->rows->user, ev->first_row + search->row, &search->expert,
						&search->score, &search->n, err));
		search->unknown = ev->rows->n_ranked < ev->config->n_expert && !seen_all && search->n == 0;
		search->beyond = true;
		search->last = UINT32_MAX;
	}
	for (uint32_t j = 0; j < search->n; j++) {
		double score = search->score[j];

		if (ev->residency[search->expert[j]] < GM_RESIDENT)
			continue;
		if (search->last != UINT32_MAX &&
		    (score > search->score[search->last] || (!(score < search->score[search->last]) && j <= search->last)))
			continue;
		if (best == UINT32_MAX || score > search->score[best])
			best = j;
	}
	*found = best == UINT32_MAX ? UINT32_MAX : search->expert[best];
	search->last = best == UINT32_MAX ? search->last : best;
	return GM_OK;
}

static int search_next(const struct event *ev, struct search *search, uint32_t *found, struct gm_error *err)
{
	const uint16_t *ranked = ev->rows->ranked + (size_t)search->row * ev->rows->n_ranked;
	bool rerouted = ev->config->reroute.ops != NULL;

	while (search->rank < ev->rows->n_ranked) {
		uint16_t e = ranked[search->rank++];

		if (ev->residency[e] < GM_RESIDENT)
			continue;
		search->n_seen++;
		if (!(rerouted && in_selection(ev, search->row, e))) {
			*found = e;
			return GM_OK;
		}
	}
	return search_beyond(ev, search, found, err);
}

/* A search for the row whose first wanting pick is number i of them. */
static struct search search_row(const struct event *ev, uint32_t i)
{
	uint32_t row = event_row_of_pick(ev, ev->wanting[i]), n_wanting = 0;
	struct search search = {.row = row};

	if (ev->config->reroute.ops)
		return search; /* its picks may stand anywhere in the ranking */
	while (i + n_wanting < ev->n_wanting && event_row_of_pick(ev, ev->wanting[i + n_wanting]) == row)
		n_wanting++;
	search.rank = ev->top_k;
	search.n_seen = ev->top_k - n_wanting;
	return search;
}

int gm_event_substitute(struct event *ev, struct gm_error *err)
{
	struct gm_scratch *s = ev->s;
	struct search search = {.row = UINT32_MAX};

	for (uint32_t i = 0; i < ev->n_wanting; i++) {
		uint32_t p = ev->wanting[i], row = event_row_of_pick(ev, p), found;

		if (row != search.row)
			search = search_row(ev, i);
		if (s->action[p] != GM_SUBSTITUTE)
			continue;
		GM_TRY(search_next(ev, &search, &found, err));
		if (found == UINT32_MAX) {
			s->action[p] = GM_FETCH;
			s->flags[ev->request[p]] |= FETCHED;
			event_counters(ev, row)->substitute_fallbacks++;
			event_counters(ev, row)->head_exhausted += search.unknown;
			continue;
		}
		s->substitute[p] = (uint16_t)found;
		if (ev->pin[found] != ev->core->stamp) {
			ev->pin[found] = ev->core->stamp;
			ev->n_ready++;
		}
	}
	return GM_OK;
}
