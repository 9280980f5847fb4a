/* Importer for a NumPy array [tokens, layers, experts] with the facts beside it in a JSON file (--meta): the first line of a
 * jsonl file, and optionally
 *	"sequences":[{"id":…,"label":…,"length":n},…]   in order of the tokens; without it all are one sequence
 *	"tokens":[…], "logprobs":[…]                    one number a token (logprobs: null where there is none)
 *	"passes":[…]                                    neighbours with the same number belong to one forward pass
 *	"positions":[…]                                 in the sequence, where they do not count up from 0
 *	"absent":"nan"                                  a row of nothing but NaN is no row
 * The array is read once, a batch of tokens at a time. */
#include "base/progress.h"
#include "traces/import_common.h"
#include "traces/npy.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_TOKENS 64u

static const char *const own_keys[] = {"format", "sequences", "tokens", "logprobs", "passes", "positions", "absent", NULL};

/* Lists of one number a token, walked in step with the array. */
enum { LIST_TOKENS, LIST_LOGPROBS, LIST_PASSES, LIST_POSITIONS, N_LIST };
static const char *const list_key[N_LIST] = {"tokens", "logprobs", "passes", "positions"};

struct npy_import {
	struct gm_feed *input;
	const struct gm_import_options *options;
	const char *meta_name;
	struct gm_json *facts;
	struct gm_model model;
	struct gm_npy npy;
	struct gm_import_sequence *table;
	uint32_t n_table;
	const struct gm_json *at[N_LIST]; /* the next token's number, NULL: no such list */
	bool absent_rows;
	struct gm_writer *writer;
	unsigned char *raw; /* [BATCH_TOKENS] tokens as stored */
	float *logits;      /* [BATCH_TOKENS][n_layer][n_expert] */

	/* the token to come */
	uint64_t token;
	uint32_t sequence;
	uint64_t in_sequence; /* tokens of it written so far */
	int64_t pass;         /* of the last token of the sequence */
};

/* --- the facts --- */

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

/* "n_layer" and "n_expert" may be left to the array; where they are given they must be its. */
static int match_shape(struct npy_import *n, const char *key, uint64_t size, const char *what, struct gm_error *err)
{
	double said = gm_json_value(gm_json_get(n->facts, key));

	if (!gm_json_get(n->facts, key) && !gm_json_add_uint(n->facts, key, size))
		return gm_fail(err, GM_ERR_MEMORY, "out of memory");
	if (!isnan(said) && said != (double)size)
		return gm_fail(err, GM_ERR_FORMAT, "the array has %" PRIu64 " %s, \"%s\" is %.17g: %s and %s: must agree",
			       size, what, key, said, gm_feed_name(n->input), n->meta_name);
	return GM_OK;
}

static int find_lists(struct npy_import *n, struct gm_error *err)
{
	for (int i = 0; i < N_LIST; i++) {
		const struct gm_json *list = gm_json_get(n->facts, list_key[i]);

		if (!list || gm_json_type(list) == GM_JSON_NULL)
			continue;
		if (gm_json_type(list) != GM_JSON_ARRAY || gm_json_size(list) != n->npy.shape[0])
			return gm_fail(
				err, GM_ERR_FORMAT,
				"\"%s\" has %zu entries: %s: must be a list with one for each of the array's %" PRIu64
				" tokens",
				list_key[i], gm_json_size(list), n->meta_name, n->npy.shape[0]);
		n->at[i] = gm_json_first(list);
	}
	return GM_OK;
}

static int match_sequences(struct npy_import *n, struct gm_error *err)
{
	uint64_t sum = 0;

	GM_TRY(gm_import_sequences(n->facts, n->meta_name, &n->table, &n->n_table, err));
	if (!n->table)
		return GM_OK;
	for (uint32_t i = 0; i < n->n_table; i++) {
		if (n->table[i].length == UINT64_MAX && n->n_table == 1)
			n->table[i].length = n->npy.shape[0];
		if (n->table[i].length == UINT64_MAX)
			return gm_fail(err, GM_ERR_FORMAT, "no \"length\": %s: sequences[%u]: tokens of the sequence",
				       n->meta_name, i);
		sum += n->table[i].length;
	}
	if (sum != n->npy.shape[0])
		return gm_fail(err, GM_ERR_FORMAT,
			       "the lengths in \"sequences\" add up to %" PRIu64 ": %s: the array has %" PRIu64 " tokens",
			       sum, n->meta_name, n->npy.shape[0]);
	return GM_OK;
}

static int read_facts(struct npy_import *n, struct gm_error *err)
{
	const char *absent = NULL;

	if (n->options->meta) {
		n->meta_name = n->options->meta;
		n->facts = gm_json_parse_file(n->options->meta, err);
		if (!n->facts)
			return gm_failed(err);
		if (gm_json_type(n->facts) != GM_JSON_OBJECT)
			return gm_fail(err, GM_ERR_FORMAT, "not an object: %s: {\"model\":…,\"n_expert_used\":…,…}",
				       n->meta_name);
	} else {
		n->meta_name = "no --meta FILE";
		n->facts = gm_json_new_object();
		if (!n->facts)
			return gm_fail(err, GM_ERR_MEMORY, "out of memory");
	}
	GM_TRY(match_shape(n, "n_layer", n->npy.shape[1], "layers", err));
	GM_TRY(match_shape(n, "n_expert", n->npy.shape[2], "experts", err));
	GM_TRY(gm_import_model(n->facts, n->options, n->meta_name, &n->model, err));
	GM_TRY(find_lists(n, err));
	absent = gm_json_text(gm_json_get(n->facts, "absent"));
	n->absent_rows = absent && strcmp(absent, "nan") == 0;
	return match_sequences(n, err);
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

/* --- the tokens --- */

/* The next number of a list, in [min, max]; absent where there is no such list. */
static int next_number(struct npy_import *n, int list, int64_t min, int64_t max, int64_t *out, struct gm_error *err)
{
	if (!n->at[list])
		return GM_OK;
	double value = gm_json_value(n->at[list]);

	if (!(value >= (double)min && value <= (double)max && value == floor(value)))
		return gm_fail(err, GM_ERR_FORMAT,
			       "not a whole number from %" PRId64 " to %" PRId64 ": %s: %s[%" PRIu64 "]", min, max,
			       n->meta_name, list_key[list], n->token);
	*out = (int64_t)value;
	n->at[list] = gm_json_next(n->at[list]);
	return GM_OK;
}

static int next_logprob(struct npy_import *n, float *logprob, struct gm_error *err)
{
	*logprob = NAN;
	if (!n->at[LIST_LOGPROBS])
		return GM_OK;
	if (gm_json_type(n->at[LIST_LOGPROBS]) == GM_JSON_NUMBER)
		*logprob = (float)gm_json_value(n->at[LIST_LOGPROBS]);
	else if (gm_json_type(n->at[LIST_LOGPROBS]) != GM_JSON_NULL)
		return gm_fail(err, GM_ERR_FORMAT, "not a number: %s: logprobs[%" PRIu64 "]: or null", n->meta_name,
			       n->token);
	n->at[LIST_LOGPROBS] = gm_json_next(n->at[LIST_LOGPROBS]);
	return GM_OK;
}

static int begin_sequence(struct npy_import *n, struct gm_error *err)
{
	const struct gm_import_sequence one = {"0", "", n->npy.shape[0]};
	const struct gm_import_sequence *s = &one;

	/* Sequences without tokens are passed over; the lengths add up, so one with tokens follows. */
	while (n->table && n->in_sequence >= n->table[n->sequence].length) {
		n->sequence++;
		n->in_sequence = 0;
	}
	if (n->in_sequence > 0)
		return GM_OK;
	if (n->table)
		s = &n->table[n->sequence];
	n->pass = -1;
	return gm_writer_begin_sequence(n->writer, s->id, s->label, err);
}

static int declare_token(struct npy_import *n, uint64_t *number, struct gm_error *err)
{
	int64_t token = -1, pass = -1, position;
	int32_t token_id;
	float logprob;
	bool new_pass;

	GM_TRY(begin_sequence(n, err));
	position = (int64_t)n->in_sequence;
	GM_TRY(next_number(n, LIST_TOKENS, -1, INT32_MAX, &token, err));
	GM_TRY(next_number(n, LIST_PASSES, 0, INT64_C(1) << 53, &pass, err));
	GM_TRY(next_number(n, LIST_POSITIONS, 0, UINT32_MAX, &position, err));
	GM_TRY(next_logprob(n, &logprob, err));
	if (position > UINT32_MAX)
		return gm_fail(err, GM_ERR_FORMAT, "a sequence of more than 2^32 tokens: %s: split it", n->meta_name);
	if (pass >= 0 && pass < n->pass)
		return gm_fail(err, GM_ERR_FORMAT, "passes never go back in a sequence: %s: passes[%" PRIu64 "]",
			       n->meta_name, n->token);
	if (pass >= 0)
		new_pass = pass != n->pass;
	else
		new_pass = n->in_sequence == 0 || !n->options->sequence_is_pass;
	token_id = (int32_t)token;
	GM_TRY(gm_writer_add_tokens(n->writer, 1, &token_id, (uint32_t)position, new_pass || n->in_sequence == 0,
				    isnan(logprob) ? NULL : &logprob, number, err));
	n->pass = pass;
	n->in_sequence++;
	n->token++;
	return GM_OK;
}

static bool is_absent(const float *row, uint32_t n_expert)
{
	for (uint32_t e = 0; e < n_expert; e++)
		if (!isnan(row[e]))
			return false;
	return true;
}

/* Rows of n tokens from `first` on, a layer at a time. */
static int append_rows(struct npy_import *n, uint64_t first, uint32_t n_token, struct gm_error *err)
{
	size_t n_expert = n->model.n_expert, stride = n->model.n_layer * n_expert;
	int status = GM_OK;

	for (uint32_t layer = 0; layer < n->model.n_layer && status == GM_OK; layer++) {
		const float *rows = n->logits + layer * n_expert;

		if (!n->absent_rows) {
			status = gm_writer_append(n->writer, layer, first, n_token, rows, stride, err);
			continue;
		}
		for (uint32_t i = 0; i < n_token && status == GM_OK; i++)
			if (!is_absent(rows + i * stride, n->model.n_expert))
				status = gm_writer_append(n->writer, layer, first + i, 1, rows + i * stride, stride, err);
	}
	if (status < 0)
		return gm_error_at(err, "%s", gm_feed_name(n->input));
	return gm_writer_complete(n->writer, first + n_token, err);
}

static int read_batch(struct npy_import *n, uint32_t n_token, struct gm_error *err)
{
	size_t items = (size_t)n_token * n->model.n_layer * n->model.n_expert, got = 0, bytes = items * n->npy.item_bytes;
	uint64_t first = 0, number = 0;

	GM_TRY(gm_feed_read(n->input, n->raw, bytes, &got, err));
	if (got < bytes)
		return gm_fail(err, GM_ERR_FORMAT,
			       "the array ends in token %" PRIu64 ": %s: its shape says %" PRIu64 " tokens",
			       n->token + got / (bytes / n_token), gm_feed_name(n->input), n->npy.shape[0]);
	gm_npy_floats(&n->npy, n->raw, items, n->logits);
	for (uint32_t i = 0; i < n_token; i++) {
		GM_TRY(declare_token(n, &number, err));
		first = i == 0 ? number : first;
	}
	return append_rows(n, first, n_token, err);
}

static int read_rows(struct npy_import *n, struct gm_error *err)
{
	struct gm_progress progress;
	uint64_t n_token = n->npy.shape[0];
	unsigned char more;
	size_t got = 0;
	int status = GM_OK;

	gm_progress_start(&progress, "import", "tokens", n_token, n->options->quiet);
	while (n->token < n_token && status == GM_OK) {
		uint64_t left = n_token - n->token;

		status = read_batch(n, left < BATCH_TOKENS ? (uint32_t)left : BATCH_TOKENS, err);
		gm_progress_update(&progress, n->token);
	}
	gm_progress_end(&progress);
	GM_TRY(status);
	GM_TRY(gm_feed_read(n->input, &more, 1, &got, err));
	if (got > 0)
		return gm_fail(err, GM_ERR_FORMAT, "more bytes than the array has: %s: its shape says %" PRIu64 " tokens",
			       gm_feed_name(n->input), n_token);
	return GM_OK;
}

int gm_import_npy(struct gm_feed *input, const struct gm_import_options *options, struct gm_error *err)
{
	struct npy_import n = {.input = input, .options = options};
	size_t items;
	int status;

	GM_TRY_OUT(read_array_header(&n, err));
	GM_TRY_OUT(match_size(&n, err));
	GM_TRY_OUT(read_facts(&n, err));
	items = (size_t)BATCH_TOKENS * n.model.n_layer * n.model.n_expert;
	n.raw = gm_alloc(items, n.npy.item_bytes, err);
	n.logits = gm_alloc(items, sizeof(*n.logits), err);
	GM_TRY_OUT(n.raw && n.logits ? GM_OK : gm_failed(err));
	n.writer = gm_import_open(n.facts, own_keys, options, GM_KIND_LOGITS, n.at[LIST_LOGPROBS] != NULL, &n.model, err);
	GM_TRY_OUT(n.writer ? GM_OK : gm_failed(err));
	GM_TRY_OUT(read_rows(&n, err));
	status = gm_writer_close(n.writer, err);
	n.writer = NULL;
out:
	gm_writer_discard(n.writer);
	gm_model_free(&n.model);
	gm_json_free(n.facts);
	free(n.table);
	free(n.raw);
	free(n.logits);
	return status;
}
