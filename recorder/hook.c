/* Forward passes through a llama.cpp model, and the observer of its router (see hook.h). */
#include "recorder/hook_private.h"

#include <stdlib.h>
#include <string.h>

/* --- observing --- */

static bool is_observed(const struct gm_hook *hook, enum hook_tensor kind)
{
	const struct gm_hook_ops *ops = hook->ops;

	if (!ops || kind == HOOK_NONE)
		return false;
	return (kind == hook->source && (ops->on_logits || ops->on_device_logits)) || (kind == HOOK_TOPK && ops->on_topk) ||
	       (kind == HOOK_WEIGHTS && ops->on_weights) || (kind == hook->final && ops->on_gates);
}

static int observe_logits(struct gm_hook *hook, uint32_t layer, uint32_t first, const struct hook_rows *rows)
{
	struct gm_hook_device_rows device;
	const float *logits;

	if (hook->ops->on_device_logits && hook_rows_on_device(rows, &device)) {
		int taken = hook->ops->on_device_logits(hook->user, layer, first, rows->n_row, &device, &hook->err);

		if (taken != 0)
			return taken;
	}
	if (!hook->ops->on_logits)
		return 0;
	logits = hook_rows_get(rows, &hook->scratch, true, &hook->err);
	if (!logits)
		return GM_ERR_MEMORY;
	return hook->ops->on_logits(hook->user, layer, first, rows->n_row, logits, &hook->err);
}

static int observe_topk(struct gm_hook *hook, uint32_t layer, uint32_t first, const struct hook_rows *rows)
{
	int32_t *expert = hook_rows_get(rows, &hook->scratch, false, &hook->err);
	bool changed = false;

	if (!expert)
		return GM_ERR_MEMORY;
	GM_TRY(hook->ops->on_topk(hook->user, layer, first, rows->n_row, expert, &changed, &hook->err));
	if (!changed)
		return 0;
	/* an id past the experts would make llama.cpp read past its weights */
	for (size_t i = 0; i < (size_t)rows->n_row * rows->width; i++)
		if (expert[i] < 0 || (uint32_t)expert[i] >= hook->facts.n_expert)
			return gm_fail(&hook->err, GM_ERR_USAGE, "expert %d was put in: layer %u: there are %u", expert[i],
				       layer, hook->facts.n_expert);
	hook_rows_set(rows, &hook->scratch);
	return 0;
}

typedef int gates_op(void *user, uint32_t layer, uint32_t first, uint32_t n, float *gate, bool *changed,
		     struct gm_error *err);

static int observe_gates(struct gm_hook *hook, gates_op *op, uint32_t layer, uint32_t first, const struct hook_rows *rows)
{
	bool changed = false;
	float *gate;

	if (!op)
		return 0;
	gate = hook_rows_get(rows, &hook->scratch, false, &hook->err);
	if (!gate)
		return GM_ERR_MEMORY;
	GM_TRY(op(hook->user, layer, first, rows->n_row, gate, &changed, &hook->err));
	if (changed)
		hook_rows_set(rows, &hook->scratch);
	return 0;
}

static int observe(struct gm_hook *hook, enum hook_tensor kind, uint32_t layer, struct ggml_tensor *tensor)
{
	uint32_t *n_seen = &hook->n_seen[kind][layer], first = hook->is_attached ? 0 : *n_seen;
	uint32_t width = kind == hook->source ? hook->facts.n_expert : hook->facts.top_k;
	struct hook_rows rows;

	GM_TRY(hook_rows_of(&rows, tensor, width, &hook->err));
	if (rows.n_row == 0) /* a pruned layer; copying nothing aborts in ggml */
		return 0;
	*n_seen += rows.n_row;
	if (kind == hook->source)
		return observe_logits(hook, layer, first, &rows);
	if (kind == HOOK_TOPK)
		return observe_topk(hook, layer, first, &rows);
	if (kind == HOOK_WEIGHTS)
		GM_TRY(observe_gates(hook, hook->ops->on_weights, layer, first, &rows));
	if (kind == hook->final)
		GM_TRY(observe_gates(hook, hook->ops->on_gates, layer, first, &rows));
	return 0;
}

/* The scheduler asks for every node whether it is wanted, then shows those that are. Answering false to the second would leave out
 * the rest of a split, not of the pass, so a failure is kept and the pass runs to its end. */
bool hook_on_node(struct ggml_tensor *tensor, bool ask, void *user)
{
	struct gm_hook *hook = user;
	enum hook_tensor kind;
	uint32_t layer;

	if (hook->probe)
		return hook_probe_node(hook->probe, tensor, ask);
	kind = hook_tensor_find(tensor, &layer);
	if (!is_observed(hook, kind) || layer >= hook->info.n_model_layer || hook->moe_layer[layer] == UINT32_MAX)
		return !ask;
	if (!ask && !hook->err.code) {
		int status = observe(hook, kind, hook->moe_layer[layer], tensor);

		if (status < 0) {
			gm_fail(&hook->err, status, "the observer of %s failed: layer %u", tensor->name, layer);
			if (hook->ops->on_failure)
				hook->ops->on_failure(hook->user, &hook->err);
		}
	}
	return true;
}

void gm_hook_set_ops(struct gm_hook *hook, const struct gm_hook_ops *ops, void *user)
{
	hook->ops = ops;
	hook->user = user;
}

/* --- forward passes --- */

void gm_hook_begin_sequence(struct gm_hook *hook)
{
	llama_memory_clear(llama_get_memory(hook->context), true);
	hook->position = 0;
}

uint32_t gm_hook_position(const struct gm_hook *hook)
{
	return hook->position;
}

static int check_pass(const struct gm_hook *hook, const int32_t *token, uint32_t n, struct gm_error *err)
{
	if (n == 0 || n > hook->info.n_ubatch)
		return gm_fail(err, GM_ERR_USAGE, "a pass of %u tokens: must be 1 to %u", n, hook->info.n_ubatch);
	if (n > hook->info.n_ctx - hook->position)
		return gm_fail(err, GM_ERR_USAGE, "a sequence of %u tokens: the context holds %u", hook->position + n,
			       hook->info.n_ctx);
	for (uint32_t i = 0; i < n; i++)
		if (token[i] < 0 || (uint32_t)token[i] >= hook->info.n_vocab)
			return gm_fail(err, GM_ERR_USAGE, "token %d: the vocabulary has %u", token[i], hook->info.n_vocab);
	return 0;
}

static int check_rows(const struct gm_hook *hook, uint32_t n, struct gm_error *err)
{
	for (int kind = 0; kind < HOOK_N_TENSOR; kind++) {
		if (!is_observed(hook, (enum hook_tensor)kind))
			continue;
		for (uint32_t layer = 0; layer < hook->facts.n_layer; layer++)
			if (hook->n_seen[kind][layer] != n)
				return gm_fail(err, GM_ERR_UNSUPPORTED, "%u rows for %u tokens: layer %u: must be as many",
					       hook->n_seen[kind][layer], n, hook->model_layer[layer]);
	}
	return 0;
}

int hook_decode(struct gm_hook *hook, const int32_t *token, uint32_t n, struct gm_error *err)
{
	int status;

	hook->batch.n_tokens = (int32_t)n;
	for (uint32_t i = 0; i < n; i++) {
		hook->batch.token[i] = token[i];
		hook->batch.pos[i] = (llama_pos)(hook->position + i);
		hook->batch.n_seq_id[i] = 1;
		hook->batch.seq_id[i][0] = 0;
		hook->batch.logits[i] = 1; /* else the last layer's rows for this token are left out */
	}
	hook_log_forget_error();
	status = llama_decode(hook->context, hook->batch);
	if (status == 0)
		return 0;
	return hook_fail(err, status == 1 ? GM_ERR_MEMORY : GM_ERR_IO, "the forward pass failed", hook->file.name);
}

int gm_hook_pass(struct gm_hook *hook, const int32_t *token, uint32_t n, struct gm_error *err)
{
	struct gm_error failure = {0};
	int status;

	GM_TRY(check_pass(hook, token, n, err));
	for (int kind = 0; kind < HOOK_N_TENSOR; kind++)
		memset(hook->n_seen[kind], 0, hook->facts.n_layer * sizeof(uint32_t));
	memset(&hook->err, 0, sizeof(hook->err));
	status = hook_decode(hook, token, n, &failure);
	if (hook->err.code) /* comes first: the pass may have failed because of it */
		return gm_fail(err, hook->err.code, "%s", hook->err.text);
	if (status < 0)
		return gm_fail(err, failure.code, "%s", failure.text);
	hook->position += n;
	return hook->info.bare ? 0 : check_rows(hook, n, err);
}

const float *gm_hook_output(const struct gm_hook *hook, uint32_t i)
{
	return llama_get_logits_ith(hook->context, (int32_t)i);
}

/* --- text --- */

int gm_hook_tokenize(const struct gm_hook *hook, const char *text, size_t size, bool special, int32_t **token, size_t *n,
		     struct gm_error *err)
{
	int32_t count;

	*token = NULL;
	*n = 0;
	if (size > INT32_MAX / 2)
		return gm_fail(err, GM_ERR_USAGE, "a text of %zu bytes: at most %d", size, INT32_MAX / 2);
	if (llama_vocab_type(hook->vocab) == LLAMA_VOCAB_TYPE_NONE)
		return gm_fail(err, GM_ERR_UNSUPPORTED, "no tokenizer: %s: the model file has none", hook->file.name);
	count = llama_tokenize(hook->vocab, text, (int32_t)size, NULL, 0, true, special);
	if (count == INT32_MIN)
		return gm_fail(err, GM_ERR_USAGE, "the text has too many tokens");
	*token = gm_alloc(count < 0 ? (size_t)-count : 0, sizeof(**token), err);
	if (!*token)
		return GM_ERR_MEMORY;
	if (count < 0)
		count = llama_tokenize(hook->vocab, text, (int32_t)size, *token, -count, true, special);
	if (count < 0) {
		free(*token);
		*token = NULL;
		return gm_fail(err, GM_ERR_FORMAT, "the text cannot be made into tokens");
	}
	*n = (size_t)count;
	return 0;
}

size_t gm_hook_token_text(const struct gm_hook *hook, int32_t token, char *text, size_t size)
{
	int32_t n = llama_token_to_piece(hook->vocab, token, text, size > INT32_MAX ? INT32_MAX : (int32_t)size, 0, true);

	return n < 0 ? 0 : (size_t)n;
}

bool gm_hook_is_end(const struct gm_hook *hook, int32_t token)
{
	return llama_vocab_is_eog(hook->vocab, token);
}
