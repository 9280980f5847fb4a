#include "traces/npy.h"

#include "traces/select.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEADER 65536u
#define WRITE_HEADER 192 /* a multiple of 64; room for a shape of three 64-bit numbers */

static int bad(const struct gm_feed *input, const char *what, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_FORMAT, "%s: %s: the .npy header", what, gm_feed_name(input));
}

static uint32_t little_endian(const unsigned char *at, int n)
{
	uint32_t value = 0;

	for (int i = 0; i < n; i++)
		value |= (uint32_t)at[i] << (8 * i);
	return value;
}

/* Behind "'key':" of the dictionary, or NULL. */
static const char *find_key(const char *header, const char *key)
{
	char quoted[2][32];

	snprintf(quoted[0], sizeof(quoted[0]), "'%s'", key);
	snprintf(quoted[1], sizeof(quoted[1]), "\"%s\"", key);
	for (int i = 0; i < 2; i++) {
		const char *at = strstr(header, quoted[i]);

		if (!at)
			continue;
		at += strlen(quoted[i]);
		at += strspn(at, " ");
		if (*at == ':')
			return at + 1 + strspn(at + 1, " ");
	}
	return NULL;
}

/* '<f2', '>f4', '|u1', '=f4'. */
static int read_type(struct gm_npy *npy, const char *at, const struct gm_feed *input, struct gm_error *err)
{
	if (!at)
		return bad(input, "no \"descr\"", err);
	if (*at == '[')
		return gm_fail(err, GM_ERR_FORMAT, "an array of records: %s: must be float16 or float32",
			       gm_feed_name(input));
	if ((*at != '\'' && *at != '"') || !strchr("<>|=", at[1]) || !at[1] || !at[2])
		return bad(input, "\"descr\" is not understood", err);
	npy->big_endian = at[1] == '>';
	npy->kind = at[2];
	npy->item_bytes = (uint32_t)strtoul(at + 3, NULL, 10);
	if (npy->item_bytes == 0 || npy->item_bytes > 64)
		return bad(input, "\"descr\" is not understood", err);
	return GM_OK;
}

static int read_shape(struct gm_npy *npy, const char *at, const struct gm_feed *input, struct gm_error *err)
{
	if (!at || *at != '(')
		return bad(input, "no \"shape\"", err);
	at++;
	for (;;) {
		char *end = NULL;

		at += strspn(at, " ,");
		if (*at == ')')
			return GM_OK;
		if (*at < '0' || *at > '9' || npy->n_dim == GM_NPY_MAX_DIM)
			return bad(input, "\"shape\" is not understood", err);
		npy->shape[npy->n_dim] = strtoull(at, &end, 10);
		if (npy->shape[npy->n_dim] > UINT64_C(1) << 48)
			return bad(input, "an absurd \"shape\"", err);
		npy->n_dim++;
		at = end + (*end == 'L'); /* Python 2 wrote 3L */
	}
}

static int read_dictionary(struct gm_npy *npy, const char *header, const struct gm_feed *input, struct gm_error *err)
{
	const char *order = find_key(header, "fortran_order");

	GM_TRY(read_type(npy, find_key(header, "descr"), input, err));
	if (!order)
		return bad(input, "no \"fortran_order\"", err);
	if (strncmp(order, "False", 5) != 0)
		return gm_fail(err, GM_ERR_FORMAT,
			       "an array in Fortran order: %s: must be in C order: save numpy.ascontiguousarray(a)",
			       gm_feed_name(input));
	return read_shape(npy, find_key(header, "shape"), input, err);
}

int gm_npy_read_header(struct gm_npy *npy, struct gm_feed *input, struct gm_error *err)
{
	unsigned char fixed[12];
	size_t got = 0;

	memset(npy, 0, sizeof(*npy));
	GM_TRY(gm_feed_read(input, fixed, 8, &got, err));
	if (got < 8 || memcmp(fixed, "\x93NUMPY", 6) != 0)
		return gm_fail(err, GM_ERR_FORMAT, "not a .npy file: %s: offset 0: must begin with \\x93NUMPY",
			       gm_feed_name(input));
	if (fixed[6] < 1 || fixed[6] > 3)
		return gm_fail(err, GM_ERR_FORMAT, "version %u of .npy: %s: offset 6: 1 to 3 are known", fixed[6],
			       gm_feed_name(input));
	int n_length = fixed[6] == 1 ? 2 : 4;

	GM_TRY(gm_feed_read(input, fixed + 8, (size_t)n_length, &got, err));
	if (got < (size_t)n_length)
		return bad(input, "the file is cut off", err);
	uint32_t size = little_endian(fixed + 8, n_length);

	if (size > MAX_HEADER)
		return bad(input, "more than 64 KiB", err);
	char *header = gm_alloc((size_t)size + 1, 1, err);

	if (!header)
		return GM_ERR_MEMORY;
	int status = gm_feed_read(input, header, size, &got, err);

	if (status == GM_OK && got < size)
		status = bad(input, "the file is cut off", err);
	if (status == GM_OK)
		status = read_dictionary(npy, header, input, err);
	npy->header_bytes = 8 + (uint64_t)n_length + size;
	free(header);
	return status;
}

const char *gm_npy_type(const struct gm_npy *npy, char out[32])
{
	const char *kind = npy->kind == 'f'   ? "float"
			   : npy->kind == 'i' ? "int"
			   : npy->kind == 'u' ? "uint"
			   : npy->kind == 'c' ? "complex"
			   : npy->kind == 'b' ? "bool"
					      : "type ";

	snprintf(out, 32, "%s%u%s", kind, npy->item_bytes * 8, npy->big_endian ? " (big endian)" : "");
	return out;
}

int gm_npy_write_header(FILE *out, const uint64_t *shape, uint32_t n_dim, struct gm_error *err)
{
	char text[WRITE_HEADER];
	size_t n = 10;

	memset(text, ' ', sizeof(text));
	memcpy(text, "\x93NUMPY\x01\x00", 8);
	text[8] = (char)(WRITE_HEADER - 10);
	text[9] = 0;
	n += (size_t)snprintf(text + n, sizeof(text) - n, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
	for (uint32_t i = 0; i < n_dim; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%" PRIu64 ", ", shape[i]);
	n += (size_t)snprintf(text + n, sizeof(text) - n, "), }");
	text[n] = ' '; /* over the NUL */
	text[WRITE_HEADER - 1] = '\n';
	if (fwrite(text, 1, sizeof(text), out) != sizeof(text))
		return gm_fail(err, GM_ERR_IO, "cannot write the .npy header");
	return GM_OK;
}

void gm_npy_floats(const struct gm_npy *npy, const unsigned char *data, size_t n, float *out)
{
	for (size_t i = 0; i < n; i++) {
		const unsigned char *at = data + i * npy->item_bytes;
		unsigned char swapped[4] = {0};

		if (npy->big_endian) {
			for (uint32_t j = 0; j < npy->item_bytes && j < sizeof(swapped); j++)
				swapped[j] = at[npy->item_bytes - 1 - j];
			at = swapped;
		}
		uint32_t bits = little_endian(at, (int)npy->item_bytes);

		if (npy->item_bytes == 2)
			out[i] = gm_from_f16((uint16_t)bits);
		else
			memcpy(&out[i], &bits, sizeof(bits));
	}
}
