#include "traces/import_jsonl_row.h"

#include "base/number.h"

#include <math.h>
#include <string.h>

#define MAX_NUMBER 512 /* characters of one number */

static char *skip_space(char *at)
{
	while (*at == ' ' || *at == '\t')
		at++;
	return at;
}

/* Behind the closing quote of the string that begins at `at`, or at the text's end. */
static char *skip_string(char *at)
{
	at++;
	while (*at && *at != '"') {
		if (*at == '\\' && at[1])
			at++;
		at++;
	}
	return *at ? at + 1 : at;
}

/* The value of the first top-level member "logits", or NULL. */
static char *find_logits(char *text)
{
	int depth = 0;

	for (char *at = text; *at;) {
		if (*at == '"') {
			char *end = skip_string(at), *colon = skip_space(end);

			if (depth == 1 && end - at == 8 && memcmp(at, "\"logits\"", 8) == 0 && *colon == ':')
				return skip_space(colon + 1);
			at = end;
			continue;
		}
		if (*at == '{' || *at == '[')
			depth++;
		if (*at == '}' || *at == ']')
			depth--;
		at++;
	}
	return NULL;
}

static const char *digits(const char *at, uint64_t *value, int *n_digit)
{
	while (*at >= '0' && *at <= '9') {
		/* 18 digits fit; those beyond only count: the caller leaves such numbers to the exact parser. */
		if (*n_digit < 18)
			*value = *value * 10 + (uint64_t)(*at - '0');
		*n_digit += *n_digit > 0 || *at != '0';
		at++;
	}
	return at;
}

/* A JSON number as a double, correctly rounded; *end is behind it. NULL in *end where it is none. */
static double read_number(const char *text, const char **end)
{
	static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
				       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
	const char *at = text + (*text == '-'), *start = at;
	uint64_t mantissa = 0, exponent = 0;
	int n_digit = 0, n_exponent = 0, scale = 0;
	bool negative_exponent = false;

	*end = NULL;
	at = digits(at, &mantissa, &n_digit);
	if (at == start || (*start == '0' && at - start > 1))
		return NAN;
	if (*at == '.') {
		const char *fraction = at + 1;

		at = digits(fraction, &mantissa, &n_digit);
		if (at == fraction)
			return NAN;
		scale = (int)(at - fraction);
	}
	if (*at == 'e' || *at == 'E') {
		at++;
		negative_exponent = *at == '-';
		at += *at == '-' || *at == '+';
		const char *first = at;

		at = digits(at, &exponent, &n_exponent);
		if (at == first)
			return NAN;
	}
	*end = at;
	if (n_exponent < 4)
		scale -= negative_exponent ? -(int)exponent : (int)exponent;
	/* Both factors are exact doubles: one rounding, the right one. */
	if (n_digit <= 15 && n_exponent < 4 && scale >= -22 && scale <= 22) {
		double m = (double)mantissa;

		m = scale > 0 ? m / power[scale] : m * power[-scale];
		return *text == '-' ? -m : m;
	}
	char copy[MAX_NUMBER];
	double value = NAN;
	size_t n = (size_t)(at - text);

	if (n >= sizeof(copy))
		return NAN;
	memcpy(copy, text, n);
	copy[n] = '\0';
	/* Only a number too large for a double fails here. */
	return gm_parse_double(copy, "", &value, NULL) < 0 ? INFINITY : value;
}

/* NaN and Infinity are no JSON, but what Python writes. */
static bool is_not_finite(const char *at)
{
	at += *at == '-';
	return strncmp(at, "NaN", 3) == 0 || strncmp(at, "nan", 3) == 0 || strncmp(at, "Inf", 3) == 0 ||
	       strncmp(at, "inf", 3) == 0 || strncmp(at, "null", 4) == 0;
}

int gm_jsonl_take_logits(char *text, uint32_t n_expert, float *logits, bool *found, const char *where, struct gm_error *err)
{
	char *list = find_logits(text), *at;
	uint32_t n = 0;

	*found = list != NULL;
	if (!list)
		return GM_OK;
	if (*list != '[')
		return gm_fail(err, GM_ERR_FORMAT, "\"logits\" is not a list: %s: [z0,z1,…]", where);
	at = skip_space(list + 1);
	while (*at && *at != ']') {
		const char *end = NULL;
		double value = read_number(at, &end);

		if (!end && !is_not_finite(at))
			return gm_fail(err, GM_ERR_FORMAT, "not a number in \"logits\": %s: \"%.20s\" in place %u", where,
				       at, n);
		if (!end || !isfinite((float)value))
			return gm_fail(err, GM_ERR_FORMAT,
				       "a logit that is not finite: %s: expert %u: must be a float32 number", where, n);
		if (n < n_expert)
			logits[n] = (float)value;
		n++;
		at = skip_space(at + (end - at));
		if (*at == ',' && *skip_space(at + 1) != ']')
			at = skip_space(at + 1);
		else if (*at != ']')
			return gm_fail(err, GM_ERR_FORMAT, "\"logits\" is broken: %s: behind number %u: \",\" or \"]\"",
				       where, n);
	}
	if (*at != ']')
		return gm_fail(err, GM_ERR_FORMAT, "\"logits\" does not end: %s: is the file whole?", where);
	if (n != n_expert)
		return gm_fail(err, GM_ERR_FORMAT, "%u logits: %s: must be n_expert (%u)", n, where, n_expert);
	memset(list, ' ', (size_t)(at + 1 - list));
	*list = '0';
	return GM_OK;
}
