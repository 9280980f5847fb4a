/* What the machine and the compiler can do for a hot loop; none of it changes a result. */
#ifndef GM_POLICIES_MACHINE_H
#define GM_POLICIES_MACHINE_H

#include <stdbool.h>

/* A function that is seldom called: kept out of its callers, which then need fewer registers. */
#if defined(__GNUC__)
#define GM_RARE __attribute__((cold, noinline))
#else
#define GM_RARE
#endif

/* An inner loop that gets registers of its own. */
#if defined(__GNUC__)
#define GM_APART __attribute__((noinline))
#else
#define GM_APART
#endif

/* A function of an inner loop that is worth a copy in each of its callers. */
#if defined(__GNUC__)
#define GM_INNER inline __attribute__((always_inline))
#else
#define GM_INNER inline
#endif

/* Functions with AVX2 have a plain twin with the same results. What has AVX2 has popcnt. */
#if defined(__x86_64__)
#include <immintrin.h>
#define GM_HAVE_X86 1
#define GM_AVX2 __attribute__((target("avx2,popcnt")))
#endif

/* Whether this machine has AVX2. */
static inline bool gm_has_avx2(void)
{
#if GM_HAVE_X86
	return __builtin_cpu_supports("avx2") != 0;
#else
	return false;
#endif
}

#endif
