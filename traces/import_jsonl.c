/* Importer for router-logits-jsonl: line 1 says what model it is, every other line is a row, in any order.
 *
 * Rows go through a row store (import_store.h): the order of the trace is known only at the end of the input. A line with neither
 * "layer" nor "logits" declares a token that has no rows. */
#include "base/progress.h"
#include "traces/import_common.h"
#include "traces/import_jsonl_row.h"
#include "traces/import_store.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_NAME "router-logits-jsonl"

static const char *const own_keys[] = {"format", "sequences", NULL};

struct jsonl {
	struct gm_feed *input;
	const struct gm_import_options *options;
	struct gm_json *facts;
	struct gm_model model;
	struct gm_import_sequence *table;
	uint32_t n_table;
	struct gm_store *store;
	float *logits;   /* [n_expert] */
	char where[200]; /* "FILE: line 7" */
};

static void set_where(struct jsonl *j)
{
	snprintf(j->where, sizeof(j->where), "%s: line %" PRIu64, gm_feed_name(j->input), gm_feed_line_number(j->input));
}

static int read_facts(struct jsonl *j, struct gm_error *err)
{
	char *line = NULL;
	size_t size = 0;
	const char *format = NULL;
	int got = gm_feed_line(j->input, &line, &size, err);

	GM_TRY(got);
	if (got == 0)
		return gm_fail(err, GM_ERR_FORMAT, "the file is empty: %s: line 1: {\"format\":\"" FORMAT_NAME "\",…}",
			       gm_feed_name(j->input));
	set_where(j);
	if (line[0] == '{') {
		j->facts = gm_json_parse(line, size, gm_feed_name(j->input), err);
		if (!j->facts)
			return gm_failed(err);
	}
	format = gm_json_text(gm_json_get(j->facts, "format"));
	if (!format || strcmp(format, FORMAT_NAME) != 0)
		return gm_fail(err, GM_ERR_FORMAT,
			       "not a " FORMAT_NAME " file: %s: must be {\"format\":\"" FORMAT_NAME "\",…}", j->where);
	GM_TRY(gm_import_model(j->facts, j->options, j->where, &j->model, err));
	return gm_import_sequences(j->facts, j->where, &j->table, &j->n_table, err);
}

/* The members of a row but its logits. */
static int read_members(struct jsonl *j, const struct gm_json *object, bool has_logits, struct gm_store_row *row,
			struct gm_error *err)
{
	int64_t sequence = 0, position = 0, layer = 0, pass = 0, token = 0;
	bool has_layer = false, found = false;
	double logprob = 0.0;
	const char *label = NULL;

	GM_TRY(gm_json_get_int(object, "seq", 0, UINT32_MAX, &sequence, NULL, err));
	GM_TRY(gm_json_get_int(object, "pos", 0, UINT32_MAX, &position, NULL, err));
	GM_TRY(gm_json_get_int(object, "layer", 0, (int64_t)j->model.n_layer - 1, &layer, &has_layer, err));
	if (has_layer != has_logits)
		return gm_fail(err, GM_ERR_FORMAT, "a row without \"%s\": must have seq, pos, layer and logits",
			       has_layer ? "logits" : "layer");
	row->sequence = (uint32_t)sequence;
	row->position = (uint32_t)position;
	row->layer = has_layer ? (uint32_t)layer : GM_NO_LAYER;
	GM_TRY(gm_json_get_int(object, "pass", 0, INT64_C(1) << 53, &pass, &found, err));
	row->pass = found ? pass : GM_NO_PASS;
	GM_TRY(gm_json_get_int(object, "token", -1, INT32_MAX, &token, &found, err));
	row->token = found ? (int32_t)token : GM_NO_TOKEN;
	GM_TRY(gm_json_get_number(object, "logprob", &logprob, &found, err));
	row->logprob = found ? (float)logprob : NAN;
	GM_TRY(gm_json_get_string(object, "label", &label, &found, err));
	if (found)
		GM_TRY(gm_store_label(j->store, row->sequence, label, row->line, err));
	return GM_OK;
}

static int read_row(struct jsonl *j, char *line, size_t size, struct gm_error *err)
{
	struct gm_store_row row = {.line = gm_feed_line_number(j->input)};
	struct gm_error syntax = {0}, member = {0};
	bool has_logits = false;

	GM_TRY(gm_jsonl_take_logits(line, j->model.n_expert, j->logits, &has_logits, j->where, err));
	struct gm_json *object = gm_json_parse(line, size, "", &syntax);

	if (!object || gm_json_type(object) != GM_JSON_OBJECT) {
		/* The parser counts lines from this one: its place is of no use, what is wrong is. */
		gm_json_free(object);
		return gm_fail(err, GM_ERR_FORMAT, "%.*s: %s: a row is {\"seq\":0,\"pos\":0,\"layer\":0,\"logits\":[…]}",
			       object ? 13 : (int)strcspn(syntax.text, ":"), object ? "not an object" : syntax.text,
			       j->where);
	}
	int status = read_members(j, object, has_logits, &row, &member);

	gm_json_free(object);
	if (status < 0) {
		/* Two labels name their lines themselves. */
		gm_fail(err, member.code, "%s", member.text);
		return strstr(member.text, ": lines ") ? status : gm_error_at(err, "%s", j->where);
	}
	return gm_store_add(j->store, &row, has_logits ? j->logits : NULL, err);
}

static int read_rows(struct jsonl *j, struct gm_error *err)
{
	struct gm_progress progress;
	char *line = NULL;
	size_t size = 0;
	int got;

	gm_progress_start(&progress, "import", "bytes", gm_feed_size(j->input), j->options->quiet);
	while ((got = gm_feed_line(j->input, &line, &size, err)) > 0) {
		set_where(j);
		if (line[strspn(line, " \t")] == '\0')
			continue;
		got = read_row(j, line, size, err);
		if (got < 0)
			break;
		gm_progress_update(&progress, gm_feed_taken(j->input));
	}
	gm_progress_end(&progress);
	return got < 0 ? got : GM_OK;
}

int gm_import_jsonl(struct gm_feed *input, const struct gm_import_options *options, struct gm_error *err)
{
	struct jsonl j = {.input = input, .options = options};
	struct gm_writer *writer = NULL;
	int status;

	GM_TRY_OUT(read_facts(&j, err));
	j.logits = gm_alloc(j.model.n_expert, sizeof(*j.logits), err);
	j.store = gm_store_new(options->output, gm_feed_name(input), GM_KIND_LOGITS, &j.model, err);
	GM_TRY_OUT(j.logits && j.store ? GM_OK : gm_failed(err));
	GM_TRY_OUT(read_rows(&j, err));
	writer = gm_import_open(j.facts, own_keys, options, GM_KIND_LOGITS, gm_store_has_logprobs(j.store), &j.model, err);
	GM_TRY_OUT(writer ? GM_OK : gm_failed(err));
	GM_TRY_OUT(gm_store_write(j.store, writer, j.table, j.n_table, options, err));
	status = gm_writer_close(writer, err);
	writer = NULL;
out:
	gm_writer_discard(writer);
	gm_store_free(j.store);
	gm_model_free(&j.model);
	gm_json_free(j.facts);
	free(j.table);
	free(j.logits);
	return status;
}
