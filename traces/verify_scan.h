/* Walking a perhaps damaged trace frame by frame. Private to verify and repair. */
#ifndef GM_TRACES_VERIFY_SCAN_H
#define GM_TRACES_VERIFY_SCAN_H

#include "traces/format_in.h"
#include "traces/reader.h"
#include "traces/verify.h"

/* Where problems are noted: the tail of either report. */
struct gm_problems {
	uint64_t *n;
	struct gm_trace_problem *list; /* [GM_MAX_PROBLEMS] */
};

/* Notes the message in *why (reset by this) at an offset of the file. */
void gm_problem_add(struct gm_problems *problems, uint64_t offset, struct gm_error *why);

struct gm_scan {
	struct gm_input *in;
	struct gm_problems *problems;
	uint64_t next;       /* where the next frame should begin */
	uint64_t last;       /* where the frame before it began: sought from there when none is at `next` */
	uint64_t lost_bytes; /* passed over so far while seeking a frame */
	struct gm_buffer window;
};

void gm_scan_begin(struct gm_scan *scan, struct gm_input *in, struct gm_problems *problems, uint64_t offset);

/* The next frame whose header is whole and whose payload lies inside the file. Bytes passed over on the way are a
 * problem. 1, 0 at the end of the file, or an I/O error. */
int gm_scan_next(struct gm_scan *scan, struct gm_frame *frame, uint64_t *offset, struct gm_error *err);
void gm_scan_end(struct gm_scan *scan);

/* A block's payload, all of it checked and decoded. */
int gm_scan_block(struct gm_codec *codec, const struct gm_frame *frame, const struct gm_buffer *payload,
		  struct gm_directory *directory, struct gm_block *block, struct gm_error *err);

#endif
