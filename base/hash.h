/* The only door to xxHash: 64-bit XXH3 for checksums of files and fingerprints of settings. Not for security. */
#ifndef GM_BASE_HASH_H
#define GM_BASE_HASH_H

#include "base/error.h"

#include <stdint.h>

uint64_t gm_hash(const void *data, size_t size);

/* The same over data that comes in pieces: the pieces' sizes make no difference. A state lives on the heap (xxHash asks
 * for 64-byte alignment); NULL when out of memory. gm_hash_value may be called at any time and the state fed on. */
struct gm_hash_state;
struct gm_hash_state *gm_hash_new(struct gm_error *err);
void gm_hash_add(struct gm_hash_state *state, const void *data, size_t size);
uint64_t gm_hash_value(const struct gm_hash_state *state);
void gm_hash_free(struct gm_hash_state *state);

/* 16 lower-case hex digits, NUL-terminated; returns out. */
#define GM_HASH_TEXT 17
char *gm_hash_format(uint64_t hash, char out[GM_HASH_TEXT]);

#endif
