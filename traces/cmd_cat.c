/* `traces cat`: several traces of one model as one. */
#include "base/file.h"
#include "base/number.h"
#include "base/progress.h"
#include "traces/commands.h"

#include <stdlib.h>
#include <string.h>

enum { OUT = 1, HEAD, TAIL, MODEL, QUIET };

struct state {
	const char *output, *model_name;
	struct gm_copy_options copy;
	bool quiet;
};

static const struct gm_option options[] = {
	{OUT, 'o', "out", "FILE", "the trace to write; - for standard output"},
	{HEAD, 0, "head", "M", "ranked experts a row, at most what all inputs have"},
	{TAIL, 0, "tail", "f32|f16|none", "at most what all inputs have"},
	{MODEL, 0, "model", "NAME", "name of the model, where the inputs' names differ"},
	{QUIET, 'q', "quiet", NULL, "no progress"},
	{0, 0, NULL, NULL, NULL},
};

static int take_option(int id, const char *value, void *state, struct gm_error *err)
{
	struct state *s = state;

	switch (id) {
	case OUT:
		s->output = value;
		return GM_OK;
	case HEAD:
		return gm_parse_u32(value, "--head", 1, GM_MAX_EXPERT, &s->copy.n_head, err);
	case TAIL:
		s->copy.tail_given = true;
		return gm_parse_tail(value, &s->copy.tail, err);
	case MODEL:
		s->model_name = value;
		if (!gm_is_utf8(value))
			return gm_fail(err, GM_ERR_USAGE, "text that is not UTF-8: --model: write UTF-8");
		return GM_OK;
	default:
		s->quiet = true;
		return GM_OK;
	}
}

/* --- are they traces of one model? --- */

static bool same_bytes(const uint64_t *a, const uint64_t *b, uint32_t n_layer)
{
	return (!a && !b) || (a && b && memcmp(a, b, n_layer * sizeof(*a)) == 0);
}

static bool same_bias(const struct gm_model *a, const struct gm_model *b)
{
	return (!a->bias && !b->bias) ||
	       (a->bias && b->bias && memcmp(a->bias, b->bias, (size_t)a->n_layer * a->n_expert * sizeof(*a->bias)) == 0);
}

/* The key in which two models differ, NULL: none. */
static const char *model_difference(const struct gm_model *a, const struct gm_model *b, bool with_name)
{
	if (with_name && strcmp(a->name, b->name) != 0)
		return "model";
	if (a->n_layer != b->n_layer)
		return "n_layer";
	if (a->n_expert != b->n_expert)
		return "n_expert";
	if (a->top_k != b->top_k)
		return "n_expert_used";
	if (a->gating != b->gating)
		return "gating";
	if (a->n_group != b->n_group)
		return "n_group";
	if (a->topk_group != b->topk_group)
		return "topk_group";
	if (!same_bias(a, b))
		return "bias";
	if (!same_bytes(a->expert_bytes, b->expert_bytes, a->n_layer))
		return "expert_bytes";
	if (!same_bytes(a->dense_bytes, b->dense_bytes, a->n_layer))
		return "dense_bytes";
	return NULL;
}

static int check_same(const struct state *s, const struct gm_trace *first, const struct gm_trace *other,
		      struct gm_error *err)
{
	const char *key = model_difference(gm_trace_model(first), gm_trace_model(other), !s->model_name);
	const char *advice = "only traces of one model can be joined";

	if (gm_trace_kind(first) != gm_trace_kind(other))
		key = "kind";
	if (key && strcmp(key, "model") == 0)
		advice = "if it is one model, name it with --model";
	if (!key && !s->copy.n_head && gm_trace_n_head(first) != gm_trace_n_head(other)) {
		key = "head";
		advice = "give the smaller one with --head";
	}
	if (!key && !s->copy.tail_given && gm_trace_tail(first) != gm_trace_tail(other)) {
		key = "tail";
		advice = "give the smaller one with --tail";
	}
	if (!key)
		return GM_OK;
	return gm_fail(err, GM_ERR_USAGE, "\"%s\" differs: %.80s and %.80s: %s", key, gm_trace_path(first),
		       gm_trace_path(other), advice);
}

static bool is_pipe(const char *path)
{
	return strcmp(path, "-") == 0;
}

/* Looks at every input that is a file before the first token is copied: what is wrong shows at once. */
static int check_all(struct state *s, const struct gm_trace *first, int n, char **path, struct gm_error *err)
{
	int n_pipe = is_pipe(path[0]);

	s->copy.logprobs = gm_header_has(first, "logprobs");
	s->copy.predictions = gm_header_has(first, "predictions");
	for (int i = 1; i < n; i++) {
		if (is_pipe(path[i])) {
			if (n_pipe++)
				return gm_fail(err, GM_ERR_USAGE, "standard input stands twice: -: it can be read once");
			continue;
		}
		struct gm_trace *trace = gm_trace_open(path[i], err);

		if (!trace)
			return err->code;
		int status = check_same(s, first, trace, err);

		s->copy.logprobs = s->copy.logprobs || gm_header_has(trace, "logprobs");
		s->copy.predictions = s->copy.predictions || gm_header_has(trace, "predictions");
		gm_trace_close(trace);
		GM_TRY(status);
	}
	return GM_OK;
}

/* --- joining --- */

static int copy_trace(struct gm_copy *copy, struct gm_trace *trace, bool quiet, struct gm_error *err)
{
	struct gm_block block = {0};
	struct gm_progress progress;
	int got = 0, status = gm_copy_begin_trace(copy, trace, err);

	gm_progress_start(&progress, gm_trace_path(trace), "tokens", gm_trace_n_token(trace), quiet);
	for (uint64_t b = 0; status == GM_OK; b++) {
		got = gm_trace_read(trace, b, GM_WANT_TAIL | GM_WANT_PREDICTION, &block, err);
		if (got <= 0)
			break;
		for (uint32_t i = 0; i < block.n_token && status == GM_OK; i++)
			status = gm_copy_token(copy, trace, &block, i, err);
		gm_progress_update(&progress, block.first_token + block.n_token);
	}
	gm_progress_end(&progress);
	gm_block_free(&block);
	return got < 0 ? got : status;
}

static struct gm_copy *open_copy(struct state *s, const struct gm_trace *first, struct gm_error *err)
{
	struct gm_model model = {0};
	struct gm_json *metadata = gm_header_metadata(first, err);
	struct gm_copy *copy = NULL;

	if (metadata && gm_model_copy(&model, gm_trace_model(first), err) == GM_OK) {
		if (s->model_name) {
			free(model.name);
			model.name = gm_strdup(s->model_name, err);
		}
		s->copy.source = gm_header_source(first);
		s->copy.metadata = metadata;
		if (model.name)
			copy = gm_copy_new(s->output, first, &model, &s->copy, err);
	}
	gm_model_free(&model);
	gm_json_free(metadata);
	return copy;
}

static int join(struct state *s, struct gm_trace *first, int n, char **path, struct gm_error *err)
{
	struct gm_copy *copy = NULL;
	int status;

	GM_TRY_OUT(check_all(s, first, n, path, err));
	copy = open_copy(s, first, err);
	GM_TRY_OUT(copy ? GM_OK : err->code);
	GM_TRY_OUT(copy_trace(copy, first, s->quiet, err));
	for (int i = 1; i < n; i++) {
		struct gm_trace *trace = gm_trace_open(path[i], err);

		GM_TRY_OUT(trace ? GM_OK : err->code);
		status = check_same(s, first, trace, err);
		if (status == GM_OK)
			status = copy_trace(copy, trace, s->quiet, err);
		gm_trace_close(trace);
		GM_TRY_OUT(status);
	}
	status = gm_copy_close(copy, err);
	copy = NULL;
out:
	gm_copy_discard(copy);
	return status;
}

static int check_files(const struct state *s, int n_operand, char **operand, struct gm_error *err)
{
	const struct gm_file_use out = {s->output, "--out", true};

	for (int i = 0; i < n_operand; i++) {
		const struct gm_file_use use[] = {{operand[i], "TRACE", false}, out};

		GM_TRY(gm_files_check(use, 2, err));
	}
	return GM_OK;
}

static int run(int n_operand, char **operand, void *state, struct gm_error *err)
{
	struct state *s = state;
	struct gm_trace *first;
	int status;

	if (!s->output)
		return gm_fail(err, GM_ERR_USAGE, "no output: --out FILE: the trace to write");
	GM_TRY(check_files(s, n_operand, operand, err));
	first = gm_trace_open(operand[0], err);
	if (!first)
		return err->code;
	status = join(s, first, n_operand, operand, err);
	gm_trace_close(first);
	return status;
}

static const struct gm_option *const tables[] = {options};

const struct gm_command gm_traces_cat = {
	.name = "cat",
	.usage = "--out ALL.gmt [options] TRACE.gmt ...",
	.help = "Join traces of one model: their sequences follow each other.\n"
		"Source and metadata are those of the first. One TRACE may be - for standard input.",
	.example = "traces cat -o all.gmt monday.gmt tuesday.gmt",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = -1,
	.run = run,
	.option = take_option,
	.state_bytes = sizeof(struct state),
};
