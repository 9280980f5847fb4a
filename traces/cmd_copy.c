#include "traces/commands.h"

#include <stdlib.h>
#include <string.h>

struct gm_copy {
	struct gm_writer *writer;
	enum gm_trace_kind kind;
	uint32_t n_head;
	enum gm_tail tail;
	bool logprobs, predictions;
	uint32_t n_layer;      /* of the output */
	uint32_t *from_layer;  /* [n_layer] of the input */
	struct gm_model input; /* facts of the input: gm_block_logits wants its shape */
	bool fresh;            /* no token of this trace has been copied yet */
	uint32_t sequence, pass;
	uint64_t n_token;
	float *logits, *tail_logits; /* [n_expert] */
	uint8_t *in_head;            /* [n_expert] scratch */
};

/* --- what the rows hold, what the output asks for --- */

bool gm_has_all_logits(const struct gm_trace *trace)
{
	return gm_trace_kind(trace) == GM_KIND_LOGITS &&
	       (gm_trace_tail(trace) != GM_TAIL_NONE || gm_trace_n_head(trace) == gm_trace_model(trace)->n_expert);
}

/* All logits as they were recorded: no float16 tail in between. */
static bool has_exact_logits(const struct gm_trace *trace)
{
	return gm_trace_tail(trace) == GM_TAIL_F32 || gm_trace_n_head(trace) == gm_trace_model(trace)->n_expert;
}

static int check_request(const struct gm_copy *copy, const struct gm_trace *trace, struct gm_error *err)
{
	const struct gm_model *model = gm_trace_model(trace);
	uint32_t n_head = gm_trace_n_head(trace);

	if (copy->n_head < model->top_k || copy->n_head > model->n_expert)
		return gm_fail(err, GM_ERR_USAGE, "the head must hold the selected experts: --head %u: %u to %u",
			       copy->n_head, model->top_k, model->n_expert);
	if (has_exact_logits(trace))
		return GM_OK;
	if (copy->n_head > n_head)
		return gm_fail(err, GM_ERR_USAGE,
			       "the head cannot grow: --head %u: %s: at most %u (its other logits are %s)", copy->n_head,
			       gm_trace_path(trace), n_head,
			       gm_trace_tail(trace) == GM_TAIL_NONE ? "not there" : "rounded");
	if (copy->tail > gm_trace_tail(trace))
		return gm_fail(err, GM_ERR_USAGE, "the tail cannot grow: --tail %s: %s: at most %s",
			       gm_tail_name(copy->tail), gm_trace_path(trace), gm_tail_name(gm_trace_tail(trace)));
	return GM_OK;
}

int gm_copy_begin_trace(struct gm_copy *copy, const struct gm_trace *trace, struct gm_error *err)
{
	copy->fresh = true;
	if (copy->kind == GM_KIND_TOPK)
		return GM_OK;
	return check_request(copy, trace, err);
}

/* --- life --- */

static int set_layers(struct gm_copy *copy, uint32_t n_layer, const bool *layers, struct gm_error *err)
{
	copy->from_layer = gm_alloc(n_layer, sizeof(*copy->from_layer), err);
	if (!copy->from_layer)
		return GM_ERR_MEMORY;
	for (uint32_t layer = 0; layer < n_layer; layer++)
		if (!layers || layers[layer])
			copy->from_layer[copy->n_layer++] = layer;
	return GM_OK;
}

struct gm_copy *gm_copy_new(const char *path, const struct gm_trace *trace, const struct gm_model *model,
			    const struct gm_copy_options *options, struct gm_error *err)
{
	struct gm_copy *copy = gm_alloc(1, sizeof(*copy), err);
	int status = GM_ERR_MEMORY;

	if (!copy)
		return NULL;
	copy->kind = gm_trace_kind(trace);
	copy->n_head = options->n_head ? options->n_head : gm_trace_n_head(trace);
	copy->tail = options->tail_given ? options->tail : gm_trace_tail(trace);
	/* A head of all experts needs no tail; a shorter one does. */
	if (!options->tail_given && copy->tail == GM_TAIL_NONE && copy->n_head < gm_trace_n_head(trace) &&
	    gm_trace_n_head(trace) == gm_trace_model(trace)->n_expert)
		copy->tail = GM_TAIL_F16;
	copy->logprobs = options->logprobs;
	copy->predictions = options->predictions;
	if (copy->kind == GM_KIND_TOPK)
		copy->tail = GM_TAIL_NONE;
	if (copy->kind == GM_KIND_TOPK && (options->n_head || options->tail_given))
		GM_TRY_OUT(gm_fail(err, GM_ERR_USAGE,
				   "no logits, so neither head nor tail: %s: leave --head and --tail out",
				   gm_trace_path(trace)));
	GM_TRY_OUT(gm_model_copy(&copy->input, gm_trace_model(trace), err));
	GM_TRY_OUT(gm_copy_begin_trace(copy, trace, err));
	GM_TRY_OUT(set_layers(copy, gm_trace_model(trace)->n_layer, options->layers, err));
	copy->logits = gm_alloc(model->n_expert, sizeof(*copy->logits), err);
	copy->tail_logits = gm_alloc(model->n_expert, sizeof(*copy->tail_logits), err);
	copy->in_head = gm_alloc(model->n_expert, 1, err);
	if (!copy->logits || !copy->tail_logits || !copy->in_head)
		GM_TRY_OUT(GM_ERR_MEMORY);
	struct gm_writer_options w = {.kind = copy->kind,
				      .n_head = copy->kind == GM_KIND_TOPK ? 0 : copy->n_head,
				      .tail = copy->tail,
				      .logprobs = copy->logprobs,
				      .predictions = copy->predictions,
				      .source = options->source,
				      .tool = GM_TRACES_TOOL,
				      .metadata = options->metadata};
	copy->writer = gm_writer_open(path, model, &w, err);
	status = copy->writer ? GM_OK : GM_ERR_IO;
out:
	if (status < 0) {
		gm_copy_discard(copy);
		return NULL;
	}
	return copy;
}

static void free_copy(struct gm_copy *copy)
{
	gm_model_free(&copy->input);
	free(copy->from_layer);
	free(copy->logits);
	free(copy->tail_logits);
	free(copy->in_head);
	free(copy);
}

void gm_copy_discard(struct gm_copy *copy)
{
	if (!copy)
		return;
	gm_writer_discard(copy->writer);
	free_copy(copy);
}

int gm_copy_close(struct gm_copy *copy, struct gm_error *err)
{
	int status = gm_writer_close(copy->writer, err);

	free_copy(copy);
	return status;
}

uint64_t gm_copy_n_token(const struct gm_copy *copy)
{
	return copy->n_token;
}

/* --- rows --- */

/* A row with at most the head that it has: the ranking stands, experts past the new head move to the tail. */
static int append_ranked(struct gm_copy *copy, const struct gm_block *b, uint32_t from, uint32_t to, uint32_t i,
			 uint64_t token, struct gm_error *err)
{
	size_t row = (size_t)from * b->n_token + i;
	const uint16_t *ranked = b->head + row * b->n_head;
	const float *tail = NULL;
	uint32_t n_expert = copy->input.n_expert, n = 0;

	if (copy->tail != GM_TAIL_NONE) {
		tail = copy->tail_logits;
		gm_block_logits(b, &copy->input, from, i, copy->logits);
		memset(copy->in_head, 0, n_expert);
		for (uint32_t r = 0; r < copy->n_head; r++)
			copy->in_head[ranked[r]] = 1;
		for (uint32_t e = 0; e < n_expert; e++)
			if (!copy->in_head[e])
				copy->tail_logits[n++] = copy->logits[e];
	}
	return gm_writer_append_ranked(copy->writer, to, token, ranked, b->logit + row * b->n_head, b->lse[row], tail, err);
}

static int append_row(struct gm_copy *copy, const struct gm_block *b, uint32_t to, uint32_t i, uint64_t token,
		      struct gm_error *err)
{
	uint32_t from = copy->from_layer[to];
	size_t row = (size_t)from * b->n_token + i;

	if (copy->kind == GM_KIND_TOPK)
		return gm_writer_append_topk(copy->writer, to, token, 1, b->head + row * b->n_head,
					     b->weight + row * b->top_k, err);
	if (copy->n_head <= b->n_head)
		return append_ranked(copy, b, from, to, i, token, err);
	gm_block_logits(b, &copy->input, from, i, copy->logits);
	return gm_writer_append(copy->writer, to, token, 1, copy->logits, copy->input.n_expert, err);
}

static int append_prediction(struct gm_copy *copy, const struct gm_block *b, uint32_t to, uint32_t i, uint64_t token,
			     struct gm_error *err)
{
	const uint16_t *set = b->prediction + ((size_t)copy->from_layer[to] * b->n_token + i) * b->top_k;

	if (set[0] == 0xffff)
		return GM_OK;
	return gm_writer_append_prediction(copy->writer, to, token, 1, set, err);
}

int gm_copy_token(struct gm_copy *copy, const struct gm_trace *trace, const struct gm_block *b, uint32_t i,
		  struct gm_error *err)
{
	bool new_sequence = copy->fresh || b->sequence[i] != copy->sequence;
	bool new_pass = new_sequence || b->pass[i] != copy->pass;
	const struct gm_sequence *s = gm_trace_sequence(trace, b->sequence[i]);
	uint64_t token = 0;

	if (new_sequence)
		GM_TRY(gm_writer_begin_sequence(copy->writer, s->id, s->label, err));
	GM_TRY(gm_writer_add_tokens(copy->writer, 1, &b->token[i], b->position[i], new_pass,
				    copy->logprobs && b->logprob ? &b->logprob[i] : NULL, &token, err));
	for (uint32_t layer = 0; layer < copy->n_layer; layer++) {
		if (b->present[copy->from_layer[layer] * b->n_token + i])
			GM_TRY(append_row(copy, b, layer, i, token, err));
		if (copy->predictions && b->prediction)
			GM_TRY(append_prediction(copy, b, layer, i, token, err));
	}
	copy->fresh = false;
	copy->sequence = b->sequence[i];
	copy->pass = b->pass[i];
	copy->n_token++;
	return gm_writer_complete(copy->writer, token + 1, err);
}
