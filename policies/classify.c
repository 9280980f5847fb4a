/* R7 for one row: which picks are hits. */
#include "policies/core_private.h"
#include "policies/resident.h"

static void classify_plain(struct event *ev)
{
	const uint8_t *residency = ev->residency;
	const uint16_t *pick = ev->pick;
	uint32_t *list = ev->s->missed, n_missed = 0, top_k = ev->top_k;
	uint8_t *class = ev->s->class;
	uint64_t missed = 0;

	for (uint32_t r = 0; r < top_k; r++) {
		uint8_t of_pick = gm_event_class_of(residency[pick[r]]);
		bool is = of_pick != GM_HIT;

		class[r] = of_pick;
		list[n_missed] = r;
		n_missed += is;
		missed |= (uint64_t)is << r % GM_MAX_PICK;
	}
	ev->missed = missed;
	ev->n_missed = n_missed;
}

static uint64_t find_misses_plain(const uint8_t *residency, const uint16_t *pick, uint32_t top_k)
{
	uint64_t missed = 0;

	for (uint32_t r = top_k; r-- > 0;)
		missed = 2 * missed + (residency[pick[r]] < GM_RESIDENT);
	return missed;
}

#if GM_HAVE_X86
/* Classes of n <= GM_LOOK_UP_VECTOR picks, a byte each; those behind them are of no pick. A class is GM_RESIDENT less the residency, at least 0. */
GM_AVX2 static inline __m128i classes(const uint8_t *residency, const uint16_t *pick, uint32_t n)
{
	return _mm_subs_epu8(_mm_set1_epi8(GM_RESIDENT), gm_residency_of(residency, pick, n));
}

/* Which of n classes are no hits. */
static inline unsigned no_hits(__m128i class, uint32_t n)
{
	unsigned hits = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(class, _mm_setzero_si128()));

	return ~hits & ((1u << n) - 1);
}

/* Lists the places of set bits, r and more, with room for GM_LIST_PICK; returns the list's end. */
GM_AVX2 static inline uint32_t *list(uint32_t *end, const uint64_t *places, unsigned bits, uint32_t r)
{
	__m256i place = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)&places[bits]));

	_mm256_storeu_si256((__m256i *)(void *)end, _mm256_add_epi32(place, _mm256_set1_epi32((int)r)));
	return end + _mm_popcnt_u32(bits);
}

GM_AVX2 static void classify_avx2(struct event *ev)
{
	struct gm_scratch *s = ev->s;
	const uint8_t *residency = ev->residency;
	const uint16_t *pick = ev->pick;
	uint32_t *end = s->missed;
	uint64_t missed = 0;

	for (uint32_t r = 0, left = ev->top_k; left > 0; r += GM_LOOK_UP_VECTOR) {
		uint32_t n = left < GM_LOOK_UP_VECTOR ? left : GM_LOOK_UP_VECTOR;
		__m128i class = classes(residency, pick + r, n);
		unsigned bits = no_hits(class, n);

		_mm_storeu_si128((__m128i *)(void *)(s->class + r), class);
		end = list(end, s->places, bits & 0xff, r);
		if (n > GM_LIST_PICK)
			end = list(end, s->places, bits >> GM_LIST_PICK, r + GM_LIST_PICK);
		missed |= (uint64_t)bits << r % GM_MAX_PICK;
		left -= n;
	}
	ev->missed = missed;
	ev->n_missed = (uint32_t)(end - s->missed);
}

GM_AVX2 static uint64_t find_misses_avx2(const uint8_t *residency, const uint16_t *pick, uint32_t top_k)
{
	uint64_t missed = 0;

	for (uint32_t r = 0; r < top_k; r += GM_LOOK_UP_VECTOR) {
		uint32_t n = top_k - r < GM_LOOK_UP_VECTOR ? top_k - r : GM_LOOK_UP_VECTOR;

		missed |= (uint64_t)no_hits(classes(residency, pick + r, n), n) << r;
	}
	return missed;
}
#endif

/* Whether a row can be read to the end of its last vector. */
static bool has_vectors(const struct event *ev)
{
	return ev->s->whole_k <= ev->pick_stride;
}

void gm_event_classify(struct event *ev)
{
#if GM_HAVE_X86
	if (has_vectors(ev)) {
		classify_avx2(ev);
		return;
	}
#endif
	classify_plain(ev);
}

gm_find_misses *gm_event_miss_finder(const struct event *ev)
{
#if GM_HAVE_X86
	if (has_vectors(ev))
		return find_misses_avx2;
#endif
	return find_misses_plain;
}
