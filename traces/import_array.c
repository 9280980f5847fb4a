/* Arrays of rows into a trace (see import_array.h). The array is read once, a batch of tokens at a time. */
#include "traces/import_array.h"

#include "base/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const own_keys[] = {"format", "sequences", "tokens", "logprobs", "passes", "positions", "absent", NULL};

/* Lists of one number a token, walked in step with the array. */
static const char *const list_key[GM_ARRAY_N_LIST] = {"tokens", "logprobs", "passes", "positions"};

/* --- the facts --- */

int gm_array_open(struct gm_array_import *a, const char *input_name, const struct gm_import_options *options,
		  struct gm_error *err)
{
	memset(a, 0, sizeof(*a));
	a->input_name = input_name;
	a->options = options;
	if (!options->meta) {
		a->meta_name = "no --meta FILE";
		a->facts = gm_json_new_object();
		return a->facts ? GM_OK : gm_fail(err, GM_ERR_MEMORY, "out of memory");
	}
	a->meta_name = options->meta;
	a->facts = gm_json_parse_file(options->meta, err);
	if (!a->facts)
		return gm_failed(err);
	if (gm_json_type(a->facts) != GM_JSON_OBJECT)
		return gm_fail(err, GM_ERR_FORMAT, "not an object: %s: {\"model\":…,\"n_expert_used\":…,…}", a->meta_name);
	return GM_OK;
}

/* "n_layer" and "n_expert" may be left to the array; where they are given they must be its. */
static int match_shape(struct gm_array_import *a, const char *key, uint64_t size, const char *what, struct gm_error *err)
{
	double said = gm_json_value(gm_json_get(a->facts, key));

	if (!gm_json_get(a->facts, key) && !gm_json_add_uint(a->facts, key, size))
		return gm_fail(err, GM_ERR_MEMORY, "out of memory");
	if (!isnan(said) && said != (double)size)
		return gm_fail(err, GM_ERR_FORMAT, "the array has %" PRIu64 " %s, \"%s\" is %.17g: %s and %s: must agree",
			       size, what, key, said, a->input_name, a->meta_name);
	return GM_OK;
}

static int find_lists(struct gm_array_import *a, struct gm_error *err)
{
	for (int i = 0; i < GM_ARRAY_N_LIST; i++) {
		const struct gm_json *list = gm_json_get(a->facts, list_key[i]);

		if (!list || gm_json_type(list) == GM_JSON_NULL)
			continue;
		if (gm_json_type(list) != GM_JSON_ARRAY || gm_json_size(list) != a->n_token)
			return gm_fail(
				err, GM_ERR_FORMAT,
				"\"%s\" has %zu entries: %s: must be a list with one for each of the array's %" PRIu64
				" tokens",
				list_key[i], gm_json_size(list), a->meta_name, a->n_token);
		a->at[i] = gm_json_first(list);
	}
	return GM_OK;
}

static int match_sequences(struct gm_array_import *a, struct gm_error *err)
{
	uint64_t sum = 0;

	GM_TRY(gm_import_sequences(a->facts, a->meta_name, &a->table, &a->n_table, err));
	if (!a->table)
		return GM_OK;
	for (uint32_t i = 0; i < a->n_table; i++) {
		if (a->table[i].length == UINT64_MAX && a->n_table == 1)
			a->table[i].length = a->n_token;
		if (a->table[i].length == UINT64_MAX)
			return gm_fail(err, GM_ERR_FORMAT, "no \"length\": %s: sequences[%u]: tokens of the sequence",
				       a->meta_name, i);
		sum += a->table[i].length;
	}
	if (sum != a->n_token)
		return gm_fail(err, GM_ERR_FORMAT,
			       "the lengths in \"sequences\" add up to %" PRIu64 ": %s: the array has %" PRIu64 " tokens",
			       sum, a->meta_name, a->n_token);
	return GM_OK;
}

int gm_array_begin(struct gm_array_import *a, uint64_t n_token, uint64_t n_layer, uint64_t n_expert, struct gm_error *err)
{
	const char *absent;

	a->n_token = n_token;
	GM_TRY(match_shape(a, "n_layer", n_layer, "layers", err));
	GM_TRY(match_shape(a, "n_expert", n_expert, "experts", err));
	GM_TRY(gm_import_model(a->facts, a->options, a->meta_name, &a->model, err));
	GM_TRY(find_lists(a, err));
	absent = gm_json_text(gm_json_get(a->facts, "absent"));
	a->absent_rows = absent && strcmp(absent, "nan") == 0;
	return match_sequences(a, err);
}

/* --- the tokens --- */

/* The next number of a list, in [min, max]; absent where there is no such list. */
static int next_number(struct gm_array_import *a, int list, int64_t min, int64_t max, int64_t *out, struct gm_error *err)
{
	if (!a->at[list])
		return GM_OK;
	double value = gm_json_value(a->at[list]);

	if (!(value >= (double)min && value <= (double)max && value == floor(value)))
		return gm_fail(err, GM_ERR_FORMAT,
			       "not a whole number from %" PRId64 " to %" PRId64 ": %s: %s[%" PRIu64 "]", min, max,
			       a->meta_name, list_key[list], a->token);
	*out = (int64_t)value;
	a->at[list] = gm_json_next(a->at[list]);
	return GM_OK;
}

static int next_logprob(struct gm_array_import *a, float *logprob, struct gm_error *err)
{
	*logprob = NAN;
	if (!a->at[GM_ARRAY_LOGPROBS])
		return GM_OK;
	if (gm_json_type(a->at[GM_ARRAY_LOGPROBS]) == GM_JSON_NUMBER)
		*logprob = (float)gm_json_value(a->at[GM_ARRAY_LOGPROBS]);
	else if (gm_json_type(a->at[GM_ARRAY_LOGPROBS]) != GM_JSON_NULL)
		return gm_fail(err, GM_ERR_FORMAT, "not a number: %s: logprobs[%" PRIu64 "]: or null", a->meta_name,
			       a->token);
	a->at[GM_ARRAY_LOGPROBS] = gm_json_next(a->at[GM_ARRAY_LOGPROBS]);
	return GM_OK;
}

static int begin_sequence(struct gm_array_import *a, struct gm_error *err)
{
	const struct gm_import_sequence one = {"0", "", a->n_token};
	const struct gm_import_sequence *s = &one;

	/* Sequences without tokens are passed over; the lengths add up, so one with tokens follows. */
	while (a->table && a->in_sequence >= a->table[a->sequence].length) {
		a->sequence++;
		a->in_sequence = 0;
	}
	if (a->in_sequence > 0)
		return GM_OK;
	if (a->table)
		s = &a->table[a->sequence];
	a->pass = -1;
	return gm_writer_begin_sequence(a->writer, s->id, s->label, err);
}

static int declare_token(struct gm_array_import *a, uint64_t *number, struct gm_error *err)
{
	int64_t token = -1, pass = -1, position;
	int32_t token_id;
	float logprob;
	bool new_pass;

	GM_TRY(begin_sequence(a, err));
	position = (int64_t)a->in_sequence;
	GM_TRY(next_number(a, GM_ARRAY_TOKENS, -1, INT32_MAX, &token, err));
	GM_TRY(next_number(a, GM_ARRAY_PASSES, 0, INT64_C(1) << 53, &pass, err));
	GM_TRY(next_number(a, GM_ARRAY_POSITIONS, 0, UINT32_MAX, &position, err));
	GM_TRY(next_logprob(a, &logprob, err));
	if (position > UINT32_MAX)
		return gm_fail(err, GM_ERR_FORMAT, "a sequence of more than 2^32 tokens: %s: split it", a->meta_name);
	if (pass >= 0 && pass < a->pass)
		return gm_fail(err, GM_ERR_FORMAT, "passes never go back in a sequence: %s: passes[%" PRIu64 "]",
			       a->meta_name, a->token);
	if (pass >= 0)
		new_pass = pass != a->pass;
	else
		new_pass = a->in_sequence == 0 || !a->options->sequence_is_pass;
	token_id = (int32_t)token;
	GM_TRY(gm_writer_add_tokens(a->writer, 1, &token_id, (uint32_t)position, new_pass || a->in_sequence == 0,
				    isnan(logprob) ? NULL : &logprob, number, err));
	a->pass = pass;
	a->in_sequence++;
	a->token++;
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
static int append_rows(struct gm_array_import *a, uint64_t first, uint32_t n_token, struct gm_error *err)
{
	size_t n_expert = a->model.n_expert, stride = a->model.n_layer * n_expert;
	int status = GM_OK;

	for (uint32_t layer = 0; layer < a->model.n_layer && status == GM_OK; layer++) {
		const float *rows = a->logits + layer * n_expert;

		if (!a->absent_rows) {
			status = gm_writer_append(a->writer, layer, first, n_token, rows, stride, err);
			continue;
		}
		for (uint32_t i = 0; i < n_token && status == GM_OK; i++)
			if (!is_absent(rows + i * stride, a->model.n_expert))
				status = gm_writer_append(a->writer, layer, first + i, 1, rows + i * stride, stride, err);
	}
	if (status < 0)
		return gm_error_at(err, "%s", a->input_name);
	return gm_writer_complete(a->writer, first + n_token, err);
}

static int write_batch(struct gm_array_import *a, uint32_t n_token, struct gm_error *err)
{
	uint64_t first = 0, number = 0;

	for (uint32_t i = 0; i < n_token; i++) {
		GM_TRY(declare_token(a, &number, err));
		first = i == 0 ? number : first;
	}
	return append_rows(a, first, n_token, err);
}

int gm_array_write(struct gm_array_import *a,
		   int (*read)(void *user, uint64_t first, uint32_t n, float *logits, struct gm_error *err),
		   int (*end)(void *user, struct gm_error *err), void *user, struct gm_error *err)
{
	struct gm_progress progress;
	int status = GM_OK;

	a->logits = gm_alloc((size_t)GM_ARRAY_BATCH * a->model.n_layer * a->model.n_expert, sizeof(*a->logits), err);
	if (!a->logits)
		return GM_ERR_MEMORY;
	a->writer = gm_import_open(a->facts, own_keys, a->options, GM_KIND_LOGITS, a->at[GM_ARRAY_LOGPROBS] != NULL,
				   &a->model, err);
	if (!a->writer)
		return gm_failed(err);
	gm_progress_start(&progress, "import", "tokens", a->n_token, a->options->quiet);
	while (a->token < a->n_token && status == GM_OK) {
		uint64_t left = a->n_token - a->token;
		uint32_t n = left < GM_ARRAY_BATCH ? (uint32_t)left : GM_ARRAY_BATCH;

		status = read(user, a->token, n, a->logits, err);
		if (status == GM_OK)
			status = write_batch(a, n, err);
		gm_progress_update(&progress, a->token);
	}
	gm_progress_end(&progress);
	GM_TRY(status);
	if (end)
		GM_TRY(end(user, err));
	status = gm_writer_close(a->writer, err);
	a->writer = NULL;
	return status;
}

void gm_array_close(struct gm_array_import *a)
{
	gm_writer_discard(a->writer);
	gm_model_free(&a->model);
	gm_json_free(a->facts);
	free(a->table);
	free(a->logits);
}
