/* Progress of long work on stderr: done, rate and time left, when stderr is a terminal. */
#ifndef GM_BASE_PROGRESS_H
#define GM_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct gm_progress {
	const char *what;      /* "sweep" */
	const char *unit;      /* "tokens" */
	uint64_t total;        /* 0: not known */
	double started, shown; /* seconds, monotonic clock; private */
	bool active;
};

void gm_progress_start(struct gm_progress *p, const char *what, const char *unit, uint64_t total, bool quiet);
void gm_progress_update(struct gm_progress *p, uint64_t done); /* cheap: draws at most five times a second */
void gm_progress_end(struct gm_progress *p);                   /* wipes the line */

/* Seconds on the monotonic clock. */
double gm_clock_s(void);

#endif
