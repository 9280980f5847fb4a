/* The reading end of the `.gmt` container: bytes of a file at an offset, or of a pipe as they come, and the header that both a reader
 * and a repair begin with. Private to the trace library. */
#ifndef GM_TRACES_FORMAT_IN_H
#define GM_TRACES_FORMAT_IN_H

#include "base/json.h"
#include "traces/codec.h"
#include "traces/format.h"

struct gm_input {
	int fd;
	char *path; /* for messages too: "standard input" for "-" */
	bool seekable;
	uint64_t size;   /* of the file, 0 where it cannot seek */
	uint64_t offset; /* next byte to come, where it cannot seek */
};

int gm_input_open(struct gm_input *in, const char *path, struct gm_error *err);
void gm_input_close(struct gm_input *in);

/* The n bytes at offset, appended to *to. A pipe gives only what comes next; its buffer grows as data really arrives.
 * GM_ERR_FORMAT ("cut off") where the file ends before. */
int gm_input_fetch(struct gm_input *in, uint64_t offset, uint64_t n, struct gm_buffer *to, struct gm_error *err);

/* Leaves out the next n bytes of a pipe. */
int gm_input_skip(struct gm_input *in, uint64_t n, struct gm_error *err);

/* Whether a pipe has come to its end; a byte that came instead is an error of the caller's. */
int gm_input_at_end(struct gm_input *in, bool *end, struct gm_error *err);

/* The facts of a trace's header. */
struct gm_header {
	struct gm_json *json;
	struct gm_model model;
	struct gm_geometry geometry;
	uint64_t hash;
	uint64_t end; /* offset of the frame after it */
};

/* Reads preamble and HEAD; what is left unread begins at header->end. */
int gm_header_read(struct gm_input *in, struct gm_header *header, struct gm_error *err);
/* The facts from the payload of a HEAD frame alone. */
int gm_header_parse(struct gm_header *header, const uint8_t *payload, size_t size, struct gm_error *err);
void gm_header_free(struct gm_header *header);

#endif
