/* Opening a model for observation, and the facts about it (see hook.h). */
#include "recorder/hook_private.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_CTX 4096u
#define DEFAULT_UBATCH 512u

struct gm_hook_options gm_hook_default_options(void)
{
	return (struct gm_hook_options){.n_gpu_layers = -1, .extra_bufts = true};
}

const struct gm_model *gm_hook_model(const struct gm_hook *hook)
{
	return &hook->facts;
}

const struct gm_hook_info *gm_hook_info(const struct gm_hook *hook)
{
	return &hook->info;
}

static uint32_t n_cores(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : (uint32_t)n;
}

static int check_options(const struct gm_hook_options *options, struct gm_error *err)
{
	if (options->n_ctx > INT32_MAX / 2 || options->n_ubatch > 65536 || options->n_thread > 1024)
		return gm_fail(err, GM_ERR_USAGE, "context of %u, passes of %u, %u threads: out of bounds", options->n_ctx,
			       options->n_ubatch, options->n_thread);
	return 0;
}

static int load_model(struct gm_hook *hook, const char *path, const struct gm_hook_options *options, struct gm_error *err)
{
	struct llama_model_params params = llama_model_default_params();
	struct llama_model_tensor_buft_override *overrides;

	GM_TRY(hook_overrides_parse(&overrides, options, err));
	params.tensor_buft_overrides = overrides;
	params.n_gpu_layers = options->n_gpu_layers < 0 ? INT_MAX : options->n_gpu_layers;
	params.use_extra_bufts = options->extra_bufts;
	hook_log_forget_error();
	hook->model = llama_model_load_from_file(path, params);
	hook_overrides_free(overrides);
	if (!hook->model)
		return hook_fail(err, GM_ERR_FORMAT, "llama.cpp cannot load the model", path);
	hook->vocab = llama_model_get_vocab(hook->model);
	llama_model_desc(hook->model, hook->description, sizeof(hook->description));
	hook->info.description = hook->description;
	hook->info.architecture = hook->file.architecture;
	hook->info.expert_type = hook_file_expert_type(&hook->file);
	hook->info.n_model_layer = hook->file.n_layer;
	hook->info.n_vocab = (uint32_t)llama_vocab_n_tokens(hook->vocab);
	hook->info.n_ctx_train = (uint32_t)llama_model_n_ctx_train(hook->model);
	hook->info.uses_gpu = options->n_gpu_layers != 0 && hook_has_gpu();
	return 0;
}

static int make_context(struct gm_hook *hook, const char *path, const struct gm_hook_options *options, bool observed,
			struct gm_error *err)
{
	struct llama_context_params params = llama_context_default_params();
	uint32_t trained = hook->info.n_ctx_train;

	params.n_ctx = options->n_ctx ? options->n_ctx : trained && trained < DEFAULT_CTX ? trained : DEFAULT_CTX;
	params.n_ubatch = options->n_ubatch ? options->n_ubatch : DEFAULT_UBATCH;
	if (params.n_ubatch > params.n_ctx)
		params.n_ubatch = params.n_ctx;
	params.n_batch = params.n_ubatch; /* a call is one forward pass */
	hook->info.n_thread = options->n_thread ? options->n_thread : n_cores();
	params.n_threads = params.n_threads_batch = (int32_t)hook->info.n_thread;
	hook->info.flash = options->flash == GM_FLASH_ON || (options->flash == GM_FLASH_AUTO && hook->info.uses_gpu);
	params.flash_attn_type = options->flash == GM_FLASH_ON ? LLAMA_FLASH_ATTN_TYPE_ENABLED
				 : hook->info.flash            ? LLAMA_FLASH_ATTN_TYPE_AUTO
							       : LLAMA_FLASH_ATTN_TYPE_DISABLED;
	params.no_perf = true;
	if (observed) {
		params.cb_eval = hook_on_node;
		params.cb_eval_user_data = hook;
	}
	hook->info.n_ctx = params.n_ctx;
	hook->info.n_ubatch = params.n_ubatch;
	hook_log_forget_error();
	hook->context = llama_init_from_model(hook->model, params);
	if (!hook->context)
		return hook_fail(err, GM_ERR_MEMORY, "no context (too large for memory?)", path);
	return 0;
}

/* One pass over one token, whose rows nobody sees. */
static int run_probe(struct gm_hook *hook, struct hook_probe *probe, struct gm_error *err)
{
	int32_t token = llama_vocab_bos(hook->vocab);
	int status;

	if (token < 0 || (uint32_t)token >= hook->info.n_vocab)
		token = 0;
	hook->probe = probe;
	status = hook_decode(hook, &token, 1, err);
	hook->probe = NULL;
	gm_hook_begin_sequence(hook);
	return status;
}

static int map_layers(struct gm_hook *hook, const struct hook_probe *probe, struct gm_error *err)
{
	hook->model_layer = gm_alloc(probe->n_layer, sizeof(*hook->model_layer), err);
	hook->moe_layer = gm_alloc(probe->n_layer, sizeof(*hook->moe_layer), err);
	if (!hook->model_layer || !hook->moe_layer)
		return GM_ERR_MEMORY;
	for (uint32_t i = 0; i < probe->n_layer; i++) {
		hook->moe_layer[i] = probe->layer[i].any ? hook->facts.n_layer : UINT32_MAX;
		if (probe->layer[i].any)
			hook->model_layer[hook->facts.n_layer++] = i;
	}
	hook->info.model_layer = hook->model_layer;
	for (int kind = 0; kind < HOOK_N_TENSOR; kind++) {
		hook->n_seen[kind] = gm_alloc(hook->facts.n_layer, sizeof(uint32_t), err);
		if (!hook->n_seen[kind])
			return GM_ERR_MEMORY;
	}
	return 0;
}

static int fill_sizes(struct gm_hook *hook, const char *path, struct gm_error *err)
{
	struct gm_model *facts = &hook->facts;

	facts->expert_bytes = gm_alloc(facts->n_layer, sizeof(uint64_t), err);
	facts->dense_bytes = gm_alloc(facts->n_layer, sizeof(uint64_t), err);
	if (!facts->expert_bytes || !facts->dense_bytes)
		return GM_ERR_MEMORY;
	for (uint32_t i = 0; i < facts->n_layer; i++) {
		uint64_t bytes = hook->file.expert_bytes[hook->model_layer[i]];

		if (bytes == 0 || bytes % facts->n_expert != 0)
			return gm_fail(err, GM_ERR_UNSUPPORTED, "%llu bytes of expert tensors for %u experts: %s: layer %u",
				       (unsigned long long)bytes, facts->n_expert, path, hook->model_layer[i]);
		facts->expert_bytes[i] = bytes / facts->n_expert;
		facts->dense_bytes[i] = hook->file.dense_bytes[hook->model_layer[i]];
	}
	return 0;
}

static int fill_bias(struct gm_hook *hook, const struct hook_probe *probe, struct gm_error *err)
{
	struct gm_model *facts = &hook->facts;

	facts->bias = gm_alloc((size_t)facts->n_layer * facts->n_expert, sizeof(float), err);
	if (!facts->bias)
		return GM_ERR_MEMORY;
	for (uint32_t i = 0; i < facts->n_layer; i++)
		memcpy(facts->bias + (size_t)i * facts->n_expert, probe->layer[hook->model_layer[i]].bias,
		       facts->n_expert * sizeof(float));
	return 0;
}

static enum hook_tensor final_gates(const struct hook_seen *seen)
{
	for (int kind = HOOK_WEIGHTS_SCALED; kind > HOOK_WEIGHTS; kind--)
		if (seen->has[kind])
			return (enum hook_tensor)kind;
	return HOOK_WEIGHTS;
}

static int fill_facts(struct gm_hook *hook, const struct hook_probe *probe, const char *path, struct gm_error *err)
{
	struct gm_model *facts = &hook->facts;
	const struct hook_seen *seen;
	uint32_t first = 0;

	GM_TRY(hook_probe_end(probe, path, &first, err));
	seen = &probe->layer[first];
	facts->name = gm_strdup(hook->file.name, err);
	if (!facts->name)
		return GM_ERR_MEMORY;
	facts->n_expert = seen->n_expert;
	facts->top_k = seen->top_k;
	facts->gating = seen->gating;
	if (seen->has[HOOK_GROUP_TOPK]) {
		facts->n_group = hook->file.n_group;
		facts->topk_group = seen->n_group_used;
	}
	GM_TRY(map_layers(hook, probe, err));
	GM_TRY(fill_sizes(hook, path, err));
	if (seen->bias)
		GM_TRY(fill_bias(hook, probe, err));
	hook->source = seen->source;
	hook->final = final_gates(seen);
	hook->info.softmax_after_selection = seen->softmax_after;
	hook->info.renormalises = seen->has[HOOK_WEIGHTS_NORM];
	return gm_model_check(facts, err);
}

static int open_hook(struct gm_hook *hook, const char *path, const struct gm_hook_options *options, struct gm_error *err)
{
	struct hook_probe probe = {0};
	int status;

	GM_TRY(check_options(options, err));
	GM_TRY(hook_file_read(&hook->file, path, err));
	GM_TRY(load_model(hook, path, options, err));
	GM_TRY(make_context(hook, path, options, true, err));
	hook->batch = llama_batch_init((int32_t)hook->info.n_ubatch, 0, 1);
	GM_TRY(hook_probe_begin(&probe, hook->file.n_layer, options->list_tensors, err));
	GM_TRY_OUT(run_probe(hook, &probe, err));
	GM_TRY_OUT(fill_facts(hook, &probe, path, err));
	if (options->bare) {
		llama_free(hook->context);
		hook->context = NULL;
		hook->info.bare = true;
		status = make_context(hook, path, options, false, err);
	}
out:
	hook_probe_free(&probe);
	return status;
}

struct gm_hook *gm_hook_open(const char *path, const struct gm_hook_options *options, struct gm_error *err)
{
	struct gm_hook *hook = gm_alloc(1, sizeof(*hook), err);

	if (!hook)
		return NULL;
	hook_log_to(options);
	gm_hook_load_library();
	if (open_hook(hook, path, options, err) < 0) {
		gm_hook_close(hook);
		return NULL;
	}
	return hook;
}

void hook_close_model(struct gm_hook *hook)
{
	if (hook->batch.token)
		llama_batch_free(hook->batch);
	if (hook->context)
		llama_free(hook->context);
	if (hook->model)
		llama_model_free(hook->model);
	memset(&hook->batch, 0, sizeof(hook->batch));
	hook->context = NULL;
	hook->model = NULL;
	hook->vocab = NULL;
}

void gm_hook_close(struct gm_hook *hook)
{
	if (!hook)
		return;
	hook_close_model(hook);
	if (hook->overrides)
		free((void *)hook->overrides[0].pattern);
	free(hook->overrides);
	for (int kind = 0; kind < HOOK_N_TENSOR; kind++)
		free(hook->n_seen[kind]);
	free(hook->model_layer);
	free(hook->moe_layer);
	hook_scratch_free(&hook->scratch);
	gm_model_free(&hook->facts);
	hook_file_free(&hook->file);
	hook_log_to(NULL);
	free(hook);
}
