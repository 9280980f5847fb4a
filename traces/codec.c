/* What encoder and decoder share: the table of columns, sizes, the directory. */
#include "traces/codec.h"

#include "base/hash.h"

#include <stdlib.h>
#include <zstd.h>

static const struct column {
	uint32_t id;
	int slot;
	const char *name;
} columns[] = {
	{GM_COLUMN_TOKEN, GM_SLOT_TOKEN, "token"},
	{GM_COLUMN_SEQUENCE, GM_SLOT_SEQUENCE, "sequence"},
	{GM_COLUMN_POSITION, GM_SLOT_POSITION, "position"},
	{GM_COLUMN_PASS, GM_SLOT_PASS, "pass"},
	{GM_COLUMN_PRESENT, GM_SLOT_PRESENT, "present"},
	{GM_COLUMN_HEAD_ID, GM_SLOT_HEAD_ID, "head id"},
	{GM_COLUMN_HEAD_BASE, GM_SLOT_HEAD_BASE, "head base"},
	{GM_COLUMN_HEAD_KEY, GM_SLOT_HEAD_KEY, "head key"},
	{GM_COLUMN_LSE, GM_SLOT_LSE, "log-sum-exp"},
	{GM_COLUMN_WEIGHT, GM_SLOT_WEIGHT, "weight"},
	{GM_COLUMN_LOGPROB, GM_SLOT_LOGPROB, "log-probability"},
	{GM_COLUMN_PREDICTION, GM_SLOT_PREDICTION, "prediction"},
	{GM_COLUMN_TAIL, GM_SLOT_TAIL, "tail"},
};

#define N_COLUMN (sizeof(columns) / sizeof(columns[0]))

struct gm_codec *gm_codec_new(const struct gm_geometry *geometry, struct gm_error *err)
{
	struct gm_codec *codec = gm_alloc(1, sizeof(*codec), err);

	if (!codec)
		return NULL;
	codec->geometry = *geometry;
	codec->planes = gm_planes_best();
	codec->stamp = gm_alloc(geometry->n_expert, sizeof(*codec->stamp), err);
	codec->n_in_layer = gm_alloc(geometry->n_layer, sizeof(*codec->n_in_layer), err);
	if (!codec->stamp || !codec->n_in_layer) {
		gm_codec_free(codec);
		return NULL;
	}
	return codec;
}

void gm_codec_free(struct gm_codec *codec)
{
	if (!codec)
		return;
	ZSTD_freeCCtx(codec->compress);
	ZSTD_freeDCtx(codec->decompress);
	gm_buffer_free(&codec->values);
	for (int i = 0; i < 8; i++)
		gm_buffer_free(&codec->plane[i]);
	free(codec->stamp);
	free(codec->n_in_layer);
	free(codec);
}

static const struct column *find_column(uint32_t id)
{
	for (size_t i = 0; i < N_COLUMN; i++)
		if (columns[i].id == id)
			return &columns[i];
	return NULL;
}

const char *gm_column_name(uint32_t id)
{
	const struct column *column = find_column(id);

	return column ? column->name : "?";
}

int gm_column_slot(uint32_t id)
{
	const struct column *column = find_column(id);

	return column ? column->slot : -1;
}

uint32_t gm_high_bits(uint32_t n_expert)
{
	if (n_expert <= 256)
		return 0;
	if (n_expert <= 512)
		return 1;
	if (n_expert <= 1024)
		return 2;
	return n_expert <= 4096 ? 4 : 8;
}

uint32_t gm_column_parts(const struct gm_geometry *g, uint32_t column)
{
	bool logits = g->kind == GM_KIND_LOGITS;

	switch (column) {
	case GM_COLUMN_TOKEN:
	case GM_COLUMN_SEQUENCE:
	case GM_COLUMN_POSITION:
	case GM_COLUMN_PASS:
	case GM_COLUMN_PRESENT:
		return 1;
	case GM_COLUMN_HEAD_ID:
		return gm_high_bits(g->n_expert) ? 2 : 1;
	case GM_COLUMN_HEAD_BASE:
		return logits ? 1 : 0;
	case GM_COLUMN_HEAD_KEY:
		return logits ? 4 : 0;
	case GM_COLUMN_LSE:
		return logits ? 8 : 0;
	case GM_COLUMN_WEIGHT:
		return logits ? 0 : 8;
	case GM_COLUMN_LOGPROB:
		return g->logprobs ? 1 : 0;
	case GM_COLUMN_PREDICTION:
		return g->predictions ? 2 : 0;
	case GM_COLUMN_TAIL:
		if (!logits || g->tail == GM_TAIL_NONE || g->n_head == g->n_expert)
			return 0;
		return g->tail == GM_TAIL_F16 ? 2 : 4;
	default:
		return 0;
	}
}

uint64_t gm_column_raw(const struct gm_geometry *g, uint32_t column, uint32_t part, uint32_t n_token, uint32_t n_row)
{
	uint64_t n_id = (uint64_t)n_row * g->n_head;

	switch (column) {
	case GM_COLUMN_PRESENT:
		return ((uint64_t)n_token * g->n_layer + 7) / 8;
	case GM_COLUMN_HEAD_ID:
		return part == 0 ? n_id : (n_id * gm_high_bits(g->n_expert) + 7) / 8;
	case GM_COLUMN_HEAD_BASE:
		return 4 * (uint64_t)g->n_layer;
	case GM_COLUMN_HEAD_KEY:
		return n_id;
	case GM_COLUMN_LSE:
		return n_row;
	case GM_COLUMN_WEIGHT:
	case GM_COLUMN_PREDICTION:
		return (uint64_t)n_row * g->top_k;
	case GM_COLUMN_TAIL:
		return (uint64_t)n_row * (g->n_expert - g->n_head);
	default:
		return 4 * (uint64_t)n_token; /* token columns and log-probabilities */
	}
}

static int check_counts(const struct gm_geometry *g, const struct gm_directory *d, uint64_t length, struct gm_error *err)
{
	if (d->n_token < 1 || d->n_token > GM_MAX_BLOCK_TOKENS)
		return gm_fail(err, GM_ERR_FORMAT, "%u tokens in a block: must be from 1 to %u", d->n_token,
			       GM_MAX_BLOCK_TOKENS);
	if (d->n_row > (uint64_t)d->n_token * g->n_layer)
		return gm_fail(err, GM_ERR_FORMAT, "%u rows in a block of %u tokens: must be at most %llu", d->n_row,
			       d->n_token, (unsigned long long)d->n_token * g->n_layer);
	uint64_t cells = (uint64_t)d->n_token * g->n_layer * g->n_expert;
	if (cells > GM_MAX_BLOCK_CELLS || cells > GM_FREE_CELLS + GM_CELLS_A_BYTE * length)
		return gm_fail(err, GM_ERR_FORMAT,
			       "tokens * n_layer * n_expert of the block is %llu: too much for %llu stored bytes",
			       (unsigned long long)cells, (unsigned long long)length);
	return GM_OK;
}

/* One entry of the directory, checked and, where the column is known, put into its slot. */
static int parse_part(const struct gm_geometry *g, const uint8_t *entry, uint64_t offset, struct gm_directory *d,
		      struct gm_error *err)
{
	uint32_t column = gm_get_u16(entry), part = entry[2];
	struct gm_part p = {.there = true,
			    .encoding = entry[3],
			    .raw = gm_get_u32(entry + 4),
			    .stored = gm_get_u32(entry + 8),
			    .offset = offset,
			    .hash = gm_get_u64(entry + 16)};
	uint32_t n_part = gm_column_parts(g, column);

	if (n_part == 0 && column >= GM_COLUMN_OPTIONAL)
		return GM_OK;
	if (n_part == 0)
		return gm_fail(err, GM_ERR_FORMAT, "column %u is required but not known here: needs a newer program",
			       column);
	const char *name = gm_column_name(column);
	if (part >= n_part)
		return gm_fail(err, GM_ERR_FORMAT, "column %s has part %u: must have %u parts", name, part, n_part);
	struct gm_part *slot = &d->part[gm_column_slot(column) + (int)part];
	if (slot->there)
		return gm_fail(err, GM_ERR_FORMAT, "a part stands twice: column %s, part %u: must stand once", name, part);
	if (p.encoding > GM_ENCODING_ZSTD || gm_get_u32(entry + 12) != 0)
		return gm_fail(err, GM_ERR_FORMAT, "encoding %u: column %s, part %u: must be 0 or 1", p.encoding, name,
			       part);
	if (p.raw != gm_column_raw(g, column, part, d->n_token, d->n_row))
		return gm_fail(err, GM_ERR_FORMAT, "%u bytes: column %s, part %u: must be %llu", p.raw, name, part,
			       (unsigned long long)gm_column_raw(g, column, part, d->n_token, d->n_row));
	if (p.encoding == GM_ENCODING_RAW && p.raw != p.stored)
		return gm_fail(err, GM_ERR_FORMAT, "%u bytes stored as they are in %u: column %s, part %u: must be as many",
			       p.raw, p.stored, name, part);
	*slot = p;
	return GM_OK;
}

static int check_complete(const struct gm_geometry *g, const struct gm_directory *d, struct gm_error *err)
{
	for (size_t i = 0; i < N_COLUMN; i++) {
		uint32_t n_part = gm_column_parts(g, columns[i].id), there = 0;
		for (uint32_t p = 0; p < n_part; p++)
			there += d->part[columns[i].slot + (int)p].there;
		if (there != n_part && !(there == 0 && columns[i].id >= GM_COLUMN_OPTIONAL))
			return gm_fail(err, GM_ERR_FORMAT, "%u of %u parts are there: column %s: must be all", there,
				       n_part, columns[i].name);
	}
	return GM_OK;
}

int gm_directory_parse(const struct gm_geometry *g, const uint8_t *data, size_t size, uint64_t length,
		       struct gm_directory *d, struct gm_error *err)
{
	memset(d, 0, sizeof(*d));
	if (size < GM_DIRECTORY_BYTES)
		return gm_fail(err, GM_ERR_FORMAT, "block of %zu bytes: must be at least %u", size, GM_DIRECTORY_BYTES);
	d->bytes = gm_get_u32(data);
	d->n_token = gm_get_u32(data + 4);
	d->index = gm_get_u64(data + 8);
	d->first_token = gm_get_u64(data + 16);
	d->n_row = gm_get_u32(data + 24);
	d->n_part = gm_get_u32(data + 28);
	if (d->n_part > GM_MAX_PARTS || d->bytes != GM_DIRECTORY_BYTES + d->n_part * GM_PART_BYTES || d->bytes > size)
		return gm_fail(err, GM_ERR_FORMAT, "block directory of %u bytes with %u parts: must be %u + %u a part",
			       d->bytes, d->n_part, GM_DIRECTORY_BYTES, GM_PART_BYTES);
	GM_TRY(check_counts(g, d, length, err));
	uint64_t offset = d->bytes;
	for (uint32_t i = 0; i < d->n_part; i++) {
		const uint8_t *entry = data + GM_DIRECTORY_BYTES + (size_t)i * GM_PART_BYTES;
		GM_TRY(parse_part(g, entry, offset, d, err));
		offset += gm_get_u32(entry + 8);
	}
	if (offset != length)
		return gm_fail(err, GM_ERR_FORMAT, "block parts end at byte %llu of the block: it has %llu",
			       (unsigned long long)offset, (unsigned long long)length);
	return check_complete(g, d, err);
}

uint64_t gm_directory_prefix(const struct gm_directory *d, unsigned want)
{
	uint64_t end = d->bytes;

	for (int i = 0; i < GM_N_SLOT; i++) {
		bool prediction = i >= GM_SLOT_PREDICTION && i < GM_SLOT_TAIL, tail = i >= GM_SLOT_TAIL;
		if (!d->part[i].there || (prediction && !(want & GM_WANT_PREDICTION)) || (tail && !(want & GM_WANT_TAIL)))
			continue;
		if (d->part[i].offset + d->part[i].stored > end)
			end = d->part[i].offset + d->part[i].stored;
	}
	return end;
}

int gm_directory_check_parts(const uint8_t *payload, struct gm_error *err)
{
	uint32_t n_part = gm_get_u32(payload + 28);
	const uint8_t *data = payload + gm_get_u32(payload);

	for (uint32_t i = 0; i < n_part; i++) {
		const uint8_t *entry = payload + GM_DIRECTORY_BYTES + (size_t)i * GM_PART_BYTES;
		uint32_t stored = gm_get_u32(entry + 8);
		if (gm_hash(data, stored) != gm_get_u64(entry + 16))
			return gm_fail(err, GM_ERR_FORMAT, "the checksum does not match: column %u (%s), part %u: damaged",
				       gm_get_u16(entry), gm_column_name(gm_get_u16(entry)), entry[2]);
		data += stored;
	}
	return GM_OK;
}
