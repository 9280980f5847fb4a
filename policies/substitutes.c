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

/* Residents among the row's own picks, where the search begins behind them. */
static uint32_t residents_picked(const struct event *ev, uint32_t row)
{
	const uint16_t *pick = event_picks(ev, row);
	uint32_t n = 0;

	for (uint32_t r = 0; !ev->config->reroute.ops && r < ev->top_k; r++)
		n += ev->residency[pick[r]] >= GM_RESIDENT;
	return n;
}

int gm_event_substitute(struct event *ev, struct gm_error *err)
{
	struct gm_scratch *s = ev->s;

	for (uint32_t i = 0; i < ev->rows->n; i++) {
		struct gm_counters *counters = event_counters(ev, i);
		struct search search = {.row = i, .n_seen = residents_picked(ev, i)};
		uint8_t *action = s->action + (size_t)i * ev->top_k;

		search.rank = ev->config->reroute.ops ? 0 : ev->top_k;
		for (uint32_t r = 0; r < ev->top_k; r++) {
			uint32_t found;

			if (action[r] != GM_SUBSTITUTE)
				continue;
			GM_TRY(search_next(ev, &search, &found, err));
			if (found == UINT32_MAX) {
				action[r] = GM_FETCH;
				s->flags[ev->request[(size_t)i * ev->top_k + r]] |= FETCHED;
				counters->substitute_fallbacks++;
				counters->head_exhausted += search.unknown;
				continue;
			}
			s->substitute[(size_t)i * ev->top_k + r] = (uint16_t)found;
			if (ev->pin[found] != ev->core->stamp) {
				ev->pin[found] = ev->core->stamp;
				ev->n_ready++;
			}
		}
	}
	return GM_OK;
}
