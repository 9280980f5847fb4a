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

/* 32 values of 32 bits: a holds 0-3 in its lower half and 16-19 in its upper, b 4-7 and 20-23, and so on. (By name, not as an array: gcc -O2
 * leaves short loops as they are, and an array that a loop goes over in memory.) */
struct tile {
	__m256i a, b, c, d;
};

/* Values at ... at + 31 of four planes. */
AVX2 static inline struct tile join(const uint8_t *const plane[4], size_t at)
{
	__m256i p = load(plane[0] + at), q = load(plane[1] + at), r = load(plane[2] + at), s = load(plane[3] + at);
	__m256i low_pq = _mm256_unpacklo_epi8(p, q), high_pq = _mm256_unpackhi_epi8(p, q);
	__m256i low_rs = _mm256_unpacklo_epi8(r, s), high_rs = _mm256_unpackhi_epi8(r, s);

	return (struct tile){.a = _mm256_unpacklo_epi16(low_pq, low_rs),
			     .b = _mm256_unpackhi_epi16(low_pq, low_rs),
			     .c = _mm256_unpacklo_epi16(high_pq, high_rs),
			     .d = _mm256_unpackhi_epi16(high_pq, high_rs)};
}

/* The values in order. */
AVX2 static inline void store_tile(float *out, struct tile t)
{
	store(out, _mm256_permute2x128_si256(t.a, t.b, 0x20));
	store(out + 8, _mm256_permute2x128_si256(t.c, t.d, 0x20));
	store(out + 16, _mm256_permute2x128_si256(t.a, t.b, 0x31));
	store(out + 24, _mm256_permute2x128_si256(t.c, t.d, 0x31));
}

/* Each half's four values become sums of the half from its beginning on. */
AVX2 static inline __m256i sums(__m256i v)
{
	v = _mm256_add_epi32(v, _mm256_slli_si256(v, 4));
	return _mm256_add_epi32(v, _mm256_slli_si256(v, 8));
}

/* Each half's last value, in all places of the half. */
AVX2 static inline __m256i lasts(__m256i v)
{
	return _mm256_shuffle_epi32(v, 0xff);
}

/* Complements of keys to floats: what is negative is there already, else all bits but the sign are turned round. */
AVX2 static inline __m256i floats_of(__m256i complements)
{
	__m256i negative = _mm256_srai_epi32(complements, 31);

	return _mm256_xor_si256(complements, _mm256_andnot_si256(negative, _mm256_set1_epi32(0x7fffffff)));
}

/* Complements of keys that are no finite float are the first and the last 0x00800000 of all numbers: with that added, the first 0x01000000. */
AVX2 static inline __m256i lesser(__m256i least, __m256i complements)
{
	return _mm256_min_epu32(least, _mm256_add_epi32(complements, _mm256_set1_epi32(0x00800000)));
}

AVX2 static inline bool all_finite(__m256i least)
{
	__m256i enough = _mm256_max_epu32(least, _mm256_set1_epi32(0x01000000));

	return _mm256_movemask_epi8(_mm256_cmpeq_epi32(enough, least)) == -1;
}

/* A tile of a row. Complements of keys are sums of differences: ~key = ~base + difference + difference ... `before` is the one before the tile,
 * in all places; returns the tile's last likewise. */
AVX2 static inline __m256i logits_tile(float *out, const uint8_t *const plane[4], size_t at, __m256i before, __m256i *least)
{
	struct tile t = join(plane, at);

	t.a = sums(t.a);
	t.b = _mm256_add_epi32(sums(t.b), lasts(t.a));
	t.c = _mm256_add_epi32(sums(t.c), lasts(t.b));
	t.d = _mm256_add_epi32(sums(t.d), lasts(t.c));
	/* the upper half goes on where the lower ends */
	__m256i lower = lasts(t.d);
	before = _mm256_add_epi32(before, _mm256_permute2x128_si256(lower, lower, 0x08));
	t.a = _mm256_add_epi32(t.a, before);
	t.b = _mm256_add_epi32(t.b, before);
	t.c = _mm256_add_epi32(t.c, before);
	t.d = _mm256_add_epi32(t.d, before);
	*least = lesser(lesser(lesser(lesser(*least, t.a), t.b), t.c), t.d);
	store_tile(out, (struct tile){floats_of(t.a), floats_of(t.b), floats_of(t.c), floats_of(t.d)});
	return _mm256_permutevar8x32_epi32(t.d, _mm256_set1_epi32(7));
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

/* All ones where a float of the tile is not finite. */
AVX2 static inline __m256i tile_special(struct tile t)
{
	const __m256i exponent = _mm256_set1_epi32(0x7f800000);
	__m256i a = _mm256_cmpeq_epi32(_mm256_and_si256(t.a, exponent), exponent);
	__m256i b = _mm256_cmpeq_epi32(_mm256_and_si256(t.b, exponent), exponent);
	__m256i c = _mm256_cmpeq_epi32(_mm256_and_si256(t.c, exponent), exponent);
	__m256i d = _mm256_cmpeq_epi32(_mm256_and_si256(t.d, exponent), exponent);

	return _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
}

AVX2 static bool floats_avx2(float *out, const uint8_t *const plane[4], size_t n)
{
	__m256i special = _mm256_setzero_si256();
	size_t i = 0;

	for (; i + TILE <= n; i += TILE) {
		struct tile t = join(plane, i);

		special = _mm256_or_si256(special, tile_special(t));
		store_tile(out + i, t);
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

AVX2 static inline __m128i load_eight(const uint8_t *plane)
{
	return _mm_loadl_epi64((const __m128i *)(const void *)plane);
}

AVX2 static inline void store_two(double *out, __m128i two)
{
	_mm_storeu_si128((__m128i *)(void *)out, two);
}

/* Eight doubles. Returns their two upper bytes. */
AVX2 static inline __m128i doubles_tile(double *out, const uint8_t *const plane[8], size_t at)
{
	__m128i p01 = _mm_unpacklo_epi8(load_eight(plane[0] + at), load_eight(plane[1] + at));
	__m128i p23 = _mm_unpacklo_epi8(load_eight(plane[2] + at), load_eight(plane[3] + at));
	__m128i p45 = _mm_unpacklo_epi8(load_eight(plane[4] + at), load_eight(plane[5] + at));
	__m128i p67 = _mm_unpacklo_epi8(load_eight(plane[6] + at), load_eight(plane[7] + at));
	__m128i lower_a = _mm_unpacklo_epi16(p01, p23), lower_b = _mm_unpackhi_epi16(p01, p23);
	__m128i upper_a = _mm_unpacklo_epi16(p45, p67), upper_b = _mm_unpackhi_epi16(p45, p67);

	store_two(out, _mm_unpacklo_epi32(lower_a, upper_a));
	store_two(out + 2, _mm_unpackhi_epi32(lower_a, upper_a));
	store_two(out + 4, _mm_unpacklo_epi32(lower_b, upper_b));
	store_two(out + 6, _mm_unpackhi_epi32(lower_b, upper_b));
	return p67;
}

AVX2 static bool doubles_avx2(double *out, const uint8_t *const plane[8], size_t n)
{
	const __m128i exponent = _mm_set1_epi16(0x7ff0);
	__m128i special = _mm_setzero_si128();
	const uint8_t *rest[8];
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		__m128i upper = doubles_tile(out + i, plane, i);

		special = _mm_or_si128(special, _mm_cmpeq_epi16(_mm_and_si128(upper, exponent), exponent));
	}
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
