/* Tokens and rows on their way into the writer's pending blocks. */
#include "traces/writer_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int gm_writer_begin_sequence(struct gm_writer *w, const char *id, const char *label, struct gm_error *err)
{
	id = id ? id : "";
	label = label ? label : "";
	if (strlen(id) > GM_MAX_TEXT_BYTES || strlen(label) > GM_MAX_TEXT_BYTES)
		return gm_fail(err, GM_ERR_USAGE, "text too long: id or label of sequence %u: must be at most %u bytes",
			       w->out.index.n_sequence, GM_MAX_TEXT_BYTES);
	if (!gm_is_utf8(id) || !gm_is_utf8(label))
		return gm_fail(err, GM_ERR_USAGE, "text that is not UTF-8: id or label of sequence %u: write UTF-8",
			       w->out.index.n_sequence);
	w->pass_ended = true;
	return gm_index_add_sequence(&w->out.index, id, label, w->n_token, err);
}

static uint64_t first_pending(const struct gm_writer *w)
{
	return w->n_queued ? w->queue[0]->first : w->n_token;
}

/* The pending block and slot of a token that is known to be pending. */
static struct gm_pending *find(const struct gm_writer *w, uint64_t token, uint32_t *slot)
{
	uint64_t distance = token - w->queue[0]->first;

	*slot = (uint32_t)(distance % GM_BLOCK_TOKENS);
	return w->queue[distance / GM_BLOCK_TOKENS];
}

static int check_pending(const struct gm_writer *w, uint64_t first, uint32_t n, struct gm_error *err)
{
	uint64_t oldest = first_pending(w);

	if (first < oldest)
		return gm_fail(err, GM_ERR_USAGE, "token %llu was written already: must be one from %llu to %llu",
			       (unsigned long long)first, (unsigned long long)oldest, (unsigned long long)w->n_token);
	if (first > w->n_token || n > w->n_token - first)
		return gm_fail(err, GM_ERR_USAGE, "tokens %llu to %llu: only %llu were declared", (unsigned long long)first,
			       (unsigned long long)first + n, (unsigned long long)w->n_token);
	return GM_OK;
}

static int check_layer(const struct gm_writer *w, uint32_t layer, struct gm_error *err)
{
	if (layer >= w->geometry.n_layer)
		return gm_fail(err, GM_ERR_USAGE, "layer %u: must be below n_layer (%u)", layer, w->geometry.n_layer);
	return GM_OK;
}

static int check_kind(const struct gm_writer *w, enum gm_trace_kind kind, struct gm_error *err)
{
	if (w->geometry.kind != kind)
		return gm_fail(err, GM_ERR_USAGE, "a row %s for a trace of kind %s",
			       kind == GM_KIND_TOPK ? "without logits" : "of logits",
			       kind == GM_KIND_TOPK ? "logits" : "topk");
	return GM_OK;
}

int gm_writer_add_tokens(struct gm_writer *w, uint32_t n, const int32_t *token, uint32_t position, bool new_pass,
			 const float *logprob, uint64_t *first, struct gm_error *err)
{
	uint64_t pending = w->n_token - first_pending(w);

	if (w->out.index.n_sequence == 0)
		return gm_fail(err, GM_ERR_USAGE, "tokens before any sequence: gm_writer_begin_sequence must come first");
	if (n > GM_WRITER_MAX_PENDING - pending)
		return gm_fail(err, GM_ERR_USAGE,
			       "%u tokens more while %llu wait for their rows: at most %u may wait (complete them)", n,
			       (unsigned long long)pending, GM_WRITER_MAX_PENDING);
	if (n > 0 && position > UINT32_MAX - (n - 1))
		return gm_fail(err, GM_ERR_USAGE, "position %u and %u more: must stay below 2^32", position, n);
	if (first)
		*first = w->n_token;
	if (n == 0)
		return GM_OK;
	if (new_pass || w->pass_ended)
		w->n_pass++;
	w->pass_ended = false;
	for (uint32_t i = 0; i < n; i++) {
		struct gm_pending *p = w->n_queued ? w->queue[w->n_queued - 1] : NULL;
		if (!p || p->n_token == GM_BLOCK_TOKENS)
			p = gm_writer_new_block(w, err);
		if (!p)
			return GM_ERR_MEMORY;
		uint32_t slot = p->n_token++;
		p->token[slot] = token ? token[i] : -1;
		p->sequence[slot] = w->out.index.n_sequence - 1;
		p->position[slot] = position + i;
		p->pass[slot] = w->n_pass - 1;
		p->logprob[slot] = logprob ? logprob[i] : NAN;
		p->logprob_waits[slot] = w->geometry.logprobs && !logprob;
		p->waiting[slot] = w->geometry.n_layer + p->logprob_waits[slot];
		p->n_waiting += p->waiting[slot];
		w->out.index.sequence[w->out.index.n_sequence - 1].n_token++;
		w->n_token++;
	}
	return GM_OK;
}

static void got_one(struct gm_pending *p, uint32_t slot)
{
	p->waiting[slot]--;
	p->n_waiting--;
}

int gm_writer_set_logprobs(struct gm_writer *w, uint64_t first, uint32_t n, const float *logprob, struct gm_error *err)
{
	if (!w->geometry.logprobs)
		return gm_fail(err, GM_ERR_USAGE, "log-probabilities for a trace that was opened without them");
	GM_TRY(check_pending(w, first, n, err));
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot;
		struct gm_pending *p = find(w, first + i, &slot);
		p->logprob[slot] = logprob[i];
		if (p->logprob_waits[slot] && !p->complete[slot])
			got_one(p, slot);
		p->logprob_waits[slot] = false;
	}
	return gm_writer_pump(w, false, err);
}

int gm_writer_complete(struct gm_writer *w, uint64_t end, struct gm_error *err)
{
	end = end < w->n_token ? end : w->n_token;
	for (uint32_t b = 0; b < w->n_queued; b++) {
		struct gm_pending *p = w->queue[b];
		for (uint32_t slot = 0; slot < p->n_token && p->first + slot < end; slot++) {
			p->n_waiting -= p->waiting[slot];
			p->waiting[slot] = 0;
			p->complete[slot] = true;
		}
	}
	return gm_writer_pump(w, false, err);
}

/* --- rows --- */

/* The place of a new row, or an error if it is there or may not come any more. */
static int claim(struct gm_writer *w, uint32_t layer, uint64_t token, struct gm_pending **p, uint32_t *slot, size_t *row,
		 struct gm_error *err)
{
	*p = find(w, token, slot);
	*row = (size_t)layer * GM_BLOCK_TOKENS + *slot;
	if ((*p)->present[*row])
		return gm_fail(err, GM_ERR_USAGE, "the row is given twice: token %llu, layer %u: must come once",
			       (unsigned long long)token, layer);
	if ((*p)->complete[*slot])
		return gm_fail(err, GM_ERR_USAGE, "a row after its token was declared complete: token %llu, layer %u",
			       (unsigned long long)token, layer);
	return GM_OK;
}

static void keep(struct gm_pending *p, uint32_t slot, size_t row)
{
	p->present[row] = 1;
	got_one(p, slot);
}

/* Puts one logit of the tail in its place; expert is for the message. */
static int put_tail(const struct gm_writer *w, struct gm_pending *p, size_t at, float value, uint32_t expert,
		    struct gm_error *err)
{
	if (w->geometry.tail == GM_TAIL_F32) {
		p->tail_32[at] = value;
		return GM_OK;
	}
	uint16_t half = gm_to_f16(value);
	if (half == GM_F16_OVERFLOW)
		return gm_fail(err, GM_ERR_FORMAT,
			       "the logit %g does not fit a float16 tail: expert %u: must be below 65520, or the tail f32",
			       (double)value, expert);
	p->tail_16[at] = half;
	return GM_OK;
}

static int put_tail_of_row(struct gm_writer *w, struct gm_pending *p, size_t row, const float *logits, struct gm_error *err)
{
	const struct gm_geometry *g = &w->geometry;
	const uint16_t *head = p->head + row * g->n_head;
	size_t at = row * (g->n_expert - g->n_head);
	int status = GM_OK;

	for (uint32_t r = 0; r < g->n_head; r++)
		w->in_head[head[r]] = 1;
	for (uint32_t e = 0; e < g->n_expert && status == GM_OK; e++)
		if (!w->in_head[e])
			status = put_tail(w, p, at++, logits[e], e, err);
	for (uint32_t r = 0; r < g->n_head; r++)
		w->in_head[head[r]] = 0;
	return status;
}

static int append_row(struct gm_writer *w, uint32_t layer, uint64_t token, const float *logits, struct gm_error *err)
{
	const struct gm_geometry *g = &w->geometry;
	struct gm_pending *p;
	uint32_t slot;
	size_t row;

	GM_TRY(claim(w, layer, token, &p, &slot, &row, err));
	uint16_t *head = p->head + row * g->n_head;
	int status = gm_select_rank(w->selector, layer, logits, head, &p->lse[row], err);
	if (status == GM_OK && gm_column_parts(g, GM_COLUMN_TAIL))
		status = put_tail_of_row(w, p, row, logits, err);
	if (status < 0) {
		gm_error_at(err, "token %llu, layer %u", (unsigned long long)token, layer);
		return status;
	}
	for (uint32_t r = 0; r < g->n_head; r++)
		p->logit[row * g->n_head + r] = logits[head[r]];
	keep(p, slot, row);
	return GM_OK;
}

int gm_writer_append(struct gm_writer *w, uint32_t layer, uint64_t first, uint32_t n, const float *logits, size_t stride,
		     struct gm_error *err)
{
	GM_TRY(check_kind(w, GM_KIND_LOGITS, err));
	GM_TRY(check_layer(w, layer, err));
	GM_TRY(check_pending(w, first, n, err));
	for (uint32_t i = 0; i < n; i++)
		GM_TRY(append_row(w, layer, first + i, logits + i * stride, err));
	return gm_writer_pump(w, false, err);
}

/* All experts of a list below n_expert and distinct. */
static int check_experts(struct gm_writer *w, const uint16_t *expert, uint32_t n, struct gm_error *err)
{
	uint32_t n_expert = w->geometry.n_expert, seen = 0;
	int status = GM_OK;

	for (; seen < n && status == GM_OK; seen++) {
		if (expert[seen] >= n_expert)
			status = gm_fail(err, GM_ERR_FORMAT, "expert %u: rank %u: must be below n_expert (%u)",
					 expert[seen], seen + 1, n_expert);
		else if (w->in_head[expert[seen]])
			status = gm_fail(err, GM_ERR_FORMAT, "expert %u stands there twice: rank %u: must stand once",
					 expert[seen], seen + 1);
		else
			w->in_head[expert[seen]] = 1;
	}
	for (uint32_t i = 0; i < seen; i++)
		if (expert[i] < n_expert)
			w->in_head[expert[i]] = 0;
	return status;
}

static int put_weights(double *out, const double *weight, uint32_t top_k, struct gm_error *err)
{
	double sum = 0;

	for (uint32_t i = 0; i < top_k; i++) {
		if (!(weight[i] >= 0))
			return gm_fail(err, GM_ERR_FORMAT, "the weight %g: rank %u: must be a number from 0 on", weight[i],
				       i + 1);
		sum += weight[i];
	}
	if (!(sum > 0 && isfinite(sum)))
		return gm_fail(err, GM_ERR_FORMAT, "the weights sum to %g: must be more than 0 and finite", sum);
	bool as_they_are = fabs(sum - 1) <= 1e-12;
	for (uint32_t i = 0; i < top_k; i++)
		out[i] = as_they_are ? weight[i] : weight[i] / sum;
	return GM_OK;
}

static int append_topk_row(struct gm_writer *w, uint32_t layer, uint64_t token, const uint16_t *expert,
			   const double *weight, struct gm_error *err)
{
	uint32_t top_k = w->geometry.top_k;
	struct gm_pending *p;
	uint32_t slot;
	size_t row;

	GM_TRY(claim(w, layer, token, &p, &slot, &row, err));
	int status = check_experts(w, expert, top_k, err);
	if (status == GM_OK)
		status = put_weights(p->weight + row * top_k, weight, top_k, err);
	if (status < 0) {
		gm_error_at(err, "token %llu, layer %u", (unsigned long long)token, layer);
		return status;
	}
	memcpy(p->head + row * top_k, expert, top_k * sizeof(*expert));
	keep(p, slot, row);
	return GM_OK;
}

int gm_writer_append_topk(struct gm_writer *w, uint32_t layer, uint64_t first, uint32_t n, const uint16_t *expert,
			  const double *weight, struct gm_error *err)
{
	uint32_t top_k = w->geometry.top_k;

	GM_TRY(check_kind(w, GM_KIND_TOPK, err));
	GM_TRY(check_layer(w, layer, err));
	GM_TRY(check_pending(w, first, n, err));
	for (uint32_t i = 0; i < n; i++)
		GM_TRY(append_topk_row(w, layer, first + i, expert + (size_t)i * top_k, weight + (size_t)i * top_k, err));
	return gm_writer_pump(w, false, err);
}

/* A ranking that came from outside: finite, and in order where the logits alone give it (no bias, no groups). */
static int check_ranked(struct gm_writer *w, const uint16_t *ranked, const float *logits, double lse, struct gm_error *err)
{
	uint32_t n_head = w->geometry.n_head;
	bool by_logit = !w->model.bias && w->model.n_group <= 1;

	GM_TRY(check_experts(w, ranked, n_head, err));
	if (!isfinite(lse))
		return gm_fail(err, GM_ERR_FORMAT, "the log-sum-exp is not a finite number");
	for (uint32_t r = 0; r < n_head; r++) {
		if (!isfinite(logits[r]))
			return gm_fail(err, GM_ERR_FORMAT, "the logit is not a finite number: expert %u", ranked[r]);
		if (by_logit && r > 0 &&
		    (logits[r] > logits[r - 1] || (logits[r] == logits[r - 1] && ranked[r] < ranked[r - 1])))
			return gm_fail(err, GM_ERR_FORMAT, "expert %u belongs before expert %u: rank %u", ranked[r],
				       ranked[r - 1], r + 1);
	}
	return GM_OK;
}

static int put_given_tail(struct gm_writer *w, struct gm_pending *p, size_t row, const uint16_t *ranked, const float *tail,
			  struct gm_error *err)
{
	const struct gm_geometry *g = &w->geometry;
	uint32_t n_tail = g->n_expert - g->n_head, i = 0;
	int status = GM_OK;

	if (!tail)
		return gm_fail(err, GM_ERR_USAGE, "a row without its tail for a trace that keeps one");
	for (uint32_t r = 0; r < g->n_head; r++)
		w->in_head[ranked[r]] = 1;
	for (uint32_t e = 0; e < g->n_expert && status == GM_OK; e++) {
		if (w->in_head[e])
			continue;
		if (!isfinite(tail[i]))
			status = gm_fail(err, GM_ERR_FORMAT, "the logit is not a finite number: expert %u", e);
		else
			status = put_tail(w, p, row * n_tail + i, tail[i], e, err);
		i++;
	}
	for (uint32_t r = 0; r < g->n_head; r++)
		w->in_head[ranked[r]] = 0;
	return status;
}

int gm_writer_append_ranked(struct gm_writer *w, uint32_t layer, uint64_t token, const uint16_t *ranked,
			    const float *logits, double lse, const float *tail, struct gm_error *err)
{
	const struct gm_geometry *g = &w->geometry;
	struct gm_pending *p;
	uint32_t slot;
	size_t row;

	GM_TRY(check_kind(w, GM_KIND_LOGITS, err));
	GM_TRY(check_layer(w, layer, err));
	GM_TRY(check_pending(w, token, 1, err));
	GM_TRY(claim(w, layer, token, &p, &slot, &row, err));
	int status = check_ranked(w, ranked, logits, lse, err);
	if (status == GM_OK && gm_column_parts(g, GM_COLUMN_TAIL))
		status = put_given_tail(w, p, row, ranked, tail, err);
	if (status < 0) {
		gm_error_at(err, "token %llu, layer %u", (unsigned long long)token, layer);
		return status;
	}
	memcpy(p->head + row * g->n_head, ranked, g->n_head * sizeof(*ranked));
	memcpy(p->logit + row * g->n_head, logits, g->n_head * sizeof(*logits));
	p->lse[row] = lse;
	keep(p, slot, row);
	return gm_writer_pump(w, false, err);
}

int gm_writer_append_prediction(struct gm_writer *w, uint32_t layer, uint64_t first, uint32_t n, const uint16_t *expert,
				struct gm_error *err)
{
	uint32_t top_k = w->geometry.top_k;

	if (!w->geometry.predictions)
		return gm_fail(err, GM_ERR_USAGE, "predictions for a trace that was opened without them");
	GM_TRY(check_layer(w, layer, err));
	GM_TRY(check_pending(w, first, n, err));
	for (size_t i = 0; i < (size_t)n * top_k; i++)
		if (expert[i] >= w->geometry.n_expert && expert[i] != 0xffff)
			return gm_fail(err, GM_ERR_FORMAT,
				       "predicted expert %u: token %llu, layer %u: must be below n_expert (%u), or 65535",
				       expert[i], (unsigned long long)first + i / top_k, layer, w->geometry.n_expert);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot;
		struct gm_pending *p = find(w, first + i, &slot);
		memcpy(p->prediction + ((size_t)layer * GM_BLOCK_TOKENS + slot) * top_k, expert + (size_t)i * top_k,
		       top_k * sizeof(*expert));
	}
	return GM_OK;
}
