/* The subcommands of the `traces` program, one file each (cmd_*.c), and what several of them share. */
#ifndef GM_TRACES_COMMANDS_H
#define GM_TRACES_COMMANDS_H

#include "base/json.h"
#include "base/options.h"
#include "base/version.h"
#include "traces/reader.h"
#include "traces/writer.h"

#include <stdbool.h>
#include <stdint.h>

#define GM_TRACES_TOOL "traces " GM_VERSION

extern const struct gm_command gm_traces_info;
extern const struct gm_command gm_traces_verify;
extern const struct gm_command gm_traces_import;
extern const struct gm_command gm_traces_export;
extern const struct gm_command gm_traces_synth; /* cmd_synth.c */
extern const struct gm_command gm_traces_cut;
extern const struct gm_command gm_traces_cat;
extern const struct gm_command gm_traces_stats;

/* --- words of the command line --- */

/* "f32", "f16" or "none". */
int gm_parse_tail(const char *text, enum gm_tail *tail, struct gm_error *err);
const char *gm_tail_name(enum gm_tail tail);
const char *gm_kind_name(enum gm_trace_kind kind); /* "logits", "topk" */

static inline const char *gm_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* "24576", "1.8MiB": bytes of a part of a model, from 1 to 2^48 (docs/trace-format.md). */
int gm_parse_part_bytes(const char *text, const char *option, uint64_t *bytes, struct gm_error *err);

/* "7", "4..7" (both ends included) or "4.." (*last UINT64_MAX). GM_ERR_USAGE, without a message, for anything else. */
int gm_parse_range(const char *text, uint64_t *first, uint64_t *last);

/* A comma list of whole numbers and ranges FROM..TO, both ends included ("0,4..7"), every one in [0, limit). Marks chosen[n];
 * what ("--layers") stands in errors. */
int gm_parse_index_list(const char *text, const char *what, uint32_t limit, bool *chosen, struct gm_error *err);

/* --- copying tokens from traces into a trace (cut, cat) --- */

/* What of every row goes into the output; 0 / false: as in the (first) input. */
struct gm_copy_options {
	uint32_t n_head;
	enum gm_tail tail;
	bool tail_given;
	bool logprobs, predictions; /* the output gets these columns */
	const bool *layers;         /* [n_layer of the input] those that are kept; NULL: all */
	const char *source;         /* for the header, may be NULL */
	const struct gm_json *metadata;
};

struct gm_copy;

/* Prepares a copy of tokens of traces like `trace` into `path`. model: facts of the output, its layers those that are kept.
 * Errors: as gm_copy_begin_trace. NULL on failure. */
struct gm_copy *gm_copy_new(const char *path, const struct gm_trace *trace, const struct gm_model *model,
			    const struct gm_copy_options *options, struct gm_error *err);

/* The tokens that follow come from this trace: its first sequence and pass begin anew.
 * Errors: GM_ERR_USAGE where the output asks for more than its rows hold. */
int gm_copy_begin_trace(struct gm_copy *copy, const struct gm_trace *trace, struct gm_error *err);

/* Token i of a block (decoded with all it has) goes out, with its sequence (begun where it changes), pass and rows. */
int gm_copy_token(struct gm_copy *copy, const struct gm_trace *trace, const struct gm_block *block, uint32_t i,
		  struct gm_error *err);
uint64_t gm_copy_n_token(const struct gm_copy *copy);

/* Finishes the output and frees. */
int gm_copy_close(struct gm_copy *copy, struct gm_error *err);
void gm_copy_discard(struct gm_copy *copy); /* gives up and frees; NULL is fine */

/* From a trace's header: the source (NULL: none), whether it has the column "logprobs" or "predictions", and a new object with
 * all that the writer did not put there itself (NULL when out of memory: error set). */
const char *gm_header_source(const struct gm_trace *trace);
bool gm_header_has(const struct gm_trace *trace, const char *column);
struct gm_json *gm_header_metadata(const struct gm_trace *trace, struct gm_error *err);

/* True where every logit of a row can be had: a tail, or a head of all experts. */
bool gm_has_all_logits(const struct gm_trace *trace);

#endif
