#include "policies/minima.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#endif

enum gm_vector { GM_VECTOR_NONE, GM_VECTOR_AVX512 };

static void *at(struct gm_minima *m, uint32_t offset)
{
	return (char *)m + offset;
}

static uint32_t take(uint32_t *end, size_t bytes)
{
	uint32_t offset = *end;

	*end += (uint32_t)((bytes + 63) / 64 * 64);
	return offset;
}

static uint32_t lay_out(struct gm_minima *m, uint32_t n_item)
{
	uint32_t end = 0;

	m->n_item = n_item;
	/* whole vectors of groups */
	m->n_group = ((n_item + GM_MINIMA_GROUP - 1) / GM_MINIMA_GROUP + 7) / 8 * 8;
	take(&end, sizeof(*m));
	m->key = take(&end, (size_t)m->n_group * GM_MINIMA_GROUP * sizeof(uint64_t));
	m->tie = take(&end, (size_t)m->n_group * GM_MINIMA_GROUP * sizeof(uint64_t));
	m->least_key = take(&end, m->n_group * sizeof(uint64_t));
	m->least_tie = take(&end, m->n_group * sizeof(uint64_t));
	m->least = take(&end, m->n_group * sizeof(uint32_t));
	m->stale = take(&end, m->n_group);
	m->stale_list = take(&end, m->n_group * sizeof(uint32_t));
	return end;
}

size_t gm_minima_bytes(uint32_t n_item)
{
	struct gm_minima plan;

	return lay_out(&plan, n_item);
}

static enum gm_vector best_vector(void)
{
#if HAVE_X86
	if (__builtin_cpu_supports("avx512f"))
		return GM_VECTOR_AVX512;
#endif
	return GM_VECTOR_NONE;
}

void gm_minima_init(struct gm_minima *m, uint32_t n_item)
{
	lay_out(m, n_item);
	m->n_stale = 0;
	m->vector = best_vector();
	for (uint32_t i = 0; i < m->n_group * GM_MINIMA_GROUP; i++) {
		gm_minima_keys(m)[i] = GM_MINIMA_ABSENT;
		gm_minima_ties(m)[i] = 0;
	}
	for (uint32_t g = 0; g < m->n_group; g++) {
		((uint64_t *)at(m, m->least_key))[g] = GM_MINIMA_ABSENT;
		((uint64_t *)at(m, m->least_tie))[g] = 0;
		((uint32_t *)at(m, m->least))[g] = GM_NO_ITEM;
		((uint8_t *)at(m, m->stale))[g] = 0;
	}
}

/* --- scans, plain and vectorised --- */

/* What a scan of one group found. */
struct scan {
	uint64_t least; /* smallest key of the unpinned items, GM_MINIMA_ABSENT: none */
	unsigned bits;  /* the items that have it */
	bool pinned;    /* some item was left out because it is pinned */
};

static struct scan scan_plain(const uint64_t *key, const uint32_t *pin, uint32_t stamp)
{
	struct scan scan = {.least = GM_MINIMA_ABSENT};

	for (uint32_t i = 0; i < GM_MINIMA_GROUP; i++) {
		if (key[i] == GM_MINIMA_ABSENT)
			continue;
		if (pin[i] == stamp) {
			scan.pinned = true;
		} else if (key[i] <= scan.least) {
			scan.bits = key[i] < scan.least ? 1u << i : scan.bits | 1u << i;
			scan.least = key[i];
		}
	}
	return scan;
}

/* The group among n with the smallest key, ties by tie; UINT32_MAX if all are empty. */
static uint32_t least_plain(const uint64_t *key, const uint64_t *tie, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++)
		if (key[i] < key[best] || (key[i] == key[best] && tie[i] < tie[best]))
			best = i;
	return key[best] == GM_MINIMA_ABSENT ? UINT32_MAX : best;
}

#if HAVE_X86
__attribute__((target("avx512f"))) static struct scan scan_avx512(const uint64_t *key, const uint32_t *pin, uint32_t stamp)
{
	__m512i absent = _mm512_set1_epi64(-1);
	__m512i low = _mm512_loadu_si512(key), high = _mm512_loadu_si512(key + 8);
	__mmask16 pinned = _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(pin), _mm512_set1_epi32((int)stamp));
	__mmask8 low_pinned = _mm512_mask_cmpneq_epi64_mask((__mmask8)pinned, low, absent);
	__mmask8 high_pinned = _mm512_mask_cmpneq_epi64_mask((__mmask8)(pinned >> 8), high, absent);
	struct scan scan = {.pinned = (low_pinned | high_pinned) != 0};

	low = _mm512_mask_mov_epi64(low, low_pinned, absent);
	high = _mm512_mask_mov_epi64(high, high_pinned, absent);
	scan.least = _mm512_reduce_min_epu64(_mm512_min_epu64(low, high));
	if (scan.least != GM_MINIMA_ABSENT) {
		__m512i all = _mm512_set1_epi64((long long)scan.least);

		scan.bits = (unsigned)_mm512_cmpeq_epi64_mask(low, all) | (unsigned)_mm512_cmpeq_epi64_mask(high, all) << 8;
	}
	return scan;
}

__attribute__((target("avx512f"))) static uint32_t least_avx512(const uint64_t *key, const uint64_t *tie, uint32_t n)
{
	__m512i least = _mm512_loadu_si512(key);
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 8; i < n; i += 8)
		least = _mm512_min_epu64(least, _mm512_loadu_si512(key + i));
	__m512i all = _mm512_set1_epi64((long long)_mm512_reduce_min_epu64(least));

	if ((uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(all)) == GM_MINIMA_ABSENT)
		return UINT32_MAX;
	for (uint32_t i = 0; i < n; i += 8) {
		for (unsigned bits = _mm512_cmpeq_epi64_mask(_mm512_loadu_si512(key + i), all); bits; bits &= bits - 1) {
			uint32_t g = i + (uint32_t)__builtin_ctz(bits);

			best = best == UINT32_MAX || tie[g] < tie[best] ? g : best;
		}
	}
	return best;
}
#endif

/* --- groups --- */

/* Pins of a group's 16 items; the last group may reach past the end of the pool's pins. */
static const uint32_t *group_pins(const struct gm_minima *m, const struct gm_candidates *c, uint32_t group, uint32_t *room)
{
	uint32_t first = group * GM_MINIMA_GROUP;

	if (first + GM_MINIMA_GROUP <= m->n_item)
		return c->pin + first;
	for (uint32_t i = 0; i < GM_MINIMA_GROUP; i++)
		room[i] = first + i < m->n_item ? c->pin[first + i] : c->stamp;
	return room;
}

/* Brings one group up to date; true if a pinned item was left out. */
static bool refresh(struct gm_minima *m, const struct gm_candidates *c, uint32_t group)
{
	const uint64_t *key = gm_minima_keys(m) + group * GM_MINIMA_GROUP,
		       *tie = gm_minima_ties(m) + group * GM_MINIMA_GROUP;
	uint32_t room[GM_MINIMA_GROUP];
	const uint32_t *pin = group_pins(m, c, group, room);
	struct scan scan;

#if HAVE_X86
	if (m->vector == GM_VECTOR_AVX512)
		scan = scan_avx512(key, pin, c->stamp);
	else
#endif
		scan = scan_plain(key, pin, c->stamp);
	uint32_t best = scan.bits ? (uint32_t)__builtin_ctz(scan.bits) : 0;

	for (unsigned bits = scan.bits & (scan.bits - 1); bits; bits &= bits - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(bits);

		best = tie[i] < tie[best] ? i : best;
	}
	((uint64_t *)at(m, m->least_key))[group] = scan.least;
	((uint64_t *)at(m, m->least_tie))[group] = tie[best];
	((uint32_t *)at(m, m->least))[group] = scan.bits ? group * GM_MINIMA_GROUP + best : GM_NO_ITEM;
	return scan.pinned;
}

/* Brings the stale groups up to date. A group with a pinned item stays stale: the pin holds for this event only. */
static void refresh_stale(struct gm_minima *m, const struct gm_candidates *c)
{
	uint32_t *list = at(m, m->stale_list);
	uint8_t *stale = at(m, m->stale);
	uint32_t kept = 0;

	for (uint32_t s = 0; s < m->n_stale; s++) {
		uint32_t group = list[s];

		stale[group] = refresh(m, c, group);
		if (stale[group])
			list[kept++] = group;
	}
	m->n_stale = kept;
}

static uint32_t least_group(struct gm_minima *m)
{
	const uint64_t *key = at(m, m->least_key), *tie = at(m, m->least_tie);

#if HAVE_X86
	if (m->vector == GM_VECTOR_AVX512)
		return least_avx512(key, tie, m->n_group);
#endif
	return least_plain(key, tie, m->n_group);
}

uint32_t gm_minima_least(struct gm_minima *m, const struct gm_candidates *c)
{
	const uint32_t *least = at(m, m->least);

	for (;;) {
		refresh_stale(m, c);
		uint32_t group = least_group(m);

		if (group == UINT32_MAX)
			return GM_NO_ITEM;
		if (gm_is_candidate(c, least[group]))
			return least[group];
		gm_minima_make_stale(m, group); /* remembered before it was pinned */
	}
}
