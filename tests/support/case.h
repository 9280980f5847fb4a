/* Case files: command lines with their whole expected output, as a terminal would show them.
 *
 *	Text before the first case is a comment.
 *
 *	== name of the case
 *	# why it is here
 *	[needs traces]                 the case is skipped where this program is not built
 *	$ printf 'a,b\n' > x.csv       a command for sh; "> " continues it on the next line
 *	$ traces import x.csv
 *	text on standard output
 *	! text on standard error       all of it after standard output
 *	[exit 2]                       unless it is 0
 *
 * An output line that could be mistaken for one of these marks, and an empty last line, has a '\' before it. The mark
 * [no newline] follows an output whose last line has no end. What differs from run to run is replaced before comparing:
 * the version by [VERSION], the case's own folder by [TMP], the source tree by [ROOT]; anything else by sed in the command.
 */
#ifndef GM_TESTS_SUPPORT_CASE_H
#define GM_TESTS_SUPPORT_CASE_H

#include <stddef.h>

/* A text that grows. Memory running out ends the test program. */
struct text {
	char *bytes; /* NUL-terminated, or NULL while empty */
	size_t size;
};
void text_add(struct text *text, const char *bytes, size_t size);
void text_add_string(struct text *text, const char *string);
void text_free(struct text *text);

struct case_command {
	char *line;         /* for sh, may hold newlines */
	char *shown;        /* as it stands in the file, with "$ " and "> " */
	struct text output; /* as it should stand below, in the file's form */
};

struct test_case {
	char *name;
	char *comment; /* the lines between the name and the first command */
	char *needs;   /* NULL: nothing */
	struct case_command *command;
	size_t n_command;
};

struct case_file {
	char *path;
	char *preamble;
	struct test_case *cases;
	size_t n_case;
};

/* NULL if the file cannot be read or is not of this form (the reason is printed). */
struct case_file *case_file_read(const char *path);
void case_file_free(struct case_file *file);

/* 0, or -1 with the reason printed. */
int case_file_write(const struct case_file *file);

/* The case as it stands in the file. */
void case_render(const struct test_case *test, struct text *out);

/* Appends what a command gave, in the file's form. */
void case_render_output(const struct text *standard, const struct text *error, int exit_status, struct text *out);

/* Replaces every `old` in text. */
void text_replace(struct text *text, const char *old, const char *replacement);

#endif
