/* The expert store: the right bytes from memory and from files, the host cache of R18 against a slow one, slow disks, threads. */
#include "tests/unit/test_engine_store_common.h"

/* --- experts in memory --- */

/* Pieces of random size, handed in from the tensor's end to its beginning. */
static int set_tensor(struct gm_expert_store *store, uint32_t layer, uint32_t part, struct fixture_random *random,
		      struct gm_error *err)
{
	size_t size = part_bytes(layer, part), end = N_EXPERT * size;
	unsigned char piece[3000];

	while (end > 0) {
		size_t n = 1 + random_below(random, sizeof(piece));

		if (n > end)
			n = end;
		end -= n;
		for (size_t i = 0; i < n; i++)
			piece[i] = byte_at(layer, part, (uint32_t)((end + i) / size), (end + i) % size);
		GM_TRY(gm_expert_store_set(store, layer, part, end, piece, n, err));
	}
	return 0;
}

static void test_memory(void **state)
{
	struct counted counted = {0};
	struct gm_error err = {0};
	struct gm_expert_store *store = new_store(
		(struct gm_expert_store_options){.kind = GM_EXPERT_STORE_MEMORY, .memory = memory_of(&counted)}, &err);
	struct fixture_random random = {1};
	uint32_t read;

	(void)state;
	assert_non_null(store);
	assert_ok(add_parts(store, false, &err), &err);
	assert_int_equal(counted.n_alloc, 8);
	for (uint32_t l = 0; l < N_LAYER; l++)
		for (uint32_t p = 0; p < N_PART; p++)
			if (part_bytes(l, p) > 0 && (l != 2 || p != 1))
				assert_ok(set_tensor(store, l, p, &random, &err), &err);
	assert_fails(gm_expert_store_start(store, &err), GM_ERR_FORMAT, "blk.2.part1: 0 came of 86016", &err);
	assert_ok(set_tensor(store, 2, 1, &random, &err), &err);
	assert_ok(gm_expert_store_start(store, &err), &err);
	assert_fails(gm_expert_store_start(store, &err), GM_ERR_USAGE, "started already", &err);
	check_all(store);
	assert_fails(gm_expert_store_issue(store, 0, N_EXPERT, &read, &err), GM_ERR_USAGE, "no such expert", &err);
	assert_fails(gm_expert_store_set(store, 0, 0, 0, "", 1, &err), GM_ERR_USAGE, "started already", &err);
	assert_int_equal(stats_of(store).n_issue, N_ITEM);
	assert_int_equal(stats_of(store).n_read, 0);
	assert_int_equal(stats_of(store).memory_bytes, counted.bytes);
	gm_expert_store_close(store);
	assert_int_equal(counted.bytes, 0);
	assert_int_equal(counted.n_free, 8);
}

static void test_memory_refusals(void **state)
{
	struct counted counted = {.fail_at = 5};
	struct gm_error err = {0};
	struct gm_expert_store *store = new_store(
		(struct gm_expert_store_options){.kind = GM_EXPERT_STORE_MEMORY, .memory = memory_of(&counted)}, &err);
	const struct gm_expert_store_part part = {.name = "a", .expert_bytes = 10}, nothing = {.name = "b"},
					  huge = {.name = "c", .expert_bytes = SIZE_MAX / 2};

	(void)state;
	assert_non_null(store);
	assert_fails(gm_expert_store_add(store, N_LAYER, 0, &part, &err), GM_ERR_USAGE, "no such place", &err);
	assert_fails(gm_expert_store_add(store, 0, GM_EXPERT_STORE_MAX_PART, &part, &err), GM_ERR_USAGE, "no such place",
		     &err);
	assert_fails(gm_expert_store_add(store, 0, 0, &nothing, &err), GM_ERR_USAGE, "no size", &err);
	assert_fails(gm_expert_store_add(store, 0, 0, &huge, &err), GM_ERR_USAGE, "no size", &err);
	assert_ok(gm_expert_store_add(store, 0, 3, &part, &err), &err);
	assert_fails(gm_expert_store_add(store, 0, 3, &part, &err), GM_ERR_USAGE, "two tensors for one place", &err);
	assert_fails(gm_expert_store_set(store, 0, 1, 0, "", 1, &err), GM_ERR_USAGE, "takes no bytes", &err);
	assert_fails(gm_expert_store_set(store, 0, 3, 70, "", 1, &err), GM_ERR_USAGE, "beyond the end", &err);
	assert_fails(gm_expert_store_set(store, 0, 3, 71, "", 0, &err), GM_ERR_USAGE, "beyond the end", &err);
	assert_ok(gm_expert_store_set(store, 0, 3, 0, (const char[69]){0}, 69, &err), &err);
	assert_fails(gm_expert_store_start(store, &err), GM_ERR_FORMAT, "69 came of 70", &err);
	assert_fails(add_parts(store, false, &err), GM_ERR_MEMORY, "no host memory for experts", &err); /* the fifth */
	gm_expert_store_close(store);
	assert_int_equal(counted.bytes, 0);
}

static void test_options(void **state)
{
	struct gm_error err = {0};

	(void)state;
	assert_null(gm_expert_store_new(&(struct gm_expert_store_options){.n_layer = 1}, &err));
	assert_non_null(strstr(err.text, "1 layers of 0 experts"));
	err = (struct gm_error){0};
	assert_null(new_store((struct gm_expert_store_options){.kind = GM_EXPERT_STORE_MMAP, .host_bytes = 1}, &err));
	assert_non_null(strstr(err.text, "a host cache without reads"));
	err = (struct gm_error){0};
	assert_null(new_store((struct gm_expert_store_options){.throttle.gb_s = 1}, &err));
	assert_non_null(strstr(err.text, "a throttle without reads"));
	err = (struct gm_error){0};
	assert_null(new_store((struct gm_expert_store_options){.memory.alloc = counted_alloc}, &err));
	assert_non_null(strstr(err.text, "half a memory hook"));
	gm_expert_store_close(NULL);
}

/* --- experts in files --- */

static void test_read(void **state)
{
	struct counted counted = {0};
	struct gm_expert_store *store;

	(void)state;
	for (int stutter = 0; stutter < 2; stutter++) {
		for (int refuse = 0; refuse < 2; refuse++) {
			struct disk disk = {.random = {3}, .refuse_direct = refuse, .stutter = stutter};

			store = open_files((struct gm_expert_store_options){.kind = GM_EXPERT_STORE_READ,
									    .memory = memory_of(&counted),
									    .pread = disk_pread,
									    .pread_user = &disk});
			check_all(store);
			assert_int_equal(stats_of(store).n_read, N_ITEM);
			assert_int_equal(stats_of(store).bytes_read,
					 N_EXPERT * (item_bytes(0) + item_bytes(1) + item_bytes(2)));
			assert_int_equal(stats_of(store).host_bytes, 0);
			assert_int_equal(stats_of(store).direct, disk.n_direct > 0 && !refuse);
			gm_expert_store_close(store);
			assert_int_equal(counted.bytes, 0);
		}
	}
}

static void test_mmap(void **state)
{
	struct gm_expert_store *store = open_files((struct gm_expert_store_options){.kind = GM_EXPERT_STORE_MMAP});

	(void)state;
	check_all(store);
	check_all(store);
	assert_int_equal(stats_of(store).n_read, 2 * N_ITEM);
	assert_int_equal(stats_of(store).memory_peak, 0);
	assert_false(stats_of(store).direct);
	gm_expert_store_close(store);
}

/* --- the host cache against a slow one --- */

struct slow_cache {
	uint64_t room;
	uint32_t item[N_ITEM]; /* by last touch */
	uint32_t n;
};

static uint64_t slow_bytes(const struct slow_cache *cache)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < cache->n; i++)
		bytes += item_bytes(cache->item[i] / N_EXPERT);
	return bytes;
}

static void slow_remove(struct slow_cache *cache, uint32_t place)
{
	cache->n--;
	for (uint32_t i = place; i < cache->n; i++)
		cache->item[i] = cache->item[i + 1];
}

/* Returns whether the expert had to be read. */
static bool slow_touch(struct slow_cache *cache, uint32_t item)
{
	bool read = true;

	for (uint32_t i = 0; i < cache->n; i++) {
		if (cache->item[i] == item) {
			slow_remove(cache, i);
			read = false;
			break;
		}
	}
	while (read && cache->n > 0 && slow_bytes(cache) + item_bytes(item / N_EXPERT) > cache->room)
		slow_remove(cache, 0);
	if (slow_bytes(cache) + item_bytes(item / N_EXPERT) <= cache->room)
		cache->item[cache->n++] = item;
	return read;
}

#define MAX_HELD 6u

struct held {
	uint32_t read[MAX_HELD], item[MAX_HELD];
	uint32_t n;
};

/* What is held must have stayed whole, whatever was read since. */
static void release_one(struct gm_expert_store *store, struct held *held, uint32_t i)
{
	wait_and_check(store, held->read[i], held->item[i] / N_EXPERT, held->item[i] % N_EXPERT);
	gm_expert_store_release(store, held->read[i]);
	held->n--;
	held->read[i] = held->read[held->n];
	held->item[i] = held->item[held->n];
}

/* None, some, or just enough for a few. */
static uint64_t room_of(struct fixture_random *random)
{
	uint64_t room = 0;

	if (random_below(random, 5) == 0)
		return 0;
	if (random_below(random, 2))
		return random_below(random, 250000);
	for (uint32_t i = 1 + random_below(random, 8); i > 0; i--)
		room += item_bytes(random_below(random, N_LAYER));
	return room;
}

static void play_cache(uint64_t seed)
{
	struct fixture_random random = {seed};
	struct slow_cache slow = {.room = room_of(&random)};
	struct counted counted = {0};
	struct disk disk = {.random = {seed}, .refuse_direct = seed % 3 == 0, .stutter = seed % 2};
	struct gm_expert_store *store = open_files((struct gm_expert_store_options){.kind = GM_EXPERT_STORE_READ,
										    .host_bytes = slow.room,
										    .max_held = MAX_HELD,
										    .memory = memory_of(&counted),
										    .pread = disk_pread,
										    .pread_user = &disk});
	struct held held = {.n = 0};
	uint64_t n_read = 0;

	for (unsigned i = 0; i < 400; i++) {
		uint32_t item = random_below(&random, 2) ? random_below(&random, N_ITEM) : random_below(&random, 5);

		if (held.n == MAX_HELD || (held.n > 0 && random_below(&random, 2)))
			release_one(store, &held, random_below(&random, held.n));
		held.item[held.n] = item;
		held.read[held.n] = issue(store, item / N_EXPERT, item % N_EXPERT);
		if (random_below(&random, 8) == 0) /* nobody wants it after all; it stays in the cache */
			gm_expert_store_release(store, held.read[held.n]);
		else
			held.n++;
		n_read += slow_touch(&slow, item);
		if (random_below(&random, 100) == 0) {
			gm_expert_store_reset(store);
			slow.n = 0;
		}
		assert_int_equal(stats_of(store).n_read, n_read);
		assert_int_equal(stats_of(store).host_bytes, slow_bytes(&slow));
	}
	while (held.n > 0)
		release_one(store, &held, 0);
	assert_int_equal(stats_of(store).memory_bytes, counted.bytes);
	/* the cache, what was held, and 16 that wait; an expert has at most 4096 + 3 * 8192 bytes for alignment */
	assert_true(stats_of(store).memory_peak <= slow.room + (MAX_HELD + 16) * (item_bytes(0) + 28672) + N_ITEM * 28672);
	gm_expert_store_close(store);
	assert_int_equal(counted.bytes, 0);
}

static void test_cache(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 24; seed++)
		play_cache(seed);
}

static void test_max_held(void **state)
{
	struct gm_expert_store *store = open_files(
		(struct gm_expert_store_options){.kind = GM_EXPERT_STORE_READ, .max_held = 2, .host_bytes = 1 << 20});
	struct gm_error err = {0};
	uint32_t read, a = issue(store, 0, 0), b = issue(store, 0, 0); /* two holds of one expert */

	(void)state;
	assert_fails(gm_expert_store_issue(store, 0, 1, &read, &err), GM_ERR_MEMORY, "2 reads are held", &err);
	assert_int_equal(stats_of(store).n_issue, 2);
	assert_int_equal(stats_of(store).n_read, 1);
	gm_expert_store_release(store, a);
	read = issue(store, 0, 1);
	wait_and_check(store, read, 0, 1);
	wait_and_check(store, b, 0, 0);
	gm_expert_store_close(store);
}

/* --- slow disks --- */

/* The example of R18: host memory for one expert, two reads, then the second expert again. Sleeps that end late make no difference. */
static void play_slow_disk(double oversleep_us)
{
	struct played_clock played = PLAYED_CLOCK;
	const struct gm_pace_clock clock = played_clock_of(&played);
	struct gm_expert_store *store = open_files((struct gm_expert_store_options){.kind = GM_EXPERT_STORE_READ,
										    .host_bytes = item_bytes(0),
										    .throttle = {.latency_us = 1000},
										    .clock = &clock});
	struct gm_error err = {0};
	double begin, end[2];
	uint32_t a, b;

	played.oversleep_us = oversleep_us;
	played_advance(&played, 5000);
	begin = played_now_us(&played);
	a = issue(store, 0, 0);
	b = issue(store, 0, 1);
	assert_ok(gm_expert_store_wait(store, b, NULL, &err), &err);
	assert_int_equal(gm_expert_store_poll(store, a, NULL, &end[0], &err), 1);
	assert_int_equal(gm_expert_store_poll(store, b, NULL, &end[1], &err), 1);
	assert_true(end[0] - begin >= 1000 && end[0] - begin < 1000 + 10 * PLAYED_TICK_US);
	assert_true(end[1] - begin >= 2000 && end[1] - begin < 2000 + 10 * PLAYED_TICK_US);
	assert_true(played_now_us(&played) >= end[1]); /* nobody was told before */
	gm_expert_store_release(store, issue(store, 0, 1));
	assert_int_equal(stats_of(store).n_read, 2);
	gm_expert_store_release(store, issue(store, 0, 0)); /* had to leave for the second */
	assert_int_equal(stats_of(store).n_read, 3);
	gm_expert_store_close(store);
}

static void test_throttle_played(void **state)
{
	(void)state;
	play_slow_disk(0);
	play_slow_disk(300);
	play_slow_disk(-100);
}

static void test_throttle_real(void **state)
{
	const struct gm_throttle throttle = {.latency_us = 5000, .gb_s = 0.05};
	struct gm_expert_store *store =
		open_files((struct gm_expert_store_options){.kind = GM_EXPERT_STORE_READ, .throttle = throttle});
	double expected = gm_throttle_us(&throttle, item_bytes(0)), late[21], previous = 0;
	struct gm_error err = {0};

	(void)state;
	assert_true(fabs(expected - 5000 - (double)item_bytes(0) / 50) < 1e-6);
	for (unsigned i = 0; i < 21; i++) {
		uint32_t first = issue(store, 0, 0), second = issue(store, 0, 1);
		double end;

		wait_and_check(store, second, 0, 1);
		assert_int_equal(gm_expert_store_poll(store, first, NULL, &previous, &err), 1);
		assert_int_equal(gm_expert_store_poll(store, second, NULL, &end, &err), 1);
		late[i] = end - previous - expected;
		gm_expert_store_release(store, first);
		gm_expert_store_release(store, second);
	}
	print_message("a read of %.0f us back to back: median error %.3f us\n", expected, median_of(late, 21));
	assert_true(late[10] > -50 && late[10] < 50);
	gm_expert_store_close(store);
}

/* --- threads --- */

static void test_close_in_flight(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct fixture_random random = {seed};
		struct counted counted = {0};
		struct gm_expert_store *store =
			open_files((struct gm_expert_store_options){.kind = GM_EXPERT_STORE_READ,
								    .host_bytes = seed % 2 ? 60000 : 0,
								    .throttle = {.latency_us = 20000},
								    .memory = memory_of(&counted)});
		double begin;

		for (uint32_t i = 0; i < N_ITEM; i++) {
			uint32_t read = issue(store, i / N_EXPERT, i % N_EXPERT);

			if (random_below(&random, 2))
				gm_expert_store_release(store, read);
		}
		pause_us(random_below(&random, 3000));
		begin = gm_pace_real.now_us(NULL);
		gm_expert_store_close(store);
		/* one read, not the twenty */
		assert_true(gm_pace_real.now_us(NULL) - begin < 200000);
		assert_int_equal(counted.bytes, 0);
	}
}

static void count_change(void *user)
{
	unsigned *n = user;

	pause_us(300);
	__atomic_add_fetch(n, 1, __ATOMIC_SEQ_CST);
}

static void test_listener(void **state)
{
	struct gm_expert_store *store = open_files((struct gm_expert_store_options){.kind = GM_EXPERT_STORE_READ});
	unsigned n = 0;
	uint32_t read;

	(void)state;
	gm_expert_store_listen(store, count_change, &n);
	check_all(store);
	gm_expert_store_listen(store, NULL, NULL); /* the last call has ended */
	assert_int_equal(n, N_ITEM);
	read = issue(store, 0, 0);
	wait_and_check(store, read, 0, 0);
	gm_expert_store_close(store);
	assert_int_equal(n, N_ITEM);
}

struct user {
	struct gm_expert_store *store;
	uint64_t seed;
	unsigned n_wrong;
};

/* cmocka's checks are for the main thread: here wrong bytes are counted. */
static unsigned count_wrong(const void *const *from, uint32_t layer, uint32_t expert)
{
	unsigned n = 0;

	for (uint32_t p = 0; p < N_PART; p++)
		for (size_t i = 0; i < part_bytes(layer, p); i++)
			n += ((const unsigned char *)from[p])[i] != byte_at(layer, p, expert, i);
	return n;
}

static void *use(void *argument)
{
	struct user *user = argument;
	struct fixture_random random = {user->seed};

	for (unsigned i = 0; i < 150; i++) {
		uint32_t layer = random_below(&random, N_LAYER), expert = random_below(&random, N_EXPERT), read;
		const void *from[GM_EXPERT_STORE_MAX_PART];

		if (gm_expert_store_issue(user->store, layer, expert, &read, NULL) < 0) {
			user->n_wrong++;
			continue;
		}
		if (random_below(&random, 4) > 0) {
			user->n_wrong += gm_expert_store_wait(user->store, read, from, NULL) < 0 ||
					 count_wrong(from, layer, expert) > 0;
		}
		gm_expert_store_release(user->store, read);
		if (random_below(&random, 50) == 0)
			gm_expert_store_reset(user->store);
	}
	return NULL;
}

static void test_many_users(void **state)
{
	(void)state;
	for (int kind = GM_EXPERT_STORE_MMAP; kind <= GM_EXPERT_STORE_READ; kind++) {
		struct gm_expert_store *store =
			open_files((struct gm_expert_store_options){.kind = (enum gm_expert_store_kind)kind,
								    .host_bytes = kind == GM_EXPERT_STORE_READ ? 100000 : 0,
								    .max_held = 4});
		pthread_t thread[4];
		struct user user[4];

		for (unsigned i = 0; i < 4; i++) {
			user[i] = (struct user){.store = store, .seed = i + 1};
			assert_int_equal(pthread_create(&thread[i], NULL, use, &user[i]), 0);
		}
		for (unsigned i = 0; i < 4; i++) {
			pthread_join(thread[i], NULL);
			assert_int_equal(user[i].n_wrong, 0);
		}
		assert_int_equal(stats_of(store).n_issue, 600);
		gm_expert_store_close(store);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_memory_refusals),
		cmocka_unit_test(test_options),
		cmocka_unit_test_setup(test_read, begin_files),
		cmocka_unit_test_setup(test_mmap, begin_files),
		cmocka_unit_test_setup(test_cache, begin_files),
		cmocka_unit_test_setup(test_max_held, begin_files),
		cmocka_unit_test_setup(test_throttle_played, begin_files),
		cmocka_unit_test_setup(test_throttle_real, begin_files),
		cmocka_unit_test_setup(test_close_in_flight, begin_files),
		cmocka_unit_test_setup(test_listener, begin_files),
		cmocka_unit_test_setup(test_many_users, begin_files),
	};

	return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
