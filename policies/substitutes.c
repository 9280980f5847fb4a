/* R9: the search for substitutes. */
#include "policies/core_private.h"
#include "policies/resident.h"

/* R9: where the search for substitutes of one row stands. Residency does not change during R9, so it only moves on. The order of experts comes in
 * stretches: the ranking, then what is beyond it, as far as it is asked for. */
struct search {
	uint32_t row;
	const uint16_t *expert; /* [n] the stretch, in order of selection score */
	uint32_t n;
	uint32_t n_looked;        /* places of the stretch that have been looked up */
	uint32_t base, residents; /* those among them whose turn is still to come: bit i is place base + i */
	uint32_t n_seen;          /* residents that had their turn, in all stretches */
	uint32_t n_beyond;        /* places beyond the ranking that had their turn, or have it now */
	bool ended;               /* there is no other stretch */
	bool unknown;             /* there should be one, but it cannot be had */
};

static bool in_selection(const struct event *ev, uint32_t row, uint16_t expert)
{
	const uint16_t *pick = event_picks(ev, row);

	for (uint32_t r = 0; r < ev->top_k; r++)
		if (pick[r] == expert)
			return true;
	return false;
}

static void look_up(const struct event *ev, struct search *search)
{
	uint32_t left = search->n - search->n_looked, n = left < GM_RESIDENT_BITS ? left : GM_RESIDENT_BITS;

	search->base = search->n_looked;
	search->residents = gm_resident_bits(ev->residency, search->expert + search->base, n);
	search->n_looked += n;
}

/* Passes over the first places of the stretch. Whole groups of 8 are looked up faster. */
static void pass_over(const struct event *ev, struct search *search, uint32_t n)
{
	search->n_looked = n / 8 * 8;
	look_up(ev, search);
	search->residents &= UINT32_MAX << n % 8;
}

/* The next resident of the stretch; GM_NO_ITEM where it ends. */
static inline uint32_t next_resident(const struct event *ev, struct search *search)
{
	uint32_t place;

	while (search->residents == 0) {
		if (search->n_looked == search->n)
			return GM_NO_ITEM;
		look_up(ev, search);
	}
	place = search->base + (uint32_t)__builtin_ctz(search->residents);
	search->residents &= search->residents - 1;
	search->n_seen++;
	return search->expert[place];
}

static uint32_t search_on(const struct event *ev, struct search *search)
{
	bool rerouted = ev->config->reroute.ops != NULL;
	uint32_t e;

	while ((e = next_resident(ev, search)) != GM_NO_ITEM && rerouted && in_selection(ev, search->row, (uint16_t)e))
		;
	return e;
}

/* The next stretch, if there is one. Where all residents of the layer have been seen, nobody needs to know what follows. */
static int go_on(const struct event *ev, struct search *search, struct gm_error *err)
{
	bool seen_all = ev->config->scope == GM_SCOPE_LAYER && search->n_seen == ev->pool->n_resident;
	bool wanted = ev->rows->n_ranked + search->n_beyond < ev->config->n_expert && !seen_all;

	search->n = search->n_looked = search->residents = 0;
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
	pass_over(ev, &search, ev->top_k);
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
	const uint8_t *action = ev->s->action;
	uint8_t *pin = ev->pin, stamp = ev->candidates.stamp;
	uint32_t n_seen = search->n_seen;

	for (; i < ev->n_wanting; i++) {
		uint32_t p = ev->wanting[i], found;

		if (action[p] != GM_SUBSTITUTE)
			continue;
		found = next_resident(ev, search);
		if (found == GM_NO_ITEM)
			break;
		ev->s->substitute[p] = (uint16_t)found;
		pin[found] = stamp;
	}
	ev->n_ready += search->n_seen - n_seen;
	return i;
}

static int substitute_row(struct event *ev, struct gm_error *err)
{
	struct search search = {
		.expert = ev->rows->ranked,
		.n = ev->rows->n_ranked,
		.n_seen = ev->top_k - ev->n_missed,
	};
	uint32_t i;

	pass_over(ev, &search, ev->top_k);
	i = substitute_along(ev, &search, 0);
	while (i < ev->n_wanting && !search.ended) {
		GM_TRY(go_on(ev, &search, err));
		i = substitute_along(ev, &search, i);
	}
	return i < ev->n_wanting ? substitute_from(ev, i, search, err) : GM_OK;
}

bool gm_event_has_substitutes(struct event *ev, uint64_t picks)
{
	ev->n_loose = gm_resident_enough(ev->residency, ev->pick + ev->top_k, ev->pick_stride - ev->top_k, picks);
	return ev->n_loose > 0;
}

static uint32_t count_residents(const struct event *ev, const uint16_t *expert, uint32_t n)
{
	uint32_t n_found = 0;

	for (uint32_t i = 0; i < n; i += GM_RESIDENT_BITS)
		n_found += (uint32_t)__builtin_popcount(
			gm_resident_bits(ev->residency, expert + i, n - i < GM_RESIDENT_BITS ? n - i : GM_RESIDENT_BITS));
	return n_found;
}

static void count_fallbacks(struct event *ev, uint64_t picks, bool unknown)
{
	uint32_t n = (uint32_t)__builtin_popcountll(picks);

	ev->counters->substitute_fallbacks += n;
	ev->counters->head_exhausted += unknown ? n : 0;
}

int gm_event_fall_back(struct event *ev, uint64_t missed, uint64_t *picks, struct gm_error *err)
{
	uint32_t n_wanted = (uint32_t)__builtin_popcountll(*picks);
	uint32_t n_found = count_residents(ev, ev->pick + ev->top_k, ev->pick_stride - ev->top_k);
	struct search search = {.n_seen = ev->top_k - (uint32_t)__builtin_popcountll(missed) + n_found};
	uint64_t left = *picks;

	ev->n_loose = n_found < n_wanted ? n_found : n_wanted;
	if (n_found >= n_wanted)
		return 1;
	GM_TRY(go_on(ev, &search, err));
	if (!search.ended)
		return 0;
	for (; n_found; n_found--)
		left &= left - 1;
	count_fallbacks(ev, left, search.unknown);
	*picks &= ~left;
	return 1;
}

void gm_event_pin_loose(struct event *ev)
{
	for (const uint16_t *expert = ev->pick + ev->top_k; ev->n_loose; expert++) {
		ev->pin[*expert] = ev->candidates.stamp; /* without effect where it is not resident */
		ev->n_loose -= ev->residency[*expert] >= GM_RESIDENT;
	}
}

int gm_event_substitute(struct event *ev, struct gm_error *err)
{
	if (ev->rows->n == 1 && !ev->config->reroute.ops)
		return substitute_row(ev, err);
	return substitute_from(ev, 0, (struct search){.row = UINT32_MAX}, err);
}
