#include "traces/import_store.h"

#include "traces/commands.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 20)
#define LAYER_SHIFT 48
#define RECORD_MASK ((UINT64_C(1) << LAYER_SHIFT) - 1)

/* Where a row lies; sorted before writing. */
struct key {
	uint32_t sequence, position;
	uint64_t layer_record; /* layer << 48 | number of the record in the file */
};

/* A record of the file: this, then the payload. */
struct record {
	uint64_t line;
	int64_t pass;
	int32_t token;
	float logprob;
};

struct label {
	uint32_t sequence;
	uint64_t line;
	char *text;
};

struct gm_store {
	const char *input_name;
	enum gm_trace_kind kind;
	uint32_t n_layer, n_expert, top_k;
	size_t record_bytes;
	int fd;
	unsigned char *buffer; /* records not yet in the file */
	size_t buffered, buffer_bytes;
	struct key *key; /* [n_key], of max_key */
	size_t n_key, max_key;
	bool sorted; /* the keys came in order */
	bool has_logprobs;
	uint64_t n_unweighted;
	struct label *label; /* [n_label] by sequence, of max_label */
	size_t n_label, max_label;
	unsigned char *token; /* the records of one token, [n_layer + 1] */
};

/* --- the temporary file --- */

static int flush_records(struct gm_store *store, struct gm_error *err)
{
	size_t done = 0;

	while (done < store->buffered) {
		ssize_t n = write(store->fd, store->buffer + done, store->buffered - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return gm_fail(err, GM_ERR_IO,
				       "cannot write the temporary file: %s: the rows need room beside the output",
				       strerror(errno));
		done += (size_t)n;
	}
	store->buffered = 0;
	return GM_OK;
}

static int read_records(const struct gm_store *store, uint64_t first, size_t n, unsigned char *to, struct gm_error *err)
{
	size_t size = n * store->record_bytes, done = 0;
	off_t offset = (off_t)(first * store->record_bytes);

	while (done < size) {
		ssize_t got = pread(store->fd, to + done, size - done, offset + (off_t)done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return gm_fail(err, GM_ERR_IO, "cannot read the temporary file back: %s",
				       got < 0 ? strerror(errno) : "it is too short");
		done += (size_t)got;
	}
	return GM_OK;
}

/* --- life --- */

struct gm_store *gm_store_new(const char *near, const char *input_name, enum gm_trace_kind kind,
			      const struct gm_model *model, struct gm_error *err)
{
	struct gm_store *store = gm_alloc(1, sizeof(*store), err);
	size_t payload = kind == GM_KIND_LOGITS ? model->n_expert * sizeof(float)
						: model->top_k * (sizeof(double) + sizeof(uint16_t));

	if (!store)
		return NULL;
	store->fd = -1;
	store->input_name = input_name;
	store->kind = kind;
	store->n_layer = model->n_layer;
	store->n_expert = model->n_expert;
	store->top_k = model->top_k;
	store->record_bytes = (sizeof(struct record) + payload + 7) / 8 * 8;
	store->sorted = true;
	store->buffer_bytes = BUFFER_BYTES > store->record_bytes ? BUFFER_BYTES : store->record_bytes;
	store->buffer = gm_alloc(store->buffer_bytes, 1, err);
	store->token = gm_alloc((size_t)model->n_layer + 1, store->record_bytes, err);
	if (store->buffer && store->token)
		store->fd = gm_import_temporary(near, err);
	if (store->fd < 0) {
		gm_store_free(store);
		return NULL;
	}
	return store;
}

void gm_store_free(struct gm_store *store)
{
	if (!store)
		return;
	if (store->fd >= 0)
		close(store->fd);
	for (size_t i = 0; i < store->n_label; i++)
		free(store->label[i].text);
	free(store->label);
	free(store->key);
	free(store->buffer);
	free(store->token);
	free(store);
}

uint64_t gm_store_n_row(const struct gm_store *store)
{
	return store->n_key;
}

bool gm_store_has_logprobs(const struct gm_store *store)
{
	return store->has_logprobs;
}

uint64_t gm_store_n_unweighted(const struct gm_store *store)
{
	return store->n_unweighted;
}

/* --- adding --- */

static int compare_keys(const void *left, const void *right)
{
	const struct key *a = left, *b = right;

	if (a->sequence != b->sequence)
		return a->sequence < b->sequence ? -1 : 1;
	if (a->position != b->position)
		return a->position < b->position ? -1 : 1;
	return (a->layer_record > b->layer_record) - (a->layer_record < b->layer_record);
}

static int add_key(struct gm_store *store, const struct gm_store_row *row, struct gm_error *err)
{
	struct key key = {row->sequence, row->position, (uint64_t)row->layer << LAYER_SHIFT | store->n_key};

	if (store->n_key == store->max_key) {
		size_t max = store->max_key ? store->max_key * 2 : 4096;
		struct key *grown = gm_realloc(store->key, max, sizeof(*grown), err);

		if (!grown)
			return GM_ERR_MEMORY;
		store->key = grown;
		store->max_key = max;
	}
	if (store->n_key > 0 && compare_keys(&store->key[store->n_key - 1], &key) >= 0)
		store->sorted = false;
	store->key[store->n_key++] = key;
	return GM_OK;
}

/* Writes the head of a record; *payload is where the rest belongs (zeroed). */
static int add_record(struct gm_store *store, const struct gm_store_row *row, unsigned char **payload, struct gm_error *err)
{
	struct record record = {row->line, row->pass, row->token, row->logprob};

	GM_TRY(add_key(store, row, err));
	if (store->buffered + store->record_bytes > store->buffer_bytes)
		GM_TRY(flush_records(store, err));
	unsigned char *at = store->buffer + store->buffered;

	memset(at, 0, store->record_bytes);
	memcpy(at, &record, sizeof(record));
	*payload = at + sizeof(record);
	store->buffered += store->record_bytes;
	if (!isnan(row->logprob))
		store->has_logprobs = true;
	return GM_OK;
}

int gm_store_add(struct gm_store *store, const struct gm_store_row *row, const float *logits, struct gm_error *err)
{
	unsigned char *payload = NULL;

	GM_TRY(add_record(store, row, &payload, err));
	if (logits)
		memcpy(payload, logits, store->n_expert * sizeof(*logits));
	return GM_OK;
}

int gm_store_add_topk(struct gm_store *store, const struct gm_store_row *row, const uint16_t *expert, const double *weight,
		      struct gm_error *err)
{
	unsigned char *payload = NULL;
	size_t k = store->top_k;
	double sum = 0.0;

	GM_TRY(add_record(store, row, &payload, err));
	for (size_t i = 0; i < k; i++)
		sum += weight[i];
	for (size_t i = 0; i < k; i++) {
		double w = sum > 0.0 ? weight[i] : 1.0 / (double)k;

		memcpy(payload + i * sizeof(w), &w, sizeof(w));
	}
	memcpy(payload + k * sizeof(double), expert, k * sizeof(*expert));
	store->n_unweighted += sum > 0.0 ? 0 : 1;
	return GM_OK;
}

/* First label whose sequence is not below; rows of a sequence mostly follow each other, so the search is short. */
static size_t find_label(const struct gm_store *store, uint32_t sequence)
{
	size_t low = 0, high = store->n_label;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (store->label[middle].sequence < sequence)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int gm_store_label(struct gm_store *store, uint32_t sequence, const char *label, uint64_t line, struct gm_error *err)
{
	size_t at = find_label(store, sequence);

	if (at < store->n_label && store->label[at].sequence == sequence) {
		if (strcmp(store->label[at].text, label) == 0)
			return GM_OK;
		return gm_fail(err, GM_ERR_FORMAT,
			       "sequence %" PRIu32 " has two labels: %s: lines %" PRIu64 " (\"%.40s\") and %" PRIu64
			       " (\"%.40s\"): one a sequence",
			       sequence, store->input_name, store->label[at].line, store->label[at].text, line, label);
	}
	if (!gm_is_utf8(label))
		return gm_fail(err, GM_ERR_FORMAT,
			       "a label that is not UTF-8: %s: line %" PRIu64 ": save the file as UTF-8", store->input_name,
			       line);
	if (store->n_label == store->max_label) {
		size_t max = store->max_label ? store->max_label * 2 : 64;
		struct label *grown = gm_realloc(store->label, max, sizeof(*grown), err);

		if (!grown)
			return GM_ERR_MEMORY;
		store->label = grown;
		store->max_label = max;
	}
	char *text = gm_strdup(label, err);

	if (!text)
		return GM_ERR_MEMORY;
	memmove(store->label + at + 1, store->label + at, (store->n_label - at) * sizeof(*store->label));
	store->label[at] = (struct label){sequence, line, text};
	store->n_label++;
	return GM_OK;
}

/* --- writing --- */

/* What has been written so far. */
struct progress {
	const struct gm_import_sequence *table;
	uint32_t n_table;
	bool sequence_is_pass;
	bool any; /* a sequence has begun: the next three tell of its last token */
	uint32_t sequence;
	uint64_t n_token;
	int64_t pass;
};

static const struct record *record_at(const struct gm_store *store, size_t i)
{
	return (const struct record *)(const void *)(store->token + i * store->record_bytes);
}

/* Reads the n records of a token, neighbours in the file at once. */
static int read_token(struct gm_store *store, const struct key *key, size_t n, struct gm_error *err)
{
	for (size_t i = 0; i < n;) {
		uint64_t first = key[i].layer_record & RECORD_MASK;
		size_t run = 1;

		while (i + run < n && (key[i + run].layer_record & RECORD_MASK) == first + run)
			run++;
		GM_TRY(read_records(store, first, run, store->token + i * store->record_bytes, err));
		i += run;
	}
	return GM_OK;
}

/* Length of the group of one token, which starts at key; rows that stand twice are found here. */
static int token_rows(const struct gm_store *store, const struct key *key, size_t n_left, size_t *n, struct gm_error *err)
{
	size_t i = 1;

	while (i < n_left && key[i].sequence == key[0].sequence && key[i].position == key[0].position) {
		if (key[i].layer_record >> LAYER_SHIFT == key[i - 1].layer_record >> LAYER_SHIFT) {
			struct record twice[2] = {0};
			unsigned layer = (unsigned)(key[i].layer_record >> LAYER_SHIFT);

			for (size_t j = 0; j < 2; j++) {
				GM_TRY(read_records(store, key[i - 1 + j].layer_record & RECORD_MASK, 1, store->token,
						    err));
				memcpy(&twice[j], store->token, sizeof(twice[j]));
			}
			if (layer == GM_NO_LAYER)
				return gm_fail(err, GM_ERR_FORMAT,
					       "seq %" PRIu32 " pos %" PRIu32 " is declared twice: %s: lines %" PRIu64
					       " and %" PRIu64 ": once each",
					       key[0].sequence, key[0].position, store->input_name, twice[0].line,
					       twice[1].line);
			return gm_fail(err, GM_ERR_FORMAT,
				       "seq %" PRIu32 " pos %" PRIu32 " layer %u stands twice: %s: lines %" PRIu64
				       " and %" PRIu64 ": each row once",
				       key[0].sequence, key[0].position, layer, store->input_name, twice[0].line,
				       twice[1].line);
		}
		i++;
	}
	*n = i;
	return GM_OK;
}

static int disagree(const struct gm_store *store, const struct key *key, const char *what, const struct record *a,
		    const struct record *b, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_FORMAT,
		       "two values of \"%s\" for seq %" PRIu32 " pos %" PRIu32 ": %s: lines %" PRIu64 " and %" PRIu64
		       ": the same at every row of a token",
		       what, key->sequence, key->position, store->input_name, a->line, b->line);
}

/* Facts of a token from the n rows of it. */
static int merge_facts(const struct gm_store *store, const struct key *key, size_t n, struct record *facts,
		       struct gm_error *err)
{
	*facts = *record_at(store, 0);
	for (size_t i = 1; i < n; i++) {
		const struct record *r = record_at(store, i);

		if (facts->pass == GM_NO_PASS)
			facts->pass = r->pass;
		else if (r->pass != GM_NO_PASS && r->pass != facts->pass)
			return disagree(store, key, "pass", facts, r, err);
		if (facts->token == GM_NO_TOKEN)
			facts->token = r->token;
		else if (r->token != GM_NO_TOKEN && r->token != facts->token)
			return disagree(store, key, "token", facts, r, err);
		if (isnan(facts->logprob))
			facts->logprob = r->logprob;
		else if (!isnan(r->logprob) && r->logprob != facts->logprob)
			return disagree(store, key, "logprob", facts, r, err);
	}
	return GM_OK;
}

/* A sequence has all its tokens: is that as many as the table said? */
static int end_sequence(const struct gm_store *store, const struct progress *p, struct gm_error *err)
{
	if (!p->any || !p->table || p->table[p->sequence].length == UINT64_MAX ||
	    p->table[p->sequence].length == p->n_token)
		return GM_OK;
	return gm_fail(err, GM_ERR_FORMAT,
		       "sequence %" PRIu32 " has %" PRIu64 " tokens, its length says %" PRIu64 ": %s: is the file whole?",
		       p->sequence, p->n_token, p->table[p->sequence].length, store->input_name);
}

static int begin_sequence(const struct gm_store *store, struct progress *p, struct gm_writer *writer, const struct key *key,
			  uint64_t line, struct gm_error *err)
{
	char number[16];
	const char *id = number, *label = "";
	size_t at = find_label(store, key->sequence);
	bool labelled = at < store->n_label && store->label[at].sequence == key->sequence;

	GM_TRY(end_sequence(store, p, err));
	snprintf(number, sizeof(number), "%" PRIu32, key->sequence);
	if (labelled)
		label = store->label[at].text;
	if (p->table && key->sequence >= p->n_table)
		return gm_fail(err, GM_ERR_FORMAT,
			       "seq %" PRIu32 " is not in \"sequences\": %s: line %" PRIu64 ": 0 to %" PRIu32,
			       key->sequence, store->input_name, line, p->n_table ? p->n_table - 1 : 0);
	if (p->table) {
		const struct gm_import_sequence *s = &p->table[key->sequence];

		if (labelled && *s->label && strcmp(label, s->label) != 0)
			return gm_fail(err, GM_ERR_FORMAT,
				       "sequence %" PRIu32 " has two labels: %s: line %" PRIu64
				       ": \"%.40s\" there, \"%.40s\" in \"sequences\"",
				       key->sequence, store->input_name, store->label[at].line, label, s->label);
		id = s->id;
		label = labelled ? label : s->label;
	}
	p->any = true;
	p->sequence = key->sequence;
	p->n_token = 0;
	p->pass = GM_NO_PASS;
	return gm_writer_begin_sequence(writer, id, label, err);
}

static int append_row(const struct gm_store *store, struct gm_writer *writer, uint64_t token, uint32_t layer,
		      const struct record *record, struct gm_error *err)
{
	const void *payload = record + 1;

	if (store->kind == GM_KIND_LOGITS)
		return gm_writer_append(writer, layer, token, 1, payload, store->n_expert, err);
	const double *weight = payload;
	const void *expert = weight + store->top_k;

	return gm_writer_append_topk(writer, layer, token, 1, expert, weight, err);
}

static int write_token(struct gm_store *store, struct progress *p, struct gm_writer *writer, const struct key *key,
		       size_t n, struct gm_error *err)
{
	struct record facts;
	uint64_t token = 0;
	bool new_pass = true;

	GM_TRY(read_token(store, key, n, err));
	GM_TRY(merge_facts(store, key, n, &facts, err));
	if (!p->any || p->sequence != key->sequence)
		GM_TRY(begin_sequence(store, p, writer, key, facts.line, err));
	if (p->n_token > 0 && facts.pass == GM_NO_PASS && p->pass == GM_NO_PASS)
		new_pass = !p->sequence_is_pass;
	else if (p->n_token > 0)
		new_pass = facts.pass != p->pass;
	if (facts.pass != GM_NO_PASS && p->pass != GM_NO_PASS && facts.pass < p->pass)
		return gm_fail(err, GM_ERR_FORMAT,
			       "pass %" PRId64 " after pass %" PRId64 ": %s: line %" PRIu64 " (seq %" PRIu32 " pos %" PRIu32
			       "): passes never go back in a sequence",
			       facts.pass, p->pass, store->input_name, facts.line, key->sequence, key->position);
	GM_TRY(gm_writer_add_tokens(writer, 1, &facts.token, key->position, new_pass,
				    store->has_logprobs ? &facts.logprob : NULL, &token, err));
	for (size_t i = 0; i < n; i++) {
		uint32_t layer = (uint32_t)(key[i].layer_record >> LAYER_SHIFT);

		if (layer != GM_NO_LAYER && append_row(store, writer, token, layer, record_at(store, i), err) < 0)
			return gm_error_at(err, "%s: line %" PRIu64, store->input_name, record_at(store, i)->line);
	}
	p->pass = facts.pass;
	p->n_token++;
	return gm_writer_complete(writer, token + 1, err);
}

int gm_store_write(struct gm_store *store, struct gm_writer *writer, const struct gm_import_sequence *table,
		   uint32_t n_table, const struct gm_import_options *options, struct gm_error *err)
{
	struct progress p = {.table = table, .n_table = n_table, .sequence_is_pass = options->sequence_is_pass};
	size_t n = 0;

	GM_TRY(flush_records(store, err));
	if (store->n_key == 0)
		return gm_fail(err, GM_ERR_FORMAT, "no rows: %s: at least one is needed", store->input_name);
	if (!store->sorted)
		qsort(store->key, store->n_key, sizeof(*store->key), compare_keys);
	for (size_t i = 0; i < store->n_key; i += n) {
		GM_TRY(token_rows(store, store->key + i, store->n_key - i, &n, err));
		GM_TRY(write_token(store, &p, writer, store->key + i, n, err));
	}
	return end_sequence(store, &p, err);
}
