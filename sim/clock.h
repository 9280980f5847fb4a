/* The time model (docs/semantics.md, R6 and R14-R19): GPU, link, CPU and disk, each doing one thing at a time. A clock is an
 * implementation of gm_arrivals; its state is one flat block that can be copied with memcpy. */
#ifndef GM_SIM_CLOCK_H
#define GM_SIM_CLOCK_H

#include "policies/core.h"
#include "sim/profile.h"

/* Time by cause (R19), in µs; the parts add up to the time. */
struct gm_time_split {
	double dense, gpu, link_wait, disk_wait, cpu_wait, token;
};
double gm_time_total(const struct gm_time_split *split);

enum gm_lane { GM_LANE_GPU, GM_LANE_LINK, GM_LANE_CPU, GM_LANE_DISK };

/* One piece of work as it happened, for timelines. expert UINT32_MAX: none (dense part, token part) or not told (substitute). */
struct gm_span {
	enum gm_lane lane;
	const char *what; /* "dense", "expert", "substitute", "fetch", "background", "read", "cpu", "token" */
	uint32_t layer, expert;
	double start_us, end_us;
};
struct gm_span_sink {
	void (*span)(void *user, const struct gm_span *span);
	void *user;
};

struct gm_clock;

size_t gm_clock_bytes(uint32_t n_layer, uint32_t n_expert, bool disk);

/* Makes memory [gm_clock_bytes], aligned for any type, a clock at time 0. hw must outlive it. */
struct gm_clock *gm_clock_init(void *memory, const struct gm_hw *hw, uint32_t n_expert);
struct gm_arrivals *gm_clock_arrivals(struct gm_clock *clock);

/* Where the next events' times are added; NULL: nowhere. */
void gm_clock_set_split(struct gm_clock *clock, struct gm_time_split *split);
/* Counts the next events by their work as gm_event_run does, [top_k + 1][top_k + 1]; NULL: not. Events of one row only. */
void gm_clock_set_work(struct gm_clock *clock, uint64_t *work, uint32_t top_k);
void gm_clock_set_sink(struct gm_clock *clock, const struct gm_span_sink *sink); /* NULL: none */

/* R17: the end of a pass. */
void gm_clock_end_pass(struct gm_clock *clock);

/* Events by their work alone, without a clock: what n_event events of a layer add, where no copy lands beside the work and there is no disk
 * tier, so that an event starts with link and CPU free. Either n_fetch experts are fetched, or n_cpu computed on the CPU. */
void gm_clock_count_event(const struct gm_hw *hw, uint32_t layer, uint32_t n_ready, uint32_t n_fetch, uint64_t n_event,
			  struct gm_time_split *split);
void gm_clock_count_cpu_event(const struct gm_hw *hw, uint32_t layer, uint32_t n_ready, uint32_t n_cpu, uint64_t n_event,
			      struct gm_time_split *split);

double gm_clock_now_us(const struct gm_clock *clock);

#endif
