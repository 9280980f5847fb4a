/* The `.gmt` container (docs/trace-format.md): preamble, frames, index, and the little-endian fields they are made of. Private to
 * the trace library: reader, writer, verify and repair share it. */
#ifndef GM_TRACES_FORMAT_H
#define GM_TRACES_FORMAT_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the trace library reads and writes little-endian fields in place: this machine needs byte swaps in format.h"
#endif

#define GM_TRACE_VERSION 1u
#define GM_PREAMBLE_BYTES 16u /* magic, version u32, reserved u32 = 0 */
#define GM_FRAME_BYTES 32u    /* frame header */
#define GM_TRAILER_PAYLOAD 16u
#define GM_TRAILER_BYTES (GM_FRAME_BYTES + GM_TRAILER_PAYLOAD)

#define GM_MAX_HEADER_BYTES (32u << 20)
#define GM_MAX_TEXT_BYTES 65535u /* id or label of a sequence */
#define GM_MAX_BLOCK_TOKENS 4096u
#define GM_MAX_BLOCK_CELLS (1u << 26) /* n_token * n_layer * n_expert */
/* No block may decode to far more than its stored size: cells <= GM_FREE_CELLS + GM_CELLS_A_BYTE * payload bytes. The writer
 * cuts a block in two where it would break this. */
#define GM_FREE_CELLS (1u << 20)
#define GM_CELLS_A_BYTE 32u

enum gm_frame_type { GM_FRAME_HEAD, GM_FRAME_SEQN, GM_FRAME_BLCK, GM_FRAME_INDX, GM_FRAME_GEND, GM_FRAME_UNKNOWN };

enum gm_frame_flags {
	GM_FRAME_REQUIRED = 1, /* a reader that does not know the type must refuse the file */
	GM_FRAME_PREFIX = 2,   /* the payload hash covers only its first N bytes, N = u32 at its start */
};

struct gm_frame {
	enum gm_frame_type type;
	char name[5];
	uint32_t flags;
	uint64_t length; /* of the payload, which follows the header */
	uint64_t hash;   /* XXH3 of the payload, or of its prefix */
};

static inline uint16_t gm_get_u16(const void *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}
static inline uint32_t gm_get_u32(const void *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}
static inline uint64_t gm_get_u64(const void *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}
static inline void gm_put_u16(void *p, uint16_t v)
{
	memcpy(p, &v, sizeof(v));
}
static inline void gm_put_u32(void *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}
static inline void gm_put_u64(void *p, uint64_t v)
{
	memcpy(p, &v, sizeof(v));
}

/* --- bytes that grow --- */
struct gm_buffer {
	uint8_t *data;
	size_t size, capacity;
};

int gm_buffer_reserve(struct gm_buffer *buffer, size_t capacity, struct gm_error *err); /* keeps the contents */
int gm_buffer_add(struct gm_buffer *buffer, const void *data, size_t size, struct gm_error *err);
void gm_buffer_free(struct gm_buffer *buffer);

/* --- preamble and frames --- */
void gm_preamble_write(uint8_t out[GM_PREAMBLE_BYTES]);
/* Errors do not name the file: the caller does. size: bytes that there are (fewer than GM_PREAMBLE_BYTES: cut off). */
int gm_preamble_check(const uint8_t *data, size_t size, struct gm_error *err);

void gm_frame_write(uint8_t out[GM_FRAME_BYTES], enum gm_frame_type type, uint64_t length, uint64_t hash);
/* Checks the header's own hash, flags that version 1 knows, and the flags and length limits of known types. */
int gm_frame_parse(const uint8_t data[GM_FRAME_BYTES], struct gm_frame *frame, struct gm_error *err);
/* The payload's (or its prefix's) hash. size: bytes of payload that there are. */
int gm_frame_check(const struct gm_frame *frame, const uint8_t *payload, size_t size, struct gm_error *err);

/* --- sequences (payload of SEQN) --- */
#define GM_SEQN_BYTES 16u /* index, id bytes, label bytes, reserved; then the texts */
struct gm_seqn {
	uint32_t index;
	char *id, *label; /* heap */
};
int gm_seqn_add(struct gm_buffer *out, uint32_t index, const char *id, const char *label, struct gm_error *err);
int gm_seqn_parse(const uint8_t *payload, size_t size, struct gm_seqn *out, struct gm_error *err);
void gm_seqn_free(struct gm_seqn *seqn);

/* --- index (payload of INDX) --- */
#define GM_INDEX_BYTES 32u          /* n_token, n_row, n_block u64; n_sequence, reserved u32 */
#define GM_INDEX_BLOCK_BYTES 32u    /* one block */
#define GM_INDEX_SEQUENCE_BYTES 24u /* one sequence: first_token, n_token u64; id bytes, label bytes u32; then the texts */

struct gm_index_block {
	uint64_t offset; /* of the frame header in the file */
	uint64_t first_token;
	uint32_t n_token, n_row;
	uint64_t hash; /* of the block's directory: the frame header's payload hash */
};

struct gm_index_sequence {
	char *id, *label; /* heap */
	uint64_t first_token, n_token;
};

struct gm_index {
	uint64_t n_token, n_row, n_block;
	uint32_t n_sequence;
	struct gm_index_block *block;
	struct gm_index_sequence *sequence;
	uint64_t max_block, max_sequence; /* allocated */
};

/* Take over nothing: texts are copied. Totals are kept up to date. */
int gm_index_add_block(struct gm_index *index, const struct gm_index_block *block, struct gm_error *err);
int gm_index_add_sequence(struct gm_index *index, const char *id, const char *label, uint64_t first_token,
			  struct gm_error *err);
/* The payload: appended to out. */
int gm_index_write(const struct gm_index *index, struct gm_buffer *out, struct gm_error *err);
/* Parses and checks all of it: sizes, totals, order of offsets (all below end) and of tokens. */
int gm_index_parse(struct gm_index *index, const uint8_t *payload, size_t size, uint64_t end, uint32_t n_layer,
		   struct gm_error *err);
void gm_index_free(struct gm_index *index);

/* XXH3 over the payload hashes of HEAD and INDX: what gm_trace_hash shows. */
uint64_t gm_trace_hash_of(uint64_t head_hash, uint64_t index_hash);

#endif
