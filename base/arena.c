#include "base/arena.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LINE ((size_t)64)
#define LARGE_PAGE ((size_t)2 << 20)

struct gm_arena {
	char *mapped; /* [n_mapped] */
	size_t n_mapped;
	char *next, *end; /* what is left of it */
};

size_t gm_arena_bytes(size_t bytes)
{
	return (bytes + LINE - 1) / LINE * LINE;
}

struct gm_arena *gm_arena_new(size_t bytes, struct gm_error *err)
{
	struct gm_arena *arena = gm_alloc(1, sizeof(*arena), err);
	void *mapped;

	if (!arena)
		return NULL;
	arena->n_mapped = gm_arena_bytes(bytes) + LARGE_PAGE;
	mapped = mmap(NULL, arena->n_mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapped == MAP_FAILED) {
		free(arena);
		gm_fail(err, GM_ERR_MEMORY, "out of memory: %zu bytes", bytes);
		return NULL;
	}
	arena->mapped = mapped;
	arena->next = arena->mapped + (LARGE_PAGE - (uintptr_t)mapped % LARGE_PAGE) % LARGE_PAGE;
	arena->end = arena->next + gm_arena_bytes(bytes);
#ifdef MADV_HUGEPAGE
	madvise(arena->next, (size_t)(arena->end - arena->next), MADV_HUGEPAGE); /* a wish: without it, pages are small */
#endif
	return arena;
}

void gm_arena_free(struct gm_arena *arena)
{
	if (!arena)
		return;
	munmap(arena->mapped, arena->n_mapped);
	free(arena);
}

void *gm_arena_take(struct gm_arena *arena, size_t bytes)
{
	void *part = arena->next;

	assert(gm_arena_bytes(bytes) <= (size_t)(arena->end - arena->next));
	arena->next += gm_arena_bytes(bytes);
	return part;
}
