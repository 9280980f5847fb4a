/* Time for the engine's threads: a clock, a throttle that makes a fast machine play a slow link or disk, and waiting for a moment
 * precisely. All times in µs of CLOCK_MONOTONIC. */
#ifndef GM_ENGINE_PACE_H
#define GM_ENGINE_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* Work takes latency_us + bytes / gb_s (GB/s: 10^9 bytes; 0: infinitely fast). All zero: as fast as it is. */
struct gm_throttle {
	double latency_us, gb_s;
};
static inline bool gm_throttle_is_on(const struct gm_throttle *throttle)
{
	return throttle->latency_us > 0 || throttle->gb_s > 0;
}
double gm_throttle_us(const struct gm_throttle *throttle, uint64_t bytes);

/* Tests bring a clock of their own; several threads call it at once. */
struct gm_pace_clock {
	double (*now_us)(void *user);
	void (*sleep_until_us)(void *user, double until_us); /* may end early or late */
	void *user;
};
extern const struct gm_pace_clock gm_pace_real;

/* Returns at until_us or as soon after as can be, never before: sleeps, and looks at the clock again and again for the last
 * GM_PACE_SPIN_US. Returns the time it is then. */
#define GM_PACE_SPIN_US 200.0
double gm_pace_until(const struct gm_pace_clock *clock, double until_us);

/* For a thread of our own that calls gm_pace_until: without it Linux lets a sleep end up to 50 µs late to save power. */
void gm_pace_sharpen(void);

#endif
