#include "base/file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *gm_output_name(const char *path, struct gm_error *err)
{
	char *target = realpath(path, NULL);
	struct stat st;

	if (target && lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
		return target;
	free(target);
	return gm_strdup(path, err);
}

char *gm_output_part(const char *path, struct gm_error *err)
{
	char *name = gm_output_name(path, err);
	size_t size = name ? strlen(name) + sizeof(".part") : 0;
	char *part = name ? gm_alloc(size, 1, err) : NULL;

	if (part)
		snprintf(part, size, "%s.part", name);
	free(name);
	return part;
}

static int open_part(struct gm_output *out, const char *path, struct gm_error *err)
{
	if (!(out->path = gm_output_name(path, err)) || !(out->part = gm_output_part(path, err)))
		return GM_ERR_MEMORY;
	if (!(out->stream = fopen(out->part, "wbe")))
		return gm_fail(err, GM_ERR_IO, "cannot write: %s: %s", out->part, strerror(errno));
	return GM_OK;
}

static void forget(struct gm_output *out)
{
	free(out->path);
	free(out->part);
	*out = (struct gm_output){0};
}

int gm_output_open(struct gm_output *out, const char *path, struct gm_error *err)
{
	struct stat st;
	bool exists = stat(path, &st) == 0;

	*out = (struct gm_output){0};
	if (*path == '\0')
		return gm_fail(err, GM_ERR_USAGE, "empty file name: output: give a name, or - for standard output");
	if (strcmp(path, "-") == 0) {
		out->stream = stdout;
		return GM_OK;
	}
	if (exists && S_ISDIR(st.st_mode))
		return gm_fail(err, GM_ERR_IO, "cannot write: %s: a directory; give a file", path);
	if (exists && !S_ISREG(st.st_mode)) {
		/* Nothing to rename over: a device or a pipe takes the bytes as they come. */
		if (!(out->path = gm_strdup(path, err)))
			return GM_ERR_MEMORY;
		if ((out->stream = fopen(path, "wbe")))
			return GM_OK;
		gm_fail(err, GM_ERR_IO, "cannot write: %s: %s", path, strerror(errno));
		forget(out);
		return GM_ERR_IO;
	}
	int status = open_part(out, path, err);
	if (status < 0)
		forget(out);
	return status;
}

int gm_output_commit(struct gm_output *out, struct gm_error *err)
{
	const char *name = out->path ? out->path : "standard output";
	int status = GM_OK;

	errno = 0;
	bool failed = fflush(out->stream) != 0 || ferror(out->stream);
	int reason = errno;
	if (out->path && fclose(out->stream) != 0 && !failed) {
		failed = true;
		reason = errno;
	}
	out->stream = NULL;
	if (failed)
		status =
			gm_fail(err, GM_ERR_IO, "cannot write: %s: %s", name, reason ? strerror(reason) : "a write failed");
	else if (out->part && rename(out->part, out->path) != 0)
		status = gm_fail(err, GM_ERR_IO, "cannot rename: %s to %s: %s", out->part, out->path, strerror(errno));
	if (status < 0 && out->part)
		unlink(out->part);
	forget(out);
	return status;
}

void gm_output_discard(struct gm_output *out)
{
	if (!out->stream)
		return;
	if (out->path)
		fclose(out->stream);
	if (out->part)
		unlink(out->part);
	forget(out);
}

static FILE *open_input(const char *path, const char *name, struct gm_error *err)
{
	if (strcmp(path, "-") == 0)
		return stdin;
	FILE *stream = fopen(path, "rbe");
	if (!stream)
		gm_fail(err, GM_ERR_IO, "cannot read: %s: %s", name, strerror(errno));
	return stream;
}

/* Reads on to the end, at most max bytes: the size is not trusted to stat, so that pipes work. */
static char *read_all(FILE *stream, const char *name, size_t max, size_t *size, struct gm_error *err)
{
	size_t room = max < 65536 ? max + 1 : 65536, n = 0; /* one more than max: to see that there is more */
	char *text = gm_alloc(room + 1, 1, err);

	while (text) {
		n += fread(text + n, 1, room - n, stream);
		if (ferror(stream) || n < room || n > max)
			break;
		room = room <= max / 2 ? room * 2 : max + 1;
		char *larger = gm_realloc(text, room + 1, 1, err);
		if (!larger)
			free(text);
		text = larger;
	}
	if (!text)
		return NULL;
	if (ferror(stream) || n > max) {
		if (ferror(stream))
			gm_fail(err, GM_ERR_IO, "cannot read: %s: %s", name, strerror(errno));
		else
			gm_fail(err, GM_ERR_FORMAT, "file too large: %s: at most %zu bytes are read", name, max);
		free(text);
		return NULL;
	}
	text[n] = '\0';
	*size = n;
	return text;
}

char *gm_read_file(const char *path, size_t max, size_t *size, struct gm_error *err)
{
	const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
	FILE *stream = open_input(path, name, err);
	size_t n = 0;

	if (!stream)
		return NULL;
	char *text = read_all(stream, name, max < SIZE_MAX - 2 ? max : SIZE_MAX - 2, &n, err);
	if (stream != stdin)
		fclose(stream);
	if (text && size)
		*size = n;
	return text;
}
