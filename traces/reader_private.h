/* The reader's insides, shared by reader.c (files) and reader_stream.c (pipes). */
#ifndef GM_TRACES_READER_PRIVATE_H
#define GM_TRACES_READER_PRIVATE_H

#include "base/hash.h"
#include "traces/codec.h"
#include "traces/format_in.h"
#include "traces/reader.h"

struct gm_trace {
	struct gm_input in;
	struct gm_header header;
	struct gm_codec *codec;
	struct gm_index index; /* of the file; of a pipe: what came so far */
	uint64_t index_offset;
	struct gm_sequence *sequence; /* [n_listed], texts owned by the index */
	uint32_t n_listed, max_sequence;
	struct gm_buffer data; /* bytes of the block at hand, from its frame header on */
	uint64_t read_guess;   /* bytes that the last block took */
	bool ended;            /* all is known: the index was read */
	bool broken;           /* a pipe that failed cannot go on */
	char hash[GM_HASH_TEXT];
};

int gm_trace_load_index(struct gm_trace *trace, struct gm_error *err);

/* Brings sequence[] up to the index's table. */
int gm_trace_list_sequences(struct gm_trace *trace, struct gm_error *err);

/* Every token's sequence is known and, in a file, its range holds the token. */
int gm_trace_check_block(const struct gm_trace *trace, const struct gm_block *block, struct gm_error *err);

/* gm_trace_read of a pipe. */
int gm_trace_read_next(struct gm_trace *trace, uint64_t index, unsigned want, struct gm_block *block, struct gm_error *err);

#endif
