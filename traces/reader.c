/* Opening a trace, its index, and its blocks in random order. What comes through a pipe: reader_stream.c. */
#include "traces/reader_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_READ 4096u

struct gm_trace *gm_trace_open(const char *path, struct gm_error *err)
{
	struct gm_trace *t = gm_alloc(1, sizeof(*t), err);

	if (!t)
		return NULL;
	t->in.fd = -1;
	if (gm_input_open(&t->in, path, err) < 0)
		goto failed;
	int status = gm_header_read(&t->in, &t->header, err);
	if (status == GM_OK) {
		t->codec = gm_codec_new(&t->header.geometry, err);
		status = t->codec ? GM_OK : GM_ERR_MEMORY;
	}
	if (status == GM_OK && t->in.seekable)
		status = gm_trace_load_index(t, err);
	if (status < 0) {
		gm_error_at(err, "%s", t->in.path);
		goto failed;
	}
	return t;
failed:
	gm_trace_close(t);
	return NULL;
}

void gm_trace_close(struct gm_trace *t)
{
	if (!t)
		return;
	gm_input_close(&t->in);
	gm_header_free(&t->header);
	gm_codec_free(t->codec);
	gm_index_free(&t->index);
	gm_buffer_free(&t->data);
	free(t->sequence);
	free(t);
}

/* --- index --- */

static int no_index(const struct gm_trace *t, const char *why, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_FORMAT,
		       "no index at its end (%s): byte %llu: the trace was cut off; `traces verify --repair OUT` saves its "
		       "whole blocks",
		       why, (unsigned long long)t->in.size);
}

static int read_index(struct gm_trace *t, uint64_t offset, uint64_t end, struct gm_error *err)
{
	struct gm_frame frame;

	t->data.size = 0;
	if (offset < t->header.end || offset > end || end - offset < GM_FRAME_BYTES)
		return gm_fail(err, GM_ERR_FORMAT, "the index is said to lie at byte %llu: trailer: out of place",
			       (unsigned long long)offset);
	GM_TRY(gm_input_fetch(&t->in, offset, GM_FRAME_BYTES, &t->data, err));
	GM_TRY(gm_frame_parse(t->data.data, &frame, err));
	if (frame.type != GM_FRAME_INDX || frame.length != end - offset - GM_FRAME_BYTES)
		return gm_fail(err, GM_ERR_FORMAT, "frame %s of %llu bytes: byte %llu: must be INDX and end at the trailer",
			       frame.name, (unsigned long long)frame.length, (unsigned long long)offset);
	t->data.size = 0;
	GM_TRY(gm_input_fetch(&t->in, offset + GM_FRAME_BYTES, frame.length, &t->data, err));
	GM_TRY(gm_frame_check(&frame, t->data.data, t->data.size, err));
	GM_TRY(gm_index_parse(&t->index, t->data.data, t->data.size, offset, t->header.geometry.n_layer, err));
	t->index_offset = offset;
	gm_hash_format(gm_trace_hash_of(t->header.hash, frame.hash), t->hash);
	return GM_OK;
}

int gm_trace_load_index(struct gm_trace *t, struct gm_error *err)
{
	struct gm_error ignored = {0};
	struct gm_frame frame;
	uint64_t end = t->in.size - GM_TRAILER_BYTES;

	if (t->in.size < t->header.end + GM_FRAME_BYTES + GM_INDEX_BYTES + GM_TRAILER_BYTES)
		return no_index(t, "too short", err);
	t->data.size = 0;
	GM_TRY(gm_input_fetch(&t->in, end, GM_TRAILER_BYTES, &t->data, err));
	if (gm_frame_parse(t->data.data, &frame, &ignored) < 0 || frame.type != GM_FRAME_GEND)
		return no_index(t, "no trailer", err);
	const uint8_t *trailer = t->data.data + GM_FRAME_BYTES;
	if (frame.length != GM_TRAILER_PAYLOAD || gm_frame_check(&frame, trailer, GM_TRAILER_PAYLOAD, &ignored) < 0)
		return no_index(t, "damaged trailer", err);
	if (gm_get_u64(trailer + 8) != t->in.size)
		return gm_fail(err, GM_ERR_FORMAT, "a file of %llu bytes: trailer: it has %llu",
			       (unsigned long long)gm_get_u64(trailer + 8), (unsigned long long)t->in.size);
	GM_TRY(read_index(t, gm_get_u64(trailer), end, err));
	t->ended = true;
	return gm_trace_list_sequences(t, err);
}

int gm_trace_list_sequences(struct gm_trace *t, struct gm_error *err)
{
	if (t->index.n_sequence > t->max_sequence) {
		uint32_t max = t->index.n_sequence < UINT32_MAX / 2 ? t->index.n_sequence * 2 : UINT32_MAX;
		if (t->in.seekable)
			max = t->index.n_sequence;
		struct gm_sequence *bigger = gm_realloc(t->sequence, max, sizeof(*bigger), err);
		if (!bigger)
			return GM_ERR_MEMORY;
		t->sequence = bigger;
		t->max_sequence = max;
	}
	for (; t->n_listed < t->index.n_sequence; t->n_listed++) {
		const struct gm_index_sequence *s = &t->index.sequence[t->n_listed];
		t->sequence[t->n_listed] = (struct gm_sequence){
			.id = s->id, .label = s->label, .first_token = s->first_token, .n_token = s->n_token};
	}
	return GM_OK;
}

/* --- facts --- */

const char *gm_trace_path(const struct gm_trace *t)
{
	return t->in.path;
}

const struct gm_model *gm_trace_model(const struct gm_trace *t)
{
	return &t->header.model;
}

const struct gm_json *gm_trace_header(const struct gm_trace *t)
{
	return t->header.json;
}

enum gm_trace_kind gm_trace_kind(const struct gm_trace *t)
{
	return t->header.geometry.kind;
}

uint32_t gm_trace_n_head(const struct gm_trace *t)
{
	return t->header.geometry.n_head;
}

enum gm_tail gm_trace_tail(const struct gm_trace *t)
{
	return t->header.geometry.tail;
}

bool gm_trace_seekable(const struct gm_trace *t)
{
	return t->in.seekable;
}

uint64_t gm_trace_n_token(const struct gm_trace *t)
{
	return t->ended ? t->index.n_token : 0;
}

uint64_t gm_trace_n_block(const struct gm_trace *t)
{
	return t->ended ? t->index.n_block : 0;
}

uint64_t gm_trace_n_row(const struct gm_trace *t)
{
	return t->ended ? t->index.n_row : 0;
}

uint64_t gm_trace_bytes(const struct gm_trace *t)
{
	if (t->in.seekable)
		return t->in.size;
	return t->ended ? t->in.offset : 0;
}

uint32_t gm_trace_n_sequence(const struct gm_trace *t)
{
	return t->n_listed;
}

const struct gm_sequence *gm_trace_sequence(const struct gm_trace *t, uint32_t index)
{
	return index < t->n_listed ? &t->sequence[index] : NULL;
}

const char *gm_trace_hash(const struct gm_trace *t)
{
	return t->ended ? t->hash : NULL;
}

/* --- blocks --- */

/* Makes the first n bytes from the block's frame header on available in t->data. */
static int need(struct gm_trace *t, uint64_t offset, uint64_t n, struct gm_error *err)
{
	if (n <= t->data.size)
		return GM_OK;
	return gm_input_fetch(&t->in, offset + t->data.size, n - t->data.size, &t->data, err);
}

static int check_frame(const struct gm_frame *frame, const struct gm_index_block *entry, uint64_t room,
		       struct gm_error *err)
{
	if (frame->type != GM_FRAME_BLCK)
		return gm_fail(err, GM_ERR_FORMAT, "frame %s: must be BLCK", frame->name);
	if (frame->length > room - GM_FRAME_BYTES)
		return gm_fail(err, GM_ERR_FORMAT, "%llu bytes long: only %llu are there",
			       (unsigned long long)frame->length, (unsigned long long)room - GM_FRAME_BYTES);
	if (frame->hash != entry->hash)
		return gm_fail(err, GM_ERR_FORMAT, "the checksum differs from the index: damaged");
	return GM_OK;
}

int gm_trace_check_block(const struct gm_trace *t, const struct gm_block *block, struct gm_error *err)
{
	for (uint32_t i = 0; i < block->n_token; i++) {
		uint64_t token = block->first_token + i;
		uint32_t s = block->sequence[i];
		if (s >= t->index.n_sequence)
			return gm_fail(err, GM_ERR_FORMAT, "sequence %u: token %llu: must be below %u", s,
				       (unsigned long long)token, t->index.n_sequence);
		if (t->in.seekable &&
		    (token < t->sequence[s].first_token || token - t->sequence[s].first_token >= t->sequence[s].n_token))
			return gm_fail(err, GM_ERR_FORMAT, "sequence %u: token %llu: its range in the index is another", s,
				       (unsigned long long)token);
	}
	return GM_OK;
}

static int read_indexed(struct gm_trace *t, uint64_t index, unsigned want, struct gm_block *block, struct gm_error *err)
{
	const struct gm_index_block *entry = &t->index.block[index];
	uint64_t end = index + 1 < t->index.n_block ? entry[1].offset : t->index_offset;
	uint64_t room = end - entry->offset, guess = t->read_guess > FIRST_READ ? t->read_guess : FIRST_READ;
	struct gm_directory directory;
	struct gm_frame frame;

	t->data.size = 0;
	GM_TRY(need(t, entry->offset, guess < room ? guess : room, err));
	GM_TRY(need(t, entry->offset, GM_FRAME_BYTES, err));
	GM_TRY(gm_frame_parse(t->data.data, &frame, err));
	GM_TRY(check_frame(&frame, entry, room, err));
	uint64_t fixed = frame.length < GM_DIRECTORY_BYTES ? frame.length : GM_DIRECTORY_BYTES;
	GM_TRY(need(t, entry->offset, GM_FRAME_BYTES + fixed, err));
	uint64_t bytes = fixed < 4 ? fixed : gm_get_u32(t->data.data + GM_FRAME_BYTES);
	if (bytes > frame.length)
		return gm_fail(err, GM_ERR_FORMAT, "a directory of %llu bytes does not fit its block: damaged",
			       (unsigned long long)bytes);
	GM_TRY(need(t, entry->offset, GM_FRAME_BYTES + bytes, err));
	GM_TRY(gm_frame_check(&frame, t->data.data + GM_FRAME_BYTES, t->data.size - GM_FRAME_BYTES, err));
	GM_TRY(gm_directory_parse(&t->header.geometry, t->data.data + GM_FRAME_BYTES, t->data.size - GM_FRAME_BYTES,
				  frame.length, &directory, err));
	if (directory.index != index || directory.first_token != entry->first_token ||
	    directory.n_token != entry->n_token || directory.n_row != entry->n_row)
		return gm_fail(err, GM_ERR_FORMAT, "number, tokens or rows differ from the index: damaged");
	uint64_t prefix = GM_FRAME_BYTES + gm_directory_prefix(&directory, want);
	GM_TRY(need(t, entry->offset, prefix, err));
	t->read_guess = prefix + prefix / 16; /* the next block is about as long: one read for it */
	GM_TRY(gm_codec_decode(t->codec, &directory, t->data.data + GM_FRAME_BYTES, want, block, err));
	return gm_trace_check_block(t, block, err);
}

int gm_trace_read(struct gm_trace *t, uint64_t index, unsigned want, struct gm_block *block, struct gm_error *err)
{
	if (!t->in.seekable)
		return gm_trace_read_next(t, index, want, block, err);
	if (index > t->index.n_block)
		return gm_fail(err, GM_ERR_USAGE, "no block %llu: %s: the trace has %llu", (unsigned long long)index,
			       t->in.path, (unsigned long long)t->index.n_block);
	if (index == t->index.n_block)
		return 0;
	int status = read_indexed(t, index, want, block, err);
	if (status < 0) {
		gm_error_at(err, "%s: block %llu at byte %llu", t->in.path, (unsigned long long)index,
			    (unsigned long long)t->index.block[index].offset);
		return status;
	}
	return 1;
}

int gm_trace_find(const struct gm_trace *t, uint64_t token, uint64_t *block, struct gm_error *err)
{
	if (!t->in.seekable)
		return gm_fail(err, GM_ERR_UNSUPPORTED, "a token cannot be sought in a pipe: %s: must be a file",
			       t->in.path);
	if (token >= t->index.n_token)
		return gm_fail(err, GM_ERR_USAGE, "no token %llu: %s: the trace has %llu", (unsigned long long)token,
			       t->in.path, (unsigned long long)t->index.n_token);
	uint64_t low = 0, high = t->index.n_block; /* the block lies in [low, high) */
	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;
		if (t->index.block[middle].first_token <= token)
			low = middle;
		else
			high = middle;
	}
	*block = low;
	return GM_OK;
}

void gm_block_logits(const struct gm_block *block, const struct gm_model *model, uint32_t layer, uint32_t i, float *logits)
{
	size_t row = (size_t)layer * block->n_token + i;
	uint32_t n_tail = model->n_expert - block->n_head;

	/* NaN marks what is not filled yet: the tail goes there in order of id. */
	for (uint32_t e = 0; e < model->n_expert; e++)
		logits[e] = NAN;
	if (!block->logit)
		return;
	for (uint32_t r = 0; r < block->n_head; r++)
		logits[block->head[row * block->n_head + r]] = block->logit[row * block->n_head + r];
	if (!block->tail)
		return;
	const float *tail = block->tail + row * n_tail;
	for (uint32_t e = 0, j = 0; e < model->n_expert && j < n_tail; e++)
		if (isnan(logits[e]))
			logits[e] = tail[j++];
}
