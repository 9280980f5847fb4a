#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What a path names, whether it is there yet or not. */
struct identity {
	bool exists, shared; /* shared: a device or a pipe, which any number of uses may have */
	dev_t device;
	ino_t inode;
	char *folder;     /* canonical; NULL where even the folder is not there */
	const char *name; /* in the folder */
};

static struct identity identify(const char *path)
{
	struct identity id = {0};
	const char *slash = strrchr(path, '/');
	struct stat st;

	if (stat(path, &st) == 0) {
		id.exists = true;
		id.shared = !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
		id.device = st.st_dev;
		id.inode = st.st_ino;
		return id;
	}
	id.name = slash ? slash + 1 : path;
	if (!slash) {
		id.folder = realpath(".", NULL);
		return id;
	}
	char *folder = strndup(path, slash == path ? 1 : (size_t)(slash - path));

	if (folder)
		id.folder = realpath(folder, NULL);
	free(folder);
	return id;
}

static bool same(const struct identity *a, const struct identity *b)
{
	if (a->shared || b->shared || a->exists != b->exists)
		return false;
	if (a->exists)
		return a->device == b->device && a->inode == b->inode;
	return a->folder && b->folder && strcmp(a->folder, b->folder) == 0 && strcmp(a->name, b->name) == 0;
}

static void release(struct identity *id)
{
	free(id->folder);
}

static int check_pair(const struct gm_file_use *a, const struct gm_file_use *b, struct gm_error *err)
{
	struct identity x = identify(a->path), y = identify(b->path);
	bool clash = same(&x, &y);

	release(&x);
	release(&y);
	if (!clash)
		return GM_OK;
	if (a->is_output && b->is_output)
		return gm_fail(err, GM_ERR_USAGE,
			       "one file for two outputs: %s and %s \"%.80s\": give each a name of its own", a->what,
			       b->what, b->path);
	return gm_fail(err, GM_ERR_USAGE, "an output would overwrite an input: %s \"%.80s\": give the output another name",
		       a->is_output ? a->what : b->what, a->is_output ? a->path : b->path);
}

/* The name that an output has while it is written must not be another's either. */
static int check_part(const struct gm_file_use *out, const struct gm_file_use *other, struct gm_error *err)
{
	char *part = gm_output_part(out->path, err);

	if (!part)
		return GM_ERR_MEMORY;
	struct identity x = identify(out->path), y = identify(part), z = identify(other->path);
	int status = GM_OK;

	if (!x.shared && same(&y, &z)) /* a device or a pipe is written to directly */
		status = gm_fail(
			err, GM_ERR_USAGE,
			"an output would overwrite %s: %s \"%.60s\" is written as \"%.60s\": give the output another "
			"name",
			other->is_output ? "another" : "an input", out->what, out->path, part);
	release(&x);
	release(&y);
	release(&z);
	free(part);
	return status;
}

static bool counts(const struct gm_file_use *use)
{
	return use->path && strcmp(use->path, "-") != 0;
}

int gm_files_check(const struct gm_file_use *use, size_t n, struct gm_error *err)
{
	for (size_t i = 0; i < n; i++) {
		for (size_t j = i + 1; j < n && counts(&use[i]); j++) {
			if (!counts(&use[j]) || !(use[i].is_output || use[j].is_output))
				continue;
			GM_TRY(check_pair(&use[i], &use[j], err));
			if (use[i].is_output)
				GM_TRY(check_part(&use[i], &use[j], err));
			if (use[j].is_output)
				GM_TRY(check_part(&use[j], &use[i], err));
		}
	}
	return GM_OK;
}

int gm_streams_check(const struct gm_file_use *use, size_t n, struct gm_error *err)
{
	const char *taken[2] = {NULL, NULL};

	for (size_t i = 0; i < n; i++) {
		if (!use[i].path || strcmp(use[i].path, "-") != 0)
			continue;
		if (taken[use[i].is_output])
			return gm_fail(err, GM_ERR_USAGE, "two %s: %s and %s are \"-\": give one a name",
				       use[i].is_output ? "outputs on standard output" : "inputs on standard input",
				       taken[use[i].is_output], use[i].what);
		taken[use[i].is_output] = use[i].what;
	}
	return GM_OK;
}
