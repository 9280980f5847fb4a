/* A timeline as Chrome trace events (JSON), which Perfetto and chrome://tracing open: one lane each for GPU, link, CPU and disk. Written
 * as it comes. The format: "Trace Event Format", complete events (ph X) with ts and dur in µs, whole ns. */
#ifndef GM_SIM_TIMELINE_H
#define GM_SIM_TIMELINE_H

#include "sim/clock.h"

#include <stdio.h>

struct gm_timeline {
	FILE *stream;
	struct gm_span_sink sink; /* give it to a replay */
};

/* Begins the file; title is the name of the whole in the viewer. Write errors are found by gm_output_commit. */
void gm_timeline_begin(struct gm_timeline *timeline, FILE *stream, const char *title);
void gm_timeline_end(struct gm_timeline *timeline);

#endif
