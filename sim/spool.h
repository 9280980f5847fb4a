/* Records that come interleaved from many writers and are wanted writer by writer: an unnamed temporary file, so that memory
 * depends neither on how many records there are nor on how they were interleaved. */
#ifndef GM_SIM_SPOOL_H
#define GM_SIM_SPOOL_H

#include "base/error.h"

#include <stdint.h>

struct gm_spool;

struct gm_spool *gm_spool_new(uint32_t n_writer, size_t record_bytes, struct gm_error *err);
void gm_spool_free(struct gm_spool *spool);

/* Adds a record of a writer. A failure is kept and told by gm_spool_end. */
void gm_spool_put(struct gm_spool *spool, uint32_t writer, const void *record);

/* All of a writer's records are there. */
int gm_spool_end(struct gm_spool *spool, uint32_t writer, struct gm_error *err);

/* Calls `each` for the records of a writer in their order. */
int gm_spool_read(struct gm_spool *spool, uint32_t writer, void (*each)(void *user, const void *record), void *user,
		  struct gm_error *err);

#endif
