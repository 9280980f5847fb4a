/* Status codes and error details, used by every part of gatemass.
 *
 * A function that can fail returns 0 or a negative `enum gm_status` and, where it takes a `struct gm_error *`, says there
 * what is wrong, where (file, offset, line or field) and what would be right. Only programs print and exit.
 */
#ifndef GM_BASE_ERROR_H
#define GM_BASE_ERROR_H

#include <stddef.h>

enum gm_status {
	GM_OK = 0,
	GM_ERR_USAGE = -1,       /* an argument or option that makes no sense: exit status 2 */
	GM_ERR_IO = -2,          /* the system refused: open, read, write, rename */
	GM_ERR_FORMAT = -3,      /* the data is damaged, cut off or not of this format */
	GM_ERR_MEMORY = -4,      /* out of memory, or a bound on memory would be broken */
	GM_ERR_UNSUPPORTED = -5, /* understood, but this input cannot give it (a substitution from a top-k trace, say) */
};

/* Room for one message, "what is wrong: where: what would be right":
 *
 *     not a whole number: --head "x": give one from 1 to 65535
 *     the checksum does not match: model.gmt: block 7 at byte 90112: damaged
 *     cannot be opened: nofile.gmt: No such file or directory
 *
 * What is wrong comes first and has no ": " in it but between quotes. A place within a place stands behind the larger one. What would be right
 * may be missing where it goes without saying; the system's own reason can stand for it. */
struct gm_error {
	int code;       /* enum gm_status, 0 while nothing failed */
	char text[256]; /* NUL-terminated, cut off with "…" where it does not fit */
};

/* Records a failure and returns its code, so that `return gm_fail(err, GM_ERR_IO, "...")` reads naturally.
 * The first failure wins: an error already recorded is kept. `err` may be NULL. */
int gm_fail(struct gm_error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts a place that is learnt further out (the file around a block) into a recorded message, behind what is wrong: "what: right" becomes
 * "what: FILE: right". Returns err->code. */
int gm_error_at(struct gm_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Forwards a failure to the caller. */
#define GM_TRY(call)                       \
	do {                               \
		int gm_status_ = (call);   \
		if (gm_status_ < 0)        \
			return gm_status_; \
	} while (0)

/* The same in a function that has a clean-up label `out` and an int `status`. */
#define GM_TRY_OUT(call)          \
	do {                      \
		status = (call);  \
		if (status < 0)   \
			goto out; \
	} while (0)

/* calloc/realloc that report failure as an error; sizes are checked for overflow. gm_alloc zeroes the memory.
 * Both return NULL and record GM_ERR_MEMORY on failure (gm_realloc leaves the old block alone). n == 0 gives a valid pointer. */
void *gm_alloc(size_t n, size_t size, struct gm_error *err);
void *gm_realloc(void *old, size_t n, size_t size, struct gm_error *err);

/* Makes room for n values in a heap array of the caller, or forwards GM_ERR_MEMORY from the calling function; the old values stay. */
#define GM_GROW(array, n, err)                                                 \
	do {                                                                   \
		void *gm_grown_ = gm_realloc(array, n, sizeof(*(array)), err); \
		if (!gm_grown_)                                                \
			return GM_ERR_MEMORY;                                  \
		(array) = gm_grown_;                                           \
	} while (0)

/* A copy of a string on the heap, or NULL with GM_ERR_MEMORY. */
char *gm_strdup(const char *text, struct gm_error *err);

#endif
