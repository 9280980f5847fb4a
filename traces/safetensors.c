#include "traces/safetensors.h"

#include "traces/select.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	uint32_t bytes;
} types[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
	     {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};

static uint32_t bytes_of(const char *dtype)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(types[i].name, dtype) == 0)
			return types[i].bytes;
	return 0;
}

static int bad(const struct gm_feed *input, const char *what, const char *right, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_FORMAT, "%s: %s: %s", what, gm_feed_name(input), right);
}

/* --- one tensor --- */

static int bad_tensor(const struct gm_safetensor *t, const struct gm_feed *input, const char *what, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_FORMAT, "tensor \"%.60s\" %s: %s: is the file damaged?", t->name, what,
		       gm_feed_name(input));
}

/* The whole numbers of a list; at most max. */
static bool read_list(const struct gm_json *list, uint64_t *out, uint32_t max, uint32_t *n)
{
	*n = 0;
	if (gm_json_type(list) != GM_JSON_ARRAY || gm_json_size(list) > max)
		return false;
	for (const struct gm_json *e = gm_json_first(list); e; e = gm_json_next(e)) {
		double value = gm_json_value(e);

		if (!(value >= 0 && value <= 0x1p53 && value == (double)(uint64_t)value))
			return false;
		out[(*n)++] = (uint64_t)value;
	}
	return true;
}

static int read_tensor(struct gm_safetensor *t, const struct gm_json *entry, const struct gm_feed *input,
		       struct gm_error *err)
{
	uint64_t offsets[2];
	uint32_t n_offset;

	t->name = gm_json_key(entry);
	t->dtype = gm_json_text(gm_json_get(entry, "dtype"));
	if (!t->dtype)
		return bad_tensor(t, input, "has no \"dtype\"", err);
	t->item_bytes = bytes_of(t->dtype);
	if (!gm_json_get(entry, "shape") ||
	    !read_list(gm_json_get(entry, "shape"), t->shape, GM_SAFETENSORS_MAX_DIM, &t->n_dim))
		return bad_tensor(t, input, "has no \"shape\" of whole numbers", err);
	if (!gm_json_get(entry, "data_offsets") || !read_list(gm_json_get(entry, "data_offsets"), offsets, 2, &n_offset) ||
	    n_offset != 2 || offsets[0] > offsets[1])
		return bad_tensor(t, input, "has no \"data_offsets\" [begin, end]", err);
	t->begin = offsets[0];
	t->end = offsets[1];
	t->n_item = 1;
	for (uint32_t i = 0; i < t->n_dim; i++) {
		if (t->shape[i] != 0 && t->n_item > UINT64_MAX / 8 / t->shape[i])
			return bad_tensor(t, input, "has an absurd shape", err);
		t->n_item *= t->shape[i];
	}
	if (t->item_bytes && t->n_item * t->item_bytes != t->end - t->begin)
		return bad_tensor(t, input, "has another size than its shape", err);
	return GM_OK;
}

static int by_place(const void *a, const void *b)
{
	const struct gm_safetensor *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->end < y->end ? -1 : x->end > y->end;
}

/* --- the header --- */

static int read_tensors(struct gm_safetensors *st, const struct gm_feed *input, struct gm_error *err)
{
	st->tensor = gm_alloc(gm_json_size(st->header), sizeof(*st->tensor), err);
	if (!st->tensor)
		return GM_ERR_MEMORY;
	for (const struct gm_json *e = gm_json_first(st->header); e; e = gm_json_next(e))
		if (strcmp(gm_json_key(e), "__metadata__") != 0)
			GM_TRY(read_tensor(&st->tensor[st->n++], e, input, err));
	if (st->n > 0)
		qsort(st->tensor, st->n, sizeof(*st->tensor), by_place);
	for (size_t i = 0; i < st->n; i++) {
		if (st->tensor[i].begin != st->data_bytes)
			return bad_tensor(&st->tensor[i], input, "does not begin where the one before it ends", err);
		st->data_bytes = st->tensor[i].end;
	}
	return GM_OK;
}

static int read_length(struct gm_safetensors *st, struct gm_feed *input, uint64_t *length, struct gm_error *err)
{
	unsigned char bytes[8];
	size_t got;

	*length = 0;
	GM_TRY(gm_feed_read(input, bytes, sizeof(bytes), &got, err));
	for (int i = 7; i >= 0; i--)
		*length = *length << 8 | bytes[i];
	if (got < sizeof(bytes) || *length < 2 || *length > GM_SAFETENSORS_MAX_HEADER)
		return bad(input, "not a safetensors file", "it begins with the length of its header", err);
	st->header_bytes = sizeof(bytes) + *length;
	return GM_OK;
}

static int read_header(struct gm_safetensors *st, struct gm_feed *input, struct gm_error *err)
{
	uint64_t length, size = gm_feed_compressed(input) ? 0 : gm_feed_size(input);
	size_t got;
	char *text;

	GM_TRY(read_length(st, input, &length, err));
	if (size > 0 && st->header_bytes > size)
		return bad(input, "not a safetensors file, or cut off in its header", "is the file whole?", err);
	text = gm_alloc((size_t)length, 1, err);
	if (!text)
		return GM_ERR_MEMORY;
	int status = gm_feed_read(input, text, (size_t)length, &got, err);

	if (status == GM_OK && (got < length || text[0] != '{'))
		status = bad(input, "not a safetensors file, or cut off in its header", "it must be a JSON object", err);
	if (status == GM_OK) {
		st->header = gm_json_parse(text, (size_t)length, gm_feed_name(input), err);
		status = st->header ? GM_OK : err ? err->code : GM_ERR_FORMAT;
	}
	free(text);
	GM_TRY(status);
	GM_TRY(read_tensors(st, input, err));
	if (size > 0 && size != st->header_bytes + st->data_bytes)
		return gm_fail(err, GM_ERR_FORMAT,
			       "%" PRIu64 " bytes: %s: its tensors end at %" PRIu64 ": is the file whole?", size,
			       gm_feed_name(input), st->header_bytes + st->data_bytes);
	return GM_OK;
}

int gm_safetensors_read(struct gm_safetensors *st, struct gm_feed *input, struct gm_error *err)
{
	memset(st, 0, sizeof(*st));
	int status = read_header(st, input, err);

	if (status < 0)
		gm_safetensors_free(st);
	return status;
}

void gm_safetensors_free(struct gm_safetensors *st)
{
	gm_json_free(st->header);
	free(st->tensor);
	memset(st, 0, sizeof(*st));
}

/* --- values --- */

bool gm_safetensor_is_float(const struct gm_safetensor *t)
{
	return strcmp(t->dtype, "F32") == 0 || strcmp(t->dtype, "F16") == 0 || strcmp(t->dtype, "BF16") == 0;
}

void gm_safetensor_floats(const struct gm_safetensor *t, const unsigned char *data, size_t n, float *out)
{
	bool brain = t->dtype[0] == 'B';

	for (size_t i = 0; i < n; i++) {
		const unsigned char *at = data + i * t->item_bytes;
		uint32_t bits = (uint32_t)at[0] | (uint32_t)at[1] << 8;

		if (t->item_bytes == 2 && !brain) {
			out[i] = gm_from_f16((uint16_t)bits);
			continue;
		}
		/* a bfloat16 is the upper half of a float32 */
		bits = brain ? bits << 16 : bits | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
		memcpy(&out[i], &bits, sizeof(bits));
	}
}
