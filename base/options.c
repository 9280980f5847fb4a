#include "base/options.h"

#include "base/options_help.h"
#include "base/version.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Own parsing and not getopt_long: that keeps its place in global variables, prints by itself and does not know of
 * commands. */

/* One call of a program. */
struct call {
	const struct gm_program *program;
	const char *invoked; /* the name it was called by: an installed sim is gatemass-sim */
	const struct gm_command *command;
	void *state;
	char **operand; /* [n_operand], into argv */
	int n_operand;
	bool done; /* --help or --version has been answered */
	struct gm_error err;
};

const struct gm_option *gm_command_option(const struct gm_command *command, size_t i)
{
	for (int t = 0; t < command->n_table; t++)
		for (const struct gm_option *option = command->options[t]; option->name; option++)
			if (i-- == 0)
				return option;
	return NULL;
}

static const struct gm_option *find_long(const struct gm_command *command, const char *name, size_t length)
{
	const struct gm_option *option;

	for (size_t i = 0; (option = gm_command_option(command, i)); i++)
		if (strncmp(option->name, name, length) == 0 && option->name[length] == '\0')
			return option;
	return NULL;
}

static const struct gm_option *find_short(const struct gm_command *command, char name)
{
	const struct gm_option *option;

	for (size_t i = 0; (option = gm_command_option(command, i)); i++)
		if (option->short_name == name)
			return option;
	return NULL;
}

/* --- the nearest known name --- */

/* Insertions, deletions and changes of a letter between two names; names longer than 63 count as far. */
static size_t distance(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b), row[64];

	if (n > 63 || m > 63)
		return 64;
	for (size_t j = 0; j <= m; j++)
		row[j] = j;
	for (size_t i = 1; i <= n; i++) {
		size_t diagonal = row[0];
		row[0] = i;
		for (size_t j = 1; j <= m; j++) {
			size_t change = diagonal + (a[i - 1] != b[j - 1]);
			size_t gap = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
			diagonal = row[j];
			row[j] = change < gap ? change : gap;
		}
	}
	return row[m];
}

struct nearest {
	const char *name; /* NULL: nothing near */
	size_t distance;
};

/* Keeps candidate if it is nearer to text than what stood before. A name that text begins counts as one letter off. */
static void consider(struct nearest *best, const char *text, const char *candidate)
{
	size_t n = strlen(text);
	size_t d = n >= 2 && strncmp(text, candidate, n) == 0 ? 1 : distance(text, candidate);

	if (d > (n < 6 ? 2 : n / 3) || d >= n || (best->name && d >= best->distance))
		return;
	*best = (struct nearest){candidate, d};
}

static int unknown_command(struct call *call, const char *name)
{
	struct nearest best = {0};

	for (int i = 0; i < call->program->n_command; i++)
		consider(&best, name, call->program->commands[i].name);
	if (best.name)
		return gm_fail(&call->err, GM_ERR_USAGE, "unknown command: %.60s: did you mean %s?", name, best.name);
	return gm_fail(&call->err, GM_ERR_USAGE, "unknown command: %.60s: %s --help lists the commands", name,
		       call->invoked);
}

static int unknown_option(struct call *call, const char *text)
{
	char name[64] = "", where[128];
	struct nearest best = {0};
	const struct gm_option *option;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, "="), text);
	if (call->command && text[1] == '-')
		for (size_t i = 0; (option = gm_command_option(call->command, i)); i++)
			consider(&best, name + 2, option->name);
	if (best.name)
		return gm_fail(&call->err, GM_ERR_USAGE, "unknown option: %s: did you mean --%s?", name, best.name);
	gm_command_line(call->invoked, call->command, where, sizeof(where));
	return gm_fail(&call->err, GM_ERR_USAGE, "unknown option: %s: %s --help lists the options", name, where);
}

/* --- parsing --- */

/* --help and --version, known everywhere. True if text was one of them. */
static bool answer(struct call *call, const char *text)
{
	bool short_help = strcmp(text, "-h") == 0 && !(call->command && find_short(call->command, 'h'));

	if (strcmp(text, "--help") == 0 || short_help) {
		if (call->command)
			gm_print_command_help(call->program, call->command, call->invoked);
		else
			gm_print_program_help(call->program, call->invoked);
	} else if (strcmp(text, "--version") == 0) {
		printf("%s (gatemass) %s, replay semantics %d\n", call->invoked, GM_VERSION, GM_SEMANTICS_VERSION);
		if (call->program->detail)
			printf("%s\n", call->program->detail);
	} else {
		return false;
	}
	call->done = true;
	return true;
}

static int take_option(struct call *call, const struct gm_option *option, const char *value)
{
	int status = call->command->option(option->id, value, call->state, &call->err);

	/* A command that fails without a word would leave the user without one. */
	return status < 0 ? gm_fail(&call->err, status, "unusable value: --%s \"%.60s\"", option->name, value ? value : "")
			  : GM_OK;
}

static int missing_value(struct call *call, const struct gm_option *option)
{
	return gm_fail(&call->err, GM_ERR_USAGE, "missing value: --%s: give --%s %s", option->name, option->name,
		       option->arg);
}

/* "--name", "--name=value" or "--name value" at argv[*i]. */
static int parse_long(struct call *call, char **argv, int argc, int *i)
{
	const char *name = argv[*i] + 2;
	size_t length = strcspn(name, "=");
	const struct gm_option *option = find_long(call->command, name, length);
	const char *value = name[length] == '=' ? name + length + 1 : NULL;

	if (!option)
		return unknown_option(call, argv[*i]);
	if (!option->arg && value)
		return gm_fail(&call->err, GM_ERR_USAGE, "a flag takes no value: --%s: write --%s alone", option->name,
			       option->name);
	if (option->arg && !value) {
		if (*i + 1 >= argc)
			return missing_value(call, option);
		value = argv[++*i];
	}
	return take_option(call, option, value);
}

/* "-a", "-abc" (flags together), "-n5" or "-n 5" at argv[*i]. */
static int parse_short(struct call *call, char **argv, int argc, int *i)
{
	for (const char *p = argv[*i] + 1; *p; p++) {
		const struct gm_option *option = find_short(call->command, *p);
		char text[] = {'-', *p, '\0'};

		if (!option)
			return unknown_option(call, text);
		if (!option->arg) {
			GM_TRY(take_option(call, option, NULL));
			continue;
		}
		if (p[1] != '\0')
			return take_option(call, option, p + 1);
		if (*i + 1 >= argc)
			return missing_value(call, option);
		return take_option(call, option, argv[++*i]);
	}
	return GM_OK;
}

static int parse(struct call *call, int argc, char **argv)
{
	bool options = true; /* until "--" */

	for (int i = 0; i < argc; i++) {
		const char *text = argv[i];

		if (!options || text[0] != '-' || text[1] == '\0')
			call->operand[call->n_operand++] = argv[i];
		else if (strcmp(text, "--") == 0)
			options = false;
		else if (answer(call, text))
			return GM_OK;
		else if (text[1] == '-')
			GM_TRY(parse_long(call, argv, argc, &i));
		else
			GM_TRY(parse_short(call, argv, argc, &i));
	}
	return GM_OK;
}

static int check_operands(struct call *call)
{
	const struct gm_command *command = call->command;
	char where[128];

	gm_command_line(call->invoked, command, where, sizeof(where));
	if (call->n_operand < command->min_operand)
		return gm_fail(&call->err, GM_ERR_USAGE, "too few arguments: %s: usage: %s %s", where, where,
			       command->usage);
	if (command->max_operand >= 0 && call->n_operand > command->max_operand)
		return gm_fail(&call->err, GM_ERR_USAGE, "one argument too many: \"%.60s\": usage: %s %s",
			       call->operand[command->max_operand], where, command->usage);
	return GM_OK;
}

/* --- running --- */

static int run_command(struct call *call, int argc, char **argv)
{
	const struct gm_command *command = call->command;
	int status = GM_ERR_MEMORY;

	call->state = gm_alloc(command->state_bytes, 1, &call->err);
	call->operand = gm_alloc((size_t)argc + 1, sizeof(*call->operand), &call->err);
	if (!call->state || !call->operand)
		goto out;
	GM_TRY_OUT(parse(call, argc, argv));
	if (call->done)
		goto out;
	GM_TRY_OUT(check_operands(call));
	status = command->run(call->n_operand, call->operand, call->state, &call->err);
out:
	if (call->state && command->release)
		command->release(call->state);
	free(call->state);
	free(call->operand);
	return status;
}

/* Finds the command, which stands first, and runs it. */
static int dispatch(struct call *call, int argc, char **argv)
{
	const struct gm_program *program = call->program;

	if (program->n_command == 1 && !program->commands[0].name) {
		call->command = &program->commands[0];
		return run_command(call, argc, argv);
	}
	if (argc == 0)
		return gm_fail(&call->err, GM_ERR_USAGE, "no command: %s --help lists the commands", call->invoked);
	if (argv[0][0] == '-')
		return answer(call, argv[0]) ? GM_OK : unknown_option(call, argv[0]);
	for (int i = 0; i < program->n_command; i++)
		if (strcmp(program->commands[i].name, argv[0]) == 0)
			call->command = &program->commands[i];
	return call->command ? run_command(call, argc - 1, argv + 1) : unknown_command(call, argv[0]);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* What printf could not write is found out only here. */
static int flush_output(struct gm_error *err)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return GM_OK;
	return gm_fail(err, GM_ERR_IO, "cannot write: standard output: %s", errno ? strerror(errno) : "a write failed");
}

void gm_note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

int gm_program_main(const struct gm_program *program, int argc, char **argv)
{
	struct call call = {.program = program, .invoked = program->name};

	if (argc > 0 && *base_name(argv[0]) != '\0')
		call.invoked = base_name(argv[0]);
	int status = dispatch(&call, argc > 0 ? argc - 1 : 0, argv + 1);
	int flushed = flush_output(&call.err);
	if (status >= 0)
		status = flushed;
	if (status >= 0)
		return 0;
	if (status != GM_PARTLY_DONE || call.err.code != GM_OK)
		fprintf(stderr, "%s: %s\n", call.invoked, call.err.code ? call.err.text : "failed");
	return status == GM_ERR_USAGE || status == GM_ERR_UNSUPPORTED ? 2 : 1;
}
