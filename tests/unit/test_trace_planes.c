/* Joining byte planes: plain C and vectors give the same bits and the same verdict, and those of the slow way below. */
#include "test_trace_common.h"

#include "traces/planes.h"

#define MAX_VALUE 1100u

/* Planes in memory of exactly their size, so that a sanitizer sees a byte read beyond them. */
struct planes {
	uint8_t *plane[8];
	size_t n;
};

static struct planes draw_planes(uint64_t *seed, size_t n)
{
	struct planes p = {.n = n};

	for (uint32_t k = 0; k < 8; k++) {
		p.plane[k] = must(malloc(n ? n : 1));
		for (size_t i = 0; i < n; i++)
			p.plane[k][i] = (uint8_t)draw(seed);
	}
	return p;
}

static void free_planes(struct planes *p)
{
	for (uint32_t k = 0; k < 8; k++)
		free(p->plane[k]);
}

/* The value of `width` bytes from plane `first` on. */
static uint64_t value_at(const struct planes *p, uint32_t first, uint32_t width, size_t i)
{
	uint64_t value = 0;

	for (uint32_t k = 0; k < width; k++)
		value |= (uint64_t)p->plane[first + k][i] << 8 * k;
	return value;
}

static void put_value(struct planes *p, uint32_t width, size_t i, uint64_t value)
{
	for (uint32_t k = 0; k < width; k++)
		p->plane[k][i] = (uint8_t)(value >> 8 * k);
}

/* Both ways, or the plain one twice where there are no vectors. */
static const struct gm_planes *way(uint32_t k)
{
	return k == 0 ? &gm_planes_plain : gm_planes_best();
}

#define N_WAY 2u

static void test_ids(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 400; seed++) {
		uint64_t s = seed;
		size_t n = draw_below(&s, MAX_VALUE);
		uint32_t bits = 1u << draw_below(&s, 4), shift = bits * draw_below(&s, 8 / bits);
		uint32_t mask = draw_below(&s, 5) ? (1u << bits) - 1 : 0, largest = 0;
		struct planes p = draw_planes(&s, n);
		uint16_t *ids = must(malloc((n + 1) * sizeof(*ids)));

		for (uint32_t k = 0; k < N_WAY; k++) {
			memset(ids, 0x55, (n + 1) * sizeof(*ids));
			uint32_t got = way(k)->ids(ids, p.plane[0], p.plane[1], n, shift, mask);
			for (size_t i = 0; i < n; i++) {
				uint32_t id = p.plane[0][i] | ((uint32_t)p.plane[1][i] >> shift & mask) << 8;
				assert_int_equal(ids[i], id);
				largest = id > largest ? id : largest;
			}
			assert_int_equal(ids[n], 0x5555);
			assert_int_equal(got, largest);
		}
		free(ids);
		free_planes(&p);
	}
}

static uint32_t key_of_bits(uint32_t bits)
{
	return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* A float of a kind: any finite one, the largest finite, zeros, subnormals; special: infinities and what is not a number. */
static uint32_t draw_bits(uint64_t *seed, bool special)
{
	static const uint32_t edges[] = {0, 0x7f7fffff, 1, 0x007fffff, 0x00800000};
	uint32_t sign = draw_below(seed, 2) << 31;

	if (special)
		return sign | 0x7f800000u | (draw_below(seed, 2) ? (uint32_t)draw(seed) & 0x007fffffu : 0);
	if (draw_below(seed, 4) == 0)
		return sign | edges[draw_below(seed, 5)];
	return sign | (draw_below(seed, 255) << 23) | ((uint32_t)draw(seed) & 0x007fffffu);
}

/* Rows of floats as differences of their keys; `special`: one of them, anywhere, is not finite. */
static void logits_case(uint64_t seed, bool special)
{
	size_t n_head = 1 + draw_below(&seed, draw_below(&seed, 2) ? 140 : 34),
	       n_row = draw_below(&seed, draw_below(&seed, 2) ? 7 : 60), n = n_head * n_row;
	size_t where = n && special ? draw_below(&seed, (uint32_t)n) : n;
	struct planes p = draw_planes(&seed, n);
	uint32_t *bits = must(malloc((n + 1) * sizeof(*bits))), base = (uint32_t)draw(&seed), key = base;
	float *out = must(malloc((n + 1) * sizeof(*out)));

	for (size_t i = 0; i < n; i++) {
		bits[i] = draw_bits(&seed, i == where);
		key = i % n_head == 0 ? base : key;
		put_value(&p, 4, i, key - key_of_bits(bits[i]));
		key = key_of_bits(bits[i]);
	}
	for (uint32_t k = 0; k < N_WAY; k++) {
		memset(out, 0x55, (n + 1) * sizeof(*out));
		bool finite = way(k)->logits(out, (const uint8_t *const *)p.plane, n_row, n_head, base);
		assert_int_equal(finite, where == n);
		assert_memory_equal(out, bits, n * sizeof(*out));
		assert_int_equal(bits_of(out[n]), 0x55555555);
	}
	free(bits);
	free(out);
	free_planes(&p);
}

static void test_logits(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 1000; seed++)
		logits_case(seed, seed % 2);
}

/* n floats of `width` 2 or 4 bytes, or doubles (8). */
static void floats_case(uint64_t seed, uint32_t width, bool special)
{
	size_t n = draw_below(&seed, MAX_VALUE), where = n && special ? draw_below(&seed, (uint32_t)n) : n;
	struct planes p = draw_planes(&seed, n);
	void *out = must(malloc((n + 1) * sizeof(double)));

	for (size_t i = 0; i < n; i++) {
		uint32_t bits = draw_bits(&seed, i == where);
		uint64_t low = draw(&seed) >> 32;
		if (width == 2) /* five bits of exponent: from the float's upper ones */
			put_value(&p, 2, i,
				  i == where ? bits >> 16 | 0x7c00 : (bits >> 16 & 0x83ff) | draw_below(&seed, 31) << 10);
		else if (width == 4)
			put_value(&p, 4, i, bits);
		else
			put_value(&p, 8, i, low | (uint64_t)(i == where ? bits | 0x7ff00000 : bits & 0xffefffff) << 32);
	}
	for (uint32_t k = 0; k < N_WAY; k++) {
		const uint8_t *const *planes = (const uint8_t *const *)p.plane;
		memset(out, 0x55, (n + 1) * sizeof(double));
		bool finite = width == 2   ? way(k)->halves(out, planes, n)
			      : width == 4 ? way(k)->floats(out, planes, n)
					   : way(k)->doubles(out, planes, n);
		assert_int_equal(finite, where == n);
		for (size_t i = 0; i < n; i++) {
			uint64_t expected = value_at(&p, 0, width, i), got = 0;
			if (i == where && width == 2)
				continue; /* is refused: what it becomes is nobody's business */
			if (width == 2)
				expected = bits_of(gm_from_f16((uint16_t)expected));
			memcpy(&got, (uint8_t *)out + i * (width == 8 ? 8 : 4), width == 8 ? 8 : 4);
			assert_true(got == expected);
		}
		assert_int_equal(((uint8_t *)out)[n * (width == 8 ? 8 : 4)], 0x55);
	}
	free(out);
	free_planes(&p);
}

static void test_floats(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 300; seed++)
		for (uint32_t width = 2; width <= 8; width *= 2)
			floats_case(seed, width, seed % 2);
}

/* Every half there is. */
static void test_all_halves(void **state)
{
	struct planes p = {.n = 65536};
	float *out[N_WAY];

	(void)state;
	for (uint32_t k = 0; k < 2; k++)
		p.plane[k] = must(malloc(p.n));
	for (size_t i = 0; i < p.n; i++)
		put_value(&p, 2, i, i);
	for (uint32_t k = 0; k < N_WAY; k++) {
		out[k] = must(malloc(p.n * sizeof(float)));
		assert_false(way(k)->halves(out[k], (const uint8_t *const *)p.plane, p.n));
		for (uint32_t i = 0; i < p.n; i++)
			if ((i & 0x7c00) != 0x7c00)
				assert_int_equal(bits_of(out[k][i]), bits_of(gm_from_f16((uint16_t)i)));
	}
	for (uint32_t k = 0; k < N_WAY; k++)
		free(out[k]);
	free_planes(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ids),
		cmocka_unit_test(test_logits),
		cmocka_unit_test(test_floats),
		cmocka_unit_test(test_all_halves),
	};

	if (!gm_planes_avx2())
		print_message("no AVX2 here: only the plain way is tested\n");
	return cmocka_run_group_tests_name("trace planes", tests, NULL, NULL);
}
