/* Which of some experts are resident, looked up side by side: nobody can foretell where a search for a resident ends, but its bits can be counted. */
#ifndef GM_POLICIES_RESIDENT_H
#define GM_POLICIES_RESIDENT_H

#include <stdint.h>

#define GM_RESIDENT_BITS 32u

/* Bit i of expert[i], n <= GM_RESIDENT_BITS, is set where residency[expert[i]] is at least GM_RESIDENT. The three bytes behind the residency of the last
 * expert are there too. */
uint32_t gm_resident_bits(const uint8_t *residency, const uint16_t *expert, uint32_t n);
uint32_t gm_resident_bits_plain(const uint8_t *residency, const uint16_t *expert,
				uint32_t n); /* the same without vectors */

#endif
