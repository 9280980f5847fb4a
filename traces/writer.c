/* The writer: tokens and rows wait in blocks of 64 until they are whole, then go out in order. */
#include "traces/writer_private.h"

#include "base/version.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- header --- */

static const char *const tail_names[] = {"none", "f16", "f32"};

static bool is_model_key(const char *key)
{
	static const char *const keys[] = {"model",        "n_layer",     "n_expert", "n_expert_used", "gating",
					   "expert_bytes", "dense_bytes", "bias",     "n_group",       "topk_group"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (strcmp(key, keys[i]) == 0)
			return true;
	return false;
}

/* The members of the metadata that the header does not have by itself. */
static int add_metadata(struct gm_json *header, const struct gm_json *metadata, struct gm_error *err)
{
	if (!metadata)
		return GM_OK;
	if (gm_json_type(metadata) != GM_JSON_OBJECT)
		return gm_fail(err, GM_ERR_USAGE, "not a JSON object: metadata of a trace: must be one");
	for (const struct gm_json *m = gm_json_first(metadata); m; m = gm_json_next(m)) {
		const char *key = gm_json_key(m);
		if (is_model_key(key) || gm_json_get(header, key))
			continue;
		struct gm_json *copy = gm_json_copy(m, err);
		if (!copy)
			return GM_ERR_MEMORY;
		if (!gm_json_add(header, key, copy))
			return gm_fail(err, GM_ERR_MEMORY, "out of memory: header");
	}
	return GM_OK;
}

/* The reader refuses a header that is not UTF-8: then the whole recording would be lost. */
static int check_texts(const struct gm_model *model, const struct gm_writer_options *options, struct gm_error *err)
{
	const struct {
		const char *text, *what;
	} texts[] = {{model->name, "model"}, {options->source, "source"}, {options->tool, "tool"}};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].text && !gm_is_utf8(texts[i].text))
			return gm_fail(err, GM_ERR_USAGE,
				       "text that is not UTF-8: %s for the header of a trace: write UTF-8", texts[i].what);
	char *metadata = options->metadata ? gm_json_print(options->metadata, false) : NULL;

	if (options->metadata && !metadata)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory: header");
	bool right = !metadata || gm_is_utf8(metadata);

	free(metadata);
	return right ? GM_OK
		     : gm_fail(err, GM_ERR_USAGE,
			       "text that is not UTF-8: metadata for the header of a trace: write UTF-8");
}

static int build_header(const struct gm_writer *w, const struct gm_writer_options *options, struct gm_json *header,
			struct gm_error *err)
{
	const struct gm_geometry *g = &w->geometry;

	bool ok = gm_json_add_string(header, "format", "gatemass-trace") &&
		  gm_json_add_string(header, "kind", g->kind == GM_KIND_TOPK ? "topk" : "logits") &&
		  gm_json_add_uint(header, "head", g->n_head) && gm_json_add_string(header, "tail", tail_names[g->tail]) &&
		  gm_json_add_bool(header, "logprobs", g->logprobs) &&
		  gm_json_add_bool(header, "predictions", g->predictions) &&
		  gm_json_add_string(header, "tool", options->tool ? options->tool : "gatemass " GM_VERSION);
	if (ok && options->source)
		ok = gm_json_add_string(header, "source", options->source);
	if (!ok)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory: header");
	GM_TRY(gm_model_to_json(&w->model, header, err));
	return add_metadata(header, options->metadata, err);
}

static int write_header(struct gm_writer *w, const struct gm_writer_options *options, struct gm_error *err)
{
	struct gm_json *header = gm_json_new_object();
	char *text = NULL;
	int status;

	if (!header)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory: header");
	GM_TRY_OUT(build_header(w, options, header, err));
	text = gm_json_print(header, false);
	if (!text) {
		status = GM_ERR_MEMORY;
		gm_fail(err, status, "out of memory: header");
		goto out;
	}
	GM_TRY_OUT(gm_trace_out_head(&w->out, text, strlen(text), err));
out:
	free(text);
	gm_json_free(header);
	return status;
}

/* --- open and close --- */

static int set_geometry(struct gm_writer *w, const struct gm_writer_options *options, struct gm_error *err)
{
	const struct gm_model *m = &w->model;
	uint32_t n_head = options->n_head;

	if (options->kind == GM_KIND_TOPK) {
		if (n_head != 0 && n_head != m->top_k)
			return gm_fail(err, GM_ERR_USAGE, "a top-k trace with a head of %u: must be n_expert_used (%u)",
				       n_head, m->top_k);
		if (options->tail != GM_TAIL_NONE)
			return gm_fail(err, GM_ERR_USAGE, "a top-k trace with a tail: it has no logits, must be none");
		n_head = m->top_k;
	} else if (n_head == 0) {
		n_head = m->top_k > GM_DEFAULT_HEAD ? m->top_k : GM_DEFAULT_HEAD;
		n_head = n_head < m->n_expert ? n_head : m->n_expert;
	}
	if (n_head < m->top_k || n_head > m->n_expert)
		return gm_fail(err, GM_ERR_USAGE, "a head of %u experts: must be from %u (experts used) to %u (all)",
			       n_head, m->top_k, m->n_expert);
	w->geometry = (struct gm_geometry){.kind = options->kind,
					   .tail = options->tail,
					   .n_layer = m->n_layer,
					   .n_expert = m->n_expert,
					   .n_head = n_head,
					   .top_k = m->top_k,
					   .logprobs = options->logprobs,
					   .predictions = options->predictions};
	return GM_OK;
}

static int set_up(struct gm_writer *w, const char *path, const struct gm_model *model,
		  const struct gm_writer_options *options, struct gm_error *err)
{
	GM_TRY(gm_model_check(model, err));
	GM_TRY(check_texts(model, options, err));
	GM_TRY(gm_model_copy(&w->model, model, err));
	GM_TRY(set_geometry(w, options, err));
	w->level = options->level;
	w->on_block = options->on_block;
	w->user = options->user;
	w->codec = gm_codec_new(&w->geometry, err);
	w->in_head = gm_alloc(model->n_expert, 1, err);
	if (!w->codec || !w->in_head)
		return GM_ERR_MEMORY;
	if (w->geometry.kind == GM_KIND_LOGITS) {
		w->selector = gm_selector_new(&w->model, w->geometry.n_head, err);
		if (!w->selector)
			return err ? err->code : GM_ERR_MEMORY;
	}
	GM_TRY(gm_trace_out_open(&w->out, path, ".part", true, err));
	return write_header(w, options, err);
}

static void free_writer(struct gm_writer *w, bool keep)
{
	for (uint32_t i = 0; i < w->n_queued; i++)
		gm_pending_free(w->queue[i]);
	gm_pending_free(w->spare);
	gm_trace_out_release(&w->out, keep);
	gm_selector_free(w->selector);
	gm_codec_free(w->codec);
	gm_model_free(&w->model);
	gm_buffer_free(&w->frame);
	free(w->in_head);
	free(w);
}

struct gm_writer *gm_writer_open(const char *path, const struct gm_model *model, const struct gm_writer_options *options,
				 struct gm_error *err)
{
	struct gm_writer *w = gm_alloc(1, sizeof(*w), err);

	if (!w)
		return NULL;
	w->out.fd = -1;
	if (set_up(w, path, model, options, err) < 0) {
		free_writer(w, false);
		return NULL;
	}
	return w;
}

int gm_writer_close(struct gm_writer *w, struct gm_error *err)
{
	int status = gm_writer_flush(w, err);

	if (status == GM_OK)
		status = gm_trace_out_finish(&w->out, err);
	free_writer(w, true);
	return status;
}

/* Forgets the first token that waits for something, and all after it. */
static void drop_incomplete(struct gm_writer *w)
{
	for (uint32_t b = 0; b < w->n_queued; b++) {
		struct gm_pending *p = w->queue[b];
		uint32_t slot = 0;

		while (slot < p->n_token && p->waiting[slot] == 0)
			slot++;
		if (slot == p->n_token)
			continue;
		p->n_token = slot;
		while (w->n_queued > b + 1)
			gm_pending_free(w->queue[--w->n_queued]);
	}
}

uint64_t gm_writer_abandon(struct gm_writer *w)
{
	uint64_t kept;

	drop_incomplete(w);
	gm_writer_pump(w, true, NULL); /* where writing is what failed, the blocks before stand */
	kept = w->out.part && !gm_trace_out_removed(&w->out) ? w->out.index.n_token : 0;
	free_writer(w, true);
	return kept;
}

void gm_writer_discard(struct gm_writer *w)
{
	if (w)
		free_writer(w, false);
}

uint64_t gm_writer_bytes(const struct gm_writer *w)
{
	return w->out.offset;
}

uint64_t gm_writer_blocks(const struct gm_writer *w)
{
	return w->out.index.n_block;
}

/* --- blocks on their way out --- */

void gm_pending_free(struct gm_pending *p)
{
	if (!p)
		return;
	free(p->token);
	free(p->sequence);
	free(p->position);
	free(p->pass);
	free(p->logprob);
	free(p->present);
	free(p->head);
	free(p->logit);
	free(p->lse);
	free(p->weight);
	free(p->tail_16);
	free(p->tail_32);
	free(p->prediction);
	free(p);
}

/* A block's room; absent arrays stay NULL. Rows' arrays are not zeroed on reuse: present[] says which are there. */
static struct gm_pending *new_pending(const struct gm_geometry *g, struct gm_error *err)
{
	size_t n = GM_BLOCK_TOKENS, n_row = n * g->n_layer;
	bool logits = g->kind == GM_KIND_LOGITS, ok = true;
	size_t n_tail = gm_column_parts(g, GM_COLUMN_TAIL) ? g->n_expert - g->n_head : 0;
	struct gm_pending *p = gm_alloc(1, sizeof(*p), err);

	if (!p)
		return NULL;
	ok = ok && (p->token = gm_alloc(n, sizeof(*p->token), err));
	ok = ok && (p->sequence = gm_alloc(n, sizeof(*p->sequence), err));
	ok = ok && (p->position = gm_alloc(n, sizeof(*p->position), err));
	ok = ok && (p->pass = gm_alloc(n, sizeof(*p->pass), err));
	ok = ok && (p->logprob = gm_alloc(n, sizeof(*p->logprob), err));
	ok = ok && (p->present = gm_alloc(n_row, 1, err));
	ok = ok && (p->head = gm_alloc(n_row * g->n_head, sizeof(*p->head), err));
	if (logits) {
		ok = ok && (p->logit = gm_alloc(n_row * g->n_head, sizeof(*p->logit), err));
		ok = ok && (p->lse = gm_alloc(n_row, sizeof(*p->lse), err));
	} else {
		ok = ok && (p->weight = gm_alloc(n_row * g->top_k, sizeof(*p->weight), err));
	}
	if (n_tail && g->tail == GM_TAIL_F16)
		ok = ok && (p->tail_16 = gm_alloc(n_row * n_tail, sizeof(*p->tail_16), err));
	if (n_tail && g->tail == GM_TAIL_F32)
		ok = ok && (p->tail_32 = gm_alloc(n_row * n_tail, sizeof(*p->tail_32), err));
	if (g->predictions)
		ok = ok && (p->prediction = gm_alloc(n_row * g->top_k, sizeof(*p->prediction), err));
	if (ok)
		return p;
	gm_pending_free(p);
	return NULL;
}

struct gm_pending *gm_writer_new_block(struct gm_writer *w, struct gm_error *err)
{
	struct gm_pending *p = w->spare;

	w->spare = NULL;
	if (!p)
		p = new_pending(&w->geometry, err);
	if (!p)
		return NULL;
	p->n_token = 0;
	p->n_waiting = 0;
	p->first = w->n_token;
	memset(p->waiting, 0, sizeof(p->waiting));
	memset(p->complete, 0, sizeof(p->complete));
	memset(p->present, 0, (size_t)GM_BLOCK_TOKENS * w->geometry.n_layer);
	if (p->prediction)
		memset(p->prediction, 0xff,
		       (size_t)GM_BLOCK_TOKENS * w->geometry.n_layer * w->geometry.top_k * sizeof(*p->prediction));
	w->queue[w->n_queued++] = p;
	return p;
}

/* One stretch of a block as a frame: as many of its n tokens as one frame may hold; returns how many in *n. */
static int encode(struct gm_writer *w, const struct gm_rows *rows, uint32_t start, uint32_t *n, uint64_t first,
		  struct gm_index_block *entry, struct gm_error *err)
{
	for (;;) {
		struct gm_error trial = {0};
		int status = gm_codec_encode(w->codec, rows, start, *n, w->out.index.n_block, first, w->level, &w->frame,
					     &entry->n_row, &entry->hash, &trial);
		if (status == GM_ERR_UNSUPPORTED && *n > 1) {
			*n = (*n + 1) / 2;
			continue;
		}
		if (status < 0)
			return gm_fail(err, status, "%s", trial.text);
		entry->first_token = first;
		entry->n_token = *n;
		return GM_OK;
	}
}

static void tell(const struct gm_writer *w, const struct gm_index_block *entry)
{
	const struct gm_block_written block = {.index = w->out.index.n_block - 1,
					       .first_token = entry->first_token,
					       .offset = entry->offset,
					       .bytes = w->frame.size,
					       .n_token = entry->n_token,
					       .n_row = entry->n_row,
					       .hash = entry->hash};

	if (w->on_block)
		w->on_block(w->user, &block);
}

static int write_block(struct gm_writer *w, const struct gm_pending *p, struct gm_error *err)
{
	struct gm_rows rows = {.stride = GM_BLOCK_TOKENS,
			       .token = p->token,
			       .sequence = p->sequence,
			       .position = p->position,
			       .pass = p->pass,
			       .logprob = p->logprob,
			       .present = p->present,
			       .head = p->head,
			       .logit = p->logit,
			       .lse = p->lse,
			       .weight = p->weight,
			       .tail_16 = p->tail_16,
			       .tail_32 = p->tail_32,
			       .prediction = p->prediction};
	uint32_t start = 0;

	while (start < p->n_token) {
		uint32_t n = p->n_token - start;
		struct gm_index_block entry = {0};
		GM_TRY(encode(w, &rows, start, &n, p->first + start, &entry, err));
		GM_TRY(gm_trace_out_sequences(&w->out, p->sequence[start + n - 1] + 1, err));
		GM_TRY(gm_trace_out_block(&w->out, w->frame.data, w->frame.size, &entry, err));
		tell(w, &entry);
		start += n;
	}
	return GM_OK;
}

int gm_writer_pump(struct gm_writer *w, bool all, struct gm_error *err)
{
	while (w->n_queued) {
		struct gm_pending *p = w->queue[0];
		if (!all && (p->n_waiting || p->n_token < GM_BLOCK_TOKENS))
			break;
		GM_TRY(write_block(w, p, err));
		w->n_queued--;
		memmove(w->queue, w->queue + 1, w->n_queued * sizeof(w->queue[0]));
		if (w->spare)
			gm_pending_free(p);
		else
			w->spare = p;
	}
	return GM_OK;
}

int gm_writer_flush(struct gm_writer *w, struct gm_error *err)
{
	GM_TRY(gm_writer_complete(w, w->n_token, err));
	return gm_writer_pump(w, true, err);
}
