#include "sim/future.h"

#include "policies/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gm_future {
	FILE *file; /* next uses of block after block: uint32_t [n_layer][n_token][top_k] */
	uint32_t n_layer, n_expert, top_k;
	uint64_t *first_use;
};

/* The walk backwards. */
struct walk {
	/* [n_layer][n_expert] first token of the next pass that requests it, as seen from the current pass */
	uint32_t *next;
	uint32_t *seen; /* items that the current pass requests: their `next` is set when the walk leaves the pass */
	size_t n_seen;
	uint8_t *is_seen; /* [n_layer][n_expert] */
	uint32_t pass;    /* current pass */
	uint32_t first;   /* its first token as far as known */
	bool started;
};

static void leave_pass(struct walk *w)
{
	for (size_t i = 0; i < w->n_seen; i++) {
		w->next[w->seen[i]] = w->first;
		w->is_seen[w->seen[i]] = 0;
	}
	w->n_seen = 0;
}

static void walk_row(struct walk *w, const uint16_t *pick, uint32_t top_k, size_t first_item, uint32_t *next_use)
{
	for (uint32_t r = 0; r < top_k; r++) {
		size_t item = first_item + pick[r];

		next_use[r] = w->next[item];
		if (!w->is_seen[item]) {
			w->is_seen[item] = 1;
			w->seen[w->n_seen++] = (uint32_t)item;
		}
	}
}

static void walk_block(const struct gm_future *f, struct walk *w, const struct gm_block *block, enum gm_prefill prefill,
		       uint32_t *next_use)
{
	for (uint32_t i = block->n_token; i-- > 0;) {
		if (!w->started || prefill == GM_PREFILL_TOKEN || block->pass[i] != w->pass)
			leave_pass(w);
		w->started = true;
		w->pass = block->pass[i];
		w->first = (uint32_t)(block->first_token + i);
		for (uint32_t l = 0; l < f->n_layer; l++) {
			size_t row = (size_t)l * block->n_token + i;

			if (block->present[row])
				walk_row(w, block->head + row * block->n_head, f->top_k, (size_t)l * f->n_expert,
					 next_use + row * f->top_k);
		}
	}
}

static size_t block_values(const struct gm_future *f, const struct gm_block *block)
{
	return (size_t)f->n_layer * block->n_token * f->top_k;
}

static off_t block_offset(const struct gm_future *f, const struct gm_block *block)
{
	return (off_t)(block->first_token * f->n_layer * f->top_k * sizeof(uint32_t));
}

static int write_all(struct gm_future *f, const struct gm_block *block, const uint32_t *next_use, struct gm_error *err)
{
	const char *data = (const char *)next_use;
	size_t size = block_values(f, block) * sizeof(*next_use);
	off_t offset = block_offset(f, block);

	while (size) {
		ssize_t n = pwrite(fileno(f->file), data, size, offset);

		if (n <= 0)
			return gm_fail(err, GM_ERR_IO, "cannot keep next uses: temporary file in %s: %s", P_tmpdir,
				       strerror(errno));
		data += n;
		offset += n;
		size -= (size_t)n;
	}
	return GM_OK;
}

int gm_future_read(struct gm_future *f, const struct gm_block *block, uint32_t *next_use, struct gm_error *err)
{
	char *data = (char *)next_use;
	size_t size = block_values(f, block) * sizeof(*next_use);
	off_t offset = block_offset(f, block);

	while (size) {
		ssize_t n = pread(fileno(f->file), data, size, offset);

		if (n <= 0)
			return gm_fail(err, GM_ERR_IO, "cannot read next uses back: temporary file in %s: %s", P_tmpdir,
				       n ? strerror(errno) : "it is too short");
		data += n;
		offset += n;
		size -= (size_t)n;
	}
	return GM_OK;
}

static int walk_trace(struct gm_future *f, struct gm_trace *trace, enum gm_prefill prefill, struct walk *w,
		      struct gm_error *err)
{
	struct gm_block block = {0};
	uint32_t *next_use = NULL;
	size_t n_value = 0;
	int status = GM_OK;

	for (uint64_t b = gm_trace_n_block(trace); b-- > 0;) {
		GM_TRY_OUT(gm_trace_read(trace, b, GM_WANT_HEAD, &block, err));
		if (n_value == 0 || block_values(f, &block) > n_value) {
			uint32_t *grown = gm_realloc(next_use, block_values(f, &block), sizeof(*next_use), err);

			if (!grown) {
				status = GM_ERR_MEMORY;
				goto out;
			}
			next_use = grown;
			n_value = block_values(f, &block);
		}
		memset(next_use, 0xff, block_values(f, &block) * sizeof(*next_use));
		walk_block(f, w, &block, prefill, next_use);
		GM_TRY_OUT(write_all(f, &block, next_use, err));
	}
	leave_pass(w);
	for (size_t i = 0; i < (size_t)f->n_layer * f->n_expert; i++)
		f->first_use[i] = w->next[i] == UINT32_MAX ? GM_NEVER : (uint64_t)w->next[i] * f->n_layer + i / f->n_expert;
	status = GM_OK;
out:
	gm_block_free(&block);
	free(next_use);
	return status;
}

static int prepare(struct gm_future *f, struct gm_trace *trace, enum gm_prefill prefill, struct gm_error *err)
{
	const struct gm_model *model = gm_trace_model(trace);
	size_t n_item = (size_t)model->n_layer * model->n_expert;
	struct walk w = {0};
	int status = GM_ERR_MEMORY;

	if (!gm_trace_seekable(trace))
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "a policy that knows the future cannot run on a pipe: %s: give the trace as a file",
			       gm_trace_path(trace));
	if (gm_trace_n_token(trace) >= UINT32_MAX)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "too many tokens for next uses: %s: cut the trace below 2^32 tokens", gm_trace_path(trace));
	f->n_layer = model->n_layer;
	f->n_expert = model->n_expert;
	f->top_k = model->top_k;
	f->file = tmpfile();
	if (!f->file)
		return gm_fail(err, GM_ERR_IO, "cannot create a file for next uses: temporary file in %s: %s", P_tmpdir,
			       strerror(errno));
	f->first_use = gm_alloc(n_item, sizeof(*f->first_use), err);
	w.next = gm_alloc(n_item, sizeof(*w.next), err);
	w.seen = gm_alloc(n_item, sizeof(*w.seen), err);
	w.is_seen = gm_alloc(n_item, sizeof(*w.is_seen), err);
	if (f->first_use && w.next && w.seen && w.is_seen) {
		memset(w.next, 0xff, n_item * sizeof(*w.next));
		status = walk_trace(f, trace, prefill, &w, err);
	}
	free(w.next);
	free(w.seen);
	free(w.is_seen);
	return status;
}

struct gm_future *gm_future_new(struct gm_trace *trace, enum gm_prefill prefill, struct gm_error *err)
{
	struct gm_future *f = gm_alloc(1, sizeof(*f), err);

	if (f && prepare(f, trace, prefill, err) < 0) {
		gm_future_free(f);
		return NULL;
	}
	return f;
}

void gm_future_free(struct gm_future *f)
{
	if (!f)
		return;
	if (f->file)
		fclose(f->file);
	free(f->first_use);
	free(f);
}

const uint64_t *gm_future_first_use(const struct gm_future *f)
{
	return f->first_use;
}
