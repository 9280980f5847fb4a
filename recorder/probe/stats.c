/* Medians with their spread, and the line through them (see probe.h). */
#include "recorder/probe/probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct gm_spread gm_spread_of(double *value, size_t n)
{
	qsort(value, n, sizeof(*value), compare);
	return (struct gm_spread){.median = n % 2 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2,
				  .low = value[0],
				  .high = value[n - 1]};
}

char *gm_spread_format(const struct gm_spread *spread, char text[GM_SPREAD_TEXT])
{
	snprintf(text, GM_SPREAD_TEXT, "%.4g (%.4g-%.4g)", spread->median, spread->low, spread->high);
	return text;
}

/* Weighted by 1 / time^2, the sum of squared relative errors has its minimum where the two normal equations hold. */
struct gm_line gm_line_fit(const uint64_t *size, const struct gm_spread *time_us, uint32_t n)
{
	double w = 0, x = 0, y = 0, xx = 0, xy = 0, slope, determinant;
	struct gm_line line = {0};

	for (uint32_t i = 0; i < n; i++) {
		double bytes = (double)size[i], t = time_us[i].median > 0 ? time_us[i].median : 1e-3, weight = 1 / (t * t);

		w += weight;
		x += weight * bytes;
		y += weight * t;
		xx += weight * bytes * bytes;
		xy += weight * bytes * t;
	}
	determinant = w * xx - x * x;
	slope = determinant > 0 ? (w * xy - x * y) / determinant : 0;
	line.latency_us = (y - slope * x) / w;
	if (slope <= 0 || line.latency_us < 0) { /* through the origin */
		slope = xy / xx;
		line.latency_us = 0;
	}
	line.gb_s = 1e-3 / slope; /* bytes/µs = 1e-3 GB/s */
	for (uint32_t i = 0; i < n; i++) {
		double predicted = line.latency_us + slope * (double)size[i];
		double error = fabs(predicted - time_us[i].median) / fmax(time_us[i].median, 1e-3);

		line.worst = fmax(line.worst, error);
	}
	return line;
}
