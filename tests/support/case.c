#include "tests/support/case.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *or_die(void *memory)
{
	if (!memory) {
		fputs("out of memory\n", stderr);
		exit(1);
	}
	return memory;
}

/* --- texts --- */

void text_add(struct text *text, const char *bytes, size_t size)
{
	text->bytes = or_die(realloc(text->bytes, text->size + size + 1));
	if (size > 0)
		memcpy(text->bytes + text->size, bytes, size);
	text->size += size;
	text->bytes[text->size] = '\0';
}

void text_add_string(struct text *text, const char *string)
{
	text_add(text, string, strlen(string));
}

void text_free(struct text *text)
{
	free(text->bytes);
	*text = (struct text){0};
}

void text_replace(struct text *text, const char *old, const char *replacement)
{
	struct text out = {0};
	size_t n = strlen(old), at = 0, start = 0;

	while (at + n <= text->size) {
		if (memcmp(text->bytes + at, old, n) != 0) {
			at++;
			continue;
		}
		text_add(&out, text->bytes + start, at - start);
		text_add_string(&out, replacement);
		start = at += n;
	}
	if (start == 0)
		return;
	text_add(&out, text->bytes + start, text->size - start);
	text_free(text);
	*text = out;
}

/* --- writing --- */

static bool starts_with(const char *line, size_t size, const char *mark)
{
	return size >= strlen(mark) && memcmp(line, mark, strlen(mark)) == 0;
}

static bool looks_like_mark(const char *line, size_t size)
{
	static const char *const marks[] = {"$ ", "> ", "! ", "== ", "\\", "[exit ", "[no newline]"};

	for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++)
		if (starts_with(line, size, marks[i]))
			return true;
	return false;
}

static void render_stream(const struct text *stream, const char *prefix, struct text *out)
{
	size_t at = 0;

	while (at < stream->size) {
		const char *line = stream->bytes + at;
		const char *end = memchr(line, '\n', stream->size - at);
		size_t size = end ? (size_t)(end - line) : stream->size - at;
		bool last_and_empty = size == 0 && at + 1 == stream->size;

		text_add(out, prefix, size == 0 && *prefix ? 1 : strlen(prefix)); /* no blank at the end of a line */
		/* Lines of standard error have a mark of their own, so nothing in them can be mistaken. */
		if (*prefix == '\0' && (looks_like_mark(line, size) || last_and_empty))
			text_add_string(out, "\\");
		text_add(out, line, size);
		text_add_string(out, "\n");
		if (!end)
			text_add_string(out, "[no newline]\n");
		at += size + (end != NULL);
	}
}

void case_render_output(const struct text *standard, const struct text *error, int exit_status, struct text *out)
{
	char line[32];

	render_stream(standard, "", out);
	render_stream(error, "! ", out);
	if (exit_status == 0)
		return;
	snprintf(line, sizeof(line), "[exit %d]\n", exit_status);
	text_add_string(out, line);
}

void case_render(const struct test_case *test, struct text *out)
{
	text_add_string(out, "== ");
	text_add_string(out, test->name);
	text_add_string(out, "\n");
	text_add_string(out, test->comment);
	for (size_t i = 0; i < test->n_command; i++) {
		text_add_string(out, test->command[i].shown);
		text_add(out, test->command[i].output.bytes, test->command[i].output.size);
	}
}

int case_file_write(const struct case_file *file)
{
	struct text out = {0};

	text_add_string(&out, file->preamble);
	for (size_t i = 0; i < file->n_case; i++) {
		text_add_string(&out, i > 0 ? "\n" : "");
		case_render(&file->cases[i], &out);
	}
	FILE *stream = fopen(file->path, "w");
	bool good = stream && fwrite(out.bytes, 1, out.size, stream) == out.size;
	if (stream && fclose(stream) != 0)
		good = false;
	text_free(&out);
	if (!good)
		fprintf(stderr, "cannot write: %s: %s\n", file->path, strerror(errno));
	return good ? 0 : -1;
}

/* --- reading --- */

static char *read_file(const char *path)
{
	FILE *stream = fopen(path, "r");
	struct text text = {0};
	char block[4096];
	size_t n;

	if (!stream) {
		fprintf(stderr, "cannot read: %s: %s\n", path, strerror(errno));
		return NULL;
	}
	text_add(&text, "", 0);
	while ((n = fread(block, 1, sizeof(block), stream)) > 0)
		text_add(&text, block, n);
	fclose(stream);
	return text.bytes;
}

static void append(char **to, const char *bytes, size_t size)
{
	struct text text = {*to, *to ? strlen(*to) : 0};

	text_add(&text, bytes, size);
	*to = text.bytes;
}

static struct test_case *add_case(struct case_file *file, const char *name, size_t size)
{
	file->cases = or_die(realloc(file->cases, (file->n_case + 1) * sizeof(*file->cases)));
	struct test_case *test = &file->cases[file->n_case++];
	*test = (struct test_case){0};
	append(&test->name, name, size);
	append(&test->comment, "", 0);
	return test;
}

static void add_command(struct test_case *test)
{
	test->command = or_die(realloc(test->command, (test->n_command + 1) * sizeof(*test->command)));
	test->command[test->n_command++] = (struct case_command){0};
}

/* A line of a case; line[size] is its '\n'. */
static void read_case_line(struct test_case *test, const char *line, size_t size)
{
	struct case_command *command = test->n_command ? &test->command[test->n_command - 1] : NULL;
	static const char needs[] = "[needs ";
	size_t n_mark = sizeof(needs) - 1;

	if (starts_with(line, size, "$ ")) {
		add_command(test);
		command = &test->command[test->n_command - 1];
		append(&command->line, line + 2, size - 2);
		append(&command->shown, line, size + 1);
	} else if (command && command->output.size == 0 && starts_with(line, size, "> ")) {
		append(&command->line, "\n", 1);
		append(&command->line, line + 2, size - 2);
		append(&command->shown, line, size + 1);
	} else if (command) {
		text_add(&command->output, line, size + 1);
	} else {
		if (starts_with(line, size, needs) && line[size - 1] == ']')
			append(&test->needs, line + n_mark, size - n_mark - 1);
		append(&test->comment, line, size + 1);
	}
}

/* Empty lines at the end of a case only set it apart from the next. */
static void drop_empty_end(struct test_case *test)
{
	if (test->n_command == 0)
		return;
	struct text *output = &test->command[test->n_command - 1].output;
	while (output->size > 0 && output->bytes[output->size - 1] == '\n' &&
	       (output->size == 1 || output->bytes[output->size - 2] == '\n'))
		output->bytes[--output->size] = '\0';
}

struct case_file *case_file_read(const char *path)
{
	char *text = read_file(path);
	struct test_case *test = NULL;

	if (!text)
		return NULL;
	struct case_file *file = or_die(calloc(1, sizeof(*file)));
	append(&file->path, path, strlen(path));
	append(&file->preamble, "", 0);
	size_t size = strlen(text);
	if (size > 0 && text[size - 1] != '\n')
		append(&text, "\n", 1);
	for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		size_t n = (size_t)(end - line);
		if (starts_with(line, n, "== ")) {
			if (test)
				drop_empty_end(test);
			test = add_case(file, line + 3, n - 3);
		} else if (test) {
			read_case_line(test, line, n);
		} else {
			append(&file->preamble, line, n + 1);
		}
	}
	if (test)
		drop_empty_end(test);
	free(text);
	return file;
}

void case_file_free(struct case_file *file)
{
	if (!file)
		return;
	for (size_t i = 0; i < file->n_case; i++) {
		struct test_case *test = &file->cases[i];
		for (size_t j = 0; j < test->n_command; j++) {
			free(test->command[j].line);
			free(test->command[j].shown);
			text_free(&test->command[j].output);
		}
		free(test->command);
		free(test->name);
		free(test->comment);
		free(test->needs);
	}
	free(file->cases);
	free(file->path);
	free(file->preamble);
	free(file);
}
