/* `traces verify`: checks a trace from end to end; --repair saves what is whole of a damaged or cut-off one. */
#include "base/number.h"
#include "traces/commands.h"
#include "traces/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPAIR = 1, QUIET };

struct state {
	const char *repair;
	bool quiet;
};

static const struct gm_option options[] = {
	{REPAIR, 0, "repair", "OUT", "write all whole blocks to this trace"},
	{QUIET, 'q', "quiet", NULL, "nothing on standard output where all is right"},
	{0, 0, NULL, NULL, NULL},
};

static int take_option(int id, const char *value, void *state, struct gm_error *err)
{
	struct state *s = state;

	(void)err;
	if (id == REPAIR)
		s->repair = value;
	else
		s->quiet = true;
	return GM_OK;
}

static void print_problems(const char *path, const struct gm_trace_problem *problem, uint64_t n)
{
	for (uint64_t i = 0; i < n && i < GM_MAX_PROBLEMS; i++) {
		struct gm_error one = {0};

		gm_trace_problem_fail(&problem[i], path, &one);
		gm_note("%s", one.text);
	}
	if (n > GM_MAX_PROBLEMS)
		gm_note("%" PRIu64 " problems more: %s", n - GM_MAX_PROBLEMS, path);
}

static void print_report(const char *path, const struct gm_verify_report *r)
{
	char bytes[GM_NUMBER_TEXT];

	printf("%s: %s\n", path, r->n_problem ? "damaged" : "good");
	printf("  file       %s, hash %s\n", gm_format_bytes(r->bytes, bytes), r->hash[0] ? r->hash : "not known");
	printf("  index      %s\n", r->has_index ? "there, agrees with the blocks" : "missing or damaged");
	printf("  blocks     %" PRIu64 " whole: checksums, order of tokens, passes and sequences\n", r->n_block);
	printf("  tokens     %" PRIu64 " in %" PRIu32 " sequence%s\n", r->n_token, r->n_sequence, gm_plural(r->n_sequence));
	printf("  rows       %" PRIu64 ": experts, finite logits, ranking, log-sum-exp\n", r->n_row);
}

static int verify(const struct state *s, const char *path, struct gm_error *err)
{
	struct gm_verify_report *report = gm_alloc(1, sizeof(*report), err);
	int status;

	if (!report)
		return GM_ERR_MEMORY;
	status = gm_trace_verify(path, report, err);
	if (report->n_problem > 0) {
		/* All problems are told, one a line: the message only says what to do. */
		print_problems(path, report->problem, report->n_problem);
		*err = (struct gm_error){0};
		if (report->can_save)
			gm_fail(err, status,
				"%" PRIu64 " problem%s: %.100s: traces verify --repair OUT %.80s saves its whole blocks",
				report->n_problem, gm_plural(report->n_problem), path, path);
		else
			gm_fail(err, status, "%" PRIu64 " problem%s: %.100s: nothing in it can be saved", report->n_problem,
				gm_plural(report->n_problem), path);
	}
	if ((status == GM_OK || report->n_problem > 0) && !(s->quiet && status == GM_OK))
		print_report(path, report);
	fflush(stdout);
	free(report);
	return status;
}

static int repair(const struct state *s, const char *path, struct gm_error *err)
{
	struct gm_repair_report *r = gm_alloc(1, sizeof(*r), err);
	char bytes[GM_NUMBER_TEXT];
	int status;

	if (!r)
		return GM_ERR_MEMORY;
	status = gm_trace_repair(path, s->repair, r, err);
	if (status == GM_OK) {
		print_problems(path, r->problem, r->n_problem);
		printf("%s: saved %" PRIu64 " token%s, %" PRIu64 " row%s, %" PRIu64 " block%s, %" PRIu32 " sequence%s\n",
		       s->repair, r->n_token, gm_plural(r->n_token), r->n_row, gm_plural(r->n_row), r->n_block,
		       gm_plural(r->n_block), r->n_sequence, gm_plural(r->n_sequence));
		if (r->n_lost_block > 0 || r->lost_bytes > 0)
			printf("lost: %" PRIu64 " damaged block%s, %s of no whole block\n", r->n_lost_block,
			       gm_plural(r->n_lost_block), gm_format_bytes(r->lost_bytes, bytes));
		else
			printf("lost: nothing%s\n", r->had_index ? "" : " but the index, which is new");
		if (r->n_lost_block > 0) /* a tail that was cut off is what a repair is for */
			status = GM_PARTLY_DONE;
	}
	free(r);
	return status;
}

static int run(int n_operand, char **operand, void *state, struct gm_error *err)
{
	const struct state *s = state;
	bool failed = false;

	if (s->repair && n_operand > 1)
		return gm_fail(err, GM_ERR_USAGE, "one trace at a time: --repair %.60s: give one TRACE", s->repair);
	if (s->repair)
		return repair(s, operand[0], err);
	for (int i = 0; i < n_operand; i++) {
		struct gm_error one = {0};
		int status = verify(s, operand[i], &one);

		if (status < 0 && i == n_operand - 1 && !failed)
			return gm_fail(err, status, "%s", one.text);
		if (status < 0) {
			gm_note("%s", one.text);
			failed = true;
		}
	}
	return failed ? GM_PARTLY_DONE : GM_OK;
}

static const struct gm_option *const tables[] = {options};

const struct gm_command gm_traces_verify = {
	.name = "verify",
	.usage = "[--repair OUT.gmt] TRACE.gmt ...",
	.help = "Check every checksum, block and row of traces.\n"
		"With --repair, save all whole blocks of one that is cut off or damaged, and say what was lost; the exit\n"
		"status is 1 where damaged blocks had to be left out.",
	.example = "traces verify --repair saved.gmt recording.gmt.part",
	.options = tables,
	.n_table = 1,
	.min_operand = 1,
	.max_operand = -1,
	.run = run,
	.option = take_option,
	.state_bytes = sizeof(struct state),
};
