#include "policies/resident.h"

#include "policies/policy.h"

uint32_t gm_resident_bits_plain(const uint8_t *residency, const uint16_t *expert, uint32_t n)
{
	uint32_t bits = 0;

	for (uint32_t i = 0; i < n; i++)
		bits |= (uint32_t)(residency[expert[i]] >= GM_RESIDENT) << i;
	return bits;
}

uint32_t gm_resident_enough_plain(const uint8_t *residency, const uint16_t *expert, uint32_t n, uint64_t wanted)
{
	uint32_t n_wanted = 0, n_found = 0;

	for (uint64_t bits = wanted; bits; bits &= bits - 1)
		n_wanted++;
	for (uint32_t i = 0; i < n && n_found < n_wanted; i++)
		n_found += residency[expert[i]] >= GM_RESIDENT;
	return n_found < n_wanted ? 0 : n_wanted;
}

#if GM_HAVE_X86
/* Bits of the residents among n <= GM_LOOK_UP_VECTOR experts, a multiple of GM_LOOK_UP. */
GM_AVX2 static inline uint32_t bits_of_vector(const uint8_t *residency, const uint16_t *expert, uint32_t n)
{
	__m128i present = gm_residency_of(residency, expert, n), resident = _mm_set1_epi8(GM_RESIDENT);

	return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(present, resident), present));
}

GM_AVX2 static uint32_t bits_avx2(const uint8_t *residency, const uint16_t *expert, uint32_t n)
{
	uint32_t bits = 0;

	for (uint32_t i = 0; i < n; i += GM_LOOK_UP_VECTOR)
		bits |= bits_of_vector(residency, expert + i, n - i < GM_LOOK_UP_VECTOR ? n - i : GM_LOOK_UP_VECTOR) << i;
	return bits;
}

/* n: a multiple of GM_LOOK_UP. Eight at a time: they nearly always suffice. */
GM_AVX2 static uint32_t enough_avx2(const uint8_t *residency, const uint16_t *expert, uint32_t n, uint64_t wanted)
{
	uint32_t n_wanted = (uint32_t)_mm_popcnt_u64(wanted), n_found = 0;

	for (uint32_t i = 0; i < n; i += 2 * GM_LOOK_UP) {
		n_found += (uint32_t)_mm_popcnt_u32(bits_of_vector(residency, expert + i, n - i < 8 ? 4 : 8));
		if (n_found >= n_wanted)
			return n_wanted;
	}
	return 0;
}
#endif

uint32_t gm_resident_bits(const uint8_t *residency, const uint16_t *expert, uint32_t n)
{
#if GM_HAVE_X86
	uint32_t n_whole = n / GM_LOOK_UP * GM_LOOK_UP;

	if (gm_has_avx2()) {
		uint32_t bits = bits_avx2(residency, expert, n_whole);

		if (n_whole < n)
			bits |= gm_resident_bits_plain(residency, expert + n_whole, n - n_whole) << n_whole;
		return bits;
	}
#endif
	return gm_resident_bits_plain(residency, expert, n);
}

uint32_t gm_resident_enough(const uint8_t *residency, const uint16_t *expert, uint32_t n, uint64_t wanted)
{
#if GM_HAVE_X86
	if (gm_has_avx2()) /* those behind the last four are few: without them, the search is made */
		return enough_avx2(residency, expert, n / GM_LOOK_UP * GM_LOOK_UP, wanted);
#endif
	return gm_resident_enough_plain(residency, expert, n, wanted);
}
