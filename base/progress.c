#include "base/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define DRAW_EVERY_S 0.2

double gm_clock_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void gm_progress_start(struct gm_progress *p, const char *what, const char *unit, uint64_t total, bool quiet)
{
	*p = (struct gm_progress){.what = what, .unit = unit, .total = total};
	p->active = !quiet && isatty(STDERR_FILENO);
	if (p->active)
		p->started = p->shown = gm_clock_s(); /* work that is done at once draws nothing */
}

static void draw(const struct gm_progress *p, uint64_t done, double now)
{
	double passed = now - p->started;
	double rate = (double)done / (passed > 0 ? passed : 1e-9);

	fprintf(stderr, "\r%s: ", p->what);
	if (p->total > 0)
		fprintf(stderr, "%.0f%%, ", 100.0 * (double)done / (double)p->total);
	fprintf(stderr, "%" PRIu64 " %s, %.0f %s/s", done, p->unit, rate, p->unit);
	if (p->total > done && rate > 0) {
		double left = (double)(p->total - done) / rate;
		if (left >= 60)
			fprintf(stderr, ", %.0f min left", left / 60);
		else
			fprintf(stderr, ", %.0f s left", left);
	}
	fputs("\033[K", stderr); /* the rest of a longer line before */
	fflush(stderr);
}

void gm_progress_update(struct gm_progress *p, uint64_t done)
{
	if (!p->active)
		return;
	double now = gm_clock_s();
	if (now - p->shown < DRAW_EVERY_S)
		return;
	p->shown = now;
	draw(p, done, now);
}

void gm_progress_end(struct gm_progress *p)
{
	if (p->active && p->shown > p->started)
		fputs("\r\033[K", stderr);
	p->active = false;
}
