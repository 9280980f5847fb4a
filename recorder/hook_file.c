/* What a GGUF says about a model with experts, read without its weights: sizes for the trace header, and early refusal of
 * what cannot be recorded, before gigabytes are loaded. */
#include "recorder/hook_private.h"

#include <errno.h>
#include <gguf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* llama.cpp's own limits are below these; they keep a damaged file from asking for absurd memory. */
#define MAX_SPLIT 4096u

static int check_magic(const char *path, struct gm_error *err)
{
	struct stat status;
	char magic[4];
	FILE *stream;
	size_t n;

	if (stat(path, &status) < 0)
		return gm_fail(err, GM_ERR_IO, "cannot read: %s: %s", path, strerror(errno));
	if (!S_ISREG(status.st_mode))
		return gm_fail(err, GM_ERR_IO, "not a file: %s", path);
	stream = fopen(path, "rb");
	if (!stream)
		return gm_fail(err, GM_ERR_IO, "cannot read: %s: %s", path, strerror(errno));
	n = fread(magic, 1, sizeof(magic), stream);
	fclose(stream);
	if (n != sizeof(magic) || memcmp(magic, "GGUF", sizeof(magic)) != 0)
		return gm_fail(err, GM_ERR_FORMAT, "not a GGUF: %s: a model file of llama.cpp is needed", path);
	return 0;
}

static struct gguf_context *open_gguf(const char *path, struct gm_error *err)
{
	struct gguf_context *gguf;

	if (check_magic(path, err) < 0)
		return NULL;
	hook_log_forget_error();
	gguf = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true});
	if (!gguf)
		hook_fail(err, GM_ERR_FORMAT, "damaged or cut off GGUF", path);
	return gguf;
}

/* A number of whatever integer type; an array (one value a layer, as some models write) gives its largest. */
static bool get_number(const struct gguf_context *gguf, const char *key, uint32_t *value)
{
	int64_t id = gguf_find_key(gguf, key);
	enum gguf_type type;

	*value = 0;
	if (id < 0)
		return false;
	type = gguf_get_kv_type(gguf, id);
	switch (type) {
	case GGUF_TYPE_UINT16:
		*value = gguf_get_val_u16(gguf, id);
		return true;
	case GGUF_TYPE_UINT32:
		*value = gguf_get_val_u32(gguf, id);
		return true;
	case GGUF_TYPE_INT32:
		*value = gguf_get_val_i32(gguf, id) < 0 ? 0 : (uint32_t)gguf_get_val_i32(gguf, id);
		return true;
	case GGUF_TYPE_ARRAY:
		break;
	default:
		return false;
	}
	type = gguf_get_arr_type(gguf, id);
	if (type != GGUF_TYPE_UINT32 && type != GGUF_TYPE_INT32)
		return false;
	for (size_t i = 0; i < gguf_get_arr_n(gguf, id); i++) {
		uint32_t element = ((const uint32_t *)gguf_get_arr_data(gguf, id))[i];

		if (element > *value && element <= INT32_MAX)
			*value = element;
	}
	return true;
}

static bool get_arch_number(const struct gguf_context *gguf, const struct hook_file *file, const char *key, uint32_t *value)
{
	char name[192];

	snprintf(name, sizeof(name), "%s.%s", file->architecture, key);
	return get_number(gguf, name, value);
}

static int read_keys(struct hook_file *file, const struct gguf_context *gguf, const char *path, struct gm_error *err)
{
	int64_t id = gguf_find_key(gguf, "general.architecture");

	if (id < 0 || gguf_get_kv_type(gguf, id) != GGUF_TYPE_STRING)
		return gm_fail(err, GM_ERR_FORMAT, "no general.architecture: %s: not a language model", path);
	file->architecture = gm_strdup(gguf_get_val_str(gguf, id), err);
	if (!file->architecture)
		return GM_ERR_MEMORY;
	if (!get_arch_number(gguf, file, "block_count", &file->n_layer) || file->n_layer == 0)
		return gm_fail(err, GM_ERR_FORMAT, "no %s.block_count: %s: not a language model", file->architecture, path);
	if (file->n_layer > GM_MAX_LAYER)
		return gm_fail(err, GM_ERR_UNSUPPORTED, "%u layers: %s: at most %u", file->n_layer, path, GM_MAX_LAYER);
	get_arch_number(gguf, file, "expert_count", &file->n_expert);
	if (file->n_expert == 0)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "no MoE layers: %s: a %s model without experts routes nothing that could be recorded", path,
			       file->architecture);
	get_arch_number(gguf, file, "expert_group_count", &file->n_group);
	get_arch_number(gguf, file, "expert_group_used_count", &file->n_group_used);
	return 0;
}

/* "blk.7.ffn_up_exps.weight": layer 7, an expert tensor. Other tensors of a layer are dense: every token reads them. */
static void add_tensor(struct hook_file *file, const struct gguf_context *gguf, int64_t id)
{
	const char *name = gguf_get_tensor_name(gguf, id);
	size_t bytes = gguf_get_tensor_size(gguf, id);
	unsigned long layer;
	char *end;

	if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9')
		return;
	layer = strtoul(name + 4, &end, 10);
	if (*end != '.' || layer >= file->n_layer)
		return;
	name = end + 1;
	if (strncmp(name, "ffn_", 4) == 0 && strstr(name, "_exps.")) {
		file->expert_bytes[layer] += bytes;
		file->type_bytes[gguf_get_tensor_type(gguf, id)] += bytes;
	} else {
		file->dense_bytes[layer] += bytes;
	}
}

static void add_tensors(struct hook_file *file, const struct gguf_context *gguf)
{
	for (int64_t id = 0; id < gguf_get_n_tensors(gguf); id++)
		add_tensor(file, gguf, id);
}

/* The other files of a split model ("NAME-00002-of-00005.gguf"). */
static int read_splits(struct hook_file *file, const char *prefix, uint32_t n_split, struct gm_error *err)
{
	for (uint32_t i = 1; i < n_split; i++) {
		struct gguf_context *gguf;
		char path[4096];

		llama_split_path(path, sizeof(path), prefix, (int)i, (int)n_split);
		gguf = open_gguf(path, err);
		if (!gguf)
			return gm_error_at(err, "part %u of %u", i + 1, n_split);
		add_tensors(file, gguf);
		gguf_free(gguf);
	}
	return 0;
}

/* prefix [prefix_size]: path without split number and ".gguf" */
static int find_prefix(const char *path, uint32_t n_split, char *prefix, size_t prefix_size, struct gm_error *err)
{
	size_t length = strlen(path);

	if (length >= prefix_size)
		return gm_fail(err, GM_ERR_IO, "path too long: %s", path);
	if (n_split > 1) {
		if (llama_split_prefix(prefix, prefix_size, path, 0, (int)n_split) <= 0)
			return gm_fail(err, GM_ERR_USAGE,
				       "not the first part of the model: %s: give ...-00001-of-%05u.gguf", path, n_split);
		return 0;
	}
	if (length > 5 && strcmp(path + length - 5, ".gguf") == 0)
		length -= 5;
	memcpy(prefix, path, length);
	prefix[length] = 0;
	return 0;
}

int hook_file_read(struct hook_file *file, const char *path, struct gm_error *err)
{
	struct gguf_context *gguf;
	const char *slash;
	char prefix[4096];
	uint32_t n_split;
	int status;

	memset(file, 0, sizeof(*file));
	gguf = open_gguf(path, err);
	if (!gguf)
		return err ? err->code : GM_ERR_FORMAT;
	get_number(gguf, "split.count", &n_split);
	if (n_split > MAX_SPLIT) {
		status = gm_fail(err, GM_ERR_FORMAT, "split.count is %u: %s: at most %u", n_split, path, MAX_SPLIT);
		goto out;
	}
	GM_TRY_OUT(find_prefix(path, n_split, prefix, sizeof(prefix), err)); /* later parts lack the keys */
	GM_TRY_OUT(read_keys(file, gguf, path, err));
	slash = strrchr(prefix, '/');
	file->name = gm_strdup(slash ? slash + 1 : prefix, err);
	file->expert_bytes = gm_alloc(file->n_layer, sizeof(*file->expert_bytes), err);
	file->dense_bytes = gm_alloc(file->n_layer, sizeof(*file->dense_bytes), err);
	if (!file->name || !file->expert_bytes || !file->dense_bytes) {
		status = GM_ERR_MEMORY;
		goto out;
	}
	add_tensors(file, gguf);
	status = read_splits(file, prefix, n_split, err);
out:
	gguf_free(gguf);
	if (status < 0)
		hook_file_free(file);
	return status;
}

const char *hook_file_expert_type(const struct hook_file *file)
{
	int most = 0;

	for (int type = 1; type < GGML_TYPE_COUNT; type++)
		if (file->type_bytes[type] > file->type_bytes[most])
			most = type;
	return ggml_type_name((enum ggml_type)most);
}

void hook_file_free(struct hook_file *file)
{
	free(file->architecture);
	free(file->name);
	free(file->expert_bytes);
	free(file->dense_bytes);
	memset(file, 0, sizeof(*file));
}
