/* Importer for router logits of PyTorch: a tensor [tokens, experts] a layer, as transformers gives them with output_router_logits; the
 * facts as import_array.h says.
 *
 * Which tensors: those of --tensors PATTERN, whose * stands for the layer's number; without it all float tensors, whose names must
 * then differ in their last number only. Layers go in order of that number, which need not begin at 0 nor be without gaps (the
 * trace keeps it as "model_layer"). A tensor of integers called "tokens" or "input_ids" gives the token ids. */
#include "traces/import_array.h"
#include "traces/safetensors.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct layer {
	uint32_t number; /* in the tensor's name */
	const struct gm_safetensor *tensor;
};

/* "model.layers.12.mlp.gate" is prefix, number, suffix; without a number the suffix is NULL and the prefix the whole name. */
struct pattern {
	const char *prefix, *suffix;
	size_t n_prefix;
};

struct st_import {
	struct gm_feed *input;
	struct gm_safetensors st;
	struct layer *layer; /* [n_layer] by number */
	uint32_t n_layer;
	uint64_t n_token;
	uint32_t n_expert;
	int fd;             /* the data can be read from here at any place */
	uint64_t base;      /* offset of the data in it */
	unsigned char *raw; /* [GM_ARRAY_BATCH][n_expert] as stored */
	float *rows;        /* the same as floats */
};

/* --- which tensors --- */

static bool matches(const struct pattern *p, const char *name, uint32_t *number)
{
	const char *end;
	uint32_t n = 0;

	*number = 0;
	if (!p->suffix)
		return strlen(name) == p->n_prefix && memcmp(name, p->prefix, p->n_prefix) == 0;
	if (strncmp(name, p->prefix, p->n_prefix) != 0)
		return false;
	end = name + p->n_prefix;
	for (; isdigit((unsigned char)*end) && n < GM_MAX_LAYER * 10; end++)
		n = n * 10 + (uint32_t)(*end - '0');
	*number = n;
	return end > name + p->n_prefix && strcmp(end, p->suffix) == 0;
}

static struct pattern given_pattern(const char *text)
{
	const char *star = strchr(text, '*');

	return (struct pattern){
		.prefix = text, .n_prefix = star ? (size_t)(star - text) : strlen(text), .suffix = star ? star + 1 : NULL};
}

/* The pattern of a name whose last number is the layer's. */
static struct pattern guessed_pattern(const char *name)
{
	size_t end = strlen(name), start;

	while (end > 0 && !isdigit((unsigned char)name[end - 1]))
		end--;
	if (end == 0)
		return given_pattern(name);
	for (start = end; start > 0 && isdigit((unsigned char)name[start - 1]);)
		start--;
	return (struct pattern){.prefix = name, .n_prefix = start, .suffix = name + end};
}

static int check_tensor(const struct st_import *s, const struct gm_safetensor *t, struct gm_error *err)
{
	if (!gm_safetensor_is_float(t))
		return gm_fail(err, GM_ERR_FORMAT, "tensor \"%.60s\" is of %.20s: %s: must be F32, F16 or BF16", t->name,
			       t->dtype, gm_feed_name(s->input));
	if (t->n_dim != 2)
		return gm_fail(err, GM_ERR_FORMAT,
			       "tensor \"%.60s\" has %u dimensions: %s: must be [tokens, experts]: reshape(-1, n_experts)",
			       t->name, t->n_dim, gm_feed_name(s->input));
	if (t->shape[0] == 0 || t->shape[1] == 0 || t->shape[1] > GM_MAX_EXPERT)
		return gm_fail(err, GM_ERR_FORMAT,
			       "tensor \"%.60s\" is [%" PRIu64 ", %" PRIu64 "]: %s: must be [tokens, experts]", t->name,
			       t->shape[0], t->shape[1], gm_feed_name(s->input));
	if (s->n_layer > 0 && (t->shape[0] != s->n_token || t->shape[1] != s->n_expert))
		return gm_fail(
			err, GM_ERR_FORMAT,
			"tensors \"%.50s\" and \"%.50s\" have different shapes: %s: must have the same tokens and experts",
			s->layer[0].tensor->name, t->name, gm_feed_name(s->input));
	return GM_OK;
}

static int add_layer(struct st_import *s, const struct gm_safetensor *t, uint32_t number, struct gm_error *err)
{
	GM_TRY(check_tensor(s, t, err));
	if (s->n_layer == GM_MAX_LAYER)
		return gm_fail(err, GM_ERR_UNSUPPORTED, "more than %u layers: %s: narrow them down with --tensors",
			       GM_MAX_LAYER, gm_feed_name(s->input));
	s->layer[s->n_layer++] = (struct layer){.number = number, .tensor = t};
	s->n_token = t->shape[0];
	s->n_expert = (uint32_t)t->shape[1];
	return GM_OK;
}

static int by_number(const void *a, const void *b)
{
	const struct layer *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static int sort_layers(struct st_import *s, struct gm_error *err)
{
	qsort(s->layer, s->n_layer, sizeof(*s->layer), by_number);
	for (uint32_t i = 1; i < s->n_layer; i++)
		if (s->layer[i].number == s->layer[i - 1].number)
			return gm_fail(err, GM_ERR_FORMAT,
				       "layer %u stands there twice: %s: tensors \"%.50s\" and \"%.50s\"",
				       s->layer[i].number, gm_feed_name(s->input), s->layer[i - 1].tensor->name,
				       s->layer[i].tensor->name);
	return GM_OK;
}

static int find_layers(struct st_import *s, const char *tensors, struct gm_error *err)
{
	struct pattern pattern = {0};
	uint32_t number;

	s->layer = gm_alloc(s->st.n < GM_MAX_LAYER ? s->st.n : GM_MAX_LAYER, sizeof(*s->layer), err);
	if (!s->layer)
		return GM_ERR_MEMORY;
	if (tensors)
		pattern = given_pattern(tensors);
	for (size_t i = 0; i < s->st.n; i++) {
		const struct gm_safetensor *t = &s->st.tensor[i];

		if (!tensors && !gm_safetensor_is_float(t))
			continue;
		if (!pattern.prefix)
			pattern = guessed_pattern(t->name);
		if (matches(&pattern, t->name, &number))
			GM_TRY(add_layer(s, t, number, err));
		else if (!tensors)
			return gm_fail(
				err, GM_ERR_FORMAT,
				"\"%.40s\" and \"%.40s\" differ in more than a layer's number: %s: say with --tensors "
				"PATTERN which are router logits",
				s->layer[0].tensor->name, t->name, gm_feed_name(s->input));
	}
	if (s->n_layer == 0 && tensors)
		return gm_fail(err, GM_ERR_USAGE,
			       "no tensor matches: --tensors \"%.40s\": %s has %zu, \"%.60s\" among them", tensors,
			       gm_feed_name(s->input), s->st.n, s->st.n ? s->st.tensor[0].name : "");
	if (s->n_layer == 0)
		return gm_fail(err, GM_ERR_FORMAT, "no tensor of floats: %s: one [tokens, experts] a layer is needed",
			       gm_feed_name(s->input));
	return sort_layers(s, err);
}

/* --- reading at any place --- */

static int write_all(int fd, const unsigned char *data, size_t size, struct gm_error *err)
{
	while (size > 0) {
		ssize_t n = write(fd, data, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return gm_fail(err, GM_ERR_IO,
				       "cannot write the temporary file: %s: it needs room beside the output",
				       strerror(errno));
		data += n;
		size -= (size_t)n;
	}
	return GM_OK;
}

/* What comes through a pipe or compressed is put aside: tokens need all layers' tensors at once. */
static int spool(struct st_import *s, const struct gm_import_options *options, struct gm_error *err)
{
	unsigned char buffer[1 << 16];
	uint64_t size = 0;
	size_t got;

	s->fd = gm_import_temporary(options->output, err);
	if (s->fd < 0)
		return s->fd;
	do {
		GM_TRY(gm_feed_read(s->input, buffer, sizeof(buffer), &got, err));
		GM_TRY(write_all(s->fd, buffer, got, err));
		size += got;
	} while (got == sizeof(buffer) && size <= s->st.data_bytes);
	if (size != s->st.data_bytes)
		return gm_fail(err, GM_ERR_FORMAT, "%s of data: %s: its tensors have %" PRIu64 " bytes: is it whole?",
			       size < s->st.data_bytes ? "too few bytes" : "too many bytes", gm_feed_name(s->input),
			       s->st.data_bytes);
	return GM_OK;
}

static int open_data(struct st_import *s, const struct gm_import_options *options, struct gm_error *err)
{
	const char *name = gm_feed_name(s->input);

	if (gm_feed_size(s->input) == 0 || gm_feed_compressed(s->input) || strcmp(name, "standard input") == 0)
		return spool(s, options, err);
	s->fd = open(name, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0)
		return gm_fail(err, GM_ERR_IO, "cannot read: %s: %s", name, strerror(errno));
	s->base = s->st.header_bytes;
	return GM_OK;
}

static int read_at(const struct st_import *s, unsigned char *data, size_t size, uint64_t offset, struct gm_error *err)
{
	while (size > 0) {
		ssize_t n = pread(s->fd, data, size, (off_t)(s->base + offset));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return gm_fail(err, GM_ERR_IO, "cannot read: %s: %s", gm_feed_name(s->input),
				       n < 0 ? strerror(errno) : "it became shorter meanwhile");
		data += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return GM_OK;
}

static int read_tokens(void *user, uint64_t first, uint32_t n_token, float *logits, struct gm_error *err)
{
	struct st_import *s = user;
	size_t items = (size_t)n_token * s->n_expert;

	for (uint32_t layer = 0; layer < s->n_layer; layer++) {
		const struct gm_safetensor *t = s->layer[layer].tensor;

		GM_TRY(read_at(s, s->raw, items * t->item_bytes, t->begin + first * s->n_expert * t->item_bytes, err));
		gm_safetensor_floats(t, s->raw, items, s->rows);
		for (uint32_t i = 0; i < n_token; i++)
			memcpy(logits + ((size_t)i * s->n_layer + layer) * s->n_expert, s->rows + (size_t)i * s->n_expert,
			       s->n_expert * sizeof(float));
	}
	return GM_OK;
}

/* --- what the file says beside the logits --- */

static const struct gm_safetensor *find_token_ids(const struct st_import *s)
{
	for (size_t i = 0; i < s->st.n; i++) {
		const struct gm_safetensor *t = &s->st.tensor[i];

		if ((strcmp(t->name, "tokens") == 0 || strcmp(t->name, "input_ids") == 0) &&
		    (strcmp(t->dtype, "I64") == 0 || strcmp(t->dtype, "I32") == 0) && t->n_item == s->n_token)
			return t;
	}
	return NULL;
}

static int add_token_ids(const struct st_import *s, struct gm_json *facts, struct gm_error *err)
{
	const struct gm_safetensor *t = find_token_ids(s);
	struct gm_json *list;
	bool ok = true;
	int status = GM_OK;

	if (!t || gm_json_get(facts, "tokens"))
		return GM_OK;
	list = gm_json_new_array();
	for (uint64_t i = 0; i < t->n_item && status == GM_OK; i++) {
		unsigned char raw[8];
		uint64_t bits = 0;

		status = read_at(s, raw, t->item_bytes, t->begin + i * t->item_bytes, err);
		for (uint32_t b = t->item_bytes; status == GM_OK && b-- > 0;)
			bits = bits << 8 | raw[b];
		ok = gm_json_append_number(list,
					   t->item_bytes == 4 ? (double)(int32_t)(uint32_t)bits : (double)(int64_t)bits) &&
		     ok;
	}
	ok = gm_json_add(facts, "tokens", list) && ok;
	if (status == GM_OK && !ok)
		status = gm_fail(err, GM_ERR_MEMORY, "out of memory");
	return status;
}

static int add_layer_numbers(const struct st_import *s, struct gm_json *facts, struct gm_error *err)
{
	struct gm_json *list;
	bool ok = true;

	if (gm_json_get(facts, "model_layer"))
		return GM_OK;
	list = gm_json_new_array();
	for (uint32_t i = 0; i < s->n_layer; i++)
		ok = gm_json_append_number(list, s->layer[i].number) && ok;
	ok = gm_json_add(facts, "model_layer", list) && ok;
	return ok ? GM_OK : gm_fail(err, GM_ERR_MEMORY, "out of memory");
}

int gm_import_safetensors(struct gm_feed *input, const struct gm_import_options *options, struct gm_error *err)
{
	struct st_import s = {.input = input, .fd = -1};
	struct gm_array_import a = {0};
	int status;

	GM_TRY_OUT(gm_safetensors_read(&s.st, input, err));
	GM_TRY_OUT(find_layers(&s, options->tensors, err));
	GM_TRY_OUT(gm_array_open(&a, gm_feed_name(input), options, err));
	GM_TRY_OUT(open_data(&s, options, err));
	GM_TRY_OUT(add_token_ids(&s, a.facts, err));
	GM_TRY_OUT(add_layer_numbers(&s, a.facts, err));
	GM_TRY_OUT(gm_array_begin(&a, s.n_token, s.n_layer, s.n_expert, err));
	s.raw = gm_alloc((size_t)GM_ARRAY_BATCH * s.n_expert, sizeof(float), err);
	s.rows = gm_alloc((size_t)GM_ARRAY_BATCH * s.n_expert, sizeof(float), err);
	GM_TRY_OUT(s.raw && s.rows ? GM_OK : gm_failed(err));
	status = gm_array_write(&a, read_tokens, NULL, &s, err);
out:
	gm_array_close(&a);
	gm_safetensors_free(&s.st);
	if (s.fd >= 0)
		close(s.fd);
	free(s.layer);
	free(s.raw);
	free(s.rows);
	return status;
}
