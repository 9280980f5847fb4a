#include "emulate/continuation.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void gm_continuation_compare(struct gm_continuation *mine, const struct gm_continuation *baseline)
{
	uint32_t shorter = mine->n < baseline->n ? mine->n : baseline->n;

	mine->n_compared = mine->n > baseline->n ? mine->n : baseline->n;
	mine->n_agree = 0;
	mine->first_difference = UINT32_MAX;
	for (uint32_t i = 0; i < mine->n_compared; i++) {
		if (i < shorter && mine->token[i] == baseline->token[i])
			mine->n_agree++;
		else if (mine->first_difference == UINT32_MAX)
			mine->first_difference = i;
	}
}

char *gm_continuation_text(const struct gm_continuation *c, const struct gm_hook *hook, struct gm_error *err)
{
	char piece[512], *text = gm_alloc(1, 1, err);
	size_t size = 0;

	for (uint32_t i = 0; text && i < c->n; i++) {
		size_t n = gm_hook_token_text(hook, c->token[i], piece, sizeof(piece));
		char *longer = gm_realloc(text, size + n + 1, 1, err);

		if (!longer) {
			free(text);
			return NULL;
		}
		text = longer;
		for (size_t b = 0; b < n; b++) /* what follows a NUL would be lost in a field of text */
			text[size++] = piece[b] ? piece[b] : ' ';
		text[size] = '\0';
	}
	return text;
}

static const char *skip_space(const char *text)
{
	return text + strspn(text, " \t\r\n");
}

bool gm_continuation_matches(const char *text, const char *answer)
{
	size_t n;

	text = skip_space(text);
	answer = skip_space(answer);
	for (n = strlen(answer); n > 0 && strchr(" \t\r\n", answer[n - 1]); n--)
		;
	if (strncmp(text, answer, n) != 0)
		return false;
	return n == 0 || !isalnum((unsigned char)answer[n - 1]) || !isalnum((unsigned char)text[n]);
}
