/* `engine bench`: decoding a text token by token, under several policies and without a cache, in turns. */
#ifndef GM_ENGINE_BENCH_H
#define GM_ENGINE_BENCH_H

#include "engine/run.h"
#include "sim/result.h"

/* Who has a turn. Two models at once need the memory of both. */
enum gm_bench_only { GM_BENCH_BOTH, GM_BENCH_STOCK, GM_BENCH_POLICIES };

struct gm_bench_options {
	/* model, text as the prompt, device, store, link; settings and what is generated are not looked at */
	struct gm_run_options run;
	const struct gm_settings *settings; /* [n_settings] */
	size_t n_settings;
	uint32_t n_token, n_round;
	enum gm_bench_only only;
	bool quiet;
};

struct gm_bench_turn {
	double us; /* a counted token's */
	struct gm_engine_stats stats;
};

/* A policy, or the first: llama.cpp without a cache (no times if it had no turn). */
struct gm_bench_point {
	const struct gm_settings *settings; /* NULL: no cache */
	struct gm_error error;              /* why this point is impossible */
	struct gm_result result;            /* settings and counters of the last round */
	double *round_us;                   /* [n_round] a token's, of every round; those of the warm-up are left out */
	double median_us, min_us, max_us;   /* of all rounds */
	double ratio;                       /* to no cache: the median of the rounds' ratios */
	struct gm_engine_stats stats;       /* of the median round's counted tokens, the lower one's of two */
	double stats_us;                    /* that round's own time a token */
	uint64_t n_timed;                   /* those tokens */
	uint64_t gpu_bytes;                 /* GPU memory of model, context and slots, as its driver says; 0 without one */
	struct gm_bench_turn *turn;         /* private: [n_round] */
};

struct gm_bench {
	struct gm_bench_point *point; /* [n_point] */
	size_t n_point, n_failed;
	uint32_t n_round;
	enum gm_bench_only only;
	char model[128], device[64];
};

/* Release with gm_bench_free, also after a failure. */
int gm_bench_run(struct gm_bench *bench, const struct gm_bench_options *options, struct gm_error *err);
void gm_bench_free(struct gm_bench *bench);

void gm_bench_print(FILE *out, const struct gm_bench *bench);
int gm_bench_write(const char *path, const struct gm_bench *bench, struct gm_error *err); /* CSV */

/* bench_profile.c: a hardware profile. The policies must hold one that keeps everything resident (--evict nop): its time is what a layer takes
 * beside copies; and unless the link is throttled, one that copies. GM_ERR_USAGE: what is missing. */
int gm_bench_write_profile(const char *path, const struct gm_bench *bench, const struct gm_bench_options *options,
			   struct gm_error *err);

#endif
