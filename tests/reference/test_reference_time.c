/* Hand-computed cases for R14-R19 of the reference replay and for the queue behind the disk (R6). */
#include "tests/reference/test_reference_common.h"

/* R18's example; C = 0, so that nothing stays on the GPU and b is fetched again. */
static void test_page_disk_example(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 4, 2, 2, 0);
	WANT(&w.trace, 0, 0, 0, 1);
	WANT(&w.trace, 1, 0, 1, 2);
	set_times(&w, 0, 0, 0, 10);
	w.config.disk = 1;
	w.config.disk_latency_us = 100;
	w.config.host_expert_bytes = 1;
	run(&w);
	/*
	 * Token 0: reads end at 100 and 200, copies at 110 and 210. Token 1, T1 = 210: b needs no read, copy 210-220; c is
	 * read 210-310, copied 310-320. Waits: a disk 100 link 10; b (110-210) disk 90 link 10; b link 10; c (220-320)
	 * disk 90 link 10.
	 */
	assert_near(w.result.time.total, 320);
	assert_near(w.result.time.disk_wait, 280);
	assert_near(w.result.time.link_wait, 40);
	assert_int_equal(w.coverage.times[REF_R18_READ], 3);
	assert_int_equal(w.coverage.times[REF_R18_HOST_HIT], 1);
	assert_int_equal(w.result.counters.fetches, 4);
	assert_int_equal(w.result.counters.bypasses, 4);
	assert_split(&w.trace, &w.result);
	world_free(&w);
}

/* R15: one hit from T1, then two fetches. Bytes 1000 at 0.1 GB/s = 10 us, latency 5: copy 15. */
static void test_gpu_and_link_time(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 6, 3, 2, 6);
	w.trace.expert_bytes[0] = 1000;
	WANT(&w.trace, 0, 0, 0, 1, 2);
	WANT(&w.trace, 1, 0, 3, 0, 4);
	set_times(&w, 7, 20, 0, 5);
	w.config.link_gb_s = 0.1;
	w.config.token_us = 3;
	run(&w);
	/*
	 * t0: T1 7: arrivals 22, 37, 52; GPU 22-42, 42-62, 62-82 (never idle again). +3 = 85. wait 15.
	 * t1: T 85, T1 92: arrivals 107, 122; GPU 92-112 (hit 0), 112-132, 132-152. +3 = 155. wait 0.
	 */
	assert_near(w.result.time.total, 155);
	assert_near(w.result.time.dense, 14);
	assert_near(w.result.time.gpu, 120);
	assert_near(w.result.time.link_wait, 15);
	assert_near(w.result.time.token, 6);
	assert_int_equal(w.result.counters.link_bytes, 5000);
	assert_split(&w.trace, &w.result);
	world_free(&w);
}

/* R16: 0 preloaded; 1 and 2 on the CPU. */
static void test_cpu_time(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 4, 3, 1, 1);
	WANT(&w.trace, 0, 0, 0, 1, 2);
	set_times(&w, 10, 5, 30, 0);
	w.config.preload_all = 1;
	w.config.miss = REF_CPU;
	w.config.cpu_roundtrip_us = 20;
	w.config.token_us = 4;
	run(&w);
	/* T1 10, GPU 10-15, CPU 10 + 20 + 60 = 90; +4. */
	assert_near(w.result.time.total, 94);
	assert_near(w.result.time.gpu, 5);
	assert_near(w.result.time.cpu_wait, 75);
	assert_int_equal(w.result.counters.cpu_picks, 2);
	assert_int_equal(w.result.counters.misses, 2);
	assert_int_equal(w.result.place[1], REF_ABSENT);
	assert_split(&w.trace, &w.result);

	/* With a disk (latency 25): reads end at 35 and 60; CPU 35-65, 65-95 (the round trip ends at 30). */
	w.config.disk = 1;
	w.config.disk_latency_us = 25;
	run(&w);
	assert_near(w.result.time.total, 99);
	assert_near(w.result.time.disk_wait, 0);
	assert_near(w.result.time.cpu_wait, 80);
	assert_split(&w.trace, &w.result);
	world_free(&w);
}

/*
 * R18: a queued copy may start at the end of its read. disk 50, copy 10, no other times; first-choice, beta 0.2.
 *   t0 {0,1} T1 0:   reads end 50, 100; copies at 60, 110. GPU waits disk 50, link 10, disk 40, link 10. End 110.
 *   t1 {0,2} T1 110: 2 read 110-160, queued for 160.
 *   t2 {2,0} T1 110: 160 > 110: still queued; late hit: starts max(110, 160), arrives 170. Waits disk 50, link 10.
 */
static void test_disk_and_queue(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 4, 2, 3, 3);
	WANT(&w.trace, 0, 0, 0, 1);
	WANT(&w.trace, 1, 0, 0, 2);
	WANT(&w.trace, 2, 0, 2, 0);
	set_times(&w, 0, 0, 0, 10);
	w.config.miss = REF_FIRST_CHOICE;
	w.config.background = 1;
	w.config.beta = 0.2;
	w.config.disk = 1;
	w.config.disk_latency_us = 50;
	w.config.host_expert_bytes = 10;
	run(&w);
	assert_int_equal(w.result.counters.late_hits, 1);
	assert_near(w.result.time.total, 170);
	assert_near(w.result.time.disk_wait, 140);
	assert_near(w.result.time.link_wait, 30);
	assert_split(&w.trace, &w.result);
	world_free(&w);
}

/* R18: host RAM is LRU by touch. H = 2, C = 0: 0, 1, 0 (hit, touched), 2 (1 leaves), 0 hit, 1 read again. */
static void test_host_lru(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 4, 1, 6, 0);
	want_ones(&w.trace, (const uint32_t[]){0, 1, 0, 2, 0, 1});
	w.config.disk = 1;
	w.config.disk_latency_us = 100;
	w.config.host_expert_bytes = 2;
	run(&w);
	assert_int_equal(w.coverage.times[REF_R18_READ], 4);
	assert_int_equal(w.coverage.times[REF_R18_HOST_HIT], 2);
	assert_int_equal(w.coverage.times[REF_R18_HOST_EVICT], 2);
	assert_near(w.result.time.total, 400);
	assert_near(w.result.time.disk_wait, 400);
	world_free(&w);
}

/*
 * R6, FIFO: a copy whose expert is in host RAM waits behind a head that is still being read. C = 4 with 0-3, k = 2,
 * first-choice, LRU, beta 0.01, dense 1, disk 1000, copy 1.
 *   t0 {5,0}, t1 {6,0}, t2 {7,0}, t3 {8,0}: each fetches; 3, 2, 1 and 5 leave: residents 0, 6, 7, 8. 1002 each: T 4008.
 *   t4 {0,9} T1 4009: 6 stands in (lowest id), 7 leaves for 9: read 4009-5009.
 *   t5 {0,5} T1 4010: 6 stands in, 8 leaves for 5, which is in host RAM: queued at 4010, behind 9.
 *   t6 {0,6} T1 4011: the link is free, 5 could start, but 9 is the head. Nothing starts.
 */
static void test_fifo_head_blocks(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1, 12, 2, 7, 4);
	for (uint32_t t = 0; t < 4; t++)
		WANT(&w.trace, t, 0, 5 + t, 0);
	WANT(&w.trace, 4, 0, 0, 9);
	WANT(&w.trace, 5, 0, 0, 5);
	WANT(&w.trace, 6, 0, 0, 6);
	set_times(&w, 1, 0, 0, 1);
	w.config.preload_all = 1;
	w.config.miss = REF_FIRST_CHOICE;
	w.config.background = 1;
	w.config.beta = 0.01;
	w.config.disk = 1;
	w.config.disk_latency_us = 1000;
	w.config.host_expert_bytes = 100;
	run(&w);
	assert_int_equal(w.result.place[9], REF_QUEUED);
	assert_int_equal(w.result.place[5], REF_QUEUED);
	assert_int_equal(w.result.counters.background_copies, 2);
	assert_int_equal(w.coverage.times[REF_R6_HEAD_BLOCKS], 1);
	assert_int_equal(w.coverage.times[REF_R18_HOST_HIT], 1);
	assert_near(w.result.time.total, 4011);
	assert_near(w.result.time.disk_wait, 4000);
	world_free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page_disk_example), cmocka_unit_test(test_gpu_and_link_time),
		cmocka_unit_test(test_cpu_time),          cmocka_unit_test(test_disk_and_queue),
		cmocka_unit_test(test_host_lru),          cmocka_unit_test(test_fifo_head_blocks),
	};

	return cmocka_run_group_tests_name("reference replay: time", tests, NULL, NULL);
}
