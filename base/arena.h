/* Zeroed memory for many parts that are freed together, in large pages where the system gives them: parts that are written all over then cost a
 * page fault for each 2 MiB, not for each 4 KiB.
 */
#ifndef GM_BASE_ARENA_H
#define GM_BASE_ARENA_H

#include "base/error.h"

#include <stddef.h>

struct gm_arena;

/* Room for parts that take `bytes` together (gm_arena_bytes of each). NULL: GM_ERR_MEMORY. */
struct gm_arena *gm_arena_new(size_t bytes, struct gm_error *err);
void gm_arena_free(struct gm_arena *arena);

/* What a part of so many bytes takes: parts begin at cache lines. */
size_t gm_arena_bytes(size_t bytes);

/* The next part, all zero, aligned for any type. There must be room for it. */
void *gm_arena_take(struct gm_arena *arena, size_t bytes);

#endif
