/* Exporters: from a `.gmt` trace to formats that others read. One const table lists them; each streams the trace once. */
#ifndef GM_TRACES_EXPORT_COMMON_H
#define GM_TRACES_EXPORT_COMMON_H

#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "traces/reader.h"

#include <stdbool.h>
#include <stdint.h>

struct gm_export_options {
	const char *output; /* "-": standard output */
	const char *meta;   /* npy: the JSON file beside the array, NULL: output + ".json" */
	bool extra;         /* topk-csv: also the columns pass and token */
	bool quiet;
};

struct gm_exporter {
	const char *name;
	const char *help;
	bool needs_logits; /* all logits of a row */
	bool needs_seek;   /* a trace in a file: it is read more than once */
	bool takes_meta;
	int (*run)(struct gm_trace *trace, const struct gm_export_options *options, struct gm_error *err);
};

/* Ended by an entry with name NULL. */
extern const struct gm_exporter gm_exporters[];

int gm_export_jsonl(struct gm_trace *trace, const struct gm_export_options *options, struct gm_error *err);
int gm_export_topk_csv(struct gm_trace *trace, const struct gm_export_options *options, struct gm_error *err);
int gm_export_npy(struct gm_trace *trace, const struct gm_export_options *options, struct gm_error *err);

/* Exporter by name; GM_ERR_USAGE names the known ones. */
const struct gm_exporter *gm_exporter_find(const char *name, struct gm_error *err);

/* How a text format names the sequences of a trace by a number: by their ids where these are whole numbers that only grow (an import
 * orders sequences by number, so it gives back the same), else by their index. */
struct gm_sequence_names {
	const struct gm_trace *trace;
	bool by_id;
};
struct gm_sequence_names gm_sequence_names(const struct gm_trace *trace);
uint32_t gm_sequence_number(const struct gm_sequence_names *names, uint32_t index);

/* A new object: "format" (NULL: none), the facts of the model, source, metadata; what an import reads back. NULL on failure. */
struct gm_json *gm_export_facts(const struct gm_trace *trace, const char *format, struct gm_error *err);

/* Adds "sequences":[{"id":…,"label":…,"length":n},…]. */
int gm_export_sequences(const struct gm_trace *trace, struct gm_json *facts, struct gm_error *err);

/* A finite float with nine significant digits, which read back as the same float32; out has room for GM_FLOAT_TEXT bytes. Returns
 * the length. Three times as fast as printf, which a file of a billion numbers feels. */
#define GM_FLOAT_TEXT 24
size_t gm_format_float(float value, char *out);

#endif
