/* Traces as the caller of the reference replay makes them. */
#include "tests/reference/reference_private.h"

#include <stdlib.h>
#include <string.h>

void ref_trace_init(struct ref_trace *trace, uint32_t n_layer, uint32_t n_expert, uint32_t top_k, uint32_t n_token)
{
	memset(trace, 0, sizeof(*trace));
	trace->n_layer = n_layer;
	trace->n_expert = n_expert;
	trace->top_k = top_k;
	trace->gating = REF_SOFTMAX;
	trace->n_token = n_token;
	trace->expert_bytes = zalloc(n_layer, sizeof(uint64_t));
	trace->dense_bytes = zalloc(n_layer, sizeof(uint64_t));
	trace->sequence = zalloc(n_token, sizeof(uint32_t));
	trace->pass = zalloc(n_token, sizeof(uint32_t));
	trace->present = zalloc((size_t)n_token * n_layer, 1);
	trace->logit = zalloc((size_t)n_token * n_layer * n_expert, sizeof(float));
	for (uint32_t l = 0; l < n_layer; l++)
		trace->expert_bytes[l] = 1;
	for (uint32_t t = 0; t < n_token; t++)
		trace->pass[t] = t;
	memset(trace->present, 1, (size_t)n_token * n_layer);
}

void ref_trace_free(struct ref_trace *trace)
{
	free(trace->bias);
	free(trace->expert_bytes);
	free(trace->dense_bytes);
	free(trace->sequence);
	free(trace->pass);
	free(trace->present);
	free(trace->logit);
	memset(trace, 0, sizeof(*trace));
}

float *ref_trace_row(struct ref_trace *trace, uint32_t token, uint32_t layer)
{
	return trace->logit + row_index(trace, token, layer) * trace->n_expert;
}

int ref_trace_is_valid(const struct ref_trace *trace)
{
	if (trace->n_layer == 0 || trace->n_expert == 0 || trace->top_k == 0 || trace->top_k > trace->n_expert)
		return 0;
	if (trace->n_group > 1) {
		if (trace->n_expert % trace->n_group != 0)
			return 0;
		if (trace->topk_group == 0 || trace->topk_group > trace->n_group)
			return 0;
		/* R2: fewer than k eligible. */
		if (trace->topk_group * (trace->n_expert / trace->n_group) < trace->top_k)
			return 0;
	}
	return 1;
}
