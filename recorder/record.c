/* Recording (see record.h). */
#include "recorder/record.h"

#include "base/number.h"
#include "base/progress.h"
#include "base/version.h"
#include "recorder/block_log.h"
#include "recorder/logprob.h"
#include "recorder/record_header.h"
#include "recorder/recording.h"
#include "recorder/sample.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows on their way to the writer, beside the pass under way. A pass of 512 tokens over 48 layers of 512 experts is 50 MB. */
#define QUEUE_BYTES ((size_t)256 << 20)

struct tokens {
	int32_t *token;
	size_t n;
};

struct record {
	struct gm_hook *hook;
	const struct gm_hook_info *info;
	const struct gm_record_options *options;
	struct gm_record_result *result;
	const struct gm_record_layers *layers;
	struct gm_recording *recording;
	struct gm_record_device *device;
	struct gm_block_log *log;
	struct gm_check *check;
	struct gm_sampler sampler;
	struct gm_progress progress;
	char progress_text[64];
	float *logprob;     /* [n_ubatch] of the pass */
	float next_logprob; /* of the sequence's next token; NaN before its first */
};

/* --- the observer --- */

/* On the caller's thread, or on that of a capture; never on both at once. */
static int take_logits(void *user, uint32_t layer, uint64_t first, uint32_t n, const float *logits, struct gm_error *err)
{
	struct record *r = user;

	if (r->check)
		GM_TRY(gm_check_logits(r->check, n, logits, err));
	if (r->layers->place[layer] == UINT32_MAX)
		return 0;
	return gm_recording_append(r->recording, r->layers->place[layer], (uint32_t)first, n, logits, err);
}

static int on_logits(void *user, uint32_t layer, uint32_t first, uint32_t n, const float *logits, struct gm_error *err)
{
	GM_TRY(gm_record_device_host_rows(((struct record *)user)->device, layer, err));
	return take_logits(user, layer, first, n, logits, err);
}

static int on_device_logits(void *user, uint32_t layer, uint32_t first, uint32_t n, const struct gm_hook_device_rows *rows,
			    struct gm_error *err)
{
	struct record *r = user;
	int taken;

	if (!r->check && r->layers->place[layer] == UINT32_MAX)
		return 1; /* not wanted at all */
	taken = gm_record_device_rows(r->device, layer, first, n, rows, err);
	if (taken == 1 && r->check) /* of what the layer does next, against these logits */
		GM_TRY(gm_record_device_flush(r->device, err));
	return taken;
}

static int on_topk(void *user, uint32_t layer, uint32_t first, uint32_t n, int32_t *expert, bool *changed,
		   struct gm_error *err)
{
	(void)layer, (void)first, (void)changed;
	return gm_check_topk(((struct record *)user)->check, n, expert, err);
}

static int on_weights(void *user, uint32_t layer, uint32_t first, uint32_t n, float *weight, bool *changed,
		      struct gm_error *err)
{
	(void)layer, (void)first, (void)changed;
	return gm_check_weights(((struct record *)user)->check, n, weight, err);
}

static int on_gates(void *user, uint32_t layer, uint32_t first, uint32_t n, float *gate, bool *changed,
		    struct gm_error *err)
{
	(void)first, (void)changed;
	return gm_check_gates(((struct record *)user)->check, layer, n, gate, err);
}

static const struct gm_hook_ops records = {.on_logits = on_logits, .on_device_logits = on_device_logits};
static const struct gm_hook_ops records_and_checks = {
	.on_logits = on_logits,
	.on_device_logits = on_device_logits,
	.on_topk = on_topk,
	.on_weights = on_weights,
	.on_gates = on_gates,
};

static void note(const struct record *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void note(const struct record *r, const char *format, ...)
{
	char text[256];
	va_list arguments;

	if (!r->options->note)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	r->options->note(r->options->user, text);
}

/* --- passes --- */

static bool is_over(struct record *r)
{
	if (r->options->max_tokens && r->result->n_token >= r->options->max_tokens)
		return true;
	if (!r->result->stopped && r->options->stopped)
		r->result->stopped = r->options->stopped(r->options->user);
	return r->result->stopped;
}

static void show_progress(struct record *r)
{
	char size[GM_NUMBER_TEXT];

	r->result->bytes = gm_recording_bytes(r->recording);
	snprintf(r->progress_text, sizeof(r->progress_text), "record, %s written", gm_format_bytes(r->result->bytes, size));
	gm_progress_update(&r->progress, r->result->n_token);
}

/* One pass, and the log-probabilities of its tokens from the outputs before each. */
static int run_pass(struct record *r, const int32_t *token, uint32_t n, struct gm_error *err)
{
	uint32_t position = gm_hook_position(r->hook);
	int status = gm_hook_pass(r->hook, token, n, err);
	int flushed = gm_record_device_flush(r->device, err);

	if (status == 0)
		status = flushed;
	if (status < 0) {
		gm_recording_drop(r->recording);
		return status;
	}
	r->logprob[0] = r->next_logprob;
	for (uint32_t i = 1; i < n; i++)
		r->logprob[i] = gm_logprob(gm_hook_output(r->hook, i - 1), r->info->n_vocab, token[i]);
	for (uint32_t i = 0; i < n; i++) {
		if (isnan(r->logprob[i]))
			continue;
		r->result->nll -= (double)r->logprob[i];
		r->result->n_scored++;
	}
	GM_TRY(gm_recording_commit(r->recording, n, token, position, r->logprob, err));
	r->result->n_token += n;
	r->result->n_pass++;
	show_progress(r);
	return 0;
}

/* What the last row of a pass of n tokens says of the token that follows. */
static void expect(struct record *r, uint32_t n, int32_t token)
{
	r->next_logprob = gm_logprob(gm_hook_output(r->hook, n - 1), r->info->n_vocab, token);
}

/* At most n tokens, in as few passes as fit. *last: rows of the last pass. */
static int run_tokens(struct record *r, const int32_t *token, size_t n, uint32_t *last, struct gm_error *err)
{
	uint64_t left = r->options->max_tokens ? r->options->max_tokens - r->result->n_token : UINT64_MAX;

	if (n > left)
		n = (size_t)left;
	for (size_t done = 0; done < n && !is_over(r); done += *last) {
		*last = n - done < r->info->n_ubatch ? (uint32_t)(n - done) : r->info->n_ubatch;
		GM_TRY(run_pass(r, token + done, *last, err));
		if (done + *last < n)
			expect(r, *last, token[done + *last]);
	}
	return 0;
}

static int generate(struct record *r, uint32_t last, struct gm_error *err)
{
	for (uint32_t i = 0; i < r->options->n_generate && !is_over(r); i++) {
		int32_t token = gm_sample(&r->sampler, gm_hook_output(r->hook, last - 1), r->info->n_vocab);

		if (gm_hook_is_end(r->hook, token))
			break;
		expect(r, last, token);
		GM_TRY(run_pass(r, &token, 1, err));
		last = 1;
	}
	return 0;
}

/* --- sequences --- */

static int begin_sequence(struct record *r, const struct gm_text *text, size_t part, struct gm_error *err)
{
	char id[256];

	if (part == 0)
		snprintf(id, sizeof(id), "%s", text->id);
	else
		snprintf(id, sizeof(id), "%.240s#%zu", text->id, part + 1);
	gm_hook_begin_sequence(r->hook);
	r->next_logprob = NAN;
	r->result->n_sequence++;
	return gm_recording_begin_sequence(r->recording, id, text->label, err);
}

static int record_text(struct record *r, const struct gm_text *text, const struct tokens *tokens, struct gm_error *err)
{
	uint32_t n_ctx = r->info->n_ctx, last = 0;

	for (size_t part = 0; part * n_ctx < tokens->n && !is_over(r); part++) {
		size_t left = tokens->n - part * n_ctx;

		GM_TRY(begin_sequence(r, text, part, err));
		GM_TRY(run_tokens(r, tokens->token + part * n_ctx, left < n_ctx ? left : n_ctx, &last, err));
		if (r->options->generate && last > 0)
			GM_TRY(generate(r, last, err));
	}
	return 0;
}

static int check_length(const struct record *r, const struct gm_text *text, size_t n, struct gm_error *err)
{
	uint32_t n_ctx = r->info->n_ctx;

	if (n == 0) {
		note(r, "%s is empty: left out", text->id);
		return 0;
	}
	if (r->options->generate && n + r->options->n_generate > n_ctx)
		return gm_fail(err, GM_ERR_USAGE, "a prompt of %zu tokens and %u more: %s: the context holds %u (--ctx)", n,
			       r->options->n_generate, text->id, n_ctx);
	if (n > n_ctx)
		note(r, "%s: %zu tokens, longer than the context of %u: split into %zu sequences (--ctx)", text->id, n,
		     n_ctx, (n + n_ctx - 1) / n_ctx);
	return 0;
}

/* The code of what a function that returns a pointer has recorded. */
static int failed(const struct gm_error *err)
{
	return err && err->code ? err->code : GM_ERR_MEMORY;
}

static void free_tokens(struct tokens *tokens, size_t n)
{
	for (size_t i = 0; tokens && i < n; i++)
		free(tokens[i].token);
	free(tokens);
}

/* All texts before the first pass: what is wrong with one of them is known at once, and the work ahead as well. */
static int tokenize(struct record *r, const struct gm_texts *texts, struct tokens *tokens, uint64_t *total,
		    struct gm_error *err)
{
	*total = 0;
	for (size_t i = 0; i < texts->n; i++) {
		const struct gm_text *text = &texts->text[i];

		GM_TRY(gm_hook_tokenize(r->hook, text->text, text->size, r->options->special, &tokens[i].token,
					&tokens[i].n, err));
		GM_TRY(check_length(r, text, tokens[i].n, err));
		if (tokens[i].n > 0)
			*total += tokens[i].n + (r->options->generate ? r->options->n_generate : 0);
	}
	if (*total == 0)
		return gm_fail(err, GM_ERR_USAGE, "nothing to record: all texts are empty");
	if (r->options->max_tokens && *total > r->options->max_tokens)
		*total = r->options->max_tokens;
	return 0;
}

static int open_output(struct record *r, const struct gm_record_layers *layers, struct gm_error *err)
{
	const struct gm_record_options *o = r->options;
	struct gm_json *metadata = gm_record_metadata(r->hook, o, layers, err);
	struct gm_writer_options options = {.kind = GM_KIND_LOGITS,
					    .n_head = o->n_head,
					    .tail = o->tail,
					    .logprobs = true,
					    .source = "record-traces",
					    .tool = "record-traces " GM_VERSION,
					    .metadata = metadata,
					    .on_block = gm_block_log_add};
	struct gm_writer *writer;

	if (!metadata)
		return failed(err);
	options.user = r->log;
	writer = gm_writer_open(o->output, &layers->model, &options, err);
	gm_json_free(metadata);
	if (!writer)
		return failed(err);
	r->device = gm_record_device_new(
		&(struct gm_record_device_options){
			.mode = o->device_capture, .n_expert = layers->model.n_expert, .deliver = take_logits, .user = r},
		err);
	if (!r->device) {
		gm_writer_discard(writer);
		return GM_ERR_MEMORY;
	}
	r->recording = gm_recording_open(writer, layers->model.n_expert, QUEUE_BYTES, err);
	return r->recording ? 0 : failed(err);
}

static int prepare(struct record *r, struct gm_record_layers *layers, struct gm_error *err)
{
	GM_TRY(gm_record_layers_choose(layers, gm_hook_model(r->hook), r->options->layers, err));
	r->layers = layers;
	r->logprob = gm_alloc(r->info->n_ubatch, sizeof(float), err);
	if (!r->logprob)
		return GM_ERR_MEMORY;
	if (!r->options->verify)
		return 0;
	r->check = gm_check_new(gm_hook_model(r->hook), r->info->softmax_after_selection, err);
	return r->check ? 0 : failed(err);
}

/* How the logits came to the host, where there was a choice; ends the captures. */
static int end_device(struct record *r, struct gm_error *err)
{
	int status;

	if (gm_record_device_count(r->device) > 0)
		note(r, "%llu rows were captured on the device (--device-capture)",
		     (unsigned long long)gm_record_device_count(r->device));
	else if (gm_record_device_reason(r->device)[0])
		note(r, "router logits were read through llama.cpp: %s", gm_record_device_reason(r->device));
	status = gm_record_device_free(r->device, err);
	r->device = NULL;
	return status;
}

static int record_texts(struct record *r, const struct gm_texts *texts, const struct tokens *tokens, uint64_t total,
			struct gm_error *err)
{
	double started = gm_clock_s();
	struct gm_recording_end end = {0};
	int status = 0, closed;

	gm_progress_start(&r->progress, r->progress_text, "tokens", total, r->options->quiet);
	gm_hook_set_ops(r->hook, r->check ? &records_and_checks : &records, r);
	for (size_t i = 0; i < texts->n && status == 0 && !is_over(r); i++)
		status = record_text(r, &texts->text[i], &tokens[i], err);
	gm_hook_set_ops(r->hook, NULL, NULL);
	gm_progress_end(&r->progress);
	closed = end_device(r, err);
	if (status == 0)
		status = closed;
	closed = gm_recording_close(r->recording, status == 0, &end, err);
	r->recording = NULL;
	r->result->bytes = end.bytes;
	r->result->n_kept = end.n_kept;
	r->result->seconds = gm_clock_s() - started;
	return status < 0 ? status : closed;
}

int gm_record(struct gm_hook *hook, const struct gm_texts *texts, const struct gm_record_options *options,
	      struct gm_record_result *result, struct gm_error *err)
{
	struct record r = {.hook = hook,
			   .info = gm_hook_info(hook),
			   .options = options,
			   .result = result,
			   .sampler = {.temperature = options->temperature, .state = options->seed}};
	struct tokens *tokens = gm_alloc(texts->n, sizeof(*tokens), err);
	struct gm_record_layers layers = {0};
	uint64_t total;
	int status = GM_ERR_MEMORY;

	memset(result, 0, sizeof(*result));
	if (!tokens)
		goto out;
	GM_TRY_OUT(prepare(&r, &layers, err));
	GM_TRY_OUT(tokenize(&r, texts, tokens, &total, err));
	r.log = gm_block_log_open(options->log_blocks, err);
	if (options->log_blocks && !r.log)
		GM_TRY_OUT(failed(err));
	GM_TRY_OUT(open_output(&r, &layers, err));
	GM_TRY_OUT(record_texts(&r, texts, tokens, total, err));
	status = gm_block_log_close(r.log, err);
	r.log = NULL;
out:
	gm_record_device_free(r.device, NULL);
	gm_block_log_close(r.log, NULL);
	if (r.check)
		result->check = *gm_check_result(r.check);
	gm_check_free(r.check);
	gm_record_layers_free(&layers);
	free_tokens(tokens, texts->n);
	free(r.logprob);
	return status;
}
