#include "report/switches.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gm_tokens_make(struct gm_tokens *tokens, const struct gm_sheet *sheet, struct gm_error *err)
{
	*tokens = (struct gm_tokens){
		.sheet = sheet,
		.trace = gm_sheet_find(sheet, "trace"),
		.settings = gm_sheet_find(sheet, "settings_hash"),
		.label = gm_sheet_find(sheet, "label"),
		.token = gm_sheet_numbers(sheet, "token", err),
		.sequence = gm_sheet_numbers(sheet, "sequence", err),
	};
	return tokens->token && tokens->sequence ? GM_OK : err->code;
}

void gm_tokens_free(struct gm_tokens *tokens)
{
	free(tokens->token);
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

static int fail(const struct gm_tokens *t, size_t row, const char *column, const char *what, const char *right,
		size_t other, struct gm_error *err)
{
	char text[200];

	snprintf(text, sizeof(text), "%s %.60s, line %" PRIu64 ": give whole files of one warm-up, as emulate writes them",
		 right, gm_sheet_file_name(t->sheet, other), t->sheet->place[other].line);
	return gm_sheet_fail(t->sheet, row, gm_sheet_find(t->sheet, column), what, text, err);
}

/* Tokens rise, and texts follow each other. */
static int check_order(const struct gm_tokens *t, size_t from, size_t to, struct gm_error *err)
{
	if (!(t->token[from] >= 0) || !(t->sequence[from] >= 0))
		return gm_sheet_fail(t->sheet, from, gm_sheet_find(t->sheet, t->token[from] >= 0 ? "sequence" : "token"),
				     "no place of a token", "a number from 0", err);
	for (size_t row = from + 1; row < to; row++) {
		if (!(t->token[row] > t->token[row - 1]))
			return fail(t, row, "token", "tokens out of order", "more than that of", row - 1, err);
		if (!(t->sequence[row] >= t->sequence[row - 1]))
			return fail(t, row, "sequence", "texts out of order", "not less than that of", row - 1, err);
	}
	return GM_OK;
}

/* A run has the tokens of the first one, rows 0..n_first-1. */
static int check_tokens(const struct gm_tokens *t, size_t n_first, size_t from, size_t to, struct gm_error *err)
{
	for (size_t i = 0; i < n_first && from + i < to; i++)
		if (t->token[from + i] != t->token[i] || t->sequence[from + i] != t->sequence[i] ||
		    !is_same(t, from + i, i, t->label))
			return fail(t, from + i, "token", "not the same tokens",
				    "other settings have there token, sequence and label of", i, err);
	if (to - from < n_first)
		return fail(t, to - 1, "token", "not all tokens", "other settings have more, to", n_first - 1, err);
	if (to - from > n_first)
		return fail(t, from + n_first, "token", "not the same tokens", "other settings end at", n_first - 1, err);
	return GM_OK;
}

int gm_tokens_check(const struct gm_tokens *t, struct gm_error *err)
{
	size_t n_first = 0;

	for (size_t from = 0, to; from < t->sheet->n_row; from = to) {
		to = gm_tokens_end(t, from);
		n_first = n_first ? n_first : to;
		/* The runs before it are as long as the first. */
		for (size_t other = 0; other < from; other += n_first)
			if (is_same(t, other, from, t->settings) && is_same(t, other, from, t->trace))
				return fail(t, from, "settings_hash", "one result in two places", "it begins at", other,
					    err);
		GM_TRY(check_order(t, from, to, err));
		GM_TRY(check_tokens(t, n_first, from, to, err));
	}
	return GM_OK;
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
