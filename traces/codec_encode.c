/* Rows to a block's frame. */
#include "traces/codec.h"

#include "base/hash.h"

#include <stdlib.h>
#include <zstd.h>

/* A block on its way out. */
struct encoder {
	struct gm_codec *codec;
	const struct gm_rows *rows;
	uint32_t start, n_token, n_row;
	struct gm_buffer *out;
	size_t next_entry; /* where the next part's directory entry goes, in *out */
	struct gm_error *err;
};

/* A plane of one byte alone, of which zstd would make a first byte and a match: a frame of run-length blocks unpacks sooner. */
static size_t write_run(uint8_t *out, uint8_t byte, size_t size)
{
	uint8_t *to = out;

	gm_put_u32(to, ZSTD_MAGICNUMBER);
	to[4] = 0xa0; /* one segment, its size in four bytes, no dictionary, no checksum */
	gm_put_u32(to + 5, (uint32_t)size);
	for (to += 9; size; to += 4) {
		uint32_t n = size < ZSTD_BLOCKSIZE_MAX ? (uint32_t)size : ZSTD_BLOCKSIZE_MAX;
		size -= n;
		/* bit 0: the last block; bits 1 and 2: run-length; then the size, and what is repeated */
		gm_put_u32(to, (uint32_t)(size == 0) | 1u << 1 | n << 3 | (uint32_t)byte << 24);
	}
	return (size_t)(to - out);
}

/* Compresses to the end of out unless that saves less than 1/16, which is not worth a reader's time; false: store raw. */
static bool compress(struct encoder *e, const uint8_t *raw, size_t size, size_t *stored)
{
	struct gm_buffer *out = e->out;
	uint8_t *to = out->data + out->size;

	if (size < 32)
		return false;
	if (memcmp(raw, raw + 1, size - 1) == 0) {
		*stored = write_run(to, raw[0], size);
		return true;
	}
	size_t n = ZSTD_compress2(e->codec->compress, to, out->capacity - out->size, raw, size);
	if (ZSTD_isError(n) || n > size - size / 16)
		return false;
	*stored = n;
	return true;
}

static int put_part(struct encoder *e, uint32_t column, uint32_t part, const uint8_t *raw, size_t size)
{
	struct gm_buffer *out = e->out;
	size_t stored = size;

	GM_TRY(gm_buffer_reserve(out, out->size + ZSTD_compressBound(size), e->err));
	bool zstd = compress(e, raw, size, &stored);
	if (!zstd && size)
		memcpy(out->data + out->size, raw, size);
	uint8_t *entry = out->data + e->next_entry;
	gm_put_u16(entry, (uint16_t)column);
	entry[2] = (uint8_t)part;
	entry[3] = zstd ? GM_ENCODING_ZSTD : GM_ENCODING_RAW;
	gm_put_u32(entry + 4, (uint32_t)size);
	gm_put_u32(entry + 8, (uint32_t)stored);
	gm_put_u32(entry + 12, 0);
	gm_put_u64(entry + 16, gm_hash(out->data + out->size, stored));
	out->size += stored;
	e->next_entry += GM_PART_BYTES;
	return GM_OK;
}

/* Splits n little-endian values of `width` bytes into byte planes, lowest first, each of n bytes, one after the other. */
static void split_planes(const uint8_t *values, size_t n, uint32_t width, uint8_t *planes)
{
	for (uint32_t p = 0; p < width; p++)
		for (size_t i = 0; i < n; i++)
			planes[p * n + i] = values[i * width + p];
}

/* The n values in codec->values as byte planes: all in one part, or each a part of its own. */
static int put_planes(struct encoder *e, uint32_t column, size_t n, uint32_t width, bool one_part)
{
	struct gm_buffer *planes = &e->codec->plane[0];

	GM_TRY(gm_buffer_reserve(planes, n * width, e->err));
	split_planes(e->codec->values.data, n, width, planes->data);
	if (one_part)
		return put_part(e, column, 0, planes->data, n * width);
	for (uint32_t p = 0; p < width; p++)
		GM_TRY(put_part(e, column, p, planes->data + p * n, n));
	return GM_OK;
}

static int reserve_values(struct encoder *e, size_t bytes)
{
	return gm_buffer_reserve(&e->codec->values, bytes, e->err);
}

/* A column of 32-bit values a token; deltas: each less the one before it (the first less 0). */
static int put_token_column(struct encoder *e, uint32_t column, const void *data, bool deltas)
{
	uint32_t previous = 0;

	GM_TRY(reserve_values(e, 4 * (size_t)e->n_token));
	for (uint32_t i = 0; i < e->n_token; i++) {
		uint32_t value = gm_get_u32((const uint8_t *)data + 4 * (size_t)(e->start + i));
		gm_put_u32(e->codec->values.data + 4 * (size_t)i, value - previous);
		if (deltas)
			previous = value;
	}
	return put_planes(e, column, e->n_token, 4, true);
}

static int put_present(struct encoder *e)
{
	const struct gm_rows *rows = e->rows;
	uint32_t n_layer = e->codec->geometry.n_layer;
	size_t bit = 0, bytes = ((size_t)n_layer * e->n_token + 7) / 8;

	GM_TRY(reserve_values(e, bytes));
	uint8_t *bits = e->codec->values.data;
	memset(bits, 0, bytes);
	for (uint32_t layer = 0; layer < n_layer; layer++)
		for (uint32_t i = 0; i < e->n_token; i++, bit++)
			if (rows->present[(size_t)layer * rows->stride + e->start + i])
				bits[bit / 8] = (uint8_t)(bits[bit / 8] | 1u << bit % 8);
	return put_part(e, GM_COLUMN_PRESENT, 0, bits, bytes);
}

/* The rows that are present, `size` bytes each, one after the other in codec->values. */
static int gather(struct encoder *e, const void *data, size_t size)
{
	const struct gm_rows *rows = e->rows;

	GM_TRY(reserve_values(e, e->n_row * size));
	uint8_t *to = e->codec->values.data;
	for (uint32_t layer = 0; layer < e->codec->geometry.n_layer; layer++)
		for (uint32_t i = 0; i < e->n_token; i++) {
			size_t row = (size_t)layer * rows->stride + e->start + i;
			if (!rows->present[row])
				continue;
			memcpy(to, (const uint8_t *)data + row * size, size);
			to += size;
		}
	return GM_OK;
}

static int put_head_ids(struct encoder *e)
{
	const struct gm_geometry *g = &e->codec->geometry;
	size_t n = (size_t)e->n_row * g->n_head;
	uint32_t bits = gm_high_bits(g->n_expert);

	GM_TRY(gather(e, e->rows->head, 2 * (size_t)g->n_head));
	GM_TRY(gm_buffer_reserve(&e->codec->plane[0], 2 * n, e->err));
	uint8_t *low = e->codec->plane[0].data, *high = low + n;
	split_planes(e->codec->values.data, n, 2, low);
	GM_TRY(put_part(e, GM_COLUMN_HEAD_ID, 0, low, n));
	if (bits == 0)
		return GM_OK;
	/* 8/bits values share a byte: value j * n_byte + i lies in byte i, so that a reader unpacks whole runs. */
	size_t n_byte = (n * bits + 7) / 8;
	uint8_t *packed = e->codec->values.data;
	memset(packed, 0, n_byte);
	for (size_t v = 0; v < n; v++)
		packed[v % n_byte] = (uint8_t)(packed[v % n_byte] | high[v] << v / n_byte * bits);
	return put_part(e, GM_COLUMN_HEAD_ID, 1, packed, n_byte);
}

/* The image of a float whose unsigned order is the order of the floats. */
static uint32_t key_of(const float *value)
{
	uint32_t bits = gm_get_u32(value);

	return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* Logits as differences of keys: rank 1 to the layer's largest in the block, every other to the rank before. */
static int put_head_logits(struct encoder *e)
{
	const struct gm_geometry *g = &e->codec->geometry;
	const struct gm_rows *rows = e->rows;
	uint32_t n_head = g->n_head;

	GM_TRY(reserve_values(e, 4 * (size_t)g->n_layer));
	for (uint32_t layer = 0; layer < g->n_layer; layer++) {
		uint32_t base = 0;
		for (uint32_t i = 0; i < e->n_token; i++) {
			size_t row = (size_t)layer * rows->stride + e->start + i;
			uint32_t key = rows->present[row] ? key_of(rows->logit + row * n_head) : 0;
			base = key > base ? key : base;
		}
		gm_put_u32(e->codec->values.data + 4 * (size_t)layer, base);
	}
	/* The planes leave plane[1] alone: the bases are kept there for the second pass. */
	GM_TRY(gm_buffer_reserve(&e->codec->plane[1], 4 * (size_t)g->n_layer, e->err));
	memcpy(e->codec->plane[1].data, e->codec->values.data, 4 * (size_t)g->n_layer);
	GM_TRY(put_planes(e, GM_COLUMN_HEAD_BASE, g->n_layer, 4, true));

	size_t n = (size_t)e->n_row * n_head;
	GM_TRY(reserve_values(e, 4 * n));
	uint8_t *to = e->codec->values.data;
	for (uint32_t layer = 0; layer < g->n_layer; layer++)
		for (uint32_t i = 0; i < e->n_token; i++) {
			size_t row = (size_t)layer * rows->stride + e->start + i;
			if (!rows->present[row])
				continue;
			uint32_t previous = gm_get_u32(e->codec->plane[1].data + 4 * (size_t)layer);
			for (uint32_t r = 0; r < n_head; r++, to += 4) {
				uint32_t key = key_of(rows->logit + row * n_head + r);
				gm_put_u32(to, previous - key);
				previous = key;
			}
		}
	return put_planes(e, GM_COLUMN_HEAD_KEY, n, 4, false);
}

static int put_columns(struct encoder *e)
{
	const struct gm_geometry *g = &e->codec->geometry;
	const struct gm_rows *rows = e->rows;

	GM_TRY(put_token_column(e, GM_COLUMN_TOKEN, rows->token, false));
	GM_TRY(put_token_column(e, GM_COLUMN_SEQUENCE, rows->sequence, true));
	GM_TRY(put_token_column(e, GM_COLUMN_POSITION, rows->position, true));
	GM_TRY(put_token_column(e, GM_COLUMN_PASS, rows->pass, true));
	GM_TRY(put_present(e));
	GM_TRY(put_head_ids(e));
	if (g->kind == GM_KIND_LOGITS) {
		GM_TRY(put_head_logits(e));
		GM_TRY(gather(e, rows->lse, sizeof(double)));
		GM_TRY(put_planes(e, GM_COLUMN_LSE, e->n_row, 8, false));
	} else {
		GM_TRY(gather(e, rows->weight, sizeof(double) * g->top_k));
		GM_TRY(put_planes(e, GM_COLUMN_WEIGHT, (size_t)e->n_row * g->top_k, 8, false));
	}
	if (g->logprobs)
		GM_TRY(put_token_column(e, GM_COLUMN_LOGPROB, rows->logprob, false));
	if (g->predictions) {
		GM_TRY(gather(e, rows->prediction, 2 * (size_t)g->top_k));
		GM_TRY(put_planes(e, GM_COLUMN_PREDICTION, (size_t)e->n_row * g->top_k, 2, false));
	}
	uint32_t width = gm_column_parts(g, GM_COLUMN_TAIL);
	if (width == 0)
		return GM_OK;
	size_t n_tail = g->n_expert - g->n_head;
	GM_TRY(gather(e, width == 2 ? (const void *)rows->tail_16 : (const void *)rows->tail_32, width * n_tail));
	return put_planes(e, GM_COLUMN_TAIL, e->n_row * n_tail, width, false);
}

static uint32_t count_rows(const struct gm_rows *rows, uint32_t n_layer, uint32_t start, uint32_t n_token)
{
	uint32_t n = 0;

	for (uint32_t layer = 0; layer < n_layer; layer++)
		for (uint32_t i = 0; i < n_token; i++)
			n += rows->present[(size_t)layer * rows->stride + start + i] != 0;
	return n;
}

static uint32_t count_parts(const struct gm_geometry *g)
{
	static const uint32_t ids[] = {GM_COLUMN_TOKEN,   GM_COLUMN_SEQUENCE, GM_COLUMN_POSITION,  GM_COLUMN_PASS,
				       GM_COLUMN_PRESENT, GM_COLUMN_HEAD_ID,  GM_COLUMN_HEAD_BASE, GM_COLUMN_HEAD_KEY,
				       GM_COLUMN_LSE,     GM_COLUMN_WEIGHT,   GM_COLUMN_LOGPROB,   GM_COLUMN_PREDICTION,
				       GM_COLUMN_TAIL};
	uint32_t n = 0;

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		n += gm_column_parts(g, ids[i]);
	return n;
}

/* Without a level asked for: level 1, but hardly any matches. Those that zstd finds in planes of logits are short and few; they save less than they
 * take from the entropy coder, and unpacking gets twice as slow (docs/trace-format.md, "Sizes and speed"). */
static int prepare_zstd(struct gm_codec *codec, int level, struct gm_error *err)
{
	if (!codec->compress)
		codec->compress = ZSTD_createCCtx();
	if (!codec->compress)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory: zstd context");
	const struct {
		ZSTD_cParameter name;
		int value; /* 0: the level's own */
	} set[] = {{ZSTD_c_compressionLevel, level ? level : 1},
		   {ZSTD_c_strategy, level ? 0 : ZSTD_fast},
		   {ZSTD_c_minMatch, level ? 0 : 7},
		   {ZSTD_c_hashLog, level ? 0 : 6}};
	for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++) {
		size_t n = ZSTD_CCtx_setParameter(codec->compress, set[i].name, set[i].value);
		if (ZSTD_isError(n))
			return gm_fail(err, GM_ERR_USAGE, "zstd does not take its parameters: %s", ZSTD_getErrorName(n));
	}
	return GM_OK;
}

int gm_codec_encode(struct gm_codec *codec, const struct gm_rows *rows, uint32_t start, uint32_t n_token, uint64_t index,
		    uint64_t first_token, int level, struct gm_buffer *out, uint32_t *n_row, uint64_t *hash,
		    struct gm_error *err)
{
	const struct gm_geometry *g = &codec->geometry;
	uint32_t n_part = count_parts(g), bytes = GM_DIRECTORY_BYTES + n_part * GM_PART_BYTES;
	struct encoder e = {.codec = codec,
			    .rows = rows,
			    .start = start,
			    .n_token = n_token,
			    .n_row = count_rows(rows, g->n_layer, start, n_token),
			    .out = out,
			    .next_entry = GM_FRAME_BYTES + GM_DIRECTORY_BYTES,
			    .err = err};

	GM_TRY(prepare_zstd(codec, level, err));
	out->size = 0;
	GM_TRY(gm_buffer_reserve(out, GM_FRAME_BYTES + bytes, err));
	out->size = GM_FRAME_BYTES + bytes;
	GM_TRY(put_columns(&e));

	uint8_t *directory = out->data + GM_FRAME_BYTES;
	uint64_t length = out->size - GM_FRAME_BYTES, cells = (uint64_t)n_token * g->n_layer * g->n_expert;
	if (cells > GM_MAX_BLOCK_CELLS || cells > GM_FREE_CELLS + GM_CELLS_A_BYTE * length)
		return gm_fail(err, GM_ERR_UNSUPPORTED, "a block of %u tokens would decode to too much", n_token);
	gm_put_u32(directory, bytes);
	gm_put_u32(directory + 4, n_token);
	gm_put_u64(directory + 8, index);
	gm_put_u64(directory + 16, first_token);
	gm_put_u32(directory + 24, e.n_row);
	gm_put_u32(directory + 28, n_part);
	*n_row = e.n_row;
	*hash = gm_hash(directory, bytes);
	gm_frame_write(out->data, GM_FRAME_BLCK, length, *hash);
	return GM_OK;
}
