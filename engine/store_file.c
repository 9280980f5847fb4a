/* The store's files: found long enough when they are opened, and read an expert at a time by the reader's thread. */
#include "engine/store_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; others answer EINVAL */
#endif

int gm_expert_store_file_add(struct gm_expert_store *store, const char *path, uint32_t *file, struct gm_error *err)
{
	for (*file = 0; *file < store->n_file; ++*file)
		if (strcmp(store->file[*file].path, path) == 0)
			return 0;
	GM_GROW(store->file, (size_t)store->n_file + 1, err);
	store->file[*file] = (struct gm_expert_store_file){.path = gm_strdup(path, err), .fd = -1};
	if (!store->file[*file].path)
		return GM_ERR_MEMORY;
	store->n_file++;
	return 0;
}

/* --- opening --- */

static int fail_short(const struct gm_expert_store_file *file, uint64_t bytes, const char *tensor, uint64_t end,
		      struct gm_error *err)
{
	return gm_fail(err, GM_ERR_FORMAT, "file too short: %.100s: ends at byte %llu: tensor %.60s ends at %llu",
		       file->path, (unsigned long long)bytes, tensor, (unsigned long long)end);
}

static int check_size(const struct gm_expert_store_file *file, const char *tensor, uint64_t end, struct gm_error *err)
{
	struct stat status;

	if (fstat(file->fd, &status) < 0)
		return gm_fail(err, GM_ERR_IO, "cannot read: %.100s: %s", file->path, strerror(errno));
	if ((uint64_t)status.st_size < end)
		return fail_short(file, (uint64_t)status.st_size, tensor, end, err);
	return 0;
}

static int map(struct gm_expert_store_file *file, struct gm_error *err)
{
	void *address = mmap(NULL, (size_t)file->end, PROT_READ, MAP_SHARED, file->fd, 0);

	if (address == MAP_FAILED)
		return gm_fail(err, GM_ERR_IO, "cannot map: %.100s: %llu bytes: %s", file->path,
			       (unsigned long long)file->end, strerror(errno));
	file->map = address;
	file->map_bytes = (size_t)file->end;
	return 0;
}

int gm_expert_store_file_open(struct gm_expert_store *store, struct gm_expert_store_file *file, struct gm_error *err)
{
	if (store->options.kind == GM_EXPERT_STORE_READ)
		file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
	file->direct = file->fd >= 0;
	if (file->fd < 0)
		file->fd = open(file->path, O_RDONLY | O_CLOEXEC);
	if (file->fd < 0)
		return gm_fail(err, GM_ERR_IO, "cannot read: %.100s: %s: it holds tensor %.60s", file->path,
			       strerror(errno), file->end_name);
	GM_TRY(check_size(file, file->end_name, file->end, err));
	return store->options.kind == GM_EXPERT_STORE_MMAP ? map(file, err) : 0;
}

void gm_expert_store_file_close(struct gm_expert_store_file *file)
{
	if (file->map)
		munmap(file->map, file->map_bytes);
	if (file->fd >= 0)
		close(file->fd);
	free(file->path);
}

/* --- reading --- */

/* Bytes [begin, end) of a file that hold one part of an expert, widened to whole pages at the front. */
struct range {
	const struct gm_expert_store_place *place;
	uint32_t expert;
	uint64_t offset, begin, end;
};

static struct range range_of(const struct gm_expert_store_place *place, uint32_t expert)
{
	struct range r = {.place = place, .expert = expert};

	r.offset = place->offset + (uint64_t)expert * place->expert_bytes;
	r.begin = r.offset / GM_EXPERT_STORE_ALIGNMENT * GM_EXPERT_STORE_ALIGNMENT;
	r.end = r.offset + place->expert_bytes;
	return r;
}

size_t gm_expert_store_block_bytes(const struct gm_expert_store *store, uint32_t layer)
{
	size_t bytes = GM_EXPERT_STORE_ALIGNMENT; /* the hook's memory may begin anywhere */

	/* an expert may lie across one page more than it fills */
	for (uint32_t p = 0; p < GM_EXPERT_STORE_MAX_PART; p++)
		if (gm_expert_store_place(store, layer, p)->name)
			bytes += gm_expert_store_round_up(gm_expert_store_place(store, layer, p)->expert_bytes) +
				 GM_EXPERT_STORE_ALIGNMENT;
	return bytes;
}

static int fail_read(const struct gm_expert_store_file *file, const struct range *r, uint64_t offset, int reason,
		     struct gm_error *err)
{
	return gm_fail(err, GM_ERR_IO, "cannot read: %.90s: byte %llu: %s: expert %u of %.50s goes to %llu", file->path,
		       (unsigned long long)offset, strerror(reason), r->expert, r->place->name, (unsigned long long)r->end);
}

static int fail_end(const struct gm_expert_store_file *file, const struct range *r, uint64_t offset, struct gm_error *err)
{
	return gm_fail(err, GM_ERR_FORMAT,
		       "file too short: %.90s: ends at byte %llu: expert %u of %.50s goes from %llu to %llu", file->path,
		       (unsigned long long)offset, r->expert, r->place->name, (unsigned long long)r->offset,
		       (unsigned long long)r->end);
}

/* Pages that are in the page cache would make the disk look fast, and take memory that host_bytes does not count. */
static void drop_pages(const struct gm_expert_store_file *file, const struct range *r)
{
	if (!file->direct)
		posix_fadvise(file->fd, (off_t)r->begin, (off_t)gm_expert_store_round_up((size_t)(r->end - r->begin)),
			      POSIX_FADV_DONTNEED);
}

static bool leave_direct(struct gm_expert_store_file *file)
{
	int flags = fcntl(file->fd, F_GETFL);

	file->direct = false;
	return flags >= 0 && fcntl(file->fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

/* to: on a page; takes the range in whole pages. */
static int read_range(struct gm_expert_store *store, struct gm_expert_store_file *file, const struct range *r, char *to,
		      struct gm_error *err)
{
	size_t need = (size_t)(r->end - r->begin), size = gm_expert_store_round_up(need);
	size_t done = 0;

	while (done < need) {
		ssize_t n = store->options.pread(store->options.pread_user, file->fd, to + done, size - done,
						 (off_t)(r->begin + done));
		size_t next = n > 0 ? done + (size_t)n : done;

		if (n < 0 && errno == EINTR)
			continue;
		/* opened for it, but the file system does not do it after all */
		if (n < 0 && errno == EINVAL && file->direct && leave_direct(file))
			continue;
		if (n < 0)
			return fail_read(file, r, r->begin + done, errno, err);
		/* a direct read goes on at a page; one that ends within its first page is at the file's end */
		if (next < need && file->direct)
			next = next / GM_EXPERT_STORE_ALIGNMENT * GM_EXPERT_STORE_ALIGNMENT;
		if (next == done)
			return fail_end(file, r, r->begin + done + (size_t)n, err);
		done = next;
	}
	return 0;
}

static int read_part(struct gm_expert_store *store, struct gm_expert_store_file *file, const struct range *r, char *to,
		     struct gm_error *err)
{
	drop_pages(file, r);
	GM_TRY(read_range(store, file, r, to, err));
	drop_pages(file, r);
	return 0;
}

/* Brings the pages in, and finds out that they cannot be had before a copy dies of it (SIGBUS). */
static int populate(const struct gm_expert_store_file *file, const struct range *r, struct gm_error *err)
{
	int failed;

	do
		failed = madvise(file->map + r->begin, (size_t)(r->end - r->begin), MADV_POPULATE_READ);
	while (failed && (errno == EAGAIN || errno == EINTR));
	/* an old kernel: they come in when they are copied */
	if (!failed || errno == EINVAL)
		return check_size(file, r->place->name, r->end, err);
	int reason = errno;

	GM_TRY(check_size(file, r->place->name, r->end, err));
	return fail_read(file, r, r->offset, reason, err);
}

int gm_expert_store_read_expert(struct gm_expert_store *store, struct gm_expert_store_record *record, struct gm_error *err)
{
	uint32_t layer = record->item / store->options.n_expert, expert = record->item % store->options.n_expert;
	char *to = NULL;

	if (record->block.memory)
		to = record->block.memory +
		     (GM_EXPERT_STORE_ALIGNMENT - (uintptr_t)record->block.memory % GM_EXPERT_STORE_ALIGNMENT);
	for (uint32_t p = 0; p < GM_EXPERT_STORE_MAX_PART; p++) {
		const struct gm_expert_store_place *place = gm_expert_store_place(store, layer, p);
		struct range r = range_of(place, expert);

		record->from[p] = NULL;
		if (!place->name)
			continue;
		struct gm_expert_store_file *file = &store->file[place->file];

		if (store->options.kind == GM_EXPERT_STORE_MMAP) {
			GM_TRY(populate(file, &r, err));
			record->from[p] = file->map + r.offset;
			continue;
		}
		GM_TRY(read_part(store, file, &r, to, err));
		record->from[p] = to + (r.offset - r.begin);
		to += gm_expert_store_round_up((size_t)(r.end - r.begin));
	}
	return 0;
}
