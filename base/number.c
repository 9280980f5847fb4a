#include "base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_EXACT 9007199254740992.0 /* 2^53: up to here every whole number is a double */

/* Programs never call setlocale, but a recorder runs inside other people's programs, which may: so nothing here trusts
 * the decimal mark of strtod and printf. */

static const char *skip_digits(const char *p)
{
	while (*p >= '0' && *p <= '9')
		p++;
	return p;
}

/* The end of the decimal number at text, or NULL where there is none. Decides the grammar, since strtod also takes white
 * space, hex and "inf". */
static const char *number_end(const char *text)
{
	const char *p = text;

	if (*p == '+' || *p == '-')
		p++;
	const char *whole = p;
	p = skip_digits(p);
	size_t n_digit = (size_t)(p - whole);
	if (*p == '.') {
		const char *fraction = ++p;
		p = skip_digits(p);
		n_digit += (size_t)(p - fraction);
	}
	if (n_digit == 0)
		return NULL;
	if (*p == 'e' || *p == 'E') {
		const char *digits = p[1] == '+' || p[1] == '-' ? p + 2 : p + 1;
		if (skip_digits(digits) > digits)
			p = skip_digits(digits);
	}
	return p;
}

/* strtod of the number in [text, end), which number_end has approved; too large gives an infinity. */
static double read_number(const char *text, const char *end)
{
	char buffer[512];
	const char *mark = localeconv()->decimal_point;
	size_t n = 0;

	for (const char *p = text; p < end; p++) {
		size_t step = *p == '.' ? strlen(mark) : 1;

		/* 500 digits are more than any double needs; longer ones are refused, not rounded differently. */
		if (n + step >= sizeof(buffer))
			return (double)NAN;
		memcpy(buffer + n, *p == '.' ? mark : p, step);
		n += step;
	}
	buffer[n] = '\0';
	return strtod(buffer, NULL);
}

int gm_parse_double(const char *text, const char *what, double *out, struct gm_error *err)
{
	const char *end = number_end(text);

	if (!end || *end != '\0')
		return gm_fail(err, GM_ERR_USAGE, "not a number: %s \"%.60s\": give one like 0.15 or 1e3", what, text);
	double value = read_number(text, end);
	if (!isfinite(value))
		return gm_fail(err, GM_ERR_USAGE, "number out of range: %s \"%.60s\": give one that a double can hold",
			       what, text);
	*out = value;
	return GM_OK;
}

/* Digits only, no sign. False where it is not a whole number; too large gives UINT64_MAX and errno ERANGE. */
static bool read_u64(const char *text, const char *end, uint64_t *out)
{
	if (end == text || skip_digits(text) < end)
		return false;
	errno = 0;
	*out = strtoull(text, NULL, 10);
	return true;
}

int gm_parse_u64(const char *text, const char *what, uint64_t min, uint64_t max, uint64_t *out, struct gm_error *err)
{
	uint64_t value;

	if (!read_u64(text, text + strlen(text), &value))
		return gm_fail(err, GM_ERR_USAGE, "not a whole number: %s \"%.60s\": give one from %" PRIu64 " to %" PRIu64,
			       what, text, min, max);
	if (errno == ERANGE || value < min || value > max)
		return gm_fail(err, GM_ERR_USAGE, "out of range: %s \"%.60s\": give one from %" PRIu64 " to %" PRIu64, what,
			       text, min, max);
	*out = value;
	return GM_OK;
}

int gm_parse_u32(const char *text, const char *what, uint32_t min, uint32_t max, uint32_t *out, struct gm_error *err)
{
	uint64_t number = 0;

	GM_TRY(gm_parse_u64(text, what, min, max, &number, err));
	*out = (uint32_t)number;
	return GM_OK;
}

/* Bytes of a unit, 0 if there is no such unit. */
static uint64_t unit_bytes(const char *unit)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} units[] = {
		{"B", 1},
		{"KiB", UINT64_C(1) << 10},
		{"MiB", UINT64_C(1) << 20},
		{"GiB", UINT64_C(1) << 30},
		{"TiB", UINT64_C(1) << 40},
		{"kB", UINT64_C(1000)},
		{"MB", UINT64_C(1000000)},
		{"GB", UINT64_C(1000000000)},
		{"TB", UINT64_C(1000000000000)},
	};

	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (strcmp(unit, units[i].name) == 0)
			return units[i].bytes;
	return 0;
}

int gm_parse_bytes(const char *text, const char *what, uint64_t *out, bool *has_unit, struct gm_error *err)
{
	static const char *const units = "B KiB MiB GiB TiB kB MB GB TB";
	const char *end = *text == '-' || *text == '+' ? NULL : number_end(text);
	uint64_t unit = 1, whole;

	if (!end)
		return gm_fail(err, GM_ERR_USAGE, "not a size: %s \"%.60s\": give bytes, or a number and one of %s", what,
			       text, units);
	if (*end != '\0' && (unit = unit_bytes(end)) == 0)
		return gm_fail(err, GM_ERR_USAGE, "not a unit of bytes: %s \"%.60s\": give one of %s", what, text, units);
	if (read_u64(text, end, &whole)) { /* stays exact above 2^53 */
		if (errno == ERANGE || whole > UINT64_MAX / unit)
			return gm_fail(err, GM_ERR_USAGE, "too many bytes: %s \"%.60s\": give less than 2^64", what, text);
		*out = whole * unit;
	} else {
		double bytes = round(read_number(text, end) * (double)unit);
		if (*end == '\0')
			return gm_fail(err, GM_ERR_USAGE,
				       "bytes are whole: %s \"%.60s\": give a whole number, or a unit of %s", what, text,
				       units);
		if (!(bytes < 0x1p64))
			return gm_fail(err, GM_ERR_USAGE, "too many bytes: %s \"%.60s\": give less than 2^64", what, text);
		*out = (uint64_t)bytes;
	}
	if (has_unit)
		*has_unit = *end != '\0';
	return GM_OK;
}

/* printf wrote the locale's decimal mark, of one or more bytes: make it a '.'. */
static void set_decimal_point(char *text)
{
	char *mark = text + strspn(text, "-0123456789");
	size_t n = strcspn(mark, "0123456789e");

	if (*mark == '\0' || *mark == 'e' || *mark == ' ')
		return;
	*mark = '.';
	memmove(mark + 1, mark + n, strlen(mark + n) + 1);
}

char *gm_format_double(double value, char *out)
{
	/* Whatever has a form of up to 15 digits that reads back, "%.15g" prints it; only a subnormal, which has fewer bits,
	 * can be shorter than that. */
	int precision = fabs(value) < 0x1p-1022 ? 1 : 15;

	if (isnan(value))
		return strcpy(out, "nan");
	if (isinf(value))
		return strcpy(out, value < 0 ? "-inf" : "inf");
	if (fabs(value) <= LARGEST_EXACT && value == floor(value)) {
		snprintf(out, GM_NUMBER_TEXT, "%.0f", value);
		return out;
	}
	for (; precision <= 17; precision++) {
		snprintf(out, GM_NUMBER_TEXT, "%.*g", precision, value);
		if (strtod(out, NULL) == value)
			break;
	}
	set_decimal_point(out);
	return out;
}

char *gm_format_bytes(uint64_t bytes, char *out)
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	size_t i = 0;

	if (bytes < 1024) {
		snprintf(out, GM_NUMBER_TEXT, "%" PRIu64 " B", bytes);
		return out;
	}
	for (; value >= 1023.5 && i < 6; i++)
		value /= 1024;
	/* 1000 to 1023 keep their four digits: a smaller count of the next unit would say less. */
	snprintf(out, GM_NUMBER_TEXT, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, unit[i]);
	set_decimal_point(out);
	return out;
}
