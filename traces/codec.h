/* Blocks of a `.gmt` trace: rows to columns, columns to byte planes, planes to checked and compressed parts, and back
 * (docs/trace-format.md, "Blocks"). Private to the trace library; the only user of zstd. */
#ifndef GM_TRACES_CODEC_H
#define GM_TRACES_CODEC_H

#include "traces/format.h"
#include "traces/model.h"
#include "traces/planes.h"
#include "traces/reader.h"

/* What the header fixes for every block. */
struct gm_geometry {
	enum gm_trace_kind kind;
	enum gm_tail tail;
	uint32_t n_layer, n_expert, n_head, top_k;
	bool logprobs, predictions;
};

/* Column ids; those from 0x8000 on are optional: a reader that does not know one skips it. */
enum gm_column {
	GM_COLUMN_TOKEN = 1,
	GM_COLUMN_SEQUENCE = 2,
	GM_COLUMN_POSITION = 3,
	GM_COLUMN_PASS = 4,
	GM_COLUMN_PRESENT = 5,
	GM_COLUMN_HEAD_ID = 6,
	GM_COLUMN_HEAD_BASE = 7,
	GM_COLUMN_HEAD_KEY = 8,
	GM_COLUMN_LSE = 9,
	GM_COLUMN_WEIGHT = 10,
	GM_COLUMN_TAIL = 11,
	GM_COLUMN_OPTIONAL = 0x8000,
	GM_COLUMN_LOGPROB = 0x8001,
	GM_COLUMN_PREDICTION = 0x8002,
};

enum gm_encoding { GM_ENCODING_RAW = 0, GM_ENCODING_ZSTD = 1 };

/* Every (column, part) that version 1 knows, in the order in which the writer stores them. */
enum gm_slot {
	GM_SLOT_TOKEN,
	GM_SLOT_SEQUENCE,
	GM_SLOT_POSITION,
	GM_SLOT_PASS,
	GM_SLOT_PRESENT,
	GM_SLOT_HEAD_ID, /* low bytes, high bits */
	GM_SLOT_HEAD_BASE = GM_SLOT_HEAD_ID + 2,
	GM_SLOT_HEAD_KEY,                   /* four byte planes */
	GM_SLOT_LSE = GM_SLOT_HEAD_KEY + 4, /* eight */
	GM_SLOT_WEIGHT = GM_SLOT_LSE + 8,   /* eight */
	GM_SLOT_LOGPROB = GM_SLOT_WEIGHT + 8,
	GM_SLOT_PREDICTION,                    /* two */
	GM_SLOT_TAIL = GM_SLOT_PREDICTION + 2, /* two or four */
	GM_N_SLOT = GM_SLOT_TAIL + 4,
};

#define GM_DIRECTORY_BYTES 32u /* fixed part: bytes, n_token u32; index, first_token u64; n_row, n_part u32 */
#define GM_PART_BYTES 24u      /* column u16; part, encoding u8; raw, stored, reserved u32; hash u64 */
#define GM_MAX_PARTS 1024u

struct gm_part {
	bool there;
	uint8_t encoding;
	uint32_t raw, stored;
	uint64_t offset; /* in the payload */
	uint64_t hash;
};

struct gm_directory {
	uint32_t bytes, n_token, n_row, n_part;
	uint64_t index, first_token;
	struct gm_part part[GM_N_SLOT];
};

/* Rows as the writer holds them: [n_layer][stride] tokens, of which a block takes some. */
struct gm_rows {
	uint32_t stride;
	const int32_t *token;
	const uint32_t *sequence, *position, *pass;
	const float *logprob;
	const uint8_t *present;  /* [n_layer][stride] */
	const uint16_t *head;    /* [n_layer][stride][n_head] */
	const float *logit;      /* [n_layer][stride][n_head] */
	const double *lse;       /* [n_layer][stride] */
	const double *weight;    /* [n_layer][stride][top_k] */
	const uint16_t *tail_16; /* [n_layer][stride][n_expert - n_head] */
	const float *tail_32;
	const uint16_t *prediction; /* [n_layer][stride][top_k] */
};

/* zstd contexts and work space of one reader or writer; not shared between threads. */
struct gm_codec;
struct gm_codec *gm_codec_new(const struct gm_geometry *geometry, struct gm_error *err);
void gm_codec_free(struct gm_codec *codec);

/* Encodes tokens start ... start + n_token - 1 of rows as one whole frame (header, directory, parts) into *out. n_row receives
 * the rows that are present, hash the directory's. level: zstd's, 0: what unpacks soonest. GM_ERR_UNSUPPORTED: this many tokens
 * break the bound on cells a stored byte; half as many will do (one token always does). */
int gm_codec_encode(struct gm_codec *codec, const struct gm_rows *rows, uint32_t start, uint32_t n_token, uint64_t index,
		    uint64_t first_token, int level, struct gm_buffer *out, uint32_t *n_row, uint64_t *hash,
		    struct gm_error *err);

/* Parses a directory whose hash was checked, and checks every size in it. length: of the payload. */
int gm_directory_parse(const struct gm_geometry *geometry, const uint8_t *data, size_t size, uint64_t length,
		       struct gm_directory *directory, struct gm_error *err);

/* Length of the payload's beginning that holds all that is wanted. */
uint64_t gm_directory_prefix(const struct gm_directory *directory, unsigned want);

/* Checks the hashes of all parts, those of unknown columns included; payload is whole. */
int gm_directory_check_parts(const uint8_t *payload, struct gm_error *err);

/* Decodes into *block from the payload's beginning (gm_directory_prefix bytes). Checks: hash of each part used, token
 * columns in order, experts in range, S distinct (with the tail: the whole head), finite numbers. */
int gm_codec_decode(struct gm_codec *codec, const struct gm_directory *directory, const uint8_t *payload, unsigned want,
		    struct gm_block *block, struct gm_error *err);

/* --- shared by encode and decode --- */
const char *gm_column_name(uint32_t column);
/* Parts that a block of this geometry has of a column (0: none) and the raw size of one of them. */
uint32_t gm_column_parts(const struct gm_geometry *geometry, uint32_t column);
uint64_t gm_column_raw(const struct gm_geometry *geometry, uint32_t column, uint32_t part, uint32_t n_token,
		       uint32_t n_row);
/* First slot of a column, or -1. */
int gm_column_slot(uint32_t column);
/* Bits a packed high part takes for one expert id: 0 (n_expert <= 256), 1, 2, 4 or 8. */
uint32_t gm_high_bits(uint32_t n_expert);

struct gm_codec {
	struct gm_geometry geometry;
	const struct gm_planes *planes;
	void *compress, *decompress; /* zstd contexts, made when first needed */
	struct gm_buffer values;     /* a column's values, compact */
	struct gm_buffer plane[8];   /* its byte planes */
	uint16_t *stamp;             /* [n_expert]: row that named the expert last, for finding one named twice */
	uint16_t stamp_now;
	uint32_t *n_in_layer; /* [n_layer] rows present in the block */
};

#endif
