#include "sim/range.h"

#include "base/number.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS 15 /* every number of a range, and what is counted from them, stays within 64 bits */

int gm_items_add(struct gm_items *texts, const char *text, size_t length, struct gm_error *err)
{
	if (texts->n == texts->capacity) {
		size_t capacity = texts->capacity ? texts->capacity * 2 : 8;
		char **larger = gm_realloc(texts->text, capacity, sizeof(*larger), err);
		if (!larger)
			return GM_ERR_MEMORY;
		texts->text = larger;
		texts->capacity = capacity;
	}
	char *copy = gm_alloc(length + 1, 1, err);
	if (!copy)
		return GM_ERR_MEMORY;
	memcpy(copy, text, length);
	texts->text[texts->n++] = copy;
	return GM_OK;
}

void gm_items_free(struct gm_items *texts)
{
	for (size_t i = 0; i < texts->n; i++)
		free(texts->text[i]);
	free(texts->text);
	*texts = (struct gm_items){0};
}

int gm_list_split(const char *list, const char *what, struct gm_items *out, struct gm_error *err)
{
	char *item = gm_alloc(strlen(list) + 1, 1, err);
	size_t n = 0;
	int status = item ? GM_OK : GM_ERR_MEMORY;

	for (const char *p = list; status == GM_OK; p++) {
		if (*p == '\\' && p[1] == ',') {
			item[n++] = *++p;
		} else if (*p != ',' && *p != '\0') {
			item[n++] = *p;
		} else if (n == 0) {
			status = gm_fail(err, GM_ERR_USAGE,
					 "empty value: %s \"%.80s\": give values joined by single commas", what, list);
		} else {
			status = gm_items_add(out, item, n, err);
			n = 0;
		}
		if (*p == '\0')
			break;
	}
	free(item);
	return status;
}

/* --- ranges --- */

struct decimal {
	int64_t digits; /* value = digits / 10^scale */
	int scale;
	const char *unit; /* what follows the number */
	size_t n_unit;
};

/* Reads a decimal number with its unit in [text, end). False where there is none, or one of too many digits. */
static bool read_decimal(const char *text, const char *end, struct decimal *out)
{
	bool negative = text < end && *text == '-';
	bool fraction = false;
	int n_digit = 0;

	*out = (struct decimal){0};
	for (text += negative; text < end; text++) {
		if (*text == '.' && !fraction) {
			fraction = true;
		} else if (*text >= '0' && *text <= '9') {
			out->digits = out->digits * 10 + (*text - '0');
			out->scale += fraction;
			if (++n_digit > MAX_DIGITS)
				return false;
		} else {
			break;
		}
	}
	if (negative)
		out->digits = -out->digits;
	out->unit = text;
	out->n_unit = (size_t)(end - text);
	return n_digit > 0;
}

static bool same_unit(const struct decimal *a, const struct decimal *b)
{
	return a->n_unit == b->n_unit && memcmp(a->unit, b->unit, a->n_unit) == 0;
}

/* Brings a number to a larger scale; false where it would not fit. */
static bool rescale(struct decimal *d, int scale)
{
	for (; d->scale < scale; d->scale++)
		if (__builtin_mul_overflow(d->digits, 10, &d->digits))
			return false;
	return true;
}

/* Bytes of a number with a unit; false where it is not one. */
static bool read_bytes(const char *text, const char *end, struct decimal *out)
{
	char copy[64];
	uint64_t bytes;
	bool has_unit;
	size_t n = (size_t)(end - text);

	if (n >= sizeof(copy))
		return false;
	memcpy(copy, text, n);
	copy[n] = '\0';
	if (gm_parse_bytes(copy, "", &bytes, &has_unit, NULL) < 0 || !has_unit || bytes > INT64_MAX)
		return false;
	*out = (struct decimal){.digits = (int64_t)bytes, .unit = "B", .n_unit = 1};
	return true;
}

/* "0.15%" from 15, scale 2, unit "%". */
static void print_decimal(const struct decimal *d, char *out, size_t size)
{
	int64_t digits = d->digits;
	int scale = d->scale;
	uint64_t power = 1;

	while (scale > 0 && digits % 10 == 0) {
		digits /= 10;
		scale--;
	}
	for (int i = 0; i < scale; i++)
		power *= 10;
	uint64_t size_of = digits < 0 ? (uint64_t)-digits : (uint64_t)digits;
	int n = snprintf(out, size, "%s%" PRIu64, digits < 0 ? "-" : "", size_of / power);
	if (scale > 0)
		n += snprintf(out + n, size - (size_t)n, ".%0*" PRIu64, scale, size_of % power);
	snprintf(out + n, size - (size_t)n, "%.*s", (int)d->n_unit, d->unit);
}

/* A part "from..to/step" in [text, end), with its dots and stroke found. */
struct span {
	const char *text, *dots, *stroke, *end;
};

/* Is it meant as a range? A name may hold dots too. */
static bool find_range(const char *text, const char *end, struct span *span)
{
	struct decimal from;

	*span = (struct span){.text = text, .end = end};
	for (const char *p = text; p + 1 < end && !span->dots; p++)
		if (p[0] == '.' && p[1] == '.')
			span->dots = p;
	if (!span->dots || !read_decimal(text, span->dots, &from))
		return false;
	span->stroke = memchr(span->dots, '/', (size_t)(end - span->dots));
	return true;
}

/* The values of a range into out; `whole` is the item for messages. */
static int count_range(const struct span *span, const char *whole, const char *what, struct gm_items *out,
		       struct gm_error *err)
{
	struct decimal from, to, step;
	const char *second = span->dots + 2;
	char text[96];

	if (!span->stroke)
		return gm_fail(err, GM_ERR_USAGE, "range without a step: %s \"%.60s\": give from..to/step", what, whole);
	if (!read_decimal(span->text, span->dots, &from) || !read_decimal(second, span->stroke, &to) ||
	    !read_decimal(span->stroke + 1, span->end, &step) || from.n_unit > 16)
		return gm_fail(err, GM_ERR_USAGE,
			       "not a range: %s \"%.60s\": give from..to/step in decimal numbers of at most %d digits",
			       what, whole, MAX_DIGITS);
	if (step.n_unit == 0)
		step.unit = from.unit, step.n_unit = from.n_unit;
	if ((!same_unit(&from, &to) || !same_unit(&from, &step)) &&
	    (!read_bytes(span->text, span->dots, &from) || !read_bytes(second, span->stroke, &to) ||
	     !read_bytes(span->stroke + 1, span->end, &step)))
		return gm_fail(err, GM_ERR_USAGE, "units differ in a range: %s \"%.60s\": give all three numbers the same",
			       what, whole);
	int scale = from.scale > to.scale ? from.scale : to.scale;
	scale = step.scale > scale ? step.scale : scale;
	if (!rescale(&from, scale) || !rescale(&to, scale) || !rescale(&step, scale))
		return gm_fail(err, GM_ERR_USAGE, "too many digits in a range: %s \"%.60s\": give fewer decimals", what,
			       whole);
	if (step.digits <= 0 || from.digits > to.digits)
		return gm_fail(err, GM_ERR_USAGE, "empty range: %s \"%.60s\": give from <= to and a step above 0", what,
			       whole);
	if ((to.digits - from.digits) / step.digits >= GM_MAX_VALUES)
		return gm_fail(err, GM_ERR_USAGE, "too many values: %s \"%.60s\": give at most %d", what, whole,
			       GM_MAX_VALUES);
	for (struct decimal at = from; at.digits <= to.digits; at.digits += step.digits) {
		print_decimal(&at, text, sizeof(text));
		GM_TRY(gm_items_add(out, text, strlen(text), err));
	}
	return GM_OK;
}

/* Expands the first range of text into out, whole texts each; *found tells whether there was one. */
static int expand_first(const char *text, const char *what, struct gm_items *out, bool *found, struct gm_error *err)
{
	struct gm_items values = {0};
	struct span span;
	int status = GM_OK;

	*found = false;
	for (const char *part = text; !*found;) {
		const char *end = part + strcspn(part, ":");
		*found = find_range(part, end, &span);
		if (*end == '\0')
			break;
		part = end + 1;
	}
	if (!*found)
		return GM_OK;
	GM_TRY_OUT(count_range(&span, text, what, &values, err));
	for (size_t i = 0; i < values.n; i++) {
		char *whole;
		int n = asprintf(&whole, "%.*s%s%s", (int)(span.text - text), text, values.text[i], span.end);
		if (n < 0) {
			status = gm_fail(err, GM_ERR_MEMORY, "out of memory: a list of values");
			goto out;
		}
		status = gm_items_add(out, whole, (size_t)n, err);
		free(whole);
		if (status < 0)
			goto out;
	}
out:
	gm_items_free(&values);
	return status;
}

int gm_range_expand(const char *item, const char *what, struct gm_items *out, struct gm_error *err)
{
	struct gm_items texts = {0};
	bool found;
	int status = expand_first(item, what, &texts, &found, err);

	if (status == GM_OK && !found)
		status = gm_items_add(out, item, strlen(item), err);
	for (size_t i = 0; i < texts.n && status == GM_OK; i++) {
		if (out->n >= GM_MAX_VALUES)
			status = gm_fail(err, GM_ERR_USAGE, "too many values: %s \"%.60s\": give at most %d", what, item,
					 GM_MAX_VALUES);
		else
			status = gm_range_expand(texts.text[i], what, out, err); /* the next range of the same item */
	}
	gm_items_free(&texts);
	return status;
}
