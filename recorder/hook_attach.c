/* The observer of a context that is not the hook's (see gm_hook_attach). */
#include "recorder/hook_private.h"

#include <stdlib.h>

static size_t count_overrides(const struct llama_model_tensor_buft_override *overrides)
{
	size_t n = 0;

	while (overrides && overrides[n].pattern)
		n++;
	return n;
}

/* Ours first: the first pattern that matches decides. The others' texts stay the caller's, so only the first is freed. */
static int make_overrides(struct gm_hook *hook, struct ggml_backend_buffer_type *expert_buffer,
			  const struct llama_model_tensor_buft_override *theirs, struct gm_error *err)
{
	size_t n = count_overrides(theirs);

	hook->overrides = gm_alloc(n + 2, sizeof(*hook->overrides), err);
	if (!hook->overrides)
		return GM_ERR_MEMORY;
	for (size_t i = 0; i < n; i++)
		hook->overrides[i + 1] = theirs[i];
	return hook_overrides_experts(hook->overrides, expert_buffer, err);
}

void gm_hook_one_by_one(struct llama_context_params *context)
{
	context->n_ubatch = 1;
}

void gm_hook_attach_options(struct gm_hook_options *options, const struct llama_context_params *context)
{
	*options = gm_hook_default_options();
	options->n_gpu_layers = 0;
	options->extra_bufts = false; /* which would copy what is mapped */
	options->n_ubatch = options->n_ctx = context->n_ubatch < context->n_batch ? context->n_ubatch : context->n_batch;
}

bool gm_hook_offloads(const struct llama_model_params *model)
{
	return model->n_gpu_layers != 0 && hook_has_gpu();
}

int gm_hook_attach(struct gm_hook *hook, struct ggml_backend_buffer_type *expert_buffer, struct llama_model_params *model,
		   struct llama_context_params *context, struct gm_error *err)
{
	if (context->cb_eval)
		return gm_fail(err, GM_ERR_USAGE,
			       "the context has an evaluation callback: llama_context_params.cb_eval: "
			       "leave it empty");
	GM_TRY(make_overrides(hook, expert_buffer, model->tensor_buft_overrides, err));
	hook_close_model(hook);
	hook->is_attached = true;
	model->tensor_buft_overrides = hook->overrides;
	context->cb_eval = hook_on_node;
	context->cb_eval_user_data = hook;
	return GM_OK;
}
