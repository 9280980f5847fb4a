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

#include "tests/reference/branches.h"

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
	uint32_t *sequence; /* [n_token], equal for neighbours of one sequence */
	uint32_t *pass;     /* [n_token], equal for neighbours of one recorded pass within a sequence */
	uint8_t *present;   /* [n_token][n_layer], 0: the row is absent */
	float *logit;       /* [n_token][n_layer][n_expert] */
};

struct ref_config {
	enum ref_scope scope;
	const uint64_t *slots; /* [n_layer], scope layer: C of every layer (0 allowed) */
	uint64_t pool_bytes;   /* scope global */
	enum ref_evict evict;
	double half_life; /* h of lfu-decay, in tokens, > 0 */
	enum ref_miss miss;
	double tau;     /* of threshold and drop */
	int background; /* background admission on */
	double beta;
	int prefill_batch; /* 0: every token its own pass */
	uint32_t warmup;   /* N, tokens */
	int reset_per_sequence;
	const struct ref_trace *preload; /* popularity comes from this trace; NULL: cold */
	int preload_all; /* every expert, lowest ids first where they do not all fit (preload must be NULL) */

	/* Hardware. A NULL array means 0 in every layer. Times in us; 1 GB = 1e9 bytes; 0 GB/s = infinitely fast. */
	const double *dense_us;      /* [n_layer] */
	const double *gpu_expert_us; /* [n_layer] */
	const double *cpu_expert_us; /* [n_layer] */
	double cpu_roundtrip_us;
	double token_us;
	double link_gb_s;
	double link_latency_us;
	int disk; /* the disk tier is on */
	double disk_gb_s;
	double disk_latency_us;
	uint64_t host_expert_bytes; /* H */

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

/* How often a rule or a rare branch of it was reached. The list is in branches.h. */
#define REF_BRANCH_ENUM(branch, name) branch,
enum ref_branch { REF_BRANCHES(REF_BRANCH_ENUM) REF_N_BRANCH };
#undef REF_BRANCH_ENUM

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
