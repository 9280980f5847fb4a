#include "policies/resident.h"

#include "policies/policy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#endif

uint32_t gm_resident_bits_plain(const uint8_t *residency, const uint16_t *expert, uint32_t n)
{
	uint32_t bits = 0;

	for (uint32_t i = 0; i < n; i++)
		bits |= (uint32_t)(residency[expert[i]] >= GM_RESIDENT) << i;
	return bits;
}

#if HAVE_X86
#define LANE 8u

/* The bytes come as the lowest of four. */
__attribute__((target("avx2"))) static uint32_t bits_avx2(const uint8_t *residency, const uint16_t *expert, uint32_t n)
{
	const __m256i lowest = _mm256_set1_epi32(0xff), absent = _mm256_set1_epi32(GM_RESIDENT - 1);
	uint32_t bits = 0;

	for (uint32_t i = 0; i < n; i += LANE) {
		__m256i e = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(expert + i)));
		__m256i at = _mm256_i32gather_epi32((const int *)(const void *)residency, e, 1);
		__m256i resident = _mm256_cmpgt_epi32(_mm256_and_si256(at, lowest), absent);

		bits |= (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(resident)) << i;
	}
	return bits;
}
#endif

uint32_t gm_resident_bits(const uint8_t *residency, const uint16_t *expert, uint32_t n)
{
#if HAVE_X86
	uint32_t n_whole = n / LANE * LANE;

	if (__builtin_cpu_supports("avx2")) {
		uint32_t bits = bits_avx2(residency, expert, n_whole);

		if (n_whole < n)
			bits |= gm_resident_bits_plain(residency, expert + n_whole, n - n_whole) << n_whole;
		return bits;
	}
#endif
	return gm_resident_bits_plain(residency, expert, n);
}
