/* The link on a played device: order, late hits, errors, endings; with a store behind it. */
#include "engine/store.h"
#include "tests/unit/test_engine_link_common.h"

#include <stdio.h>
#include <unistd.h>

/* --- order --- */

static void test_order(void **state)
{
	struct gm_link_arrival arrival;
	struct gm_error err = {0};
	struct device device;
	struct gm_link *link;
	uint32_t job[8];

	(void)state;
	device_init(&device);
	device.gated = true;
	link = open_link(&device, NULL, (struct gm_link_options){0});
	job[0] = background(link, 0);
	device_await(&device, 1); /* under way: nothing stops it */
	job[1] = background(link, 1);
	job[2] = background(link, 2);
	job[3] = demand(link, 3);
	job[4] = background(link, 4);
	job[5] = demand(link, 5);
	promote(link, job[4]);         /* behind 5 */
	promote(link, job[0]);         /* only changes hands */
	gm_link_release(link, job[3]); /* nobody waits for it */
	device_open_gate(&device);
	await_job(link, job[5]);
	await_job(link, job[4]);
	await_job(link, job[4]);
	drain(link);
	check_order(&device, (const uint64_t[]){0, 3, 5, 4, 1, 2}, 6);
	assert_int_equal(stats_of(link).n_used, 5);                 /* 3 went when it arrived */
	assert_int_equal(gm_link_poll(link, 0, &arrival, &err), 0); /* by then, none */
	assert_int_equal(gm_link_poll(link, HUGE_VAL, &arrival, &err), 1);
	assert_int_equal(arrival.tag, 1);
	assert_int_equal(arrival.job, job[1]);
	promote(link, job[2]); /* has arrived, and is no news any more */
	assert_int_equal(gm_link_poll(link, HUGE_VAL, &arrival, &err), 0);
	assert_int_equal(stats_of(link).n_used, 4);
	for (unsigned i = 0; i < 6; i++)
		if (i != 1 && i != 3)
			gm_link_release(link, job[i]);
	assert_int_equal(stats_of(link).n_used, 0);
	assert_int_equal(stats_of(link).n_demand, 2);
	assert_int_equal(stats_of(link).n_background, 4);
	assert_int_equal(stats_of(link).n_promoted, 1);
	assert_int_equal(stats_of(link).n_copied, 6);
	assert_int_equal(stats_of(link).bytes, 6000);
	close_link(link);
}

/* R14, R18: a demand job's read keeps the link idle; a background job's does not keep demand jobs waiting. */
static void test_order_of_reads(void **state)
{
	struct device device;
	struct reads reads;
	struct gm_link *link;
	uint32_t first, second, third;

	(void)state;
	device_init(&device);
	reads_init(&reads);
	link = open_link(&device, &reads, (struct gm_link_options){0});
	queue_pending(link, false, 1, 1);
	background(link, 2); /* waits for 1's read */
	first = demand(link, 3);
	await_job(link, first);
	second = queue_pending(link, true, 4, 4);
	third = demand(link, 5);
	reads_end(&reads, 1, 1); /* does not help: 4 is wanted */
	pause_us(2000);
	check_order(&device, (const uint64_t[]){3}, 1);
	reads_end(&reads, 4, 1);
	await_job(link, second);
	await_job(link, third);
	drain(link);
	check_order(&device, (const uint64_t[]){3, 4, 5, 1, 2}, 5);
	assert_int_equal(reads.n_done[1], 1);
	assert_int_equal(reads.n_done[4], 1);
	close_link(link);
}

static void test_refusals(void **state)
{
	struct gm_link_request request = request_of(7);
	struct gm_link_options options = {.max_job = 2};
	struct gm_error err = {0};
	struct device device;
	struct gm_link *link;
	uint32_t job[3];

	(void)state;
	assert_null(gm_link_open(&options, &err));
	assert_non_null(strstr(err.text, "no function that copies"));
	err = (struct gm_error){0};
	options.ops = gm_link_memcpy;
	options.max_job = 0;
	assert_null(gm_link_open(&options, &err));
	assert_non_null(strstr(err.text, "0 jobs"));
	err = (struct gm_error){0};
	options.max_job = 1;
	options.source.ready = reads_ready;
	assert_null(gm_link_open(&options, &err));
	assert_non_null(strstr(err.text, "half a source"));
	err = (struct gm_error){0};
	assert_int_equal(gm_link_close(NULL, &err), 0);

	device_init(&device);
	link = open_link(&device, NULL, (struct gm_link_options){.max_job = 2});
	job[0] = demand(link, 1);
	job[1] = background(link, 2);
	assert_fails(gm_link_demand(link, &request, &job[2], &err), GM_ERR_MEMORY, "all 2 jobs are in use", &err);
	assert_fails(gm_link_promote(link, job[0], &err), GM_ERR_USAGE, "no such job", &err);
	assert_fails(gm_link_promote(link, 2, &err), GM_ERR_USAGE, "no such job", &err);
	assert_fails(gm_link_wait(link, job[1], NULL, &err), GM_ERR_USAGE, "no such job", &err);
	gm_link_release(link, job[1]); /* is the link's: does nothing */
	drain(link);
	gm_link_release(link, job[0]);
	request.pending = true;
	assert_fails(gm_link_demand(link, &request, &job[2], &err), GM_ERR_USAGE, "without a source", &err);
	request.pending = false;
	request.piece[2].from = NULL;
	assert_fails(gm_link_background(link, &request, &job[2], &err), GM_ERR_USAGE, "piece 2 of 100 bytes", &err);
	assert_int_equal(stats_of(link).n_used, 1);
	close_link(link);
}

/* --- errors --- */

/* In the first piece, and in what waits for it; with and without a throttle. The second job fails. */
static void play_failure(bool in_finish, bool throttled, bool is_demand)
{
	const char *words = in_finish ? "the event never came: job 2" : "the device is out of order: job 2";
	const struct gm_link_request request = request_of(9);
	struct gm_link_arrival arrival;
	struct gm_error err = {0};
	struct device device;
	struct gm_link *link;
	uint32_t job[4];

	device_init(&device);
	device.gated = true;
	*(in_finish ? &device.fail_finish : &device.fail_copy) = 2;
	link = open_link(&device, NULL,
			 (struct gm_link_options){.max_job = 4, .throttle = {.latency_us = throttled ? 50 : 0}});
	job[0] = demand(link, 0);
	job[1] = is_demand ? demand(link, 1) : background(link, 1);
	job[2] = is_demand ? demand(link, 2) : background(link, 2);
	device_open_gate(&device);
	assert_fails(gm_link_drain(link, &err), GM_ERR_IO, words, &err);
	await_job(link, job[0]);
	if (is_demand) {
		assert_fails(gm_link_wait(link, job[1], NULL, &err), GM_ERR_IO, words, &err);
		assert_fails(gm_link_wait(link, job[1], NULL, &err), GM_ERR_IO, words, &err);
		await_job(link, job[2]);
	} else {
		assert_fails(gm_link_poll(link, HUGE_VAL, &arrival, &err), GM_ERR_IO, words, &err);
		assert_int_equal(arrival.tag, 1);
		assert_int_equal(gm_link_poll(link, HUGE_VAL, &arrival, &err), 1);
		assert_int_equal(arrival.tag, 2);
	}
	assert_fails(gm_link_demand(link, &request, &job[3], &err), GM_ERR_IO, words, &err);
	assert_int_equal(device.n_finish, 3); /* also after a piece that failed */
	assert_int_equal(stats_of(link).n_copied, 2);
	assert_ok(gm_link_clear(link, &err), &err);
	assert_int_equal(stats_of(link).n_used, 0);
	job[3] = demand(link, 3);
	await_job(link, job[3]);
	close_link(link);
}

static void test_failed_copy(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++)
		play_failure(i & 1, i & 2, i & 4);
}

struct waiter {
	struct gm_link *link;
	uint32_t job;
	int status;
	struct gm_error err;
};

static void *wait_for_job(void *argument)
{
	struct waiter *waiter = argument;

	waiter->status = gm_link_wait(waiter->link, waiter->job, NULL, &waiter->err);
	return NULL;
}

/* Threads wait for what is under way and for what is queued. All of them are told; nobody waits for ever, now or later. */
static void test_lost_device(void **state)
{
	(void)state;
	for (int in_finish = 0; in_finish < 2; in_finish++) {
		const struct gm_link_request request = request_of(9);
		struct waiter waiter[3];
		struct gm_link_arrival arrival;
		struct gm_error err = {0};
		struct device device;
		struct reads reads;
		struct gm_link *link;
		pthread_t thread[3];
		uint32_t job;

		device_init(&device);
		reads_init(&reads);
		device.gated = true;
		device.fail_code = GM_LINK_LOST;
		*(in_finish ? &device.fail_finish : &device.fail_copy) = 1;
		link = open_link(&device, &reads, (struct gm_link_options){0});
		for (unsigned i = 0; i < 3; i++) {
			job = i == 1 ? queue_pending(link, true, 1, 1) : demand(link, i);
			waiter[i] = (struct waiter){.link = link, .job = job};
			assert_int_equal(pthread_create(&thread[i], NULL, wait_for_job, &waiter[i]), 0);
		}
		background(link, 3);
		device_await(&device, 1);
		device_open_gate(&device);
		for (unsigned i = 0; i < 3; i++) {
			pthread_join(thread[i], NULL);
			assert_int_equal(waiter[i].status, GM_ERR_IO);
			assert_int_equal(waiter[i].err.code, GM_ERR_IO);
		}
		assert_int_equal(reads.n_done[1], 1);
		assert_fails(gm_link_poll(link, HUGE_VAL, &arrival, &err), GM_ERR_IO, "job 1", &err);
		assert_int_equal(arrival.tag, 3);
		assert_fails(gm_link_background(link, &request, &job, &err), GM_ERR_IO, "job 1", &err);
		assert_fails(gm_link_clear(link, &err), GM_ERR_IO, "job 1", &err);
		assert_fails(gm_link_demand(link, &request, &job, &err), GM_ERR_IO, "job 1", &err);
		assert_fails(gm_link_drain(link, &err), GM_ERR_IO, "job 1", &err);
		assert_fails(gm_link_close(link, &err), GM_ERR_IO, "job 1", &err);
		check_order(&device, (const uint64_t[]){0}, 1);
	}
}

static void test_failed_read(void **state)
{
	struct gm_error err = {0};
	struct device device;
	struct reads reads;
	struct gm_link *link;
	uint32_t bad, good;

	(void)state;
	device_init(&device);
	reads_init(&reads);
	link = open_link(&device, &reads, (struct gm_link_options){0});
	bad = queue_pending(link, true, 1, 1);
	good = queue_pending(link, true, 2, 2);
	reads_end(&reads, 2, 1);
	reads_end(&reads, 1, GM_ERR_FORMAT);
	assert_fails(gm_link_wait(link, bad, NULL, &err), GM_ERR_FORMAT, "the disk is out of order: read 1", &err);
	await_job(link, good);
	check_order(&device, (const uint64_t[]){2}, 1);
	assert_int_equal(reads.n_done[1], 1);
	assert_int_equal(reads.n_done[2], 1);
	assert_ok(gm_link_clear(link, &err), &err);
	/* a read that has no such part */
	reads.without_bytes = true;
	reads.state[3] = 1;
	bad = queue_pending(link, true, 3, 3);
	assert_fails(gm_link_wait(link, bad, NULL, &err), GM_ERR_USAGE, "piece 0 of 900 bytes was not read", &err);
	assert_int_equal(reads.n_done[3], 1);
	assert_fails(gm_link_close(link, &err), GM_ERR_USAGE, "piece 0 of 900 bytes was not read", &err);
}

/* --- endings --- */

/* What is under way ends; what is queued does not begin; reads that never end are no reason to wait. */
static void test_clear_in_flight(void **state)
{
	struct gm_error err = {0};
	struct device device;
	struct reads reads;
	struct gm_link *link;
	uint32_t job;

	(void)state;
	device_init(&device);
	reads_init(&reads);
	device.pause_us = 3000;
	link = open_link(&device, &reads, (struct gm_link_options){.max_job = 4});
	for (unsigned i = 0; i < 5; i++) {
		job = demand(link, 10 * i);
		gm_link_release(link, job); /* nobody waits for it */
		background(link, 10 * i + 1);
		queue_pending(link, true, 10 * i + 2, 10 * i + 2);
		queue_pending(link, false, 10 * i + 3, 10 * i + 3);
		device_await(&device, i + 1);
		assert_ok(gm_link_clear(link, &err), &err);
		assert_int_equal(stats_of(link).n_used, 0);
		assert_int_equal(stats_of(link).n_copied, i + 1);
		assert_int_equal(reads.n_done[10 * i + 2], 1);
		assert_int_equal(reads.n_done[10 * i + 3], 1);
	}
	check_order(&device, (const uint64_t[]){0, 10, 20, 30, 40}, 5);
	close_link(link);
}

static void test_close_in_flight(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct fixture_random random = {seed};
		struct device device;
		struct reads reads;
		struct gm_link *link;
		double begin;

		device_init(&device);
		reads_init(&reads);
		device.pause_us = 1000;
		link = open_link(&device, &reads,
				 (struct gm_link_options){.max_job = 64, .throttle = {.latency_us = seed % 2 ? 10000 : 0}});
		for (uint32_t i = 0; i < 60; i++) {
			if (random_below(&random, 4) == 0)
				queue_pending(link, random_below(&random, 2), i, i);
			else if (random_below(&random, 2))
				background(link, i);
			else
				gm_link_release(link, demand(link, i));
		}
		pause_us(random_below(&random, 4000));
		begin = gm_pace_real.now_us(NULL);
		close_link(link);
		assert_true(gm_pace_real.now_us(NULL) - begin < 200000); /* one copy, not the sixty */
	}
}

/* --- with a store, and many threads --- */

#define N_EXPERT 12u
#define PART_BYTES 20000u

static unsigned char expert_byte(uint32_t expert, size_t i)
{
	return (unsigned char)(expert * 37 + i * 11 + (i >> 8));
}

static void write_model(const char *path)
{
	FILE *stream = fopen(path, "w");

	assert_non_null(stream);
	for (uint32_t part = 0; part < 2; part++)
		for (uint32_t e = 0; e < N_EXPERT; e++)
			for (size_t i = 0; i < PART_BYTES; i++)
				fputc(expert_byte(e + part, i), stream);
	assert_int_equal(fclose(stream), 0);
}

static struct gm_expert_store *open_store(const char *path)
{
	struct gm_error err = {0};
	struct gm_expert_store *store =
		gm_expert_store_new(&(struct gm_expert_store_options){.kind = GM_EXPERT_STORE_READ,
								      .n_layer = 1,
								      .n_expert = N_EXPERT,
								      .host_bytes = (uint64_t)4 * 2 * PART_BYTES,
								      .throttle = {.latency_us = 200}},
				    &err);

	assert_non_null(store);
	for (uint32_t p = 0; p < 2; p++) {
		const struct gm_expert_store_part part = {.name = "part",
							  .expert_bytes = PART_BYTES,
							  .path = path,
							  .offset = (uint64_t)p * N_EXPERT * PART_BYTES};

		assert_ok(gm_expert_store_add(store, 0, p, &part, &err), &err);
	}
	assert_ok(gm_expert_store_start(store, &err), &err);
	return store;
}

struct fetcher {
	struct gm_link *link;
	struct gm_expert_store *store;
	unsigned char *slot; /* [2 * PART_BYTES] */
	uint64_t seed;
	unsigned n_wrong;
};

static unsigned count_wrong(const unsigned char *slot, uint32_t expert)
{
	unsigned n = 0;

	for (uint32_t part = 0; part < 2; part++)
		for (size_t i = 0; i < PART_BYTES; i++)
			n += slot[part * PART_BYTES + i] != expert_byte(expert + part, i);
	return n;
}

/* As a demand job, or a background job that is promoted; n_wrong counts what should not be, since cmocka's checks are for the main thread. */
static void *fetch(void *argument)
{
	struct fetcher *f = argument;
	struct fixture_random random = {f->seed};

	for (unsigned i = 0; i < 60; i++) {
		uint32_t expert = random_below(&random, N_EXPERT), job = 0;
		struct gm_link_request request = {.piece = {{.to = f->slot, .bytes = PART_BYTES},
							    {.to = f->slot, .offset = PART_BYTES, .bytes = PART_BYTES}},
						  .pending = true};

		memset(f->slot, 0, (size_t)2 * PART_BYTES);
		f->n_wrong += gm_expert_store_issue(f->store, 0, expert, &request.read, NULL) < 0;
		if (random_below(&random, 2))
			f->n_wrong += gm_link_demand(f->link, &request, &job, NULL) < 0;
		else
			f->n_wrong += gm_link_background(f->link, &request, &job, NULL) < 0 ||
				      gm_link_promote(f->link, job, NULL) < 0;
		f->n_wrong += gm_link_wait(f->link, job, NULL, NULL) < 0;
		f->n_wrong += count_wrong(f->slot, expert) > 0;
		gm_link_release(f->link, job);
	}
	return NULL;
}

static void test_with_a_store(void **state)
{
	char path[] = "/var/tmp/gatemass-link-XXXXXX";
	struct gm_error err = {0};
	struct fetcher fetcher[3];
	struct gm_expert_store *store;
	struct gm_expert_store_stats stats;
	pthread_t thread[3];
	struct gm_link *link;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	write_model(path);
	store = open_store(path);
	link = gm_link_open(&(struct gm_link_options){.ops = gm_link_memcpy,
						      .source = gm_link_expert_store(store),
						      .max_job = 3,
						      .throttle = {.latency_us = 30}},
			    &err);
	assert_non_null(link);
	for (unsigned i = 0; i < 3; i++) {
		fetcher[i] = (struct fetcher){.link = link, .store = store, .seed = i + 1};
		fetcher[i].slot = malloc((size_t)2 * PART_BYTES);
		assert_non_null(fetcher[i].slot);
		assert_int_equal(pthread_create(&thread[i], NULL, fetch, &fetcher[i]), 0);
	}
	for (unsigned i = 0; i < 3; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(fetcher[i].n_wrong, 0);
		free(fetcher[i].slot);
	}
	gm_expert_store_stats(store, &stats);
	assert_int_equal(stats.n_issue, 180);
	assert_true(stats.n_read > N_EXPERT && stats.n_read < 180);
	assert_int_equal(stats_of(link).n_copied, 180);
	/* reads that nobody waits for any more, when both end */
	for (uint32_t e = 0; e < 3; e++) {
		struct gm_link_request request = {.pending = true};
		uint32_t job;

		assert_ok(gm_expert_store_issue(store, 0, e, &request.read, &err), &err);
		assert_ok(gm_link_background(link, &request, &job, &err), &err);
	}
	close_link(link);
	gm_expert_store_close(store);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),           cmocka_unit_test(test_order_of_reads),
		cmocka_unit_test(test_refusals),        cmocka_unit_test(test_failed_copy),
		cmocka_unit_test(test_lost_device),     cmocka_unit_test(test_failed_read),
		cmocka_unit_test(test_clear_in_flight), cmocka_unit_test(test_close_in_flight),
		cmocka_unit_test(test_with_a_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
