/* traces synth: a trace of synthetic router logits (docs/synthetic-traces.md). */
#include "base/number.h"
#include "base/progress.h"
#include "traces/commands.h"
#include "traces/synth.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	OPT_PRESET = 1,
	OPT_OUTPUT,
	OPT_SEED,
	OPT_TOKENS,
	OPT_SEQUENCES,
	OPT_SEQUENCE_LENGTH,
	OPT_PROMPT_LENGTH,
	OPT_TOPICS,
	OPT_LAYERS,
	OPT_EXPERTS,
	OPT_TOP_K,
	OPT_EXPERT_BYTES,
	OPT_DENSE_BYTES,
	OPT_HEAD,
	OPT_TAIL,
	OPT_QUIET,
	OPT_PARAMETER, /* and the ids after it: gm_synth_parameters[] */
};

#define PARAMETER_INDEX(member, name, min, max, help) PARAMETER_##member,
enum { GM_SYNTH_PARAMETERS(PARAMETER_INDEX) N_PARAMETER };

static const struct gm_option options[] = {
	{OPT_OUTPUT, 'o', "output", "FILE", "the trace to write, - for standard output; required"},
	{OPT_PRESET, 0, "preset", "NAME",
	 "shape and parameters: qwen3-next-80b (48 layers, 512 experts, top 10; the default),\n"
	 "gpt-oss-20b (24, 32, top 4) or small (6, 128, top 8); the other options change it"},
	{OPT_SEED, 0, "seed", "N", "the same seed gives the same trace everywhere; default 1"},
	{OPT_TOKENS, 0, "tokens", "N", "tokens in all; default: the preset's (10,000 for qwen3-next-80b)"},
	{OPT_SEQUENCES, 0, "sequences", "N", "sequences in all, instead of --tokens or of --sequence-length"},
	{OPT_SEQUENCE_LENGTH, 0, "sequence-length", "N", "tokens a sequence; the last one may be shorter"},
	{OPT_PROMPT_LENGTH, 0, "prompt-length", "N",
	 "the first N tokens of every sequence form one forward pass; default 0:\nevery token is a pass of its own"},
	{OPT_TOPICS, 0, "topics", "N", "how many topics there are; a sequence's label names its first"},
	{OPT_HEAD, 0, "head", "M", "ranked experts kept a row; default 32 (or all, or top k if more)"},
	{OPT_TAIL, 0, "tail", "f32|f16|none",
	 "precision of the other logits; default f16: every substitute can be found. none makes files\n"
	 "a tenth the size (qwen3-next-80b: 4 kB a token, not 41), for policies that never substitute,\n"
	 "or with --head 128 (13 kB) and `sim run --head-only` for those that do"},
	{OPT_QUIET, 'q', "quiet", NULL, "no progress on stderr"},
	{0}};

static const struct gm_option shape_options[] = {
	{OPT_LAYERS, 0, "layers", "N", "MoE layers, instead of the preset's"},
	{OPT_EXPERTS, 0, "experts", "N", "experts a layer"},
	{OPT_TOP_K, 0, "top-k", "N", "experts used a token"},
	{OPT_EXPERT_BYTES, 0, "expert-bytes", "SIZE", "bytes of one expert (1.82MiB, say)"},
	{OPT_DENSE_BYTES, 0, "dense-bytes", "SIZE", "bytes of a layer's other weights"},
	{0}};

#define PARAMETER_OPTION(member, name, min, max, help) {OPT_PARAMETER + PARAMETER_##member, 0, name, "X", help},
static const struct gm_option parameter_options[] = {GM_SYNTH_PARAMETERS(PARAMETER_OPTION){0}};

static const struct gm_option *const tables[] = {options, shape_options, parameter_options};

/* What the command line says; 0 and false: the preset's. */
struct synth_state {
	const struct gm_synth_preset *preset;
	const char *output;
	uint64_t seed, tokens, sequences, sequence_length, prompt_length, topics;
	uint64_t layers, experts, top_k;
	uint64_t expert_bytes, dense_bytes;
	bool seed_given, expert_bytes_given, dense_bytes_given, quiet;
	uint64_t n_head;
	enum gm_tail tail;
	bool tail_given;
	double parameter[N_PARAMETER];
	bool parameter_given[N_PARAMETER];
};

static int take_parameter(struct synth_state *s, int i, const char *value, struct gm_error *err)
{
	const struct gm_synth_parameter *p = &gm_synth_parameters[i];
	char what[48], low[GM_NUMBER_TEXT], high[GM_NUMBER_TEXT];
	snprintf(what, sizeof(what), "--%s", p->name);
	GM_TRY(gm_parse_double(value, what, &s->parameter[i], err));
	if (!(s->parameter[i] >= p->min && s->parameter[i] <= p->max))
		return gm_fail(err, GM_ERR_USAGE, "out of range: %s \"%.40s\": give one from %s to %s", what, value,
			       gm_format_double(p->min, low), gm_format_double(p->max, high));
	s->parameter_given[i] = true;
	return 0;
}

static int synth_option(int id, const char *value, void *state, struct gm_error *err)
{
	struct synth_state *s = state;
	if (id >= OPT_PARAMETER)
		return take_parameter(s, id - OPT_PARAMETER, value, err);
	switch (id) {
	case OPT_OUTPUT:
		s->output = value;
		return 0;
	case OPT_PRESET:
		s->preset = gm_synth_find_preset(value, err);
		return s->preset ? 0 : GM_ERR_USAGE;
	case OPT_SEED:
		s->seed_given = true;
		return gm_parse_u64(value, "--seed", 0, UINT64_MAX, &s->seed, err);
	case OPT_TOKENS:
		return gm_parse_u64(value, "--tokens", 1, GM_SYNTH_MAX_TOKEN, &s->tokens, err);
	case OPT_SEQUENCES:
		return gm_parse_u64(value, "--sequences", 1, UINT32_MAX - 1, &s->sequences, err);
	case OPT_SEQUENCE_LENGTH:
		return gm_parse_u64(value, "--sequence-length", 1, UINT32_MAX, &s->sequence_length, err);
	case OPT_PROMPT_LENGTH:
		return gm_parse_u64(value, "--prompt-length", 0, UINT32_MAX, &s->prompt_length, err);
	case OPT_TOPICS:
		return gm_parse_u64(value, "--topics", 1, GM_SYNTH_MAX_TOPIC, &s->topics, err);
	case OPT_LAYERS:
		return gm_parse_u64(value, "--layers", 1, GM_MAX_LAYER, &s->layers, err);
	case OPT_EXPERTS:
		return gm_parse_u64(value, "--experts", 1, GM_MAX_EXPERT, &s->experts, err);
	case OPT_TOP_K:
		return gm_parse_u64(value, "--top-k", 1, GM_MAX_EXPERT, &s->top_k, err);
	case OPT_EXPERT_BYTES:
		s->expert_bytes_given = true;
		return gm_parse_part_bytes(value, "--expert-bytes", &s->expert_bytes, err);
	case OPT_DENSE_BYTES:
		s->dense_bytes_given = true;
		return gm_parse_part_bytes(value, "--dense-bytes", &s->dense_bytes, err);
	case OPT_HEAD:
		return gm_parse_u64(value, "--head", 1, GM_MAX_EXPERT, &s->n_head, err);
	case OPT_TAIL:
		s->tail_given = true;
		return gm_parse_tail(value, &s->tail, err);
	case OPT_QUIET:
		s->quiet = true;
		return 0;
	default:
		return gm_fail(err, GM_ERR_USAGE, "option %d is not known here", id);
	}
}

/* The third of tokens, sequences and sequence length follows from the two others. */
static int set_length(const struct synth_state *s, struct gm_synth_options *o, struct gm_error *err)
{
	uint64_t tokens = s->tokens ? s->tokens : o->n_token;
	uint64_t length = s->sequence_length ? s->sequence_length : o->sequence_length;
	if (s->sequences && !s->tokens) {
		if (length > GM_SYNTH_MAX_TOKEN / s->sequences)
			return gm_fail(err, GM_ERR_USAGE,
				       "out of range: --sequences %" PRIu64 ": %" PRIu64
				       " tokens each, at most 2^40 in all",
				       s->sequences, length);
		tokens = s->sequences * length;
	} else if (s->sequences && !s->sequence_length) {
		length = (tokens + s->sequences - 1) / s->sequences;
	}
	if (s->sequences && (tokens + length - 1) / length != s->sequences)
		return gm_fail(err, GM_ERR_USAGE,
			       "impossible: --sequences %" PRIu64 ": %" PRIu64 " tokens in sequences of %" PRIu64
			       " are %" PRIu64 "; give two of --tokens, --sequences and --sequence-length",
			       s->sequences, tokens, length, (tokens + length - 1) / length);
	o->n_token = tokens;
	o->sequence_length = (uint32_t)(length > UINT32_MAX ? UINT32_MAX : length);
	return 0;
}

static int set_options(const struct synth_state *s, struct gm_synth_options *o, struct gm_error *err)
{
	*o = s->preset->options;
	o->seed = s->seed_given ? s->seed : 1;
	GM_TRY(set_length(s, o, err));
	if (s->topics)
		o->n_topic = (uint32_t)s->topics;
	for (int i = 0; i < N_PARAMETER; i++)
		if (s->parameter_given[i])
			gm_synth_parameter_set(&o->model, i, s->parameter[i]);
	return 0;
}

/* The preset's facts with the shape that the command line asks for. */
static int set_facts(const struct synth_state *s, struct gm_model *facts, struct gm_error *err)
{
	struct gm_synth_preset shape = *s->preset;
	bool other = false;
	const struct {
		uint64_t given;
		uint32_t *to;
	} change[] = {{s->layers, &shape.n_layer}, {s->experts, &shape.n_expert}, {s->top_k, &shape.top_k}};
	for (size_t i = 0; i < sizeof(change) / sizeof(change[0]); i++) {
		other = other || (change[i].given && change[i].given != *change[i].to);
		if (change[i].given)
			*change[i].to = (uint32_t)change[i].given;
	}
	if (s->expert_bytes_given)
		shape.expert_bytes = s->expert_bytes;
	if (s->dense_bytes_given)
		shape.dense_bytes = s->dense_bytes;
	if (other)
		shape.model = "synthetic";
	if (shape.top_k > shape.n_expert)
		return gm_fail(err, GM_ERR_USAGE, "out of range: --top-k %u: at most the number of experts, %u",
			       shape.top_k, shape.n_expert);
	if (s->n_head && (s->n_head < shape.top_k || s->n_head > shape.n_expert))
		return gm_fail(err, GM_ERR_USAGE, "out of range: --head %" PRIu64 ": from %u (top k) to %u (all experts)",
			       s->n_head, shape.top_k, shape.n_expert);
	return gm_synth_preset_facts(&shape, facts, err);
}

static struct gm_writer *open_output(const struct synth_state *s, const struct gm_model *facts,
				     const struct gm_synth_options *o, struct gm_error *err)
{
	struct gm_writer *writer = NULL;
	struct gm_json *metadata = gm_json_new_object(), *synth = gm_json_new_object();
	bool ok = gm_json_add_string(synth, "preset", s->preset->name) && gm_json_add_uint(synth, "tokens", o->n_token) &&
		  gm_json_add_uint(synth, "prompt-length", s->prompt_length);
	if (ok && gm_synth_describe(o, synth, err) == 0) {
		ok = gm_json_add(metadata, "synth", synth);
		synth = NULL;
	} else {
		ok = false;
	}
	const struct gm_writer_options w = {.kind = GM_KIND_LOGITS,
					    .n_head = (uint32_t)s->n_head,
					    .tail = s->tail_given ? s->tail : GM_TAIL_F16,
					    .source = "synthetic: drawn by traces synth, no model",
					    .tool = GM_TRACES_TOOL,
					    .metadata = metadata};
	if (ok)
		writer = gm_writer_open(s->output, facts, &w, err);
	else
		gm_fail(err, GM_ERR_MEMORY, "out of memory");
	gm_json_free(synth);
	gm_json_free(metadata);
	return writer;
}

static int begin_sequence(struct gm_writer *writer, const struct gm_synth_chunk *chunk, struct gm_error *err)
{
	char id[24], label[24];
	snprintf(id, sizeof(id), "synth-%u", chunk->sequence);
	snprintf(label, sizeof(label), "topic-%u", chunk->topic);
	return gm_writer_begin_sequence(writer, id, label, err);
}

/* Declares a chunk's tokens: those of a prompt as parts of one pass, the others as a pass each. */
static int add_tokens(struct gm_writer *writer, const struct gm_synth_chunk *chunk, uint64_t prompt, struct gm_error *err)
{
	uint32_t in_prompt = chunk->position >= prompt ? 0 : (uint32_t)(prompt - chunk->position);
	in_prompt = in_prompt < chunk->n_token ? in_prompt : chunk->n_token;
	uint64_t first;
	if (in_prompt)
		GM_TRY(gm_writer_add_tokens(writer, in_prompt, chunk->token, chunk->position, chunk->position == 0, NULL,
					    &first, err));
	for (uint32_t i = in_prompt; i < chunk->n_token; i++)
		GM_TRY(gm_writer_add_tokens(writer, 1, chunk->token + i, chunk->position + i, true, NULL, &first, err));
	return 0;
}

static int write_tokens(const struct synth_state *s, const struct gm_model *facts, struct gm_synth *synth,
			struct gm_writer *writer, uint64_t n_token, struct gm_error *err)
{
	int status = 0;
	struct gm_synth_chunk chunk;
	struct gm_progress progress;
	float *logits = gm_alloc((size_t)GM_SYNTH_CHUNK * facts->n_expert, sizeof(float), err);
	if (!logits)
		return GM_ERR_MEMORY;
	gm_progress_start(&progress, "synth", "tokens", n_token, s->quiet);
	while (gm_synth_next(synth, GM_SYNTH_CHUNK, &chunk)) {
		if (chunk.position == 0)
			GM_TRY_OUT(begin_sequence(writer, &chunk, err));
		GM_TRY_OUT(add_tokens(writer, &chunk, s->prompt_length, err));
		for (uint32_t l = 0; l < facts->n_layer; l++) {
			gm_synth_rows(synth, l, logits);
			GM_TRY_OUT(gm_writer_append(writer, l, chunk.first_token, chunk.n_token, logits, facts->n_expert,
						    err));
		}
		gm_progress_update(&progress, chunk.first_token + chunk.n_token);
	}
out:
	gm_progress_end(&progress);
	free(logits);
	return status;
}

static int synth_run(int n_operand, char **operand, void *state, struct gm_error *err)
{
	struct synth_state *s = state;
	struct gm_synth_options o;
	struct gm_model facts = {0};
	struct gm_synth *synth = NULL;
	struct gm_writer *writer = NULL;
	int status = 0;
	(void)n_operand;
	(void)operand;
	if (!s->output)
		return gm_fail(err, GM_ERR_USAGE, "no output: --out FILE: the trace to write");
	if (!s->preset)
		s->preset = &gm_synth_presets[0];
	GM_TRY(set_options(s, &o, err));
	GM_TRY(set_facts(s, &facts, err));
	GM_TRY_OUT(gm_model_check(&facts, err));
	synth = gm_synth_new(facts.n_layer, facts.n_expert, &o, err);
	writer = synth ? open_output(s, &facts, &o, err) : NULL;
	if (!writer) {
		status = err->code;
		goto out;
	}
	GM_TRY_OUT(write_tokens(s, &facts, synth, writer, o.n_token, err));
	status = gm_writer_close(writer, err);
	writer = NULL;
out:
	gm_writer_discard(writer);
	gm_synth_free(synth);
	gm_model_free(&facts);
	return status;
}

const struct gm_command gm_traces_synth = {
	.name = "synth",
	.usage = "[options] -o FILE.gmt",
	.help = "Draws a trace of synthetic router logits. They have skewed popularity, drifting topics, persistence from "
		"token to\n"
		"token and noise; the presets are tuned to the cache behaviour of real models (docs/synthetic-traces.md).",
	.example = "traces synth --preset small --seed 7 --tokens 2000 -o small.gmt",
	.options = tables,
	.n_table = 3,
	.min_operand = 0,
	.max_operand = 0,
	.run = synth_run,
	.option = synth_option,
	.state_bytes = sizeof(struct synth_state),
};
