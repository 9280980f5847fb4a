/* A block's payload to rows. */
#include "traces/codec.h"

#include "base/hash.h"

#include <stdlib.h>
#include <zstd.h>

struct decoder {
	struct gm_codec *codec;
	const struct gm_directory *directory;
	const uint8_t *payload;
	struct gm_block *block;
	uint32_t n_row;
	const uint8_t *plane[8]; /* of the column at hand */
	struct gm_error *err;
};

/* --- parts --- */

/* One part checked and, where it is compressed, unpacked into scratch. */
static int open_part(struct decoder *d, uint32_t column, uint32_t part, struct gm_buffer *scratch, const uint8_t **out)
{
	const struct gm_part *p = &d->directory->part[gm_column_slot(column) + (int)part];
	const uint8_t *stored = d->payload + p->offset;
	struct gm_codec *codec = d->codec;

	*out = stored;
	if (gm_hash(stored, p->stored) != p->hash) {
		gm_fail(d->err, GM_ERR_FORMAT, "the checksum does not match: column %s, part %u: damaged",
			gm_column_name(column), part);
		return GM_ERR_FORMAT;
	}
	if (p->encoding == GM_ENCODING_RAW)
		return GM_OK;
	if (!codec->decompress)
		codec->decompress = ZSTD_createDCtx();
	if (!codec->decompress)
		return gm_fail(d->err, GM_ERR_MEMORY, "out of memory: zstd context");
	GM_TRY(gm_buffer_reserve(scratch, p->raw, d->err));
	size_t n = ZSTD_decompressDCtx(codec->decompress, scratch->data, p->raw, stored, p->stored);
	if (n != p->raw) {
		gm_fail(d->err, GM_ERR_FORMAT, "does not unpack to %u bytes: column %s, part %u: %s", p->raw,
			gm_column_name(column), part, ZSTD_isError(n) ? ZSTD_getErrorName(n) : "it is shorter");
		return GM_ERR_FORMAT;
	}
	*out = scratch->data;
	return GM_OK;
}

/* The first n_part parts of a column into d->plane. */
static int open_planes(struct decoder *d, uint32_t column, uint32_t n_part)
{
	for (uint32_t part = 0; part < n_part; part++)
		GM_TRY(open_part(d, column, part, &d->codec->plane[part], &d->plane[part]));
	return GM_OK;
}

/* --- token columns --- */

static int read_token_column(struct decoder *d, uint32_t column, void *out, bool deltas)
{
	uint32_t n = d->directory->n_token, previous = 0;
	const uint8_t *planes;

	GM_TRY(open_part(d, column, 0, &d->codec->plane[0], &planes));
	const uint8_t *const plane[4] = {planes, planes + n, planes + 2 * (size_t)n, planes + 3 * (size_t)n};
	for (uint32_t i = 0; i < n; i++) {
		uint32_t value = gm_planes_u32(plane, i) + previous;
		memcpy((uint8_t *)out + 4 * (size_t)i, &value, sizeof(value));
		if (deltas)
			previous = value;
	}
	return GM_OK;
}

static int read_tokens(struct decoder *d)
{
	struct gm_block *b = d->block;

	GM_TRY(read_token_column(d, GM_COLUMN_TOKEN, b->token, false));
	GM_TRY(read_token_column(d, GM_COLUMN_SEQUENCE, b->sequence, true));
	GM_TRY(read_token_column(d, GM_COLUMN_POSITION, b->position, true));
	GM_TRY(read_token_column(d, GM_COLUMN_PASS, b->pass, true));
	for (uint32_t i = 1; i < b->n_token; i++) {
		if (b->sequence[i] < b->sequence[i - 1])
			return gm_fail(d->err, GM_ERR_FORMAT, "sequence %u after %u: token %u of the block: must not fall",
				       b->sequence[i], b->sequence[i - 1], i);
		if (b->pass[i] < b->pass[i - 1] || (b->pass[i] == b->pass[i - 1] && b->sequence[i] != b->sequence[i - 1]))
			return gm_fail(d->err, GM_ERR_FORMAT,
				       "pass %u after %u: token %u of the block: must not fall, nor span two sequences",
				       b->pass[i], b->pass[i - 1], i);
	}
	if (b->logprob && d->directory->part[GM_SLOT_LOGPROB].there)
		return read_token_column(d, GM_COLUMN_LOGPROB, b->logprob, false);
	const uint32_t quiet_nan = 0x7fc00000u;
	for (uint32_t i = 0; b->logprob && i < b->n_token; i++)
		memcpy(&b->logprob[i], &quiet_nan, sizeof(quiet_nan));
	return GM_OK;
}

static int read_present(struct decoder *d)
{
	const struct gm_geometry *g = &d->codec->geometry;
	uint32_t n_token = d->directory->n_token, n_row = 0;
	const uint8_t *bits;
	size_t bit = 0;

	GM_TRY(open_part(d, GM_COLUMN_PRESENT, 0, &d->codec->plane[0], &bits));
	for (uint32_t layer = 0; layer < g->n_layer; layer++) {
		uint32_t n = 0;
		uint8_t *present = d->block->present + (size_t)layer * n_token;
		for (uint32_t i = 0; i < n_token; i++, bit++) {
			present[i] = bits[bit / 8] >> bit % 8 & 1;
			n += present[i];
		}
		d->codec->n_in_layer[layer] = n;
		n_row += n;
	}
	if (n_row != d->n_row)
		return gm_fail(d->err, GM_ERR_FORMAT, "%u rows are marked as present: must be %u", n_row, d->n_row);
	return GM_OK;
}

/* --- rows, first compact: one after the other without the absent ones --- */

/* Ids from their low bytes and their packed high bits: value j * n_byte + i has its bits in byte i. Returns the largest. */
static uint32_t join_ids(const struct decoder *d, size_t n, uint32_t bits)
{
	const struct gm_planes *planes = d->codec->planes;
	const uint8_t *low = d->plane[0], *packed = d->plane[1];
	uint16_t *ids = d->block->head;

	if (bits == 0)
		return planes->ids(ids, low, low, n, 0, 0);
	size_t n_byte = (n * bits + 7) / 8;
	uint32_t mask = (1u << bits) - 1, shift = 0, largest = 0;
	for (size_t first = 0; first < n; first += n_byte, shift += bits) {
		size_t count = n - first < n_byte ? n - first : n_byte;
		uint32_t one = planes->ids(ids + first, low + first, packed, count, shift, mask);
		largest = one > largest ? one : largest;
	}
	return largest;
}

/* The first n_distinct ids of each row, all below n_expert, are distinct. */
static int check_distinct(struct decoder *d, const uint16_t *ids, uint32_t n_distinct)
{
	struct gm_codec *codec = d->codec;
	uint32_t n_head = codec->geometry.n_head, n_expert = codec->geometry.n_expert;
	uint16_t *stamp = codec->stamp;
	uint32_t twice = 0;

	for (uint32_t row = 0; row < d->n_row; row++, ids += n_head) {
		uint16_t now = ++codec->stamp_now;
		if (now == 0) {
			memset(stamp, 0, n_expert * sizeof(*stamp));
			now = codec->stamp_now = 1;
		}
		for (uint32_t r = 0; r < n_distinct; r++) {
			twice |= stamp[ids[r]] == now;
			stamp[ids[r]] = now;
		}
		if (twice)
			return gm_fail(d->err, GM_ERR_FORMAT,
				       "an expert stands twice: row %u of the block: must stand once", row);
	}
	return GM_OK;
}

static int read_head_ids(struct decoder *d, bool all_distinct)
{
	const struct gm_geometry *g = &d->codec->geometry;
	uint32_t bits = gm_high_bits(g->n_expert);

	GM_TRY(open_planes(d, GM_COLUMN_HEAD_ID, bits ? 2 : 1));
	if (join_ids(d, (size_t)d->n_row * g->n_head, bits) >= g->n_expert)
		return gm_fail(d->err, GM_ERR_FORMAT, "a row names an expert that is not below n_expert (%u)", g->n_expert);
	return check_distinct(d, d->block->head, all_distinct ? g->n_head : g->top_k);
}

static int read_head_logits(struct decoder *d)
{
	const struct gm_geometry *g = &d->codec->geometry;
	const uint8_t *bases;
	bool finite = true;
	size_t done = 0;

	GM_TRY(open_planes(d, GM_COLUMN_HEAD_KEY, 4));
	GM_TRY(open_part(d, GM_COLUMN_HEAD_BASE, 0, &d->codec->plane[4], &bases));
	const uint8_t *const base[4] = {bases, bases + g->n_layer, bases + 2 * (size_t)g->n_layer,
					bases + 3 * (size_t)g->n_layer};
	for (uint32_t layer = 0; layer < g->n_layer; layer++) {
		const uint8_t *const plane[4] = {d->plane[0] + done, d->plane[1] + done, d->plane[2] + done,
						 d->plane[3] + done};
		uint32_t n = d->codec->n_in_layer[layer];
		finite &= d->codec->planes->logits(d->block->logit + done, plane, n, g->n_head, gm_planes_u32(base, layer));
		done += (size_t)n * g->n_head;
	}
	if (!finite)
		return gm_fail(d->err, GM_ERR_FORMAT, "a logit of the head is not a finite number");
	return GM_OK;
}

static int read_lse(struct decoder *d)
{
	GM_TRY(open_planes(d, GM_COLUMN_LSE, 8));
	if (!d->codec->planes->doubles(d->block->lse, d->plane, d->n_row))
		return gm_fail(d->err, GM_ERR_FORMAT, "a log-sum-exp is not a finite number");
	return GM_OK;
}

static int read_weights(struct decoder *d)
{
	uint32_t top_k = d->codec->geometry.top_k;
	double *weight = d->block->weight;

	GM_TRY(open_planes(d, GM_COLUMN_WEIGHT, 8));
	(void)d->codec->planes->doubles(weight, d->plane,
					(size_t)d->n_row * top_k); /* what is not finite makes no sum of 1 */
	for (uint32_t row = 0; row < d->n_row; row++, weight += top_k) {
		double sum = 0;
		bool negative = false;
		for (uint32_t i = 0; i < top_k; i++) {
			negative = negative || !(weight[i] >= 0);
			sum += weight[i];
		}
		if (negative || !(sum >= 1 - 1e-9 && sum <= 1 + 1e-9))
			return gm_fail(d->err, GM_ERR_FORMAT,
				       "wrong weights: row %u of the block: must not be negative and must sum to 1", row);
	}
	return GM_OK;
}

static int read_tail(struct decoder *d)
{
	const struct gm_geometry *g = &d->codec->geometry;
	size_t n = (size_t)d->n_row * (g->n_expert - g->n_head);
	float *out = d->block->tail;

	GM_TRY(open_planes(d, GM_COLUMN_TAIL, g->tail == GM_TAIL_F16 ? 2 : 4));
	const struct gm_planes *planes = d->codec->planes;
	if (!(g->tail == GM_TAIL_F16 ? planes->halves(out, d->plane, n) : planes->floats(out, d->plane, n)))
		return gm_fail(d->err, GM_ERR_FORMAT, "a logit of the tail is not a finite number");
	return GM_OK;
}

static int read_prediction(struct decoder *d)
{
	const struct gm_geometry *g = &d->codec->geometry;
	size_t n = (size_t)d->n_row * g->top_k;
	uint16_t *out = d->block->prediction;

	if (!d->directory->part[GM_SLOT_PREDICTION].there) {
		memset(out, 0xff, n * sizeof(*out));
		return GM_OK;
	}
	GM_TRY(open_planes(d, GM_COLUMN_PREDICTION, 2));
	(void)d->codec->planes->ids(out, d->plane[0], d->plane[1], n, 0, 0xff);
	for (size_t i = 0; i < n; i++)
		if (out[i] >= g->n_expert && out[i] != 0xffff)
			return gm_fail(d->err, GM_ERR_FORMAT, "a predicted expert is %u: must be below n_expert (%u)",
				       out[i], g->n_expert);
	return GM_OK;
}

/* Moves compact rows of `size` bytes to their places, from the last on, and fills the absent ones. */
static void spread(const struct gm_block *block, void *rows, size_t size, int fill)
{
	size_t n = (size_t)block->n_layer * block->n_token, from = 0;
	uint8_t *data = rows;

	for (size_t i = 0; i < n; i++)
		from += block->present[i];
	for (size_t i = n; i-- > 0;) {
		if (!block->present[i])
			memset(data + i * size, fill, size);
		else if (--from != i)
			memcpy(data + i * size, data + from * size, size);
	}
}

static void spread_all(const struct gm_geometry *g, struct gm_block *b)
{
	spread(b, b->head, sizeof(*b->head) * g->n_head, 0);
	if (b->logit)
		spread(b, b->logit, sizeof(*b->logit) * g->n_head, 0);
	if (b->lse)
		spread(b, b->lse, sizeof(*b->lse), 0);
	if (b->weight)
		spread(b, b->weight, sizeof(*b->weight) * g->top_k, 0);
	if (b->tail)
		spread(b, b->tail, sizeof(*b->tail) * (g->n_expert - g->n_head), 0);
	if (b->prediction)
		spread(b, b->prediction, sizeof(*b->prediction) * g->top_k, 0xff);
}

/* --- memory of a block --- */

/* The next array of n elements in the block's memory, on its own cache lines; NULL base: only counts. */
static void *carve(uint8_t *base, size_t *used, size_t n, size_t size)
{
	void *p = base ? base + *used : NULL;

	*used += (n * size + 63) / 64 * 64;
	return p;
}

static size_t lay_out(const struct gm_geometry *g, struct gm_block *b, uint8_t *base, bool tail, bool prediction)
{
	size_t n = b->n_token, n_row = n * g->n_layer, used = 0;
	bool logits = g->kind == GM_KIND_LOGITS;

	b->token = carve(base, &used, n, sizeof(*b->token));
	b->sequence = carve(base, &used, n, sizeof(*b->sequence));
	b->position = carve(base, &used, n, sizeof(*b->position));
	b->pass = carve(base, &used, n, sizeof(*b->pass));
	b->logprob = g->logprobs ? carve(base, &used, n, sizeof(*b->logprob)) : NULL;
	b->present = carve(base, &used, n_row, sizeof(*b->present));
	b->head = carve(base, &used, n_row * g->n_head, sizeof(*b->head));
	b->logit = logits ? carve(base, &used, n_row * g->n_head, sizeof(*b->logit)) : NULL;
	b->lse = logits ? carve(base, &used, n_row, sizeof(*b->lse)) : NULL;
	b->weight = logits ? NULL : carve(base, &used, n_row * g->top_k, sizeof(*b->weight));
	b->tail = tail ? carve(base, &used, n_row * (g->n_expert - g->n_head), sizeof(*b->tail)) : NULL;
	b->prediction = prediction ? carve(base, &used, n_row * g->top_k, sizeof(*b->prediction)) : NULL;
	return used;
}

static int prepare_block(const struct gm_geometry *g, const struct gm_directory *d, unsigned want, struct gm_block *block,
			 struct gm_error *err)
{
	bool tail = (want & GM_WANT_TAIL) && gm_column_parts(g, GM_COLUMN_TAIL);
	bool prediction = (want & GM_WANT_PREDICTION) && g->predictions;

	block->index = d->index;
	block->first_token = d->first_token;
	block->n_token = d->n_token;
	block->n_layer = g->n_layer;
	block->n_head = g->n_head;
	block->top_k = g->top_k;
	size_t needed = lay_out(g, block, NULL, tail, prediction);
	if (needed > block->capacity_bytes) {
		gm_block_free(block);
		block->memory = aligned_alloc(64, needed); /* a multiple of 64: arrays begin on cache lines */
		if (!block->memory)
			return gm_fail(err, GM_ERR_MEMORY, "out of memory: a block of %zu bytes", needed);
		block->capacity_bytes = needed;
		return prepare_block(g, d, want, block, err);
	}
	lay_out(g, block, block->memory, tail, prediction);
	return GM_OK;
}

void gm_block_free(struct gm_block *block)
{
	free(block->memory);
	memset(block, 0, sizeof(*block));
}

int gm_codec_decode(struct gm_codec *codec, const struct gm_directory *directory, const uint8_t *payload, unsigned want,
		    struct gm_block *block, struct gm_error *err)
{
	const struct gm_geometry *g = &codec->geometry;
	struct decoder d = {.codec = codec,
			    .directory = directory,
			    .payload = payload,
			    .block = block,
			    .n_row = directory->n_row,
			    .err = err};

	GM_TRY(prepare_block(g, directory, want, block, err));
	GM_TRY(read_tokens(&d));
	GM_TRY(read_present(&d));
	GM_TRY(read_head_ids(&d, block->tail != NULL));
	if (block->logit) {
		GM_TRY(read_head_logits(&d));
		GM_TRY(read_lse(&d));
	} else {
		GM_TRY(read_weights(&d));
	}
	if (block->prediction)
		GM_TRY(read_prediction(&d));
	if (block->tail)
		GM_TRY(read_tail(&d));
	if (d.n_row != (uint64_t)directory->n_token * g->n_layer)
		spread_all(g, block);
	return GM_OK;
}
