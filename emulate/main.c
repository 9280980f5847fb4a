/* `emulate`: exact outputs of a Mixture-of-Experts model under expert-cache policies. */
#include "base/number.h"
#include "emulate/output.h"
#include "recorder/model_options.h"
#include "sim/range.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOLD 20 /* impossible points that are named on stderr; the CSV has all */

enum {
	MODEL = 1,
	FILE_,
	PROMPTS,
	LABEL,
	SPECIAL,
	MAX_TOKENS,
	GRID,
	SUBSTITUTE_WEIGHT,
	DROP_WEIGHT,
	CSV,
	PER_LAYER,
	PER_SEQUENCE,
	PER_LABEL,
	PER_TOKEN,
	RECORD,
	GENERATE,
	N_GENERATE,
	CONTINUATIONS,
	VERBOSE,
	QUIET
};

static const struct gm_option text_options[] = {
	{MODEL, 'm', "model", "FILE", "the model, a GGUF (of a split one the first file)"},
	{FILE_, 'f', "file", "FILE", "a text, - for standard input; may be repeated"},
	{PROMPTS, 0, "prompts", "FILE",
	 "texts, a JSON object a line: {\"text\": ..., \"label\": ..., \"id\": ...,\n\"answer\": ...}"},
	{LABEL, 0, "label", "TEXT", "label (a topic, say) of the --file texts that follow"},
	{SPECIAL, 0, "special", NULL, "names of control tokens in the texts stand for these tokens"},
	{MAX_TOKENS, 0, "max-tokens", "N", "end the texts after so many"},
	{0, 0, NULL, NULL, NULL},
};

static const struct gm_option emulate_options[] = {
	{GRID, 0, "grid", "FILE", "read lists from JSON: {\"cache\": [\"10%\", \"25%\"], \"evict\": [\"lru\"]}"},
	{SUBSTITUTE_WEIGHT, 0, "substitute-weight", "own|missed",
	 "what a substitute is multiplied with: its own router weight, or that of\n"
	 "the expert it stands in for; a list tries both [own]"},
	{DROP_WEIGHT, 0, "drop-weight", "renormalise|keep",
	 "whether the others' weights make up for a dropped one; a list tries\nboth [renormalise]"},
	{CSV, 0, "csv", "FILE", "write a row for each policy (-: standard output)"},
	{PER_LAYER, 0, "per-layer", "FILE", "write the counters of each layer as CSV"},
	{PER_SEQUENCE, 0, "per-sequence", "FILE", "write counters and perplexity of each sequence as CSV"},
	{PER_LABEL, 0, "per-label", "FILE", "write counters and perplexity of each label as CSV"},
	{PER_TOKEN, 0, "per-token", "FILE", "write a CSV row for every token: NLL, counters, mass by layer"},
	{RECORD, 0, "record", "TRACE", "of one policy: record the router's logits as they were under it"},
	{GENERATE, 0, "generate", NULL, "go on greedily after each text, and compare with the baseline"},
	{N_GENERATE, 'n', "n-predict", "N", "generate: tokens after each text [128]"},
	{CONTINUATIONS, 0, "continuations", "FILE", "generate: write what followed each text as CSV"},
	{VERBOSE, 'v', "verbose", NULL, "llama.cpp's own messages"},
	{QUIET, 'q', "quiet", NULL, "no progress, no notes"},
	{0, 0, NULL, NULL, NULL},
};
static const struct gm_option *const tables[] = {text_options, emulate_options, gm_policy_options, gm_model_options};

struct state {
	const char *model, *label;
	struct gm_texts texts;
	struct gm_hook_options hook;
	bool has_defaults; /* hook was filled with them */
	bool verbose, generate;
	struct gm_grid *grid;
	struct gm_corpus_options corpus;
	struct gm_emulate_options emulate;
	enum gm_substitute_weight substitute[2];
	enum gm_drop_weight drop[2];
	uint32_t n_generate;
	const char *path[GM_N_EMULATE_FILE];
};

static void print_note(void *user, const char *text)
{
	(void)user;
	gm_note("%s", text);
}

/* --- options --- */

static int set_defaults(struct state *s, struct gm_error *err)
{
	if (s->has_defaults)
		return GM_OK;
	s->has_defaults = true;
	s->hook = gm_hook_default_options();
	s->n_generate = 128;
	s->emulate.weights.n_substitute = s->emulate.weights.n_drop = 1;
	if (!(s->grid = gm_grid_new(true, err)))
		return err->code;
	return gm_grid_option(s->grid, GM_OPTION_HW, "instant", err);
}

/* "own,missed": each word at most once; the indexes of the words in *out. */
static int take_words(const char *list, const char *option, const char *const words[2], int out[2], size_t *n,
		      struct gm_error *err)
{
	struct gm_items items = {0};
	int status = gm_list_split(list, option, &items, err);

	*n = 0;
	for (size_t i = 0; i < items.n && status == GM_OK; i++) {
		int word = strcmp(items.text[i], words[1]) == 0;

		if ((!word && strcmp(items.text[i], words[0]) != 0) || *n == 2 || (*n == 1 && out[0] == word))
			status = gm_fail(err, GM_ERR_USAGE, "unknown value: %s %.40s: %s, %s or %s,%s", option, list,
					 words[0], words[1], words[0], words[1]);
		else
			out[(*n)++] = word;
	}
	gm_items_free(&items);
	return status;
}

static int take_weights(struct state *s, int id, const char *value, struct gm_error *err)
{
	static const char *const substitutes[] = {"own", "missed"}, *const drops[] = {"renormalise", "keep"};
	int word[2] = {0};

	if (id == SUBSTITUTE_WEIGHT) {
		GM_TRY(take_words(value, "--substitute-weight", substitutes, word, &s->emulate.weights.n_substitute, err));
		for (int i = 0; i < 2; i++)
			s->substitute[i] = word[i] ? GM_SUBSTITUTE_MISSED : GM_SUBSTITUTE_OWN;
		return GM_OK;
	}
	GM_TRY(take_words(value, "--drop-weight", drops, word, &s->emulate.weights.n_drop, err));
	for (int i = 0; i < 2; i++)
		s->drop[i] = word[i] ? GM_DROP_KEEP : GM_DROP_RENORMALISE;
	return GM_OK;
}

static int take_text_option(struct state *s, int id, const char *value, struct gm_error *err)
{
	switch (id) {
	case MODEL:
		s->model = value;
		return GM_OK;
	case FILE_:
		return gm_texts_add_file(&s->texts, value, s->label, err);
	case PROMPTS:
		return gm_texts_add_prompts(&s->texts, value, err);
	case LABEL:
		s->label = value;
		return GM_OK;
	case SPECIAL:
		s->corpus.special = true;
		return GM_OK;
	default: /* MAX_TOKENS */
		return gm_parse_u64(value, "--max-tokens", 1, UINT64_MAX, &s->corpus.max_tokens, err);
	}
}

static int take_option(int id, const char *value, void *state, struct gm_error *err)
{
	static const struct {
		int id;
		enum gm_emulate_file file;
	} files[] = {
		{CSV, GM_EMULATE_POINTS},       {PER_LAYER, GM_EMULATE_LAYERS}, {PER_SEQUENCE, GM_EMULATE_SEQUENCES},
		{PER_LABEL, GM_EMULATE_LABELS}, {PER_TOKEN, GM_EMULATE_TOKENS}, {CONTINUATIONS, GM_EMULATE_CONTINUATIONS},
	};
	struct state *s = state;

	GM_TRY(set_defaults(s, err));
	if (gm_grid_takes(id))
		return gm_grid_option(s->grid, id, value, err);
	if (gm_model_takes(id))
		return gm_model_option(&s->hook, id, value, err);
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		if (files[i].id == id) {
			s->path[files[i].file] = value;
			return GM_OK;
		}
	switch (id) {
	case GRID:
		return gm_grid_file(s->grid, value, err);
	case SUBSTITUTE_WEIGHT:
	case DROP_WEIGHT:
		return take_weights(s, id, value, err);
	case RECORD:
		s->emulate.record = value;
		return GM_OK;
	case GENERATE:
		s->generate = true;
		return GM_OK;
	case N_GENERATE:
		return gm_parse_u32(value, "--n-predict", 1, INT32_MAX / 2, &s->n_generate, err);
	case VERBOSE:
		s->verbose = true;
		return GM_OK;
	case QUIET:
		s->emulate.quiet = true;
		return GM_OK;
	default:
		return take_text_option(s, id, value, err);
	}
}

/* --- running --- */

static bool writes_stdout(const struct state *s)
{
	for (int i = 0; i < GM_N_EMULATE_FILE; i++)
		if (s->path[i] && strcmp(s->path[i], "-") == 0)
			return true;
	return s->emulate.record && strcmp(s->emulate.record, "-") == 0;
}

static int check_usage(const struct state *s, struct gm_error *err)
{
	if (!s->model)
		return gm_fail(err, GM_ERR_USAGE, "no model: --model: give FILE.gguf");
	if (s->texts.n == 0)
		return gm_fail(err, GM_ERR_USAGE, "no text: --file FILE or --prompts FILE.jsonl");
	if (s->path[GM_EMULATE_CONTINUATIONS] && !s->generate)
		return gm_fail(err, GM_ERR_USAGE, "nothing follows the texts: --continuations without --generate");
	return GM_OK;
}

static int check_files(const struct state *s, struct gm_error *err)
{
	static const char *const option[GM_N_EMULATE_FILE] = {"--csv",       "--per-layer", "--per-sequence",
							      "--per-label", "--per-token", "--continuations"};
	struct gm_file_use *use, *larger;
	size_t n;

	GM_TRY(gm_grid_inputs(s->grid, &use, &n, err));
	larger = gm_realloc(use, n + s->texts.n_path + GM_N_EMULATE_FILE + 2, sizeof(*use), err);
	if (!larger) {
		free(use);
		return GM_ERR_MEMORY;
	}
	use = larger;
	for (size_t i = 0; i < s->texts.n_path; i++)
		use[n++] = (struct gm_file_use){.path = s->texts.path[i], .what = "a text"};
	use[n++] = (struct gm_file_use){.path = s->model, .what = "--model"};
	for (int i = 0; i < GM_N_EMULATE_FILE; i++)
		use[n++] = (struct gm_file_use){.path = s->path[i], .what = option[i], .is_output = true};
	use[n++] = (struct gm_file_use){.path = s->emulate.record, .what = "--record", .is_output = true};
	int status = gm_streams_check(use, n, err);
	if (status == GM_OK)
		status = gm_files_check(use, n, err);
	free(use);
	return status;
}

static void tell_failures(const struct gm_emulation *e)
{
	size_t told = 0;
	char point[256];

	for (size_t i = e->n_baseline; i < e->n_point && told < MAX_TOLD; i++) {
		if (!e->point[i].error.code)
			continue;
		gm_note("grid point %zu left out (%s): %s", i - e->n_baseline + 1,
			gm_settings_describe(e->point[i].settings, point, sizeof(point)), e->point[i].error.text);
		told++;
	}
	if (e->n_failed > told)
		gm_note("and %zu more grid points: see the column error", e->n_failed - told);
}

static void tell_effort(const struct gm_emulation *e)
{
	char ties[96] = "";

	if (e->n_tie)
		snprintf(ties, sizeof(ties), "; %" PRIu64 " rows with a near-tie that the model broke otherwise", e->n_tie);
	gm_note("%zu policies in %" PRIu64 " runs of the texts, %" PRIu64 " passes, %" PRIu64
		" tokens, %.1f s (%.0f tokens/s)%s",
		e->n_point - e->n_baseline - e->n_failed, e->n_run, e->n_pass, e->n_token, e->seconds,
		e->seconds > 0 ? (double)e->n_token / e->seconds : 0.0, ties);
}

/* The column trace: the text files' names, on the heap. */
static char *join_sources(const struct gm_texts *texts, struct gm_error *err)
{
	size_t n = 1, used = 0;
	char *source;

	for (size_t i = 0; i < texts->n_path; i++)
		n += strlen(texts->path[i]) + 1;
	if (!(source = gm_alloc(n, 1, err)))
		return NULL;
	for (size_t i = 0; i < texts->n_path; i++)
		used += (size_t)snprintf(source + used, n - used, "%s%s", i ? "," : "", texts->path[i]);
	return source;
}

static int emulate(struct state *s, struct gm_hook *hook, struct gm_emulate_output *output, struct gm_error *err)
{
	const struct gm_settings *settings;
	struct gm_preloads *preloads = gm_preloads_new(err);
	struct gm_corpus corpus = {0};
	struct gm_emulation emulation = {0};
	char *source = join_sources(&s->texts, err);
	size_t n_settings;
	int status = GM_ERR_MEMORY;

	if (!preloads || !source)
		goto out;
	GM_TRY_OUT(gm_grid_expand(s->grid, &settings, &n_settings, err));
	GM_TRY_OUT(gm_corpus_make(&corpus, hook, &s->texts, &s->corpus, err));
	GM_TRY_OUT(gm_emulation_run(&emulation, hook, &corpus, settings, n_settings, preloads, &s->emulate, err));
	output->source = source;
	GM_TRY_OUT(gm_emulate_output_write(output, &emulation, err));
	GM_TRY_OUT(gm_emulate_output_commit(output, err));
	tell_failures(&emulation);
	if (!s->emulate.quiet)
		tell_effort(&emulation);
	if (!writes_stdout(s))
		gm_emulate_table(stdout, &emulation);
	status = emulation.n_failed ? GM_PARTLY_DONE : GM_OK;
out:
	gm_emulation_free(&emulation);
	gm_corpus_free(&corpus);
	gm_preloads_free(preloads);
	free(source);
	return status;
}

static int run(int n_operand, char **operand, void *state, struct gm_error *err)
{
	struct state *s = state;
	struct gm_emulate_output output = {0};
	struct gm_hook *hook;
	int status;

	GM_TRY(set_defaults(s, err));
	for (int i = 0; i < n_operand; i++)
		GM_TRY(gm_texts_add_file(&s->texts, operand[i], s->label, err));
	GM_TRY(check_usage(s, err));
	GM_TRY(check_files(s, err));
	s->emulate.weights.substitute = s->substitute;
	s->emulate.weights.drop = s->drop;
	s->emulate.per_token = s->path[GM_EMULATE_TOKENS] != NULL;
	s->emulate.n_generate = s->corpus.n_generate = s->generate ? s->n_generate : 0;
	s->corpus.note = s->emulate.quiet ? NULL : print_note;
	gm_model_set_verbose(&s->hook, s->verbose);
	GM_TRY(gm_emulate_output_open(&output, s->path, err));
	hook = gm_hook_open(s->model, &s->hook, err);
	status = hook ? emulate(s, hook, &output, err) : err->code;
	gm_hook_close(hook);
	gm_emulate_output_discard(&output);
	return status;
}

static void release(void *state)
{
	struct state *s = state;

	gm_grid_free(s->grid);
	gm_texts_free(&s->texts);
}

int main(int argc, char **argv)
{
	static const struct gm_command command = {
		.usage = "-m MODEL.gguf [options] [-f] TEXT...",
		.help = "Run texts through a Mixture-of-Experts model whose routing obeys expert-cache policies, and "
			"compare\n"
			"the perplexity with the model's own. Every policy option takes a comma list, and numbers also "
			"ranges\n"
			"from..to/step. Rules: docs/semantics.md; times are not simulated (--hw instant).",
		.example = "emulate -m tinymoe-F16.gguf --prompts prompts.jsonl --policy rule-0.15,quality-first --csv "
			   "out.csv",
		.options = tables,
		.n_table = sizeof(tables) / sizeof(*tables),
		.max_operand = -1,
		.run = run,
		.option = take_option,
		.state_bytes = sizeof(struct state),
		.release = release,
	};
	const struct gm_program program = {
		.name = "emulate",
		.help = "exact model outputs and perplexity under expert-cache policies",
		.commands = &command,
		.n_command = 1,
		.detail = gm_hook_library_version(),
	};

	gm_model_short_names(argc, argv);
	return gm_program_main(&program, argc, argv);
}
