#include "engine/store_private.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_HELD 256u

/* --- memory of the hook --- */

static void *plain_alloc(void *user, size_t bytes)
{
	(void)user;
	return malloc(bytes);
}

static void plain_free(void *user, void *memory, size_t bytes)
{
	(void)user;
	(void)bytes;
	free(memory);
}

char *gm_expert_store_memory_get(struct gm_expert_store *store, size_t bytes, struct gm_error *err)
{
	char *memory = store->options.memory.alloc(store->options.memory.user, bytes);

	if (!memory) {
		gm_fail(err, GM_ERR_MEMORY, "no host memory for experts: %zu bytes, beside %llu: keep fewer in memory",
			bytes, (unsigned long long)store->stats.memory_bytes);
		return NULL;
	}
	store->stats.memory_bytes += bytes;
	if (store->stats.memory_peak < store->stats.memory_bytes)
		store->stats.memory_peak = store->stats.memory_bytes;
	return memory;
}

void gm_expert_store_memory_put(struct gm_expert_store *store, char *memory, size_t bytes)
{
	store->options.memory.free(store->options.memory.user, memory, bytes);
	store->stats.memory_bytes -= bytes;
}

static ssize_t plain_pread(void *user, int fd, void *to, size_t bytes, off_t offset)
{
	(void)user;
	return pread(fd, to, bytes, offset);
}

/* --- parts --- */

static int check_options(struct gm_expert_store_options *o, struct gm_error *err)
{
	if (o->n_layer == 0 || o->n_expert == 0 || (uint64_t)o->n_layer * o->n_expert >= GM_EXPERT_STORE_NONE)
		return gm_fail(err, GM_ERR_USAGE, "%u layers of %u experts: expert store: must be at least one of each",
			       o->n_layer, o->n_expert);
	if (!o->memory.alloc != !o->memory.free)
		return gm_fail(err, GM_ERR_USAGE, "half a memory hook: expert store: must have both alloc and free");
	if (o->host_bytes > 0 && o->kind != GM_EXPERT_STORE_READ)
		return gm_fail(err, GM_ERR_USAGE,
			       "a host cache without reads: expert store: only GM_EXPERT_STORE_READ has one");
	if (gm_throttle_is_on(&o->throttle) && o->kind == GM_EXPERT_STORE_MEMORY)
		return gm_fail(err, GM_ERR_USAGE, "a throttle without reads: expert store: experts in memory need none");
	if (o->max_held == 0)
		o->max_held = MAX_HELD;
	if (!o->memory.alloc) {
		o->memory.alloc = plain_alloc;
		o->memory.free = plain_free;
	}
	if (!o->pread)
		o->pread = plain_pread;
	if (!o->clock)
		o->clock = &gm_pace_real;
	return 0;
}

struct gm_expert_store *gm_expert_store_new(const struct gm_expert_store_options *options, struct gm_error *err)
{
	struct gm_expert_store *store = gm_alloc(1, sizeof(*store), err);

	if (!store)
		return NULL;
	store->options = *options;
	pthread_mutex_init(&store->lock, NULL);
	pthread_cond_init(&store->issued, NULL);
	pthread_cond_init(&store->read_ended, NULL);
	if (check_options(&store->options, err) < 0 ||
	    !(store->place = gm_alloc((size_t)options->n_layer * GM_EXPERT_STORE_MAX_PART, sizeof(*store->place), err)) ||
	    !(store->item_bytes = gm_alloc(options->n_layer, sizeof(*store->item_bytes), err)) ||
	    !(store->block_bytes = gm_alloc(options->n_layer, sizeof(*store->block_bytes), err))) {
		gm_expert_store_close(store);
		return NULL;
	}
	return store;
}

static int check_part(const struct gm_expert_store *store, uint32_t layer, uint32_t part, struct gm_error *err)
{
	if (store->started)
		return gm_fail(err, GM_ERR_USAGE, "started already: expert store: layer %u must be filled before", layer);
	if (layer >= store->options.n_layer || part >= GM_EXPERT_STORE_MAX_PART)
		return gm_fail(err, GM_ERR_USAGE,
			       "no such place: expert store: part %u of layer %u: must be below %u and %u", part, layer,
			       GM_EXPERT_STORE_MAX_PART, store->options.n_layer);
	return 0;
}

/* Bytes of a part's whole tensor. */
static uint64_t tensor_bytes(const struct gm_expert_store *store, const struct gm_expert_store_place *place)
{
	return (uint64_t)store->options.n_expert * place->expert_bytes;
}

static int place_in_file(struct gm_expert_store *store, struct gm_expert_store_place *place,
			 const struct gm_expert_store_part *desc, struct gm_error *err)
{
	struct gm_expert_store_file *file;
	uint64_t end;

	if (!desc->path)
		return gm_fail(err, GM_ERR_USAGE, "no file: tensor %.100s: name the one it stands in", desc->name);
	if (__builtin_add_overflow(desc->offset, tensor_bytes(store, place), &end) || end > INT64_MAX)
		return gm_fail(err, GM_ERR_FORMAT, "offset beyond any file: tensor %.100s: %llu", desc->name,
			       (unsigned long long)desc->offset);
	GM_TRY(gm_expert_store_file_add(store, desc->path, &place->file, err));
	place->offset = desc->offset;
	file = &store->file[place->file];
	if (end > file->end) {
		file->end = end;
		file->end_name = place->name;
	}
	return 0;
}

int gm_expert_store_add(struct gm_expert_store *store, uint32_t layer, uint32_t part,
			const struct gm_expert_store_part *desc, struct gm_error *err)
{
	struct gm_expert_store_place *place;
	size_t bytes;

	GM_TRY(check_part(store, layer, part, err));
	place = gm_expert_store_place(store, layer, part);
	if (place->name)
		return gm_fail(err, GM_ERR_USAGE, "two tensors for one place: %.100s: it is taken by %.100s", desc->name,
			       place->name);
	if (desc->expert_bytes == 0 || __builtin_mul_overflow(desc->expert_bytes, store->options.n_expert, &bytes))
		return gm_fail(err, GM_ERR_USAGE, "no size: tensor %.100s: %zu bytes an expert: must be at least 1",
			       desc->name, desc->expert_bytes);
	if (!(place->name = gm_strdup(desc->name, err)))
		return GM_ERR_MEMORY;
	place->expert_bytes = desc->expert_bytes;
	store->item_bytes[layer] += desc->expert_bytes;
	if (store->options.kind != GM_EXPERT_STORE_MEMORY)
		return place_in_file(store, place, desc, err);
	place->memory = gm_expert_store_memory_get(store, bytes, err);
	return place->memory ? 0 : GM_ERR_MEMORY;
}

int gm_expert_store_set(struct gm_expert_store *store, uint32_t layer, uint32_t part, uint64_t offset, const void *data,
			size_t bytes, struct gm_error *err)
{
	struct gm_expert_store_place *place;
	uint64_t size;

	GM_TRY(check_part(store, layer, part, err));
	place = gm_expert_store_place(store, layer, part);
	if (!place->memory)
		return gm_fail(err, GM_ERR_USAGE, "takes no bytes: expert store: part %u of layer %u", part, layer);
	size = tensor_bytes(store, place);
	if (offset > size || bytes > size - offset)
		return gm_fail(err, GM_ERR_USAGE, "bytes beyond the end: tensor %.100s: %zu at %llu: it has %llu",
			       place->name, bytes, (unsigned long long)offset, (unsigned long long)size);
	memcpy(place->memory + offset, data, bytes);
	place->delivered += bytes;
	return 0;
}

/* --- start and end --- */

static int check_layer(const struct gm_expert_store *store, uint32_t layer, struct gm_error *err)
{
	if (store->item_bytes[layer] == 0)
		return gm_fail(err, GM_ERR_USAGE, "no experts: expert store: layer %u: name their parts", layer);
	for (uint32_t p = 0; p < GM_EXPERT_STORE_MAX_PART && store->options.kind == GM_EXPERT_STORE_MEMORY; p++) {
		const struct gm_expert_store_place *place = gm_expert_store_place(store, layer, p);

		if (place->name && place->delivered < tensor_bytes(store, place))
			return gm_fail(err, GM_ERR_FORMAT, "bytes are missing: tensor %.100s: %llu came of %llu",
				       place->name, (unsigned long long)place->delivered,
				       (unsigned long long)tensor_bytes(store, place));
	}
	return 0;
}

int gm_expert_store_start(struct gm_expert_store *store, struct gm_error *err)
{
	if (store->started)
		return gm_fail(err, GM_ERR_USAGE, "started already: expert store");
	for (uint32_t l = 0; l < store->options.n_layer; l++)
		GM_TRY(check_layer(store, l, err));
	if (store->options.kind == GM_EXPERT_STORE_MEMORY) {
		store->started = true;
		return 0;
	}
	store->stats.direct = store->options.kind == GM_EXPERT_STORE_READ;
	for (uint32_t f = 0; f < store->n_file; f++) {
		GM_TRY(gm_expert_store_file_open(store, &store->file[f], err));
		store->stats.direct = store->stats.direct && store->file[f].direct;
	}
	for (uint32_t l = 0; l < store->options.n_layer; l++)
		store->block_bytes[l] = gm_expert_store_block_bytes(store, l);
	return gm_expert_store_cache_start(store, err);
}

void gm_expert_store_stats(struct gm_expert_store *store, struct gm_expert_store_stats *stats)
{
	pthread_mutex_lock(&store->lock);
	*stats = store->stats;
	pthread_mutex_unlock(&store->lock);
}

static void free_places(struct gm_expert_store *store)
{
	for (size_t i = 0; store->place && i < (size_t)store->options.n_layer * GM_EXPERT_STORE_MAX_PART; i++) {
		struct gm_expert_store_place *place = &store->place[i];

		if (place->memory)
			gm_expert_store_memory_put(store, place->memory, (size_t)tensor_bytes(store, place));
		free(place->name);
	}
	free(store->place);
}

void gm_expert_store_close(struct gm_expert_store *store)
{
	if (!store)
		return;
	gm_expert_store_cache_end(store);
	for (uint32_t f = 0; f < store->n_file; f++)
		gm_expert_store_file_close(&store->file[f]);
	free_places(store);
	free(store->file);
	free(store->item_bytes);
	free(store->block_bytes);
	pthread_cond_destroy(&store->read_ended);
	pthread_cond_destroy(&store->issued);
	pthread_mutex_destroy(&store->lock);
	free(store);
}
