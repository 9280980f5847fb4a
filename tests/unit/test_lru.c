/* policies/evict_lru.c against its rule: among residents that are neither pinned nor requested in this event, the one whose last access is the
 * oldest. With vectors and without. */
#define gm_evict_lru twin
#include "policies/evict_lru.c"
#undef gm_evict_lru

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ITEM = 300, TOP_K = 6, N_EVENT = 6000 };

struct pool {
	struct state *state;
	uint32_t n_item, n_slot, n_taken;
	uint8_t residency[MAX_ITEM], pin[MAX_ITEM], stamp;
	uint64_t last[MAX_ITEM], tick;
	uint16_t request[TOP_K];
	uint64_t rng;
	uint64_t n_eviction, n_refusal, n_passed, n_moved;
};

static uint32_t below(struct pool *p, uint32_t n)
{
	p->rng = p->rng * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)((p->rng >> 33) % n);
}

static void start(struct pool *p, bool avx2)
{
	struct gm_pool_dims dims = {.n_item = p->n_item, .n_slot = p->n_slot, .n_expert = p->n_item};

	p->state = calloc(1, twin.state_bytes(&dims, NULL));
	assert_non_null(p->state);
	twin.init(p->state, &dims, NULL, false);
	p->state->avx2 = avx2;
	for (uint32_t item = 0; item < p->n_slot / 2; item++) {
		p->residency[item] = GM_RESIDENT;
		p->last[item] = ++p->tick;
		p->n_taken++;
		twin.insert(p->state, item, true);
	}
}

static bool is_requested(const struct pool *p, uint32_t item)
{
	for (uint32_t r = 0; r < TOP_K; r++)
		if (p->request[r] == item)
			return true;
	return false;
}

static uint32_t oldest(const struct pool *p)
{
	uint32_t best = GM_NO_ITEM;

	for (uint32_t i = 0; i < p->n_item; i++)
		if (p->residency[i] == GM_RESIDENT && p->pin[i] != p->stamp && !is_requested(p, i) &&
		    (best == GM_NO_ITEM || p->last[i] < p->last[best]))
			best = i;
	return best;
}

static bool make_room(struct pool *p, uint32_t incoming)
{
	struct gm_candidates c = {.residency = p->residency, .pin = p->pin, .stamp = p->stamp};
	uint32_t victim;

	if (p->n_taken < p->n_slot)
		return true;
	victim = twin.victim(p->state, &c, incoming);
	assert_int_equal(victim, oldest(p));
	p->n_passed += p->state->passed < p->state->group;
	if (victim == GM_NO_ITEM) {
		p->n_refusal++;
		return false;
	}
	p->n_eviction++;
	p->residency[victim] = GM_ABSENT;
	p->n_taken--;
	twin.forget(p->state, victim);
	return true;
}

static void take(struct pool *p, uint32_t item)
{
	uint32_t what = below(p, 4);

	if (p->residency[item] != GM_ABSENT || what == 0)
		return; /* what is 0: substituted, and not admitted */
	if (!make_room(p, what == 1 ? GM_NO_ITEM : item))
		return;
	p->n_taken++;
	p->residency[item] = what == 1 ? GM_RESERVED : GM_RESIDENT;
	if (what == 1)
		twin.reserve(p->state, item);
	else
		twin.insert(p->state, item, false);
}

/* Requests, substitutes that are pinned, fetches and copies in the background, some of which are under way for long. Requests get no pins: the policy
 * knows them. */
static void play(struct pool *p)
{
	struct gm_requests requests = {.n = TOP_K, .expert = p->request};
	uint32_t end = p->state->end;

	p->stamp = (uint8_t)(p->stamp + 1);
	if (p->stamp == 0)
		memset(p->pin, 0, sizeof(p->pin));
	for (uint32_t i = 0; i < p->n_item; i++)
		if (p->residency[i] == GM_RESERVED && below(p, 40) == 0) {
			p->residency[i] = GM_RESIDENT;
			twin.land(p->state, i);
		}
	for (uint32_t r = 0; r < TOP_K; r++) {
		uint32_t cell = p->n_item / TOP_K, hot = cell / 4 ? cell / 4 : 1;

		p->request[r] = (uint16_t)(r * cell + (below(p, 3) ? below(p, hot) : below(p, cell)));
	}
	for (uint32_t r = 0; r < TOP_K; r++)
		p->last[p->request[r]] = ++p->tick;
	twin.access(p->state, &requests);
	p->n_moved += p->state->end < end;
	for (uint32_t n = below(p, 4); n-- > 0;)
		p->pin[below(p, p->n_item)] = p->stamp;
	for (uint32_t r = 0; r < TOP_K; r++)
		take(p, p->request[r]);
}

static void the_oldest_leaves(void **state)
{
	static const uint32_t n_item[] = {TOP_K, 40, 64, 130, MAX_ITEM};

	(void)state;
	for (uint32_t i = 0; i < 5 * 4 * 2; i++) {
		bool avx2 = i % 2 && gm_has_avx2();
		struct pool p = {.n_item = n_item[i / 8], .rng = i};

		p.n_slot = 1 + p.n_item * (i / 2 % 4) / 4;
		p.request[0] = UINT16_MAX;
		start(&p, avx2);
		for (int t = 0; t < N_EVENT; t++)
			play(&p);
		free(p.state);
		assert_true(p.n_moved > 0);
		assert_true(p.n_eviction + p.n_refusal > 500);
		assert_true(p.n_item < 40 || p.n_passed > 10);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_oldest_leaves)};

	return cmocka_run_group_tests_name("lru", tests, NULL, NULL);
}
