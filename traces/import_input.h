/* Input of the importers: a file or standard input, plain or zstd-compressed (found by its first bytes, whatever the name). */
#ifndef GM_TRACES_IMPORT_INPUT_H
#define GM_TRACES_IMPORT_INPUT_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct gm_feed; /* a stream of bytes, read once from front to back */

/* "-": standard input. NULL on failure. path must outlive the input. */
struct gm_feed *gm_feed_open(const char *path, struct gm_error *err);
void gm_feed_close(struct gm_feed *input); /* NULL is fine */

const char *gm_feed_name(const struct gm_feed *input); /* the path, or "standard input" */
uint64_t gm_feed_size(const struct gm_feed *input);    /* bytes of the file as stored, 0: not known */
uint64_t gm_feed_taken(const struct gm_feed *input);   /* bytes of it read so far */
bool gm_feed_compressed(const struct gm_feed *input);

/* Up to size bytes, fewer only at the end. Returns 0 and *got, or an error (damaged or cut-off zstd data included). */
int gm_feed_read(struct gm_feed *input, void *buffer, size_t size, size_t *got, struct gm_error *err);

/* The next line without its end (LF or CRLF), NUL-terminated, which may be changed by the caller and lives until the next call.
 * Returns 1, 0 at the end, or an error: a line of more than GM_MAX_LINE bytes, or one that holds a NUL byte. */
#define GM_MAX_LINE (64u << 20)
int gm_feed_line(struct gm_feed *input, char **line, size_t *size, struct gm_error *err);
uint64_t gm_feed_line_number(const struct gm_feed *input); /* of the line just read, from 1 */

/* The rest of the input, behind the lines read so far, as a stdio stream (for the CSV reader). It belongs to the input. Where reading from it failed,
 * gm_feed_failure says why, in place of the stream's plain "read error" in *err. */
FILE *gm_feed_stream(struct gm_feed *input, struct gm_error *err);
int gm_feed_failure(struct gm_feed *input, int status, struct gm_error *err);

#endif
