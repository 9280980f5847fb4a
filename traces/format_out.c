#include "traces/format_out.h"

#include "base/file.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a file holds at least one block behind a header: something that a repair could save. */
static bool holds_a_block(const char *path)
{
	uint8_t data[GM_FRAME_BYTES];
	uint64_t offset = GM_PREAMBLE_BYTES;
	struct gm_frame frame;
	bool found = false;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	while (!found && pread(fd, data, sizeof(data), (off_t)offset) == (ssize_t)sizeof(data) &&
	       gm_frame_parse(data, &frame, NULL) == GM_OK) {
		found = frame.type == GM_FRAME_BLCK;
		offset += GM_FRAME_BYTES + frame.length;
	}
	close(fd);
	return found;
}

static int open_part(struct gm_trace_out *out, const char *suffix, bool protect, struct gm_error *err)
{
	size_t size = strlen(out->path) + strlen(suffix) + 1;

	out->part = gm_alloc(size, 1, err);
	if (!out->part)
		return GM_ERR_MEMORY;
	snprintf(out->part, size, "%s%s", out->path, suffix);
	if (protect && holds_a_block(out->part)) {
		int status = gm_fail(err, GM_ERR_IO,
				     "a trace that was cut off stands in the way: %s: save it with `traces verify --repair "
				     "OUT %s`, or remove it",
				     out->part, out->part);
		free(out->part);
		out->part = NULL; /* not ours to remove */
		return status;
	}
	out->fd = open(out->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (out->fd >= 0)
		return GM_OK;
	int status = gm_fail(err, GM_ERR_IO, "cannot be created: %s: %s", out->part, strerror(errno));
	free(out->part);
	out->part = NULL;
	return status;
}

int gm_trace_out_open(struct gm_trace_out *out, const char *path, const char *suffix, bool protect, struct gm_error *err)
{
	struct stat st;

	memset(out, 0, sizeof(*out));
	out->fd = -1;
	bool standard = strcmp(path, "-") == 0;
	out->path = standard ? gm_strdup(path, err) : gm_output_name(path, err);
	if (!out->path)
		return GM_ERR_MEMORY;
	int status = GM_OK;
	if (standard) {
		out->fd = STDOUT_FILENO;
	} else if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		out->fd = open(path, O_WRONLY | O_CLOEXEC);
		if (out->fd < 0)
			status = gm_fail(err, GM_ERR_IO, "cannot be written: %s: %s", path, strerror(errno));
	} else {
		status = open_part(out, suffix, protect, err);
	}
	if (status < 0)
		gm_trace_out_release(out, false);
	return status;
}

static int write_all(struct gm_trace_out *out, const void *data, size_t size, struct gm_error *err)
{
	const uint8_t *from = data;

	if (out->failed)
		return gm_fail(err, GM_ERR_IO, "an earlier write failed: %s: nothing more can be added", out->path);
	while (size) {
		ssize_t n = write(out->fd, from, size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int reason = n < 0 ? errno : ENOSPC;
			out->failed = true;
			if (out->part && out->index.n_block)
				return gm_fail(err, GM_ERR_IO,
					       "cannot be written: %s: byte %llu: %s; the %llu whole blocks before it are "
					       "kept (`traces verify --repair OUT` saves them)",
					       out->part, (unsigned long long)out->offset, strerror(reason),
					       (unsigned long long)out->index.n_block);
			return gm_fail(err, GM_ERR_IO, "cannot be written: %s: byte %llu: %s", out->path,
				       (unsigned long long)out->offset, strerror(reason));
		}
		from += n;
		size -= (size_t)n;
		out->offset += (uint64_t)n;
	}
	return GM_OK;
}

bool gm_trace_out_removed(const struct gm_trace_out *out)
{
	struct stat st;

	return out->part && fstat(out->fd, &st) == 0 && st.st_nlink == 0;
}

/* A file that nobody can find would take all further blocks and keep none: better to stop now. */
static int check_there(struct gm_trace_out *out, struct gm_error *err)
{
	if (out->failed || !gm_trace_out_removed(out))
		return GM_OK;
	out->failed = true;
	return gm_fail(err, GM_ERR_IO, "was removed while it was being written: %s: leave file and folder in place",
		       out->part);
}

static int write_frame(struct gm_trace_out *out, enum gm_frame_type type, const void *payload, size_t size, uint64_t *hash,
		       struct gm_error *err)
{
	uint8_t header[GM_FRAME_BYTES];

	*hash = gm_hash(payload, size);
	gm_frame_write(header, type, size, *hash);
	GM_TRY(write_all(out, header, sizeof(header), err));
	return write_all(out, payload, size, err);
}

int gm_trace_out_head(struct gm_trace_out *out, const char *text, size_t size, struct gm_error *err)
{
	uint8_t preamble[GM_PREAMBLE_BYTES];

	if (size > GM_MAX_HEADER_BYTES)
		return gm_fail(err, GM_ERR_USAGE, "a header of %zu bytes: %s: must be at most %u", size, out->path,
			       GM_MAX_HEADER_BYTES);
	gm_preamble_write(preamble);
	GM_TRY(write_all(out, preamble, sizeof(preamble), err));
	return write_frame(out, GM_FRAME_HEAD, text, size, &out->head_hash, err);
}

int gm_trace_out_sequences(struct gm_trace_out *out, uint32_t end, struct gm_error *err)
{
	struct gm_buffer payload = {0};
	int status = GM_OK;

	while (out->n_sequence_written < end) {
		const struct gm_index_sequence *s = &out->index.sequence[out->n_sequence_written];
		uint64_t hash;
		payload.size = 0;
		GM_TRY_OUT(gm_seqn_add(&payload, out->n_sequence_written, s->id, s->label, err));
		GM_TRY_OUT(write_frame(out, GM_FRAME_SEQN, payload.data, payload.size, &hash, err));
		out->n_sequence_written++;
	}
out:
	gm_buffer_free(&payload);
	return status;
}

int gm_trace_out_block(struct gm_trace_out *out, const uint8_t *frame, size_t size, struct gm_index_block *block,
		       struct gm_error *err)
{
	block->offset = out->offset;
	GM_TRY(check_there(out, err));
	GM_TRY(write_all(out, frame, size, err));
	return gm_index_add_block(&out->index, block, err);
}

/* Closes the descriptor unless it is standard output. */
static int close_fd(struct gm_trace_out *out)
{
	int fd = out->fd;

	out->fd = -1;
	return fd >= 0 && fd != STDOUT_FILENO ? close(fd) : 0;
}

/* Where the file lies by now: its folder may have been moved. */
static void find_file(const struct gm_trace_out *out, char *where, size_t size)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", out->fd);
	n = readlink(link, where, size - 1);
	if (n > 0)
		where[n] = '\0';
	else
		snprintf(where, size, "%s", out->part ? out->part : out->path);
}

int gm_trace_out_finish(struct gm_trace_out *out, struct gm_error *err)
{
	char where[512];
	uint8_t trailer[GM_TRAILER_PAYLOAD];
	struct gm_buffer payload = {0};
	uint64_t hash, index_offset;
	int status;

	GM_TRY_OUT(check_there(out, err));
	GM_TRY_OUT(gm_trace_out_sequences(out, out->index.n_sequence, err));
	GM_TRY_OUT(gm_index_write(&out->index, &payload, err));
	index_offset = out->offset;
	GM_TRY_OUT(write_frame(out, GM_FRAME_INDX, payload.data, payload.size, &hash, err));
	gm_put_u64(trailer, index_offset);
	gm_put_u64(trailer + 8, out->offset + GM_TRAILER_BYTES);
	GM_TRY_OUT(write_frame(out, GM_FRAME_GEND, trailer, sizeof(trailer), &hash, err));
	find_file(out, where, sizeof(where));
	if (close_fd(out) != 0) {
		out->failed = true;
		GM_TRY_OUT(gm_fail(err, GM_ERR_IO, "cannot be written: %s: %s", out->path, strerror(errno)));
	}
	if (out->part && rename(out->part, out->path) != 0) {
		out->failed = true;
		GM_TRY_OUT(gm_fail(err, GM_ERR_IO, "cannot be renamed: to %s: %s; the trace is whole and lies at %s",
				   out->path, strerror(errno), where));
	}
	free(out->part);
	out->part = NULL;
out:
	gm_buffer_free(&payload);
	return status;
}

void gm_trace_out_release(struct gm_trace_out *out, bool keep)
{
	close_fd(out);
	if (out->part && !(keep && out->index.n_block))
		unlink(out->part);
	free(out->part);
	free(out->path);
	gm_index_free(&out->index);
	memset(out, 0, sizeof(*out));
	out->fd = -1;
}
