/* Output files that never stand half-written under their final name, and whole text files as input. */
#ifndef GM_BASE_FILE_H
#define GM_BASE_FILE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdio.h>

/* An output: written as NAME.part beside NAME and renamed by gm_output_commit; "-" is standard output. */
struct gm_output {
	FILE *stream;
	char *path; /* final name, NULL for standard output */
	char *part; /* name while being written */
};

/* The file that a path for output stands for: where a link leads, so that the file behind it is replaced and not the link. NULL with
 * GM_ERR_MEMORY; free() it. */
char *gm_output_name(const char *path, struct gm_error *err);

/* The name that such a file has while it is written. NULL with GM_ERR_MEMORY; free() it. */
char *gm_output_part(const char *path, struct gm_error *err);

/* Opens for writing. On failure nothing is left behind. A path that is a device or a pipe (/dev/null, a FIFO) is written to
 * directly. */
int gm_output_open(struct gm_output *out, const char *path, struct gm_error *err);

/* Flushes, checks for write errors, closes and renames. On failure the .part file is removed. */
int gm_output_commit(struct gm_output *out, struct gm_error *err);

/* Closes and removes what was written; does nothing after a commit or on a zeroed struct. */
void gm_output_discard(struct gm_output *out);

/* A file that a command reads or writes, for gm_files_check. */
struct gm_file_use {
	const char *path; /* NULL and "-": not looked at */
	const char *what; /* the option or operand that names it: "--csv", "TRACE" */
	bool is_output;
};

/* Refuses (GM_ERR_USAGE) an output that is also an input, or two outputs that are one file, under whatever spelling or link; also where it is
 * the output's NAME.part that another use names. Devices and pipes may be shared. */
int gm_files_check(const struct gm_file_use *use, size_t n, struct gm_error *err);

/* Refuses (GM_ERR_USAGE) a second input or output that is "-": standard input and output serve once. */
int gm_streams_check(const struct gm_file_use *use, size_t n, struct gm_error *err);

/* A whole file ("-": standard input) of at most max bytes, NUL-terminated. NULL on failure; free() it. size may be NULL. */
char *gm_read_file(const char *path, size_t max, size_t *size, struct gm_error *err);

#endif
