/* Exporter for a NumPy array float32 [tokens, layers, experts] with its facts in a JSON file beside it: what import --format npy
 * reads. Absent rows are rows of NaN, and the facts say so ("absent":"nan"). */
#include "base/number.h"
#include "traces/commands.h"
#include "traces/export_common.h"
#include "traces/npy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct npy_export {
	struct gm_trace *trace;
	const struct gm_model *model;
	const struct gm_export_options *options;
	struct gm_output array, meta;
	float *row; /* [n_expert] */

	/* what the tokens are like, learnt while the array is written */
	bool has_tokens, has_logprobs, has_passes, has_positions, has_absent;
	uint32_t sequence, pass;
	uint64_t n_token, in_sequence;
};

static void note_token(struct npy_export *x, const struct gm_block *b, uint32_t i)
{
	bool first = x->n_token == 0 || b->sequence[i] != x->sequence;

	x->in_sequence = first ? 0 : x->in_sequence + 1;
	x->has_tokens = x->has_tokens || b->token[i] >= 0;
	x->has_logprobs = x->has_logprobs || (b->logprob && !isnan(b->logprob[i]));
	x->has_passes = x->has_passes || (!first && b->pass[i] == x->pass);
	x->has_positions = x->has_positions || b->position[i] != x->in_sequence;
	x->sequence = b->sequence[i];
	x->pass = b->pass[i];
	x->n_token++;
}

static void write_token(struct npy_export *x, const struct gm_block *b, uint32_t i)
{
	uint32_t n_expert = x->model->n_expert;

	for (uint32_t layer = 0; layer < b->n_layer; layer++) {
		if (b->present[layer * b->n_token + i]) {
			gm_block_logits(b, x->model, layer, i, x->row);
		} else {
			for (uint32_t e = 0; e < n_expert; e++)
				x->row[e] = NAN;
			x->has_absent = true;
		}
		fwrite(x->row, sizeof(*x->row), n_expert, x->array.stream);
	}
}

static int write_array(struct npy_export *x, struct gm_error *err)
{
	uint64_t shape[3] = {gm_trace_n_token(x->trace), x->model->n_layer, x->model->n_expert};
	struct gm_block block = {0};
	struct gm_progress progress;
	int got = GM_OK;

	GM_TRY(gm_npy_write_header(x->array.stream, shape, 3, err));
	gm_progress_start(&progress, "export", "tokens", shape[0], x->options->quiet);
	for (uint64_t b = 0; (got = gm_trace_read(x->trace, b, GM_WANT_TAIL, &block, err)) > 0; b++) {
		for (uint32_t i = 0; i < block.n_token; i++) {
			note_token(x, &block, i);
			write_token(x, &block, i);
		}
		if (ferror(x->array.stream))
			break; /* the commit says why */
		gm_progress_update(&progress, x->n_token);
	}
	gm_progress_end(&progress);
	gm_block_free(&block);
	return got < 0 ? got : GM_OK;
}

enum column { TOKENS, PASSES, POSITIONS, LOGPROBS };

static void write_number(FILE *out, const struct gm_block *b, uint32_t i, enum column column)
{
	switch (column) {
	case TOKENS:
		fprintf(out, "%" PRId32, b->token[i]);
		break;
	case PASSES:
		fprintf(out, "%" PRIu32, b->pass[i]);
		break;
	case POSITIONS:
		fprintf(out, "%" PRIu32, b->position[i]);
		break;
	case LOGPROBS:
		if (b->logprob && !isnan(b->logprob[i]))
			fprintf(out, "%.9g", (double)b->logprob[i]);
		else
			fputs("null", out);
		break;
	}
}

/* One list of a number a token. The trace is read again for each, so that memory does not grow with its length. */
static int write_list(struct npy_export *x, const char *key, enum column column, struct gm_error *err)
{
	struct gm_block block = {0};
	FILE *out = x->meta.stream;
	int got = GM_OK;

	fprintf(out, ",\"%s\":[", key);
	for (uint64_t b = 0; (got = gm_trace_read(x->trace, b, GM_WANT_HEAD, &block, err)) > 0; b++) {
		for (uint32_t i = 0; i < block.n_token; i++) {
			if (block.first_token + i > 0)
				fputc(',', out);
			write_number(out, &block, i, column);
		}
	}
	fputc(']', out);
	gm_block_free(&block);
	return got < 0 ? got : GM_OK;
}

static int write_meta(struct npy_export *x, struct gm_error *err)
{
	struct gm_json *facts = gm_export_facts(x->trace, "router-logits-jsonl", err);
	char *text = NULL;
	int status = facts ? GM_OK : GM_ERR_MEMORY;

	GM_TRY_OUT(status);
	GM_TRY_OUT(gm_export_sequences(x->trace, facts, err));
	if (x->has_absent)
		gm_json_add_string(facts, "absent", "nan");
	text = gm_json_print(facts, false);
	GM_TRY_OUT(text ? GM_OK : gm_fail(err, GM_ERR_MEMORY, "out of memory"));
	text[strlen(text) - 1] = '\0'; /* the lists come before the closing brace */
	fputs(text, x->meta.stream);
	if (x->has_tokens)
		GM_TRY_OUT(write_list(x, "tokens", TOKENS, err));
	if (x->has_passes)
		GM_TRY_OUT(write_list(x, "passes", PASSES, err));
	if (x->has_positions)
		GM_TRY_OUT(write_list(x, "positions", POSITIONS, err));
	if (x->has_logprobs)
		GM_TRY_OUT(write_list(x, "logprobs", LOGPROBS, err));
	fputs("}\n", x->meta.stream);
out:
	free(text);
	gm_json_free(facts);
	return status;
}

int gm_export_npy(struct gm_trace *trace, const struct gm_export_options *options, struct gm_error *err)
{
	struct npy_export x = {.trace = trace, .model = gm_trace_model(trace), .options = options};
	size_t n = strlen(options->output) + sizeof(".json");
	char *beside = gm_alloc(n, 1, err);
	int status = beside ? GM_OK : GM_ERR_MEMORY;

	GM_TRY_OUT(status);
	if (strcmp(options->output, "-") == 0 && !options->meta)
		GM_TRY_OUT(
			gm_fail(err, GM_ERR_USAGE, "an array on standard output: --out -: give --meta FILE for its facts"));
	snprintf(beside, n, "%s.json", options->output);
	x.row = gm_alloc(x.model->n_expert, sizeof(*x.row), err);
	GM_TRY_OUT(x.row ? GM_OK : GM_ERR_MEMORY);
	GM_TRY_OUT(gm_output_open(&x.array, options->output, err));
	GM_TRY_OUT(gm_output_open(&x.meta, options->meta ? options->meta : beside, err));
	GM_TRY_OUT(write_array(&x, err));
	GM_TRY_OUT(write_meta(&x, err));
	/* The facts first: an array that stands under its name has them. */
	GM_TRY_OUT(gm_output_commit(&x.meta, err));
	GM_TRY_OUT(gm_output_commit(&x.array, err));
out:
	gm_output_discard(&x.array);
	gm_output_discard(&x.meta);
	free(x.row);
	free(beside);
	return status;
}
