/*
 * The slow reference replay: semantics.md version 1 written down once more, as plainly as possible.
 *
 * It is the judge of the fast simulator, so it shares no code with it and prefers linear scans, full sorts and plain
 * arrays to anything quick. R1 ... R19 are the rule numbers of semantics.md.
 *
 * Indices: an array [n_layer][n_expert] is flat, expert e of layer l at l * n_expert + e. That flat index is the `id`.
 */
#ifndef GATEMASS_TESTS_REFERENCE_H
#define GATEMASS_TESTS_REFERENCE_H

#include <stdint.h>
#include <stdio.h>

enum ref_status { REF_OK = 0, REF_BAD_TRACE = -1, REF_BAD_CONFIG = -2 };

enum ref_gating { REF_SOFTMAX, REF_SIGMOID };
enum ref_scope { REF_SCOPE_LAYER, REF_SCOPE_GLOBAL };
enum ref_evict { REF_LRU, REF_FIFO, REF_LFU, REF_LFU_DECAY, REF_BELADY, REF_BELADY_BYPASS };
enum ref_miss { REF_FETCH, REF_THRESHOLD, REF_FIRST_CHOICE, REF_SUBSTITUTE, REF_DROP, REF_CPU };
enum ref_place { REF_ABSENT, REF_RESIDENT, REF_QUEUED, REF_UNDER_WAY };

struct ref_trace {
	uint32_t n_layer;
	uint32_t n_expert;
	uint32_t top_k;
	enum ref_gating gating;
	uint32_t n_group;       /* 0 or 1: no groups */
	uint32_t topk_group;    /* read only when n_group > 1 */
	double *bias;           /* [n_layer][n_expert], or NULL: the model has none */
	uint64_t *expert_bytes; /* [n_layer], bytes of one expert */
	uint64_t *dense_bytes;  /* [n_layer]; a fact of the header, the replay does not read it */
	uint32_t n_token;
	uint32_t *sequence;     /* [n_token], equal for neighbours of one sequence */
	uint32_t *pass;         /* [n_token], equal for neighbours of one recorded pass within a sequence */
	uint8_t *present;       /* [n_token][n_layer], 0: the row is absent */
	float *logit;           /* [n_token][n_layer][n_expert] */
};

struct ref_config {
	enum ref_scope scope;
	const uint64_t *slots; /* [n_layer], scope layer: C of every layer (0 allowed) */
	uint64_t pool_bytes;   /* scope global */
	enum ref_evict evict;
	double half_life;      /* h of lfu-decay, in tokens, > 0 */
	enum ref_miss miss;
	double tau;            /* of threshold and drop */
	int background;        /* background admission on */
	double beta;
	int prefill_batch;     /* 0: every token its own pass */
	uint32_t warmup;       /* N, tokens */
	int reset_per_sequence;
	const struct ref_trace *preload; /* popularity comes from this trace; NULL: cold */
	int preload_all;       /* every expert, lowest ids first where they do not all fit (preload must be NULL) */

	/* Hardware. A NULL array means 0 in every layer. Times in us; 1 GB = 1e9 bytes; 0 GB/s = infinitely fast. */
	const double *dense_us;      /* [n_layer] */
	const double *gpu_expert_us; /* [n_layer] */
	const double *cpu_expert_us; /* [n_layer] */
	double cpu_roundtrip_us;
	double token_us;
	double link_gb_s;
	double link_latency_us;
	int disk;                    /* the disk tier is on */
	double disk_gb_s;
	double disk_latency_us;
	uint64_t host_expert_bytes;  /* H */

	int want_tokens; /* fill ref_result.token */
	FILE *log;       /* one line an event for people who hunt a difference, or NULL */
};

struct ref_counters {
	uint64_t tokens, rows, picks, accesses, hits, late_hits, misses, fetches, substitutions, drops, cpu_picks;
	uint64_t substitute_fallbacks, bypasses, background_copies, evictions, link_bytes;
	double substituted_mass, dropped_mass; /* sums over rows */
};

/* Times of the counted passes, us. */
struct ref_time {
	double total; /* sum of the passes' (end - start); in a layer: of (layer end - T) */
	double dense, gpu, link_wait, disk_wait, cpu_wait, token; /* R19; token is 0 in a layer */
};

/* What happened at one token, over all layers. Filled for every token, those of the warm-up included. */
struct ref_token {
	double substituted_mass, dropped_mass;
	uint64_t accesses, hits, late_hits, misses, fetches, substitutions, drops, cpu_picks;
};

struct ref_result {
	struct ref_counters counters;
	struct ref_counters *layer; /* [n_layer] */
	struct ref_time time;
	struct ref_time *layer_time; /* [n_layer] */
	uint64_t pass_tokens;        /* tokens of the counted passes: time per token = time.total / pass_tokens */
	struct ref_token *token;     /* [n_token], or NULL when not asked for */
	uint8_t *place;              /* [n_layer][n_expert], enum ref_place after the last event */
	double *acc;                 /* [n_layer][n_expert], background accumulators after the last event */
};

/* How often a rule or a rare branch of it was reached. The names are in ref_branch_name(). */
enum ref_branch {
	REF_R1_SOFTMAX, REF_R1_SIGMOID,
	REF_R2_BY_LOGIT, REF_R2_BY_SCORE, REF_R2_GROUPS, REF_R2_TIE, REF_R2_GROUP_TIE, REF_R2_GROUP_BARS,
	REF_R3_WEIGHTS, REF_R3_ZERO_SUM,
	REF_R4_LAYER, REF_R4_GLOBAL, REF_R4_FEWER_THAN_K, REF_R4_NO_SLOT,
	REF_R5_COLD, REF_R5_PRELOAD, REF_R5_PRELOAD_ALL, REF_R5_PRELOAD_TIE, REF_R5_PRELOAD_UNREQUESTED,
	REF_R5_PRELOAD_POOL_FULL, REF_R5_PRELOAD_HIT, REF_R5_RESET, REF_R5_RESET_DROPS_COPY, REF_R5_RESET_DROPS_ACC,
	REF_R5_WARMUP, REF_R5_WARMUP_CUTS_PASS, REF_R5_WARMUP_SHARED_ACCESS,
	REF_ABSENT_ROW, REF_ABSENT_ROW_IN_EVENT, REF_ABSENT_EVENT, REF_BATCH_EVENT,
	REF_R6_START, REF_R6_DELAYED_BY_LINK, REF_R6_LINK_BUSY, REF_R6_WAITS_FOR_DISK, REF_R6_HEAD_BLOCKS, REF_R6_LAND,
	REF_R6_STILL_UNDER_WAY,
	REF_R7_HIT, REF_R7_LATE_QUEUED, REF_R7_LATE_UNDER_WAY, REF_R7_MISS, REF_R7_SHARED,
	REF_R8_FETCH, REF_R8_SUBSTITUTE, REF_R8_DROP, REF_R8_CPU, REF_R8_OVERRULED, REF_R8_TAU_EQUAL,
	REF_R9_SUBSTITUTE, REF_R9_TIE, REF_R9_IGNORES_GROUPS, REF_R9_ALREADY_USED, REF_R9_SHARED, REF_R9_FALLBACK,
	REF_R9_FALLBACK_OTHER_KEEPS,
	REF_R10_FETCH_KEPT, REF_R10_LATE_HIT_QUEUED, REF_R10_LATE_HIT_UNDER_WAY, REF_R10_LATE_MISS,
	REF_R11_FREE, REF_R11_EVICT, REF_R11_OTHER_LAYER, REF_R11_SEVERAL_VICTIMS, REF_R11_NO_ROOM,
	REF_R11_NO_ROOM_RESERVED, REF_R11_EVICTED_IN_VAIN, REF_R11_LARGER_THAN_POOL,
	REF_R12_ADD, REF_R12_LATE, REF_R12_FETCHED, REF_R12_QUEUED, REF_R12_BELOW, REF_R12_QUEUE, REF_R12_REFUSED,
	REF_R12_RETRY, REF_R12_FETCH_KEEPS_ACC, REF_R12_BETA_EQUAL,
	REF_R13_SUBSTITUTED, REF_R13_DROPPED,
	REF_R14_AT_T1, REF_R14_WAITS_FOR_LINK, REF_R14_WAITS_FOR_DISK, REF_R14_OVERTAKES, REF_R14_BEHIND_BACKGROUND,
	REF_R15_FROM_T1, REF_R15_HIT_IS_SUBSTITUTE, REF_R15_WAITS, REF_R15_NO_WAIT,
	REF_R16_CPU, REF_R16_CPU_LAST, REF_R16_GPU_LAST, REF_R16_WAITS_FOR_DISK,
	REF_R17_TOKEN, REF_R17_PASS_LEFT_OUT,
	REF_R18_READ, REF_R18_DISK_BUSY, REF_R18_BACKGROUND, REF_R18_HOST_HIT, REF_R18_IN_FLIGHT, REF_R18_HOST_EVICT,
	REF_R18_EVICT_IN_FLIGHT, REF_R18_LARGER_THAN_HOST,
	REF_R19_DISK_WAIT, REF_R19_LINK_WAIT, REF_R19_DISK_THEN_LINK, REF_R19_CPU_WAIT,
	REF_EVICT_LRU, REF_EVICT_FIFO, REF_EVICT_LFU, REF_EVICT_LFU_TIE, REF_EVICT_DECAY, REF_EVICT_DECAY_TIE,
	REF_EVICT_BELADY, REF_EVICT_BELADY_NEVER, REF_EVICT_BELADY_NEVER_TIE, REF_EVICT_BELADY_EVENT_TIE,
	REF_EVICT_BELADY_BYPASS, REF_EVICT_BELADY_BYPASS_TIE,
	REF_N_BRANCH
};

struct ref_coverage {
	uint64_t times[REF_N_BRANCH];
};

/* The name of a branch, such as "R9 fallback: no substitute left"; never NULL below REF_N_BRANCH. */
const char *ref_branch_name(enum ref_branch branch);

/* Prints "name : times" for every branch; returns how many were never reached. */
unsigned ref_coverage_print(const struct ref_coverage *coverage, FILE *out);

/*
 * Allocates a zeroed trace: softmax, no bias, no groups, expert_bytes 1, one sequence, every token its own pass, every
 * row present with logits 0. The caller then writes what it wants; bias may be set to a malloc'd array, which
 * ref_trace_free() frees. Running out of memory aborts (this is a test).
 */
void ref_trace_init(struct ref_trace *trace, uint32_t n_layer, uint32_t n_expert, uint32_t top_k, uint32_t n_token);
void ref_trace_free(struct ref_trace *trace);

/* The row [n_expert] of one token and layer, to be written. */
float *ref_trace_row(struct ref_trace *trace, uint32_t token, uint32_t layer);

/*
 * R1-R3 of one row. selected [top_k] in rank order, weight [top_k], score [n_expert] the selection score that R2 and
 * R9 compare. REF_BAD_TRACE when the row is invalid.
 */
int ref_route(const struct ref_trace *trace, uint32_t token, uint32_t layer, uint32_t *selected, double *weight,
	      double *score);

/* R4: slots for a percentage of E, rounded half up, at least 1. */
uint64_t ref_slots_percent(uint32_t n_expert, double percent);

/* R4: slots of every layer for a number of bytes, scope layer; 0: an error, not even one slot. */
uint64_t ref_slots_bytes(const struct ref_trace *trace, uint64_t bytes);

/*
 * Replays the trace. Returns REF_OK and fills *result (free it with ref_result_free()), or a negative enum ref_status
 * and leaves nothing to free. coverage is added to, so that one table can sum many runs; it may be NULL.
 */
int ref_replay(const struct ref_trace *trace, const struct ref_config *config, struct ref_result *result,
	       struct ref_coverage *coverage);
void ref_result_free(struct ref_result *result);

#endif
