/* `traces cut`: some of a trace's sequences, tokens and layers as a trace of their own. */
#include "base/file.h"
#include "base/number.h"
#include "base/progress.h"
#include "traces/commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE = 1, LABEL, TOKENS, LAYERS, HEAD, TAIL, OUT, QUIET };

/* Values of an option that may stand several times. */
struct values {
	const char **text;
	int n;
};

struct state {
	struct values sequence, label;
	const char *layers, *tokens, *output;
	uint64_t first, last; /* tokens that are kept, both included */
	struct gm_copy_options copy;
	bool quiet;
	bool *chosen;     /* [n_sequence], NULL: all */
	bool *keep_layer; /* [n_layer], NULL: all */
};

static const struct gm_option options[] = {
	{SEQUENCE, 's', "sequence", "LIST", "these sequences: ids, or numbers and ranges\nas info counts them (0,4..7)"},
	{LABEL, 'l', "label", "LIST", "sequences with one of these labels"},
	{TOKENS, 't', "tokens", "FROM..TO",
	 "these tokens, numbered through the trace,\nboth ends included; FROM.. to the end"},
	{LAYERS, 0, "layers", "LIST", "these layers: numbers and ranges (0,4..7)"},
	{HEAD, 0, "head", "M", "fewer ranked experts a row"},
	{TAIL, 0, "tail", "f32|f16|none", "a smaller tail"},
	{OUT, 'o', "out", "FILE", "the trace to write; - for standard output"},
	{QUIET, 'q', "quiet", NULL, "no progress"},
	{0, 0, NULL, NULL, NULL},
};

static int add_value(struct values *values, const char *value, struct gm_error *err)
{
	const char **grown = gm_realloc(values->text, (size_t)values->n + 1, sizeof(*grown), err);

	if (!grown)
		return GM_ERR_MEMORY;
	values->text = grown;
	values->text[values->n++] = value;
	return GM_OK;
}

static int take_option(int id, const char *value, void *state, struct gm_error *err)
{
	struct state *s = state;

	switch (id) {
	case SEQUENCE:
		return add_value(&s->sequence, value, err);
	case LABEL:
		return add_value(&s->label, value, err);
	case TOKENS:
		s->tokens = value;
		if (gm_parse_range(value, &s->first, &s->last) < 0)
			return gm_fail(err, GM_ERR_USAGE, "not a range: --tokens \"%.60s\": such as 100..199", value);
		return GM_OK;
	case LAYERS:
		s->layers = value;
		return GM_OK;
	case HEAD:
		return gm_parse_u32(value, "--head", 1, GM_MAX_EXPERT, &s->copy.n_head, err);
	case TAIL:
		s->copy.tail_given = true;
		return gm_parse_tail(value, &s->copy.tail, err);
	case OUT:
		s->output = value;
		return GM_OK;
	default:
		s->quiet = true;
		return GM_OK;
	}
}

/* --- which sequences --- */

/* Marks the sequences whose id or label is exactly this; returns whether there is one. */
static bool choose_named(const struct gm_trace *trace, bool by_label, const char *name, bool *chosen)
{
	bool any = false;

	for (uint32_t i = 0; i < gm_trace_n_sequence(trace); i++) {
		const struct gm_sequence *s = gm_trace_sequence(trace, i);

		if (strcmp(by_label ? s->label : s->id, name) == 0)
			chosen[i] = any = true;
	}
	return any;
}

/* One name of a list: an id (or label) wins over a number. */
static int choose_item(const struct gm_trace *trace, bool by_label, const char *item, bool *chosen, struct gm_error *err)
{
	uint64_t first = 0, last = 0;
	uint32_t n = gm_trace_n_sequence(trace);

	if (choose_named(trace, by_label, item, chosen))
		return GM_OK;
	if (by_label)
		return gm_fail(err, GM_ERR_USAGE,
			       "no sequence has this label: --label \"%.60s\": traces info %.60s lists them", item,
			       gm_trace_path(trace));
	if (gm_parse_range(item, &first, &last) < 0)
		return gm_fail(err, GM_ERR_USAGE,
			       "no sequence has this id: --sequence \"%.60s\": an id, or a number or range from 0 to %u",
			       item, n - 1);
	return gm_parse_index_list(item, "--sequence", n, chosen, err);
}

/* A whole value may be a name with commas in it; else it is a list. */
static int choose_value(const struct gm_trace *trace, bool by_label, const char *value, bool *chosen, struct gm_error *err)
{
	char *copy, *save = NULL;
	int status = GM_OK;

	if (choose_named(trace, by_label, value, chosen))
		return GM_OK;
	copy = gm_strdup(value, err);
	if (!copy)
		return GM_ERR_MEMORY;
	if (!strtok_r(copy, ",", &save))
		status = choose_item(trace, by_label, value, chosen, err);
	for (char *item = copy; item && *value && status == GM_OK; item = strtok_r(NULL, ",", &save))
		status = choose_item(trace, by_label, item, chosen, err);
	free(copy);
	return status;
}

static int choose_sequences(struct state *s, const struct gm_trace *trace, struct gm_error *err)
{
	uint32_t n = gm_trace_n_sequence(trace);
	const struct values *lists[2] = {&s->sequence, &s->label};

	if (s->sequence.n == 0 && s->label.n == 0)
		return GM_OK;
	if (!gm_trace_seekable(trace))
		return gm_fail(
			err, GM_ERR_UNSUPPORTED,
			"a trace from a pipe tells its sequences at its end: %s: save it to a file, or cut by --tokens",
			s->sequence.n ? "--sequence" : "--label");
	s->chosen = gm_alloc(n, sizeof(*s->chosen), err);
	bool *mark = gm_alloc(n, sizeof(*mark), err);
	int status = s->chosen && mark ? GM_OK : GM_ERR_MEMORY;

	for (uint32_t i = 0; status == GM_OK && i < n; i++)
		s->chosen[i] = true;
	/* Those in both lists, where both are given. */
	for (int by_label = 0; by_label < 2 && status == GM_OK; by_label++) {
		if (lists[by_label]->n == 0)
			continue;
		memset(mark, 0, n * sizeof(*mark));
		for (int v = 0; v < lists[by_label]->n && status == GM_OK; v++)
			status = choose_value(trace, by_label, lists[by_label]->text[v], mark, err);
		for (uint32_t i = 0; i < n; i++)
			s->chosen[i] = s->chosen[i] && mark[i];
	}
	free(mark);
	return status;
}

/* First token from `token` on that is wanted; UINT64_MAX: none. */
static uint64_t next_wanted(const struct state *s, const struct gm_trace *trace, uint64_t token)
{
	if (token < s->first)
		token = s->first;
	for (uint32_t i = 0; s->chosen && i < gm_trace_n_sequence(trace); i++) {
		const struct gm_sequence *q = gm_trace_sequence(trace, i);

		if (!s->chosen[i] || q->first_token + q->n_token <= token || q->n_token == 0)
			continue;
		token = token > q->first_token ? token : q->first_token;
		return token <= s->last ? token : UINT64_MAX;
	}
	return !s->chosen && token <= s->last ? token : UINT64_MAX;
}

/* --- facts of the output --- */

static void keep_bytes(uint64_t *bytes, const bool *keep, uint32_t n_layer)
{
	uint32_t n = 0;

	for (uint32_t layer = 0; bytes && layer < n_layer; layer++)
		if (keep[layer])
			bytes[n++] = bytes[layer];
}

/* A copy of the trace's facts with only the layers that are kept. */
static int cut_model(struct state *s, const struct gm_trace *trace, struct gm_model *model, struct gm_error *err)
{
	uint32_t n_layer = gm_trace_model(trace)->n_layer, n = 0;

	GM_TRY(gm_model_copy(model, gm_trace_model(trace), err));
	if (!s->layers)
		return GM_OK;
	s->keep_layer = gm_alloc(n_layer, sizeof(*s->keep_layer), err);
	if (!s->keep_layer)
		return GM_ERR_MEMORY;
	GM_TRY(gm_parse_index_list(s->layers, "--layers", n_layer, s->keep_layer, err));
	s->copy.layers = s->keep_layer;
	keep_bytes(model->expert_bytes, s->keep_layer, n_layer);
	keep_bytes(model->dense_bytes, s->keep_layer, n_layer);
	for (uint32_t layer = 0; layer < n_layer; layer++) {
		if (!s->keep_layer[layer])
			continue;
		if (model->bias)
			memmove(model->bias + (size_t)n * model->n_expert, model->bias + (size_t)layer * model->n_expert,
				model->n_expert * sizeof(*model->bias));
		n++;
	}
	model->n_layer = n;
	return GM_OK;
}

/* --- copying --- */

static int copy_block(const struct state *s, struct gm_copy *copy, const struct gm_trace *trace,
		      const struct gm_block *block, struct gm_error *err)
{
	for (uint32_t i = 0; i < block->n_token; i++) {
		uint64_t token = block->first_token + i;

		if (token < s->first || token > s->last || (s->chosen && !s->chosen[block->sequence[i]]))
			continue;
		GM_TRY(gm_copy_token(copy, trace, block, i, err));
	}
	return GM_OK;
}

/* Blocks in which nothing is wanted are passed over where the trace can seek. */
static int copy_tokens(const struct state *s, struct gm_copy *copy, struct gm_trace *trace, struct gm_error *err)
{
	struct gm_block block = {0};
	struct gm_progress progress;
	uint64_t next = 0, b = 0, end = 0;
	int got = 0, status = GM_OK;

	gm_progress_start(&progress, "cut", "tokens", gm_trace_n_token(trace), s->quiet);
	while (status == GM_OK) {
		if (gm_trace_seekable(trace)) {
			next = next_wanted(s, trace, end);
			if (next >= gm_trace_n_token(trace))
				break;
			status = gm_trace_find(trace, next, &b, err);
		}
		got = status == GM_OK ? gm_trace_read(trace, b, GM_WANT_TAIL | GM_WANT_PREDICTION, &block, err) : status;
		if (got <= 0)
			break;
		b++;
		end = block.first_token + block.n_token;
		status = copy_block(s, copy, trace, &block, err);
		gm_progress_update(&progress, end);
	}
	gm_progress_end(&progress);
	gm_block_free(&block);
	return got < 0 ? got : status;
}

static int check_end(const struct state *s, const struct gm_trace *trace, const struct gm_copy *copy, struct gm_error *err)
{
	uint64_t n_token = gm_trace_n_token(trace);

	if (gm_copy_n_token(copy) == 0)
		return gm_fail(err, GM_ERR_USAGE,
			       "nothing is left: %s: the sequences, labels and tokens have no token in common",
			       gm_trace_path(trace));
	if (s->tokens && s->last != UINT64_MAX && s->last >= n_token)
		return gm_fail(err, GM_ERR_USAGE, "past the end: --tokens %.60s: 0..%" PRIu64, s->tokens, n_token - 1);
	return GM_OK;
}

static int cut(struct state *s, struct gm_trace *trace, struct gm_error *err)
{
	struct gm_model model = {0};
	struct gm_json *metadata = NULL;
	struct gm_copy *copy = NULL;
	uint64_t n_token = gm_trace_n_token(trace);
	int status;

	if (gm_trace_seekable(trace) && s->tokens && (s->first >= n_token || (s->last >= n_token && s->last != UINT64_MAX)))
		return gm_fail(err, GM_ERR_USAGE, "past the end: --tokens %.60s: 0..%" PRIu64, s->tokens,
			       n_token ? n_token - 1 : 0);
	GM_TRY_OUT(choose_sequences(s, trace, err));
	GM_TRY_OUT(cut_model(s, trace, &model, err));
	metadata = gm_header_metadata(trace, err);
	GM_TRY_OUT(metadata ? GM_OK : GM_ERR_MEMORY);
	s->copy.source = gm_header_source(trace);
	s->copy.metadata = metadata;
	s->copy.logprobs = gm_header_has(trace, "logprobs");
	s->copy.predictions = gm_header_has(trace, "predictions");
	copy = gm_copy_new(s->output, trace, &model, &s->copy, err);
	GM_TRY_OUT(copy ? GM_OK : err->code);
	GM_TRY_OUT(copy_tokens(s, copy, trace, err));
	GM_TRY_OUT(check_end(s, trace, copy, err));
	status = gm_copy_close(copy, err);
	copy = NULL;
out:
	gm_copy_discard(copy);
	gm_json_free(metadata);
	gm_model_free(&model);
	return status;
}

static int run(int n_operand, char **operand, void *state, struct gm_error *err)
{
	struct state *s = state;
	struct gm_trace *trace;
	int status;

	(void)n_operand;
	if (!s->output)
		return gm_fail(err, GM_ERR_USAGE, "no output: --out FILE: the trace to write");
	const struct gm_file_use use[] = {{operand[0], "TRACE", false}, {s->output, "--out", true}};

	GM_TRY(gm_files_check(use, 2, err));
	if (!s->tokens)
		s->last = UINT64_MAX;
	trace = gm_trace_open(operand[0], err);
	if (!trace)
		return err->code;
	status = cut(s, trace, err);
	gm_trace_close(trace);
	return status;
}

static void release(void *state)
{
	struct state *s = state;

	free(s->sequence.text);
	free(s->label.text);
	free(s->chosen);
	free(s->keep_layer);
}

static const struct gm_option *const tables[] = {options};

const struct gm_command gm_traces_cut = {
	.name = "cut",
	.usage = "--out PART.gmt [options] TRACE.gmt",
	.help = "Keep some sequences, tokens or layers of a trace, or less of every row.\n"
		"Options of several kinds keep what all of them name. TRACE may be - for standard input.",
	.example = "traces cut --label kjv --tokens 0..999 -o kjv.gmt model.gmt",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = 1,
	.run = run,
	.option = take_option,
	.state_bytes = sizeof(struct state),
	.release = release,
};
