/* What the tests of the expert store share: a small model in two files, and hooks for memory and reads. */
#ifndef GM_TESTS_ENGINE_STORE_COMMON_H
#define GM_TESTS_ENGINE_STORE_COMMON_H

#include "engine/store.h"
#include "tests/unit/test_engine_common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_LAYER 3u
#define N_EXPERT 7u
#define N_ITEM (N_LAYER * N_EXPERT)
#define N_PART 3u

/* Layers differ in bytes, and layer 1 has its gate and up in one tensor: part 1 is not there. */
static inline size_t part_bytes(uint32_t layer, uint32_t part)
{
	static const size_t bytes[N_LAYER][N_PART] = {{5000, 5000, 4096}, {9000, 0, 70}, {32, 12288, 1}};

	return bytes[layer][part];
}

static inline uint64_t item_bytes(uint32_t layer)
{
	uint64_t bytes = 0;

	for (uint32_t p = 0; p < N_PART; p++)
		bytes += part_bytes(layer, p);
	return bytes;
}

static inline unsigned char byte_at(uint32_t layer, uint32_t part, uint32_t expert, size_t i)
{
	return (unsigned char)((layer * 7 + part * 31 + expert * 101 + i * (2 * expert + 3)) ^ (i >> 8));
}

/* --- a model in two files --- */

static char folder[] = "/var/tmp/gatemass-store-XXXXXX"; /* rather on a disk than /tmp */
static const char *const file_name[2] = {"model-1.gguf", "model-2.gguf"};
static uint64_t file_bytes[2];

static inline uint32_t file_of(uint32_t layer, uint32_t part)
{
	return (layer + part) % 2;
}

/* Where a tensor begins: 32 bytes, as in GGUF, are all that can be relied on. */
static inline uint64_t offset_of(uint32_t layer, uint32_t part)
{
	uint64_t offset = 96;

	for (uint32_t l = 0; l < N_LAYER; l++) {
		for (uint32_t p = 0; p < N_PART; p++) {
			if (l == layer && p == part)
				return offset;
			if (file_of(l, p) == file_of(layer, part))
				offset += (N_EXPERT * part_bytes(l, p) + 31) / 32 * 32;
		}
	}
	return offset;
}

static inline void write_tensor(int fd, uint32_t layer, uint32_t part)
{
	size_t size = part_bytes(layer, part);
	unsigned char *bytes = malloc(size + 1);

	assert_non_null(bytes);
	for (uint32_t e = 0; e < N_EXPERT; e++) {
		for (size_t i = 0; i < size; i++)
			bytes[i] = byte_at(layer, part, e, i);
		off_t offset = (off_t)(offset_of(layer, part) + e * size);

		assert_int_equal(pwrite(fd, bytes, size, offset), size);
	}
	free(bytes);
}

static inline void write_files(void)
{
	for (uint32_t f = 0; f < 2; f++) {
		int fd = open(file_name[f], O_CREAT | O_TRUNC | O_WRONLY, 0600);
		struct stat status;

		assert_true(fd >= 0);
		for (uint32_t l = 0; l < N_LAYER; l++)
			for (uint32_t p = 0; p < N_PART; p++)
				if (file_of(l, p) == f)
					write_tensor(fd, l, p);
		assert_int_equal(fstat(fd, &status), 0);
		file_bytes[f] = (uint64_t)status.st_size;
		assert_int_equal(fsync(fd), 0);
		close(fd);
	}
}

static inline int enter_folder(void **state)
{
	(void)state;
	if (!mkdtemp(folder) || chdir(folder) != 0)
		return -1;
	return 0;
}

static inline int leave_folder(void **state)
{
	(void)state;
	unlink(file_name[0]);
	unlink(file_name[1]);
	return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1;
}

static inline int begin_files(void **state)
{
	(void)state;
	write_files();
	return 0;
}

/* --- opening --- */

static inline int add_parts(struct gm_expert_store *store, bool in_files, struct gm_error *err)
{
	for (uint32_t l = 0; l < N_LAYER; l++) {
		for (uint32_t p = 0; p < N_PART; p++) {
			char name[32];
			struct gm_expert_store_part part = {.name = name, .expert_bytes = part_bytes(l, p)};

			if (part.expert_bytes == 0)
				continue;
			snprintf(name, sizeof(name), "blk.%u.part%u", l, p);
			if (in_files) {
				part.path = file_name[file_of(l, p)];
				part.offset = offset_of(l, p);
			}
			GM_TRY(gm_expert_store_add(store, l, p, &part, err));
		}
	}
	return 0;
}

static inline struct gm_expert_store *new_store(struct gm_expert_store_options options, struct gm_error *err)
{
	options.n_layer = N_LAYER;
	options.n_expert = N_EXPERT;
	return gm_expert_store_new(&options, err);
}

static inline struct gm_expert_store *open_files(struct gm_expert_store_options options)
{
	struct gm_error err = {0};
	struct gm_expert_store *store = new_store(options, &err);

	if (!store)
		fail_msg("%s", err.text);
	assert_ok(add_parts(store, true, &err), &err);
	assert_ok(gm_expert_store_start(store, &err), &err);
	return store;
}

static inline void check_bytes(const void *const *from, uint32_t layer, uint32_t expert)
{
	for (uint32_t p = 0; p < GM_EXPERT_STORE_MAX_PART; p++) {
		size_t size = p < N_PART ? part_bytes(layer, p) : 0;
		const unsigned char *bytes = from[p];

		assert_int_equal(bytes != NULL, size > 0);
		for (size_t i = 0; i < size; i++)
			if (bytes[i] != byte_at(layer, p, expert, i))
				fail_msg("layer %u, part %u, expert %u: byte %zu is wrong", layer, p, expert, i);
	}
}

static inline uint32_t issue(struct gm_expert_store *store, uint32_t layer, uint32_t expert)
{
	struct gm_error err = {0};
	uint32_t read;

	assert_ok(gm_expert_store_issue(store, layer, expert, &read, &err), &err);
	return read;
}

static inline void wait_and_check(struct gm_expert_store *store, uint32_t read, uint32_t layer, uint32_t expert)
{
	const void *from[GM_EXPERT_STORE_MAX_PART];
	struct gm_error err = {0};

	assert_ok(gm_expert_store_wait(store, read, from, &err), &err);
	check_bytes(from, layer, expert);
}

static inline void check_all(struct gm_expert_store *store)
{
	for (uint32_t l = 0; l < N_LAYER; l++) {
		for (uint32_t e = 0; e < N_EXPERT; e++) {
			uint32_t read = issue(store, l, e);

			wait_and_check(store, read, l, e);
			gm_expert_store_release(store, read);
		}
	}
}

static inline struct gm_expert_store_stats stats_of(struct gm_expert_store *store)
{
	struct gm_expert_store_stats stats;

	gm_expert_store_stats(store, &stats);
	return stats;
}

/* --- hooks --- */

/* A hook that counts, and has no memory from allocation `fail_at` on (0: always has). */
struct counted {
	unsigned n_alloc, n_free, fail_at;
	uint64_t bytes;
};

static inline void *counted_alloc(void *user, size_t bytes)
{
	struct counted *counted = user;

	if (++counted->n_alloc == counted->fail_at)
		return NULL;
	counted->bytes += bytes;
	return malloc(bytes);
}

static inline void counted_free(void *user, void *memory, size_t bytes)
{
	struct counted *counted = user;

	counted->n_free++;
	counted->bytes -= bytes;
	free(memory);
}

static inline struct gm_host_memory memory_of(struct counted *counted)
{
	return (struct gm_host_memory){.alloc = counted_alloc, .free = counted_free, .user = counted};
}

/* In place of pread: short answers, interruptions, errors, and file systems that take no direct reads. */
struct disk {
	struct fixture_random random;
	bool refuse_direct, stutter;
	unsigned n_call, fail_at, n_direct;
};

static inline ssize_t disk_pread(void *user, int fd, void *to, size_t bytes, off_t offset)
{
	struct disk *disk = user;
	bool direct = (fcntl(fd, F_GETFL) & O_DIRECT) != 0;

	disk->n_call++;
	disk->n_direct += direct;
	if (disk->n_call == disk->fail_at || (direct && disk->refuse_direct)) {
		errno = direct && disk->refuse_direct ? EINVAL : EIO;
		return -1;
	}
	if (disk->stutter && random_below(&disk->random, 3) == 0) {
		errno = EINTR;
		return -1;
	}
	if (disk->stutter && bytes > 4096) /* a direct read must stay in whole blocks */
		bytes = direct ? 4096 * (1 + random_below(&disk->random, (uint32_t)(bytes / 4096)))
			       : 1 + random_below(&disk->random, (uint32_t)bytes);
	ssize_t n = pread(fd, to, bytes, offset);

	if (disk->stutter && direct && n > 8192) /* but may end within one */
		n -= random_below(&disk->random, 4096);
	return n;
}

#endif
