/* A trace being written on a thread of its own, behind a bounded queue: the forward pass hands over copies and goes on. When the
 * queue is full the caller waits (nothing is ever dropped); when writing fails, the next call says so.
 *
 * Rows are gathered pass by pass. Only a whole pass goes to the writer, so a trace has all rows of a token or does not have the
 * token.
 */
#ifndef GM_RECORDER_RECORDING_H
#define GM_RECORDER_RECORDING_H

#include "base/error.h"
#include "traces/writer.h"

#include <stdbool.h>
#include <stdint.h>

struct gm_recording;

/* Takes writer over, also on failure. max_bytes: of rows and tokens that wait for the writer, beside the pass under way. */
struct gm_recording *gm_recording_open(struct gm_writer *writer, uint32_t n_expert, size_t max_bytes, struct gm_error *err);

/* Between passes. id and label may be NULL. */
int gm_recording_begin_sequence(struct gm_recording *recording, const char *id, const char *label, struct gm_error *err);

/* Copies n rows of the pass under way, from its row number first on. logits [n][n_expert] */
int gm_recording_append(struct gm_recording *recording, uint32_t layer, uint32_t first, uint32_t n, const float *logits,
			struct gm_error *err);

/* The pass under way was one over these n tokens; logprob [n] or NULL. Its rows go to the writer. Rows that did not come are absent. */
int gm_recording_commit(struct gm_recording *recording, uint32_t n, const int32_t *token, uint32_t position,
			const float *logprob, struct gm_error *err);

/* The pass under way failed: its rows are forgotten. */
void gm_recording_drop(struct gm_recording *recording);

uint64_t gm_recording_bytes(struct gm_recording *recording); /* written so far */

struct gm_recording_end {
	uint64_t bytes;  /* written in all, but for the closing index */
	uint64_t n_kept; /* tokens in the .part file that was left, 0: there is none */
};

/* Waits for the queue to empty and closes the writer, with what gm_writer_close says of its file. good false, or a writing thread
 * that failed: the file stays as .part with all passes that went well, and is not renamed. *end may be NULL. Frees the recording
 * in any case; NULL is fine. */
int gm_recording_close(struct gm_recording *recording, bool good, struct gm_recording_end *end, struct gm_error *err);

#endif
