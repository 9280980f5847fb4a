/* report check: may result files be compared? */
#include "report/commands.h"

#include "report/inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What decides it, of one file. */
struct facts {
	struct gm_inputs inputs;
	const struct gm_sheet *sheet;
	size_t trace_hash, semantics; /* columns */
};

static int read_facts(struct facts *facts, const char *path, struct gm_error *err)
{
	enum gm_input kind;

	GM_TRY(gm_inputs_read(&facts->inputs, path, &kind, err));
	facts->sheet = &facts->inputs.sheet[kind];
	facts->trace_hash = gm_sheet_find(facts->sheet, "trace_hash");
	facts->semantics = gm_sheet_find(facts->sheet, "semantics_version");
	if (facts->trace_hash == GM_NO_COLUMN)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "no column trace_hash: %s is a %s: check the results that it belongs to", path,
			       gm_input_name(kind));
	printf("%s: %s, %zu row%s", path, gm_input_name(kind), facts->sheet->n_row, facts->sheet->n_row == 1 ? "" : "s");
	if (facts->semantics != GM_NO_COLUMN)
		printf(", replay rules %s", gm_sheet_text(facts->sheet, 0, facts->semantics));
	putchar('\n');
	return GM_OK;
}

static bool has_hash(const struct facts *facts, const char *hash)
{
	for (size_t row = 0; row < facts->sheet->n_row; row++)
		if (strcmp(gm_sheet_text(facts->sheet, row, facts->trace_hash), hash) == 0)
			return true;
	return false;
}

/* The first trace of a that b has not, or NULL. */
static const char *missing_trace(const struct facts *a, const struct facts *b)
{
	const char *last = NULL;

	for (size_t row = 0; row < a->sheet->n_row; row++) {
		const char *hash = gm_sheet_text(a->sheet, row, a->trace_hash);

		if (last && strcmp(hash, last) == 0)
			continue;
		if (!has_hash(b, hash))
			return hash;
		last = hash;
	}
	return NULL;
}

/* Prints why b does not compare with a; returns whether it does. */
static bool compare(const struct facts *a, const char *a_path, const struct facts *b, const char *b_path)
{
	const char *mine = gm_sheet_text(a->sheet, 0, a->semantics), *yours = gm_sheet_text(b->sheet, 0, b->semantics);
	const char *only_a = missing_trace(a, b), *only_b = missing_trace(b, a);

	if (a->semantics != GM_NO_COLUMN && b->semantics != GM_NO_COLUMN && strcmp(mine, yours) != 0) {
		printf("not comparable: %s was made by version %s of the replay rules, %s by %s\n", a_path, mine, b_path,
		       yours);
		return false;
	}
	if (only_a)
		printf("not comparable: trace %s is in %s, not in %s\n", only_a, a_path, b_path);
	if (only_b)
		printf("not comparable: trace %s is in %s, not in %s\n", only_b, b_path, a_path);
	return !only_a && !only_b;
}

static int run(int n_operand, char **operand, void *data, struct gm_error *err)
{
	struct facts *facts = gm_alloc((size_t)n_operand, sizeof(*facts), err);
	int status = facts ? GM_OK : GM_ERR_MEMORY;
	bool all = true;

	(void)data;
	for (int i = 0; i < n_operand && status == GM_OK; i++)
		status = read_facts(&facts[i], operand[i], err);
	for (int i = 1; i < n_operand && status == GM_OK; i++)
		all = compare(&facts[0], operand[0], &facts[i], operand[i]) && all;
	if (status == GM_OK && all)
		printf("%s\n", n_operand > 1 ? "comparable: the same traces and the same replay rules"
					     : "whole, and of one version");
	for (int i = 0; facts && i < n_operand; i++)
		gm_inputs_free(&facts[i].inputs);
	free(facts);
	return status == GM_OK && !all ? GM_PARTLY_DONE : status;
}

const struct gm_command gm_report_check = {
	.name = "check",
	.usage = "RESULTS.csv...",
	.help = "Says whether result files may be compared: made of the same traces (by hash) and by the same version of "
		"the\n"
		"replay rules. Exit status 1 if not. A single file is checked for damage.",
	.example = "report check before.csv after.csv",
	.options = NULL,
	.n_table = 0,
	.min_operand = 1,
	.max_operand = -1,
	.run = run,
	.option = NULL,
	.state_bytes = 0,
};
