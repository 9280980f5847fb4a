/* What the tests of the engine's threads share: a clock that is played, and random numbers. */
#ifndef GM_TESTS_ENGINE_COMMON_H
#define GM_TESTS_ENGINE_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "engine/pace.h"
#include "tests/fixtures/random.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define assert_ok(call, err)                                                    \
	do {                                                                    \
		if ((call) < 0)                                                 \
			fail_msg("%s:%d: %s", __FILE__, __LINE__, (err)->text); \
	} while (0)

/* A call that must fail with this code and these words in its message. Leaves err clean. */
#define assert_fails(call, wanted_code, words, err)                                                                       \
	do {                                                                                                              \
		int status_ = (call);                                                                                     \
		if (status_ != (wanted_code) || (err)->code != (wanted_code) || !strstr((err)->text, words))              \
			fail_msg("%s:%d: status %d, code %d: %s", __FILE__, __LINE__, status_, (err)->code, (err)->text); \
		*(err) = (struct gm_error){0};                                                                            \
	} while (0)

static inline uint32_t random_below(struct fixture_random *random, uint32_t n)
{
	return (uint32_t)(fixture_next(random) % n);
}

static inline void pause_us(long us)
{
	nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

static inline int compare_doubles(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static inline double median_of(double *value, size_t n)
{
	qsort(value, n, sizeof(*value), compare_doubles);
	return value[n / 2];
}

/* Time that passes only when somebody looks at it (PLAYED_TICK_US) or sleeps. */
#define PLAYED_TICK_US 0.25

struct played_clock {
	pthread_mutex_t lock;
	double now_us;
	double oversleep_us; /* sleeps end so much late; negative: early */
};

static inline double played_now_us(void *user)
{
	struct played_clock *clock = user;

	pthread_mutex_lock(&clock->lock);
	double now = clock->now_us += PLAYED_TICK_US;
	pthread_mutex_unlock(&clock->lock);
	return now;
}

static inline void played_sleep_until_us(void *user, double until_us)
{
	struct played_clock *clock = user;

	pthread_mutex_lock(&clock->lock);
	if (clock->now_us < until_us + clock->oversleep_us)
		clock->now_us = until_us + clock->oversleep_us;
	pthread_mutex_unlock(&clock->lock);
}

static inline void played_advance(struct played_clock *clock, double us)
{
	pthread_mutex_lock(&clock->lock);
	clock->now_us += us;
	pthread_mutex_unlock(&clock->lock);
}

#define PLAYED_CLOCK                              \
	{                                         \
		.lock = PTHREAD_MUTEX_INITIALIZER \
	}
static inline struct gm_pace_clock played_clock_of(struct played_clock *clock)
{
	return (struct gm_pace_clock){.now_us = played_now_us, .sleep_until_us = played_sleep_until_us, .user = clock};
}

#endif
