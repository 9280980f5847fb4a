/* Command lines: GNU long options from one table that drives parsing and --help alike. */
#ifndef GM_BASE_OPTIONS_H
#define GM_BASE_OPTIONS_H

#include "base/error.h"

#include <stdbool.h>

/* One option. `id` is what the program switches on (>= 1, unique within a command). */
struct gm_option {
	int id;
	char short_name;  /* 0: none */
	const char *name; /* long name without dashes */
	const char *arg;  /* name of its value in --help, NULL for a flag */
	const char *help; /* one or more lines */
};

/* A command or subcommand of a program. */
struct gm_command {
	const char *name;                       /* "run" */
	const char *usage;                      /* "[options] TRACE": what follows the names */
	const char *help;                       /* a sentence or two */
	const char *example;                    /* one whole command line */
	const struct gm_option *const *options; /* [n_table] tables, each ended by an option with name NULL */
	int n_table;
	int min_operand, max_operand; /* max -1: any number */
	int (*run)(int n_operand, char **operand, void *state, struct gm_error *err);
	int (*option)(int id, const char *value, void *state, struct gm_error *err);
	size_t state_bytes;           /* zeroed before the first option */
	void (*release)(void *state); /* frees what option and run left in state; may be NULL */
};

struct gm_program {
	const char *name; /* "sim" */
	const char *help; /* what it is, a sentence */
	const struct gm_command *commands;
	int n_command;      /* 1 and commands[0].name == NULL: a program without subcommands */
	const char *detail; /* printed by --version after the version (library versions), may be NULL */
};

/* Parses, runs and reports: what main() returns. Handles --help, --version, unknown options (with the nearest known one
 * named), missing values and wrong numbers of operands. A failure is printed to stderr as "program: message"; the exit status
 * is 0, 1 (the work failed) or 2 (GM_ERR_USAGE, GM_ERR_UNSUPPORTED). Options and operands may be mixed; "--" ends options.
 * A command's run may return GM_PARTLY_DONE: exit status 1 without a further message (it has said why). Write errors on standard
 * output count as failures. */
#define GM_PARTLY_DONE (-100)
int gm_program_main(const struct gm_program *program, int argc, char **argv);

/* A line on stderr under the name that the program was called by, as its failures are: "gatemass-sim: text". For what a program has to say
 * and goes on. */
void gm_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
