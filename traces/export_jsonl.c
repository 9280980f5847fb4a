/* Exporter for router-logits-jsonl: what import --format jsonl reads. Logits are written with nine digits, which read back as the
 * same float32. */
#include "traces/commands.h"
#include "traces/export_common.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct jsonl_export {
	struct gm_trace *trace;
	struct gm_sequence_names names;
	struct gm_output out;
	float *logits;     /* [n_expert] */
	uint32_t sequence; /* whose label is ready */
	char *label;       /* ",\"label\":\"…\"", "" without one, NULL: none ready */
};

static int write_facts(struct jsonl_export *x, struct gm_error *err)
{
	struct gm_json *facts = gm_export_facts(x->trace, "router-logits-jsonl", err);
	char *text = NULL;
	int status = facts ? GM_OK : GM_ERR_MEMORY;

	/* Ids that are numbers stand in every row as "seq". A trace from a pipe has no table yet. */
	if (facts && !x->names.by_id && gm_trace_seekable(x->trace))
		status = gm_export_sequences(x->trace, facts, err);
	if (status == GM_OK) {
		text = gm_json_print(facts, false);
		if (text)
			fprintf(x->out.stream, "%s\n", text);
		else
			status = gm_fail(err, GM_ERR_MEMORY, "out of memory");
	}
	free(text);
	gm_json_free(facts);
	return status;
}

/* The label of a sequence as a JSON member. */
static int prepare_label(struct jsonl_export *x, uint32_t sequence, struct gm_error *err)
{
	const char *label = gm_trace_sequence(x->trace, sequence)->label;
	struct gm_json *object;
	char *text;

	if (x->label && x->sequence == sequence)
		return GM_OK;
	free(x->label);
	x->label = NULL;
	x->sequence = sequence;
	object = gm_json_new_object();
	gm_json_add_string(object, "label", label);
	text = object ? gm_json_print(object, false) : NULL;
	gm_json_free(object);
	if (!text)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory");
	/* "{…}" becomes ",…" */
	text[0] = ',';
	text[strlen(text) - 1] = '\0';
	if (!*label)
		text[0] = '\0';
	x->label = text;
	return GM_OK;
}

static void write_facts_of_token(struct jsonl_export *x, const struct gm_block *b, uint32_t i)
{
	FILE *out = x->out.stream;

	fprintf(out, ",\"pass\":%" PRIu32, b->pass[i]);
	if (b->token[i] >= 0)
		fprintf(out, ",\"token\":%" PRId32, b->token[i]);
	if (b->logprob && !isnan(b->logprob[i]))
		fprintf(out, ",\"logprob\":%.9g", (double)b->logprob[i]);
	fputs(x->label, out);
}

static void write_logits(FILE *out, const float *logits, uint32_t n_expert)
{
	char text[GM_FLOAT_TEXT + 1] = ",";

	fputs(",\"logits\":[", out);
	for (uint32_t e = 0; e < n_expert; e++) {
		size_t n = gm_format_float(logits[e], text + 1);

		fwrite_unlocked(e ? text : text + 1, 1, e ? n + 1 : n, out);
	}
	fputs("]}\n", out);
}

static int write_token(struct jsonl_export *x, const struct gm_block *b, uint32_t i, struct gm_error *err)
{
	const struct gm_model *model = gm_trace_model(x->trace);
	uint32_t seq = gm_sequence_number(&x->names, b->sequence[i]);
	FILE *out = x->out.stream;
	bool any = false;

	GM_TRY(prepare_label(x, b->sequence[i], err));
	for (uint32_t layer = 0; layer < b->n_layer; layer++) {
		if (!b->present[layer * b->n_token + i])
			continue;
		any = true;
		gm_block_logits(b, model, layer, i, x->logits);
		fprintf(out, "{\"seq\":%" PRIu32 ",\"pos\":%" PRIu32 ",\"layer\":%" PRIu32, seq, b->position[i], layer);
		write_facts_of_token(x, b, i);
		write_logits(out, x->logits, model->n_expert);
	}
	if (!any) { /* a token without rows stays a token */
		fprintf(out, "{\"seq\":%" PRIu32 ",\"pos\":%" PRIu32, seq, b->position[i]);
		write_facts_of_token(x, b, i);
		fputs("}\n", out);
	}
	return GM_OK;
}

static int write_rows(struct jsonl_export *x, const struct gm_export_options *options, struct gm_error *err)
{
	struct gm_block block = {0};
	struct gm_progress progress;
	int got = GM_OK, status = GM_OK;

	gm_progress_start(&progress, "export", "tokens", gm_trace_n_token(x->trace), options->quiet);
	for (uint64_t b = 0; status == GM_OK; b++) {
		got = gm_trace_read(x->trace, b, GM_WANT_TAIL, &block, err);
		if (got <= 0)
			break;
		for (uint32_t i = 0; i < block.n_token && status == GM_OK; i++)
			status = write_token(x, &block, i, err);
		if (status == GM_OK && ferror(x->out.stream))
			break; /* the commit says why */
		gm_progress_update(&progress, block.first_token + block.n_token);
	}
	gm_progress_end(&progress);
	gm_block_free(&block);
	return got < 0 ? got : status;
}

int gm_export_jsonl(struct gm_trace *trace, const struct gm_export_options *options, struct gm_error *err)
{
	struct jsonl_export x = {.trace = trace, .names = gm_sequence_names(trace)};
	int status;

	x.logits = gm_alloc(gm_trace_model(trace)->n_expert, sizeof(*x.logits), err);
	if (!x.logits)
		return GM_ERR_MEMORY;
	GM_TRY_OUT(gm_output_open(&x.out, options->output, err));
	GM_TRY_OUT(write_facts(&x, err));
	GM_TRY_OUT(write_rows(&x, options, err));
	GM_TRY_OUT(gm_output_commit(&x.out, err));
out:
	gm_output_discard(&x.out);
	free(x.label);
	free(x.logits);
	return status;
}
