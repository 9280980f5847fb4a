/* policies/resident.h: with vectors, where the machine has them, and without, the bits are those of a look at each expert. */
#include "policies/policy.h"
#include "policies/resident.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { N_EXPERT = 300, SLACK = 3, N_ROUND = 2000 };

static uint32_t below(uint64_t *rng, uint32_t n)
{
	*rng = *rng * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)((*rng >> 33) % n);
}

static void bits_are_those_of_each_expert(void **state)
{
	uint8_t residency[N_EXPERT + SLACK];
	uint16_t expert[GM_RESIDENT_BITS];
	uint64_t rng = 1;

	(void)state;
	for (uint32_t round = 0; round < N_ROUND; round++) {
		uint32_t n = round % (GM_RESIDENT_BITS + 1), want = 0;

		for (uint32_t i = 0; i < N_EXPERT + SLACK; i++) /* other precisions are above GM_RESIDENT */
			residency[i] = (uint8_t)(below(&rng, 20) ? below(&rng, 4) : below(&rng, 256));
		for (uint32_t i = 0; i < n; i++) {
			expert[i] = (uint16_t)(below(&rng, 9) ? below(&rng, N_EXPERT) : N_EXPERT - 1);
			want |= residency[expert[i]] >= GM_RESIDENT ? UINT32_C(1) << i : 0;
		}
		assert_int_equal(gm_resident_bits(residency, expert, n), want);
		assert_int_equal(gm_resident_bits_plain(residency, expert, n), want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(bits_are_those_of_each_expert)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
