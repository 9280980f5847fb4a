/* Reads and the host cache (R18): who is cached, who is held, and the thread that reads. */
#include "engine/store_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint32_t n_item(const struct gm_expert_store *store)
{
	return store->options.n_layer * store->options.n_expert;
}

static uint32_t layer_of(const struct gm_expert_store *store, uint32_t item)
{
	return item / store->options.n_expert;
}

/* --- memory and records; all with the lock held --- */

static int take_block(struct gm_expert_store *store, struct gm_expert_store_record *r, struct gm_error *err)
{
	size_t bytes = store->block_bytes[layer_of(store, r->item)];

	if (store->options.kind == GM_EXPERT_STORE_MMAP)
		return 0;
	for (uint32_t i = store->n_spare; i-- > 0;) {
		if (store->spare[i].bytes == bytes) {
			r->block = store->spare[i];
			store->spare[i] = store->spare[--store->n_spare];
			return 0;
		}
	}
	r->block = (struct gm_expert_store_block){.memory = gm_expert_store_memory_get(store, bytes, err), .bytes = bytes};
	return r->block.memory ? 0 : GM_ERR_MEMORY;
}

static void give_block_back(struct gm_expert_store *store, struct gm_expert_store_record *r)
{
	if (!r->block.memory)
		return;
	if (store->n_spare == GM_EXPERT_STORE_N_SPARE) {
		gm_expert_store_memory_put(store, store->spare[0].memory, store->spare[0].bytes);
		store->spare[0] = store->spare[--store->n_spare];
	}
	store->spare[store->n_spare++] = r->block;
	r->block = (struct gm_expert_store_block){0};
}

/* Gives a record back if nothing needs it any more. */
static void let_go(struct gm_expert_store *store, uint32_t record)
{
	struct gm_expert_store_record *r = &store->record[record];

	if (r->cached || r->n_held > 0 || r->state == GM_EXPERT_STORE_READING)
		return;
	if (r->state == GM_EXPERT_STORE_QUEUED)
		gm_list_remove(store->queue, record);
	give_block_back(store, r);
	r->state = GM_EXPERT_STORE_FREE;
	r->next_free = store->first_free;
	store->first_free = record;
}

/* There is always one: see n_record. */
static uint32_t take_record(struct gm_expert_store *store, uint32_t item)
{
	uint32_t record = store->first_free;
	struct gm_expert_store_record *r = &store->record[record];

	store->first_free = r->next_free;
	*r = (struct gm_expert_store_record){.state = GM_EXPERT_STORE_QUEUED, .item = item};
	r->issued_us = store->options.clock->now_us(store->options.clock->user);
	gm_list_add_after(store->queue, store->queue[store->n_record].older, record);
	return record;
}

/* --- the host cache; all with the lock held --- */

static void evict(struct gm_expert_store *store, uint32_t item)
{
	uint32_t record = store->record_of[item];

	gm_list_remove(store->lru, item);
	store->record_of[item] = GM_EXPERT_STORE_NONE;
	store->stats.host_bytes -= store->item_bytes[layer_of(store, item)];
	store->record[record].cached = false;
	let_go(store, record);
}

/* As the newest. One that cannot fit is not kept, but has emptied the cache all the same. */
static void keep(struct gm_expert_store *store, uint32_t record)
{
	uint32_t item = store->record[record].item;
	uint64_t bytes = store->item_bytes[layer_of(store, item)], room = store->options.host_bytes;

	while ((bytes > room || store->stats.host_bytes > room - bytes) && store->stats.host_bytes > 0)
		evict(store, store->lru[n_item(store)].newer);
	if (bytes > room)
		return;
	gm_list_add_after(store->lru, store->lru[n_item(store)].older, item);
	store->record_of[item] = record;
	store->record[record].cached = true;
	store->stats.host_bytes += bytes;
}

static uint32_t touch(struct gm_expert_store *store, uint32_t item)
{
	uint32_t record = store->record_of[item];

	if (record != GM_EXPERT_STORE_NONE) {
		gm_list_remove(store->lru, item);
		gm_list_add_after(store->lru, store->lru[n_item(store)].older, item);
		store->record[record].n_held++;
		return record;
	}
	record = take_record(store, item);
	store->record[record].n_held = 1; /* before anything leaves */
	keep(store, record);
	store->stats.n_read++;
	pthread_cond_signal(&store->issued);
	return record;
}

/* --- the reader's thread --- */

static double later(double a, double b)
{
	return a > b ? a : b;
}

static double now_us(const struct gm_expert_store *store)
{
	return store->options.clock->now_us(store->options.clock->user);
}

/* Returns the time at which the read began. A slow disk is played from the moment at which it would have begun, so that the thread's waking
 * up costs nothing. */
static double read_paced(struct gm_expert_store *store, struct gm_expert_store_record *r, struct gm_error *err)
{
	const struct gm_throttle *throttle = &store->options.throttle;
	double start = now_us(store);

	if (gm_throttle_is_on(throttle))
		start = later(store->disk_free_us, r->issued_us);
	if (gm_expert_store_read_expert(store, r, err) < 0) {
		store->disk_free_us = r->end_us = now_us(store);
		return start;
	}
	r->end_us = now_us(store);
	if (gm_throttle_is_on(throttle)) {
		/* what the throttle meant, not when that was noticed: so that late awakenings do not add up */
		r->end_us = later(r->end_us, start + gm_throttle_us(throttle, store->item_bytes[layer_of(store, r->item)]));
		gm_pace_until(store->options.clock, r->end_us);
	}
	store->disk_free_us = r->end_us;
	return start;
}

/* With the lock held, which is left for the read. */
static void read_next(struct gm_expert_store *store, uint32_t record)
{
	struct gm_expert_store_record *r = &store->record[record];
	struct gm_error err = {0};
	double start = 0;

	gm_list_remove(store->queue, record);
	r->state = GM_EXPERT_STORE_READING;
	if (take_block(store, r, &err) == 0) {
		pthread_mutex_unlock(&store->lock);
		start = read_paced(store, r, &err);
		pthread_mutex_lock(&store->lock);
		store->stats.read_us += r->end_us - start;
	}
	for (uint32_t f = 0; f < store->n_file; f++)
		store->stats.direct = store->stats.direct && store->file[f].direct;
	r->state = err.code ? GM_EXPERT_STORE_FAILED : GM_EXPERT_STORE_THERE;
	if (err.code)
		r->err = err;
	else
		store->stats.bytes_read += store->item_bytes[layer_of(store, r->item)];
	if (!err.code && store->read)
		store->read(store->read_user, layer_of(store, r->item), r->item % store->options.n_expert, start,
			    r->end_us);
	if (err.code && r->cached)
		evict(store, r->item);
	else
		let_go(store, record);
	pthread_cond_broadcast(&store->read_ended);
}

static void tell(struct gm_expert_store *store)
{
	void (*changed)(void *user) = store->changed;
	void *user = store->changed_user;

	if (!changed)
		return;
	store->telling = true;
	pthread_mutex_unlock(&store->lock);
	changed(user);
	pthread_mutex_lock(&store->lock);
	store->telling = false;
	pthread_cond_broadcast(&store->read_ended);
}

static void *read_all(void *user)
{
	struct gm_expert_store *store = user;

	gm_pace_sharpen();
	pthread_mutex_lock(&store->lock);
	while (!store->ending) {
		uint32_t record = store->queue[store->n_record].newer;

		if (record == store->n_record) {
			pthread_cond_wait(&store->issued, &store->lock);
			continue;
		}
		read_next(store, record);
		tell(store);
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

/* --- start and end --- */

/* Cached, held, and one that is being read for nobody. */
static uint32_t count_records(const struct gm_expert_store *store)
{
	uint64_t smallest = UINT64_MAX, n;

	for (uint32_t l = 0; l < store->options.n_layer; l++)
		if (store->item_bytes[l] < smallest)
			smallest = store->item_bytes[l];
	n = store->options.host_bytes / smallest;
	if (n > n_item(store))
		n = n_item(store);
	return (uint32_t)(n + store->options.max_held + 1);
}

int gm_expert_store_cache_start(struct gm_expert_store *store, struct gm_error *err)
{
	uint32_t n = n_item(store);

	if (store->options.max_held > 1u << 20)
		return gm_fail(err, GM_ERR_USAGE, "max_held %u: expert store: must be at most 2^20",
			       store->options.max_held);
	store->n_record = count_records(store);
	if (!(store->record = gm_alloc(store->n_record, sizeof(*store->record), err)) ||
	    !(store->queue = gm_alloc(1, gm_list_bytes(store->n_record), err)) ||
	    !(store->lru = gm_alloc(1, gm_list_bytes(n), err)) ||
	    !(store->record_of = gm_alloc(n, sizeof(*store->record_of), err)))
		return GM_ERR_MEMORY;
	gm_list_init(store->queue, store->n_record);
	gm_list_init(store->lru, n);
	for (uint32_t i = 0; i < n; i++)
		store->record_of[i] = GM_EXPERT_STORE_NONE;
	for (uint32_t r = 0; r < store->n_record; r++)
		store->record[r].next_free = r + 1;
	if (pthread_create(&store->thread, NULL, read_all, store) != 0)
		return gm_fail(err, GM_ERR_MEMORY, "no thread can be started: expert store");
	store->started = true;
	return 0;
}

void gm_expert_store_cache_end(struct gm_expert_store *store)
{
	if (store->started && store->options.kind != GM_EXPERT_STORE_MEMORY) {
		pthread_mutex_lock(&store->lock);
		store->ending = true;
		pthread_cond_signal(&store->issued);
		pthread_mutex_unlock(&store->lock);
		pthread_join(store->thread, NULL);
	}
	for (uint32_t i = 0; store->record && i < store->n_record; i++)
		give_block_back(store, &store->record[i]);
	while (store->n_spare > 0) {
		store->n_spare--;
		gm_expert_store_memory_put(store, store->spare[store->n_spare].memory, store->spare[store->n_spare].bytes);
	}
	free(store->record);
	free(store->queue);
	free(store->lru);
	free(store->record_of);
}

/* --- what callers see --- */

void gm_expert_store_listen(struct gm_expert_store *store, void (*changed)(void *user), void *user)
{
	pthread_mutex_lock(&store->lock);
	while (store->telling)
		pthread_cond_wait(&store->read_ended, &store->lock);
	store->changed = changed;
	store->changed_user = user;
	pthread_mutex_unlock(&store->lock);
}

void gm_expert_store_watch(struct gm_expert_store *store,
			   void (*read)(void *user, uint32_t layer, uint32_t expert, double start_us, double end_us),
			   void *user)
{
	pthread_mutex_lock(&store->lock);
	store->read = read;
	store->read_user = user;
	pthread_mutex_unlock(&store->lock);
}

int gm_expert_store_issue(struct gm_expert_store *store, uint32_t layer, uint32_t expert, uint32_t *read,
			  struct gm_error *err)
{
	int status = 0;

	assert(store->started);
	if (layer >= store->options.n_layer || expert >= store->options.n_expert)
		return gm_fail(err, GM_ERR_USAGE, "no such expert: expert store: %u of layer %u, of %u layers of %u",
			       expert, layer, store->options.n_layer, store->options.n_expert);
	pthread_mutex_lock(&store->lock);
	if (store->options.kind == GM_EXPERT_STORE_MEMORY)
		*read = layer * store->options.n_expert + expert;
	else if (store->n_held == store->options.max_held)
		status = gm_fail(err, GM_ERR_MEMORY, "%u reads are held: expert store: release some, or allow more",
				 store->n_held);
	else
		*read = touch(store, layer * store->options.n_expert + expert);
	if (status == 0) {
		store->n_held++;
		store->stats.n_issue++;
	}
	pthread_mutex_unlock(&store->lock);
	return status;
}

/* Experts in memory: the read is the item. */
static void point_into_memory(const struct gm_expert_store *store, uint32_t item,
			      const void *from[GM_EXPERT_STORE_MAX_PART])
{
	for (uint32_t p = 0; from && p < GM_EXPERT_STORE_MAX_PART; p++) {
		const struct gm_expert_store_place *place = gm_expert_store_place(store, layer_of(store, item), p);

		from[p] = place->name ? place->memory + (item % store->options.n_expert) * place->expert_bytes : NULL;
	}
}

/* With the lock held. */
static int look(const struct gm_expert_store *store, uint32_t read, const void *from[GM_EXPERT_STORE_MAX_PART],
		double *end_us, struct gm_error *err)
{
	const struct gm_expert_store_record *r = &store->record[read];

	if (r->state == GM_EXPERT_STORE_FAILED)
		return gm_fail(err, r->err.code, "%s", r->err.text);
	if (r->state != GM_EXPERT_STORE_THERE)
		return 0;
	if (from)
		memcpy(from, r->from, sizeof(r->from));
	if (end_us)
		*end_us = r->end_us;
	return 1;
}

int gm_expert_store_poll(struct gm_expert_store *store, uint32_t read, const void *from[GM_EXPERT_STORE_MAX_PART],
			 double *end_us, struct gm_error *err)
{
	int status;

	if (store->options.kind == GM_EXPERT_STORE_MEMORY) {
		point_into_memory(store, read, from);
		if (end_us)
			*end_us = 0;
		return 1;
	}
	pthread_mutex_lock(&store->lock);
	status = look(store, read, from, end_us, err);
	pthread_mutex_unlock(&store->lock);
	return status;
}

int gm_expert_store_wait(struct gm_expert_store *store, uint32_t read, const void *from[GM_EXPERT_STORE_MAX_PART],
			 struct gm_error *err)
{
	int status;

	if (store->options.kind == GM_EXPERT_STORE_MEMORY) {
		point_into_memory(store, read, from);
		return 0;
	}
	pthread_mutex_lock(&store->lock);
	while ((status = look(store, read, from, NULL, err)) == 0)
		pthread_cond_wait(&store->read_ended, &store->lock);
	pthread_mutex_unlock(&store->lock);
	return status < 0 ? status : 0;
}

void gm_expert_store_release(struct gm_expert_store *store, uint32_t read)
{
	pthread_mutex_lock(&store->lock);
	store->n_held--;
	if (store->options.kind != GM_EXPERT_STORE_MEMORY) {
		store->record[read].n_held--;
		let_go(store, read);
	}
	pthread_mutex_unlock(&store->lock);
}

void gm_expert_store_reset(struct gm_expert_store *store)
{
	pthread_mutex_lock(&store->lock);
	while (store->stats.host_bytes > 0)
		evict(store, store->lru[n_item(store)].newer);
	pthread_mutex_unlock(&store->lock);
}
