/* Lists and ranges of values as people type them: "10%,25%", "16..128/16", "threshold:0.05..0.25/0.05". */
#ifndef GM_SIM_RANGE_H
#define GM_SIM_RANGE_H

#include "base/error.h"

#define GM_MAX_VALUES 100000 /* values of one list; far more than any sweep is meant for */

struct gm_items {
	char **text; /* [n] */
	size_t n, capacity;
};

/* Appends a copy of the first `length` bytes of text. */
int gm_items_add(struct gm_items *texts, const char *text, size_t length, struct gm_error *err);
void gm_items_free(struct gm_items *texts);

/* Appends the items of a comma list; "\," stands for a comma inside an item. Empty items are errors. `what` names the list in messages. */
int gm_list_split(const char *list, const char *what, struct gm_items *out, struct gm_error *err);

/* Appends the texts that one item stands for: every part between colons may be a range from..to/step, ends included. The numbers are
 * decimals with an equal unit ("10%..50%/10%"), or bytes with any units ("512MiB..4GiB/512MiB"); they are counted exactly, so that
 * 0.05..0.25/0.05 gives 0.15. An item without ranges gives itself. */
int gm_range_expand(const char *item, const char *what, struct gm_items *out, struct gm_error *err);

#endif
