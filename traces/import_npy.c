/* Importer for a NumPy array [tokens, layers, experts]; the facts as import_array.h says. */
#include "traces/import_array.h"
#include "traces/npy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct npy_import {
	struct gm_feed *input;
	struct gm_npy npy;
	size_t row_items;   /* of all layers of a token */
	unsigned char *raw; /* [GM_ARRAY_BATCH] tokens as stored */
};

static int bad_array(const struct npy_import *n, const char *what, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_FORMAT, "%s: %s: must be [tokens, layers, experts]", what, gm_feed_name(n->input));
}

static int read_array_header(struct npy_import *n, struct gm_error *err)
{
	char type[32];
	const uint64_t *shape = n->npy.shape;

	GM_TRY(gm_npy_read_header(&n->npy, n->input, err));
	if (n->npy.kind != 'f' || (n->npy.item_bytes != 2 && n->npy.item_bytes != 4))
		return gm_fail(err, GM_ERR_FORMAT, "an array of %s: %s: must be float16 or float32: save a.astype('<f4')",
			       gm_npy_type(&n->npy, type), gm_feed_name(n->input));
	if (n->npy.n_dim != 3)
		return gm_fail(err, GM_ERR_FORMAT, "an array with %u dimensions: %s: must be [tokens, layers, experts]",
			       n->npy.n_dim, gm_feed_name(n->input));
	if (shape[0] == 0)
		return bad_array(n, "an array without tokens", err);
	/* Before any sum with it: the model's own bounds are checked later. */
	if (shape[1] == 0 || shape[1] > GM_MAX_LAYER || shape[2] == 0 || shape[2] > GM_MAX_EXPERT)
		return bad_array(n, "absurd numbers of layers or experts", err);
	return GM_OK;
}

/* The file's size is known before the first row is read, unless it comes through a pipe. */
static int match_size(const struct npy_import *n, struct gm_error *err)
{
	uint64_t data = n->npy.shape[0] * n->npy.shape[1] * n->npy.shape[2] * n->npy.item_bytes;
	uint64_t size = gm_feed_size(n->input);

	if (size == 0 || gm_feed_compressed(n->input) || size == n->npy.header_bytes + data)
		return GM_OK;
	return gm_fail(err, GM_ERR_FORMAT,
		       "%" PRIu64 " bytes: %s: an array of this shape has %" PRIu64 ": is the file whole?", size,
		       gm_feed_name(n->input), n->npy.header_bytes + data);
}

static int read_tokens(void *user, uint64_t first, uint32_t n_token, float *logits, struct gm_error *err)
{
	struct npy_import *n = user;
	size_t items = n_token * n->row_items, bytes = items * n->npy.item_bytes, got = 0;

	GM_TRY(gm_feed_read(n->input, n->raw, bytes, &got, err));
	if (got < bytes)
		return gm_fail(err, GM_ERR_FORMAT,
			       "the array ends in token %" PRIu64 ": %s: its shape says %" PRIu64 " tokens",
			       first + got / (bytes / n_token), gm_feed_name(n->input), n->npy.shape[0]);
	gm_npy_floats(&n->npy, n->raw, items, logits);
	return GM_OK;
}

static int check_end(void *user, struct gm_error *err)
{
	struct npy_import *n = user;
	unsigned char more;
	size_t got = 0;

	GM_TRY(gm_feed_read(n->input, &more, 1, &got, err));
	if (got > 0)
		return gm_fail(err, GM_ERR_FORMAT, "more bytes than the array has: %s: its shape says %" PRIu64 " tokens",
			       gm_feed_name(n->input), n->npy.shape[0]);
	return GM_OK;
}

int gm_import_npy(struct gm_feed *input, const struct gm_import_options *options, struct gm_error *err)
{
	struct npy_import n = {.input = input};
	struct gm_array_import a = {0};
	int status;

	GM_TRY_OUT(read_array_header(&n, err));
	GM_TRY_OUT(match_size(&n, err));
	GM_TRY_OUT(gm_array_open(&a, gm_feed_name(input), options, err));
	GM_TRY_OUT(gm_array_begin(&a, n.npy.shape[0], n.npy.shape[1], n.npy.shape[2], err));
	n.row_items = (size_t)n.npy.shape[1] * n.npy.shape[2];
	n.raw = gm_alloc(GM_ARRAY_BATCH * n.row_items, n.npy.item_bytes, err);
	GM_TRY_OUT(n.raw ? GM_OK : gm_failed(err));
	status = gm_array_write(&a, read_tokens, check_end, &n, err);
out:
	gm_array_close(&a);
	free(n.raw);
	return status;
}
