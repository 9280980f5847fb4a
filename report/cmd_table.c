/* report table: chosen columns and rows of results as Markdown, LaTeX or aligned text. */
#include "report/commands.h"

#include "base/file.h"
#include "base/number.h"
#include "report/columns.h"
#include "report/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1, COLUMNS, BEST, SORT, WHERE, ROWS, FULL, OUT };

#define MAX_WHERE 16

static const struct gm_option options[] = {
	{FORMAT, 'f', "format", "NAME", "markdown, latex or text [text]"},
	{COLUMNS, 'c', "columns", "LIST",
	 "columns by name, in this order [those that matter most];\n"
	 "beside those of the file: policy, cache, front; all: every one"},
	{BEST, 0, "best", "LIST",
	 "mark the best value in these columns, COLUMN[:min|max]; none [where it is\n"
	 "known what is better]; of each trace and hardware"},
	{SORT, 0, "sort", "COLUMN", "order of the rows, COLUMN[:min|max] first [as in the file]"},
	{WHERE, 0, "where", "TEST", "only rows with COLUMN=VALUE, <, >, <= or >=; may be given again"},
	{ROWS, 0, "rows", "N", "at most so many rows [all]"},
	{FULL, 0, "full", NULL, "names and numbers as in the file"},
	{OUT, 'o', "out", "FILE", "where to write [standard output]"},
	{0, 0, NULL, NULL, NULL},
};
static const struct gm_option *const tables[] = {options};

struct state {
	enum gm_table_format format;
	const char *columns, *best, *sort, *where[MAX_WHERE], *out;
	size_t n_where;
	uint64_t n_row;
	bool full;
};

static int set_format(struct state *state, const char *value, struct gm_error *err)
{
	static const char *const names[] = {"text", "markdown", "latex"};

	for (int i = 0; i < 3; i++)
		if (strcmp(value, names[i]) == 0) {
			state->format = (enum gm_table_format)i;
			return GM_OK;
		}
	return gm_fail(err, GM_ERR_USAGE, "no such format: --format \"%.60s\": markdown, latex or text", value);
}

static int option(int id, const char *value, void *data, struct gm_error *err)
{
	struct state *state = data;

	switch (id) {
	case FORMAT:
		return set_format(state, value, err);
	case COLUMNS:
		state->columns = value;
		return GM_OK;
	case BEST:
		state->best = value;
		return GM_OK;
	case SORT:
		state->sort = value;
		return GM_OK;
	case WHERE:
		if (state->n_where == MAX_WHERE)
			return gm_fail(err, GM_ERR_USAGE, "too many tests: --where: at most %d", MAX_WHERE);
		state->where[state->n_where++] = value;
		return GM_OK;
	case ROWS:
		return gm_parse_u64(value, "--rows", 1, SIZE_MAX / 2, &state->n_row, err);
	case FULL:
		state->full = true;
		return GM_OK;
	default:
		state->out = value;
		return GM_OK;
	}
}

/* --- names of columns --- */

/* The column that n bytes of text name. */
static int find(const struct gm_sheet *summary, const char *text, size_t n, const char *what, size_t *column,
		struct gm_error *err)
{
	for (*column = 0; *column < summary->n_column; ++*column)
		if (strlen(summary->column[*column]) == n && memcmp(summary->column[*column], text, n) == 0)
			return GM_OK;
	return gm_fail(err, GM_ERR_USAGE,
		       "no such column: %s \"%.*s\": the file has hit_rate and others; --columns all shows them", what,
		       (int)(n < 60 ? n : 60), text);
}

/* COLUMN[:min|max]; without a direction what is known to be better, else the smallest. */
static int find_directed(const struct gm_sheet *summary, const char *text, size_t n, const char *what, size_t *column,
			 int *best, struct gm_error *err)
{
	const char *colon = memchr(text, ':', n);
	const size_t name = colon ? (size_t)(colon - text) : n;
	const struct gm_known_column *known;

	GM_TRY(find(summary, text, name, what, column, err));
	known = gm_known_column(summary->column[*column]);
	*best = known && known->better ? known->better : -1;
	if (!colon)
		return GM_OK;
	if (n - name - 1 != 3 || (memcmp(colon + 1, "min", 3) != 0 && memcmp(colon + 1, "max", 3) != 0))
		return gm_fail(err, GM_ERR_USAGE, "no direction: %s \"%.60s\": COLUMN:min or COLUMN:max", what, text);
	*best = memcmp(colon + 1, "max", 3) == 0 ? 1 : -1;
	return GM_OK;
}

static int choose_columns(struct gm_table *t, const struct state *state, struct gm_error *err)
{
	const struct gm_sheet *s = t->summary;
	const char *text = state->columns;

	t->column = gm_alloc(s->n_column + (text ? strlen(text) : 0), sizeof(*t->column), err);
	if (!t->column)
		return GM_ERR_MEMORY;
	if (!text || strcmp(text, "all") == 0) {
		for (size_t c = 0; c < s->n_column; c++)
			if (text || gm_summary_is_usual(s, c))
				t->column[t->n_column++].column = c;
		return GM_OK;
	}
	for (;;) {
		size_t n = strcspn(text, ",");

		GM_TRY(find(s, text, n, "--columns", &t->column[t->n_column++].column, err));
		if (text[n] == '\0')
			return GM_OK;
		text += n + 1;
	}
}

static int choose_best(struct gm_table *t, const struct state *state, struct gm_error *err)
{
	const char *text = state->best;

	for (size_t c = 0; c < t->n_column && !text; c++) {
		const struct gm_known_column *known = gm_known_column(t->summary->column[t->column[c].column]);
		t->column[c].best = known ? known->better : 0;
	}
	while (text && strcmp(text, "none") != 0) {
		size_t n = strcspn(text, ","), column;
		int best;

		GM_TRY(find_directed(t->summary, text, n, "--best", &column, &best, err));
		for (size_t c = 0; c < t->n_column; c++)
			if (t->column[c].column == column)
				t->column[c].best = best;
		if (text[n] == '\0')
			break;
		text += n + 1;
	}
	return GM_OK;
}

/* --- rows --- */

struct test {
	size_t column;
	char sign; /* '=', '<', '>'; with or_equal */
	bool or_equal;
	const char *value;
};

static int parse_test(const struct gm_sheet *summary, const char *text, struct test *test, struct gm_error *err)
{
	size_t n = strcspn(text, "<>=");

	if (n == 0 || text[n] == '\0')
		return gm_fail(err, GM_ERR_USAGE, "no test: --where \"%.60s\": such as miss=fetch or hit_rate>0.5", text);
	test->sign = text[n];
	test->or_equal = test->sign != '=' && text[n + 1] == '=';
	test->value = text + n + 1 + test->or_equal;
	return find(summary, text, n, "--where", &test->column, err);
}

/* A number, also one with a percent sign: the names of cache sizes. */
static bool read_number(const char *text, double *value)
{
	char number[GM_NUMBER_TEXT];
	size_t n = strcspn(text, " %");

	if (n == 0 || n >= sizeof(number) || strcmp(text + n + strspn(text + n, " "), text[n] ? "%" : "") != 0)
		return false;
	memcpy(number, text, n);
	number[n] = '\0';
	return gm_parse_double(number, "", value, NULL) == GM_OK;
}

/* As numbers where both are, so that 0.250 is 0.25; else as text. */
static bool passes(const struct gm_sheet *summary, size_t row, const struct test *test)
{
	const char *text = gm_sheet_text(summary, row, test->column);
	double a, b;
	int order;

	if (read_number(text, &a) && read_number(test->value, &b))
		order = a < b ? -1 : a > b;
	else
		order = strcmp(text, test->value);
	if (order == 0)
		return test->sign == '=' || test->or_equal;
	return test->sign == (order < 0 ? '<' : '>');
}

static int choose_rows(struct gm_table *t, const struct state *state, struct gm_error *err)
{
	t->row = gm_alloc(t->summary->n_row, sizeof(*t->row), err);
	if (!t->row)
		return GM_ERR_MEMORY;
	for (; t->n_row < t->summary->n_row; t->n_row++)
		t->row[t->n_row] = t->n_row;
	for (size_t k = 0; k < state->n_where; k++) {
		struct test test = {.value = ""};
		size_t n = 0;

		GM_TRY(parse_test(t->summary, state->where[k], &test, err));
		for (size_t i = 0; i < t->n_row; i++)
			if (passes(t->summary, t->row[i], &test))
				t->row[n++] = t->row[i];
		t->n_row = n;
	}
	return GM_OK;
}

struct order {
	const struct gm_sheet *summary;
	size_t column;
	int best;
};

static int compare(const void *left, const void *right, void *data)
{
	const struct order *o = data;
	const size_t i = *(const size_t *)left, j = *(const size_t *)right;
	double a, b;

	if (gm_sheet_number(o->summary, i, o->column, &a, NULL) < 0 ||
	    gm_sheet_number(o->summary, j, o->column, &b, NULL) < 0) {
		int order = strcmp(gm_sheet_text(o->summary, i, o->column), gm_sheet_text(o->summary, j, o->column));
		return order ? -o->best * order : (i > j) - (i < j);
	}
	if (isnan(a) || isnan(b) || a == b) /* empty cells last */
		return isnan(a) != isnan(b) ? (isnan(a) ? 1 : -1) : (i > j) - (i < j);
	return (a < b) == (o->best < 0) ? -1 : 1;
}

static int make_table(struct gm_table *t, const struct state *state, struct gm_error *err)
{
	struct order order = {.summary = t->summary};

	GM_TRY(choose_columns(t, state, err));
	GM_TRY(choose_best(t, state, err));
	GM_TRY(choose_rows(t, state, err));
	if (state->sort) {
		GM_TRY(find_directed(t->summary, state->sort, strlen(state->sort), "--sort", &order.column, &order.best,
				     err));
		qsort_r(t->row, t->n_row, sizeof(*t->row), compare, &order);
	}
	if (state->n_row && t->n_row > state->n_row)
		t->n_row = state->n_row;
	return GM_OK;
}

static int write_table(const struct gm_table *table, const char *path, struct gm_error *err)
{
	struct gm_output out;

	GM_TRY(gm_output_open(&out, path, err));
	int status = gm_table_write(table, out.stream, err);
	if (status == GM_OK)
		status = gm_output_commit(&out, err);
	gm_output_discard(&out);
	return status;
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	const struct state *state = data;
	struct gm_inputs inputs = {0};
	struct gm_results results = {0};
	struct gm_sheet summary = {0};
	struct gm_table table = {.summary = &summary, .results = &results, .format = state->format, .full = state->full};
	int status;

	GM_TRY(gm_inputs_spare("--out", state->out, n_operand, operand, err));
	GM_TRY(gm_inputs_read_all(&inputs, n_operand, operand, err));
	if (inputs.sheet[GM_INPUT_RESULTS].n_row == 0)
		status = gm_fail(err, GM_ERR_UNSUPPORTED,
				 "no results: %s: a table is made of sim sweep --csv or emulate --csv", operand[0]);
	else
		status = gm_results_make(&results, &inputs, err);
	if (status == GM_OK)
		status = gm_summary_make(&summary, &results, err);
	if (status == GM_OK)
		status = make_table(&table, state, err);
	if (status == GM_OK)
		status = write_table(&table, state->out ? state->out : "-", err);
	free(table.column);
	free(table.row);
	gm_sheet_free(&summary);
	gm_results_free(&results);
	gm_inputs_free(&inputs);
	return status;
}

const struct gm_command gm_report_table = {
	.name = "table",
	.usage = "[options] RESULTS.csv...",
	.help = "Writes a table of results, for a paper, a web page or the terminal. Best values are marked; where the\n"
		"file has columns NAME_low and NAME_high, a value of NAME is followed by its interval.",
	.example = "report table out.csv --format markdown --columns policy,cache,hit_rate,time_per_token_us --where "
		   "cache_slots=32",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = -1,
	.run = run,
	.option = option,
	.state_bytes = sizeof(struct state),
};
