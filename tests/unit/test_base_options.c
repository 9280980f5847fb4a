#include "base/options.h"
#include "base/version.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { OPT_CACHE = 1, OPT_QUIET, OPT_NUMBER, OPT_PRELOAD };

/* What one call collected, as a text like "cache=25% quiet | trace". */
struct collected {
	char text[200];
};

static const struct gm_option cache_options[] = {
	{OPT_CACHE, 'c', "cache", "C", "slots a layer\nor a share of the experts"},
	{OPT_PRELOAD, 0, "preload-with-a-very-long-name", "TRACE.gmt", "start warm"},
	{0},
};
static const struct gm_option common_options[] = {
	{OPT_QUIET, 'q', "quiet", NULL, "no progress"},
	{OPT_NUMBER, 'n', "number", "N", "a number"},
	{0},
};
static const struct gm_option *const tables[] = {cache_options, common_options};

static int take(int id, const char *value, void *state, struct gm_error *err)
{
	static const char *const name[] = {"", "cache", "quiet", "number", "preload"};
	struct collected *collected = state;
	size_t n = strlen(collected->text);

	if (id == OPT_NUMBER && strcmp(value, "x") == 0)
		return gm_fail(err, GM_ERR_USAGE, "not a number: --number");
	snprintf(collected->text + n, sizeof(collected->text) - n, "%s%s%s ", name[id], value ? "=" : "",
		 value ? value : "");
	return GM_OK;
}

static int run(int n_operand, char **operand, void *state, struct gm_error *err)
{
	struct collected *collected = state;

	printf("%s|", collected->text);
	for (int i = 0; i < n_operand; i++) {
		if (strcmp(operand[i], "bad-io") == 0)
			return gm_fail(err, GM_ERR_IO, "cannot read: bad-io");
		if (strcmp(operand[i], "bad-rank") == 0)
			return gm_fail(err, GM_ERR_UNSUPPORTED, "no logits: bad-rank");
		if (strcmp(operand[i], "partly") == 0)
			return GM_PARTLY_DONE;
		printf(" %s", operand[i]);
	}
	printf("\n");
	return GM_OK;
}

static const struct gm_command commands[] = {
	{.name = "run",
	 .usage = "[options] TRACE...",
	 .help = "Replays a trace. One row a token.",
	 .example = "sim run --cache 25% t.gmt",
	 .options = tables,
	 .n_table = 2,
	 .min_operand = 1,
	 .max_operand = 2,
	 .run = run,
	 .option = take,
	 .state_bytes = sizeof(struct collected)},
	{.name = "sweep",
	 .usage = "TRACE...",
	 .help = "Replays many",
	 .example = "sim sweep t.gmt",
	 .options = tables + 1,
	 .n_table = 1,
	 .max_operand = -1,
	 .run = run,
	 .option = take,
	 .state_bytes = sizeof(struct collected)},
};
static const struct gm_program sim = {
	.name = "sim", .help = "replays traces", .commands = commands, .n_command = 2, .detail = "zstd 1.5"};

static char *read_back(FILE *stream)
{
	static char text[2][4096];
	static int turn;
	char *out = text[turn++ % 2];

	rewind(stream);
	out[fread(out, 1, sizeof(text[0]) - 1, stream)] = '\0';
	fclose(stream);
	return out;
}

/* Runs `line` (words divided by single spaces) with stdout and stderr caught. */
static void check(const char *line, int exit_status, const char *expected_out, const char *expected_err)
{
	char words[256], *argv[32], *rest = NULL;
	FILE *out = tmpfile(), *err = tmpfile();
	int argc = 0, saved_out, saved_err;

	assert_true(out && err);
	snprintf(words, sizeof(words), "%s", line);
	for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		argv[argc++] = word;
	argv[argc] = NULL;
	fflush(NULL);
	saved_out = dup(1);
	saved_err = dup(2);
	dup2(fileno(out), 1);
	dup2(fileno(err), 2);
	int status = gm_program_main(&sim, argc, argv);
	fflush(NULL);
	dup2(saved_out, 1);
	dup2(saved_err, 2);
	close(saved_out);
	close(saved_err);
	assert_string_equal(read_back(err), expected_err);
	assert_string_equal(read_back(out), expected_out);
	assert_int_equal(status, exit_status);
}

static void test_forms(void **state)
{
	(void)state;
	check("sim run t", 0, "| t\n", "");
	check("sim run --cache 25% t", 0, "cache=25% | t\n", "");
	check("sim run --cache=25% t", 0, "cache=25% | t\n", "");
	check("sim run --cache= t", 0, "cache= | t\n", "");
	check("sim run -c25% t", 0, "cache=25% | t\n", "");
	check("sim run -c 25% t", 0, "cache=25% | t\n", "");
	check("sim run -qqn 5 t", 0, "quiet quiet number=5 | t\n", "");
	check("sim run t --quiet -", 0, "quiet | t -\n", "");
	check("sim run -n 1 -- --quiet -x", 0, "number=1 | --quiet -x\n", "");
	check("sim run --number -5 t", 0, "number=-5 | t\n", "");
	check("sim sweep", 0, "|\n", "");
}

static void test_wrong_usage(void **state)
{
	(void)state;
	check("sim", 2, "", "sim: no command: sim --help lists the commands\n");
	check("sim rum t", 2, "", "sim: unknown command: rum: did you mean run?\n");
	check("sim swep", 2, "", "sim: unknown command: swep: did you mean sweep?\n");
	check("sim dance", 2, "", "sim: unknown command: dance: sim --help lists the commands\n");
	check("sim --quiet run", 2, "", "sim: unknown option: --quiet: sim --help lists the options\n");
	check("sim run --cahce=1 t", 2, "", "sim: unknown option: --cahce: did you mean --cache?\n");
	check("sim run --pre 1 t", 2, "", "sim: unknown option: --pre: did you mean --preload-with-a-very-long-name?\n");
	check("sim run --zzz t", 2, "", "sim: unknown option: --zzz: sim run --help lists the options\n");
	check("sim run -qz t", 2, "", "sim: unknown option: -z: sim run --help lists the options\n");
	check("sim run t --cache", 2, "", "sim: missing value: --cache: give --cache C\n");
	check("sim run t -c", 2, "", "sim: missing value: --cache: give --cache C\n");
	check("sim run --quiet=yes t", 2, "", "sim: a flag takes no value: --quiet: write --quiet alone\n");
	check("sim run --number x t", 2, "", "sim: not a number: --number\n");
	check("sim run", 2, "", "sim: too few arguments: sim run: usage: sim run [options] TRACE...\n");
	check("sim run a b c", 2, "", "sim: one argument too many: \"c\": usage: sim run [options] TRACE...\n");
}

static void test_exit_status(void **state)
{
	(void)state;
	check("sim run bad-io", 1, "|", "sim: cannot read: bad-io\n");
	check("sim run bad-rank", 2, "|", "sim: no logits: bad-rank\n");
	check("sim run partly", 1, "|", "");
}

static void test_help(void **state)
{
	(void)state;
	check("sim --help", 0,
	      "sim - replays traces\n\nUsage: sim COMMAND [options] ...\n\nCommands:\n"
	      "  run    Replays a trace\n         $ sim run --cache 25% t.gmt\n"
	      "  sweep  Replays many\n         $ sim sweep t.gmt\n\n"
	      "sim COMMAND --help lists a command's options, sim --version tells the version.\n",
	      "");
	check("sim run --nubmer --help", 2, "", "sim: unknown option: --nubmer: did you mean --number?\n");
	/* An installed program speaks of itself by the name that it was called by. */
	check("/usr/bin/gatemass-sim run t --help", 0,
	      "Usage: gatemass-sim run [options] TRACE...\n\nReplays a trace. One row a token.\n\nOptions:\n"
	      "  -c, --cache C               slots a layer\n"
	      "                              or a share of the experts\n"
	      "      --preload-with-a-very-long-name TRACE.gmt\n"
	      "                              start warm\n"
	      "  -q, --quiet                 no progress\n"
	      "  -n, --number N              a number\n"
	      "      --help                  print this page\n"
	      "      --version               print the version\n"
	      "\nExample:\n  gatemass-sim run --cache 25% t.gmt\n",
	      "");
	check("sim run --version", 0, "sim (gatemass) " GM_VERSION ", replay semantics 1\nzstd 1.5\n", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_wrong_usage),
		cmocka_unit_test(test_exit_status),
		cmocka_unit_test(test_help),
	};

	return cmocka_run_group_tests_name("base/options", tests, NULL, NULL);
}
