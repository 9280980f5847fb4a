/* Instructions a lookup against those committed in instructions.txt, so that what makes the replay slower fails the build. They are counted by
 * callgrind and do not move with the machine's load; where compiler, libraries and valgrind are those of the committed line, they must agree
 * within 3 %, elsewhere they are reported only. A change that is meant is committed with
 *
 *	sh scripts/bench.sh --instructions > tests/bench/instructions.txt
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COMMITTED "tests/bench/instructions.txt"
#define TOLERANCE 0.03
#define MAX_LINE 32

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

struct table {
	char where[512]; /* how they were counted */
	struct line {
		char name[64];
		double count;
	} line[MAX_LINE];
	size_t n;
};

static void read_table(FILE *in, struct table *table)
{
	char text[512], *tab;

	table->n = 0;
	assert_non_null(fgets(table->where, sizeof(table->where), in));
	assert_int_equal(table->where[0], '#');
	while (fgets(text, sizeof(text), in)) {
		struct line *line = &table->line[table->n++];

		assert_true(table->n <= MAX_LINE);
		tab = strchr(text, '\t');
		assert_non_null(tab);
		snprintf(line->name, sizeof(line->name), "%.*s", (int)(tab - text), text);
		line->count = strtod(tab + 1, NULL);
		assert_true(line->count > 0);
	}
}

static const struct line *find(const struct table *table, const char *name)
{
	for (size_t i = 0; i < table->n; i++)
		if (strcmp(table->line[i].name, name) == 0)
			return &table->line[i];
	return NULL;
}

static int compare(const struct table *is, const struct table *was, int binding)
{
	int n_off = 0;

	print_message("%s", is->where);
	for (size_t i = 0; i < is->n; i++) {
		const struct line *line = &is->line[i], *before = find(was, line->name);
		double change = before ? line->count / before->count - 1 : NAN;
		int off = !(fabs(change) <= TOLERANCE);

		print_message("%-36s %10.2f %10.2f %+6.1f %%%s\n", line->name, before ? before->count : NAN, line->count,
			      100 * change, off && binding ? "  OFF" : "");
		n_off += off;
	}
	return n_off + (is->n != was->n);
}

static void instructions_are_as_committed(void **state)
{
	static struct table was, is;
	char command[4200];
	FILE *in;
	int binding, n_off;

	(void)state;
#ifdef SANITIZED
	skip(); /* valgrind runs no sanitized program */
#endif
	if (system("command -v valgrind >/dev/null 2>&1") != 0) {
		print_message("no valgrind here: nothing is counted\n");
		skip();
	}
	assert_non_null(in = fopen(COMMITTED, "r"));
	read_table(in, &was);
	fclose(in);
	snprintf(command, sizeof(command), "BUILD='%s' sh scripts/bench.sh --instructions",
		 getenv("GM_BUILD") ? getenv("GM_BUILD") : "build");
	assert_non_null(in = popen(command, "r"));
	read_table(in, &is);
	assert_int_equal(pclose(in), 0);
	binding = strcmp(is.where, was.where) == 0;
	n_off = compare(&is, &was, binding);
	if (!binding)
		print_message("another compiler or library than %sreported only\n", was.where + 1);
	else if (n_off)
		fail_msg("%d lines differ by more than %.0f %% from %s", n_off, 100 * TOLERANCE, COMMITTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(instructions_are_as_committed)};

	return cmocka_run_group_tests_name("instructions", tests, NULL, NULL);
}
