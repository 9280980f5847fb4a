#include "base/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A message that does not fit ends in an ellipsis at a whole UTF-8 character, so that a cut is seen. */
static void cut_off(char *text, size_t size)
{
	static const char ellipsis[] = "\xe2\x80\xa6";
	size_t end = size - sizeof(ellipsis);

	while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
		end--;
	memcpy(text + end, ellipsis, sizeof(ellipsis));
}

int gm_fail(struct gm_error *err, int code, const char *format, ...)
{
	va_list args;

	if (!err || err->code != GM_OK)
		return code;
	err->code = code;
	va_start(args, format);
	int n = vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	if (n >= (int)sizeof(err->text))
		cut_off(err->text, sizeof(err->text));
	return code;
}

/* The length of a message's first part, what is wrong: up to the first ": " that is not between quotes. */
static size_t what_length(const char *text)
{
	bool quoted = false;
	size_t n = 0;

	for (; text[n]; n++) {
		if (text[n] == '"')
			quoted = !quoted;
		else if (!quoted && text[n] == ':' && text[n + 1] == ' ')
			break;
	}
	return n;
}

int gm_error_at(struct gm_error *err, const char *format, ...)
{
	char old[sizeof(err->text)], where[sizeof(err->text)];
	va_list args;

	if (!err || err->code == GM_OK)
		return GM_OK;
	memcpy(old, err->text, sizeof(old));
	va_start(args, format);
	vsnprintf(where, sizeof(where), format, args);
	va_end(args);
	size_t what = what_length(old);
	int n = snprintf(err->text, sizeof(err->text), "%.*s: %s%s", (int)what, old, where, old + what);
	if (n >= (int)sizeof(err->text))
		cut_off(err->text, sizeof(err->text));
	return err->code;
}

void *gm_alloc(size_t n, size_t size, struct gm_error *err)
{
	void *p = calloc(n ? n : 1, size ? size : 1);

	if (!p)
		gm_fail(err, GM_ERR_MEMORY, "out of memory: %zu times %zu bytes", n, size);
	return p;
}

void *gm_realloc(void *old, size_t n, size_t size, struct gm_error *err)
{
	void *p = NULL;

	if (size == 0 || n <= SIZE_MAX / size)
		p = realloc(old, n > 0 && size > 0 ? n * size : 1);
	if (!p)
		gm_fail(err, GM_ERR_MEMORY, "out of memory: %zu times %zu bytes", n, size);
	return p;
}

char *gm_strdup(const char *text, struct gm_error *err)
{
	size_t size = strlen(text) + 1;
	char *copy = gm_alloc(size, 1, err);

	if (copy)
		memcpy(copy, text, size);
	return copy;
}
