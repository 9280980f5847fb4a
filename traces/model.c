#include "traces/model.h"

#include "base/json_check.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool gm_is_utf8(const char *text)
{
	size_t left = strlen(text), n = 1;

	for (; left > 0 && n > 0; text += n, left -= n)
		n = gm_utf8_length(text, left);
	return n > 0;
}

void gm_model_free(struct gm_model *model)
{
	if (!model)
		return;
	free(model->name);
	free(model->bias);
	free(model->expert_bytes);
	free(model->dense_bytes);
	memset(model, 0, sizeof(*model));
}

/* 0 would pass for a model that costs nothing to load. */
static int check_bytes(const uint64_t *bytes, const char *key, uint32_t n_layer, struct gm_error *err)
{
	for (uint32_t layer = 0; bytes && layer < n_layer; layer++)
		if (bytes[layer] < 1 || bytes[layer] > GM_MAX_PART_BYTES)
			return gm_fail(err, GM_ERR_FORMAT, "%s, layer %u is %llu: must be from 1 to 2^48, or left out", key,
				       layer, (unsigned long long)bytes[layer]);
	return GM_OK;
}

int gm_model_check(const struct gm_model *m, struct gm_error *err)
{
	if (!m->name)
		return gm_fail(err, GM_ERR_USAGE, "no name: model: must be a text, perhaps an empty one");
	if (m->n_layer < 1 || m->n_layer > GM_MAX_LAYER)
		return gm_fail(err, GM_ERR_FORMAT, "n_layer is %u: must be from 1 to %u", m->n_layer, GM_MAX_LAYER);
	if (m->n_expert < 1 || m->n_expert > GM_MAX_EXPERT)
		return gm_fail(err, GM_ERR_FORMAT, "n_expert is %u: must be from 1 to %u", m->n_expert, GM_MAX_EXPERT);
	if ((uint64_t)m->n_layer * m->n_expert > GM_MAX_LAYER_EXPERT)
		return gm_fail(err, GM_ERR_FORMAT, "n_layer * n_expert is %llu: must be at most %u",
			       (unsigned long long)m->n_layer * m->n_expert, GM_MAX_LAYER_EXPERT);
	if (m->top_k < 1 || m->top_k > m->n_expert)
		return gm_fail(err, GM_ERR_FORMAT, "n_expert_used is %u: must be from 1 to n_expert (%u)", m->top_k,
			       m->n_expert);
	if (m->gating != GM_GATING_SOFTMAX && m->gating != GM_GATING_SIGMOID)
		return gm_fail(err, GM_ERR_FORMAT, "gating is %d: must be softmax or sigmoid", (int)m->gating);
	if (m->n_group > 1) {
		if (m->n_expert % m->n_group != 0)
			return gm_fail(err, GM_ERR_FORMAT, "n_group is %u: must divide n_expert (%u)", m->n_group,
				       m->n_expert);
		if (m->topk_group < 1 || m->topk_group > m->n_group)
			return gm_fail(err, GM_ERR_FORMAT, "topk_group is %u: must be from 1 to n_group (%u)",
				       m->topk_group, m->n_group);
		if (m->n_expert / m->n_group * m->topk_group < m->top_k)
			return gm_fail(err, GM_ERR_FORMAT,
				       "topk_group is %u: leaves %u experts, must leave n_expert_used (%u)", m->topk_group,
				       m->n_expert / m->n_group * m->topk_group, m->top_k);
	}
	for (size_t i = 0; m->bias && i < (size_t)m->n_layer * m->n_expert; i++)
		if (!isfinite(m->bias[i]))
			return gm_fail(err, GM_ERR_FORMAT,
				       "not a finite number: bias of layer %zu, expert %zu: must be one", i / m->n_expert,
				       i % m->n_expert);
	GM_TRY(check_bytes(m->expert_bytes, "expert_bytes", m->n_layer, err));
	return check_bytes(m->dense_bytes, "dense_bytes", m->n_layer, err);
}

/* A number for all layers, or a list of one for each; *out stays NULL where the key is absent. zero_unknown: so it does where a layer
 * has 0. */
static int read_layer_bytes(const struct gm_json *object, const char *key, uint32_t n_layer, bool zero_unknown,
			    uint64_t **out, struct gm_error *err)
{
	const struct gm_json *value = gm_json_get(object, key);

	if (!value || gm_json_type(value) == GM_JSON_NULL)
		return GM_OK;
	bool list = gm_json_type(value) == GM_JSON_ARRAY;
	if (!list && gm_json_type(value) != GM_JSON_NUMBER)
		return gm_fail(err, GM_ERR_FORMAT, "wrong value: %s: must be a number, or a list of one for each layer",
			       key);
	if (list && gm_json_size(value) != n_layer)
		return gm_fail(err, GM_ERR_FORMAT, "a list of %zu: %s: must be n_layer (%u) long", gm_json_size(value), key,
			       n_layer);
	*out = gm_alloc(n_layer, sizeof(**out), err);
	if (!*out)
		return GM_ERR_MEMORY;
	bool unknown = false;
	const struct gm_json *item = list ? gm_json_first(value) : value;
	for (uint32_t layer = 0; layer < n_layer; layer++) {
		double bytes = gm_json_value(item);
		if (!(bytes >= 0 && bytes <= (double)GM_MAX_PART_BYTES && bytes == floor(bytes)))
			return gm_fail(err, GM_ERR_FORMAT,
				       "wrong value: %s, layer %u: must be a whole number of bytes from 1 to 2^48", key,
				       layer);
		if (bytes == 0 && !zero_unknown)
			return gm_fail(err, GM_ERR_FORMAT,
				       "%s, layer %u is 0: must be from 1 to 2^48, or left out where it is not known", key,
				       layer);
		unknown = unknown || bytes == 0;
		(*out)[layer] = (uint64_t)bytes;
		if (list)
			item = gm_json_next(item);
	}
	if (unknown) {
		free(*out);
		*out = NULL;
	}
	return GM_OK;
}

static int read_bias(struct gm_model *model, const struct gm_json *object, struct gm_error *err)
{
	const struct gm_json *value = gm_json_get(object, "bias");
	bool null = !value || gm_json_type(value) == GM_JSON_NULL;

	if (null)
		return GM_OK;
	if (gm_json_type(value) != GM_JSON_ARRAY || gm_json_size(value) != model->n_layer)
		return gm_fail(err, GM_ERR_FORMAT,
			       "wrong value: bias: must be a list of n_layer (%u) lists of n_expert (%u) numbers",
			       model->n_layer, model->n_expert);
	model->bias = gm_alloc((size_t)model->n_layer * model->n_expert, sizeof(float), err);
	if (!model->bias)
		return GM_ERR_MEMORY;
	float *out = model->bias;
	uint32_t layer = 0;
	for (const struct gm_json *row = gm_json_first(value); row; row = gm_json_next(row), layer++) {
		if (gm_json_type(row) != GM_JSON_ARRAY || gm_json_size(row) != model->n_expert)
			return gm_fail(err, GM_ERR_FORMAT,
				       "wrong value: bias, layer %u: must be a list of n_expert (%u) numbers", layer,
				       model->n_expert);
		for (const struct gm_json *item = gm_json_first(row); item; item = gm_json_next(item)) {
			double number = gm_json_value(item);
			if (!(fabs(number) <= (double)FLT_MAX))
				return gm_fail(err, GM_ERR_FORMAT,
					       "wrong value: bias, layer %u: must hold float32 numbers only", layer);
			*out++ = (float)number;
		}
	}
	return GM_OK;
}

static int read_facts(struct gm_model *model, const struct gm_json *object, bool zero_unknown, struct gm_error *err)
{
	const char *name = "", *gating = "softmax";
	int64_t n_layer, n_expert, top_k, n_group = 0, topk_group = 0;
	bool found;

	GM_TRY(gm_json_get_string(object, "model", &name, &found, err));
	GM_TRY(gm_json_get_int(object, "n_layer", 1, GM_MAX_LAYER, &n_layer, NULL, err));
	GM_TRY(gm_json_get_int(object, "n_expert", 1, GM_MAX_EXPERT, &n_expert, NULL, err));
	GM_TRY(gm_json_get_int(object, "n_expert_used", 1, n_expert, &top_k, NULL, err));
	GM_TRY(gm_json_get_string(object, "gating", &gating, &found, err));
	GM_TRY(gm_json_get_int(object, "n_group", 0, n_expert, &n_group, &found, err));
	GM_TRY(gm_json_get_int(object, "topk_group", 0, n_expert, &topk_group, &found, err));
	if (n_group > 1 && topk_group == 0)
		return gm_fail(err, GM_ERR_FORMAT,
			       "topk_group is missing beside n_group %lld: must say how many groups stay eligible",
			       (long long)n_group);
	model->n_layer = (uint32_t)n_layer;
	model->n_expert = (uint32_t)n_expert;
	model->top_k = (uint32_t)top_k;
	model->n_group = (uint32_t)n_group;
	model->topk_group = (uint32_t)topk_group;
	if (strcmp(gating, "softmax") == 0)
		model->gating = GM_GATING_SOFTMAX;
	else if (strcmp(gating, "sigmoid") == 0)
		model->gating = GM_GATING_SIGMOID;
	else
		return gm_fail(err, GM_ERR_FORMAT, "gating is \"%.40s\": must be softmax or sigmoid", gating);
	model->name = gm_strdup(name, err);
	if (!model->name)
		return GM_ERR_MEMORY;
	if ((uint64_t)n_layer * (uint64_t)n_expert > GM_MAX_LAYER_EXPERT)
		return gm_model_check(model, err); /* before anything of that size is allocated */
	GM_TRY(read_layer_bytes(object, "expert_bytes", model->n_layer, zero_unknown, &model->expert_bytes, err));
	GM_TRY(read_layer_bytes(object, "dense_bytes", model->n_layer, zero_unknown, &model->dense_bytes, err));
	GM_TRY(read_bias(model, object, err));
	return gm_model_check(model, err);
}

static int from_json(struct gm_model *model, const struct gm_json *object, bool zero_unknown, struct gm_error *err)
{
	memset(model, 0, sizeof(*model));
	if (gm_json_type(object) != GM_JSON_OBJECT)
		return gm_fail(err, GM_ERR_FORMAT, "not a JSON object: model facts: must be one");
	int status = read_facts(model, object, zero_unknown, err);
	if (status < 0)
		gm_model_free(model);
	return status;
}

int gm_model_from_json(struct gm_model *model, const struct gm_json *object, struct gm_error *err)
{
	return from_json(model, object, false, err);
}

int gm_model_from_header(struct gm_model *model, const struct gm_json *header, struct gm_error *err)
{
	return from_json(model, header, true, err);
}

static bool add_layer_bytes(struct gm_json *object, const char *key, const uint64_t *bytes, uint32_t n_layer)
{
	bool same = true;

	for (uint32_t layer = 1; layer < n_layer; layer++)
		same = same && bytes[layer] == bytes[0];
	if (same)
		return gm_json_add_uint(object, key, bytes[0]);
	struct gm_json *list = gm_json_new_array();
	bool ok = list != NULL;
	for (uint32_t layer = 0; layer < n_layer; layer++)
		ok = ok && gm_json_append_number(list, (double)bytes[layer]);
	return gm_json_add(object, key, list) && ok;
}

static bool add_bias(struct gm_json *object, const struct gm_model *model)
{
	struct gm_json *layers = gm_json_new_array();
	bool ok = layers != NULL;

	for (uint32_t layer = 0; ok && layer < model->n_layer; layer++) {
		struct gm_json *row = gm_json_new_array();
		for (uint32_t e = 0; ok && e < model->n_expert; e++)
			ok = gm_json_append_number(row, (double)model->bias[(size_t)layer * model->n_expert + e]);
		ok = gm_json_append(layers, row) && ok;
	}
	return gm_json_add(object, "bias", layers) && ok;
}

int gm_model_to_json(const struct gm_model *model, struct gm_json *object, struct gm_error *err)
{
	static const char *const keys[] = {"model",        "n_layer",     "n_expert", "n_expert_used", "gating",
					   "expert_bytes", "dense_bytes", "bias",     "n_group",       "topk_group"};

	GM_TRY(gm_model_check(model, err));
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		gm_json_remove(object, keys[i]);
	bool ok = gm_json_add_string(object, "model", model->name) && gm_json_add_uint(object, "n_layer", model->n_layer) &&
		  gm_json_add_uint(object, "n_expert", model->n_expert) &&
		  gm_json_add_uint(object, "n_expert_used", model->top_k) &&
		  gm_json_add_string(object, "gating", model->gating == GM_GATING_SOFTMAX ? "softmax" : "sigmoid");
	if (ok && model->expert_bytes)
		ok = add_layer_bytes(object, "expert_bytes", model->expert_bytes, model->n_layer);
	if (ok && model->dense_bytes)
		ok = add_layer_bytes(object, "dense_bytes", model->dense_bytes, model->n_layer);
	if (ok && model->n_group > 1)
		ok = gm_json_add_uint(object, "n_group", model->n_group) &&
		     gm_json_add_uint(object, "topk_group", model->topk_group);
	if (ok && model->bias)
		ok = add_bias(object, model);
	return ok ? GM_OK : gm_fail(err, GM_ERR_MEMORY, "out of memory: model facts");
}

static void *copy_array(const void *from, size_t n, size_t size, struct gm_error *err)
{
	void *to = gm_alloc(n, size, err);

	if (to)
		memcpy(to, from, n * size);
	return to;
}

int gm_model_copy(struct gm_model *to, const struct gm_model *from, struct gm_error *err)
{
	struct gm_model copy = *from;

	copy.name = gm_strdup(from->name ? from->name : "", err);
	copy.bias = NULL;
	copy.expert_bytes = copy.dense_bytes = NULL;
	if (from->bias)
		copy.bias = copy_array(from->bias, (size_t)from->n_layer * from->n_expert, sizeof(float), err);
	if (from->expert_bytes)
		copy.expert_bytes = copy_array(from->expert_bytes, from->n_layer, sizeof(uint64_t), err);
	if (from->dense_bytes)
		copy.dense_bytes = copy_array(from->dense_bytes, from->n_layer, sizeof(uint64_t), err);
	*to = copy;
	if (!copy.name || (from->bias && !copy.bias) || (from->expert_bytes && !copy.expert_bytes) ||
	    (from->dense_bytes && !copy.dense_bytes)) {
		gm_model_free(to);
		return GM_ERR_MEMORY;
	}
	return GM_OK;
}
