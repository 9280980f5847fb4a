/* The only door to cJSON: parse, read and build JSON values.
 *
 * `struct gm_json` is a value of any kind inside a tree; the root owns all below it. Numbers are doubles; integers
 * up to 2^53 are exact. Text is UTF-8. Reading is strict: a wrong type is an error that names the key.
 */
#ifndef GM_BASE_JSON_H
#define GM_BASE_JSON_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct gm_json;

enum gm_json_type { GM_JSON_NULL, GM_JSON_BOOL, GM_JSON_NUMBER, GM_JSON_STRING, GM_JSON_ARRAY, GM_JSON_OBJECT };

/* Parses size bytes of text; name (a file, say) and the line stand in an error. Anything but white space after the value,
 * a key that stands twice in an object, and nesting of more than 64 are errors. NULL on failure; free with gm_json_free. */
struct gm_json *gm_json_parse(const char *text, size_t size, const char *name, struct gm_error *err);

/* The same for a whole file of at most 64 MiB ("-": standard input). */
struct gm_json *gm_json_parse_file(const char *path, struct gm_error *err);

void gm_json_free(struct gm_json *root);
struct gm_json *gm_json_copy(const struct gm_json *value, struct gm_error *err);

/* Text without line breaks (pretty: indented); doubles in the shortest form that reads back the same. NULL when out of
 * memory; free() it. */
char *gm_json_print(const struct gm_json *value, bool pretty);

/* --- reading --- */
enum gm_json_type gm_json_type(const struct gm_json *value);
const struct gm_json *gm_json_get(const struct gm_json *object, const char *key); /* NULL if absent or not an object */
size_t gm_json_size(const struct gm_json *array_or_object);
const struct gm_json *gm_json_first(const struct gm_json *array_or_object); /* NULL if empty */
const struct gm_json *gm_json_next(const struct gm_json *value);
const char *gm_json_key(const struct gm_json *member);
const char *gm_json_text(const struct gm_json *value); /* NULL unless a string */
double gm_json_value(const struct gm_json *value);     /* NaN unless a number */
bool gm_json_is_true(const struct gm_json *value);

/* A member of an object by key. `found` may be NULL: then the key is required. Otherwise an absent or null member leaves
 * *out as it was, with *found = false. Errors (GM_ERR_FORMAT) name the key, what stands there and what would be right. */
int gm_json_get_number(const struct gm_json *object, const char *key, double *out, bool *found, struct gm_error *err);
/* Whole numbers from min to max. */
int gm_json_get_int(const struct gm_json *object, const char *key, int64_t min, int64_t max, int64_t *out, bool *found,
		    struct gm_error *err);
/* The text lives as long as the tree. */
int gm_json_get_string(const struct gm_json *object, const char *key, const char **out, bool *found, struct gm_error *err);

/* --- building --- (functions that return a pointer give NULL when out of memory; gm_json_add_* on a NULL target or
 * value does nothing and returns false, so that a chain is checked once at its end) */
struct gm_json *gm_json_new_object(void);
struct gm_json *gm_json_new_array(void);
bool gm_json_add_null(struct gm_json *object, const char *key);
bool gm_json_add_bool(struct gm_json *object, const char *key, bool value);
bool gm_json_add_number(struct gm_json *object, const char *key, double value); /* not finite: null */
bool gm_json_add_uint(struct gm_json *object, const char *key, uint64_t value); /* all 64 bits, never as an exponent */
bool gm_json_add_string(struct gm_json *object, const char *key, const char *text);
bool gm_json_add(struct gm_json *object, const char *key, struct gm_json *value); /* takes value over, also on failure */
bool gm_json_append(struct gm_json *array, struct gm_json *value);                /* likewise */
bool gm_json_append_number(struct gm_json *array, double value);
bool gm_json_append_string(struct gm_json *array, const char *text);
void gm_json_remove(struct gm_json *object, const char *key);

#endif
