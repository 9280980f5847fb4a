/* `record-traces`: router logits of a model that llama.cpp runs, into a `.gmt` trace. */
#include "base/file.h"
#include "base/number.h"
#include "base/options.h"
#include "recorder/model_options.h"
#include "recorder/record.h"
#include "traces/commands.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MODEL = 1,
	FILE_,
	PROMPTS,
	OUT,
	LABEL,
	SPECIAL,
	MODE,
	N_GENERATE,
	TEMPERATURE,
	SEED,
	HEAD,
	TAIL,
	LAYERS,
	MAX_TOKENS,
	VERIFY,
	DEVICE_CAPTURE,
	LOG_BLOCKS,
	LIST,
	VERBOSE,
	QUIET
};

struct state {
	const char *model, *label;
	bool list, verbose;
	struct gm_texts texts;
	struct gm_hook_options hook;
	bool has_defaults; /* hook was filled with them */
	struct gm_record_options record;
};

static const struct gm_option record_options[] = {
	{MODEL, 'm', "model", "FILE", "the model, a GGUF (of a split one the first file)"},
	{OUT, 'o', "out", "TRACE", "the trace to write; - for standard output"},
	{FILE_, 'f', "file", "FILE", "a text to record, - for standard input; may be repeated"},
	{PROMPTS, 0, "prompts", "FILE",
	 "texts to record, a JSON object a line:\n{\"text\": ..., \"label\": ..., \"id\": ...}"},
	{LABEL, 0, "label", "TEXT", "label (a topic, say) of the --file texts that follow"},
	{SPECIAL, 0, "special", NULL, "names of control tokens in the texts stand for these tokens"},
	{MODE, 0, "mode", "score|generate", "run the texts as they are (default), or let the model go on after them"},
	{N_GENERATE, 'n', "n-predict", "N", "generate: tokens after each text (default 128)"},
	{TEMPERATURE, 0, "temperature", "T", "generate: draw from softmax(logits / T); 0: the likeliest (default)"},
	{SEED, 0, "seed", "N", "generate: seed of the draws (default 1)"},
	{HEAD, 0, "head", "M", "ranked experts kept in exact float32 a row (default 32, or all if fewer)"},
	{TAIL, 0, "tail", "f32|f16|none", "how the other logits are kept (default f16)"},
	{LAYERS, 0, "layers", "LIST", "MoE layers to record, from 0: 0,4..7 (default all)"},
	{MAX_TOKENS, 0, "max-tokens", "N", "end after so many"},
	{VERIFY, 0, "verify", NULL, "recompute the model's selection and gate weights from the logits\nand compare"},
	{DEVICE_CAPTURE, 0, "device-capture", "auto|on|off",
	 "copy logits that lie in CUDA memory beside the forward pass (default:\nwhere possible), or read them through "
	 "llama.cpp"},
	{LOG_BLOCKS, 0, "log-blocks", "FILE",
	 "a line for every block that is whole in the file, for scripts that watch:\nnumber, first token, tokens, rows, "
	 "offset, bytes, hash"},
	{LIST, 0, "list-tensors", NULL, "show what this model's router offers, and end"},
	{VERBOSE, 'v', "verbose", NULL, "llama.cpp's own messages"},
	{QUIET, 'q', "quiet", NULL, "no progress, no notes"},
	{0, 0, NULL, NULL, NULL},
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
	interrupted = 1;
	signal(signal_number, SIG_DFL); /* a second one ends the program at once */
}

static bool is_interrupted(void *user)
{
	(void)user;
	return interrupted;
}

static void print_note(void *user, const char *text)
{
	(void)user;
	gm_note("%s", text);
}

static int take_mode(struct state *s, const char *value, struct gm_error *err)
{
	s->record.generate = strcmp(value, "generate") == 0;
	if (!s->record.generate && strcmp(value, "score") != 0)
		return gm_fail(err, GM_ERR_USAGE, "unknown mode: --mode %.40s: score or generate", value);
	return 0;
}

static int take_temperature(struct state *s, const char *value, struct gm_error *err)
{
	GM_TRY(gm_parse_double(value, "--temperature", &s->record.temperature, err));
	if (s->record.temperature < 0)
		return gm_fail(err, GM_ERR_USAGE, "out of range: --temperature %.40s: must be 0 or more", value);
	return 0;
}

static void set_defaults(struct state *s)
{
	if (s->has_defaults)
		return;
	s->has_defaults = true;
	s->hook = gm_hook_default_options();
	s->record.tail = GM_TAIL_F16;
	s->record.n_generate = 128;
	s->record.seed = 1;
}

static int take_record_option(int id, const char *value, struct state *s, struct gm_error *err)
{
	switch (id) {
	case SPECIAL:
		s->record.special = true;
		return 0;
	case MODE:
		return take_mode(s, value, err);
	case N_GENERATE:
		return gm_parse_u32(value, "--n-predict", 1, INT32_MAX / 2, &s->record.n_generate, err);
	case TEMPERATURE:
		return take_temperature(s, value, err);
	case SEED:
		return gm_parse_u64(value, "--seed", 0, UINT64_MAX, &s->record.seed, err);
	case HEAD:
		return gm_parse_u32(value, "--head", 1, GM_MAX_EXPERT, &s->record.n_head, err);
	case TAIL:
		return gm_parse_tail(value, &s->record.tail, err);
	case LAYERS:
		s->record.layers = value;
		return 0;
	case MAX_TOKENS:
		return gm_parse_u64(value, "--max-tokens", 1, UINT64_MAX, &s->record.max_tokens, err);
	case DEVICE_CAPTURE:
		return gm_parse_device_capture(value, &s->record.device_capture, err);
	case LOG_BLOCKS:
		s->record.log_blocks = value;
		return 0;
	default: /* VERIFY */
		s->record.verify = true;
		return 0;
	}
}

static int take_option(int id, const char *value, void *state, struct gm_error *err)
{
	struct state *s = state;

	set_defaults(s);
	if (gm_model_takes(id))
		return gm_model_option(&s->hook, id, value, err);
	switch (id) {
	case MODEL:
		s->model = value;
		return 0;
	case OUT:
		s->record.output = value;
		return 0;
	case FILE_:
		return gm_texts_add_file(&s->texts, value, s->label, err);
	case PROMPTS:
		return gm_texts_add_prompts(&s->texts, value, err);
	case LABEL:
		s->label = value;
		return 0;
	case LIST:
		s->list = true;
		return 0;
	case VERBOSE:
		s->verbose = true;
		return 0;
	case QUIET:
		s->record.quiet = true;
		return 0;
	default:
		return take_record_option(id, value, s, err);
	}
}

static void print_model(const struct gm_hook *hook)
{
	const struct gm_model *m = gm_hook_model(hook);
	const struct gm_hook_info *info = gm_hook_info(hook);
	char library[4096], size[GM_NUMBER_TEXT];

	fprintf(stderr, "%s", gm_hook_describe_library(library, sizeof(library), false));
	fprintf(stderr, "%s: %s, %u of %u layers with %u experts, top %u, %s%s%s; an expert %s (%s)\n", m->name,
		info->description, m->n_layer, info->n_model_layer, m->n_expert, m->top_k,
		m->gating == GM_GATING_SIGMOID ? "sigmoid" : "softmax", m->bias ? " with selection bias" : "",
		m->n_group > 1 ? ", in groups" : "", gm_format_bytes(m->expert_bytes[0], size), info->expert_type);
	fprintf(stderr, "context %u, %u token%s a pass, %u thread%s, flash attention %s\n", info->n_ctx, info->n_ubatch,
		gm_plural(info->n_ubatch), info->n_thread, gm_plural(info->n_thread), info->flash ? "on" : "off");
}

static void print_result(const struct state *s, const struct gm_record_result *r)
{
	char size[GM_NUMBER_TEXT];

	fprintf(stderr,
		"%s: %" PRIu64 " token%s in %" PRIu64 " sequence%s and %" PRIu64 " pass%s, %s, %.1f s (%.0f tokens/s)",
		s->record.output, r->n_token, gm_plural(r->n_token), r->n_sequence, gm_plural(r->n_sequence), r->n_pass,
		r->n_pass == 1 ? "" : "es", gm_format_bytes(r->bytes, size), r->seconds,
		r->seconds > 0 ? (double)r->n_token / r->seconds : 0.0);
	if (r->n_scored > 0)
		fprintf(stderr, ", perplexity %.4f", exp(r->nll / (double)r->n_scored));
	fputc('\n', stderr);
}

static int judge(const struct gm_check_result *check, bool quiet)
{
	bool good = check->n_mismatch == 0 && check->n_weight_mismatch == 0;

	if (!quiet || !good)
		fprintf(stderr,
			"verify: %" PRIu64 " rows, %" PRIu64 " picks: %" PRIu64 " mismatches, %" PRIu64 " ties; %" PRIu64
			" weights off, the largest difference %.1e\n",
			check->n_row, check->n_pick, check->n_mismatch, check->n_tie, check->n_weight_mismatch,
			check->weight_error);
	if (!good)
		gm_note("verification failed: %s", check->first);
	return good ? 0 : GM_PARTLY_DONE;
}

static int record(struct state *s, struct gm_hook *hook, struct gm_error *err)
{
	struct gm_record_result result;
	int status;

	if (!s->record.quiet) {
		print_model(hook);
		s->record.note = print_note;
	}
	s->record.stopped = is_interrupted;
	signal(SIGINT, on_interrupt);
	signal(SIGTERM, on_interrupt);
	status = gm_record(hook, &s->texts, &s->record, &result, err);
	if (status < 0) {
		if (result.n_kept > 0)
			gm_note("%s.part keeps the first %" PRIu64 " tokens: traces verify --repair %s %s.part",
				s->record.output, result.n_kept, s->record.output, s->record.output);
		return status;
	}
	if (!s->record.quiet)
		print_result(s, &result);
	if (s->record.verify)
		status = judge(&result.check, s->record.quiet);
	if (result.stopped) {
		gm_note("interrupted: the trace ends after %" PRIu64 " tokens", result.n_token);
		status = GM_PARTLY_DONE;
	}
	return status;
}

static int check_usage(const struct state *s, struct gm_error *err)
{
	if (!s->model)
		return gm_fail(err, GM_ERR_USAGE, "no model: --model: give FILE.gguf");
	if (s->list)
		return 0;
	if (!s->record.output)
		return gm_fail(err, GM_ERR_USAGE, "no output: --out FILE: the trace to write");
	if (s->texts.n == 0)
		return gm_fail(err, GM_ERR_USAGE, "no text: --file FILE or --prompts FILE.jsonl");
	return 0;
}

static int check_files(const struct state *s, struct gm_error *err)
{
	struct gm_file_use *use = gm_alloc(s->texts.n_path + 3, sizeof(*use), err);
	size_t n = 0;

	if (!use)
		return GM_ERR_MEMORY;
	for (; n < s->texts.n_path; n++)
		use[n] = (struct gm_file_use){.path = s->texts.path[n], .what = "a text"};
	use[n++] = (struct gm_file_use){.path = s->model, .what = "--model"};
	use[n++] = (struct gm_file_use){.path = s->record.output, .what = "--out", .is_output = true};
	use[n++] = (struct gm_file_use){.path = s->record.log_blocks, .what = "--log-blocks", .is_output = true};
	int status = gm_files_check(use, n, err);
	free(use);
	return status;
}

static int run(int n_operand, char **operand, void *state, struct gm_error *err)
{
	struct state *s = state;
	struct gm_hook *hook;
	int status = 0;

	set_defaults(s);
	for (int i = 0; i < n_operand; i++)
		GM_TRY(gm_texts_add_file(&s->texts, operand[i], s->label, err));
	GM_TRY(check_usage(s, err));
	if (!s->list)
		GM_TRY(check_files(s, err));
	s->hook.list_tensors = s->list ? stdout : NULL;
	gm_model_set_verbose(&s->hook, s->verbose);
	hook = gm_hook_open(s->model, &s->hook, err);
	if (!hook)
		return err->code;
	if (!s->list)
		status = record(s, hook, err);
	gm_hook_close(hook);
	return status;
}

static void release(void *state)
{
	gm_texts_free(&((struct state *)state)->texts);
}

int main(int argc, char **argv)
{
	static const struct gm_option *const tables[] = {record_options, gm_model_options};
	static const struct gm_command command = {
		.usage = "-m MODEL.gguf -o TRACE.gmt [options] [-f] TEXT...",
		.help = "Run texts through a Mixture-of-Experts model with llama.cpp, and record the router's logits of "
			"every token\n"
			"and layer. The model's outputs are the same with and without recording.",
		.example = "record-traces -m Qwen3-30B-A3B-Q4_K_M.gguf --cpu-moe --prompts prompts.jsonl -o qwen3.gmt "
			   "--verify",
		.options = tables,
		.n_table = 2,
		.max_operand = -1,
		.run = run,
		.option = take_option,
		.state_bytes = sizeof(struct state),
		.release = release,
	};
	const struct gm_program program = {
		.name = "record-traces",
		.help = "record router logits from a running forward pass",
		.commands = &command,
		.n_command = 1,
		.detail = gm_hook_library_version(),
	};

	gm_model_short_names(argc, argv);
	return gm_program_main(&program, argc, argv);
}
