#include "policies/minima.h"

#include "policies/machine.h"

#include <string.h>

#define LANE 8u /* keys that are looked at side by side */

static uint32_t padded(uint32_t n_item)
{
	return (n_item + LANE - 1) / LANE * LANE;
}

size_t gm_minima_bytes(uint32_t n_item)
{
	return sizeof(struct gm_minima) + padded(n_item) * (sizeof(uint64_t) + sizeof(uint32_t) + sizeof(uint8_t));
}

static void set_front(struct gm_minima *m, uint32_t n, uint64_t bound)
{
	m->n_front = n;
	m->bound = bound;
	for (uint32_t i = n; i < GM_MINIMA_FRONT; i++)
		m->front_key[i] = GM_MINIMA_ABSENT;
}

void gm_minima_empty(struct gm_minima *m)
{
	for (uint32_t i = 0; i < m->n_padded; i++)
		m->key[i] |= GM_MINIMA_ABSENT;
	m->n_pending = 0;
	set_front(m, 0, GM_MINIMA_ABSENT);
}

void gm_minima_init(struct gm_minima *m, uint32_t n_item, bool again)
{
	m->n_item = n_item;
	m->n_padded = padded(n_item);
	m->avx2 = gm_has_avx2();
	if (again)
		memset(m->key, 0, m->n_padded * sizeof(*m->key));
	gm_minima_empty(m);
}

/* --- looks at some keys, plain and vectorised --- */

/* The least of keys [n], n > 0 a multiple of LANE, in each of 8 interleaved lists. */
static void leasts_plain(const uint64_t *key, uint32_t n, uint64_t least[LANE])
{
	memcpy(least, key, LANE * sizeof(*least));
	for (uint32_t i = LANE; i < n; i += LANE)
		for (uint32_t lane = 0; lane < LANE; lane++)
			least[lane] = key[i + lane] < least[lane] ? key[i + lane] : least[lane];
}

/* Which of keys [n], n <= 64 a multiple of LANE, are at most `limit`, as bits. */
static uint64_t up_to_plain(const uint64_t *key, uint32_t n, uint64_t limit)
{
	uint64_t bits = 0;

	for (uint32_t i = 0; i < n; i++)
		bits |= (uint64_t)(key[i] <= limit) << i;
	return bits;
}

#if GM_HAVE_X86
GM_AVX2 static __m256i load(const uint64_t *key)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)key);
}

GM_AVX2 static __m256i lesser(__m256i a, __m256i b)
{
	return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b));
}

GM_AVX2 static void leasts_avx2(const uint64_t *key, uint32_t n, uint64_t least[LANE])
{
	__m256i low = load(key), high = load(key + 4);

	for (uint32_t i = LANE; i < n; i += LANE) {
		low = lesser(low, load(key + i));
		high = lesser(high, load(key + i + 4));
	}
	_mm256_storeu_si256((__m256i *)(void *)least, low);
	_mm256_storeu_si256((__m256i *)(void *)(least + 4), high);
}

GM_AVX2 static uint64_t up_to_avx2(const uint64_t *key, uint32_t n, uint64_t limit)
{
	__m256i all = _mm256_set1_epi64x((long long)limit);
	uint64_t above = 0;

	for (uint32_t i = 0; i < n; i += LANE) {
		__m256i low = _mm256_cmpgt_epi64(load(key + i), all), high = _mm256_cmpgt_epi64(load(key + i + 4), all);
		unsigned bits = (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(low)) |
				(unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(high)) << 4;

		above |= (uint64_t)bits << i;
	}
	return ~above & (~UINT64_C(0) >> (64 - n));
}
#endif

static void leasts(const struct gm_minima *m, const uint64_t *key, uint32_t n, uint64_t least[LANE])
{
#if GM_HAVE_X86
	if (m->avx2) {
		leasts_avx2(key, n, least);
		return;
	}
#endif
	leasts_plain(key, n, least);
}

static uint64_t up_to(const struct gm_minima *m, const uint64_t *key, uint32_t n, uint64_t limit)
{
#if GM_HAVE_X86
	if (m->avx2)
		return up_to_avx2(key, n, limit);
#endif
	return up_to_plain(key, n, limit);
}

/* --- the front --- */

static void put(struct gm_minima *m, uint32_t place, uint32_t item, uint64_t key)
{
	m->front_key[place] = key;
	m->front[place] = item;
	gm_minima_place(m)[item] = (uint8_t)place;
}

/* Only the smaller half of a full front stays; less where keys are equal. */
static void halve(struct gm_minima *m)
{
	uint64_t bound = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < GM_MINIMA_FRONT && bound == 0; i++) {
		uint32_t n_smaller = 0;

		for (uint32_t j = 0; j < GM_MINIMA_FRONT; j++)
			n_smaller += m->front_key[j] < m->front_key[i];
		if (n_smaller <= GM_MINIMA_FRONT / 2 && n_smaller > GM_MINIMA_FRONT / 4)
			bound = m->front_key[i];
	}
	for (uint32_t i = 0; i < GM_MINIMA_FRONT; i++) {
		if (m->front_key[i] >= bound)
			continue;
		put(m, n++, m->front[i], m->front_key[i]);
	}
	set_front(m, n, bound);
}

static void add(struct gm_minima *m, uint32_t item, uint64_t key)
{
	if (m->n_front == GM_MINIMA_FRONT) {
		halve(m);
		if (key >= m->bound)
			return;
	}
	put(m, m->n_front++, item, key);
}

static void take_out(struct gm_minima *m, uint32_t item)
{
	uint32_t last = --m->n_front;

	put(m, gm_minima_place(m)[item], m->front[last], m->front_key[last]);
	m->front_key[last] = GM_MINIMA_ABSENT;
}

void gm_minima_withdraw(struct gm_minima *m, uint32_t item, uint64_t old)
{
	if (old < m->bound)
		take_out(m, item);
	m->key[item] |= GM_MINIMA_ABSENT;
	gm_minima_land(m, item);
}

void gm_minima_enter_pending(struct gm_minima *m)
{
	const uint32_t *pending = gm_minima_pending(m);

	for (uint32_t i = 0; i < m->n_pending; i++) {
		uint32_t item = pending[i];
		uint64_t key = gm_minima_key(m, item);
		bool in_front = key < m->bound;

		m->key[item] = key;
		/* where there is room it is put there, and counts or not: nobody can foretell which of them do */
		if (m->n_front < GM_MINIMA_FRONT) {
			put(m, m->n_front, item, key);
			m->n_front += in_front;
		} else if (in_front) {
			add(m, item, key);
		}
	}
	m->n_pending = 0;
}

/* A bound below which there are about 20 keys of the pool: of each of 8 interleaved lists, the least. */
static uint64_t choose_bound(const struct gm_minima *m)
{
	uint64_t least[LANE], most = 0;

	leasts(m, m->key, m->n_padded, least);
	for (uint32_t i = 0; i < LANE; i++)
		if (least[i] < GM_MINIMA_ABSENT && least[i] > most)
			most = least[i];
	return most + 1;
}

/* Those of the event's requests that are in the pool, none of them in the front: they enter at the next access. */
static void withdraw_requests(struct gm_minima *m, const struct gm_requests *requests)
{
	for (uint32_t i = 0; i < requests->n; i++) {
		uint32_t item = requests->first_item + requests->expert[i];

		if (!gm_minima_has(m, item))
			continue;
		m->key[item] |= GM_MINIMA_ABSENT;
		gm_minima_land(m, item);
	}
}

/* A new front. */
static void refill(struct gm_minima *m, const struct gm_candidates *candidates)
{
	if (candidates->requests)
		withdraw_requests(m, candidates->requests);
	set_front(m, 0, choose_bound(m));
	for (uint32_t first = 0; first < m->n_padded; first += 64) {
		uint32_t n = m->n_padded - first < 64 ? m->n_padded - first : 64;

		for (uint64_t bits = up_to(m, m->key + first, n, m->bound - 1); bits; bits &= bits - 1) {
			uint32_t item = first + (uint32_t)__builtin_ctzll(bits);

			if (m->key[item] < m->bound) /* a full front lowers it */
				add(m, item, m->key[item]);
		}
	}
}

/* --- the least --- */

struct least {
	uint64_t key;
	uint32_t at;
};

/* One more key, without a branch. */
static GM_INNER void take(struct least *least, const uint64_t *key, uint32_t i)
{
	least->at = key[i] < least->key ? i : least->at;
	least->key = key[i] < least->key ? key[i] : least->key;
}

/* The item of the front with the smallest key; the front is not empty. Without vectors: these keys were written one by one and a moment ago, and
 * a wide load would have to wait until all of them are in the cache. Eight keys at a time and two chains of comparisons, since nobody can foretell
 * how many keys there are, nor which is smaller. */
static uint32_t least_of_front(const struct gm_minima *m)
{
	struct least even = {m->front_key[0], 0}, odd = {m->front_key[1], 1};

	for (uint32_t i = 0; i < m->n_front; i += 8) {
		take(&even, m->front_key, i);
		take(&odd, m->front_key, i + 1);
		take(&even, m->front_key, i + 2);
		take(&odd, m->front_key, i + 3);
		take(&even, m->front_key, i + 4);
		take(&odd, m->front_key, i + 5);
		take(&even, m->front_key, i + 6);
		take(&odd, m->front_key, i + 7);
	}
	return m->front[odd.key < even.key ? odd.at : even.at];
}

/* Among some items (item NULL: all), the candidate with the smallest key. */
static uint32_t least_candidate_of(const struct gm_minima *m, const uint32_t *item, uint32_t n,
				   const struct gm_candidates *candidates)
{
	uint32_t least = GM_NO_ITEM;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t e = item ? item[i] : i;

		if (gm_minima_has(m, e) && gm_is_candidate(candidates, e) &&
		    (least == GM_NO_ITEM || m->key[e] < m->key[least]))
			least = e;
	}
	return least;
}

static uint32_t least_candidate(struct gm_minima *m, const struct gm_candidates *candidates)
{
	for (bool fresh = m->bound == GM_MINIMA_ABSENT;; fresh = true) {
		uint32_t item = m->n_front ? least_of_front(m) : GM_NO_ITEM;

		if (item != GM_NO_ITEM && !gm_is_candidate(candidates, item)) /* a substitute */
			item = least_candidate_of(m, m->front, m->n_front, candidates);
		if (item != GM_NO_ITEM)
			return item;
		if (fresh)
			return least_candidate_of(m, NULL, m->n_item, candidates);
		refill(m, candidates);
	}
}

uint32_t gm_minima_victim(void *state, const struct gm_candidates *candidates, uint32_t incoming)
{
	(void)incoming;
	return least_candidate(state, candidates);
}

static uint32_t first_of_all(struct gm_minima *m, const struct gm_candidates *candidates, uint64_t limit,
			     const struct gm_minima_near *near)
{
	uint32_t first = GM_NO_ITEM;

	for (uint32_t i = 0; i < m->n_item; i++)
		if (m->key[i] <= limit && gm_is_candidate(candidates, i) &&
		    (first == GM_NO_ITEM || near->before(m, candidates->token, i, first)))
			first = i;
	return first;
}

uint32_t gm_minima_victim_near(struct gm_minima *m, const struct gm_candidates *candidates,
			       const struct gm_minima_near *near)
{
	uint32_t first = least_candidate(m, candidates);
	uint64_t limit, near_bits;

	if (first == GM_NO_ITEM)
		return first;
	limit = near->limit(m->key[first]);
	if (limit >= m->bound && m->bound < GM_MINIMA_ABSENT)
		refill(m, candidates);
	if (limit >= m->bound)
		return first_of_all(m, candidates, limit, near);
	near_bits = up_to(m, m->front_key, GM_MINIMA_FRONT, limit);
	if ((near_bits & (near_bits - 1)) == 0) /* nearly always */
		return first;
	for (; near_bits; near_bits &= near_bits - 1) {
		uint32_t item = m->front[__builtin_ctzll(near_bits)];

		if (item != first && gm_is_candidate(candidates, item) && near->before(m, candidates->token, item, first))
			first = item;
	}
	return first;
}

void gm_minima_expect(void *state, const struct gm_requests *requests)
{
	const struct gm_minima *m = state;

	for (uint32_t i = 0; i < requests->n; i++)
		gm_prefetch(&m->key[requests->first_item + requests->expert[i]]);
}

void gm_minima_reserve(void *state, uint32_t item)
{
	(void)state, (void)item; /* a reserved item is no candidate */
}

void gm_minima_land(void *state, uint32_t item)
{
	struct gm_minima *m = state;

	gm_minima_pending(m)[m->n_pending++] = item;
}

void gm_minima_forget(void *state, uint32_t item)
{
	struct gm_minima *m = state;

	if (m->key[item] < m->bound)
		take_out(m, item);
	m->key[item] |= GM_MINIMA_ABSENT;
}
