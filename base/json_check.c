#include "base/json_check.h"

#include <stdbool.h>
#include <string.h>

#define MAX_DEPTH 64
#define MAX_DIGITS 63 /* cJSON's buffer for one number */

size_t gm_json_line(const char *text, size_t at)
{
	size_t line = 1;

	for (size_t i = 0; i < at; i++)
		line += text[i] == '\n';
	return line;
}

size_t gm_utf8_length(const char *text, size_t left)
{
	const unsigned char *p = (const unsigned char *)text;
	static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length: less is an overlong form */
	size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf8 ? 4 : 0;

	if (n <= 1 || n > left)
		return n > left ? 0 : n;
	unsigned code = p[0] & (0xffU >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (p[i] & 0x3fU);
	}
	return code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : n;
}

/* The text being looked over. */
struct scan {
	const char *text;
	size_t size, at;
	const char *name;
	struct gm_error *err;
};

static int bad(const struct scan *s, const char *what, const char *right)
{
	return gm_fail(s->err, GM_ERR_FORMAT, "%s: %s, line %zu: %s", what, s->name, gm_json_line(s->text, s->at), right);
}

/* The byte at an offset from the current one, NUL past the end. */
static char peek(const struct scan *s, size_t ahead)
{
	return s->size - s->at > ahead ? s->text[s->at + ahead] : '\0';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static size_t count_digits(const struct scan *s, size_t from)
{
	size_t n = 0;

	while (is_digit(peek(s, from + n)))
		n++;
	return n;
}

/* Bytes of the number at the current byte, 0 if it breaks the grammar. */
static size_t number_length(const struct scan *s)
{
	size_t n = peek(s, 0) == '-';
	size_t whole = count_digits(s, n);

	if (whole == 0 || (whole > 1 && peek(s, n) == '0'))
		return 0;
	n += whole;
	if (peek(s, n) == '.') {
		size_t fraction = count_digits(s, n + 1);
		if (fraction == 0)
			return 0;
		n += 1 + fraction;
	}
	if (peek(s, n) == 'e' || peek(s, n) == 'E') {
		size_t sign = peek(s, n + 1) == '-' || peek(s, n + 1) == '+';
		size_t exponent = count_digits(s, n + 1 + sign);
		if (exponent == 0)
			return 0;
		n += 1 + sign + exponent;
	}
	return n;
}

static int check_number(struct scan *s)
{
	size_t n = number_length(s);

	if (n == 0)
		return bad(s, "not a JSON number", "write it like -12.5e3");
	if (n > MAX_DIGITS)
		return bad(s, "number too long", "at most 63 characters");
	s->at += n;
	return GM_OK;
}

static int check_string(struct scan *s)
{
	size_t start = s->at++;

	while (s->at < s->size && s->text[s->at] != '"') {
		unsigned char c = (unsigned char)s->text[s->at];
		size_t n = gm_utf8_length(s->text + s->at, s->size - s->at);

		if (c < 0x20)
			return bad(s, "control character in a string",
				   "write it as \\u00XX, or close the string before it");
		if (n == 0)
			return bad(s, "a byte that is not UTF-8 in a string", "write UTF-8");
		if (c == '\\' && s->size - s->at >= 6 && memcmp(s->text + s->at, "\\u0000", 6) == 0)
			return bad(s, "\\u0000 in a string", "texts end at a NUL");
		s->at += c == '\\' ? 1 + (s->size - s->at > 1) : n;
	}
	if (s->at >= s->size) {
		s->at = start;
		return bad(s, "string left open", "close it with \"");
	}
	s->at++;
	return GM_OK;
}

int gm_json_check(const char *text, size_t size, const char *name, struct gm_error *err)
{
	struct scan scan = {.text = text, .size = size, .name = name, .err = err};
	int depth = 0;

	while (scan.at < size) {
		char c = text[scan.at];

		if (c == '"') {
			GM_TRY(check_string(&scan));
			continue;
		}
		if (c == '-' || is_digit(c)) {
			GM_TRY(check_number(&scan));
			continue;
		}
		if ((unsigned char)c < 0x20 && c != '\n' && c != '\r' && c != '\t')
			return bad(&scan, "control character", "is this a JSON file?");
		if (c == '{' || c == '[')
			depth++;
		if (c == '}' || c == ']')
			depth--;
		if (depth > MAX_DEPTH)
			return bad(&scan, "nested too deep", "at most 64 levels");
		scan.at++;
	}
	if (depth > 0)
		return bad(&scan, "bracket left open", "close it with ] or }");
	return GM_OK;
}

size_t gm_json_find_string(const char *text, size_t size, size_t n)
{
	struct scan scan = {.text = text, .size = size, .name = ""};

	for (; scan.at < size; scan.at++) {
		size_t start = scan.at;
		if (text[start] != '"')
			continue;
		if (n-- == 0)
			return start;
		if (check_string(&scan) < 0)
			break;
		scan.at--;
	}
	return size;
}
