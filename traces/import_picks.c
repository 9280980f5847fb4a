#include "traces/import_picks.h"

#include "base/number.h"
#include "base/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- comment lines --- */

/* Takes "key=value" (value perhaps in double quotes, a quote inside doubled) from *at, in place. False at the end or where a word has
 * no "=": such words are passed over by the caller. */
static bool next_pair(char **at, char **key, char **value)
{
	char *p = *at + strspn(*at, " \t"), *out;

	if (!*p)
		return false;
	*key = p;
	p += strcspn(p, "= \t");
	*value = NULL;
	if (*p != '=') {
		*at = p + (*p != '\0');
		*p = '\0';
		return true;
	}
	*p++ = '\0';
	*value = out = p;
	if (*p != '"') {
		p += strcspn(p, " \t");
		*at = p + (*p != '\0');
		*p = '\0';
		return true;
	}
	for (p++; *p && (*p != '"' || p[1] == '"'); p++) {
		p += *p == '"';
		*out++ = *p;
	}
	*at = p + (*p != '\0');
	*out = '\0';
	return true;
}

static int take_pairs(char *at, const char *where,
		      int (*take)(void *context, bool first, const char *key, const char *value, const char *where,
				  struct gm_error *err),
		      void *context, struct gm_error *err)
{
	char *key = NULL, *value = NULL;
	bool first = true;

	while (next_pair(&at, &key, &value)) {
		if (!value)
			continue; /* a word of a comment */
		GM_TRY(take(context, first, key, value, where, err));
		first = false;
	}
	return GM_OK;
}

static int read_columns(struct gm_picks *picks, char *line, const char *where, struct gm_error *err)
{
	for (struct gm_picks_column *c = picks->column; c->name; c++) {
		char *at = line;

		picks->n_column = 0;
		c->index = -1;
		for (int i = 0; at; i++) {
			size_t n = strcspn(at, ",");
			bool quoted = n >= 2 && at[0] == '"' && at[n - 1] == '"';
			size_t length = quoted ? n - 2 : n;

			if (strlen(c->name) == length && strncmp(at + quoted, c->name, length) == 0)
				c->index = i;
			at = at[n] ? at + n + 1 : NULL;
			picks->n_column++;
		}
		if (c->index < 0 && c->required)
			return gm_fail(err, GM_ERR_FORMAT, "no column \"%s\": %s: the line of column names", c->name,
				       where);
	}
	return GM_OK;
}

int gm_picks_header(struct gm_picks *picks, const char *magic,
		    int (*take)(void *context, bool first, const char *key, const char *value, const char *where,
				struct gm_error *err),
		    void *context, struct gm_error *err)
{
	const char *name = gm_feed_name(picks->input);
	char *line = NULL, where[200];
	size_t size = 0;
	int got;

	while ((got = gm_feed_line(picks->input, &line, &size, err)) > 0) {
		uint64_t number = gm_feed_line_number(picks->input);
		size_t n = number == 1 ? strlen(magic) : 1;

		snprintf(where, sizeof(where), "%s: line %" PRIu64, name, number);
		if (number == 1 && (strncmp(line, magic, n) != 0 || (line[n] && line[n] != ' ')))
			return gm_fail(err, GM_ERR_FORMAT, "not the format that was asked for: %s: must begin with \"%s\"",
				       where, magic);
		if (number > 1 && line[0] != '#' && size > 0) {
			gm_csv_open(&picks->csv, gm_feed_stream(picks->input, err), name);
			/* The reader counts from where it begins. */
			picks->csv.next_line = number + 1;
			return picks->csv.stream ? read_columns(picks, line, where, err) : GM_ERR_MEMORY;
		}
		if (size > 0)
			GM_TRY(take_pairs(line + n, where, take, context, err));
	}
	GM_TRY(got);
	return gm_fail(err, GM_ERR_FORMAT, "%s: %s: \"%s …\", then the column names, then the rows",
		       gm_feed_line_number(picks->input) ? "no line of column names" : "the file is empty", name, magic);
}

/* --- the table --- */

int gm_picks_begin(struct gm_picks *picks, struct gm_error *err)
{
	size_t k = picks->model.top_k;

	picks->expert = gm_alloc(k, sizeof(*picks->expert), err);
	picks->weight = gm_alloc(k, sizeof(*picks->weight), err);
	picks->given = gm_alloc(k, sizeof(*picks->given), err);
	picks->store = gm_store_new(picks->options->output, gm_feed_name(picks->input), GM_KIND_TOPK, &picks->model, err);
	if (!picks->expert || !picks->weight || !picks->given || !picks->store)
		return gm_failed(err);
	gm_progress_start(&picks->progress, "import", "bytes", gm_feed_size(picks->input), picks->options->quiet);
	return GM_OK;
}

int gm_picks_next(struct gm_picks *picks, struct gm_error *err)
{
	int got = gm_csv_next(&picks->csv, err);

	gm_progress_update(&picks->progress, gm_feed_taken(picks->input));
	if (got <= 0) {
		gm_progress_end(&picks->progress);
		return got < 0 ? gm_feed_failure(picks->input, got, err) : 0;
	}
	if (picks->csv.n_field > picks->n_column)
		return gm_picks_bad(picks, "a line is too long", "no more fields than there are column names", err);
	for (const struct gm_picks_column *c = picks->column; c->name; c++)
		if (c->index >= (int)picks->csv.n_field)
			return gm_picks_bad(picks, "a line is too short", "a field for every column", err);
	return 1;
}

int gm_picks_bad(const struct gm_picks *picks, const char *what, const char *right, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_FORMAT, "%s: %s: line %" PRIu64 ": %s", what, gm_feed_name(picks->input),
		       picks->csv.line, right);
}

const char *gm_picks_text(const struct gm_picks *picks, int column)
{
	return picks->column[column].index < 0 ? NULL : picks->csv.field[picks->column[column].index];
}

int gm_picks_uint(struct gm_picks *picks, int column, uint64_t max, uint64_t *out, struct gm_error *err)
{
	const char *text = gm_picks_text(picks, column), *at = text;
	uint64_t value = 0;

	if (!text)
		return GM_OK;
	while (*at >= '0' && *at <= '9' && at - text < 18)
		value = value * 10 + (uint64_t)(*at++ - '0');
	if (at == text || *at || value > max)
		return gm_fail(err, GM_ERR_FORMAT,
			       "%s is \"%.40s\": %s: line %" PRIu64 ": a whole number from 0 to %" PRIu64,
			       picks->column[column].name, text, gm_feed_name(picks->input), picks->csv.line, max);
	*out = value;
	return GM_OK;
}

int gm_picks_number(struct gm_picks *picks, int column, double *out, struct gm_error *err)
{
	const char *text = gm_picks_text(picks, column);

	if (!text || !*text)
		return GM_OK;
	if (gm_parse_double(text, "", out, NULL) < 0)
		return gm_fail(err, GM_ERR_FORMAT, "%s is \"%.40s\": %s: line %" PRIu64 ": a finite number",
			       picks->column[column].name, text, gm_feed_name(picks->input), picks->csv.line);
	return GM_OK;
}

static int close_row(struct gm_picks *picks, struct gm_error *err)
{
	const struct gm_store_row *r = &picks->row;

	if (!picks->open)
		return GM_OK;
	picks->open = false;
	if (picks->n_pick != picks->model.top_k)
		return gm_fail(err, GM_ERR_FORMAT,
			       "seq %" PRIu32 " pos %" PRIu32 " layer %" PRIu32 " has %" PRIu32 " of %" PRIu32
			       " experts: %s: line %" PRIu64 ": n_expert_used lines a row, one after the other",
			       r->sequence, r->position, r->layer, picks->n_pick, picks->model.top_k,
			       gm_feed_name(picks->input), r->line);
	return gm_store_add_topk(picks->store, r, picks->expert, picks->weight, err);
}

int gm_picks_add(struct gm_picks *picks, const struct gm_store_row *row, uint32_t rank, uint32_t expert, double weight,
		 struct gm_error *err)
{
	const struct gm_store_row *r = &picks->row;

	if (!picks->open || row->sequence != r->sequence || row->position != r->position || row->layer != r->layer) {
		GM_TRY(close_row(picks, err));
		picks->open = true;
		picks->row = *row;
		picks->row.line = picks->csv.line;
		picks->n_pick = 0;
		memset(picks->given, 0, picks->model.top_k);
	}
	if (!(weight >= 0.0))
		return gm_picks_bad(picks, "a negative weight", "gate weights are 0 or more", err);
	if (picks->given[rank])
		return gm_picks_bad(picks, "a rank stands twice in a row", "each row and rank once", err);
	for (uint32_t i = 0; i < picks->model.top_k; i++)
		if (picks->given[i] && picks->expert[i] == expert)
			return gm_picks_bad(picks, "an expert stands twice in a row", "distinct experts", err);
	picks->given[rank] = 1;
	picks->expert[rank] = (uint16_t)expert;
	picks->weight[rank] = weight;
	picks->n_pick++;
	return GM_OK;
}

int gm_picks_end(struct gm_picks *picks, struct gm_error *err)
{
	GM_TRY(close_row(picks, err));
	if (gm_store_n_unweighted(picks->store) > 0 && !picks->options->quiet)
		gm_note("note: %" PRIu64 " of %" PRIu64 " rows have no weights: %s: they count as 1/%u each",
			gm_store_n_unweighted(picks->store), gm_store_n_row(picks->store), gm_feed_name(picks->input),
			picks->model.top_k);
	return GM_OK;
}

void gm_picks_free(struct gm_picks *picks)
{
	gm_csv_close(&picks->csv);
	gm_model_free(&picks->model);
	gm_store_free(picks->store);
	free(picks->expert);
	free(picks->weight);
	free(picks->given);
}
