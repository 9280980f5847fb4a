#include "base/options_help.h"

#include <stdio.h>
#include <string.h>

#define HELP_COLUMN 30 /* where the help of an option begins; a longer name gets a line of its own */

void gm_command_line(const char *invoked, const struct gm_command *command, char *out, size_t size)
{
	const char *name = command && command->name ? command->name : "";

	snprintf(out, size, "%s%s%s", invoked, *name ? " " : "", name);
}

/* An example is written with the program's own name; shown is the one that it was called by. */
static void print_example(const char *indent, const struct gm_program *program, const char *example, const char *invoked)
{
	size_t n = strlen(program->name);

	if (strncmp(example, program->name, n) == 0 && example[n] == ' ')
		printf("%s%s%s\n", indent, invoked, example + n);
	else
		printf("%s%s\n", indent, example);
}

/* Lines of help after a left column that is `used` wide. */
static void print_lines(const char *help, int used, int column)
{
	if (used + 2 > column) {
		putchar('\n');
		used = 0;
	}
	while (*help) {
		size_t n = strcspn(help, "\n");

		printf("%*s%.*s\n", column - used, "", (int)n, help);
		help += n + (help[n] == '\n');
		used = 0;
	}
}

/* The first sentence or line, without its full stop. */
static int first_sentence(const char *help)
{
	const char *stop = strstr(help, ". ");
	size_t n = strcspn(help, "\n");

	if (stop && (size_t)(stop - help) < n)
		n = (size_t)(stop - help);
	if (n > 0 && help[n - 1] == '.')
		n--;
	return (int)n;
}

void gm_print_program_help(const struct gm_program *program, const char *invoked)
{
	int width = 0;

	for (int i = 0; i < program->n_command; i++) {
		int n = (int)strlen(program->commands[i].name);
		width = n > width ? n : width;
	}
	printf("%s - %s\n\nUsage: %s COMMAND [options] ...\n\nCommands:\n", invoked, program->help, invoked);
	for (int i = 0; i < program->n_command; i++) {
		const struct gm_command *command = &program->commands[i];
		printf("  %-*s  %.*s\n", width, command->name, first_sentence(command->help), command->help);
		printf("  %-*s  ", width, "");
		print_example("$ ", program, command->example, invoked);
	}
	printf("\n%s COMMAND --help lists a command's options, %s --version tells the version.\n", invoked, invoked);
}

static void print_option(const struct gm_option *option)
{
	char left[96];
	int n = option->short_name ? snprintf(left, sizeof(left), "  -%c, --%s", option->short_name, option->name)
				   : snprintf(left, sizeof(left), "      --%s", option->name);

	if (option->arg && n > 0 && n < (int)sizeof(left))
		snprintf(left + n, sizeof(left) - (size_t)n, " %s", option->arg);
	fputs(left, stdout);
	print_lines(option->help, (int)strlen(left), HELP_COLUMN);
}

void gm_print_command_help(const struct gm_program *program, const struct gm_command *command, const char *invoked)
{
	static const struct gm_option always[] = {
		{.name = "help", .help = "print this page"},
		{.name = "version", .help = "print the version"},
	};
	const struct gm_option *option;
	char line[128];

	gm_command_line(invoked, command, line, sizeof(line));
	printf("Usage: %s %s\n\n%s\n\nOptions:\n", line, command->usage, command->help);
	for (size_t i = 0; (option = gm_command_option(command, i)); i++)
		print_option(option);
	for (size_t i = 0; i < sizeof(always) / sizeof(*always); i++)
		print_option(&always[i]);
	printf("\nExample:\n");
	print_example("  ", program, command->example, invoked);
}
