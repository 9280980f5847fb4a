/* Topic switches in a --per-token file. */
#ifndef GM_REPORT_SWITCHES_H
#define GM_REPORT_SWITCHES_H

#include "report/sheet.h"

/* A sheet of tokens, read by columns. */
struct gm_tokens {
	const struct gm_sheet *sheet;
	size_t trace, settings, label; /* columns */
	double *token, *sequence;      /* [n_row] */
};

int gm_tokens_make(struct gm_tokens *tokens, const struct gm_sheet *sheet, struct gm_error *err);
void gm_tokens_free(struct gm_tokens *tokens);

/* The end of the rows that belong to one result and begin with row `from`: its tokens in order. */
size_t gm_tokens_end(const struct gm_tokens *tokens, size_t from);

/* Is every result's run whole: in one place, its tokens and sequences in order, and the same tokens as every other run's? Errors name file,
 * line and column. */
int gm_tokens_check(const struct gm_tokens *tokens, struct gm_error *err);

/* A switch is a token whose sequence has another label than the token before. since [to - from] out: how many tokens ago the last switch
 * was, 0 at the switch itself; -1 before the first. Returns how many switches there are. */
size_t gm_switches_find(const struct gm_tokens *tokens, size_t from, size_t to, long *since);

#endif
