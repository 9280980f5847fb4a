/* Makes every checksum of a (damaged, hostile) trace right again, so that what lies behind the checksums is reached. Works on bytes in
 * memory and stops where the frames stop making sense. */
#ifndef GM_TESTS_FUZZ_REHASH_H
#define GM_TESTS_FUZZ_REHASH_H

#include "base/hash.h"
#include "traces/codec.h"

static inline void rehash_block(uint8_t *payload, uint64_t length)
{
	if (length < GM_DIRECTORY_BYTES)
		return;
	uint64_t bytes = gm_get_u32(payload), n_part = gm_get_u32(payload + 28), at = bytes;

	for (uint64_t i = 0; i < n_part && GM_DIRECTORY_BYTES + (i + 1) * GM_PART_BYTES <= length; i++) {
		uint8_t *entry = payload + GM_DIRECTORY_BYTES + i * GM_PART_BYTES;
		uint64_t stored = gm_get_u32(entry + 8);
		if (at > length || stored > length - at)
			break;
		gm_put_u64(entry + 16, gm_hash(payload + at, stored));
		at += stored;
	}
}

static inline void rehash(uint8_t *data, size_t size)
{
	uint64_t hashes[64], n = 0, offset = GM_PREAMBLE_BYTES;

	while (offset + GM_FRAME_BYTES <= size) {
		uint8_t *frame = data + offset, *payload = frame + GM_FRAME_BYTES;
		uint64_t room = size - offset - GM_FRAME_BYTES, length = gm_get_u64(frame + 8);
		uint64_t covered = length < room ? length : room;
		if (memcmp(frame, "BLCK", 4) == 0) {
			rehash_block(payload, covered);
			if (covered >= 4 && gm_get_u32(payload) < covered)
				covered = gm_get_u32(payload);
		}
		if (memcmp(frame, "INDX", 4) == 0)
			for (uint64_t i = 0; i < n && GM_INDEX_BYTES + (i + 1) * GM_INDEX_BLOCK_BYTES <= covered; i++)
				gm_put_u64(payload + GM_INDEX_BYTES + i * GM_INDEX_BLOCK_BYTES + 24, hashes[i]);
		gm_put_u64(frame + 16, gm_hash(payload, covered));
		gm_put_u64(frame + 24, gm_hash(frame, 24));
		if (memcmp(frame, "BLCK", 4) == 0 && n < 64)
			hashes[n++] = gm_get_u64(frame + 16);
		if (length > room)
			break;
		offset += GM_FRAME_BYTES + length;
	}
}

#endif
