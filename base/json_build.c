/* Building JSON values: the other half of json.c. */
#include "base/json.h"

#include "base/json_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

struct gm_json *gm_json_new_object(void)
{
	return (struct gm_json *)cJSON_CreateObject();
}

struct gm_json *gm_json_new_array(void)
{
	return (struct gm_json *)cJSON_CreateArray();
}

/* Puts item under key; an item that finds no place is freed. */
static bool add_item(struct gm_json *object, const char *key, cJSON *item)
{
	if (item && object && cJSON_AddItemToObject((cJSON *)object, key, item))
		return true;
	cJSON_Delete(item);
	return false;
}

static bool append_item(struct gm_json *array, cJSON *item)
{
	if (item && array && cJSON_AddItemToArray((cJSON *)array, item))
		return true;
	cJSON_Delete(item);
	return false;
}

static cJSON *new_number(double value)
{
	return isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull();
}

/* File names are bytes of any kind, JSON is UTF-8: what is no character becomes U+FFFD, the replacement character. */
static cJSON *new_string(const char *text)
{
	static const char replacement[] = "\xef\xbf\xbd";
	size_t size = strlen(text), n = 0;
	char *clean = size < SIZE_MAX / 3 ? malloc(3 * size + 1) : NULL;

	if (!clean)
		return NULL;
	for (size_t i = 0; i < size;) {
		size_t length = gm_utf8_length(text + i, size - i);
		size_t copied = length ? length : 3;

		memcpy(clean + n, length ? text + i : replacement, copied);
		n += copied;
		i += length ? length : 1;
	}
	clean[n] = '\0';
	cJSON *item = cJSON_CreateString(clean);
	free(clean);
	return item;
}

bool gm_json_add_null(struct gm_json *object, const char *key)
{
	return add_item(object, key, cJSON_CreateNull());
}

bool gm_json_add_bool(struct gm_json *object, const char *key, bool value)
{
	return add_item(object, key, cJSON_CreateBool(value));
}

bool gm_json_add_number(struct gm_json *object, const char *key, double value)
{
	return add_item(object, key, new_number(value));
}

bool gm_json_add_uint(struct gm_json *object, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	return add_item(object, key, cJSON_CreateRaw(text));
}

bool gm_json_add_string(struct gm_json *object, const char *key, const char *text)
{
	return add_item(object, key, new_string(text));
}

bool gm_json_add(struct gm_json *object, const char *key, struct gm_json *value)
{
	return add_item(object, key, (cJSON *)value);
}

bool gm_json_append(struct gm_json *array, struct gm_json *value)
{
	return append_item(array, (cJSON *)value);
}

bool gm_json_append_number(struct gm_json *array, double value)
{
	return append_item(array, new_number(value));
}

bool gm_json_append_string(struct gm_json *array, const char *text)
{
	return append_item(array, new_string(text));
}

void gm_json_remove(struct gm_json *object, const char *key)
{
	cJSON_DeleteItemFromObjectCaseSensitive((cJSON *)object, key);
}
