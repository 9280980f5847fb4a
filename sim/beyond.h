/* The experts beyond a row's ranked head, in the order in which a substitute is sought among them (R9): ranked once for each row that is asked for,
 * whatever the number of configurations that ask.
 */
#ifndef GM_SIM_BEYOND_H
#define GM_SIM_BEYOND_H

#include "traces/reader.h"

struct gm_beyond;

/* model must outlive it; n_head: experts in a ranking. */
struct gm_beyond *gm_beyond_new(const struct gm_model *model, uint32_t n_head, struct gm_error *err);
void gm_beyond_free(struct gm_beyond *beyond);

/* Token i of a block that was decoded with its tail: *expert [*n] by selection score, ties to the lower id, from place `from` on. *n is 0 at the end
 * only, after n_expert - n_head. Valid until the next call. */
int gm_beyond_row(struct gm_beyond *beyond, const struct gm_block *block, uint32_t layer, uint32_t i, uint32_t from,
		  const uint16_t **expert, uint32_t *n, struct gm_error *err);

#endif
