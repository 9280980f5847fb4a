/* The log of blocks (see block_log.h). */
#include "recorder/block_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gm_block_log {
	char *path;
	int fd;
	int failure; /* errno of the first line that could not be written, or 0 */
};

struct gm_block_log *gm_block_log_open(const char *path, struct gm_error *err)
{
	struct gm_block_log *log = path ? gm_alloc(1, sizeof(*log), err) : NULL;

	if (!log)
		return NULL;
	log->fd = -1;
	log->path = gm_strdup(path, err);
	if (log->path) {
		log->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
		if (log->fd < 0)
			gm_fail(err, GM_ERR_IO, "cannot be created: %s: %s", path, strerror(errno));
	}
	if (log->fd >= 0)
		return log;
	gm_block_log_close(log, NULL);
	return NULL;
}

void gm_block_log_add(void *user, const struct gm_block_written *block)
{
	struct gm_block_log *log = user;
	char line[160];
	int n;

	if (!log || log->failure)
		return;
	n = snprintf(line, sizeof(line),
		     "%" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %016" PRIx64 "\n",
		     block->index, block->first_token, block->n_token, block->n_row, block->offset, block->bytes,
		     block->hash);
	if (write(log->fd, line, (size_t)n) != n) /* lines are short: a part of one means a full disk */
		log->failure = errno ? errno : ENOSPC;
}

int gm_block_log_close(struct gm_block_log *log, struct gm_error *err)
{
	int status = 0;

	if (!log)
		return 0;
	if (log->failure)
		status = gm_fail(err, GM_ERR_IO, "cannot be written: %s: %s", log->path, strerror(log->failure));
	if (log->fd >= 0)
		close(log->fd);
	free(log->path);
	free(log);
	return status;
}
