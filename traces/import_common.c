#include "traces/import_common.h"

#include "base/number.h"
#include "traces/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A new format is a line here and a file import_NAME.c. */
const struct gm_importer gm_importers[] = {
	{"jsonl", "one JSON object a row, in any order: {\"seq\":0,\"pos\":0,\"layer\":0,\"logits\":[…]}", GM_KIND_LOGITS,
	 false, gm_import_jsonl},
	{"npy", "float16 or float32 array [tokens, layers, experts], facts in --meta FILE", GM_KIND_LOGITS, true,
	 gm_import_npy},
	{"safetensors", "a tensor a layer, [tokens, experts] of F32, F16 or BF16, facts in --meta FILE", GM_KIND_LOGITS,
	 true, gm_import_safetensors},
	{"topk-csv", "seq,label,pos,layer,rank,expert,weight: selected experts only, no logits", GM_KIND_TOPK, false,
	 gm_import_topk_csv},
	{"route-trace", "BigMoeOnEdge `# route_trace v1` CSV: selected experts only, no logits", GM_KIND_TOPK, false,
	 gm_import_route_trace},
	{NULL, NULL, GM_KIND_LOGITS, false, NULL},
};

const struct gm_importer *gm_importer_find(const char *name, struct gm_error *err)
{
	char known[128] = "";
	size_t n = 0;

	for (const struct gm_importer *i = gm_importers; i->name; i++) {
		if (strcmp(i->name, name) == 0)
			return i;
		if (n < sizeof(known))
			n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s", n ? ", " : "", i->name);
	}
	gm_fail(err, GM_ERR_USAGE, "unknown format: --format %.60s: one of %s", name, known);
	return NULL;
}

/* The folder of a path ends behind its last slash. */
int gm_import_temporary(const char *near, struct gm_error *err)
{
	const char *slash = strrchr(near, '/'), *folder = getenv("TMPDIR");
	char path[4096];
	size_t n;

	if (!folder || !*folder)
		folder = "/var/tmp"; /* /tmp is often held in memory */
	n = strlen(folder);
	if (strcmp(near, "-") != 0) {
		folder = slash ? near : ".";
		n = slash ? (size_t)(slash - near) + 1 : 1;
	}
	if (n + sizeof("/gatemass-XXXXXX") > sizeof(path))
		return gm_fail(err, GM_ERR_USAGE, "the path is too long: %.60s…", near);
	memcpy(path, folder, n);
	memcpy(path + n, "/gatemass-XXXXXX", sizeof("/gatemass-XXXXXX"));
	int fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return gm_fail(err, GM_ERR_IO, "cannot make a temporary file: folder %.*s: %s", (int)n, path,
			       strerror(errno));
	unlink(path);
	return fd;
}

static void set_string(struct gm_json *facts, const char *key, const char *text, bool *ok)
{
	gm_json_remove(facts, key);
	*ok = gm_json_add_string(facts, key, text) && *ok;
}

/* "24576", "1.8MiB" or a comma list of them. */
static int set_bytes(struct gm_json *facts, const char *key, const char *option, const char *text, struct gm_error *err)
{
	struct gm_json *list = NULL;
	char item[64];
	uint64_t bytes = 0;
	bool ok = true;

	gm_json_remove(facts, key);
	if (!strchr(text, ',')) {
		GM_TRY(gm_parse_part_bytes(text, option, &bytes, err));
		if (!gm_json_add_uint(facts, key, bytes))
			return gm_fail(err, GM_ERR_MEMORY, "out of memory");
		return GM_OK;
	}
	list = gm_json_new_array();
	for (const char *at = text;; at++) {
		size_t n = strcspn(at, ",");

		if (n >= sizeof(item)) {
			gm_json_free(list);
			return gm_fail(err, GM_ERR_USAGE, "not a size: %s: \"%.40s…\"", option, at);
		}
		memcpy(item, at, n);
		item[n] = '\0';
		if (gm_parse_part_bytes(item, option, &bytes, err) < 0) {
			gm_json_free(list);
			return gm_failed(err);
		}
		ok = gm_json_append_number(list, (double)bytes) && ok;
		at += n;
		if (!*at)
			break;
	}
	if (!gm_json_add(facts, key, list) || !ok)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory");
	return GM_OK;
}

/* The keys without which there is no model, and how to give them from outside. */
static int check_complete(const struct gm_json *facts, const char *where, struct gm_error *err)
{
	static const struct {
		const char *key, *option;
	} needed[] = {{"n_layer", NULL},
		      {"n_expert", NULL},
		      {"n_expert_used", "--top-k K"},
		      {"gating", "--gating softmax|sigmoid"}};

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		if (gm_json_get(facts, needed[i].key))
			continue;
		if (needed[i].option)
			return gm_fail(err, GM_ERR_FORMAT, "the model's \"%s\" is missing: %s: give it there or with %s",
				       needed[i].key, where, needed[i].option);
		return gm_fail(err, GM_ERR_FORMAT, "the model's \"%s\" is missing: %s: give it there", needed[i].key,
			       where);
	}
	return GM_OK;
}

int gm_import_model(struct gm_json *facts, const struct gm_import_options *options, const char *where,
		    struct gm_model *model, struct gm_error *err)
{
	bool ok = true;

	if (options->model_name)
		set_string(facts, "model", options->model_name, &ok);
	if (options->gating)
		set_string(facts, "gating", options->gating, &ok);
	if (!gm_json_get(facts, "model"))
		set_string(facts, "model", "", &ok);
	if (options->top_k > gm_json_value(gm_json_get(facts, "n_expert")))
		return gm_fail(err, GM_ERR_USAGE, "more experts used than there are: --top-k %u: 1 to %.0f", options->top_k,
			       gm_json_value(gm_json_get(facts, "n_expert")));
	if (options->top_k > 0) {
		gm_json_remove(facts, "n_expert_used");
		ok = gm_json_add_uint(facts, "n_expert_used", options->top_k) && ok;
	}
	if (!ok)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory");
	if (options->expert_bytes)
		GM_TRY(set_bytes(facts, "expert_bytes", "--expert-bytes", options->expert_bytes, err));
	if (options->dense_bytes)
		GM_TRY(set_bytes(facts, "dense_bytes", "--dense-bytes", options->dense_bytes, err));
	GM_TRY(check_complete(facts, where, err));
	if (gm_model_from_json(model, facts, err) < 0)
		return gm_error_at(err, "%s", where);
	/* Here, not when the writer opens: the rows may take minutes to read. */
	if (options->n_head > 0 && (options->n_head < model->top_k || options->n_head > model->n_expert))
		return gm_fail(err, GM_ERR_USAGE, "the head must hold the selected experts: --head %u: %u to %u",
			       options->n_head, model->top_k, model->n_expert);
	return GM_OK;
}

static struct gm_json *metadata_of(const struct gm_json *facts, const char *const *own_keys, struct gm_error *err)
{
	static const char *const known[] = {"model",       "n_layer", "n_expert", "n_expert_used", "gating", "expert_bytes",
					    "dense_bytes", "bias",    "n_group",  "topk_group",    "source", NULL};
	struct gm_json *metadata = gm_json_copy(facts, err);

	for (const char *const *key = known; metadata && *key; key++)
		gm_json_remove(metadata, *key);
	for (const char *const *key = own_keys; metadata && *key; key++)
		gm_json_remove(metadata, *key);
	return metadata;
}

struct gm_writer *gm_import_open(const struct gm_json *facts, const char *const *own_keys,
				 const struct gm_import_options *options, enum gm_trace_kind kind, bool logprobs,
				 const struct gm_model *model, struct gm_error *err)
{
	struct gm_json *metadata = metadata_of(facts, own_keys, err);
	struct gm_writer_options w = {
		.kind = kind,
		.n_head = kind == GM_KIND_TOPK ? 0 : options->n_head,
		.tail = options->tail_given ? options->tail : GM_TAIL_F16,
		.logprobs = logprobs,
		.source = options->source ? options->source : gm_json_text(gm_json_get(facts, "source")),
		.tool = GM_TRACES_TOOL,
	};
	struct gm_writer *writer = NULL;

	if (!metadata)
		return NULL;
	if (kind == GM_KIND_TOPK)
		w.tail = GM_TAIL_NONE;
	if (gm_json_size(metadata) > 0)
		w.metadata = metadata;
	writer = gm_writer_open(options->output, model, &w, err);
	gm_json_free(metadata);
	return writer;
}

static int read_sequence(const struct gm_json *entry, const char *where, uint32_t index,
			 struct gm_import_sequence *sequence, struct gm_error *err)
{
	int64_t length = 0;
	bool found = true;
	int status = GM_OK;

	sequence->id = sequence->label = "";
	sequence->length = UINT64_MAX;
	if (gm_json_type(entry) != GM_JSON_OBJECT)
		return gm_fail(err, GM_ERR_FORMAT, "not an object: %s: sequences[%u]: {\"id\":…,\"label\":…,\"length\":n}",
			       where, index);
	GM_TRY_OUT(gm_json_get_string(entry, "id", &sequence->id, &found, err));
	GM_TRY_OUT(gm_json_get_string(entry, "label", &sequence->label, &found, err));
	GM_TRY_OUT(gm_json_get_int(entry, "length", 0, INT64_C(1) << 53, &length, &found, err));
	if (found)
		sequence->length = (uint64_t)length;
out:
	return status < 0 ? gm_error_at(err, "%s: sequences[%u]", where, index) : GM_OK;
}

int gm_import_sequences(const struct gm_json *facts, const char *where, struct gm_import_sequence **table, uint32_t *n,
			struct gm_error *err)
{
	const struct gm_json *list = gm_json_get(facts, "sequences");
	struct gm_import_sequence *t;
	uint32_t i = 0;

	*table = NULL;
	*n = 0;
	if (!list || gm_json_type(list) == GM_JSON_NULL)
		return GM_OK;
	if (gm_json_type(list) != GM_JSON_ARRAY)
		return gm_fail(err, GM_ERR_FORMAT,
			       "\"sequences\" is not a list: %s: [{\"id\":…,\"label\":…,\"length\":n},…]", where);
	t = gm_alloc(gm_json_size(list), sizeof(*t), err);
	if (!t)
		return GM_ERR_MEMORY;
	for (const struct gm_json *e = gm_json_first(list); e; e = gm_json_next(e), i++) {
		if (read_sequence(e, where, i, &t[i], err) < 0) {
			free(t);
			return gm_failed(err);
		}
	}
	*table = t;
	*n = i;
	return GM_OK;
}
