/* Eviction by the smallest of many keys that change often and are asked for seldom, and the parts of an eviction policy that follow from it.
 *
 * Every item has a key, smaller than GM_MINIMA_ABSENT, with that bit set where the item is not in the pool. The smallest keys of the pool stand
 * apart, in no order: the *front* has every item whose key is below `bound`. So a change costs a comparison, and a question a look at few keys.
 * Once the front is used up, a scan of all keys finds about 20 others.
 *
 * A policy's state begins with a struct gm_minima and its arrays; what is the policy's own follows behind gm_minima_bytes.
 */
#ifndef GM_POLICIES_MINIMA_H
#define GM_POLICIES_MINIMA_H

#include "policies/policy.h"

#define GM_MINIMA_ABSENT (UINT64_C(1) << 62) /* keys are smaller, so that a signed comparison orders them all */
#define GM_MINIMA_FRONT 32u

struct gm_minima {
	uint32_t n_item, n_padded; /* to whole vectors, absent */
	uint32_t n_front, n_pending;
	bool avx2;
	uint64_t bound;                      /* GM_MINIMA_ABSENT: the front is the whole pool */
	uint64_t front_key[GM_MINIMA_FRONT]; /* [n_front], then others that are not below the bound */
	uint32_t front[GM_MINIMA_FRONT];     /* [n_front] their items */
	/* [n_padded], then uint8_t [n_padded]: places of those in the front, then uint32_t [n_padded]: items that wait for the next access */
	uint64_t key[];
};

size_t gm_minima_bytes(uint32_t n_item);

static inline uint8_t *gm_minima_place(struct gm_minima *m)
{
	return (uint8_t *)(m->key + m->n_padded);
}

static inline uint32_t *gm_minima_pending(struct gm_minima *m)
{
	return (uint32_t *)(void *)(gm_minima_place(m) + m->n_padded);
}

/* What is behind the arrays. */
static inline void *gm_minima_own(struct gm_minima *m)
{
	return gm_minima_pending(m) + m->n_padded;
}

/* Everything absent, with key 0: a zeroed state, or, again, one that was in use. */
void gm_minima_init(struct gm_minima *minima, uint32_t n_item, bool again);

/* Everything absent; keys stay. */
void gm_minima_empty(struct gm_minima *minima);

static inline bool gm_minima_has(const struct gm_minima *m, uint32_t item)
{
	return m->key[item] < GM_MINIMA_ABSENT;
}

static inline uint64_t gm_minima_key(const struct gm_minima *m, uint32_t item)
{
	return m->key[item] & ~GM_MINIMA_ABSENT;
}

/* An item that is requested, and no candidate, has another key; the old one or the new one is below the bound. It enters the pool anew at the
 * next access. */
void gm_minima_withdraw(struct gm_minima *minima, uint32_t item, uint64_t old);

/* The key of an item that is requested changes. key: with GM_MINIMA_ABSENT as it was. */
static inline void gm_minima_set(struct gm_minima *m, uint32_t item, uint64_t key)
{
	uint64_t old = m->key[item];

	m->key[item] = key;
	if ((old < key ? old : key) < m->bound)
		gm_minima_withdraw(m, item, old);
}

/* All keys may have changed, none of them through gm_minima_set. */
static inline void gm_minima_changed(struct gm_minima *m)
{
	m->n_front = 0;
	m->bound = 0;
}

/* To be called at the start of every access: what waited for it may be evicted again. */
void gm_minima_enter_pending(struct gm_minima *minima);

/* Parts of struct gm_evict_ops, for a state that begins with a struct gm_minima: the victim is the candidate with the smallest key, which must
 * be of no other item of the pool. All requests of an event must be set; they are spared (GM_SPARES_REQUESTS). */
void gm_minima_expect(void *state, const struct gm_requests *requests);
void gm_minima_reserve(void *state, uint32_t item);
void gm_minima_land(void *state, uint32_t item);
uint32_t gm_minima_victim(void *state, const struct gm_candidates *candidates, uint32_t incoming);
void gm_minima_forget(void *state, uint32_t item);

/* For policies whose keys are rounded. */
struct gm_minima_near {
	uint64_t (*limit)(uint64_t key); /* keys up to here are so close to `key` that rounding could have decided */
	bool (*before)(struct gm_minima *minima, uint64_t token, uint32_t a, uint32_t b); /* what decides among them */
};
/* Among the candidates whose keys are near the smallest one of a candidate, the one that comes before all others; GM_NO_ITEM: no candidate. */
uint32_t gm_minima_victim_near(struct gm_minima *minima, const struct gm_candidates *candidates,
			       const struct gm_minima_near *near);

#endif
