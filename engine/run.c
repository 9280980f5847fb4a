#include "engine/run.h"

#include "base/number.h"
#include "base/progress.h"
#include "emulate/policy_recording.h"
#include "recorder/sample.h"
#include "sim/timeline.h"
#include "traces/reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct run {
	const struct gm_run_options *options;
	struct gm_preloads *preloads;
	struct gm_plugin *plugin;
	struct gm_hook *hook;
	struct gm_cache *cache;
	struct gm_recording *recording;
	struct gm_landings_writer landings; /* output.stream NULL: not wanted */
	struct gm_error landing_err;        /* of on_landed, which cannot return it */
	uint64_t n_token;
	struct gm_output events; /* stream NULL: not wanted */
	struct gm_timeline timeline;
	struct gm_spans *spans;
	struct gm_sampler sampler;
	int32_t *prompt;
	size_t n_prompt;
	float *logprob;
	uint32_t n_last; /* tokens of the last pass */
};

static void on_landed(void *user, uint64_t event, const struct gm_landing *landing)
{
	struct run *run = user;

	(void)event;
	gm_landings_put(&run->landings, landing, &run->landing_err);
}

static int open_model(struct run *run, struct gm_error *err)
{
	struct gm_hook_options hook = run->options->hook;
	struct gm_plugin_options plugin = run->options->plugin;
	struct gm_cache_options cache = run->options->cache;

	gm_hook_load_library();
	if (run->options->settings->scope == GM_SCOPE_GLOBAL && run->options->settings->prefill == GM_PREFILL_TOKEN &&
	    hook.n_ubatch == 0)
		hook.n_ubatch = 1; /* one pool meets the layers of a token before those of the next */
	plugin.model = run->options->model;
	plugin.gpu = hook.n_gpu_layers != 0;
	run->plugin = gm_plugin_new(&plugin, err);
	if (!run->plugin)
		return err->code;
	hook.expert_buffer = gm_plugin_buffer_type(run->plugin);
	run->hook = gm_hook_open(run->options->model, &hook, err);
	run->preloads = run->hook ? gm_preloads_new(err) : NULL;
	if (!run->preloads)
		return err->code;
	cache.spans = run->spans;
	if (run->options->arrivals) {
		cache.on_landed = on_landed;
		cache.user = run;
	}
	run->cache = gm_cache_new(run->hook, run->plugin, run->options->settings, run->preloads, &cache, err);
	run->logprob = run->cache ? gm_alloc(gm_hook_info(run->hook)->n_ubatch, sizeof(*run->logprob), err) : NULL;
	return run->logprob ? GM_OK : err->code;
}

static int read_prompt(struct run *run, struct gm_error *err)
{
	const struct gm_run_options *options = run->options;
	uint32_t n_ctx = gm_hook_info(run->hook)->n_ctx;

	GM_TRY(gm_hook_tokenize(run->hook, options->prompt, options->prompt_size, options->special, &run->prompt,
				&run->n_prompt, err));
	if (run->n_prompt == 0)
		return gm_fail(err, GM_ERR_USAGE, "the prompt has no tokens: give a text");
	if (run->n_prompt + options->n_generate > n_ctx)
		return gm_fail(err, GM_ERR_USAGE, "%zu tokens of the prompt and %u more: the context holds %u: --ctx",
			       run->n_prompt, options->n_generate, n_ctx);
	return GM_OK;
}

static int open_recording(struct run *run, struct gm_error *err)
{
	const struct gm_settings *settings = gm_cache_settings(run->cache);
	unsigned flags = settings->miss.ops->info.flags;
	const struct gm_policy_recording recording = {
		.path = run->options->record,
		.source = "engine",
		.settings = settings,
		.override = run->options->cache.override,
		.substitutes = (flags & GM_NEEDS_RANKING) != 0,
		.drops = (flags & GM_DROPS) != 0,
		.generates = true,
	};

	if (!run->options->record)
		return GM_OK;
	run->recording = gm_policy_recording_open(&recording, run->hook, err);
	gm_cache_record(run->cache, run->recording);
	return run->recording ? GM_OK : err->code;
}

static int open_arrivals(struct run *run, struct gm_error *err)
{
	const struct gm_settings *settings = gm_cache_settings(run->cache);
	char hash[GM_HASH_TEXT], policy[256];

	if (!run->options->arrivals)
		return GM_OK;
	GM_TRY(gm_plan_policy_hash(gm_cache_plan(run->cache), settings, hash, err));
	gm_settings_describe(settings, policy, sizeof(policy));
	return gm_landings_open(&run->landings, run->options->arrivals, hash, policy, err);
}

/* The trace is whole: it has a name now, and a hash. */
static int end_arrivals(struct run *run, struct gm_error *err)
{
	struct gm_trace *trace;
	int status;

	if (!run->options->arrivals)
		return GM_OK;
	if (!(trace = gm_trace_open(run->options->record, err)))
		return err->code;
	status = gm_landings_commit(&run->landings, gm_trace_hash(trace), err);
	gm_trace_close(trace);
	return status;
}

static int open_events(struct run *run, struct gm_error *err)
{
	if (!run->options->trace_events)
		return GM_OK;
	GM_TRY(gm_output_open(&run->events, run->options->trace_events, err));
	gm_timeline_begin(&run->timeline, run->events.stream, run->options->model);
	run->spans = gm_spans_new(&run->timeline.sink, err);
	return run->spans ? GM_OK : GM_ERR_MEMORY;
}

/* Nothing is copied any more. */
static int end_events(struct run *run, struct gm_error *err)
{
	if (!run->spans)
		return GM_OK;
	gm_timeline_end(&run->timeline);
	return gm_output_commit(&run->events, err);
}

/* --- parts --- */

static void begin_part(struct run *run, struct gm_run_part *part)
{
	memset(part, 0, sizeof(*part));
	gm_cache_stats(run->cache, &part->stats);
	part->seconds = -gm_clock_s();
}

static void end_part(struct run *run, struct gm_run_part *part)
{
	struct gm_engine_stats before = part->stats;

	part->seconds += gm_clock_s();
	gm_cache_stats(run->cache, &part->stats);
	gm_engine_stats_since(&part->stats, &before);
}

static int pass(struct run *run, struct gm_run_part *part, const int32_t *token, uint32_t n, struct gm_error *err)
{
	gm_spans_begin_pass(run->spans,
			    run->n_token >= run->options->events_from && run->n_token < run->options->events_end);
	GM_TRY(gm_cache_pass(run->cache, token, n, run->logprob, err));
	gm_spans_end_pass(run->spans);
	run->n_last = n;
	run->n_token += n;
	part->tokens += n;
	gm_landings_pass(&run->landings, run->n_token);
	return run->landing_err.code ? gm_fail(err, run->landing_err.code, "%s", run->landing_err.text) : GM_OK;
}

static int run_prompt(struct run *run, struct gm_run_part *part, struct gm_error *err)
{
	uint32_t max = gm_hook_info(run->hook)->n_ubatch;

	for (size_t done = 0; done < run->n_prompt;) {
		size_t left = run->n_prompt - done;
		uint32_t n = left < max ? (uint32_t)left : max;

		GM_TRY(pass(run, part, run->prompt + done, n, err));
		done += n;
	}
	return GM_OK;
}

static int show(struct run *run, int32_t token, struct gm_error *err)
{
	char piece[512];
	size_t n = gm_hook_token_text(run->hook, token, piece, sizeof(piece));

	fwrite(piece, 1, n, run->options->text);
	if (fflush(run->options->text) == EOF)
		return gm_fail(err, GM_ERR_IO, "the text cannot be written");
	return GM_OK;
}

static int generate(struct run *run, struct gm_run_result *result, struct gm_error *err)
{
	for (uint32_t i = 0; i < run->options->n_generate; i++) {
		int32_t token = gm_sample(&run->sampler, gm_hook_output(run->hook, run->n_last - 1),
					  gm_hook_info(run->hook)->n_vocab);

		if (gm_hook_is_end(run->hook, token)) {
			result->ended = true;
			break;
		}
		GM_TRY(show(run, token, err));
		GM_TRY(pass(run, &result->generated, &token, 1, err));
	}
	return GM_OK;
}

static int run_all(struct run *run, struct gm_run_result *result, struct gm_error *err)
{
	GM_TRY(open_events(run, err));
	GM_TRY(open_model(run, err));
	GM_TRY(read_prompt(run, err));
	GM_TRY(open_recording(run, err));
	GM_TRY(open_arrivals(run, err));
	snprintf(result->device, sizeof(result->device), "%s", gm_plugin_device(run->plugin));
	gm_settings_describe(gm_cache_settings(run->cache), result->policy, sizeof(result->policy));
	GM_TRY(gm_cache_begin_sequence(run->cache, "prompt", NULL, err));
	begin_part(run, &result->prompt);
	GM_TRY(run_prompt(run, &result->prompt, err));
	end_part(run, &result->prompt);
	begin_part(run, &result->generated);
	GM_TRY(generate(run, result, err));
	end_part(run, &result->generated);
	return GM_OK;
}

int gm_run(const struct gm_run_options *options, struct gm_run_result *result, struct gm_error *err)
{
	struct run run = {.options = options, .sampler = {.temperature = options->temperature, .state = options->seed}};
	int status, closed;

	memset(result, 0, sizeof(*result));
	status = run_all(&run, result, err);
	closed = gm_recording_close(run.recording, status == GM_OK, NULL, err);
	if (status == GM_OK && closed == GM_OK)
		status = end_arrivals(&run, err);
	gm_landings_discard(&run.landings);
	free(run.logprob);
	free(run.prompt);
	gm_cache_free(run.cache);
	if (status == GM_OK && closed == GM_OK)
		status = end_events(&run, err);
	gm_output_discard(&run.events);
	gm_spans_free(run.spans);
	gm_hook_close(run.hook);
	gm_plugin_free(run.plugin);
	gm_preloads_free(run.preloads);
	return status < 0 ? status : closed;
}

/* --- the table --- */

static double share(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : 0;
}

static void print_part(FILE *out, const char *name, const struct gm_run_part *part)
{
	const struct gm_engine_stats *s = &part->stats;
	double n = part->tokens ? (double)part->tokens : 1, us = part->seconds * 1e6;

	fprintf(out, "%-10s %7" PRIu64 " %9.1f %7.2f %6" PRIu64 " %9.2f %7.2f %7.2f %8.3f %9.1f %9.1f %9.1f %9.1f\n", name,
		part->tokens, part->seconds > 0 ? (double)part->tokens / part->seconds : 0,
		share((double)s->hits, (double)s->accesses), s->late_hits, (double)s->fetches / n,
		share((double)s->substitutions, (double)s->picks), 100 * (s->substituted_mass + s->dropped_mass),
		(double)s->link_bytes / n / 1e6, us / n, s->compute_us / n, s->copy_us / n,
		(us - s->compute_us - s->copy_us) / n);
}

void gm_run_print(FILE *out, const struct gm_run_result *result)
{
	const struct gm_engine_stats *s = &result->prompt.stats;
	char size[GM_NUMBER_TEXT];

	fprintf(out, "%s, on %s: %u slots%s, %s for experts\n", result->policy, result->device, s->n_slot,
		strstr(result->policy, "global") ? " in one pool" : " a layer", gm_format_bytes(s->device_bytes, size));
	fprintf(out, "%73s |------------- us/token --------------\n%10s %7s %9s %7s %6s %9s %7s %7s %8s %9s %9s %9s %9s\n",
		"", "", "tokens", "tokens/s", "hits %", "late", "fetch/tok", "subst.%", "mass %", "MB/tok", "all",
		"experts", "wait", "rest");
	print_part(out, "prompt", &result->prompt);
	print_part(out, "generated", &result->generated);
}
