/* `traces import`: a foreign recording becomes a `.gmt` trace. */
#include "base/file.h"
#include "base/number.h"
#include "traces/commands.h"
#include "traces/import_common.h"

#include <stddef.h>
#include <string.h>

enum { FORMAT = 1, OUT, META, TENSORS, HEAD, TAIL, MODEL, GATING, TOP_K, EXPERT_BYTES, DENSE_BYTES, SOURCE, PASS, QUIET };

struct state {
	const struct gm_importer *importer;
	struct gm_import_options options;
};

static const struct gm_option options[] = {
	{FORMAT, 'f', "format", "NAME",
	 "format of the input:\n"
	 "  jsonl        a JSON object a row, in any order; line 1 has the model's facts\n"
	 "  npy          float16/float32 array [tokens, layers, experts] and --meta FILE\n"
	 "  safetensors  a tensor [tokens, experts] a layer (F32, F16, BF16), --meta FILE\n"
	 "  topk-csv     seq,label,pos,layer,rank,expert,weight: no logits\n"
	 "  route-trace  BigMoeOnEdge route_trace v1 CSV: no logits\n"
	 "each may be compressed with zstd"},
	{OUT, 'o', "out", "FILE", "the trace to write; - for standard output"},
	{META, 0, "meta", "FILE", "npy, safetensors: JSON with the facts of the model,\nsequences, token ids"},
	{TENSORS, 0, "tensors", "PATTERN",
	 "safetensors: names of the layers' tensors, * for the\nlayer's number: router_logits.*"},
	{HEAD, 0, "head", "M", "ranked experts kept in exact float32 a row\n(default 32, or all if fewer)"},
	{TAIL, 0, "tail", "f32|f16|none", "how the other logits are kept (default f16)"},
	{MODEL, 0, "model", "NAME", "name of the model, instead of the input's"},
	{GATING, 0, "gating", "softmax|sigmoid", "how gate scores come from logits"},
	{TOP_K, 0, "top-k", "K", "experts used a token"},
	{EXPERT_BYTES, 0, "expert-bytes", "SIZE", "bytes of one expert (24576, 1.8MiB);\na comma list of one a layer"},
	{DENSE_BYTES, 0, "dense-bytes", "SIZE", "bytes of a layer that every token reads;\nlikewise"},
	{SOURCE, 0, "source", "TEXT", "who or what recorded it, for the header"},
	{PASS, 0, "pass", "token|sequence",
	 "tokens of one forward pass, where the input\ndoes not say (default token: each its own)"},
	{QUIET, 'q', "quiet", NULL, "no progress, no notes"},
	{0, 0, NULL, NULL, NULL},
};

static int choose_pass(struct gm_import_options *o, const char *value, struct gm_error *err)
{
	o->sequence_is_pass = strcmp(value, "sequence") == 0;
	if (!o->sequence_is_pass && strcmp(value, "token") != 0)
		return gm_fail(err, GM_ERR_USAGE, "unknown pass: --pass %.40s: token or sequence", value);
	return GM_OK;
}

/* A text for the header. */
static int take_text(const char **to, const char *option, const char *value, struct gm_error *err)
{
	*to = value;
	return gm_is_utf8(value) ? GM_OK : gm_fail(err, GM_ERR_USAGE, "text that is not UTF-8: %s: write UTF-8", option);
}

static int take_option(int id, const char *value, void *state, struct gm_error *err)
{
	struct state *s = state;
	struct gm_import_options *o = &s->options;

	switch (id) {
	case FORMAT:
		s->importer = gm_importer_find(value, err);
		return s->importer ? GM_OK : GM_ERR_USAGE;
	case OUT:
		o->output = value;
		return GM_OK;
	case META:
		o->meta = value;
		return GM_OK;
	case TENSORS:
		o->tensors = value;
		return GM_OK;
	case HEAD:
		return gm_parse_u32(value, "--head", 1, GM_MAX_EXPERT, &o->n_head, err);
	case TAIL:
		o->tail_given = true;
		return gm_parse_tail(value, &o->tail, err);
	case MODEL:
		return take_text(&o->model_name, "--model", value, err);
	case GATING:
		o->gating = value;
		if (strcmp(value, "softmax") != 0 && strcmp(value, "sigmoid") != 0)
			return gm_fail(err, GM_ERR_USAGE, "unknown gating: --gating %.40s: softmax or sigmoid", value);
		return GM_OK;
	case TOP_K:
		return gm_parse_u32(value, "--top-k", 1, GM_MAX_EXPERT, &o->top_k, err);
	case EXPERT_BYTES:
		o->expert_bytes = value;
		return GM_OK;
	case DENSE_BYTES:
		o->dense_bytes = value;
		return GM_OK;
	case SOURCE:
		return take_text(&o->source, "--source", value, err);
	case PASS:
		return choose_pass(o, value, err);
	default:
		o->quiet = true;
		return GM_OK;
	}
}

static int run(int n_operand, char **operand, void *state, struct gm_error *err)
{
	struct state *s = state;
	struct gm_feed *input;
	int status;

	(void)n_operand;
	if (!s->importer)
		return gm_fail(err, GM_ERR_USAGE, "no format: --format NAME: traces import --help lists them");
	if (!s->options.output)
		return gm_fail(err, GM_ERR_USAGE, "no output: --out FILE: the trace to write");
	if (s->options.meta && !s->importer->takes_meta)
		return gm_fail(err, GM_ERR_USAGE, "no use for it: --meta: %s has its facts in its first lines",
			       s->importer->name);
	if (s->options.tensors && strcmp(s->importer->name, "safetensors") != 0)
		return gm_fail(err, GM_ERR_USAGE, "no use for it: --tensors: %s has no named tensors", s->importer->name);
	if (s->importer->kind == GM_KIND_TOPK && (s->options.n_head || s->options.tail_given))
		return gm_fail(err, GM_ERR_USAGE, "%s has no logits, so neither head nor tail: leave --head and --tail out",
			       s->importer->name);
	const struct gm_file_use use[] = {
		{operand[0], "INPUT", false}, {s->options.meta, "--meta", false}, {s->options.output, "--out", true}};

	GM_TRY(gm_files_check(use, 3, err));
	input = gm_feed_open(operand[0], err);
	if (!input)
		return gm_failed(err);
	status = s->importer->run(input, &s->options, err);
	gm_feed_close(input);
	return status;
}

static const struct gm_option *const tables[] = {options};

const struct gm_command gm_traces_import = {
	.name = "import",
	.usage = "--format NAME --out TRACE.gmt [options] INPUT",
	.help = "Convert a recording of another program to a trace. INPUT may be - for standard input.\n"
		"Rows in any order are put aside in a temporary file beside the output.",
	.example = "traces import --format npy --meta logits.json -o model.gmt logits.npy",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = 1,
	.run = run,
	.option = take_option,
	.state_bytes = sizeof(struct state),
};
