/* Runs tests/cli/cases/ (their form: tests/support/case.h): each case is one test, in an empty folder of its own.
 *
 *	test_cli [PART OF A FILE NAME]     with GM_UPDATE=1: rewrites the expected outputs (`make test-update`)
 *
 * Commands see PATH with the built programs first, GM_ROOT (the source tree), GM_DATA (tests/data), and HOME and TMPDIR (their
 * folder). */
#include "base/version.h"
#include "tests/support/case.h"

#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CPU_SECONDS 300 /* a command that runs on and on is ended */

static char root[PATH_MAX], programs[PATH_MAX]; /* absolute, set once before the first test */

static void die(const char *what)
{
	fprintf(stderr, "test_cli: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* --- the case's folder --- */

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st, (void)flag, (void)ftw;
	return remove(path);
}

static void remove_folder(const char *path)
{
	if (chdir("/") != 0 || nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
		fprintf(stderr, "test_cli: cannot remove %s\n", path);
}

static void read_stream(FILE *stream, struct text *out)
{
	char block[4096];
	size_t n;

	rewind(stream);
	while ((n = fread(block, 1, sizeof(block), stream)) > 0)
		text_add(out, block, n);
	fclose(stream);
}

/* --- one command --- */

static void set(const char *name, const char *value)
{
	if (setenv(name, value, 1) != 0)
		die("setenv");
}

/* In the child: becomes sh with the command line. */
static void become_shell(const char *line, const char *folder, FILE *out, FILE *err)
{
	const struct rlimit limit = {CPU_SECONDS, CPU_SECONDS}, no_core = {0, 0};
	char path[4 * PATH_MAX], data[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s:%s", programs, getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	snprintf(data, sizeof(data), "%s/tests/data", root);
	set("PATH", path);
	set("GM_ROOT", root);
	set("GM_DATA", data);
	set("HOME", folder);
	set("TMPDIR", folder);
	set("LC_ALL", "C");
	setrlimit(RLIMIT_CPU, &limit);
	setrlimit(RLIMIT_CORE, &no_core);
	if (!freopen("/dev/null", "r", stdin) || dup2(fileno(out), 1) < 0 || dup2(fileno(err), 2) < 0)
		_exit(126);
	execl("/bin/sh", "sh", "-c", line, (char *)NULL);
	_exit(127);
}

static int wait_for(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			die("waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void run_command(const char *line, const char *folder, struct text *output)
{
	FILE *out = tmpfile(), *err = tmpfile();
	struct text standard = {0}, error = {0};

	if (!out || !err)
		die("tmpfile");
	fflush(NULL);
	pid_t child = fork();
	if (child < 0)
		die("fork");
	if (child == 0)
		become_shell(line, folder, out, err);
	int status = wait_for(child);
	read_stream(out, &standard);
	read_stream(err, &error);
	struct text *streams[] = {&standard, &error};
	for (int i = 0; i < 2; i++) {
		text_replace(streams[i], folder, "[TMP]");
		text_replace(streams[i], root, "[ROOT]");
		text_replace(streams[i], GM_VERSION, "[VERSION]");
	}
	case_render_output(&standard, &error, status, output);
	text_free(&standard);
	text_free(&error);
}

/* --- one case --- */

static void write_text(const char *path, const struct text *text)
{
	FILE *stream = fopen(path, "w");

	if (!stream || fwrite(text->bytes, 1, text->size, stream) != text->size || fclose(stream) != 0)
		die(path);
}

static void show_difference(const struct text *expected, const struct text *actual)
{
	char folder[] = "/tmp/gatemass-diff-XXXXXX";

	if (!mkdtemp(folder) || chdir(folder) != 0)
		die(folder);
	write_text("expected", expected);
	write_text("actual", actual);
	fflush(NULL);
	if (system("diff -u -L expected -L actual expected actual >&2") < 0)
		die("diff");
	remove_folder(folder);
}

static bool is_built(const char *program)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", programs, program);
	return access(path, X_OK) == 0;
}

/* Runs the commands; their outputs take the place of the expected ones. */
static void run_all(struct test_case *test)
{
	char folder[] = "/tmp/gatemass-case-XXXXXX";

	if (!mkdtemp(folder) || chdir(folder) != 0)
		die(folder);
	for (size_t i = 0; i < test->n_command; i++) {
		text_free(&test->command[i].output);
		run_command(test->command[i].line, folder, &test->command[i].output);
	}
	remove_folder(folder);
}

static void test_one(void **state)
{
	struct test_case *test = *state;
	struct text expected = {0}, actual = {0};

	if (test->needs && !is_built(test->needs))
		skip();
	if (test->n_command == 0)
		fail_msg("no command: == %s: give it a line that starts with \"$ \"", test->name);
	case_render(test, &expected);
	run_all(test);
	case_render(test, &actual);
	bool equal = expected.size == actual.size && memcmp(expected.bytes, actual.bytes, actual.size) == 0;
	if (!equal && !getenv("GM_UPDATE"))
		show_difference(&expected, &actual);
	text_free(&expected);
	text_free(&actual);
	if (!equal && !getenv("GM_UPDATE"))
		fail_msg("not what tests/cli/cases expects; if it should be: make test-update, and review the difference");
}

/* --- all of them --- */

/* "traces-info: the header": the file's name and the case's. */
static char *full_name(const struct case_file *file, size_t i)
{
	const char *start = strrchr(file->path, '/') + 1;
	int n = (int)strcspn(start, ".");
	char *name = NULL;

	if (asprintf(&name, "%.*s: %s", n, start, file->cases[i].name) < 0)
		die("out of memory");
	return name;
}

static int run_file(struct case_file *file)
{
	struct CMUnitTest *tests = calloc(file->n_case + 1, sizeof(*tests));

	if (!tests)
		die("tests");
	for (size_t i = 0; i < file->n_case; i++)
		tests[i] = (struct CMUnitTest){
			.name = full_name(file, i), .test_func = test_one, .initial_state = &file->cases[i]};
	int n_failed = file->n_case ? _cmocka_run_group_tests(file->path, tests, file->n_case, NULL, NULL) : 0;
	for (size_t i = 0; i < file->n_case; i++)
		free((char *)(uintptr_t)tests[i].name);
	free(tests);
	if (getenv("GM_UPDATE") && case_file_write(file) < 0)
		n_failed++;
	return n_failed;
}

static void find_folders(void)
{
	const char *build = getenv("GM_BUILD");

	if (!realpath(".", root) || !realpath(build ? build : "build", programs))
		die("run it from the source tree after make");
	if (strlen(programs) + sizeof("/bin") > sizeof(programs))
		die(programs);
	strcat(programs, "/bin");
}

int main(int argc, char **argv)
{
	glob_t found;
	int n_failed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0); /* cmocka writes failures to stderr: keep them in order */
	find_folders();
	if (glob("tests/cli/cases/*.case", 0, NULL, &found) != 0)
		die("tests/cli/cases");
	for (size_t i = 0; i < found.gl_pathc; i++) {
		char path[2 * PATH_MAX];
		if (argc > 1 && !strstr(found.gl_pathv[i], argv[1]))
			continue;
		snprintf(path, sizeof(path), "%s/%s", root, found.gl_pathv[i]); /* tests change the folder */
		struct case_file *file = case_file_read(path);
		n_failed += file ? run_file(file) : 1;
		case_file_free(file);
	}
	globfree(&found);
	return n_failed > 0;
}
