/* The texts to be recorded: whole files, or a prompt a line. */
#ifndef GM_RECORDER_TEXTS_H
#define GM_RECORDER_TEXTS_H

#include "base/error.h"

#include <stddef.h>

struct gm_text {
	char *text; /* UTF-8, may hold NUL bytes */
	size_t size;
	char *id, *label; /* never NULL */
	char *answer;     /* what a continuation should say, NULL: nothing is expected */
};

struct gm_texts {
	struct gm_text *text;
	size_t n, max;
	char **path; /* [n_path] the files that they came from */
	size_t n_path;
};

/* A file ("-": standard input) as one text; its id is the file's name without directory. label may be NULL. */
int gm_texts_add_file(struct gm_texts *texts, const char *path, const char *label, struct gm_error *err);

/* A file of lines {"text": "...", "label": "...", "id": "...", "answer": "..."}; all but text are optional, other keys are ignored. A
 * text without id gets FILE:LINE. Errors name file and line. */
int gm_texts_add_prompts(struct gm_texts *texts, const char *path, struct gm_error *err);

void gm_texts_free(struct gm_texts *texts);

#endif
