/* Reads the texts to be recorded (see texts.h). */
#include "recorder/texts.h"

#include "base/file.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Token ids are counted in 31 bits, and a text is held in memory. */
#define MAX_BYTES ((size_t)1 << 30)

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* Takes text over. */
static int add(struct gm_texts *texts, char *text, size_t size, const char *id, const char *label, struct gm_error *err)
{
	struct gm_text *added;

	if (texts->n == texts->max) {
		size_t max = texts->max ? 2 * texts->max : 16;
		struct gm_text *grown = gm_realloc(texts->text, max, sizeof(*grown), err);

		if (!grown) {
			free(text);
			return GM_ERR_MEMORY;
		}
		texts->text = grown;
		texts->max = max;
	}
	added = &texts->text[texts->n++];
	*added = (struct gm_text){
		.text = text, .size = size, .id = gm_strdup(id, err), .label = gm_strdup(label ? label : "", err)};
	return added->id && added->label ? 0 : GM_ERR_MEMORY;
}

/* Reads a file, whose name is kept. */
static char *read_file(struct gm_texts *texts, const char *path, size_t *size, struct gm_error *err)
{
	char **grown = gm_realloc(texts->path, texts->n_path + 1, sizeof(*grown), err);

	if (!grown)
		return NULL;
	texts->path = grown;
	if (!(texts->path[texts->n_path] = gm_strdup(path, err)))
		return NULL;
	texts->n_path++;
	return gm_read_file(path, MAX_BYTES, size, err);
}

int gm_texts_add_file(struct gm_texts *texts, const char *path, const char *label, struct gm_error *err)
{
	size_t size;
	char *text = read_file(texts, path, &size, err);

	if (!text)
		return err ? err->code : GM_ERR_IO;
	return add(texts, text, size, strcmp(path, "-") == 0 ? "stdin" : base_name(path), label, err);
}

static int add_prompt(struct gm_texts *texts, const struct gm_json *prompt, const char *fallback_id, struct gm_error *err)
{
	const char *text, *label = "", *id = fallback_id, *answer = NULL;
	bool found;
	char *copy;

	GM_TRY(gm_json_get_string(prompt, "text", &text, NULL, err));
	GM_TRY(gm_json_get_string(prompt, "label", &label, &found, err));
	GM_TRY(gm_json_get_string(prompt, "id", &id, &found, err));
	GM_TRY(gm_json_get_string(prompt, "answer", &answer, &found, err));
	copy = gm_strdup(text, err);
	if (!copy)
		return GM_ERR_MEMORY;
	GM_TRY(add(texts, copy, strlen(copy), id, label, err));
	if (answer && !(texts->text[texts->n - 1].answer = gm_strdup(answer, err)))
		return GM_ERR_MEMORY;
	return 0;
}

static int add_line(struct gm_texts *texts, const char *line, size_t length, const char *path, unsigned number,
		    struct gm_error *err)
{
	char id[160];
	struct gm_json *prompt;
	int status;

	if (strspn(line, " \t\r\n") >= length) /* an empty line */
		return 0;
	snprintf(id, sizeof(id), "%s:%u", base_name(path), number);
	prompt = gm_json_parse(line, length, id, err);
	if (!prompt)
		return err ? err->code : GM_ERR_FORMAT;
	status = add_prompt(texts, prompt, id, err);
	if (status == GM_ERR_FORMAT)
		status = gm_error_at(err, "%s", id);
	gm_json_free(prompt);
	return status;
}

int gm_texts_add_prompts(struct gm_texts *texts, const char *path, struct gm_error *err)
{
	size_t size, at = 0;
	char *file = read_file(texts, path, &size, err);
	unsigned number = 1;
	int status = 0;

	if (!file)
		return err ? err->code : GM_ERR_IO;
	while (at < size && status == 0) {
		const char *end = memchr(file + at, '\n', size - at);
		size_t length = end ? (size_t)(end - file) - at : size - at;

		status = add_line(texts, file + at, length, path, number++, err);
		at += length + 1;
	}
	free(file);
	return status;
}

void gm_texts_free(struct gm_texts *texts)
{
	for (size_t i = 0; i < texts->n; i++) {
		free(texts->text[i].text);
		free(texts->text[i].id);
		free(texts->text[i].label);
		free(texts->text[i].answer);
	}
	for (size_t i = 0; i < texts->n_path; i++)
		free(texts->path[i]);
	free(texts->path);
	free(texts->text);
	memset(texts, 0, sizeof(*texts));
}
