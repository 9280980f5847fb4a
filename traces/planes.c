/* In plain C: loops over runs of a constant length, which the compiler turns into vector code of what every processor has. */
#include "traces/planes.h"

#include <string.h>

#define RUN 64u /* values a loop takes at a time */
/* Keys worked on at a time: they stay in the first cache, and no vector is loaded right after its values were stored singly. */
#define TILE 2048u

static uint32_t ids_run(uint16_t *restrict ids, const uint8_t *restrict low, const uint8_t *restrict packed, size_t n,
			uint32_t shift, uint32_t mask)
{
	uint16_t largest = 0;

	for (size_t i = 0; i < n; i++) {
		ids[i] = (uint16_t)(low[i] | ((uint32_t)packed[i] >> shift & mask) << 8);
		largest = ids[i] > largest ? ids[i] : largest;
	}
	return largest;
}

static uint32_t ids_plain(uint16_t *ids, const uint8_t *low, const uint8_t *packed, size_t n, uint32_t shift, uint32_t mask)
{
	uint32_t largest = 0;

	for (size_t i = 0; i < n; i += RUN) {
		uint32_t one = n - i < RUN ? ids_run(ids + i, low + i, packed + i, n - i, shift, mask)
					   : ids_run(ids + i, low + i, packed + i, RUN, shift, mask);
		largest = one > largest ? one : largest;
	}
	return largest;
}

static void join_run(uint32_t *restrict out, const uint8_t *restrict a, const uint8_t *restrict b,
		     const uint8_t *restrict c, const uint8_t *restrict d)
{
	for (uint32_t i = 0; i < RUN; i++)
		out[i] = a[i] | (uint32_t)b[i] << 8 | (uint32_t)c[i] << 16 | (uint32_t)d[i] << 24;
}

/* Values first ... first + n - 1. */
static void join(uint32_t *out, const uint8_t *const plane[4], size_t first, size_t n)
{
	size_t i = 0;

	for (; i + RUN <= n; i += RUN)
		join_run(out + i, plane[0] + first + i, plane[1] + first + i, plane[2] + first + i, plane[3] + first + i);
	for (; i < n; i++)
		out[i] = gm_planes_u32(plane, first + i);
}

/* The top bit of the result is set where the float is not finite. */
static uint32_t not_finite(uint32_t bits)
{
	return (bits & 0x7f800000u) + 0x00800000u;
}

/* Bits of a float from its order-preserving image. */
static uint32_t bits_of_key(uint32_t key)
{
	uint32_t negative = (key >> 31) - 1; /* all ones for keys below 2^31 */

	return key ^ (negative | 0x80000000u);
}

static uint32_t keys_run(uint32_t *run, size_t n)
{
	uint32_t top = 0;

	for (size_t i = 0; i < n; i++) {
		run[i] = bits_of_key(run[i]);
		top |= not_finite(run[i]);
	}
	return top;
}

/* Keys to bits of floats, in place. The top bit of the result is set where one is not finite. */
static uint32_t keys_to_bits(uint32_t *keys, size_t n)
{
	uint32_t top = 0;
	size_t i = 0;

	for (; i + RUN <= n; i += RUN)
		top |= keys_run(keys + i, RUN);
	return top | keys_run(keys + i, n - i);
}

static bool logits_plain(float *out, const uint8_t *const plane[4], size_t n_row, size_t n_head, uint32_t base)
{
	uint32_t tile[TILE], key = base, top = 0;
	size_t n = n_row * n_head, left = n_head; /* left: of the row */

	for (size_t i = 0; i < n; i += TILE) {
		size_t count = n - i < TILE ? n - i : TILE;
		join(tile, plane, i, count);
		for (size_t k = 0, end; k < count; k = end) {
			end = left < count - k ? k + left : count;
			left -= end - k;
			for (size_t r = k; r < end; r++)
				tile[r] = key -= tile[r];
			if (left == 0) {
				left = n_head;
				key = base;
			}
		}
		top |= keys_to_bits(tile, count);
		memcpy(out + i, tile, count * sizeof(*out));
	}
	return !(top >> 31);
}

static bool floats_plain(float *out, const uint8_t *const plane[4], size_t n)
{
	uint32_t run[RUN], top = 0;

	for (size_t i = 0; i < n; i += RUN) {
		size_t count = n - i < RUN ? n - i : RUN;
		join(run, plane, i, count);
		for (size_t k = 0; k < count; k++)
			top |= not_finite(run[k]);
		memcpy(out + i, run, count * sizeof(*out));
	}
	return !(top >> 31);
}

static uint32_t halves_run(float *restrict out, const uint8_t *restrict low, const uint8_t *restrict high)
{
	uint32_t top = 0, bits[RUN], sign[RUN];
	float value[RUN];

	for (uint32_t i = 0; i < RUN; i++) {
		uint32_t half = low[i] | (uint32_t)high[i] << 8;
		bits[i] = (half & 0x7fffu) << 13;
		sign[i] = (half & 0x8000u) << 16;
		top |= (half & 0x7fffu) + 0x0400u;
	}
	memcpy(value, bits, sizeof(value));
	for (uint32_t i = 0; i < RUN; i++)
		value[i] *= 0x1p112f;
	memcpy(bits, value, sizeof(bits));
	for (uint32_t i = 0; i < RUN; i++)
		bits[i] |= sign[i];
	memcpy(out, bits, sizeof(bits));
	return top;
}

/* By one exact product (see gm_from_f16). */
static bool halves_plain(float *out, const uint8_t *const plane[2], size_t n)
{
	uint8_t last_low[RUN] = {0}, last_high[RUN] = {0};
	float last[RUN];
	uint32_t top = 0;
	size_t i = 0;

	for (; i + RUN <= n; i += RUN)
		top |= halves_run(out + i, plane[0] + i, plane[1] + i);
	if (i < n) {
		memcpy(last_low, plane[0] + i, n - i);
		memcpy(last_high, plane[1] + i, n - i);
		top |= halves_run(last, last_low, last_high);
		memcpy(out + i, last, (n - i) * sizeof(*out));
	}
	return !(top & 0x8000u);
}

static bool doubles_plain(double *out, const uint8_t *const plane[8], size_t n)
{
	uint64_t top = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t bits = gm_planes_u32(plane, i) | (uint64_t)gm_planes_u32(plane + 4, i) << 32;
		memcpy(&out[i], &bits, sizeof(bits));
		top |= (bits & 0x7ff0000000000000u) + 0x0010000000000000u;
	}
	return !(top >> 63);
}

const struct gm_planes gm_planes_plain = {
	.ids = ids_plain,
	.logits = logits_plain,
	.halves = halves_plain,
	.floats = floats_plain,
	.doubles = doubles_plain,
};

const struct gm_planes *gm_planes_best(void)
{
	const struct gm_planes *avx2 = gm_planes_avx2();

	return avx2 ? avx2 : &gm_planes_plain;
}
