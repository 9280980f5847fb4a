/* Exporter for topk-csv: the selected experts in rank order with their gate weights (R3), from traces of both kinds. */
#include "base/csv.h"
#include "base/number.h"
#include "base/options.h"
#include "traces/export_common.h"
#include "traces/select.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct topk_export {
	struct gm_trace *trace;
	const struct gm_model *model;
	struct gm_sequence_names names;
	struct gm_output out;
	struct gm_csv_writer csv;
	bool extra;
	bool long_passes; /* a pass of several tokens was seen */
	uint32_t last_pass;
	uint64_t n_token;
	double *weight; /* [top_k] */
};

/* A value of the comment line: in quotes where it would not be read back as one word. */
static void write_text(FILE *out, const char *key, const char *text)
{
	if (*text && !strpbrk(text, " \t\"\r\n")) {
		fprintf(out, " %s=%s", key, text);
		return;
	}
	fprintf(out, " %s=\"", key);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text == '\n' || *text == '\r' ? ' ' : *text, out);
	}
	fputc('"', out);
}

/* One number where all layers have the same, else a comma list. */
static void write_bytes(FILE *out, const char *key, const uint64_t *bytes, uint32_t n_layer)
{
	bool same = true;

	if (!bytes)
		return;
	for (uint32_t i = 1; i < n_layer; i++)
		same = same && bytes[i] == bytes[0];
	fprintf(out, " %s=", key);
	for (uint32_t i = 0; i < (same ? 1 : n_layer); i++)
		fprintf(out, i ? ",%" PRIu64 : "%" PRIu64, bytes[i]);
}

/* Texts and numbers of the metadata; lists and objects have no place in a comment line. */
static int write_metadata(struct topk_export *x, struct gm_error *err)
{
	struct gm_json *facts = gm_export_facts(x->trace, NULL, err);
	struct gm_json *known = facts ? gm_json_new_object() : NULL;
	char number[GM_NUMBER_TEXT];
	int status = known ? gm_model_to_json(x->model, known, err) : gm_fail(err, GM_ERR_MEMORY, "out of memory");

	for (const struct gm_json *m = gm_json_first(facts); status == GM_OK && m; m = gm_json_next(m)) {
		const char *key = gm_json_key(m);

		if (gm_json_get(known, key) || strcmp(key, "weights") == 0 || strpbrk(key, " =\t\"\r\n") || !*key)
			continue;
		if (gm_json_type(m) == GM_JSON_STRING)
			write_text(x->out.stream, key, gm_json_text(m));
		if (gm_json_type(m) == GM_JSON_NUMBER)
			fprintf(x->out.stream, " %s=%s", key, gm_format_double(gm_json_value(m), number));
	}
	gm_json_free(known);
	gm_json_free(facts);
	return status;
}

static int write_header(struct topk_export *x, struct gm_error *err)
{
	static const char *const names[] = {"seq", "label", "pos", "layer", "rank", "expert", "weight", "pass", "token"};
	const struct gm_model *m = x->model;
	FILE *out = x->out.stream;

	fputs("# topk_trace v1", out);
	if (*m->name)
		write_text(out, "model", m->name);
	fprintf(out, " n_layer=%u n_expert=%u n_expert_used=%u", m->n_layer, m->n_expert, m->top_k);
	if (m->gating != GM_GATING_SOFTMAX)
		fputs(" gating=sigmoid", out);
	write_bytes(out, "expert_bytes", m->expert_bytes, m->n_layer);
	write_bytes(out, "dense_bytes", m->dense_bytes, m->n_layer);
	fputs(" weights=normalised-over-selected", out);
	GM_TRY(write_metadata(x, err));
	fputc('\n', out);
	for (size_t i = 0; i < (x->extra ? 9u : 7u); i++)
		gm_csv_text(&x->csv, names[i]);
	gm_csv_end_row(&x->csv);
	return GM_OK;
}

static void write_row(struct topk_export *x, const struct gm_block *b, uint32_t layer, uint32_t i)
{
	size_t row = (size_t)layer * b->n_token + i;
	const uint16_t *expert = b->head + row * b->n_head;
	const double *weight = x->weight;
	const char *label = gm_trace_sequence(x->trace, b->sequence[i])->label;

	if (b->weight)
		weight = b->weight + row * b->top_k;
	else
		gm_gate_weights(x->model->gating, b->top_k, b->logit + row * b->n_head, x->weight);
	for (uint32_t rank = 0; rank < b->top_k; rank++) {
		gm_csv_uint(&x->csv, gm_sequence_number(&x->names, b->sequence[i]));
		gm_csv_text(&x->csv, label);
		gm_csv_uint(&x->csv, b->position[i]);
		gm_csv_uint(&x->csv, layer);
		gm_csv_uint(&x->csv, rank);
		gm_csv_uint(&x->csv, expert[rank]);
		gm_csv_double(&x->csv, weight[rank]);
		if (x->extra) {
			gm_csv_uint(&x->csv, b->pass[i]);
			if (b->token[i] >= 0)
				gm_csv_uint(&x->csv, (uint64_t)b->token[i]);
			else
				gm_csv_text(&x->csv, NULL);
		}
		gm_csv_end_row(&x->csv);
	}
}

static int write_rows(struct topk_export *x, const struct gm_export_options *options, struct gm_error *err)
{
	struct gm_block block = {0};
	struct gm_progress progress;
	int got = GM_OK;

	gm_progress_start(&progress, "export", "tokens", gm_trace_n_token(x->trace), options->quiet);
	for (uint64_t b = 0; (got = gm_trace_read(x->trace, b, GM_WANT_HEAD, &block, err)) > 0; b++) {
		for (uint32_t i = 0; i < block.n_token; i++) {
			x->long_passes = x->long_passes || (x->n_token > 0 && block.pass[i] == x->last_pass);
			x->last_pass = block.pass[i];
			x->n_token++;
			for (uint32_t layer = 0; layer < block.n_layer; layer++)
				if (block.present[layer * block.n_token + i])
					write_row(x, &block, layer, i);
		}
		if (ferror(x->out.stream))
			break; /* the commit says why */
		gm_progress_update(&progress, block.first_token + block.n_token);
	}
	gm_progress_end(&progress);
	gm_block_free(&block);
	return got < 0 ? got : GM_OK;
}

int gm_export_topk_csv(struct gm_trace *trace, const struct gm_export_options *options, struct gm_error *err)
{
	struct topk_export x = {
		.trace = trace, .model = gm_trace_model(trace), .names = gm_sequence_names(trace), .extra = options->extra};
	int status;

	x.weight = gm_alloc(x.model->top_k, sizeof(*x.weight), err);
	if (!x.weight)
		return GM_ERR_MEMORY;
	GM_TRY_OUT(gm_output_open(&x.out, options->output, err));
	x.csv.stream = x.out.stream;
	GM_TRY_OUT(write_header(&x, err));
	GM_TRY_OUT(write_rows(&x, options, err));
	GM_TRY_OUT(gm_output_commit(&x.out, err));
	if (x.long_passes && !x.extra && !options->quiet)
		gm_note("note: this trace has passes of several tokens: the columns of --extra keep them");
out:
	gm_output_discard(&x.out);
	free(x.weight);
	return status;
}
