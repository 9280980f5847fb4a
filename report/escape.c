#include "report/escape.h"

#include "base/json_check.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* Calls put for every character: bytes of it and their number. Control characters other than tab and newline, and what is no UTF-8, come as
 * U+FFFD. */
static void each(FILE *out, const char *text, void (*put)(FILE *out, const char *bytes, size_t n))
{
	size_t left = strlen(text);

	while (left > 0) {
		size_t n = gm_utf8_length(text, left);
		unsigned char c = (unsigned char)*text;

		if (n == 0 || (n == 1 && ((c < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7f))) {
			put(out, replacement, 3);
			n = 1;
		} else {
			put(out, text, n);
		}
		text += n;
		left -= n;
	}
}

static void put_bytes(FILE *out, const char *bytes, size_t n)
{
	fwrite(bytes, 1, n, out);
}

static void put_xml(FILE *out, const char *bytes, size_t n)
{
	switch (*bytes) {
	case '&':
		fputs("&amp;", out);
		break;
	case '<':
		fputs("&lt;", out);
		break;
	case '>':
		fputs("&gt;", out);
		break;
	case '"':
		fputs("&quot;", out);
		break;
	case '\'':
		fputs("&#39;", out);
		break;
	case '\n':
	case '\r':
	case '\t': /* as they are, an attribute would hold spaces instead */
		fprintf(out, "&#%d;", *bytes);
		break;
	default:
		put_bytes(out, bytes, n);
	}
}

void gm_put_xml(FILE *out, const char *text)
{
	each(out, text, put_xml);
}

static void put_json(FILE *out, const char *bytes, size_t n)
{
	static const char line_separator[] = "\xe2\x80\xa8", paragraph_separator[] = "\xe2\x80\xa9";

	if (*bytes == '"' || *bytes == '\\')
		fprintf(out, "\\%c", *bytes);
	else if (*bytes == '<' || *bytes == '&' || (n == 1 && (unsigned char)*bytes < 0x20))
		fprintf(out, "\\u%04x", (unsigned)*bytes);
	else if (n == 3 && memcmp(bytes, line_separator, 3) == 0)
		fputs("\\u2028", out);
	else if (n == 3 && memcmp(bytes, paragraph_separator, 3) == 0)
		fputs("\\u2029", out);
	else
		put_bytes(out, bytes, n);
}

void gm_put_json(FILE *out, const char *text)
{
	fputc('"', out);
	each(out, text, put_json);
	fputc('"', out);
}

static void put_markdown(FILE *out, const char *bytes, size_t n)
{
	if (*bytes == '\n')
		fputs("<br>", out);
	else if (*bytes == '<')
		fputs("&lt;", out);
	else if (*bytes == '&')
		fputs("&amp;", out);
	else if (n == 1 && strchr("\\`*_[]|~$#", *bytes))
		fprintf(out, "\\%c", *bytes);
	else if (*bytes == '\r' || *bytes == '\t')
		fputc(' ', out);
	else
		put_bytes(out, bytes, n);
}

void gm_put_markdown(FILE *out, const char *text)
{
	each(out, text, put_markdown);
}

static void put_latex(FILE *out, const char *bytes, size_t n)
{
	switch (*bytes) {
	case '\\':
		fputs("\\textbackslash{}", out);
		break;
	case '~':
		fputs("\\textasciitilde{}", out);
		break;
	case '^':
		fputs("\\textasciicircum{}", out);
		break;
	case '<':
		fputs("\\textless{}", out);
		break;
	case '>':
		fputs("\\textgreater{}", out);
		break;
	case '|':
		fputs("\\textbar{}", out);
		break;
	case '"':
		fputs("\\textquotedbl{}", out);
		break;
	case '\n':
	case '\r':
	case '\t':
		fputc(' ', out);
		break;
	default:
		if (n == 1 && strchr("&%$#_{}", *bytes))
			fputc('\\', out);
		put_bytes(out, bytes, n);
	}
}

void gm_put_latex(FILE *out, const char *text)
{
	each(out, text, put_latex);
}

static void put_line(FILE *out, const char *bytes, size_t n)
{
	if (n == 1 && (unsigned char)*bytes < 0x20)
		fputc(' ', out);
	else
		put_bytes(out, bytes, n);
}

size_t gm_put_line(FILE *out, const char *text)
{
	each(out, text, put_line);
	return gm_text_width(text);
}

/* Chinese, Japanese, Korean and most pictures are twice as wide (Unicode's East Asian Width, W and F, in large steps). */
static bool is_wide(const char *bytes, size_t n)
{
	static const uint32_t ranges[][2] = {{0x1100, 0x115f}, {0x2e80, 0xa4cf}, {0xac00, 0xd7a3},   {0xf900, 0xfaff},
					     {0xfe30, 0xfe6f}, {0xff01, 0xff60}, {0x1f300, 0x1f64f}, {0x20000, 0x3fffd}};
	uint32_t code = n == 3 ? (uint32_t)bytes[0] & 0xf : (uint32_t)bytes[0] & 0x7;

	if (n < 3)
		return false;
	for (size_t i = 1; i < n; i++)
		code = code << 6 | ((uint32_t)bytes[i] & 0x3f);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
		if (code >= ranges[i][0] && code <= ranges[i][1])
			return true;
	return false;
}

size_t gm_text_width(const char *text)
{
	size_t left = strlen(text), width = 0;

	while (left > 0) {
		size_t n = gm_utf8_length(text, left);

		width += is_wide(text, n) ? 2 : 1;
		n = n ? n : 1;
		text += n;
		left -= n;
	}
	return width;
}
