#include "report/scale.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* 1, 2 or 5 times a power of ten, at least raw. */
static double round_step(double raw)
{
	double power = pow(10, floor(log10(raw)));
	double rest = raw / power;

	/* A little slack, so that 0.30000000000000004 / 3 stays at 0.1. */
	return (rest <= 1 + 1e-9 ? 1 : rest <= 2 + 1e-9 ? 2 : rest <= 5 + 1e-9 ? 5 : 10) * power;
}

struct gm_scale gm_scale_nice(double low, double high, int n_tick)
{
	struct gm_scale scale;

	if (!isfinite(low) || !isfinite(high)) {
		low = 0;
		high = 1;
	}
	if (high < low) {
		double swap = low;
		low = high;
		high = swap;
	}
	if (high - low <= fabs(high) * 1e-9) { /* one value: some room around it */
		double room = high == 0 ? 1 : fabs(high) * 0.1;
		low -= low == 0 ? 0 : room;
		high += room;
	}
	scale.step = round_step((high - low) / (n_tick > 1 ? n_tick : 2));
	scale.low = floor(low / scale.step + 1e-9) * scale.step;
	scale.high = ceil(high / scale.step - 1e-9) * scale.step;
	scale.from = 0;
	scale.to = 1;
	return scale;
}

double gm_scale_at(const struct gm_scale *s, double value)
{
	return s->from + (value - s->low) / (s->high - s->low) * (s->to - s->from);
}

int gm_scale_n_tick(const struct gm_scale *s)
{
	return (int)lround((s->high - s->low) / s->step) + 1;
}

double gm_scale_tick(const struct gm_scale *s, int i)
{
	return (round(s->low / s->step) + i) * s->step;
}

/* Thin spaces between groups of three digits before the point; from five digits on. */
static void group_digits(char out[GM_SCALE_TEXT])
{
	static const char thin_space[] = "\xe2\x80\x89";
	char text[GM_SCALE_TEXT];
	size_t start, whole, n = 0;

	memcpy(text, out, sizeof(text));
	start = text[0] == '-';
	whole = strspn(text + start, "0123456789");
	if (whole < 5 || strlen(text) + (whole - 1) / 3 * 3 >= GM_SCALE_TEXT)
		return;
	for (size_t i = 0; text[i]; i++) {
		if (i > start && i < start + whole && (start + whole - i) % 3 == 0) {
			memcpy(out + n, thin_space, 3);
			n += 3;
		}
		out[n++] = text[i];
	}
	out[n] = '\0';
}

static char *put_decimals(double value, int decimals, char out[GM_SCALE_TEXT])
{
	snprintf(out, GM_SCALE_TEXT, "%.*f", decimals, value);
	if (out[0] == '-' && strspn(out + 1, "0.") == strlen(out + 1))
		memmove(out, out + 1, strlen(out)); /* no "-0.0" */
	group_digits(out);
	return out;
}

char *gm_scale_text(const struct gm_scale *s, double value, char out[GM_SCALE_TEXT])
{
	int decimals = (int)-floor(log10(s->step) + 1e-9);

	if (fabs(s->low) >= 1e12 || fabs(s->high) >= 1e12 || decimals > 9) {
		snprintf(out, GM_SCALE_TEXT, "%.3g", value);
		return out;
	}
	return put_decimals(value, decimals > 0 ? decimals : 0, out);
}

char *gm_short_number(double value, int digits, char out[GM_SCALE_TEXT])
{
	if (!isfinite(value) || fabs(value) >= 1e15 || (value != 0 && fabs(value) < 1e-6)) {
		snprintf(out, GM_SCALE_TEXT, "%.*g", digits, value);
		return out;
	}
	int before = value == 0 ? 1 : (int)floor(log10(fabs(value))) + 1;
	int decimals = value == floor(value) ? 0 : digits - before;

	return put_decimals(value, decimals > 0 ? decimals : 0, out);
}
