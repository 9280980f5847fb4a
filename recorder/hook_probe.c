/* Learns from the graph of one forward pass what each layer's router computes.
 *
 * llama.cpp names the router's tensors as it builds them (llm_graph_context::build_moe_ffn in llama-graph.cpp, v0.4.0):
 *   ffn_moe_logits, [ffn_moe_logits_biased], ffn_moe_probs, [ffn_moe_probs_biased], [ffn_moe_group_topk,
 *   ffn_moe_probs_masked], ffn_moe_argsort, ffn_moe_topk, ffn_moe_weights, [ffn_moe_weights_softmax],
 *   [ffn_moe_weights_norm], [ffn_moe_weights_scaled]
 * Where the softmax comes after the selection, the logits themselves end up under the name ffn_moe_probs.
 */
#include "recorder/hook_private.h"

#include <stdlib.h>
#include <string.h>

static const char *const tensor_names[HOOK_N_TENSOR] = {
	[HOOK_LOGITS] = "ffn_moe_logits",
	[HOOK_LOGITS_BIASED] = "ffn_moe_logits_biased",
	[HOOK_PROBS] = "ffn_moe_probs",
	[HOOK_PROBS_BIASED] = "ffn_moe_probs_biased",
	[HOOK_PROBS_MASKED] = "ffn_moe_probs_masked",
	[HOOK_GROUP_TOPK] = "ffn_moe_group_topk",
	[HOOK_TOPK] = "ffn_moe_topk",
	[HOOK_WEIGHTS] = "ffn_moe_weights",
	[HOOK_WEIGHTS_SOFTMAX] = "ffn_moe_weights_softmax",
	[HOOK_WEIGHTS_NORM] = "ffn_moe_weights_norm",
	[HOOK_WEIGHTS_SCALED] = "ffn_moe_weights_scaled",
};

enum hook_tensor hook_tensor_find(const struct ggml_tensor *tensor, uint32_t *model_layer)
{
	static const char prefix[] = "ffn_moe_";
	const char *name = tensor->name, *device = strchr(name, '#'), *dash;
	size_t length;
	uint32_t layer = 0;

	if (device)
		name = device + 1;
	if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
		return HOOK_NONE;
	dash = strrchr(name, '-');
	if (!dash || dash[1] < '0' || dash[1] > '9')
		return HOOK_NONE;
	length = (size_t)(dash - name);
	for (dash++; *dash >= '0' && *dash <= '9' && layer <= GM_MAX_LAYER; dash++)
		layer = layer * 10 + (uint32_t)(*dash - '0');
	if (*dash && *dash != '#') /* " (view)" and the like: another tensor that took over the name */
		return HOOK_NONE;
	*model_layer = layer;
	for (int i = 0; i < HOOK_N_TENSOR; i++)
		if (strlen(tensor_names[i]) == length && memcmp(tensor_names[i], name, length) == 0)
			return (enum hook_tensor)i;
	return HOOK_NONE;
}

int hook_probe_begin(struct hook_probe *probe, uint32_t n_layer, FILE *list, struct gm_error *err)
{
	memset(probe, 0, sizeof(*probe));
	probe->layer = gm_alloc(n_layer, sizeof(*probe->layer), err);
	if (!probe->layer)
		return GM_ERR_MEMORY;
	probe->n_layer = n_layer;
	probe->list = list;
	for (uint32_t i = 0; i < n_layer; i++)
		probe->layer[i].source = HOOK_NONE;
	return 0;
}

void hook_probe_free(struct hook_probe *probe)
{
	for (uint32_t i = 0; i < probe->n_layer; i++)
		free(probe->layer[i].bias);
	free(probe->layer);
	memset(probe, 0, sizeof(*probe));
}

static void list_node(const struct hook_probe *probe, const struct ggml_tensor *tensor)
{
	if (!strstr(tensor->name, "moe") && !strstr(tensor->name, "exp"))
		return;
	fprintf(probe->list, "%-32s %-12s %-5s [%lld, %lld, %lld]\n", tensor->name, ggml_op_desc(tensor),
		ggml_type_name(tensor->type), (long long)tensor->ne[0], (long long)tensor->ne[1], (long long)tensor->ne[2]);
}

static bool is_tensor(const struct ggml_tensor *tensor, enum hook_tensor kind)
{
	uint32_t layer;

	return tensor && hook_tensor_find(tensor, &layer) == kind;
}

static void see_probs(struct hook_seen *seen, const struct ggml_tensor *probs)
{
	const struct ggml_tensor *from = probs->src[0];
	uint32_t layer;

	seen->n_expert = (uint32_t)probs->ne[0];
	if (probs->op == GGML_OP_SOFT_MAX) {
		seen->gating = GM_GATING_SOFTMAX;
	} else if (probs->op == GGML_OP_UNARY && ggml_get_unary_op(probs) == GGML_UNARY_OP_SIGMOID) {
		seen->gating = GM_GATING_SIGMOID;
	} else {
		/* logits under the name of probabilities, if a softmax over the selected follows: see see_end */
		seen->source = HOOK_PROBS;
		snprintf(seen->problem, sizeof(seen->problem), "%s comes from %s: neither softmax nor sigmoid", probs->name,
			 ggml_op_desc(probs));
		return;
	}
	seen->source = from ? hook_tensor_find(from, &layer) : HOOK_NONE;
	if (seen->source != HOOK_LOGITS && seen->source != HOOK_LOGITS_BIASED) {
		seen->source = HOOK_NONE;
		snprintf(seen->problem, sizeof(seen->problem), "%s comes from %s, not from ffn_moe_logits", probs->name,
			 from ? from->name : "nothing");
	}
}

static void refuse(struct hook_seen *seen, const char *problem)
{
	seen->source = HOOK_NONE;
	snprintf(seen->problem, sizeof(seen->problem), "%s", problem);
}

/* The selection must be the first top_k of a descending sort of what the probabilities became. */
static void see_topk(struct hook_seen *seen, const struct ggml_tensor *topk)
{
	const struct ggml_tensor *sorted = topk->view_src, *scores = sorted ? sorted->src[0] : NULL;

	seen->top_k = (uint32_t)topk->ne[0];
	if (!sorted || sorted->op != GGML_OP_ARGSORT)
		refuse(seen, "the selection is not a sort of the scores");
	else if (!is_tensor(scores, HOOK_PROBS) && !is_tensor(scores, HOOK_PROBS_BIASED) &&
		 !is_tensor(scores, HOOK_PROBS_MASKED) && !is_tensor(scores, seen->source))
		refuse(seen, "the selection sorts an unknown tensor");
}

/* Called when the biased scores have been computed: a copy of the bias on the router's device is filled by then. */
static int see_bias(struct hook_probe *probe, struct hook_seen *seen, const struct ggml_tensor *biased)
{
	const struct ggml_tensor *bias = biased->src[1];

	if (biased->op != GGML_OP_ADD || !bias || bias->type != GGML_TYPE_F32 || bias->ne[0] != biased->ne[0] ||
	    ggml_nelements(bias) != bias->ne[0] || !is_tensor(biased->src[0], HOOK_PROBS)) {
		refuse(seen, "the selection bias is not added to the probabilities");
		return 0;
	}
	free(seen->bias);
	seen->bias = gm_alloc((size_t)bias->ne[0], sizeof(float), &probe->err);
	if (!seen->bias)
		return GM_ERR_MEMORY;
	ggml_backend_tensor_get(bias, seen->bias, 0, (size_t)bias->ne[0] * sizeof(float));
	return 0;
}

bool hook_probe_node(struct hook_probe *probe, struct ggml_tensor *tensor, bool ask)
{
	enum hook_tensor kind;
	struct hook_seen *seen;
	uint32_t layer;

	if (probe->list && ask)
		list_node(probe, tensor);
	kind = hook_tensor_find(tensor, &layer);
	if (kind == HOOK_NONE || layer >= probe->n_layer)
		return !ask;
	seen = &probe->layer[layer];
	if (!ask) {
		see_bias(probe, seen, tensor);
		return true;
	}
	seen->any = seen->has[kind] = true;
	if (kind == HOOK_PROBS)
		see_probs(seen, tensor);
	else if (kind == HOOK_TOPK)
		see_topk(seen, tensor);
	else if (kind == HOOK_GROUP_TOPK)
		seen->n_group_used = (uint32_t)tensor->ne[0];
	return kind == HOOK_PROBS_BIASED;
}

/* What can only be said when the whole layer has been seen. */
static void see_end(struct hook_seen *seen)
{
	if (seen->source == HOOK_PROBS) {
		if (!seen->has[HOOK_WEIGHTS_SOFTMAX]) {
			seen->source = HOOK_NONE;
			return;
		}
		seen->gating = GM_GATING_SOFTMAX;
		seen->softmax_after = true;
		if (seen->has[HOOK_PROBS_BIASED] || seen->has[HOOK_PROBS_MASKED])
			refuse(seen, "selection bias or groups on logits");
	}
	if (!seen->has[HOOK_PROBS])
		refuse(seen, "there is no ffn_moe_probs");
	else if (!seen->has[HOOK_TOPK] || !seen->has[HOOK_WEIGHTS])
		refuse(seen, "there is no ffn_moe_topk or no ffn_moe_weights");
}

static bool agree(const struct hook_seen *a, const struct hook_seen *b)
{
	return a->source == b->source && a->gating == b->gating && a->softmax_after == b->softmax_after &&
	       a->n_expert == b->n_expert && a->top_k == b->top_k && a->n_group_used == b->n_group_used &&
	       !a->bias == !b->bias && memcmp(a->has, b->has, sizeof(a->has)) == 0;
}

int hook_probe_end(const struct hook_probe *probe, const char *path, uint32_t *first, struct gm_error *err)
{
	bool found = false;

	if (probe->err.code)
		return gm_fail(err, probe->err.code, "%s", probe->err.text);
	for (uint32_t i = 0; i < probe->n_layer; i++) {
		struct hook_seen *seen = &probe->layer[i];

		if (!seen->any)
			continue;
		see_end(seen);
		if (seen->source == HOOK_NONE)
			return gm_fail(err, GM_ERR_UNSUPPORTED,
				       "router not understood: %s: layer %u: %s (see --list-tensors)", path, i,
				       seen->problem);
		if (found && !agree(seen, &probe->layer[*first]))
			return gm_fail(err, GM_ERR_UNSUPPORTED,
				       "layers %u and %u route differently: %s: a trace has one rule for all", *first, i,
				       path);
		if (!found)
			*first = i;
		found = true;
	}
	if (!found)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "router not understood: %s: its graph has no ffn_moe_* tensors (see --list-tensors)", path);
	return 0;
}
