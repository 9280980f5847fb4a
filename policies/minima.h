/* The smallest of many keys, changed often and asked for seldom: minima in two levels.
 *
 * Items lie in groups of 16. Each group remembers its smallest (key, then tie) as long as no change made it stale; asking brings
 * the stale groups up to date and compares groups. A change costs a few instructions, a question a few scans of 16, vectorised where the
 * machine can (with a scalar twin that gives the same answers). Keys of items that are not in the pool are GM_MINIMA_ABSENT.
 */
#ifndef GM_POLICIES_MINIMA_H
#define GM_POLICIES_MINIMA_H

#include "policies/policy.h"

#define GM_MINIMA_ABSENT UINT64_MAX
#define GM_MINIMA_GROUP 16u

/* All of it lies in one flat block: the struct, then its arrays. */
struct gm_minima {
	uint32_t n_item, n_group;
	uint32_t key, tie;             /* offsets of uint64_t [n_group * 16] */
	uint32_t least_key, least_tie; /* offsets of uint64_t [n_group]: of the group's smallest */
	uint32_t least;                /* offset of uint32_t [n_group]: the item, GM_NO_ITEM if the group is empty */
	uint32_t stale;                /* offset of uint8_t [n_group] */
	uint32_t stale_list;           /* offset of uint32_t [n_group] */
	uint32_t n_stale;
	uint32_t vector; /* enum gm_vector: what this machine can */
};

size_t gm_minima_bytes(uint32_t n_item);
void gm_minima_init(struct gm_minima *minima, uint32_t n_item);

static inline uint64_t *gm_minima_keys(struct gm_minima *m)
{
	return (uint64_t *)(void *)((char *)m + m->key);
}

static inline uint64_t *gm_minima_ties(struct gm_minima *m)
{
	return (uint64_t *)(void *)((char *)m + m->tie);
}

static inline void gm_minima_make_stale(struct gm_minima *m, uint32_t group)
{
	uint8_t *stale = (uint8_t *)m + m->stale;

	if (!stale[group]) {
		stale[group] = 1;
		((uint32_t *)(void *)((char *)m + m->stale_list))[m->n_stale++] = group;
	}
}

static inline uint32_t *gm_minima_leasts(struct gm_minima *m)
{
	return (uint32_t *)(void *)((char *)m + m->least);
}

/* The key of an item in the pool grew, or its tie did. */
static inline void gm_minima_grew(struct gm_minima *m, uint32_t item, uint64_t key, uint64_t tie)
{
	uint32_t group = item / GM_MINIMA_GROUP;

	gm_minima_keys(m)[item] = key;
	gm_minima_ties(m)[item] = tie;
	if (gm_minima_leasts(m)[group] == item)
		gm_minima_make_stale(m, group);
}

/* An item enters the pool, or its key shrank. */
static inline void gm_minima_enter(struct gm_minima *m, uint32_t item, uint64_t key, uint64_t tie)
{
	uint32_t group = item / GM_MINIMA_GROUP;
	uint64_t *least_key = (uint64_t *)(void *)((char *)m + m->least_key);
	uint64_t *least_tie = (uint64_t *)(void *)((char *)m + m->least_tie);

	gm_minima_keys(m)[item] = key;
	gm_minima_ties(m)[item] = tie;
	if (key < least_key[group] || (key == least_key[group] && tie < least_tie[group])) {
		least_key[group] = key;
		least_tie[group] = tie;
		gm_minima_leasts(m)[group] = item;
	}
}

static inline void gm_minima_leave(struct gm_minima *m, uint32_t item)
{
	uint32_t group = item / GM_MINIMA_GROUP;

	gm_minima_keys(m)[item] = GM_MINIMA_ABSENT;
	if (gm_minima_leasts(m)[group] == item)
		gm_minima_make_stale(m, group);
}

/* The candidate with the smallest key, then the smallest tie (ties must be unique among items of equal key); GM_NO_ITEM if there is none. */
uint32_t gm_minima_least(struct gm_minima *minima, const struct gm_candidates *candidates);

#endif
