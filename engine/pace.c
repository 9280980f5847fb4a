#include "engine/pace.h"

#include "base/progress.h"

#include <sys/prctl.h>
#include <time.h>

static double real_now_us(void *user)
{
	(void)user;
	return gm_clock_s() * 1e6;
}

static void real_sleep_until_us(void *user, double until_us)
{
	double s = until_us * 1e-6;
	struct timespec until = {.tv_sec = (time_t)s};

	(void)user;
	until.tv_nsec = (long)((s - (double)until.tv_sec) * 1e9);
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

const struct gm_pace_clock gm_pace_real = {.now_us = real_now_us, .sleep_until_us = real_sleep_until_us};

double gm_throttle_us(const struct gm_throttle *throttle, uint64_t bytes)
{
	return throttle->latency_us + (throttle->gb_s > 0 ? (double)bytes / (throttle->gb_s * 1e3) : 0);
}

double gm_pace_until(const struct gm_pace_clock *clock, double until_us)
{
	double now = clock->now_us(clock->user);

	while (now < until_us) {
		if (until_us - now > GM_PACE_SPIN_US)
			clock->sleep_until_us(clock->user, until_us - GM_PACE_SPIN_US);
		now = clock->now_us(clock->user);
	}
	return now;
}

void gm_pace_sharpen(void)
{
	/* nanoseconds; what fails here only costs precision */
	prctl(PR_SET_TIMERSLACK, 1000L, 0L, 0L, 0L);
}
