/* Eviction by the smallest of many values that change often and are asked for seldom: minima in two levels, and the parts of an eviction
 * policy that follow from them.
 *
 * Every item has a value and a tie-breaker, in the pool or not; its key is the value, with the highest bit set where it is not in the pool. Items lie in
 * groups of 16, and each group remembers its least (key, then tie) until a change makes it stale. A change costs a few instructions, a
 * question a few scans of 16, vectorised where the machine can (with a scalar twin that gives the same answers).
 *
 * A policy's state begins with a struct gm_minima and its arrays; what is the policy's own follows behind gm_minima_bytes.
 */
#ifndef GM_POLICIES_MINIMA_H
#define GM_POLICIES_MINIMA_H

#include "policies/policy.h"

#define GM_MINIMA_ABSENT (UINT64_C(1) << 63) /* set in the key of an item that is not in the pool; values are smaller */
#define GM_MINIMA_NONE UINT64_MAX            /* the least key of an empty group */
#define GM_MINIMA_GROUP 16u

struct gm_minima {
	uint32_t n_item, n_group;
	uint32_t key, tie;             /* offsets of uint64_t [n_group * 16] */
	uint32_t least_key, least_tie; /* offsets of uint64_t [n_group]: of the group's least */
	uint32_t least;                /* offset of uint32_t [n_group]: the item, GM_NO_ITEM if the group is empty */
	uint32_t stale;                /* offset of uint64_t [n_group / 64, rounded up]: a bit a group */
	uint32_t
		pending; /* offset of uint32_t [n_item]: entered since the last access, and pinned until the next: no candidates */
	uint32_t n_pending;
	uint32_t end;    /* gm_minima_bytes: what is behind */
	uint32_t vector; /* what this machine can */
};

size_t gm_minima_bytes(uint32_t n_item);

/* Everything absent; values and ties 0. */
void gm_minima_init(struct gm_minima *minima, uint32_t n_item);

/* Everything absent; values and ties stay. */
void gm_minima_empty(struct gm_minima *minima);

static inline uint64_t *gm_minima_ties(struct gm_minima *m)
{
	return (uint64_t *)(void *)((char *)m + m->tie);
}

static inline uint64_t *gm_minima_keys(struct gm_minima *m)
{
	return (uint64_t *)(void *)((char *)m + m->key);
}

static inline uint32_t *gm_minima_leasts(struct gm_minima *m)
{
	return (uint32_t *)(void *)((char *)m + m->least);
}

/* Marks a group, if `when` holds; without a branch, for the callers cannot foretell it. */
static inline void gm_minima_make_stale(struct gm_minima *m, uint32_t group, bool when)
{
	uint64_t *stale = (uint64_t *)(void *)((char *)m + m->stale);

	stale[group / 64] |= (uint64_t)when << group % 64;
}

static inline bool gm_minima_has(struct gm_minima *m, uint32_t item)
{
	return !(gm_minima_keys(m)[item] & GM_MINIMA_ABSENT);
}

static inline uint64_t gm_minima_value(struct gm_minima *m, uint32_t item)
{
	return gm_minima_keys(m)[item] & ~GM_MINIMA_ABSENT;
}

/* For items that are not in the pool; in the pool, gm_minima_enter or gm_minima_make_stale must follow. */
static inline void gm_minima_set_value(struct gm_minima *m, uint32_t item, uint64_t value)
{
	uint64_t *key = &gm_minima_keys(m)[item];

	*key = (*key & GM_MINIMA_ABSENT) | value;
}

/* The arrays that change at accesses, looked up once for all of an event's. */
struct gm_minima_arrays {
	uint64_t *key, *tie, *stale;
	const uint32_t *least;
};

static inline struct gm_minima_arrays gm_minima_arrays(struct gm_minima *m)
{
	return (struct gm_minima_arrays){
		.key = gm_minima_keys(m),
		.tie = gm_minima_ties(m),
		.stale = (uint64_t *)(void *)((char *)m + m->stale),
		.least = gm_minima_leasts(m),
	};
}

/* The value of an item grew, or its tie did. key: the value, with GM_MINIMA_ABSENT as it was. */
static inline void gm_minima_grow(const struct gm_minima_arrays *a, uint32_t item, uint64_t key, uint64_t tie)
{
	uint32_t group = item / GM_MINIMA_GROUP;

	a->key[item] = key;
	a->tie[item] = tie;
	/* without a branch, for nobody can foretell it */
	a->stale[group / 64] |= (uint64_t)(a->least[group] == item) << group % 64;
}

/* An item is in the pool from now on, or its value shrank there. */
static inline void gm_minima_enter(struct gm_minima *m, uint32_t item)
{
	uint32_t group = item / GM_MINIMA_GROUP;
	uint64_t *least_key = (uint64_t *)(void *)((char *)m + m->least_key);
	uint64_t *least_tie = (uint64_t *)(void *)((char *)m + m->least_tie);
	uint64_t key = gm_minima_value(m, item), tie = gm_minima_ties(m)[item];

	gm_minima_keys(m)[item] = key;
	if (key < least_key[group] || (key == least_key[group] && tie < least_tie[group])) {
		least_key[group] = key;
		least_tie[group] = tie;
		gm_minima_leasts(m)[group] = item;
	}
}

/* To be called at the start of every access: what entered since the last one has lost its pin. */
static inline void gm_minima_enter_pending(struct gm_minima *m)
{
	const uint32_t *pending = (const uint32_t *)(const void *)((const char *)m + m->pending);

	for (uint32_t i = 0; i < m->n_pending; i++)
		gm_minima_enter(m, pending[i]);
	m->n_pending = 0;
}

/* Parts of struct gm_evict_ops, for a state that begins with a struct gm_minima: the victim is the candidate with the smallest value, then the
 * smallest tie (ties must be unique among items of equal value). */
void gm_minima_reserve(void *state, uint32_t item);
void gm_minima_land(void *state, uint32_t item);
uint32_t gm_minima_victim(void *state, const struct gm_candidates *candidates, uint32_t incoming);
void gm_minima_forget(void *state, uint32_t item);

/* Among the candidates with keys of at most `limit`, the one that comes before all others by `before`; GM_NO_ITEM if there is none. For policies
 * whose keys are rounded: the victim is asked for first, and then who else is so close to it that rounding could have decided. */
uint32_t gm_minima_first(struct gm_minima *minima, const struct gm_candidates *candidates, uint64_t limit,
			 bool (*before)(struct gm_minima *minima, uint64_t token, uint32_t a, uint32_t b));

#endif
