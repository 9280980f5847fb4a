/* Values from byte planes, and whether they may stand: the inner loops of decoding a block (docs/trace-format.md, "Byte planes" and "Columns").
 * Each in plain C and, where the processor has them, with AVX2 vectors: the results are the same bit for bit. Private to the trace library. */
#ifndef GM_TRACES_PLANES_H
#define GM_TRACES_PLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Planes are [n] bytes, lowest first; nothing is read beyond them. What was written is of no use where a function returns false. */
struct gm_planes {
	/* ids [n]: low[i] and, above it, the part of packed[i] that `mask` (0: none) leaves after a shift to the right. Returns the largest. */
	uint32_t (*ids)(uint16_t *ids, const uint8_t *low, const uint8_t *packed, size_t n, uint32_t shift, uint32_t mask);
	/* out [n_row][n_head] from differences of keys; rank 1's counts from the key `base`. False: a float is not finite. */
	bool (*logits)(float *out, const uint8_t *const plane[4], size_t n_row, size_t n_head, uint32_t base);
	/* out [n] from half precision, float32 and float64. False: one is not finite. */
	bool (*halves)(float *out, const uint8_t *const plane[2], size_t n);
	bool (*floats)(float *out, const uint8_t *const plane[4], size_t n);
	bool (*doubles)(double *out, const uint8_t *const plane[8], size_t n);
};

extern const struct gm_planes gm_planes_plain;
const struct gm_planes *gm_planes_avx2(void); /* NULL where the processor or the compiler has none */
const struct gm_planes *gm_planes_best(void);

/* Value i of four planes. */
static inline uint32_t gm_planes_u32(const uint8_t *const plane[4], size_t i)
{
	return plane[0][i] | (uint32_t)plane[1][i] << 8 | (uint32_t)plane[2][i] << 16 | (uint32_t)plane[3][i] << 24;
}

#endif
