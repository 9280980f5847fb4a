/* Rows of a decoded block against the rules of routing (docs/semantics.md, R1-R3). Private to verify and repair. */
#ifndef GM_TRACES_VERIFY_ROWS_H
#define GM_TRACES_VERIFY_ROWS_H

#include "traces/format_in.h"
#include "traces/reader.h"
#include "traces/select.h"

struct gm_row_check {
	const struct gm_header *header;
	struct gm_selector *selector; /* NULL for top-k traces */
	float *logits;                /* [n_expert] */
	uint16_t *ranked;             /* [n_head] */
	uint8_t *seen;                /* [n_expert], zero between rows */
};

int gm_row_check_init(struct gm_row_check *check, const struct gm_header *header, struct gm_error *err);
void gm_row_check_free(struct gm_row_check *check);

/* The first row that is wrong, with its token and layer. The block is decoded with its tail. */
int gm_row_check_block(struct gm_row_check *check, const struct gm_block *block, struct gm_error *err);

#endif
