#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>

#include <xxhash.h>

/* struct gm_hash_state is never defined: it is xxHash's own state under a name that does not need its header. */
static XXH3_state_t *inner(struct gm_hash_state *state)
{
	return (XXH3_state_t *)state;
}

uint64_t gm_hash(const void *data, size_t size)
{
	return XXH3_64bits(data, size);
}

struct gm_hash_state *gm_hash_new(struct gm_error *err)
{
	XXH3_state_t *state = XXH3_createState();

	if (!state) {
		gm_fail(err, GM_ERR_MEMORY, "out of memory: a hash state");
		return NULL;
	}
	XXH3_64bits_reset(state);
	return (struct gm_hash_state *)state;
}

void gm_hash_add(struct gm_hash_state *state, const void *data, size_t size)
{
	if (size > 0)
		XXH3_64bits_update(inner(state), data, size);
}

uint64_t gm_hash_value(const struct gm_hash_state *state)
{
	return XXH3_64bits_digest((const XXH3_state_t *)state);
}

void gm_hash_free(struct gm_hash_state *state)
{
	XXH3_freeState(inner(state));
}

char *gm_hash_format(uint64_t hash, char out[GM_HASH_TEXT])
{
	snprintf(out, GM_HASH_TEXT, "%016" PRIx64, hash);
	return out;
}
