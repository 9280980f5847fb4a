/* `traces info`: what a trace holds. */
#include "base/number.h"
#include "traces/commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SHOWN_LABELS 12 /* for people; JSON has all */

enum { JSON = 1 };

struct state {
	bool json;
};

static const struct gm_option options[] = {
	{JSON, 0, "json", NULL, "one JSON object on standard output"},
	{0, 0, NULL, NULL, NULL},
};

/* Sequences of one label, in order of first appearance. */
struct label {
	const char *text;
	uint32_t first; /* its first sequence */
	uint64_t n_sequence, n_token;
};

struct facts {
	const struct gm_trace *trace;
	uint64_t n_token, n_row, n_block, bytes;
	struct label *label;
	size_t n_label;
};

static int take_option(int id, const char *value, void *state, struct gm_error *err)
{
	(void)id, (void)value, (void)err;
	((struct state *)state)->json = true;
	return GM_OK;
}

/* A trace from a pipe tells its totals only at its end. */
static int read_through(struct gm_trace *trace, struct gm_error *err)
{
	struct gm_block block = {0};
	int got = 1;

	for (uint64_t b = 0; !gm_trace_seekable(trace) && got > 0; b++)
		got = gm_trace_read(trace, b, GM_WANT_HEAD, &block, err);
	gm_block_free(&block);
	return got < 0 ? got : GM_OK;
}

static int compare_indexes(const void *left, const void *right, void *context)
{
	const struct gm_trace *trace = ((const struct facts *)context)->trace;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	int order = strcmp(gm_trace_sequence(trace, a)->label, gm_trace_sequence(trace, b)->label);

	return order ? order : (a > b) - (a < b);
}

static int compare_first(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	return (a > b) - (a < b);
}

/* Groups sequences by label through a sorted list of them: there may be many of both. */
static int count_labels(struct facts *f, struct gm_error *err)
{
	uint32_t n = gm_trace_n_sequence(f->trace), n_group = 0;
	uint32_t *order = gm_alloc(n, sizeof(*order), err), *first = gm_alloc(n, sizeof(*first), err);
	int status = order && first ? GM_OK : GM_ERR_MEMORY;

	GM_TRY_OUT(status);
	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	qsort_r(order, n, sizeof(*order), compare_indexes, f);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || strcmp(gm_trace_sequence(f->trace, order[i])->label,
				     gm_trace_sequence(f->trace, order[i - 1])->label) != 0)
			first[n_group++] = order[i];
	qsort(first, n_group, sizeof(*first), compare_first);
	f->label = gm_alloc(n_group, sizeof(*f->label), err);
	GM_TRY_OUT(f->label ? GM_OK : GM_ERR_MEMORY);
	f->n_label = n_group;
	for (uint32_t g = 0; g < n_group; g++) {
		f->label[g].text = gm_trace_sequence(f->trace, first[g])->label;
		f->label[g].first = first[g];
	}
	for (uint32_t i = 0, g = 0; i < n; i++) {
		const struct gm_sequence *s = gm_trace_sequence(f->trace, order[i]);

		if (i == 0 || strcmp(s->label, gm_trace_sequence(f->trace, order[i - 1])->label) != 0) {
			const uint32_t *at = bsearch(&order[i], first, n_group, sizeof(*first), compare_first);

			g = (uint32_t)(at - first);
		}
		f->label[g].n_sequence++;
		f->label[g].n_token += s->n_token;
	}
out:
	free(order);
	free(first);
	return status;
}

static double bytes_per_token(const struct facts *f)
{
	return f->n_token ? (double)f->bytes / (double)f->n_token : 0.0;
}

/* --- json --- */

static struct gm_json *labels_json(const struct facts *f)
{
	struct gm_json *list = gm_json_new_array();

	for (size_t i = 0; i < f->n_label; i++) {
		struct gm_json *entry = gm_json_new_object();

		gm_json_add_string(entry, "label", f->label[i].text);
		gm_json_add_uint(entry, "n_sequence", f->label[i].n_sequence);
		gm_json_add_uint(entry, "n_token", f->label[i].n_token);
		if (!gm_json_append(list, entry)) {
			gm_json_free(list);
			return NULL;
		}
	}
	return list;
}

static int print_json(const struct facts *f, struct gm_error *err)
{
	const struct gm_model *m = gm_trace_model(f->trace);
	struct gm_json *o = gm_json_new_object();
	bool ok = gm_json_add_string(o, "kind", gm_kind_name(gm_trace_kind(f->trace))) &&
		  gm_json_add_string(o, "model", m->name) && gm_json_add_uint(o, "n_layer", m->n_layer) &&
		  gm_json_add_uint(o, "n_expert", m->n_expert) && gm_json_add_uint(o, "n_expert_used", m->top_k) &&
		  gm_json_add_string(o, "gating", m->gating == GM_GATING_SOFTMAX ? "softmax" : "sigmoid") &&
		  gm_json_add_uint(o, "head", gm_trace_n_head(f->trace)) &&
		  gm_json_add_string(o, "tail", gm_tail_name(gm_trace_tail(f->trace))) &&
		  gm_json_add_uint(o, "n_sequence", gm_trace_n_sequence(f->trace)) &&
		  gm_json_add_uint(o, "n_token", f->n_token) && gm_json_add_uint(o, "n_row", f->n_row) &&
		  gm_json_add(o, "labels", labels_json(f)) && gm_json_add_uint(o, "bytes", f->bytes) &&
		  gm_json_add_number(o, "bytes_per_token", bytes_per_token(f));
	char *text = ok ? gm_json_print(o, true) : NULL;

	gm_json_free(o);
	if (!text)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory");
	puts(text);
	free(text);
	return GM_OK;
}

/* --- text --- */

/* "24.6 kB" for all layers, or the range over them. */
static void print_bytes(const char *what, const uint64_t *bytes, uint32_t n_layer)
{
	char low[GM_NUMBER_TEXT], high[GM_NUMBER_TEXT];
	uint64_t min, max;

	if (!bytes) {
		printf("  %-12s not known\n", what);
		return;
	}
	min = max = bytes[0];
	for (uint32_t i = 1; i < n_layer; i++) {
		min = bytes[i] < min ? bytes[i] : min;
		max = bytes[i] > max ? bytes[i] : max;
	}
	if (min == max)
		printf("  %-12s %s in every layer\n", what, gm_format_bytes(min, low));
	else
		printf("  %-12s %s to %s, by layer\n", what, gm_format_bytes(min, low), gm_format_bytes(max, high));
}

static void print_model(const struct facts *f)
{
	const struct gm_model *m = gm_trace_model(f->trace);

	printf("  %-12s %s\n", "model", *m->name ? m->name : "(no name)");
	printf("  %-12s %" PRIu32 " layer%s of %" PRIu32 " experts, %" PRIu32 " used, %s gating%s\n", "shape", m->n_layer,
	       gm_plural(m->n_layer), m->n_expert, m->top_k, m->gating == GM_GATING_SOFTMAX ? "softmax" : "sigmoid",
	       m->bias ? ", selection bias" : "");
	if (m->n_group > 1)
		printf("  %-12s %" PRIu32 ", of which %" PRIu32 " stay eligible\n", "groups", m->n_group, m->topk_group);
	print_bytes("expert", m->expert_bytes, m->n_layer);
	print_bytes("dense part", m->dense_bytes, m->n_layer);
}

static void print_rows(const struct facts *f)
{
	const struct gm_trace *t = f->trace;
	uint64_t all = f->n_token * gm_trace_model(t)->n_layer;

	if (gm_trace_kind(t) == GM_KIND_TOPK)
		printf("  %-12s selected experts and weights only (topk): no logits\n", "row");
	else if (gm_trace_n_head(t) == gm_trace_model(t)->n_expert)
		printf("  %-12s all %" PRIu32 " logits ranked, float32\n", "row", gm_trace_n_head(t));
	else
		printf("  %-12s %" PRIu32 " ranked logits in float32, the others: %s\n", "row", gm_trace_n_head(t),
		       gm_trace_tail(t) == GM_TAIL_F32   ? "float32"
		       : gm_trace_tail(t) == GM_TAIL_F16 ? "float16"
							 : "not kept");
	printf("  %-12s %" PRIu64 " in %" PRIu32 " sequence%s\n", "tokens", f->n_token, gm_trace_n_sequence(t),
	       gm_plural(gm_trace_n_sequence(t)));
	printf("  %-12s %" PRIu64, "rows", f->n_row);
	if (f->n_row < all)
		printf(", %" PRIu64 " absent", all - f->n_row);
	printf("%s%s\n", gm_header_has(t, "logprobs") ? ", with log-probabilities" : "",
	       gm_header_has(t, "predictions") ? ", with predicted sets" : "");
}

static int compare_tokens(const void *left, const void *right)
{
	const struct label *a = left, *b = right;

	if (a->n_token != b->n_token)
		return a->n_token < b->n_token ? 1 : -1;
	return (a->first > b->first) - (a->first < b->first);
}

/* All in order of first appearance; of very many the largest. */
static void print_labels(const struct facts *f)
{
	size_t n_shown = f->n_label;

	if (f->n_label == 0 || (f->n_label == 1 && !*f->label[0].text))
		return;
	if (f->n_label > MAX_SHOWN_LABELS) {
		n_shown = MAX_SHOWN_LABELS;
		qsort(f->label, f->n_label, sizeof(*f->label), compare_tokens);
	}
	for (size_t i = 0; i < n_shown; i++)
		printf("  %-12s %s: %" PRIu64 " sequence%s, %" PRIu64 " token%s\n", i ? "" : "labels",
		       *f->label[i].text ? f->label[i].text : "(none)", f->label[i].n_sequence,
		       gm_plural(f->label[i].n_sequence), f->label[i].n_token, gm_plural(f->label[i].n_token));
	if (n_shown < f->n_label)
		printf("  %-12s and %zu more: --json lists them\n", "", f->n_label - n_shown);
}

static int print_text(const struct facts *f, struct gm_error *err)
{
	const char *source = gm_header_source(f->trace),
		   *tool = gm_json_text(gm_json_get(gm_trace_header(f->trace), "tool"));
	struct gm_json *metadata = gm_header_metadata(f->trace, err);
	char bytes[GM_NUMBER_TEXT];

	if (!metadata)
		return GM_ERR_MEMORY;
	printf("%s\n", gm_trace_path(f->trace));
	print_model(f);
	print_rows(f);
	print_labels(f);
	printf("  %-12s %s, %.0f bytes a token, %" PRIu64 " block%s\n", "file", gm_format_bytes(f->bytes, bytes),
	       bytes_per_token(f), f->n_block, gm_plural(f->n_block));
	if (gm_trace_hash(f->trace))
		printf("  %-12s %s\n", "hash", gm_trace_hash(f->trace));
	if (source && *source)
		printf("  %-12s %s\n", "source", source);
	if (tool)
		printf("  %-12s %s\n", "written by", tool);
	for (const struct gm_json *m = gm_json_first(metadata); m; m = gm_json_next(m)) {
		char *text = gm_json_print(m, false);

		printf("  %-12s %s\n", gm_json_key(m), gm_json_text(m) ? gm_json_text(m) : text ? text : "?");
		free(text);
	}
	gm_json_free(metadata);
	return GM_OK;
}

static int run(int n_operand, char **operand, void *state, struct gm_error *err)
{
	const struct state *s = state;
	struct facts f = {0};
	struct gm_trace *trace = gm_trace_open(operand[0], err);
	int status;

	(void)n_operand;
	if (!trace)
		return err->code;
	GM_TRY_OUT(read_through(trace, err));
	f.trace = trace;
	f.n_token = gm_trace_n_token(trace);
	f.n_row = gm_trace_n_row(trace);
	f.n_block = gm_trace_n_block(trace);
	f.bytes = gm_trace_bytes(trace);
	GM_TRY_OUT(count_labels(&f, err));
	status = s->json ? print_json(&f, err) : print_text(&f, err);
out:
	free(f.label);
	gm_trace_close(trace);
	return status;
}

static const struct gm_option *const tables[] = {options};

const struct gm_command gm_traces_info = {
	.name = "info",
	.usage = "[--json] TRACE.gmt",
	.help = "Show what a trace holds: model, tokens, sequences, labels, sizes.\nTRACE may be - for standard input.",
	.example = "traces info --json model.gmt",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = 1,
	.run = run,
	.option = take_option,
	.state_bytes = sizeof(struct state),
};
