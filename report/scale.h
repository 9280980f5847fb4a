/* Axes: from values to places on the paper, with ticks at round numbers. */
#ifndef GM_REPORT_SCALE_H
#define GM_REPORT_SCALE_H

#include <stddef.h>

struct gm_scale {
	double low, high; /* values at the ends: whole multiples of step */
	double step;      /* between ticks: 1, 2 or 5 times a power of ten */
	double from, to;  /* places of low and high */
};

/* A scale that holds low..high with about n_tick ticks (>= 2). Equal, reversed or infinite ends are made into a range. */
struct gm_scale gm_scale_nice(double low, double high, int n_tick);

double gm_scale_at(const struct gm_scale *scale, double value);

int gm_scale_n_tick(const struct gm_scale *scale);
double gm_scale_tick(const struct gm_scale *scale, int i);

/* A value of the scale as text with as many decimals as its step has. Returns out. */
#define GM_SCALE_TEXT 32
char *gm_scale_text(const struct gm_scale *scale, double value, char out[GM_SCALE_TEXT]);

/* A number for people, with about `digits` significant digits and thin spaces between thousands ("12 345", "0.0123"). */
char *gm_short_number(double value, int digits, char out[GM_SCALE_TEXT]);

#endif
