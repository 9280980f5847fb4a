/* Importers: from a foreign recording to a `.gmt` trace. One const table lists them; each streams its input once. */
#ifndef GM_TRACES_IMPORT_COMMON_H
#define GM_TRACES_IMPORT_COMMON_H

#include "base/json.h"
#include "traces/import_input.h"
#include "traces/model.h"
#include "traces/writer.h"

#include <stdbool.h>
#include <stdint.h>

/* What the command line gives. Texts are NULL and numbers 0 where nothing was said. */
struct gm_import_options {
	const char *output;
	const char *meta;         /* a JSON file with the facts of an array (npy, safetensors) */
	const char *tensors;      /* pattern of the layers' names (safetensors) */
	const char *model_name;   /* the next ones override or complete what the input says */
	const char *gating;       /* "softmax", "sigmoid" */
	const char *expert_bytes; /* a size for all layers, or a comma list of one a layer */
	const char *dense_bytes;
	const char *source;
	uint32_t top_k;
	uint32_t n_head; /* of the trace that is written */
	enum gm_tail tail;
	bool tail_given;
	bool sequence_is_pass; /* tokens whose pass the input does not name: one pass a sequence, not one a token */
	bool quiet;
};

struct gm_importer {
	const char *name; /* "jsonl" */
	const char *help; /* a line */
	enum gm_trace_kind kind;
	bool takes_meta;
	/* Reads input to its end and writes options->output. Nothing is left behind on failure. */
	int (*run)(struct gm_feed *input, const struct gm_import_options *options, struct gm_error *err);
};

/* The code of an error just recorded, for functions that learn of a failure by a NULL. */
static inline int gm_failed(const struct gm_error *err)
{
	return err && err->code != GM_OK ? err->code : GM_ERR_MEMORY;
}

/* Ended by an entry with name NULL. */
extern const struct gm_importer gm_importers[];

int gm_import_jsonl(struct gm_feed *input, const struct gm_import_options *options, struct gm_error *err);
int gm_import_npy(struct gm_feed *input, const struct gm_import_options *options, struct gm_error *err);
int gm_import_safetensors(struct gm_feed *input, const struct gm_import_options *options, struct gm_error *err);
int gm_import_topk_csv(struct gm_feed *input, const struct gm_import_options *options, struct gm_error *err);
int gm_import_route_trace(struct gm_feed *input, const struct gm_import_options *options, struct gm_error *err);

/* Importer by name; GM_ERR_USAGE names the known ones. */
const struct gm_importer *gm_importer_find(const char *name, struct gm_error *err);

/* Applies the options to the facts of an input (a JSON object with the keys of gm_model_from_json, changed in place) and reads
 * the model from them. where ("FILE: line 1") stands in errors, which name the option that would complete the facts. */
int gm_import_model(struct gm_json *facts, const struct gm_import_options *options, const char *where,
		    struct gm_model *model, struct gm_error *err);

/* Opens the output. Facts that are neither the model's nor in own_keys (ended by NULL: keys that the format itself gives a
 * meaning) become the trace's metadata; the key "source" its source. NULL on failure. */
struct gm_writer *gm_import_open(const struct gm_json *facts, const char *const *own_keys,
				 const struct gm_import_options *options, enum gm_trace_kind kind, bool logprobs,
				 const struct gm_model *model, struct gm_error *err);

/* One sequence as a table in the facts lists it: {"id":…,"label":…,"length":n}. */
struct gm_import_sequence {
	const char *id, *label; /* live as long as the facts; never NULL */
	uint64_t length;        /* tokens, UINT64_MAX: not said */
};

/* The key "sequences" of the facts. *table NULL and *n 0 where it is absent; free() the table. */
int gm_import_sequences(const struct gm_json *facts, const char *where, struct gm_import_sequence **table, uint32_t *n,
			struct gm_error *err);

/* An unlinked temporary file in the folder of the path `near` (disk space is needed there anyway), or in TMPDIR for "-". Returns its
 * descriptor. */
int gm_import_temporary(const char *near, struct gm_error *err);

#endif
