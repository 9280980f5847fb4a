/* Checking a `.gmt` trace from end to end, and saving what is whole of a damaged one (docs/trace-format.md). Both read the file
 * frame by frame in bounded memory, find the next frame by its own checksum after a damaged one, and need a file that can seek. */
#ifndef GM_TRACES_VERIFY_H
#define GM_TRACES_VERIFY_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define GM_MAX_PROBLEMS 16u /* kept with their text; the others are only counted */

struct gm_trace_problem {
	uint64_t offset; /* of the frame or byte, in the file */
	char text[200];  /* "what is wrong: what would be right", without file and offset */
};

/* A problem as a failure: "what: PATH: byte N: right". Returns GM_ERR_FORMAT. */
int gm_trace_problem_fail(const struct gm_trace_problem *problem, const char *path, struct gm_error *err);

struct gm_verify_report {
	uint64_t n_block, n_token, n_row; /* of the blocks that are whole */
	uint32_t n_sequence;
	uint64_t bytes;                                   /* size of the file */
	bool has_index;                                   /* false: cut off before the index, or the index is damaged */
	char hash[17];                                    /* as gm_trace_hash, "" without an index */
	bool can_save;                                    /* gm_trace_repair would find something to save */
	uint64_t n_problem;                               /* 0: everything is right */
	struct gm_trace_problem problem[GM_MAX_PROBLEMS]; /* the first of them, in order of the file */
};

/* Checks every frame, checksum and index entry, the order of tokens, passes and sequences, and of every row: distinct experts
 * in range, finite logits, the order of the head and the log-sum-exp as far as the stored logits can tell.
 * Returns 0, or GM_ERR_FORMAT with the first problem in err (file and offset named) and all in *report, or another error
 * (cannot be opened, out of memory). The report is filled as far as the check came; it owns no memory. */
int gm_trace_verify(const char *path, struct gm_verify_report *report, struct gm_error *err);

struct gm_repair_report {
	uint64_t n_block, n_token, n_row; /* saved */
	uint32_t n_sequence;              /* in the new file, those that lost all their tokens included */
	uint64_t n_lost_block; /* damaged blocks that were found and left out (those that vanished whole are not known) */
	uint64_t lost_bytes;   /* bytes of the input that belong to no whole frame */
	bool had_index;        /* the input had a good index: it was not cut off */
	uint64_t n_problem;
	struct gm_trace_problem problem[GM_MAX_PROBLEMS];
};

/* Writes all whole blocks of `path` to a good trace `out` (not "-" and not the same file). A damaged block is left out and
 * reported, the blocks after it are kept and renumbered; passes and positions stay as recorded. Succeeds with nothing
 * lost on a good file. Errors: the header is damaged (nothing can be read without it), no whole block, I/O. */
int gm_trace_repair(const char *path, const char *out, struct gm_repair_report *report, struct gm_error *err);

#endif
