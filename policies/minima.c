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
	m->stale = take(&end, (m->n_group + 63) / 64 * sizeof(uint64_t));
	m->pending = take(&end, n_item * sizeof(uint32_t));
	m->end = end;
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

void gm_minima_empty(struct gm_minima *m)
{
	m->n_pending = 0;
	for (uint32_t i = 0; i < m->n_group * GM_MINIMA_GROUP; i++)
		gm_minima_keys(m)[i] |= GM_MINIMA_ABSENT;
	for (uint32_t g = 0; g < m->n_group; g++) {
		((uint64_t *)at(m, m->least_key))[g] = GM_MINIMA_NONE;
		((uint64_t *)at(m, m->least_tie))[g] = 0;
		((uint64_t *)at(m, m->stale))[g / 64] = 0;
		gm_minima_leasts(m)[g] = GM_NO_ITEM;
	}
}

void gm_minima_init(struct gm_minima *m, uint32_t n_item)
{
	lay_out(m, n_item);
	m->vector = best_vector();
	for (uint32_t i = 0; i < m->n_group * GM_MINIMA_GROUP; i++)
		gm_minima_keys(m)[i] = gm_minima_ties(m)[i] = 0;
	gm_minima_empty(m);
}

/* --- scans, plain and vectorised --- */

/* The items of a group that have its smallest key, as bits; 0: the group is empty, *least is GM_MINIMA_NONE. */
static unsigned scan_plain(const uint64_t *key, uint64_t *least)
{
	unsigned bits = 0;

	*least = GM_MINIMA_ABSENT - 1;
	for (uint32_t i = 0; i < GM_MINIMA_GROUP; i++) {
		if (key[i] <= *least) {
			bits = key[i] < *least ? 1u << i : bits | 1u << i;
			*least = key[i];
		}
	}
	*least = bits ? *least : GM_MINIMA_NONE;
	return bits;
}

/* The group among n with the smallest key, ties by tie; UINT32_MAX if all are empty. */
static uint32_t least_plain(const uint64_t *key, const uint64_t *tie, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++)
		if (key[i] < key[best] || (key[i] == key[best] && tie[i] < tie[best]))
			best = i;
	return key[best] == GM_MINIMA_NONE ? UINT32_MAX : best;
}

#if HAVE_X86
__attribute__((target("avx512f"))) static unsigned scan_avx512(const uint64_t *key, uint64_t *least)
{
	__m512i low = _mm512_loadu_si512(key), high = _mm512_loadu_si512(key + 8);

	*least = _mm512_reduce_min_epu64(_mm512_min_epu64(low, high));
	if (*least >= GM_MINIMA_ABSENT) {
		*least = GM_MINIMA_NONE;
		return 0;
	}
	__m512i all = _mm512_set1_epi64((long long)*least);

	return (unsigned)_mm512_cmpeq_epi64_mask(low, all) | (unsigned)_mm512_cmpeq_epi64_mask(high, all) << 8;
}

/* The same among the items without a pin. */
__attribute__((target("avx512f"))) static unsigned scan_unpinned_avx512(const uint64_t *key, const uint32_t *pin,
									uint32_t stamp, uint64_t *least)
{
	__m512i absent = _mm512_set1_epi64(-1);
	__mmask16 pinned = _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(pin), _mm512_set1_epi32((int)stamp));
	__m512i low = _mm512_mask_mov_epi64(_mm512_loadu_si512(key), (__mmask8)pinned, absent);
	__m512i high = _mm512_mask_mov_epi64(_mm512_loadu_si512(key + 8), (__mmask8)(pinned >> 8), absent);

	*least = _mm512_reduce_min_epu64(_mm512_min_epu64(low, high));
	if (*least >= GM_MINIMA_ABSENT) {
		*least = GM_MINIMA_NONE;
		return 0;
	}
	__m512i all = _mm512_set1_epi64((long long)*least);

	return (unsigned)_mm512_cmpeq_epi64_mask(low, all) | (unsigned)_mm512_cmpeq_epi64_mask(high, all) << 8;
}

__attribute__((target("avx512f"))) static uint32_t least_avx512(const uint64_t *key, const uint64_t *tie, uint32_t n)
{
	__m512i least = _mm512_loadu_si512(key);
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 8; i < n; i += 8)
		least = _mm512_min_epu64(least, _mm512_loadu_si512(key + i));
	__m512i all = _mm512_set1_epi64((long long)_mm512_reduce_min_epu64(least));

	if ((uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(all)) == GM_MINIMA_NONE)
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

/* The one among some items of a group (bits, of equal key) with the smallest tie becomes the group's least. */
static void set_least(struct gm_minima *m, uint32_t group, uint64_t least, unsigned bits)
{
	const uint64_t *tie = gm_minima_ties(m) + (size_t)group * GM_MINIMA_GROUP;
	uint32_t best = bits ? (uint32_t)__builtin_ctz(bits) : 0;

	for (unsigned rest = bits & (bits - 1); rest; rest &= rest - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(rest);

		best = tie[i] < tie[best] ? i : best;
	}
	((uint64_t *)at(m, m->least_key))[group] = least;
	((uint64_t *)at(m, m->least_tie))[group] = tie[best];
	gm_minima_leasts(m)[group] = bits ? group * GM_MINIMA_GROUP + best : GM_NO_ITEM;
}

static void refresh(struct gm_minima *m, uint32_t group)
{
	const uint64_t *key = gm_minima_keys(m) + (size_t)group * GM_MINIMA_GROUP;
	uint64_t least;
	unsigned bits;

#if HAVE_X86
	if (m->vector == GM_VECTOR_AVX512)
		bits = scan_avx512(key, &least);
	else
#endif
		bits = scan_plain(key, &least);
	set_least(m, group, least, bits);
}

static void refresh_stale(struct gm_minima *m)
{
	uint64_t *stale = at(m, m->stale);

	for (uint32_t word = 0; word < (m->n_group + 63) / 64; word++) {
		for (; stale[word]; stale[word] &= stale[word] - 1)
			refresh(m, word * 64 + (uint32_t)__builtin_ctzll(stale[word]));
	}
}

static unsigned scan_unpinned_plain(const uint64_t *key, const uint32_t *pin, uint32_t stamp, uint32_t n, uint64_t *least)
{
	unsigned bits = 0;

	*least = GM_MINIMA_ABSENT - 1;
	for (uint32_t i = 0; i < n; i++) {
		if (key[i] > *least || pin[i] == stamp)
			continue;
		bits = key[i] < *least ? 1u << i : bits | 1u << i;
		*least = key[i];
	}
	*least = bits ? *least : GM_MINIMA_NONE;
	return bits;
}

/* A group whose least is pinned: its least among the others, for this question only. Items with a key are resident. */
static void set_least_candidate(struct gm_minima *m, const struct gm_candidates *c, uint32_t group)
{
	uint32_t first = group * GM_MINIMA_GROUP, left = m->n_item - first;
	const uint64_t *key = gm_minima_keys(m) + first;
	uint64_t least;
	unsigned bits;

#if HAVE_X86
	if (m->vector == GM_VECTOR_AVX512 && left >= GM_MINIMA_GROUP)
		bits = scan_unpinned_avx512(key, c->pin + first, c->stamp, &least);
	else
#endif
		bits = scan_unpinned_plain(key, c->pin + first, c->stamp, left < GM_MINIMA_GROUP ? left : GM_MINIMA_GROUP,
					   &least);
	set_least(m, group, least, bits);
	gm_minima_make_stale(m, group, true);
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

uint32_t gm_minima_victim(void *state, const struct gm_candidates *candidates, uint32_t incoming)
{
	struct gm_minima *m = state;
	const uint32_t *least = gm_minima_leasts(m);

	(void)incoming;
	refresh_stale(m);
	for (;;) {
		uint32_t group = least_group(m);

		if (group == UINT32_MAX)
			return GM_NO_ITEM;
		if (gm_is_candidate(candidates, least[group]))
			return least[group];
		set_least_candidate(m, candidates, group);
	}
}

void gm_minima_reserve(void *state, uint32_t item)
{
	(void)state, (void)item; /* a reserved item is no candidate */
}

void gm_minima_land(void *state, uint32_t item)
{
	struct gm_minima *m = state;

	((uint32_t *)at(m, m->pending))[m->n_pending++] = item;
}

void gm_minima_forget(void *state, uint32_t item)
{
	struct gm_minima *m = state;

	gm_minima_keys(m)[item] |= GM_MINIMA_ABSENT;
	gm_minima_make_stale(m, item / GM_MINIMA_GROUP, gm_minima_leasts(m)[item / GM_MINIMA_GROUP] == item);
}

uint32_t gm_minima_first(struct gm_minima *m, const struct gm_candidates *candidates, uint64_t limit,
			 bool (*before)(struct gm_minima *minima, uint64_t token, uint32_t a, uint32_t b))
{
	const uint64_t *least_key = at(m, m->least_key), *key = gm_minima_keys(m);
	uint32_t first = GM_NO_ITEM;

	for (uint32_t group = 0; group < m->n_group; group++) {
		if (least_key[group] > limit)
			continue;
		for (uint32_t item = group * GM_MINIMA_GROUP; item < (group + 1) * GM_MINIMA_GROUP; item++) {
			if (key[item] > limit || !gm_is_candidate(candidates, item))
				continue;
			if (first == GM_NO_ITEM || before(m, candidates->token, item, first))
				first = item;
		}
	}
	return first;
}
