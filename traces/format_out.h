/* The writing end of the `.gmt` container: frames go out one after the other, the index is gathered on the way. Private to the trace
 * library: the writer and the repair stand on it. */
#ifndef GM_TRACES_FORMAT_OUT_H
#define GM_TRACES_FORMAT_OUT_H

#include "traces/format.h"

struct gm_trace_out {
	int fd;
	char *path;      /* final name; "-": standard output */
	char *part;      /* name while being written, NULL for standard output, pipes and devices */
	uint64_t offset; /* bytes written */
	uint64_t head_hash;
	uint32_t n_sequence_written; /* of the index's sequences, those that stand in the file */
	struct gm_index index;
	bool failed; /* a write failed: nothing more goes out */
};

/* Creates path + suffix (renamed by finish), or opens standard output, a pipe or a device. With `protect` an earlier file of that
 * name that holds whole blocks is refused, not overwritten: it is a recording that was cut off. */
int gm_trace_out_open(struct gm_trace_out *out, const char *path, const char *suffix, bool protect, struct gm_error *err);

/* Preamble and HEAD frame; text is the header's JSON. */
int gm_trace_out_head(struct gm_trace_out *out, const char *text, size_t size, struct gm_error *err);

/* SEQN frames of the index's sequences below `end` that were not written yet. */
int gm_trace_out_sequences(struct gm_trace_out *out, uint32_t end, struct gm_error *err);

/* A whole BLCK frame in one write; block->offset is filled in. Sequences' n_token is the caller's. */
int gm_trace_out_block(struct gm_trace_out *out, const uint8_t *frame, size_t size, struct gm_index_block *block,
		       struct gm_error *err);

/* Whether somebody has deleted the .part file (or its whole folder) meanwhile. */
bool gm_trace_out_removed(const struct gm_trace_out *out);

/* The remaining sequences, index and trailer; closes and renames. */
int gm_trace_out_finish(struct gm_trace_out *out, struct gm_error *err);

/* Closes and frees; the .part file is removed unless it is to be kept (and holds a block). After finish: only frees. */
void gm_trace_out_release(struct gm_trace_out *out, bool keep);

#endif
