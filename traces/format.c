#include "traces/format.h"

#include "base/hash.h"

#include <stdlib.h>

static const uint8_t magic_bytes[8] = {0x89, 'G', 'M', 'T', '\r', '\n', 0x1a, '\n'};

static const char frame_names[GM_FRAME_UNKNOWN][5] = {"HEAD", "SEQN", "BLCK", "INDX", "GEND"};

int gm_buffer_reserve(struct gm_buffer *buffer, size_t capacity, struct gm_error *err)
{
	if (capacity <= buffer->capacity && buffer->data)
		return GM_OK;
	if (capacity < 64)
		capacity = 64;
	if (capacity < buffer->capacity + buffer->capacity / 2)
		capacity = buffer->capacity + buffer->capacity / 2;
	uint8_t *data = gm_realloc(buffer->data, capacity, 1, err);
	if (!data)
		return GM_ERR_MEMORY;
	buffer->data = data;
	buffer->capacity = capacity;
	return GM_OK;
}

int gm_buffer_add(struct gm_buffer *buffer, const void *data, size_t size, struct gm_error *err)
{
	GM_TRY(gm_buffer_reserve(buffer, buffer->size + size, err));
	if (size)
		memcpy(buffer->data + buffer->size, data, size);
	buffer->size += size;
	return GM_OK;
}

void gm_buffer_free(struct gm_buffer *buffer)
{
	free(buffer->data);
	memset(buffer, 0, sizeof(*buffer));
}

void gm_preamble_write(uint8_t out[GM_PREAMBLE_BYTES])
{
	memcpy(out, magic_bytes, sizeof(magic_bytes));
	gm_put_u32(out + 8, GM_TRACE_VERSION);
	gm_put_u32(out + 12, 0);
}

int gm_preamble_check(const uint8_t *data, size_t size, struct gm_error *err)
{
	size_t magic = size < 8 ? size : 8;

	if (magic == 0)
		return gm_fail(err, GM_ERR_FORMAT, "the file is empty: must be a .gmt trace");
	if (memcmp(data, magic_bytes, magic) != 0)
		return gm_fail(err, GM_ERR_FORMAT,
			       "not a .gmt trace: byte 0: must begin with the magic bytes 89 47 4d 54 0d 0a 1a 0a");
	if (size < GM_PREAMBLE_BYTES)
		return gm_fail(err, GM_ERR_FORMAT, "cut off at byte %zu, in the first %u bytes: nothing to save", size,
			       GM_PREAMBLE_BYTES);
	if (gm_get_u32(data + 8) != GM_TRACE_VERSION)
		return gm_fail(err, GM_ERR_FORMAT, "format version %u: byte 8: this program reads version %u",
			       gm_get_u32(data + 8), GM_TRACE_VERSION);
	if (gm_get_u32(data + 12) != 0)
		return gm_fail(err, GM_ERR_FORMAT, "the reserved field is %u: byte 12: must be 0", gm_get_u32(data + 12));
	return GM_OK;
}

static uint32_t flags_of(enum gm_frame_type type)
{
	return GM_FRAME_REQUIRED | (type == GM_FRAME_BLCK ? (uint32_t)GM_FRAME_PREFIX : 0);
}

void gm_frame_write(uint8_t out[GM_FRAME_BYTES], enum gm_frame_type type, uint64_t length, uint64_t hash)
{
	memcpy(out, frame_names[type], 4);
	gm_put_u32(out + 4, flags_of(type));
	gm_put_u64(out + 8, length);
	gm_put_u64(out + 16, hash);
	gm_put_u64(out + 24, gm_hash(out, 24));
}

static uint64_t max_length(enum gm_frame_type type)
{
	switch (type) {
	case GM_FRAME_HEAD:
		return GM_MAX_HEADER_BYTES;
	case GM_FRAME_SEQN:
		return GM_SEQN_BYTES + 2 * (uint64_t)GM_MAX_TEXT_BYTES;
	case GM_FRAME_GEND:
		return GM_TRAILER_PAYLOAD;
	default:
		return UINT64_MAX >> 2; /* bounded by the size of the file */
	}
}

int gm_frame_parse(const uint8_t data[GM_FRAME_BYTES], struct gm_frame *frame, struct gm_error *err)
{
	if (gm_get_u64(data + 24) != gm_hash(data, 24))
		return gm_fail(err, GM_ERR_FORMAT, "the frame header's checksum does not match: damaged");
	memcpy(frame->name, data, 4);
	frame->name[4] = '\0';
	for (int i = 0; i < 4; i++)
		if (frame->name[i] < ' ' || frame->name[i] > '~')
			frame->name[i] = '?'; /* for messages */
	frame->flags = gm_get_u32(data + 4);
	frame->length = gm_get_u64(data + 8);
	frame->hash = gm_get_u64(data + 16);
	frame->type = GM_FRAME_HEAD;
	while (frame->type < GM_FRAME_UNKNOWN && memcmp(data, frame_names[frame->type], 4) != 0)
		frame->type++;
	if (frame->flags & ~(uint32_t)(GM_FRAME_REQUIRED | GM_FRAME_PREFIX))
		return gm_fail(err, GM_ERR_FORMAT, "frame %s has flags %#x: this program knows bits 0 and 1 only",
			       frame->name, frame->flags);
	if (frame->type == GM_FRAME_UNKNOWN && (frame->flags & GM_FRAME_REQUIRED))
		return gm_fail(err, GM_ERR_FORMAT, "frame %s is required but not known: needs a newer program",
			       frame->name);
	if (frame->type != GM_FRAME_UNKNOWN && frame->flags != flags_of(frame->type))
		return gm_fail(err, GM_ERR_FORMAT, "frame %s has flags %#x: must be %#x", frame->name, frame->flags,
			       flags_of(frame->type));
	if (frame->length > max_length(frame->type))
		return gm_fail(err, GM_ERR_FORMAT, "frame %s of %llu bytes: must be at most %llu", frame->name,
			       (unsigned long long)frame->length, (unsigned long long)max_length(frame->type));
	return GM_OK;
}

int gm_frame_check(const struct gm_frame *frame, const uint8_t *payload, size_t size, struct gm_error *err)
{
	uint64_t covered = frame->length;

	if (frame->flags & GM_FRAME_PREFIX) {
		if (size < 4)
			return gm_fail(err, GM_ERR_FORMAT, "frame %s of %zu bytes: must be at least 4", frame->name, size);
		covered = gm_get_u32(payload);
	}
	if (covered > size || covered > frame->length)
		return gm_fail(err, GM_ERR_FORMAT, "a checksum that is said to cover %llu bytes of %llu: frame %s: damaged",
			       (unsigned long long)covered, (unsigned long long)frame->length, frame->name);
	if (gm_hash(payload, (size_t)covered) != frame->hash)
		return gm_fail(err, GM_ERR_FORMAT, "the checksum does not match: frame %s: damaged", frame->name);
	return GM_OK;
}

/* A text of n bytes as a C string; NUL bytes cannot stand in one. */
static int copy_text(const uint8_t *data, uint32_t n, const char *what, char **out, struct gm_error *err)
{
	if (n > GM_MAX_TEXT_BYTES || memchr(data, 0, n))
		return gm_fail(err, GM_ERR_FORMAT,
			       "%s of a sequence is no text of the format: must be at most %u bytes without a NUL", what,
			       GM_MAX_TEXT_BYTES);
	*out = gm_alloc((size_t)n + 1, 1, err);
	if (!*out)
		return GM_ERR_MEMORY;
	memcpy(*out, data, n);
	return GM_OK;
}

int gm_seqn_add(struct gm_buffer *out, uint32_t index, const char *id, const char *label, struct gm_error *err)
{
	uint8_t fixed[GM_SEQN_BYTES] = {0};
	size_t n_id = strlen(id), n_label = strlen(label);

	gm_put_u32(fixed, index);
	gm_put_u32(fixed + 4, (uint32_t)n_id);
	gm_put_u32(fixed + 8, (uint32_t)n_label);
	GM_TRY(gm_buffer_add(out, fixed, sizeof(fixed), err));
	GM_TRY(gm_buffer_add(out, id, n_id, err));
	return gm_buffer_add(out, label, n_label, err);
}

int gm_seqn_parse(const uint8_t *payload, size_t size, struct gm_seqn *out, struct gm_error *err)
{
	memset(out, 0, sizeof(*out));
	if (size < GM_SEQN_BYTES)
		return gm_fail(err, GM_ERR_FORMAT, "frame SEQN of %zu bytes: must be at least %u", size, GM_SEQN_BYTES);
	uint32_t n_id = gm_get_u32(payload + 4), n_label = gm_get_u32(payload + 8);
	if ((uint64_t)n_id + n_label + GM_SEQN_BYTES != size)
		return gm_fail(err, GM_ERR_FORMAT, "texts of %u and %u bytes do not fill %zu: frame SEQN: damaged", n_id,
			       n_label, size);
	if (gm_get_u32(payload + 12) != 0)
		return gm_fail(err, GM_ERR_FORMAT, "the reserved field is not 0: frame SEQN: must be 0");
	out->index = gm_get_u32(payload);
	int status = copy_text(payload + GM_SEQN_BYTES, n_id, "id", &out->id, err);
	if (status == GM_OK)
		status = copy_text(payload + GM_SEQN_BYTES + n_id, n_label, "label", &out->label, err);
	if (status < 0)
		gm_seqn_free(out);
	return status;
}

void gm_seqn_free(struct gm_seqn *seqn)
{
	free(seqn->id);
	free(seqn->label);
	memset(seqn, 0, sizeof(*seqn));
}

uint64_t gm_trace_hash_of(uint64_t head_hash, uint64_t index_hash)
{
	uint8_t both[16];

	gm_put_u64(both, head_hash);
	gm_put_u64(both + 8, index_hash);
	return gm_hash(both, sizeof(both));
}

/* --- index --- */

/* Room for one more element of an array that doubles: the array, perhaps moved, or NULL. */
static void *grown(void *array, uint64_t n, uint64_t *max, size_t size, struct gm_error *err)
{
	if (n < *max)
		return array;
	uint64_t wanted = *max ? *max * 2 : 16;
	array = gm_realloc(array, wanted, size, err);
	if (array)
		*max = wanted;
	return array;
}

int gm_index_add_block(struct gm_index *index, const struct gm_index_block *block, struct gm_error *err)
{
	struct gm_index_block *bigger = grown(index->block, index->n_block, &index->max_block, sizeof(*index->block), err);

	if (!bigger)
		return GM_ERR_MEMORY;
	index->block = bigger;
	index->block[index->n_block++] = *block;
	index->n_token += block->n_token;
	index->n_row += block->n_row;
	return GM_OK;
}

int gm_index_add_sequence(struct gm_index *index, const char *id, const char *label, uint64_t first_token,
			  struct gm_error *err)
{
	if (index->n_sequence == UINT32_MAX)
		return gm_fail(err, GM_ERR_FORMAT, "more than %u sequences", UINT32_MAX);
	struct gm_index_sequence *bigger =
		grown(index->sequence, index->n_sequence, &index->max_sequence, sizeof(*index->sequence), err);
	if (!bigger)
		return GM_ERR_MEMORY;
	index->sequence = bigger;
	struct gm_index_sequence *s = &index->sequence[index->n_sequence];
	s->id = gm_strdup(id, err);
	s->label = gm_strdup(label, err);
	s->first_token = first_token;
	s->n_token = 0;
	if (!s->id || !s->label) {
		free(s->id);
		free(s->label);
		return GM_ERR_MEMORY;
	}
	index->n_sequence++;
	return GM_OK;
}

int gm_index_write(const struct gm_index *index, struct gm_buffer *out, struct gm_error *err)
{
	uint8_t fixed[GM_INDEX_BYTES] = {0};

	gm_put_u64(fixed, index->n_token);
	gm_put_u64(fixed + 8, index->n_row);
	gm_put_u64(fixed + 16, index->n_block);
	gm_put_u32(fixed + 24, index->n_sequence);
	GM_TRY(gm_buffer_add(out, fixed, sizeof(fixed), err));
	for (uint64_t i = 0; i < index->n_block; i++) {
		const struct gm_index_block *b = &index->block[i];
		uint8_t entry[GM_INDEX_BLOCK_BYTES];
		gm_put_u64(entry, b->offset);
		gm_put_u64(entry + 8, b->first_token);
		gm_put_u32(entry + 16, b->n_token);
		gm_put_u32(entry + 20, b->n_row);
		gm_put_u64(entry + 24, b->hash);
		GM_TRY(gm_buffer_add(out, entry, sizeof(entry), err));
	}
	for (uint32_t i = 0; i < index->n_sequence; i++) {
		const struct gm_index_sequence *s = &index->sequence[i];
		uint8_t entry[GM_INDEX_SEQUENCE_BYTES];
		gm_put_u64(entry, s->first_token);
		gm_put_u64(entry + 8, s->n_token);
		gm_put_u32(entry + 16, (uint32_t)strlen(s->id));
		gm_put_u32(entry + 20, (uint32_t)strlen(s->label));
		GM_TRY(gm_buffer_add(out, entry, sizeof(entry), err));
		GM_TRY(gm_buffer_add(out, s->id, strlen(s->id), err));
		GM_TRY(gm_buffer_add(out, s->label, strlen(s->label), err));
	}
	return GM_OK;
}

static int parse_blocks(struct gm_index *index, const uint8_t *entry, uint64_t n_block, uint64_t end, uint32_t n_layer,
			struct gm_error *err)
{
	uint64_t previous = 0;

	for (uint64_t i = 0; i < n_block; i++, entry += GM_INDEX_BLOCK_BYTES) {
		struct gm_index_block b = {.offset = gm_get_u64(entry),
					   .first_token = gm_get_u64(entry + 8),
					   .n_token = gm_get_u32(entry + 16),
					   .n_row = gm_get_u32(entry + 20),
					   .hash = gm_get_u64(entry + 24)};
		if (b.offset <= previous || b.offset > end || end - b.offset < GM_FRAME_BYTES)
			return gm_fail(err, GM_ERR_FORMAT, "block %llu is said to lie at byte %llu: index: out of place",
				       (unsigned long long)i, (unsigned long long)b.offset);
		if (b.first_token != index->n_token || b.n_token < 1 || b.n_token > GM_MAX_BLOCK_TOKENS ||
		    b.n_row > (uint64_t)b.n_token * n_layer)
			return gm_fail(
				err, GM_ERR_FORMAT,
				"block %llu from token %llu with %u tokens and %u rows: index: must begin at token %llu",
				(unsigned long long)i, (unsigned long long)b.first_token, b.n_token, b.n_row,
				(unsigned long long)index->n_token);
		previous = b.offset;
		GM_TRY(gm_index_add_block(index, &b, err));
	}
	return GM_OK;
}

static int parse_sequences(struct gm_index *index, const uint8_t *data, size_t size, uint32_t n_sequence,
			   struct gm_error *err)
{
	uint64_t next = 0;

	for (uint32_t i = 0; i < n_sequence; i++) {
		if (size < GM_INDEX_SEQUENCE_BYTES)
			return gm_fail(err, GM_ERR_FORMAT, "ends before sequence %u of %u: index: damaged", i, n_sequence);
		uint64_t first = gm_get_u64(data), n_token = gm_get_u64(data + 8);
		uint32_t n_id = gm_get_u32(data + 16), n_label = gm_get_u32(data + 20);
		data += GM_INDEX_SEQUENCE_BYTES;
		size -= GM_INDEX_SEQUENCE_BYTES;
		if ((uint64_t)n_id + n_label > size)
			return gm_fail(err, GM_ERR_FORMAT, "ends inside sequence %u of %u: index: damaged", i, n_sequence);
		if (first != next || n_token > index->n_token - next)
			return gm_fail(
				err, GM_ERR_FORMAT,
				"sequence %u of %llu tokens from token %llu: index: must begin at token %llu of %llu", i,
				(unsigned long long)n_token, (unsigned long long)first, (unsigned long long)next,
				(unsigned long long)index->n_token);
		next += n_token;
		char *id = NULL, *label = NULL;
		int status = copy_text(data, n_id, "id", &id, err);
		if (status == GM_OK)
			status = copy_text(data + n_id, n_label, "label", &label, err);
		if (status == GM_OK)
			status = gm_index_add_sequence(index, id, label, first, err);
		free(id);
		free(label);
		if (status < 0)
			return status;
		index->sequence[i].n_token = n_token;
		data += (size_t)n_id + n_label;
		size -= (size_t)n_id + n_label;
	}
	if (next != index->n_token)
		return gm_fail(err, GM_ERR_FORMAT, "sequences hold %llu tokens, blocks %llu: index: must be the same",
			       (unsigned long long)next, (unsigned long long)index->n_token);
	if (size != 0)
		return gm_fail(err, GM_ERR_FORMAT, "%zu bytes after the last sequence: index: must end there", size);
	return GM_OK;
}

int gm_index_parse(struct gm_index *index, const uint8_t *payload, size_t size, uint64_t end, uint32_t n_layer,
		   struct gm_error *err)
{
	memset(index, 0, sizeof(*index));
	if (size < GM_INDEX_BYTES)
		return gm_fail(err, GM_ERR_FORMAT, "%zu bytes: index: must be at least %u", size, GM_INDEX_BYTES);
	uint64_t n_token = gm_get_u64(payload), n_row = gm_get_u64(payload + 8), n_block = gm_get_u64(payload + 16);
	uint32_t n_sequence = gm_get_u32(payload + 24);
	if (n_block > (size - GM_INDEX_BYTES) / GM_INDEX_BLOCK_BYTES || gm_get_u32(payload + 28) != 0)
		return gm_fail(err, GM_ERR_FORMAT, "%llu blocks in %zu bytes: index: damaged", (unsigned long long)n_block,
			       size);
	size_t blocks = (size_t)n_block * GM_INDEX_BLOCK_BYTES;
	GM_TRY(parse_blocks(index, payload + GM_INDEX_BYTES, n_block, end, n_layer, err));
	if (index->n_token != n_token || index->n_row != n_row)
		return gm_fail(err, GM_ERR_FORMAT, "blocks hold %llu tokens and %llu rows: index: must be %llu and %llu",
			       (unsigned long long)index->n_token, (unsigned long long)index->n_row,
			       (unsigned long long)n_token, (unsigned long long)n_row);
	return parse_sequences(index, payload + GM_INDEX_BYTES + blocks, size - GM_INDEX_BYTES - blocks, n_sequence, err);
}

void gm_index_free(struct gm_index *index)
{
	for (uint32_t i = 0; i < index->n_sequence; i++) {
		free(index->sequence[i].id);
		free(index->sequence[i].label);
	}
	free(index->sequence);
	free(index->block);
	memset(index, 0, sizeof(*index));
}
