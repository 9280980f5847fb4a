/* With AVX2. Tiles of 32 values (16 doubles): one load a plane, unpacked step by step to bytes that lie side by side. What is left at the end
 * goes the plain way. */
#include "traces/planes.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define TILE 32u

AVX2 static inline __m256i load(const uint8_t *plane)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)plane);
}

AVX2 static inline void store(void *to, __m256i v)
{
	_mm256_storeu_si256((__m256i *)to, v);
}

/* Bytes so that the two unpacks of it and another such give the values in order, 0-15 and 16-31. */
AVX2 static inline __m256i load_for_pairs(const uint8_t *plane)
{
	return _mm256_permute4x64_epi64(load(plane), 0xd8);
}

AVX2 static uint32_t ids_avx2(uint16_t *ids, const uint8_t *low, const uint8_t *packed, size_t n, uint32_t shift,
			      uint32_t mask)
{
	const __m128i right = _mm_cvtsi32_si128((int)shift);
	const __m256i part = _mm256_set1_epi8((char)mask);
	__m256i most = _mm256_setzero_si256();
	uint16_t one[16];
	uint32_t largest;
	size_t i = 0;

	for (; i + TILE <= n; i += TILE) {
		/* the shift brings in bits of the byte above, but beyond those of the mask */
		__m256i l = load_for_pairs(low + i);
		__m256i h = _mm256_and_si256(_mm256_srl_epi16(load_for_pairs(packed + i), right), part);
		__m256i a = _mm256_unpacklo_epi8(l, h), b = _mm256_unpackhi_epi8(l, h);

		store(ids + i, a);
		store(ids + i + 16, b);
		most = _mm256_max_epu16(most, _mm256_max_epu16(a, b));
	}
	largest = gm_planes_plain.ids(ids + i, low + i, packed + i, n - i, shift, mask);
	store(one, most);
	for (int k = 0; k < 16; k++)
		largest = one[k] > largest ? one[k] : largest;
	return largest;
}

/* Values at ... at + 31 of four planes: v[i] holds 4i ... 4i + 3 in its lower half and 16 + 4i ... in its upper. */
AVX2 static inline void join(__m256i v[4], const uint8_t *const plane[4], size_t at)
{
	__m256i a = load(plane[0] + at), b = load(plane[1] + at), c = load(plane[2] + at), d = load(plane[3] + at);
	__m256i low_ab = _mm256_unpacklo_epi8(a, b), high_ab = _mm256_unpackhi_epi8(a, b);
	__m256i low_cd = _mm256_unpacklo_epi8(c, d), high_cd = _mm256_unpackhi_epi8(c, d);

	v[0] = _mm256_unpacklo_epi16(low_ab, low_cd);
	v[1] = _mm256_unpackhi_epi16(low_ab, low_cd);
	v[2] = _mm256_unpacklo_epi16(high_ab, high_cd);
	v[3] = _mm256_unpackhi_epi16(high_ab, high_cd);
}

/* The 32 values of such v in order. */
AVX2 static inline void store_joined(float *out, const __m256i v[4])
{
	store(out, _mm256_permute2x128_si256(v[0], v[1], 0x20));
	store(out + 8, _mm256_permute2x128_si256(v[2], v[3], 0x20));
	store(out + 16, _mm256_permute2x128_si256(v[0], v[1], 0x31));
	store(out + 24, _mm256_permute2x128_si256(v[2], v[3], 0x31));
}

/* Each half's values become sums of the half from its beginning on: within vectors by doubling steps, then from vector to vector. */
AVX2 static inline void sum_halves(__m256i v[4])
{
	for (int i = 0; i < 4; i++) {
		v[i] = _mm256_add_epi32(v[i], _mm256_slli_si256(v[i], 4));
		v[i] = _mm256_add_epi32(v[i], _mm256_slli_si256(v[i], 8));
	}
	for (int i = 1; i < 4; i++)
		v[i] = _mm256_add_epi32(v[i], _mm256_shuffle_epi32(v[i - 1], 0xff));
}

/* A tile of a row: differences to complements of keys, which are sums: ~key = ~base + difference + difference ... `before` is the complement of
 * the key before the tile, in all places; returns the last one of the tile likewise. *least: the least, so far, of what not_finite looks at. */
AVX2 static inline __m256i logits_tile(float *out, const uint8_t *const plane[4], size_t at, __m256i before, __m256i *least)
{
	const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), step = _mm256_set1_epi32(0x00800000);
	__m256i v[4];

	join(v, plane, at);
	sum_halves(v);
	/* the upper half begins where the lower ends */
	__m256i lower = _mm256_shuffle_epi32(v[3], 0xff);
	before = _mm256_add_epi32(before, _mm256_permute2x128_si256(lower, lower, 0x08));
	for (int i = 0; i < 4; i++)
		v[i] = _mm256_add_epi32(v[i], before);
	before = _mm256_permutevar8x32_epi32(v[3], _mm256_set1_epi32(7));
	for (int i = 0; i < 4; i++) {
		/* the complement of a key is the float itself where that is negative, else all but the sign are turned round */
		__m256i negative = _mm256_srai_epi32(v[i], 31);
		*least = _mm256_min_epu32(*least, _mm256_add_epi32(v[i], step));
		v[i] = _mm256_xor_si256(v[i], _mm256_andnot_si256(negative, magnitude));
	}
	store_joined(out, v);
	return before;
}

/* Complements of keys that are no finite float: the first and the last 0x00800000 of all numbers. With that added they are the first 0x01000000. */
AVX2 static inline bool all_finite(__m256i least)
{
	__m256i enough = _mm256_max_epu32(least, _mm256_set1_epi32(0x01000000));

	return _mm256_movemask_epi8(_mm256_cmpeq_epi32(enough, least)) == -1;
}

AVX2 static bool logits_avx2(float *out, const uint8_t *const plane[4], size_t n_row, size_t n_head, uint32_t base)
{
	const __m256i first = _mm256_set1_epi32((int)~base);
	const size_t n_tiled = n_head / TILE * TILE;
	__m256i least = _mm256_set1_epi32(-1);
	bool finite = true;

	if (n_tiled == 0)
		return gm_planes_plain.logits(out, plane, n_row, n_head, base);
	for (size_t row = 0; row < n_row; row++) {
		size_t at = row * n_head, end = at + n_tiled;
		__m256i before = first;

		for (; at < end; at += TILE)
			before = logits_tile(out + at, plane, at, before, &least);
		if (n_tiled < n_head) {
			const uint8_t *const rest[4] = {plane[0] + at, plane[1] + at, plane[2] + at, plane[3] + at};
			uint32_t key = ~(uint32_t)_mm256_cvtsi256_si32(before);

			finite &= gm_planes_plain.logits(out + at, rest, 1, n_head - n_tiled, key);
		}
	}
	return finite && all_finite(least);
}

AVX2 static bool floats_avx2(float *out, const uint8_t *const plane[4], size_t n)
{
	const __m256i exponent = _mm256_set1_epi32(0x7f800000);
	__m256i special = _mm256_setzero_si256();
	size_t i = 0;

	for (; i + TILE <= n; i += TILE) {
		__m256i v[4];

		join(v, plane, i);
		for (int k = 0; k < 4; k++) {
			__m256i is = _mm256_cmpeq_epi32(_mm256_and_si256(v[k], exponent), exponent);
			special = _mm256_or_si256(special, is);
		}
		store_joined(out + i, v);
	}
	const uint8_t *const rest[4] = {plane[0] + i, plane[1] + i, plane[2] + i, plane[3] + i};

	return gm_planes_plain.floats(out + i, rest, n - i) && _mm256_movemask_epi8(special) == 0;
}

/* Eight halves to floats by one exact product (see gm_from_f16). */
AVX2 static inline void halves_store(float *out, __m128i halves)
{
	const __m256i magnitude = _mm256_set1_epi32(0x7fff << 13), sign = _mm256_set1_epi32((int)0x80000000u);
	__m256i wide = _mm256_cvtepi16_epi32(halves);
	__m256i bits = _mm256_and_si256(_mm256_slli_epi32(wide, 13), magnitude);
	__m256 value = _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p112f));

	_mm256_storeu_ps(out, _mm256_or_ps(value, _mm256_castsi256_ps(_mm256_and_si256(wide, sign))));
}

AVX2 static bool halves_avx2(float *out, const uint8_t *const plane[2], size_t n)
{
	const __m256i exponent = _mm256_set1_epi16(0x7c00);
	__m256i special = _mm256_setzero_si256();
	size_t i = 0;

	for (; i + TILE <= n; i += TILE) {
		__m256i low = load_for_pairs(plane[0] + i), high = load_for_pairs(plane[1] + i);
		__m256i a = _mm256_unpacklo_epi8(low, high), b = _mm256_unpackhi_epi8(low, high);
		__m256i is_a = _mm256_cmpeq_epi16(_mm256_and_si256(a, exponent), exponent);
		__m256i is_b = _mm256_cmpeq_epi16(_mm256_and_si256(b, exponent), exponent);

		halves_store(out + i, _mm256_castsi256_si128(a));
		halves_store(out + i + 8, _mm256_extracti128_si256(a, 1));
		halves_store(out + i + 16, _mm256_castsi256_si128(b));
		halves_store(out + i + 24, _mm256_extracti128_si256(b, 1));
		special = _mm256_or_si256(special, _mm256_or_si256(is_a, is_b));
	}
	const uint8_t *const rest[2] = {plane[0] + i, plane[1] + i};

	return gm_planes_plain.halves(out + i, rest, n - i) && _mm256_movemask_epi8(special) == 0;
}

/* Sixteen doubles; returns whose two upper bytes have an exponent of all ones. */
AVX2 static inline __m128i doubles_tile(double *out, const uint8_t *const plane[8], size_t at)
{
	const __m128i exponent = _mm_set1_epi16(0x7ff0);
	__m128i pair[4][2], special = _mm_setzero_si128();

	for (int p = 0; p < 4; p++) {
		__m128i even = _mm_loadu_si128((const __m128i *)(const void *)(plane[2 * p] + at));
		__m128i odd = _mm_loadu_si128((const __m128i *)(const void *)(plane[2 * p + 1] + at));
		pair[p][0] = _mm_unpacklo_epi8(even, odd);
		pair[p][1] = _mm_unpackhi_epi8(even, odd);
	}
	for (int h = 0; h < 2; h++, out += 8) {
		__m128i lower[2] = {_mm_unpacklo_epi16(pair[0][h], pair[1][h]), _mm_unpackhi_epi16(pair[0][h], pair[1][h])};
		__m128i upper[2] = {_mm_unpacklo_epi16(pair[2][h], pair[3][h]), _mm_unpackhi_epi16(pair[2][h], pair[3][h])};
		special = _mm_or_si128(special, _mm_cmpeq_epi16(_mm_and_si128(pair[3][h], exponent), exponent));
		for (int q = 0; q < 2; q++) {
			_mm_storeu_si128((__m128i *)(void *)(out + 4 * q), _mm_unpacklo_epi32(lower[q], upper[q]));
			_mm_storeu_si128((__m128i *)(void *)(out + 4 * q + 2), _mm_unpackhi_epi32(lower[q], upper[q]));
		}
	}
	return special;
}

AVX2 static bool doubles_avx2(double *out, const uint8_t *const plane[8], size_t n)
{
	__m128i special = _mm_setzero_si128();
	const uint8_t *rest[8];
	size_t i = 0;

	for (; i + 16 <= n; i += 16)
		special = _mm_or_si128(special, doubles_tile(out + i, plane, i));
	for (int p = 0; p < 8; p++)
		rest[p] = plane[p] + i;
	return gm_planes_plain.doubles(out + i, rest, n - i) && _mm_movemask_epi8(special) == 0;
}

static const struct gm_planes avx2 = {
	.ids = ids_avx2,
	.logits = logits_avx2,
	.halves = halves_avx2,
	.floats = floats_avx2,
	.doubles = doubles_avx2,
};

const struct gm_planes *gm_planes_avx2(void)
{
	return __builtin_cpu_supports("avx2") ? &avx2 : NULL;
}
#else
const struct gm_planes *gm_planes_avx2(void)
{
	return NULL;
}
#endif
