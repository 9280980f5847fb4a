/* `engine`: llama.cpp with a real expert cache. */
#include "base/file.h"
#include "base/number.h"
#include "engine/bench.h"
#include "recorder/model_options.h"
#include "recorder/texts.h"
#include "sim/timeline.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
	MODEL = 1,
	PROMPT,
	FILE_,
	SPECIAL,
	N_GENERATE,
	TEMPERATURE,
	SEED,
	VRAM_EXPERTS,
	DEVICE,
	EXPERTS,
	HOST_EXPERTS,
	DISK_LATENCY,
	DISK_GB_S,
	AT_ONCE,
	LINK_LATENCY,
	LINK_GB_S,
	SUBSTITUTE_WEIGHT,
	DROP_WEIGHT,
	RECORD,
	ARRIVALS,
	TRACE_EVENTS,
	TRACE_TOKENS,
	N_TOKEN,
	N_ROUND,
	ONLY,
	CSV,
	PROFILE,
	VERBOSE,
	QUIET
};

/* Of both commands. */
static const struct gm_option common_options[] = {
	{MODEL, 'm', "model", "FILE", "the model, a GGUF (of a split one the first file)"},
	{PROMPT, 'p', "prompt", "TEXT", "what the model goes on after, or decodes"},
	{FILE_, 'f', "file", "FILE", "read that from a file, - for standard input"},
	{SPECIAL, 0, "special", NULL, "names of control tokens in the text stand for these tokens"},
	{VRAM_EXPERTS, 0, "vram-experts", "BYTES",
	 "device memory for experts, scratch slots included, in place of --cache:\nas many slots a layer as fit"},
	{DEVICE, 0, "device", "NAME",
	 "ggml's name of the device that computes experts (CUDA0, CPU)\n[the first GPU if layers are offloaded, else the "
	 "CPU]"},
	{EXPERTS, 0, "experts", "memory|mmap|read",
	 "where experts stay that are in no slot: all in host memory, or in the\nmodel's file, mapped or read past the "
	 "page "
	 "cache [memory]"},
	{HOST_EXPERTS, 0, "host-experts", "BYTES", "with read: host memory that keeps experts [0]"},
	{DISK_LATENCY, 0, "disk-latency-us", "US", "with mmap, read: a read takes so long, and its bytes besides [0]"},
	{DISK_GB_S, 0, "disk-gb-s", "GB/S", "bandwidth of the slower disk [as fast as it is]"},
	{AT_ONCE, 0, "at-once", NULL,
	 "no thread for copies: each is made at once, and one in the background has\nlanded by its layer's next event, as "
	 "`sim --hw instant` counts"},
	{LINK_LATENCY, 0, "link-latency-us", "US", "a copy takes so long, and its bytes besides: plays a slower link [0]"},
	{LINK_GB_S, 0, "link-gb-s", "GB/S", "bandwidth of the slower link [as fast as it is]"},
	{SUBSTITUTE_WEIGHT, 0, "substitute-weight", "own|missed",
	 "what a substitute is multiplied with: its own router weight, or that of\nthe expert it stands in for [own]"},
	{DROP_WEIGHT, 0, "drop-weight", "renormalise|keep",
	 "whether the others' weights make up for a dropped one [renormalise]"},
	{VERBOSE, 'v', "verbose", NULL, "llama.cpp's own messages"},
	{QUIET, 'q', "quiet", NULL, "run: the text alone; bench: no progress"},
	{0, 0, NULL, NULL, NULL},
};

static const struct gm_option run_options[] = {
	{N_GENERATE, 'n', "n-predict", "N", "tokens after the prompt [128]"},
	{TEMPERATURE, 0, "temperature", "T", "draw from softmax(logits / T); 0: the likeliest [0]"},
	{SEED, 0, "seed", "N", "seed of the draws [1]"},
	{RECORD, 0, "record", "TRACE",
	 "record the router's logits as they were under the policy, and what had landed\nby which event, with which sim "
	 "run "
	 "--arrivals counts what the engine counted"},
	{ARRIVALS, 0, "arrivals", "FILE", "where to write what had landed [TRACE.arrivals]"},
	{TRACE_EVENTS, 0, "trace-events", "FILE", "write what really happened as Chrome trace events (for Perfetto)"},
	{TRACE_TOKENS, 0, "trace-tokens", "FROM..TO",
	 "of the passes that begin with these tokens, both ends included; the\nprompt's first is 0 [0..15]"},
	{0, 0, NULL, NULL, NULL},
};

static const struct gm_option bench_options[] = {
	{N_TOKEN, 'n', "tokens", "N", "decode so many tokens of the text [128]"},
	{N_ROUND, 0, "rounds", "N", "rounds, in each of which every policy has its turn [5]"},
	{ONLY, 0, "only", "stock|policies",
	 "llama.cpp without a cache alone, or the policies alone: neither then holds\nmemory that the other lacks [both]"},
	{CSV, 0, "csv", "FILE", "write a row for each policy (-: standard output)"},
	{PROFILE, 0, "profile", "FILE",
	 "write a hardware profile for sim --hw, as measured; --evict nop must be among\nthe policies, and one that "
	 "fetches"},
	{0, 0, NULL, NULL, NULL},
};

static const struct gm_option *const run_tables[] = {common_options, run_options, gm_policy_options, gm_model_options};
static const struct gm_option *const bench_tables[] = {common_options, bench_options, gm_policy_options, gm_model_options};

struct state {
	struct gm_run_options run;
	struct gm_grid *grid;
	struct gm_texts texts;
	uint32_t n_token, n_round;
	enum gm_bench_only only;
	const char *csv, *profile;
	char *beside_trace; /* the name of the arrivals, when none was given */
	bool has_defaults, has_range, verbose, quiet, at_once;
};

/* lists: a policy option takes several values. */
static int set_defaults(struct state *s, bool lists, struct gm_error *err)
{
	if (s->has_defaults)
		return GM_OK;
	s->has_defaults = true;
	s->run.hook = gm_hook_default_options();
	s->run.n_generate = 128;
	s->run.seed = 1;
	s->n_token = 128;
	s->n_round = 5;
	if (!(s->grid = gm_grid_new(lists, err)))
		return err->code;
	return gm_grid_option(s->grid, GM_OPTION_HW, "instant", err); /* times are not simulated */
}

static int take_word(const char *value, const char *option, const char *first, const char *second, bool *is_second,
		     struct gm_error *err)
{
	*is_second = strcmp(value, second) == 0;
	if (!*is_second && strcmp(value, first) != 0)
		return gm_fail(err, GM_ERR_USAGE, "unknown value: %s %.40s: %s or %s", option, value, first, second);
	return GM_OK;
}

static int take_cache_option(struct gm_cache_options *cache, int id, const char *value, struct gm_error *err)
{
	bool second;

	switch (id) {
	case VRAM_EXPERTS:
		return gm_parse_bytes(value, "--vram-experts", &cache->device_bytes, NULL, err);
	case LINK_LATENCY:
		return gm_parse_double(value, "--link-latency-us", &cache->throttle.latency_us, err);
	case LINK_GB_S:
		return gm_parse_double(value, "--link-gb-s", &cache->throttle.gb_s, err);
	case SUBSTITUTE_WEIGHT:
		GM_TRY(take_word(value, "--substitute-weight", "own", "missed", &second, err));
		cache->override.substitute = second ? GM_SUBSTITUTE_MISSED : GM_SUBSTITUTE_OWN;
		return GM_OK;
	default: /* DROP_WEIGHT */
		GM_TRY(take_word(value, "--drop-weight", "renormalise", "keep", &second, err));
		cache->override.drop = second ? GM_DROP_KEEP : GM_DROP_RENORMALISE;
		return GM_OK;
	}
}

static int take_store_option(struct gm_plugin_options *plugin, int id, const char *value, struct gm_error *err)
{
	static const char *const words[] = {"memory", "mmap", "read"};
	static const enum gm_expert_store_kind kinds[] = {GM_EXPERT_STORE_MEMORY, GM_EXPERT_STORE_MMAP,
							  GM_EXPERT_STORE_READ};

	if (id == HOST_EXPERTS)
		return gm_parse_bytes(value, "--host-experts", &plugin->host_bytes, NULL, err);
	if (id == DISK_LATENCY)
		return gm_parse_double(value, "--disk-latency-us", &plugin->disk.latency_us, err);
	if (id == DISK_GB_S)
		return gm_parse_double(value, "--disk-gb-s", &plugin->disk.gb_s, err);
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strcmp(value, words[i]) == 0) {
			plugin->experts = kinds[i];
			return GM_OK;
		}
	return gm_fail(err, GM_ERR_USAGE, "unknown value: --experts %.40s: memory, mmap or read", value);
}

static int take_common_option(struct state *s, int id, const char *value, struct gm_error *err)
{
	switch (id) {
	case MODEL:
		s->run.model = value;
		return GM_OK;
	case PROMPT:
		s->run.prompt = value;
		s->run.prompt_size = strlen(value);
		return GM_OK;
	case FILE_:
		return gm_texts_add_file(&s->texts, value, NULL, err);
	case SPECIAL:
		s->run.special = true;
		return GM_OK;
	case DEVICE:
		s->run.plugin.device = value;
		return GM_OK;
	case EXPERTS:
	case HOST_EXPERTS:
	case DISK_LATENCY:
	case DISK_GB_S:
		return take_store_option(&s->run.plugin, id, value, err);
	case AT_ONCE:
		s->at_once = true;
		return GM_OK;
	case VERBOSE:
		s->verbose = true;
		return GM_OK;
	case QUIET:
		s->quiet = true;
		return GM_OK;
	default:
		return take_cache_option(&s->run.cache, id, value, err);
	}
}

static int take_option(struct state *s, int id, const char *value, struct gm_error *err)
{
	if (gm_grid_takes(id))
		return gm_grid_option(s->grid, id, value, err);
	if (gm_model_takes(id))
		return gm_model_option(&s->run.hook, id, value, err);
	return take_common_option(s, id, value, err);
}

static int take_run_option(int id, const char *value, void *state, struct gm_error *err)
{
	struct state *s = state;

	GM_TRY(set_defaults(s, false, err));
	switch (id) {
	case N_GENERATE:
		return gm_parse_u32(value, "--n-predict", 0, INT32_MAX / 2, &s->run.n_generate, err);
	case TEMPERATURE:
		return gm_parse_double(value, "--temperature", &s->run.temperature, err);
	case SEED:
		return gm_parse_u64(value, "--seed", 0, UINT64_MAX, &s->run.seed, err);
	case RECORD:
		s->run.record = value;
		return GM_OK;
	case ARRIVALS:
		s->run.arrivals = value;
		return GM_OK;
	case TRACE_EVENTS:
		s->run.trace_events = value;
		return GM_OK;
	case TRACE_TOKENS:
		s->has_range = true;
		return gm_timeline_tokens(value, &s->run.events_from, &s->run.events_end, err);
	default:
		return take_option(s, id, value, err);
	}
}

static int take_bench_option(int id, const char *value, void *state, struct gm_error *err)
{
	struct state *s = state;
	bool policies;

	GM_TRY(set_defaults(s, true, err));
	switch (id) {
	case N_TOKEN:
		return gm_parse_u32(value, "--tokens", 1, INT32_MAX / 2, &s->n_token, err);
	case N_ROUND:
		return gm_parse_u32(value, "--rounds", 1, 10000, &s->n_round, err);
	case ONLY:
		GM_TRY(take_word(value, "--only", "stock", "policies", &policies, err));
		s->only = policies ? GM_BENCH_POLICIES : GM_BENCH_STOCK;
		return GM_OK;
	case CSV:
		s->csv = value;
		return GM_OK;
	case PROFILE:
		s->profile = value;
		return GM_OK;
	default:
		return take_option(s, id, value, err);
	}
}

static int check_usage(const struct state *s, struct gm_error *err)
{
	const struct gm_throttle *throttle = &s->run.cache.throttle, *disk = &s->run.plugin.disk;
	bool in_memory = s->run.plugin.experts == GM_EXPERT_STORE_MEMORY;

	if (!s->run.model)
		return gm_fail(err, GM_ERR_USAGE, "no model: --model: give FILE.gguf");
	if (!s->run.prompt == !s->texts.n || s->texts.n > 1)
		return gm_fail(err, GM_ERR_USAGE, "one prompt is needed: --prompt TEXT or --file FILE");
	if (s->run.temperature < 0 || throttle->latency_us < 0 || throttle->gb_s < 0 || disk->latency_us < 0 ||
	    disk->gb_s < 0)
		return gm_fail(err, GM_ERR_USAGE,
			       "below zero: --temperature, and what plays a slower link or disk, are not");
	if (in_memory && (s->run.plugin.host_bytes || gm_throttle_is_on(disk)))
		return gm_fail(err, GM_ERR_USAGE, "nothing is read: --host-experts and --disk-...: with --experts read");
	if (s->at_once && gm_throttle_is_on(throttle))
		return gm_fail(err, GM_ERR_USAGE, "a slow link that is not used: --at-once: leave out --link-...");
	if (s->run.arrivals && (!s->run.record || strcmp(s->run.record, "-") == 0))
		return gm_fail(err, GM_ERR_USAGE,
			       "arrivals without a trace that they are of: --arrivals: give --record a file");
	if (s->has_range && !s->run.trace_events)
		return gm_fail(err, GM_ERR_USAGE,
			       "tokens of a timeline that is not written: --trace-tokens: give --trace-events FILE");
	return GM_OK;
}

static int check_files(const struct state *s, struct gm_error *err)
{
	const struct gm_file_use mine[] = {
		{s->run.model, "--model", false},
		{s->texts.n ? s->texts.path[0] : NULL, "--file", false},
		{s->run.record, "--record", true},
		{s->run.arrivals, "--arrivals", true},
		{s->csv, "--csv", true},
		{s->profile, "--profile", true},
		{s->run.trace_events, "--trace-events", true},
	};
	const size_t n_mine = sizeof(mine) / sizeof(*mine);
	struct gm_file_use *use, *larger;
	size_t n;
	int status;

	GM_TRY(gm_grid_inputs(s->grid, &use, &n, err));
	larger = gm_realloc(use, n + n_mine, sizeof(*use), err);
	if (!larger) {
		free(use);
		return GM_ERR_MEMORY;
	}
	memcpy(larger + n, mine, sizeof(mine));
	status = gm_streams_check(larger, n + n_mine, err);
	if (status == GM_OK)
		status = gm_files_check(larger, n + n_mine, err);
	free(larger);
	return status;
}

/* A trace in a file has its arrivals beside it. */
static int name_arrivals(struct state *s, struct gm_error *err)
{
	const char *trace = s->run.record;
	struct stat info;
	size_t size;

	if (!trace || s->run.arrivals || strcmp(trace, "-") == 0 || (stat(trace, &info) == 0 && !S_ISREG(info.st_mode)))
		return GM_OK;
	size = strlen(trace) + sizeof(".arrivals");
	if (!(s->beside_trace = gm_alloc(size, 1, err)))
		return err->code;
	snprintf(s->beside_trace, size, "%s.arrivals", trace);
	s->run.arrivals = s->beside_trace;
	return GM_OK;
}

/* Everything but the policies. */
static int prepare(struct state *s, bool lists, struct gm_error *err)
{
	GM_TRY(set_defaults(s, lists, err));
	GM_TRY(check_usage(s, err));
	GM_TRY(name_arrivals(s, err));
	GM_TRY(check_files(s, err));
	if (s->texts.n) {
		s->run.prompt = s->texts.text[0].text;
		s->run.prompt_size = s->texts.text[0].size;
	}
	s->run.cache.beside = !s->at_once;
	s->run.events_end = s->has_range ? s->run.events_end + 1 : GM_TIMELINE_TOKENS;
	gm_model_set_verbose(&s->run.hook, s->verbose);
	s->run.text = stdout;
	return GM_OK;
}

static int run(int n_operand, char **operand, void *state, struct gm_error *err)
{
	struct state *s = state;
	struct gm_run_result result;
	size_t n;

	(void)n_operand, (void)operand;
	GM_TRY(prepare(s, false, err));
	GM_TRY(gm_grid_expand(s->grid, &s->run.settings, &n, err));
	GM_TRY(gm_run(&s->run, &result, err));
	putchar('\n');
	fflush(stdout);
	if (!s->quiet)
		gm_run_print(stderr, &result);
	return GM_OK;
}

static void tell_failures(const struct gm_bench *bench)
{
	char point[256];

	for (size_t i = 1; i < bench->n_point; i++)
		if (bench->point[i].error.code)
			fprintf(stderr, "engine: left out (%s): %s\n",
				gm_settings_describe(bench->point[i].settings, point, sizeof(point)),
				bench->point[i].error.text);
}

static int bench(int n_operand, char **operand, void *state, struct gm_error *err)
{
	struct state *s = state;
	struct gm_bench_options options;
	struct gm_bench result = {0};
	int status;

	(void)n_operand, (void)operand;
	GM_TRY(prepare(s, true, err));
	options = (struct gm_bench_options){
		.run = s->run, .n_token = s->n_token, .n_round = s->n_round, .only = s->only, .quiet = s->quiet};
	GM_TRY(gm_grid_expand(s->grid, &options.settings, &options.n_settings, err));
	status = gm_bench_run(&result, &options, err);
	if (status == GM_OK && s->csv)
		status = gm_bench_write(s->csv, &result, err);
	if (status == GM_OK && s->profile)
		status = gm_bench_write_profile(s->profile, &result, &options, err);
	if (status == GM_OK) {
		if (!s->csv || strcmp(s->csv, "-") != 0)
			gm_bench_print(stdout, &result);
		tell_failures(&result);
		status = result.n_failed ? GM_PARTLY_DONE : GM_OK;
	}
	gm_bench_free(&result);
	return status;
}

static void release(void *state)
{
	struct state *s = state;

	gm_grid_free(s->grid);
	gm_texts_free(&s->texts);
	free(s->beside_trace);
}

int main(int argc, char **argv)
{
	static const struct gm_command commands[] = {
		{
			.name = "run",
			.usage = "-m MODEL.gguf -p PROMPT [options]",
			.help = "Let a Mixture-of-Experts model go on after a prompt, with its experts in host memory and "
				"those that "
				"a\npolicy keeps on the device. Rules: docs/semantics.md; what is real about it: "
				"docs/engine.md.",
			.example = "engine run -m Qwen3-30B-A3B-Q4_K_M.gguf -p \"Once upon a time\" --vram-experts 6GiB "
				   "--policy "
				   "rule-0.15",
			.options = run_tables,
			.n_table = sizeof(run_tables) / sizeof(*run_tables),
			.run = run,
			.option = take_run_option,
			.state_bytes = sizeof(struct state),
			.release = release,
		},
		{
			.name = "bench",
			.usage = "-m MODEL.gguf -f TEXT [options]",
			.help = "Decode a text token by token, in turns without a cache (as the model options say) and "
				"under every "
				"policy,\nand compare the times. Policy options take comma lists and ranges. Every round "
				"starts cold; "
				"--warmup N\nleaves the first tokens out.",
			.example = "engine bench -m tinymoe-F16.gguf -f text.txt --policy fetch-all,rule-0.15 --cache 25% "
				   "--warmup 32",
			.options = bench_tables,
			.n_table = sizeof(bench_tables) / sizeof(*bench_tables),
			.run = bench,
			.option = take_bench_option,
			.state_bytes = sizeof(struct state),
			.release = release,
		},
	};
	const struct gm_program program = {
		.name = "engine",
		.help = "llama.cpp with a real expert cache",
		.commands = commands,
		.n_command = sizeof(commands) / sizeof(*commands),
		.detail = gm_hook_library_version(),
	};

	gm_model_short_names(argc, argv);
	return gm_program_main(&program, argc, argv);
}
