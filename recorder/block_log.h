/* A line for every block that stands whole in the trace being written: what a recording that is killed must not lose. */
#ifndef GM_RECORDER_BLOCK_LOG_H
#define GM_RECORDER_BLOCK_LOG_H

#include "base/error.h"
#include "traces/writer.h"

struct gm_block_log;

/* Creates path. NULL on failure; a NULL path gives NULL as well, without an error. */
struct gm_block_log *gm_block_log_open(const char *path, struct gm_error *err);

/* For gm_writer_options.on_block: "INDEX FIRST_TOKEN N_TOKEN N_ROW OFFSET BYTES HASH", in one write. log may be NULL. */
void gm_block_log_add(void *log, const struct gm_block_written *block);

/* Says whether all lines were written. NULL is fine. */
int gm_block_log_close(struct gm_block_log *log, struct gm_error *err);

#endif
