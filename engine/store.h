/* Where the experts lie that are in no slot of the device: in host memory, or in the GGUF file itself (docs/semantics.md, R18).
 *
 *   store = gm_expert_store_new(&(struct gm_expert_store_options){.kind = GM_EXPERT_STORE_READ, .n_layer = 48, .n_expert = 128,
 *                                                                 .host_bytes = 8ull << 30}, &err);
 *   for every layer and part:
 *           gm_expert_store_add(store, layer, part, &(struct gm_expert_store_part){.name = "blk.3.ffn_up_exps.weight",
 *                               .expert_bytes = ..., .path = "model.gguf", .offset = ...}, &err);
 *           gm_expert_store_set(store, layer, part, offset, data, bytes, &err);     GM_EXPERT_STORE_MEMORY only
 *   gm_expert_store_start(store, &err);
 *   at T1, for what is fetched or computed on the CPU in request order, then for what is admitted in the background:
 *           gm_expert_store_issue(store, layer, expert, &read, &err);
 *   gm_expert_store_wait(store, read, from, &err); ... from[part] is in host memory ... gm_expert_store_release(store, read);
 *   gm_expert_store_close(store);
 *
 * engine/link.h does the waiting and releasing for copies to the device.
 *
 * Kinds (GM_EXPERT_STORE_...):
 *   MEMORY  all experts in host memory of the `memory` hook; every read is there at once. No thread.
 *   MMAP    the file is mapped; a read brings the expert's pages in. The system's page cache is the host cache. A file that is cut off while
 *           the program runs is found out by the read (Linux 5.14 or later); between that and the copy it ends the program, as with
 *           any mapped file.
 *   READ    reads past the page cache (O_DIRECT; where the file system does not take it, plain reads that drop their pages before
 *           and after: the stats say which) into a host cache of host_bytes, LRU over all layers as R18 says: an issue touches; if
 *           the expert is not there it is read, and the least recently touched leave until it fits; one larger than host_bytes is read
 *           and not kept. An expert counts with its own bytes, alignment left out.
 *
 * Reads are made by one thread, one at a time, in the order of issue. What left the host cache while it was held stays valid until it is released.
 * So host memory is at most host_bytes, what is held, and 16 experts' blocks that wait for the next read of their size; and 8 KiB a part
 * for alignment.
 *
 * Any thread may call issue and what stands below it; new, add, set, start and close are for one thread, with nobody else inside.
 */
#ifndef GM_ENGINE_STORE_H
#define GM_ENGINE_STORE_H

#include "base/error.h"
#include "engine/pace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gm_expert_store;

#define GM_EXPERT_STORE_MAX_PART 4u /* gate, up, down, or gate_up and down, and one to spare */

enum gm_expert_store_kind { GM_EXPERT_STORE_MEMORY, GM_EXPERT_STORE_MMAP, GM_EXPERT_STORE_READ };

/* Host memory, pinned where a device offers it. Both NULL: malloc and free. Called from several threads, not at once; the address needs no
 * alignment beyond malloc's. alloc returns NULL when there is none. */
struct gm_host_memory {
	void *(*alloc)(void *user, size_t bytes);
	void (*free)(void *user, void *memory, size_t bytes);
	void *user;
};

struct gm_expert_store_options {
	enum gm_expert_store_kind kind;
	uint32_t n_layer, n_expert;        /* MoE layers, experts of each */
	uint64_t host_bytes;               /* READ: of the host cache; 0: nothing is kept */
	uint32_t max_held;                 /* reads issued and not released at once; 0: 256 */
	struct gm_throttle throttle;       /* of a read of all parts of an expert; not for MEMORY */
	struct gm_host_memory memory;      /* not for MMAP */
	const struct gm_pace_clock *clock; /* NULL: the real one */
	/* For tests: in place of pread. NULL: pread. */
	ssize_t (*pread)(void *user, int fd, void *to, size_t bytes, off_t offset);
	void *pread_user;
};

/* One tensor that holds a part of all experts of a layer, expert after expert. */
struct gm_expert_store_part {
	const char *name;    /* for messages, such as the tensor's; copied */
	size_t expert_bytes; /* of this part of one expert */
	const char *path;    /* the file that holds it (a split GGUF has several); copied. Not for MEMORY */
	uint64_t offset;     /* of expert 0 in that file */
};

/* NULL on failure: GM_ERR_USAGE (options that make no sense), GM_ERR_MEMORY. */
struct gm_expert_store *gm_expert_store_new(const struct gm_expert_store_options *options, struct gm_error *err);

/* Says what a part of a layer is: part 0 ... GM_EXPERT_STORE_MAX_PART - 1, each once, before the start; layers may have different parts.
 * MEMORY: allocates n_expert * expert_bytes. After a failure the store can only be closed. */
int gm_expert_store_add(struct gm_expert_store *store, uint32_t layer, uint32_t part,
			const struct gm_expert_store_part *desc, struct gm_error *err);

/* Hands in bytes [offset, offset + bytes) of a part's tensor, in any order and each once (MEMORY, between its gm_expert_store_add and the start). */
int gm_expert_store_set(struct gm_expert_store *store, uint32_t layer, uint32_t part, uint64_t offset, const void *data,
			size_t bytes, struct gm_error *err);

/* Checks that every layer has a part and that the bytes are there (handed in; or the files exist and are long enough), and starts the
 * reader's thread. GM_ERR_USAGE, GM_ERR_IO, GM_ERR_FORMAT (a file is shorter than the parts need), GM_ERR_MEMORY. */
int gm_expert_store_start(struct gm_expert_store *store, struct gm_error *err);

/* `changed` is called by the reader's thread after every read, good or bad, with no lock of the store held. One listener; NULL: none, and when
 * this returns the last call has ended. Not from within `changed`. */
void gm_expert_store_listen(struct gm_expert_store *store, void (*changed)(void *user), void *user);

/* `read` hears of every read that went well, and when it began and ended; called by the reader's thread with the store's lock held: must not call
 * the store. Not for MEMORY, where nothing is read. */
void gm_expert_store_watch(struct gm_expert_store *store,
			   void (*read)(void *user, uint32_t layer, uint32_t expert, double start_us, double end_us),
			   void *user);

/* --- reads --- */

/* Asks for an expert, which is held from now on until gm_expert_store_release(*read). Does not wait for the read, whose errors come from
 * gm_expert_store_wait. GM_ERR_MEMORY: max_held are held (not MEMORY). */
int gm_expert_store_issue(struct gm_expert_store *store, uint32_t layer, uint32_t expert, uint32_t *read,
			  struct gm_error *err);

/* Waits for the read, and gives the address of each part (NULL where the layer has no such part). An error names file, offset, and what was
 * expected there: GM_ERR_IO, GM_ERR_FORMAT (the file ends before), GM_ERR_MEMORY. A later issue of that expert tries again.
 * from may be NULL. */
int gm_expert_store_wait(struct gm_expert_store *store, uint32_t read, const void *from[GM_EXPERT_STORE_MAX_PART],
			 struct gm_error *err);

/* The same without waiting: 1: there; 0: not yet; negative: the error. end_us (may be NULL): when the read ended. */
int gm_expert_store_poll(struct gm_expert_store *store, uint32_t read, const void *from[GM_EXPERT_STORE_MAX_PART],
			 double *end_us, struct gm_error *err);

/* The addresses of this read must not be used any more. */
void gm_expert_store_release(struct gm_expert_store *store, uint32_t read);

/* Empties the host cache (R5, --reset-per-sequence). What is held stays valid. */
void gm_expert_store_reset(struct gm_expert_store *store);

struct gm_expert_store_stats {
	uint64_t n_issue;      /* calls of gm_expert_store_issue that succeeded */
	uint64_t n_read;       /* of them, those that needed a read (MMAP: all) */
	uint64_t bytes_read;   /* bytes of the experts that were read, alignment left out */
	uint64_t host_bytes;   /* in the host cache now */
	uint64_t memory_bytes; /* from the `memory` hook now, alignment and held reads included */
	uint64_t memory_peak;  /* and at most */
	double read_us;        /* time spent in reads, the throttle included */
	bool direct;           /* O_DIRECT, in all files */
};
void gm_expert_store_stats(struct gm_expert_store *store, struct gm_expert_store_stats *stats);

/* Waits for the read under way, drops the others, and frees everything; also after an error, NULL is fine. Close a link that uses the store
 * before. */
void gm_expert_store_close(struct gm_expert_store *store);

#endif
