#include "base/json.h"

#include "base/file.h"
#include "base/json_check.h"
#include "base/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

/* struct gm_json is never defined: it is a cJSON under a name that does not need its header.
 *
 * cJSON reads numbers with the locale's decimal mark, which it asks for itself, so any locale will do. It writes them with
 * up to 17 digits where fewer would do; gm_json_print therefore hands it finished texts ("raw" items). */

#define MAX_FILE_BYTES ((size_t)64 << 20)
#define MANY_KEYS 16 /* from here on sorting beats comparing all pairs */

static cJSON *inner(struct gm_json *value)
{
	return (cJSON *)value;
}

static const cJSON *look(const struct gm_json *value)
{
	return (const cJSON *)value;
}

static struct gm_json *wrap(cJSON *item)
{
	return (struct gm_json *)item;
}

static const struct gm_json *show(const cJSON *item)
{
	return (const struct gm_json *)item;
}

/* --- parsing --- */

static int compare_keys(const void *a, const void *b)
{
	return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

/* One of two members with the same key, NULL if there are none (or no memory to sort: *status tells). */
static const cJSON *twin_among_many(const cJSON *object, size_t n, int *status, struct gm_error *err)
{
	const cJSON **member = gm_alloc(n, sizeof(*member), err), *twin = NULL;
	size_t i = 0;

	if (!member) {
		*status = GM_ERR_MEMORY;
		return NULL;
	}
	for (const cJSON *m = object->child; m; m = m->next)
		member[i++] = m;
	qsort(member, n, sizeof(*member), compare_keys);
	for (i = 1; i < n && !twin; i++)
		if (strcmp(member[i - 1]->string, member[i]->string) == 0)
			twin = member[i];
	for (const cJSON *m = object->child; twin && m; m = m->next)
		if (strcmp(m->string, twin->string) == 0)
			twin = m; /* the last in the text */
	free(member);
	return twin;
}

static const cJSON *find_twin(const cJSON *object, int *status, struct gm_error *err)
{
	size_t n = (size_t)cJSON_GetArraySize(object);

	if (n >= MANY_KEYS)
		return twin_among_many(object, n, status, err);
	for (const cJSON *a = object->child; a; a = a->next)
		for (const cJSON *b = a->next; b; b = b->next)
			if (strcmp(a->string, b->string) == 0)
				return b;
	return NULL;
}

/* The first value that is well formed and still refused: a member whose key stands twice, or a number too large for a
 * double. Recursion is safe: the depth has been checked. */
static const cJSON *find_refused(const cJSON *value, int *status, struct gm_error *err)
{
	const cJSON *found = NULL;

	if (cJSON_IsNumber(value) && !isfinite(value->valuedouble))
		return value;
	if (cJSON_IsObject(value))
		found = find_twin(value, status, err);
	if (value->type & (cJSON_Object | cJSON_Array))
		for (const cJSON *child = value->child; child && !found && *status == GM_OK; child = child->next)
			found = find_refused(child, status, err);
	return found;
}

/* Counts the strings, keys and values, that stand before target's value in document order. True once it is reached. */
static bool count_strings(const cJSON *value, const cJSON *target, size_t *n)
{
	*n += value->string != NULL;
	if (value == target)
		return true;
	*n += cJSON_IsString(value) != 0;
	if (value->type & (cJSON_Object | cJSON_Array))
		for (const cJSON *child = value->child; child; child = child->next)
			if (count_strings(child, target, n))
				return true;
	return false;
}

static void report_refused(const cJSON *root, const cJSON *refused, const char *text, size_t size, const char *name,
			   struct gm_error *err)
{
	const char *key = refused->string ? refused->string : "";
	size_t n = 0;

	count_strings(root, refused, &n);
	/* cJSON keeps no lines; the last string before the value is its key, or close enough for a number in an array. */
	size_t line = n == 0 ? 1 : gm_json_line(text, gm_json_find_string(text, size, n - 1));
	if (cJSON_IsNumber(refused) && !isfinite(refused->valuedouble))
		gm_fail(err, GM_ERR_FORMAT,
			"number too large: %s, line %zu, key \"%.60s\": give one that a double can hold", name, line, key);
	else
		gm_fail(err, GM_ERR_FORMAT, "key stands twice: %s, line %zu: \"%.60s\"", name, line, key);
}

static void report_syntax(const char *text, size_t size, size_t at, const char *name, struct gm_error *err)
{
	size_t n = 0;

	while (at + n < size && n < 24 && text[at + n] >= ' ' && text[at + n] <= '~')
		n++;
	gm_fail(err, GM_ERR_FORMAT, "not valid JSON: %s, line %zu: not understood from here on: %.*s", name,
		gm_json_line(text, at), (int)n, text + at);
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_space(const char *text, size_t size, size_t at)
{
	while (at < size && is_space(text[at]))
		at++;
	return at;
}

/* --- the grammar ---
 * cJSON says by the same NULL that a text is wrong and that memory ran out. What it did not take is therefore walked once more: commas,
 * colons, words and escapes; bytes, numbers and depth have been checked (base/json_check.h), so recursion is safe. All of these return
 * true with *at after what they took, or false with *at where it is wrong. */

static bool walk_hex(const char *text, size_t size, size_t *at, unsigned *code)
{
	*code = 0;
	for (size_t i = 0; i < 4; i++) {
		char c = *at + i < size ? text[*at + i] : '\0';
		unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
				 : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
				 : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
							: 16;
		if (digit == 16)
			return false;
		*code = *code << 4 | digit;
	}
	*at += 4;
	return true;
}

/* From the backslash on. Half a surrogate pair is no character. */
static bool walk_escape(const char *text, size_t size, size_t *at)
{
	size_t next = *at + 2;
	unsigned code, low;

	if (next > size || text[*at + 1] == '\0' || !strchr("\"\\/bfnrtu", text[*at + 1]))
		return false;
	if (text[*at + 1] == 'u') {
		if (!walk_hex(text, size, &next, &code) || (code >= 0xdc00 && code <= 0xdfff))
			return false;
		if (code >= 0xd800 && code <= 0xdbff) {
			if (size - next < 2 || text[next] != '\\' || text[next + 1] != 'u')
				return false;
			next += 2;
			if (!walk_hex(text, size, &next, &low) || low < 0xdc00 || low > 0xdfff)
				return false;
		}
	}
	*at = next;
	return true;
}

static bool walk_string(const char *text, size_t size, size_t *at)
{
	if (*at >= size || text[*at] != '"')
		return false;
	for (++*at; *at < size && text[*at] != '"';) {
		if (text[*at] != '\\')
			++*at;
		else if (!walk_escape(text, size, at))
			return false;
	}
	if (*at >= size)
		return false;
	++*at;
	return true;
}

static bool walk_word(const char *text, size_t size, size_t *at)
{
	static const char *const words[] = {"true", "false", "null"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t n = strlen(words[i]);

		if (size - *at >= n && memcmp(text + *at, words[i], n) == 0) {
			*at += n;
			return true;
		}
	}
	return false;
}

static bool walk_value(const char *text, size_t size, size_t *at);

static bool walk_container(const char *text, size_t size, size_t *at)
{
	bool object = text[*at] == '{';
	char end = object ? '}' : ']';

	*at = skip_space(text, size, *at + 1);
	if (*at < size && text[*at] == end) {
		++*at;
		return true;
	}
	for (;; ++*at) {
		*at = skip_space(text, size, *at);
		if (object) {
			if (!walk_string(text, size, at))
				return false;
			*at = skip_space(text, size, *at);
			if (*at >= size || text[*at] != ':')
				return false;
			*at = skip_space(text, size, *at + 1);
		}
		if (!walk_value(text, size, at))
			return false;
		*at = skip_space(text, size, *at);
		if (*at >= size || (text[*at] != ',' && text[*at] != end))
			return false;
		if (text[*at] == end) {
			++*at;
			return true;
		}
	}
}

static bool walk_value(const char *text, size_t size, size_t *at)
{
	char c = *at < size ? text[*at] : '\0';

	if (c == '{' || c == '[')
		return walk_container(text, size, at);
	if (c == '"')
		return walk_string(text, size, at);
	if (c != '-' && !(c >= '0' && c <= '9'))
		return walk_word(text, size, at);
	while (*at < size && text[*at] && strchr("+-.0123456789eE", text[*at]))
		++*at;
	return true;
}

/* Why cJSON, which stopped at `stop`, made no tree of a text. */
static void report_no_tree(const char *text, size_t size, size_t stop, const char *name, struct gm_error *err)
{
	static const char mark[] = "\xef\xbb\xbf"; /* of byte order: cJSON passes over it */
	size_t at = size >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0;

	at = skip_space(text, size, at);
	if (walk_value(text, size, &at))
		gm_fail(err, GM_ERR_MEMORY, "out of memory: %s: as JSON", name);
	else
		report_syntax(text, size, stop, name, err);
}

/* --- the tree --- */

/* The tree of one value with nothing after it. */
static cJSON *parse_tree(const char *text, size_t size, const char *name, struct gm_error *err)
{
	const char *stop = text;
	cJSON *root = cJSON_ParseWithLengthOpts(text, size, &stop, false);
	size_t at = skip_space(text, size, (size_t)(stop - text));

	if (root && at == size)
		return root;
	if (root)
		gm_fail(err, GM_ERR_FORMAT, "text after the JSON value: %s, line %zu: one file holds one value", name,
			gm_json_line(text, at));
	else
		report_no_tree(text, size, at, name, err);
	cJSON_Delete(root);
	return NULL;
}

struct gm_json *gm_json_parse(const char *text, size_t size, const char *name, struct gm_error *err)
{
	int status = GM_OK;

	if (skip_space(text, size, 0) == size) {
		gm_fail(err, GM_ERR_FORMAT, "no JSON: %s: the text is empty", name);
		return NULL;
	}
	if (gm_json_check(text, size, name, err) < 0)
		return NULL;
	cJSON *root = parse_tree(text, size, name, err);
	if (!root)
		return NULL;
	const cJSON *refused = find_refused(root, &status, err);
	if (refused)
		report_refused(root, refused, text, size, name, err);
	if (!refused && status == GM_OK)
		return wrap(root);
	cJSON_Delete(root);
	return NULL;
}

struct gm_json *gm_json_parse_file(const char *path, struct gm_error *err)
{
	size_t size = 0;
	char *text = gm_read_file(path, MAX_FILE_BYTES, &size, err);

	if (!text)
		return NULL;
	struct gm_json *root = gm_json_parse(text, size, strcmp(path, "-") == 0 ? "standard input" : path, err);
	free(text);
	return root;
}

void gm_json_free(struct gm_json *root)
{
	cJSON_Delete(inner(root));
}

struct gm_json *gm_json_copy(const struct gm_json *value, struct gm_error *err)
{
	cJSON *copy = cJSON_Duplicate(look(value), true);

	if (!copy)
		gm_fail(err, GM_ERR_MEMORY, "out of memory: copy of a JSON value");
	return wrap(copy);
}

/* --- printing --- */

/* Turns numbers into finished texts. False when out of memory. */
static bool settle_numbers(cJSON *value)
{
	char text[GM_NUMBER_TEXT];

	for (; value; value = value->next) {
		if (cJSON_IsNumber(value)) {
			/* The text goes where cJSON_Delete frees it, as in an item made by cJSON_CreateRaw. */
			gm_format_double(value->valuedouble, text);
			size_t size = strlen(text) + 1;
			if (!(value->valuestring = cJSON_malloc(size)))
				return false;
			memcpy(value->valuestring, text, size);
			value->type = (value->type & ~0xff) | cJSON_Raw;
		}
		if (!settle_numbers(value->child))
			return false;
	}
	return true;
}

char *gm_json_print(const struct gm_json *value, bool pretty)
{
	cJSON *copy = cJSON_Duplicate(look(value), true);
	char *text = NULL;

	if (copy && settle_numbers(copy))
		text = pretty ? cJSON_Print(copy) : cJSON_PrintUnformatted(copy);
	cJSON_Delete(copy);
	return text;
}

/* --- reading --- */

enum gm_json_type gm_json_type(const struct gm_json *value)
{
	switch (look(value)->type & 0xff) {
	case cJSON_False:
	case cJSON_True:
		return GM_JSON_BOOL;
	case cJSON_Number:
	case cJSON_Raw: /* only gm_json_add_uint leaves these in a tree */
		return GM_JSON_NUMBER;
	case cJSON_String:
		return GM_JSON_STRING;
	case cJSON_Array:
		return GM_JSON_ARRAY;
	case cJSON_Object:
		return GM_JSON_OBJECT;
	default:
		return GM_JSON_NULL;
	}
}

static bool is_container(const struct gm_json *value)
{
	return value && (look(value)->type & (cJSON_Array | cJSON_Object));
}

const struct gm_json *gm_json_get(const struct gm_json *object, const char *key)
{
	return show(cJSON_GetObjectItemCaseSensitive(look(object), key));
}

size_t gm_json_size(const struct gm_json *array_or_object)
{
	return is_container(array_or_object) ? (size_t)cJSON_GetArraySize(look(array_or_object)) : 0;
}

const struct gm_json *gm_json_first(const struct gm_json *array_or_object)
{
	return is_container(array_or_object) ? show(look(array_or_object)->child) : NULL;
}

const struct gm_json *gm_json_next(const struct gm_json *value)
{
	return show(look(value)->next);
}

const char *gm_json_key(const struct gm_json *member)
{
	return look(member)->string;
}

const char *gm_json_text(const struct gm_json *value)
{
	return cJSON_GetStringValue(look(value));
}

double gm_json_value(const struct gm_json *value)
{
	if (cJSON_IsRaw(look(value)))
		return strtod(look(value)->valuestring, NULL); /* digits alone: no decimal mark to mistake */
	return cJSON_IsNumber(look(value)) ? look(value)->valuedouble : (double)NAN;
}

bool gm_json_is_true(const struct gm_json *value)
{
	return cJSON_IsTrue(look(value));
}

/* What stands there, for a message. */
static const char *describe(const struct gm_json *value, char out[48])
{
	char number[GM_NUMBER_TEXT];

	if (!value)
		return "missing";
	switch (gm_json_type(value)) {
	case GM_JSON_NULL:
		return "null";
	case GM_JSON_BOOL:
		return gm_json_is_true(value) ? "true" : "false";
	case GM_JSON_NUMBER:
		return strcpy(out, gm_format_double(gm_json_value(value), number));
	case GM_JSON_STRING:
		snprintf(out, 48, "\"%.40s\"", gm_json_text(value));
		return out;
	case GM_JSON_ARRAY:
		return "a list";
	case GM_JSON_OBJECT:
		return "an object";
	}
	return "";
}

/* Finds a member for one of the getters. Returns 1 with *value set, 0 if it is absent and may be, or an error. */
static int find_member(const struct gm_json *object, const char *key, const char *wanted, const struct gm_json **value,
		       bool *found, struct gm_error *err)
{
	*value = gm_json_get(object, key);
	bool present = *value && gm_json_type(*value) != GM_JSON_NULL;

	if (found)
		*found = present;
	if (!present && !found)
		return gm_fail(err, GM_ERR_FORMAT, "missing: key \"%s\": give %s", key, wanted);
	return present;
}

static int wrong_type(const char *key, const struct gm_json *value, const char *wanted, struct gm_error *err)
{
	char text[48];

	return gm_fail(err, GM_ERR_FORMAT, "wrong value: key \"%s\" is %s: give %s", key, describe(value, text), wanted);
}

int gm_json_get_number(const struct gm_json *object, const char *key, double *out, bool *found, struct gm_error *err)
{
	const struct gm_json *value;
	int status = find_member(object, key, "a number", &value, found, err);

	if (status <= 0)
		return status;
	if (gm_json_type(value) != GM_JSON_NUMBER)
		return wrong_type(key, value, "a number", err);
	*out = gm_json_value(value);
	return GM_OK;
}

int gm_json_get_int(const struct gm_json *object, const char *key, int64_t min, int64_t max, int64_t *out, bool *found,
		    struct gm_error *err)
{
	const struct gm_json *value;
	char wanted[80];

	snprintf(wanted, sizeof(wanted), "a whole number from %" PRId64 " to %" PRId64, min, max);
	int status = find_member(object, key, wanted, &value, found, err);
	if (status <= 0)
		return status;
	double number = gm_json_value(value);
	/* Above 2^53 a double no longer tells neighbours apart, so such a number cannot be taken at its word. */
	if (!(fabs(number) <= 0x1p53) || number != floor(number) || (int64_t)number < min || (int64_t)number > max)
		return wrong_type(key, value, wanted, err);
	*out = (int64_t)number;
	return GM_OK;
}

int gm_json_get_string(const struct gm_json *object, const char *key, const char **out, bool *found, struct gm_error *err)
{
	const struct gm_json *value;
	int status = find_member(object, key, "a text", &value, found, err);

	if (status <= 0)
		return status;
	if (gm_json_type(value) != GM_JSON_STRING)
		return wrong_type(key, value, "a text", err);
	*out = gm_json_text(value);
	return GM_OK;
}
