/* Reads from disk past the page cache, one at a time, at the sizes of experts (see probe.h). */
#include "base/progress.h"
#include "recorder/probe/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define ALIGNMENT 4096u /* of address, offset and size, as O_DIRECT wants them */
#define SEQUENTIAL_BYTES ((uint64_t)256 << 20)
#define TMPFS 0x01021994L /* linux/magic.h */
#define RAMFS 0x858458f6L

struct source {
	int fd;
	char path[4096];
	bool made; /* to be removed */
	bool direct;
	uint64_t bytes;
	char *buffer; /* of the largest size */
	uint64_t random;
};

static int fail_io(const char *what, const char *path, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_IO, "%s: %.160s: %s", what, path, strerror(errno));
}

/* --- the file --- */

/* Random bytes: a disk or file system that compresses must not be faster for them. */
static int fill(int fd, uint64_t bytes, char *buffer, size_t size, const char *path, struct gm_error *err)
{
	uint64_t random = 1;

	for (uint64_t done = 0; done < bytes;) {
		size_t left = bytes - done < size ? (size_t)(bytes - done) : size;
		ssize_t n;

		for (size_t i = 0; i + 8 <= left; i += 8) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			memcpy(buffer + i, &random, 8);
		}
		n = write(fd, buffer, left);
		if (n <= 0)
			return fail_io("cannot write a file to read", path, err);
		done += (uint64_t)n;
	}
	return fsync(fd) == 0 ? 0 : fail_io("cannot write a file to read", path, err);
}

static int make_file(struct source *s, const struct gm_probe_options *options, size_t size, struct gm_error *err)
{
	int fd, status;

	if ((size_t)snprintf(s->path, sizeof(s->path), "%s/gatemass-probe-XXXXXX", options->disk) >= sizeof(s->path))
		return gm_fail(err, GM_ERR_USAGE, "path too long: --disk");
	fd = mkstemp(s->path);
	if (fd < 0)
		return fail_io("cannot make a file to read", s->path, err);
	s->made = true;
	status = fill(fd, options->disk_bytes, s->buffer, size, s->path, err);
	close(fd);
	return status;
}

static int check_place(const struct source *s, const char *given, struct gm_error *err)
{
	struct statfs fs;

	if (fstatfs(s->fd, &fs) == 0 && ((unsigned long)fs.f_type == TMPFS || (unsigned long)fs.f_type == RAMFS))
		return gm_fail(err, GM_ERR_UNSUPPORTED, "in memory, not on a disk: %.160s: give another --disk", given);
	return 0;
}

static int open_source(struct source *s, const struct gm_probe_options *options, size_t size, struct gm_error *err)
{
	struct stat status;

	if (stat(options->disk, &status) < 0)
		return fail_io("cannot read", options->disk, err);
	if (S_ISDIR(status.st_mode))
		GM_TRY(make_file(s, options, size, err));
	else
		snprintf(s->path, sizeof(s->path), "%s", options->disk);
	s->fd = open(s->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	s->direct = s->fd >= 0;
	if (s->fd < 0)
		s->fd = open(s->path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0 || fstat(s->fd, &status) < 0)
		return fail_io("cannot read", s->path, err);
	GM_TRY(check_place(s, options->disk, err));
	s->bytes = (uint64_t)status.st_size / ALIGNMENT * ALIGNMENT;
	if (s->bytes < 2 * size)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "%llu bytes are too few to read %zu at random: %.160s: give a larger file",
			       (unsigned long long)status.st_size, size, options->disk);
	return 0;
}

static void close_source(struct source *s)
{
	if (s->fd >= 0)
		close(s->fd);
	if (s->made)
		unlink(s->path);
	free(s->buffer);
}

/* --- reading --- */

/* µs of one read, or a negative status. */
static double time_read(struct source *s, uint64_t offset, size_t size, struct gm_error *err)
{
	double started;

	if (!s->direct)
		posix_fadvise(s->fd, 0, 0, POSIX_FADV_DONTNEED);
	started = gm_clock_s();
	for (size_t done = 0; done < size;) {
		ssize_t n = pread(s->fd, s->buffer + done, size - done, (off_t)(offset + done));

		if (n < 0 && errno == EINVAL && s->direct) { /* opened, but the file system does not do it after all */
			int fd = open(s->path, O_RDONLY | O_CLOEXEC);

			if (fd < 0)
				return fail_io("cannot read", s->path, err);
			close(s->fd);
			s->fd = fd;
			s->direct = false;
			return time_read(s, offset, size, err);
		}
		if (n <= 0)
			return fail_io("cannot read", s->path, err);
		done += (size_t)n;
	}
	return (gm_clock_s() - started) * 1e6;
}

static uint64_t random_offset(struct source *s, size_t size)
{
	s->random = s->random * 6364136223846793005u + 1442695040888963407u;
	return (s->random >> 11) % ((s->bytes - size) / ALIGNMENT + 1) * ALIGNMENT;
}

static int read_at_random(struct source *s, const struct gm_probe_options *options, struct gm_probe_disk *disk,
			  struct gm_error *err)
{
	double value[GM_PROBE_MAX_REPEAT];

	for (uint32_t i = 0; i < options->n_size; i++) {
		size_t size = options->size[i] / ALIGNMENT * ALIGNMENT;

		for (uint32_t k = 0; k < options->n_repeat; k++) {
			value[k] = time_read(s, random_offset(s, size), size, err);
			if (value[k] < 0)
				return (int)value[k];
		}
		disk->random_us[i] = gm_spread_of(value, options->n_repeat);
	}
	disk->line = gm_line_fit(options->size, disk->random_us, options->n_size);
	return 0;
}

/* The file's beginning again and again would come from the disk's own cache: each run goes on where the last one ended. */
static int read_in_order(struct source *s, const struct gm_probe_options *options, size_t size, struct gm_probe_disk *disk,
			 struct gm_error *err)
{
	uint64_t bytes = SEQUENTIAL_BYTES < s->bytes / 2 ? SEQUENTIAL_BYTES : s->bytes / 2, offset = 0;
	uint32_t n = options->n_repeat < 9 ? options->n_repeat : 9;
	double value[9];

	bytes = bytes / size * size;
	for (uint32_t k = 0; k < n; k++) {
		double spent = 0;

		for (uint64_t done = 0; done < bytes; done += size) {
			double time;

			if (offset + size > s->bytes)
				offset = 0;
			time = time_read(s, offset, size, err);
			if (time < 0)
				return (int)time;
			spent += time;
			offset += size;
		}
		value[k] = (double)bytes * 1e-3 / spent;
	}
	disk->sequential_gb_s = gm_spread_of(value, n);
	return 0;
}

int gm_probe_disk(const struct gm_probe_options *options, struct gm_probe_disk *disk, struct gm_error *err)
{
	size_t size = options->size[options->n_size - 1] / ALIGNMENT * ALIGNMENT;
	struct source s = {.fd = -1, .random = 1};
	int status;

	s.buffer = aligned_alloc(ALIGNMENT, size);
	if (!s.buffer)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory: %zu bytes to read into", size);
	GM_TRY_OUT(open_source(&s, options, size, err));
	GM_TRY_OUT(read_at_random(&s, options, disk, err));
	GM_TRY_OUT(read_in_order(&s, options, size, disk, err));
	disk->direct = s.direct;
	snprintf(disk->file, sizeof(disk->file), "%s%.200s", s.made ? "a file made in " : "", options->disk);
out:
	close_source(&s);
	return status;
}
