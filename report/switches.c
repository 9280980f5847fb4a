#include "report/switches.h"

#include <stdlib.h>
#include <string.h>

int gm_tokens_make(struct gm_tokens *tokens, const struct gm_sheet *sheet, struct gm_error *err)
{
	*tokens = (struct gm_tokens){
		.sheet = sheet,
		.trace = gm_sheet_find(sheet, "trace"),
		.settings = gm_sheet_find(sheet, "settings_hash"),
		.label = gm_sheet_find(sheet, "label"),
		.sequence = gm_sheet_numbers(sheet, "sequence", err),
	};
	return tokens->sequence ? GM_OK : err->code;
}

void gm_tokens_free(struct gm_tokens *tokens)
{
	free(tokens->sequence);
	*tokens = (struct gm_tokens){0};
}

static bool is_same(const struct gm_tokens *t, size_t a, size_t b, size_t column)
{
	return strcmp(gm_sheet_text(t->sheet, a, column), gm_sheet_text(t->sheet, b, column)) == 0;
}

size_t gm_tokens_end(const struct gm_tokens *t, size_t from)
{
	size_t to = from + 1;

	while (to < t->sheet->n_row && is_same(t, from, to, t->settings) && is_same(t, from, to, t->trace))
		to++;
	return to;
}

size_t gm_switches_find(const struct gm_tokens *t, size_t from, size_t to, long *since)
{
	size_t n = 0;
	long last = -1;

	for (size_t row = from; row < to; row++) {
		if (row > from && t->sequence[row] != t->sequence[row - 1] && !is_same(t, row, row - 1, t->label)) {
			last = (long)(row - from);
			n++;
		}
		since[row - from] = last < 0 ? -1 : (long)(row - from) - last;
	}
	return n;
}
