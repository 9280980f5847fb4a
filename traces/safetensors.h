/* The header of a `.safetensors` file, as https://github.com/huggingface/safetensors describes it: 8 bytes of length (little endian),
 * a JSON object {"NAME":{"dtype":"F32","shape":[…],"data_offsets":[begin,end]},…,"__metadata__":{…}}, then the data, which the
 * tensors fill without gaps or overlaps. */
#ifndef GM_TRACES_SAFETENSORS_H
#define GM_TRACES_SAFETENSORS_H

#include "base/json.h"
#include "traces/import_input.h"

#define GM_SAFETENSORS_MAX_HEADER 100000000u /* bytes; the format's own bound */
#define GM_SAFETENSORS_MAX_DIM 8

struct gm_safetensor {
	const char *name;
	const char *dtype;   /* "F32", "BF16", … */
	uint32_t item_bytes; /* 0: a type this program does not know */
	uint32_t n_dim;
	uint64_t shape[GM_SAFETENSORS_MAX_DIM];
	uint64_t n_item;
	uint64_t begin, end; /* bytes behind the header */
};

struct gm_safetensors {
	struct gm_json *header;
	struct gm_safetensor *tensor; /* [n] in order of the data */
	size_t n;
	uint64_t header_bytes, data_bytes;
};

/* Reads the header from the front of input and checks every tensor against it, and against the file's size where that is known. On
 * failure nothing needs to be freed. */
int gm_safetensors_read(struct gm_safetensors *st, struct gm_feed *input, struct gm_error *err);
void gm_safetensors_free(struct gm_safetensors *st);

/* Whether floats of this type can be read; n of them as stored, to float32. */
bool gm_safetensor_is_float(const struct gm_safetensor *tensor);
void gm_safetensor_floats(const struct gm_safetensor *tensor, const unsigned char *data, size_t n, float *out);

#endif
