/* What a model goes on with after a text, and how far it is what it would have been without a policy. */
#ifndef GM_EMULATE_CONTINUATION_H
#define GM_EMULATE_CONTINUATION_H

#include "recorder/hook.h"

struct gm_continuation {
	int32_t *token; /* [n] */
	uint32_t n;
	bool ended; /* by the model, not by the limit */
	/* against the baseline's */
	uint32_t n_compared;       /* places: the longer of both */
	uint32_t n_agree;          /* with equal tokens */
	uint32_t first_difference; /* place of the first token that differs, UINT32_MAX: none */
};

void gm_continuation_compare(struct gm_continuation *mine, const struct gm_continuation *baseline);

/* Its text on the heap, NUL-terminated (a NUL byte becomes a space); NULL when out of memory. */
char *gm_continuation_text(const struct gm_continuation *continuation, const struct gm_hook *hook, struct gm_error *err);

/* Does the text begin with the answer, white space at the ends left aside, and not in the middle of a word? */
bool gm_continuation_matches(const char *text, const char *answer);

#endif
