/* R7 for one row. */
#include "policies/core_private.h"

/* GM_ABSENT: GM_MISS, GM_RESERVED: GM_LATE, GM_RESIDENT and more: GM_HIT. */
static uint64_t classify_plain(const uint8_t *residency, const uint16_t *pick, uint32_t n, uint8_t *class)
{
	uint64_t missed = 0;

	for (uint32_t r = n; r-- > 0;) {
		uint8_t present = residency[pick[r]];

		class[r] = (uint8_t)(GM_MISS - (present < GM_RESIDENT ? present : GM_RESIDENT));
		missed = 2 * missed + (present < GM_RESIDENT);
	}
	return missed;
}

#if GM_HAVE_X86
/* Reads experts and writes classes to the end of the last vector. Reads three bytes behind the residency of each expert: other experts', or what
 * follows them in the core. */
GM_AVX2 static uint64_t classify_avx2(const uint8_t *residency, const uint16_t *pick, uint32_t n, uint8_t *class)
{
	__m256i resident = _mm256_set1_epi32(GM_RESIDENT), byte = _mm256_set1_epi32(0xff);
	uint64_t hits = 0;

	for (uint32_t r = 0; r < n; r += GM_VECTOR_PICK) {
		__m256i expert = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(pick + r)));
		__m256i present =
			_mm256_and_si256(_mm256_i32gather_epi32((const int *)(const void *)residency, expert, 1), byte);
		__m256i absence = _mm256_subs_epu16(resident, present);
		__m128i words = _mm_packus_epi32(_mm256_castsi256_si128(absence), _mm256_extracti128_si256(absence, 1));
		__m128i bytes = _mm_packus_epi16(words, words);

		_mm_storel_epi64((__m128i *)(void *)(class + r), bytes);
		hits |= (uint64_t)(unsigned)(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128())) & 0xff) << r;
	}
	return ~hits & ~UINT64_C(0) >> (GM_MAX_PICK - n);
}
#endif

uint64_t gm_event_classify(const struct event *ev, uint32_t first, uint32_t n, uint8_t *class)
{
#if GM_HAVE_X86
	if (ev->s->whole_k <= ev->pick_stride)
		return classify_avx2(ev->residency, ev->pick + first, n, class);
#endif
	return classify_plain(ev->residency, ev->pick + first, n, class);
}
