/* Blocks of a trace that comes through a pipe: frames in order, the index checked against what came. */
#include "traces/reader_private.h"

#include <string.h>

static int fetch_payload(struct gm_trace *t, uint64_t n, struct gm_error *err)
{
	return gm_input_fetch(&t->in, t->in.offset, n, &t->data, err);
}

static int take_sequence(struct gm_trace *t, const struct gm_frame *frame, struct gm_error *err)
{
	struct gm_seqn seqn;

	GM_TRY(fetch_payload(t, frame->length, err));
	GM_TRY(gm_frame_check(frame, t->data.data, t->data.size, err));
	GM_TRY(gm_seqn_parse(t->data.data, t->data.size, &seqn, err));
	int status = GM_OK;
	if (seqn.index != t->index.n_sequence)
		status =
			gm_fail(err, GM_ERR_FORMAT, "sequence %u: frame SEQN: must be %u", seqn.index, t->index.n_sequence);
	if (status == GM_OK)
		status = gm_index_add_sequence(&t->index, seqn.id, seqn.label, t->index.n_token, err);
	gm_seqn_free(&seqn);
	if (status < 0)
		return status;
	return gm_trace_list_sequences(t, err);
}

/* Sequences that had no token yet begin at the first one they have: those before it were empty. */
static void count_tokens(struct gm_trace *t, const struct gm_block *block)
{
	for (uint32_t i = 0; i < block->n_token; i++) {
		struct gm_index_sequence *s = &t->index.sequence[block->sequence[i]];
		if (s->n_token++ == 0)
			s->first_token = block->first_token + i;
		t->sequence[block->sequence[i]].first_token = s->first_token;
		t->sequence[block->sequence[i]].n_token = s->n_token;
	}
}

static int take_block(struct gm_trace *t, const struct gm_frame *frame, uint64_t offset, unsigned want,
		      struct gm_block *block, struct gm_error *err)
{
	struct gm_directory directory;

	if (frame->length < GM_DIRECTORY_BYTES)
		return gm_fail(err, GM_ERR_FORMAT, "block of %llu bytes: must be at least %u",
			       (unsigned long long)frame->length, GM_DIRECTORY_BYTES);
	GM_TRY(fetch_payload(t, GM_DIRECTORY_BYTES, err));
	uint64_t bytes = gm_get_u32(t->data.data);
	if (bytes < GM_DIRECTORY_BYTES || bytes > frame->length)
		return gm_fail(err, GM_ERR_FORMAT, "a directory of %llu bytes does not fit its block: damaged",
			       (unsigned long long)bytes);
	GM_TRY(fetch_payload(t, bytes - GM_DIRECTORY_BYTES, err));
	GM_TRY(gm_frame_check(frame, t->data.data, t->data.size, err));
	GM_TRY(gm_directory_parse(&t->header.geometry, t->data.data, t->data.size, frame->length, &directory, err));
	if (directory.index != t->index.n_block || directory.first_token != t->index.n_token)
		return gm_fail(err, GM_ERR_FORMAT, "block %llu from token %llu: must be block %llu from token %llu",
			       (unsigned long long)directory.index, (unsigned long long)directory.first_token,
			       (unsigned long long)t->index.n_block, (unsigned long long)t->index.n_token);
	uint64_t prefix = gm_directory_prefix(&directory, want);
	GM_TRY(fetch_payload(t, prefix - bytes, err));
	GM_TRY(gm_input_skip(&t->in, frame->length - prefix, err));
	GM_TRY(gm_codec_decode(t->codec, &directory, t->data.data, want, block, err));
	GM_TRY(gm_trace_check_block(t, block, err));
	struct gm_index_block entry = {.offset = offset,
				       .first_token = directory.first_token,
				       .n_token = directory.n_token,
				       .n_row = directory.n_row,
				       .hash = frame->hash};
	GM_TRY(gm_index_add_block(&t->index, &entry, err));
	count_tokens(t, block);
	return GM_OK;
}

static int compare_index(const struct gm_index *came, const struct gm_index *said, struct gm_error *err)
{
	if (came->n_block != said->n_block || came->n_sequence != said->n_sequence)
		return gm_fail(err, GM_ERR_FORMAT, "%llu blocks and %u sequences: index: %llu and %u came",
			       (unsigned long long)said->n_block, said->n_sequence, (unsigned long long)came->n_block,
			       came->n_sequence);
	for (uint64_t i = 0; i < came->n_block; i++) {
		const struct gm_index_block *a = &came->block[i], *b = &said->block[i];
		if (a->offset != b->offset || a->first_token != b->first_token || a->n_token != b->n_token ||
		    a->n_row != b->n_row || a->hash != b->hash)
			return gm_fail(err, GM_ERR_FORMAT, "block %llu is another than the one that came: index: damaged",
				       (unsigned long long)i);
	}
	for (uint32_t i = 0; i < came->n_sequence; i++) {
		const struct gm_index_sequence *a = &came->sequence[i], *b = &said->sequence[i];
		if (a->n_token != b->n_token || strcmp(a->id, b->id) != 0 || strcmp(a->label, b->label) != 0)
			return gm_fail(err, GM_ERR_FORMAT, "sequence %u is another than the one that came: index: damaged",
				       i);
	}
	return GM_OK;
}

static int take_trailer(struct gm_trace *t, uint64_t index_offset, struct gm_error *err)
{
	struct gm_frame frame;
	bool end;

	t->data.size = 0;
	GM_TRY(fetch_payload(t, GM_TRAILER_BYTES, err));
	GM_TRY(gm_frame_parse(t->data.data, &frame, err));
	if (frame.type != GM_FRAME_GEND || frame.length != GM_TRAILER_PAYLOAD)
		return gm_fail(err, GM_ERR_FORMAT, "frame %s after the index: must be GEND", frame.name);
	GM_TRY(gm_frame_check(&frame, t->data.data + GM_FRAME_BYTES, GM_TRAILER_PAYLOAD, err));
	if (gm_get_u64(t->data.data + GM_FRAME_BYTES) != index_offset ||
	    gm_get_u64(t->data.data + GM_FRAME_BYTES + 8) != t->in.offset)
		return gm_fail(err, GM_ERR_FORMAT, "place of the index or size of the file are others: trailer: damaged");
	uint64_t size = t->in.offset;
	GM_TRY(gm_input_at_end(&t->in, &end, err));
	if (!end)
		return gm_fail(err, GM_ERR_FORMAT, "more after the trailer: byte %llu: must end there",
			       (unsigned long long)size);
	return GM_OK;
}

static int take_index(struct gm_trace *t, const struct gm_frame *frame, uint64_t offset, struct gm_error *err)
{
	struct gm_index said;

	GM_TRY(fetch_payload(t, frame->length, err));
	GM_TRY(gm_frame_check(frame, t->data.data, t->data.size, err));
	int status = gm_index_parse(&said, t->data.data, t->data.size, offset, t->header.geometry.n_layer, err);
	if (status == GM_OK)
		status = compare_index(&t->index, &said, err);
	for (uint32_t i = 0; status == GM_OK && i < said.n_sequence; i++) /* where an empty one lies, only it knows */
		t->sequence[i].first_token = t->index.sequence[i].first_token = said.sequence[i].first_token;
	gm_index_free(&said);
	if (status == GM_OK)
		status = take_trailer(t, offset, err);
	if (status < 0)
		return status;
	gm_hash_format(gm_trace_hash_of(t->header.hash, frame->hash), t->hash);
	t->ended = true;
	return GM_OK;
}

/* Frames up to and with the next block. 1: it is there, 0: the end. */
static int next_block(struct gm_trace *t, unsigned want, struct gm_block *block, uint64_t *offset, struct gm_error *err)
{
	for (;;) {
		struct gm_frame frame;
		*offset = t->in.offset;
		t->data.size = 0;
		GM_TRY(fetch_payload(t, GM_FRAME_BYTES, err));
		GM_TRY(gm_frame_parse(t->data.data, &frame, err));
		t->data.size = 0;
		switch (frame.type) {
		case GM_FRAME_SEQN:
			GM_TRY(take_sequence(t, &frame, err));
			break;
		case GM_FRAME_BLCK:
			GM_TRY(take_block(t, &frame, *offset, want, block, err));
			return 1;
		case GM_FRAME_INDX:
			GM_TRY(take_index(t, &frame, *offset, err));
			return 0;
		case GM_FRAME_UNKNOWN:
			GM_TRY(gm_input_skip(&t->in, frame.length, err));
			break;
		default:
			return gm_fail(err, GM_ERR_FORMAT, "frame %s: out of place", frame.name);
		}
	}
}

int gm_trace_read_next(struct gm_trace *t, uint64_t index, unsigned want, struct gm_block *block, struct gm_error *err)
{
	uint64_t offset = 0;

	if (index != t->index.n_block || t->broken)
		return gm_fail(err, GM_ERR_USAGE, "block %llu out of order: %s: a pipe gives only the next one (%llu)",
			       (unsigned long long)index, t->in.path, (unsigned long long)t->index.n_block);
	if (t->ended)
		return 0;
	int status = next_block(t, want, block, &offset, err);
	if (status < 0) {
		t->broken = true;
		gm_error_at(err, "%s: frame at byte %llu", t->in.path, (unsigned long long)offset);
	}
	return status;
}
