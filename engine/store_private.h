/* What the files of the store share: store.c (parts, start, close), store_cache.c (reads and the host cache), store_file.c (files). */
#ifndef GM_ENGINE_STORE_PRIVATE_H
#define GM_ENGINE_STORE_PRIVATE_H

#include "engine/store.h"
#include "policies/list.h"

#include <pthread.h>

#define GM_EXPERT_STORE_ALIGNMENT 4096u /* of address, offset and size, as O_DIRECT wants them */
#define GM_EXPERT_STORE_N_SPARE 16u     /* blocks of memory that wait for the next read of their size */
#define GM_EXPERT_STORE_NONE UINT32_MAX

struct gm_expert_store_file {
	char *path;
	int fd;               /* -1: not open */
	bool direct;          /* after the start the reader's alone */
	uint64_t end;         /* of the part that ends last */
	const char *end_name; /* and its name */
	char *map;            /* GM_EXPERT_STORE_MMAP; [map_bytes] */
	size_t map_bytes;
};

struct gm_expert_store_place {
	char *name; /* NULL: the layer has no such part */
	size_t expert_bytes;
	uint32_t file;
	uint64_t offset;
	char *memory;       /* GM_EXPERT_STORE_MEMORY: [n_expert * expert_bytes] */
	uint64_t delivered; /* bytes handed in by gm_expert_store_set */
};

struct gm_expert_store_block {
	char *memory; /* as the hook gave it */
	size_t bytes;
};

enum gm_expert_store_state {
	GM_EXPERT_STORE_FREE,
	GM_EXPERT_STORE_QUEUED,
	GM_EXPERT_STORE_READING,
	GM_EXPERT_STORE_THERE,
	GM_EXPERT_STORE_FAILED
};

/* An expert that is in host memory or on its way there. Not free as long as it is cached, held or being read. */
struct gm_expert_store_record {
	enum gm_expert_store_state state;
	uint32_t item; /* layer * n_expert + expert */
	uint32_t n_held;
	bool cached; /* in the host cache */
	struct gm_expert_store_block block;
	const void *from[GM_EXPERT_STORE_MAX_PART];
	double issued_us, end_us;
	struct gm_error err;
	uint32_t next_free;
};

struct gm_expert_store {
	struct gm_expert_store_options options;
	struct gm_expert_store_place *place; /* [n_layer][GM_EXPERT_STORE_MAX_PART] */
	struct gm_expert_store_file *file;
	uint32_t n_file;
	uint64_t *item_bytes; /* [n_layer] of one expert, all parts */
	size_t *block_bytes;  /* [n_layer] memory for it, alignment included */
	pthread_t thread;
	bool started;

	pthread_mutex_t lock; /* for all below */
	pthread_cond_t issued, read_ended;
	bool ending;
	void (*changed)(void *user);
	void *changed_user;
	bool telling; /* `changed` is being called */
	void (*read)(void *user, uint32_t layer, uint32_t expert, double start_us, double end_us);
	void *read_user;
	uint32_t n_record, first_free;
	struct gm_expert_store_record *record; /* [n_record] */
	struct gm_node *queue;                 /* [n_record + 1] records to be read, in the order of issue */
	struct gm_node *lru;                   /* [n_item + 1] cached items by last touch */
	uint32_t *record_of;                   /* [n_item] the cached record of an item */
	struct gm_expert_store_block spare[GM_EXPERT_STORE_N_SPARE];
	uint32_t n_spare;
	uint32_t n_held;
	double disk_free_us;
	struct gm_expert_store_stats stats;
};

static inline struct gm_expert_store_place *gm_expert_store_place(const struct gm_expert_store *store, uint32_t layer,
								  uint32_t part)
{
	return &store->place[(size_t)layer * GM_EXPERT_STORE_MAX_PART + part];
}

static inline size_t gm_expert_store_round_up(size_t bytes)
{
	return (bytes + GM_EXPERT_STORE_ALIGNMENT - 1) / GM_EXPERT_STORE_ALIGNMENT * GM_EXPERT_STORE_ALIGNMENT;
}

/* store.c: memory of the hook; called with the lock held once the thread runs. */
char *gm_expert_store_memory_get(struct gm_expert_store *store, size_t bytes, struct gm_error *err);
void gm_expert_store_memory_put(struct gm_expert_store *store, char *memory, size_t bytes);

/* store_cache.c */
int gm_expert_store_cache_start(struct gm_expert_store *store,
				struct gm_error *err); /* records, lists and the reader's thread */
void gm_expert_store_cache_end(struct gm_expert_store *store);

/* store_file.c. Number of the file with this path, entered if it is new. */
int gm_expert_store_file_add(struct gm_expert_store *store, const char *path, uint32_t *file, struct gm_error *err);
int gm_expert_store_file_open(struct gm_expert_store *store, struct gm_expert_store_file *file, struct gm_error *err);
void gm_expert_store_file_close(struct gm_expert_store_file *file);
/* What a block for one expert of a layer takes. */
size_t gm_expert_store_block_bytes(const struct gm_expert_store *store, uint32_t layer);
/* Reads all parts of a record's expert. The reader's thread, without the lock. */
int gm_expert_store_read_expert(struct gm_expert_store *store, struct gm_expert_store_record *record, struct gm_error *err);

#endif
