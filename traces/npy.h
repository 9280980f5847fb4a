/* NumPy's .npy files: the header (versions 1 to 3), as https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
 * describes it. The data behind it is the caller's. */
#ifndef GM_TRACES_NPY_H
#define GM_TRACES_NPY_H

#include "base/error.h"
#include "traces/import_input.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define GM_NPY_MAX_DIM 8

struct gm_npy {
	char kind;           /* 'f' float, 'i' int, 'u' unsigned, as NumPy names them */
	uint32_t item_bytes; /* 2: float16 */
	bool big_endian;
	uint32_t n_dim;
	uint64_t shape[GM_NPY_MAX_DIM];
	uint64_t header_bytes; /* offset of the data */
};

/* Reads the header; the data comes next. Errors (file and offset): no .npy file, an unknown version, Fortran order, structured
 * types, an absurd shape. */
int gm_npy_read_header(struct gm_npy *npy, struct gm_feed *input, struct gm_error *err);

/* Text of the type for messages: "float16", "complex64", "int32 (big endian)". */
const char *gm_npy_type(const struct gm_npy *npy, char out[32]);

/* Writes the header (version 1) of a little-endian float32 array in C order, always of the same length for one n_dim. */
int gm_npy_write_header(FILE *out, const uint64_t *shape, uint32_t n_dim, struct gm_error *err);

/* n items of a float16 or float32 array as stored, to float32. */
void gm_npy_floats(const struct gm_npy *npy, const unsigned char *data, size_t n, float *out);

#endif
