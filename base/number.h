/* Numbers and sizes as people type them, and as files must hold them: independent of the locale. */
#ifndef GM_BASE_NUMBER_H
#define GM_BASE_NUMBER_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* A whole string as a finite number ("0.15", "1e3"), with '.' as decimal mark; no white space, no hex. 0 or GM_ERR_USAGE
 * (err may be NULL; `what` names the value in the message). */
int gm_parse_double(const char *text, const char *what, double *out, struct gm_error *err);

/* A whole string as a decimal integer in [min, max]. */
int gm_parse_u64(const char *text, const char *what, uint64_t min, uint64_t max, uint64_t *out, struct gm_error *err);
int gm_parse_u32(const char *text, const char *what, uint32_t min, uint32_t max, uint32_t *out, struct gm_error *err);

/* Bytes: "1500", or a number (with decimals) and one of B KiB MiB GiB TiB kB MB GB TB; rounded to the nearest byte.
 * has_unit (may be NULL) tells whether a unit stood there. */
int gm_parse_bytes(const char *text, const char *what, uint64_t *out, bool *has_unit, struct gm_error *err);

/* The shortest decimal form that reads back as the same double; "inf", "-inf", "nan" for the others. out has room for at
 * least GM_NUMBER_TEXT bytes; returns out. */
#define GM_NUMBER_TEXT 32
char *gm_format_double(double value, char *out);

/* "1.82 MiB", "512 B": for people, three significant digits. */
char *gm_format_bytes(uint64_t bytes, char *out);

#endif
