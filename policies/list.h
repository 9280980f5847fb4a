/* A doubly linked list over item numbers in flat arrays, oldest first: the order that LRU and FIFO keep. Node n_item is the
 * sentinel, so that no operation has a special case. */
#ifndef GM_POLICIES_LIST_H
#define GM_POLICIES_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_node {
	uint32_t older, newer; /* own number twice: not in the list (the sentinel: empty list) */
};

static inline size_t gm_list_bytes(uint32_t n_item)
{
	return ((size_t)n_item + 1) * sizeof(struct gm_node);
}

static inline void gm_list_init(struct gm_node *list, uint32_t n_item)
{
	for (uint32_t i = 0; i <= n_item; i++)
		list[i] = (struct gm_node){i, i};
}

static inline bool gm_list_has(const struct gm_node *list, uint32_t item)
{
	return list[item].older != item;
}

static inline void gm_list_remove(struct gm_node *list, uint32_t item)
{
	list[list[item].older].newer = list[item].newer;
	list[list[item].newer].older = list[item].older;
	list[item] = (struct gm_node){item, item};
}

/* Puts an item that is in no list directly after `older` (the sentinel: as the oldest; sentinel's .older: as the newest). */
static inline void gm_list_add_after(struct gm_node *list, uint32_t older, uint32_t item)
{
	uint32_t newer = list[older].newer;

	list[item] = (struct gm_node){older, newer};
	list[older].newer = item;
	list[newer].older = item;
}

#endif
