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

#define GM_TIMELINE_TOKENS 16 /* that are drawn where nobody says which */

/* "FROM..TO", both ends included, as --trace-tokens has it. */
int gm_timeline_tokens(const char *text, uint64_t *from, uint64_t *to, struct gm_error *err);

/* Begins the file; title is the name of the whole in the viewer. Write errors are found by gm_output_commit. */
void gm_timeline_begin(struct gm_timeline *timeline, FILE *stream, const char *title);
void gm_timeline_end(struct gm_timeline *timeline);

#endif
