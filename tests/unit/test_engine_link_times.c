/* The link's times: the throttle against a played clock and against the real one. */
#include "tests/unit/test_engine_link_common.h"

#include <limits.h>

/* Nothing but looking at the clock takes time: the times of R14 to a few ticks. */
static void test_throttle_played(void **state)
{
	static const double oversleep[] = {0, 70, -30};

	(void)state;
	for (size_t i = 0; i < sizeof(oversleep) / sizeof(*oversleep); i++) {
		struct played_clock played = PLAYED_CLOCK;
		const struct gm_pace_clock clock = played_clock_of(&played);
		struct gm_link_times times[3];
		struct device device;
		struct gm_link *link;
		uint32_t job[3];
		double begin;

		device_init(&device);
		played.oversleep_us = oversleep[i];
		device.gated = true;
		link = open_link(&device, NULL,
				 (struct gm_link_options){.throttle = {.latency_us = 500, .gb_s = 0.01}, .clock = &clock});
		played_advance(&played, 1e6);
		begin = played_now_us(&played);
		for (uint64_t k = 0; k < 3; k++)
			job[k] = demand(link, k);
		device_await(&device, 1);
		played_advance(&played, 100); /* waking up, and the copy itself */
		device_open_gate(&device);
		drain(link);
		for (unsigned k = 0; k < 3; k++) {
			times[k] = await_job(link, job[k]);
			/* 500 µs and 1000 bytes at 10 bytes per µs */
			assert_true(fabs(times[k].started_us - begin - 600.0 * k) < 10 * PLAYED_TICK_US);
			assert_true(times[k].arrived_us >= times[k].started_us + 600);
			assert_true(times[k].arrived_us < times[k].started_us + 600 + 2 * PLAYED_TICK_US);
		}
		close_link(link);
	}
}

/* A copy that takes longer than the throttle says, a job that was promoted late, a read that ended late, a failed one before. */
static void test_throttle_starts(void **state)
{
	struct played_clock played = PLAYED_CLOCK;
	const struct gm_pace_clock clock = played_clock_of(&played);
	struct gm_link_times times;
	struct gm_error err = {0};
	struct device device;
	struct reads reads;
	struct gm_link *link;
	uint32_t job[4];
	double now;

	(void)state;
	device_init(&device);
	reads_init(&reads);
	device.clock = &played;
	device.clock_us = 450; /* a piece */
	link = open_link(&device, &reads, (struct gm_link_options){.throttle = {.latency_us = 100}, .clock = &clock});
	job[0] = demand(link, 0);
	times = await_job(link, job[0]);
	assert_true(times.arrived_us - times.started_us >= 900);
	device.clock = NULL;
	job[1] = demand(link, 1); /* counts from the real end of the first */
	now = times.arrived_us;
	times = await_job(link, job[1]);
	assert_true(times.started_us >= now && times.started_us < now + 10 * PLAYED_TICK_US);

	queue_pending(link, false, 2, 2);
	job[2] = background(link, 3); /* must wait behind */
	played_advance(&played, 5000);
	now = played_now_us(&played);
	promote(link, job[2]);
	times = await_job(link, job[2]);
	assert_true(times.queued_us < now - 4000);
	assert_true(times.started_us >= now && times.started_us < now + 10 * PLAYED_TICK_US);

	played_advance(&played, 1000);
	now = reads.ready_us[2] = played_now_us(&played) - 300;
	reads_end(&reads, 2, 1);
	drain(link);
	struct gm_link_arrival arrival;
	assert_int_equal(gm_link_poll(link, now + 99, &arrival, &err), 0);
	assert_int_equal(gm_link_poll(link, HUGE_VAL, &arrival, &err), 1);
	assert_true(arrival.times.started_us == now);

	job[3] = queue_pending(link, true, 4, 4);
	job[0] = demand(link, 5);
	played_advance(&played, 2000);
	now = played_now_us(&played);
	reads_end(&reads, 4, GM_ERR_IO);
	times = await_job(link, job[0]); /* the link was kept for the one that failed */
	assert_true(times.started_us >= now);
	assert_fails(gm_link_close(link, &err), GM_ERR_IO, "the disk is out of order: read 4", &err);
}

/* A clock on which other threads than the test's own oversleep until they are let go. */
struct sleepy_clock {
	struct played_clock played;
	pthread_t test;
	pthread_cond_t changed;
	unsigned n_sleep, n_let; /* sleeps begun, and that may end */
};

static double sleepy_now_us(void *user)
{
	struct sleepy_clock *clock = user;

	return played_now_us(&clock->played);
}

static void sleepy_until_us(void *user, double until_us)
{
	struct sleepy_clock *clock = user;

	if (!pthread_equal(pthread_self(), clock->test)) {
		pthread_mutex_lock(&clock->played.lock);
		unsigned mine = ++clock->n_sleep;
		pthread_cond_broadcast(&clock->changed);
		while (clock->n_let < mine)
			pthread_cond_wait(&clock->changed, &clock->played.lock);
		pthread_mutex_unlock(&clock->played.lock);
	}
	played_sleep_until_us(&clock->played, until_us);
}

static void sleepy_let(struct sleepy_clock *clock, unsigned n)
{
	pthread_mutex_lock(&clock->played.lock);
	clock->n_let = n;
	pthread_cond_broadcast(&clock->changed);
	pthread_mutex_unlock(&clock->played.lock);
}

static void sleepy_await(struct sleepy_clock *clock, unsigned n)
{
	pthread_mutex_lock(&clock->played.lock);
	while (clock->n_sleep < n)
		pthread_cond_wait(&clock->changed, &clock->played.lock);
	pthread_mutex_unlock(&clock->played.lock);
}

/* The worker has copied and sleeps too long: who waits or polls sees the arrival all the same, and the next job counts from there. */
static void test_worker_oversleeps(void **state)
{
	struct sleepy_clock sleepy = {.played = PLAYED_CLOCK, .test = pthread_self(), .changed = PTHREAD_COND_INITIALIZER};
	const struct gm_pace_clock clock = {.now_us = sleepy_now_us, .sleep_until_us = sleepy_until_us, .user = &sleepy};
	struct gm_link_arrival arrival;
	struct gm_link_times times;
	struct gm_error err = {0};
	struct device device;
	struct gm_link *link;
	uint32_t job;
	double end;

	(void)state;
	device_init(&device);
	link = open_link(&device, NULL, (struct gm_link_options){.throttle = {.latency_us = 1000}, .clock = &clock});
	job = demand(link, 0);
	background(link, 1);
	sleepy_await(&sleepy, 1);
	times = await_job(link, job);
	end = times.started_us + 1000;
	assert_true(times.arrived_us == end);
	assert_int_equal(gm_link_poll(link, HUGE_VAL, &arrival, &err), 0);
	played_advance(&sleepy.played, 500);
	sleepy_let(&sleepy, 1); /* the second begins 500 late, and counts from when it could have */
	sleepy_await(&sleepy, 2);
	played_advance(&sleepy.played, 600);
	assert_int_equal(gm_link_poll(link, HUGE_VAL, &arrival, &err), 1);
	assert_true(arrival.times.started_us == end);
	assert_true(arrival.times.arrived_us == end + 1000);
	sleepy_let(&sleepy, UINT_MAX);
	close_link(link);
}

#define N_TIMED 201u

static void test_throttle_real(void **state)
{
	const struct gm_throttle throttle = {.latency_us = 100, .gb_s = 0.005};
	static double late[N_TIMED], seen[N_TIMED], spacing[N_TIMED];
	double previous = 0, begin = 0;
	struct device device;
	struct gm_link *link;

	(void)state;
	device_init(&device);
	link = open_link(&device, NULL, (struct gm_link_options){.throttle = throttle});
	for (unsigned i = 0; i < N_TIMED; i++) {
		uint32_t first = demand(link, 1), second = demand(link, 2);
		struct gm_link_times times;

		begin = await_job(link, first).arrived_us;
		times = await_job(link, second);
		seen[i] = gm_pace_real.now_us(NULL) - times.arrived_us;
		late[i] = times.arrived_us - times.started_us - 300;
		spacing[i] = times.arrived_us - begin - 300;
		assert_true(late[i] >= -0.001 && seen[i] >= 0); /* never early */
		assert_true(times.started_us >= previous);      /* one after the other */
		previous = times.started_us + 300;
		gm_link_release(link, first);
		gm_link_release(link, second);
	}
	print_message("a copy of 300 us: median error %.3f us, %.3f us back to back; the waiter knew %.3f us later\n",
		      median_of(late, N_TIMED), median_of(spacing, N_TIMED), median_of(seen, N_TIMED));
	assert_true(late[N_TIMED / 2] < 30);
	assert_true(spacing[N_TIMED / 2] > -30 && spacing[N_TIMED / 2] < 30);
	assert_true(seen[N_TIMED / 2] < 60);
	close_link(link);
}

/* Both threads' waking up, from the call of gm_link_demand to the return of gm_link_wait, of a copy that takes no time. */
static void test_round_trip(void **state)
{
	static double round[N_TIMED];
	struct device device;
	struct gm_link *link;

	(void)state;
	device_init(&device);
	link = open_link(&device, NULL, (struct gm_link_options){0});
	for (unsigned i = 0; i < N_TIMED; i++) {
		double begin = gm_pace_real.now_us(NULL);
		uint32_t job = demand(link, i);

		await_job(link, job);
		round[i] = gm_pace_real.now_us(NULL) - begin;
		gm_link_release(link, job);
	}
	print_message("a copy of no bytes, asked for and waited for: median %.1f us\n", median_of(round, N_TIMED));
	assert_int_equal(stats_of(link).n_copied, N_TIMED);
	close_link(link);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_throttle_played),   cmocka_unit_test(test_throttle_starts),
		cmocka_unit_test(test_worker_oversleeps), cmocka_unit_test(test_throttle_real),
		cmocka_unit_test(test_round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
