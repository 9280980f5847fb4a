/* Residency of many experts, looked up side by side: nobody can foretell where a search for a resident ends, but its bits can be counted. */
#ifndef GM_POLICIES_RESIDENT_H
#define GM_POLICIES_RESIDENT_H

#include "policies/machine.h"

#include <stdint.h>

#define GM_RESIDENT_BITS 32u

/* Bit i of expert[i], n <= GM_RESIDENT_BITS, is set where residency[expert[i]] is at least GM_RESIDENT. */
uint32_t gm_resident_bits(const uint8_t *residency, const uint16_t *expert, uint32_t n);
uint32_t gm_resident_bits_plain(const uint8_t *residency, const uint16_t *expert,
				uint32_t n); /* the same without vectors */

/* How many bits `wanted` has, not 0, if at least so many of expert [n] are resident; else 0. */
uint32_t gm_resident_enough(const uint8_t *residency, const uint16_t *expert, uint32_t n, uint64_t wanted);
uint32_t gm_resident_enough_plain(const uint8_t *residency, const uint16_t *expert, uint32_t n, uint64_t wanted);

#define GM_LOOK_UP 4u /* experts that are looked up side by side */

#if GM_HAVE_X86
#define GM_LOOK_UP_VECTOR 16u /* of a vector */

/* Residency of four experts, a byte each. Byte by byte: a gather reads four bytes for each, and has to wait where one of them was written a moment
 * ago. */
GM_AVX2 static inline __m128i gm_residency_of_four(const uint8_t *residency, const uint16_t *expert)
{
	__m128i present = _mm_cvtsi32_si128(residency[expert[0]]);

	present = _mm_insert_epi8(present, residency[expert[1]], 1);
	present = _mm_insert_epi8(present, residency[expert[2]], 2);
	return _mm_insert_epi8(present, residency[expert[3]], 3);
}

/* Residency of n <= GM_LOOK_UP_VECTOR experts, a byte each; of some behind them too, to the end of the last four, and 0 behind those. */
GM_AVX2 static inline __m128i gm_residency_of(const uint8_t *residency, const uint16_t *expert, uint32_t n)
{
	__m128i low = gm_residency_of_four(residency, expert), high = _mm_setzero_si128();

	if (n > 4)
		low = _mm_unpacklo_epi32(low, gm_residency_of_four(residency, expert + 4));
	if (n > 8)
		high = gm_residency_of_four(residency, expert + 8);
	if (n > 12)
		high = _mm_unpacklo_epi32(high, gm_residency_of_four(residency, expert + 12));
	return _mm_unpacklo_epi64(low, high);
}
#endif

#endif
