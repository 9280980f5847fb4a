/* R7 for one row: which picks are hits. */
#include "policies/core_private.h"

static void classify_plain(struct event *ev)
{
	struct gm_scratch *s = ev->s;

	ev->missed = 0;
	ev->n_missed = 0;
	for (uint32_t r = 0; r < ev->top_k; r++) {
		s->class[r] = gm_event_class_of(ev->residency[ev->pick[r]]);
		if (s->class[r] == GM_HIT)
			continue;
		s->missed[ev->n_missed++] = r;
		ev->missed |= UINT64_C(1) << r % GM_MAX_PICK;
	}
}

static uint64_t find_misses_plain(const struct event *ev)
{
	uint64_t missed = 0;

	for (uint32_t r = ev->top_k; r-- > 0;)
		missed = 2 * missed + (ev->residency[ev->pick[r]] < GM_RESIDENT);
	return missed;
}

#if GM_HAVE_X86
/* Residency of GM_VECTOR_PICK experts, in 32 bits each. Reads three bytes behind that of each: other experts', or what follows them in the core. */
GM_AVX2 static inline __m256i look_up(const uint8_t *residency, const uint16_t *pick)
{
	__m256i expert = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)pick));
	__m256i four = _mm256_i32gather_epi32((const int *)(const void *)residency, expert, 1);

	return _mm256_and_si256(four, _mm256_set1_epi32(0xff));
}

/* Classes of n <= 16 picks, a byte each; those behind them are of no pick. A class is GM_RESIDENT less the residency, at least 0. */
GM_AVX2 static inline __m128i classes(const uint8_t *residency, const uint16_t *pick, uint32_t n)
{
	__m256i low = look_up(residency, pick);
	__m256i high = n > GM_VECTOR_PICK ? look_up(residency, pick + GM_VECTOR_PICK) : _mm256_setzero_si256();
	__m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
	__m256i class = _mm256_subs_epu16(_mm256_set1_epi16(GM_RESIDENT), words);

	return _mm_packus_epi16(_mm256_castsi256_si128(class), _mm256_extracti128_si256(class, 1));
}

/* Which of n classes are no hits. */
static inline unsigned no_hits(__m128i class, uint32_t n)
{
	unsigned hits = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(class, _mm_setzero_si128()));

	return ~hits & ((1u << n) - 1);
}

/* Lists the places of set bits, r and more, with room for GM_VECTOR_PICK; returns the list's end. */
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

	for (uint32_t r = 0, left = ev->top_k; left > 0; r += GM_BYTE_LANES) {
		uint32_t n = left < GM_BYTE_LANES ? left : GM_BYTE_LANES;
		__m128i class = classes(residency, pick + r, n);
		unsigned bits = no_hits(class, n);

		_mm_storeu_si128((__m128i *)(void *)(s->class + r), class);
		end = list(end, s->places, bits & 0xff, r);
		if (n > GM_VECTOR_PICK)
			end = list(end, s->places, bits >> GM_VECTOR_PICK, r + GM_VECTOR_PICK);
		missed |= (uint64_t)bits << r % GM_MAX_PICK;
		left -= n;
	}
	ev->missed = missed;
	ev->n_missed = (uint32_t)(end - s->missed);
}

GM_AVX2 static uint64_t find_misses_avx2(const uint8_t *residency, const uint16_t *pick, uint32_t top_k)
{
	uint64_t missed = 0;

	for (uint32_t r = 0; r < top_k; r += GM_BYTE_LANES) {
		uint32_t n = top_k - r < GM_BYTE_LANES ? top_k - r : GM_BYTE_LANES;

		missed |= (uint64_t)no_hits(classes(residency, pick + r, n), n) << r;
	}
	return missed;
}
#endif

void gm_event_classify(struct event *ev)
{
#if GM_HAVE_X86
	if (ev->s->whole_k <= ev->pick_stride) {
		classify_avx2(ev);
		return;
	}
#endif
	classify_plain(ev);
}

uint64_t gm_event_find_misses(const struct event *ev)
{
#if GM_HAVE_X86
	if (ev->s->whole_k <= ev->pick_stride)
		return find_misses_avx2(ev->residency, ev->pick, ev->top_k);
#endif
	return find_misses_plain(ev);
}
