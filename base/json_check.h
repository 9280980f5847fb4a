/* The strictness that cJSON lacks. It takes control characters for white space, "01" and "1." for numbers and \u0000 into a
 * string that it ends there; and it knows no lines. So each text is looked over once before cJSON builds the tree. */
#ifndef GM_BASE_JSON_CHECK_H
#define GM_BASE_JSON_CHECK_H

#include "base/error.h"

#include <stddef.h>

/* Checks bytes, strings, numbers and depth; commas and colons are left to cJSON. */
int gm_json_check(const char *text, size_t size, const char *name, struct gm_error *err);

/* The line, from 1, of a byte of text. */
size_t gm_json_line(const char *text, size_t at);

/* Where string number n (from 0, keys and values alike) begins in a text that has passed; size if there are fewer. */
size_t gm_json_find_string(const char *text, size_t size, size_t n);

/* Bytes of the UTF-8 character at text, 0 if it is none. */
size_t gm_utf8_length(const char *text, size_t left);

#endif
