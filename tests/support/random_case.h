/* Random small traces and configurations, for holding the simulator against the slow reference. Everything follows from the seed. */
#ifndef GM_TESTS_RANDOM_CASE_H
#define GM_TESTS_RANDOM_CASE_H

#include "sim/replay.h"
#include "tests/reference/reference.h"
#include "traces/writer.h"

#define RC_MAX_LAYER 5

/* One case, said twice: as the reference takes it and as the simulator does. */
struct random_case {
	uint64_t seed, rng;
	bool wide;
	struct ref_trace trace, preload; /* preload: empty unless ref.preload points to it */
	struct ref_config ref;
	struct gm_replay_config config;
	struct gm_hw hw;
	uint32_t n_head;
	uint32_t slot[RC_MAX_LAYER];
	uint64_t ref_slot[RC_MAX_LAYER];
	double dense_us[RC_MAX_LAYER], gpu_us[RC_MAX_LAYER], cpu_us[RC_MAX_LAYER], copy_us[RC_MAX_LAYER],
		read_us[RC_MAX_LAYER];
	uint32_t *all_order; /* the preload order of ref.preload_all */
};

/* Up to 24 experts in up to 5 layers, of which a token has up to 5. */
void random_case_make(struct random_case *c, uint64_t seed);
/* 64 to 600 experts in up to 3 layers, of which a token has up to 100. */
void random_case_make_wide(struct random_case *c, uint64_t seed);
/* 70 to 160 experts in 1 or 2 layers, of which a token has 63 to 100. */
void random_case_make_long_rows(struct random_case *c, uint64_t seed);
void random_case_free(struct random_case *c);

/* Writes a trace as a recorder would: passes, layers in random order, absent rows left out. */
void random_case_write(const struct random_case *c, const struct ref_trace *trace, const char *path);

/* "seed 17: 3 x 12 top 2, layer scope, lru, threshold 0.2, ..." for a failing case. */
void random_case_describe(const struct random_case *c, char *out, size_t size);

#endif
