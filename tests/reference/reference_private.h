/*
 * What the files of the reference replay share among themselves: the state of a replay, and the steps that one file
 * calls in another. Read reference.h first; every block names the rule of semantics.md it implements.
 *
 * trace.c     traces as the caller makes them
 * route.c     R1-R3: scores, selection, weights
 * start.c     R5: cold start, preload, reset
 * decide.c    R7-R9: judgement, miss rule, substitutes
 * room.c      R4 sizes, R11 room, the table of eviction policies
 * event.c     an event in order, R10 access and fetch, R12 background admission, R13 masses
 * time.c      R6 queue and landing, R14-R16 and R19 times, R18 disk tier
 * replay.c    the passes (R17), the counters of the run, memory
 * coverage.c  how often each branch was reached
 */
#ifndef GATEMASS_TESTS_REFERENCE_PRIVATE_H
#define GATEMASS_TESTS_REFERENCE_PRIVATE_H

#include "tests/reference/reference.h"

#include <stddef.h>
#include <stdlib.h>

/* ------------------------------------------------------------------- state */

/* The routes of all rows of a trace. */
struct routes {
	uint32_t *selected; /* [n_token][n_layer][top_k] */
	double *weight;     /* [n_token][n_layer][top_k] */
	double *score;      /* [n_token][n_layer][n_expert] */
	uint8_t *open;      /* [n_token][n_layer][n_expert] */
};

/* All that is known about one expert of one layer. */
struct expert {
	enum ref_place place;
	uint64_t insertion;   /* tick of taking or reserving its slot */
	uint64_t last_access; /* tick; 0 before everything */
	uint64_t count;       /* accesses since the start */
	double decayed_count; /* lfu-decay, as of last_token */
	uint32_t last_token;  /* current token of its last access */
	double acc;           /* R12 */
	int refused;          /* coverage only: its last reservation was refused */
	int preloaded;        /* coverage only: preloaded and not accessed since */

	/* Its background copy, while place is QUEUED or UNDER_WAY. */
	uint64_t queue_number; /* FIFO order */
	double queued_us;      /* "time queued": T1, or the end of its disk read */
	double arrival_us;     /* of a copy under way */

	/* R18: host RAM. */
	int in_host;
	uint64_t host_touch; /* tick of the last issue */
	double read_end_us;  /* of the read that brought it into host RAM */
};

/* The status of an expert in the present event (R7). */
enum judgement { NOT_REQUESTED, HIT, LATE, MISS };

/* The answer for one (row, expert) (R8, R9). */
enum answer { ANSWER_HIT, ANSWER_FETCH, ANSWER_SUBSTITUTE, ANSWER_DROP, ANSWER_CPU };

struct replay {
	const struct ref_trace *trace;
	const struct ref_config *config;
	struct ref_result *result;
	struct ref_coverage *coverage;
	struct routes routes;

	/* Passes in trace order. */
	uint32_t n_pass;
	uint32_t *pass_first;  /* [n_pass] first token */
	uint32_t *pass_length; /* [n_pass] tokens */

	/* R5: popularity of every expert in the preload trace, all 0 for preload_all. */
	uint64_t *popularity; /* [n_layer][n_expert] */

	/* State. */
	struct expert *expert; /* [n_layer][n_expert] */
	uint64_t access_clock, insertion_clock, queue_clock, host_clock;
	double now_us;       /* T of the next event */
	double link_free_us; /* the link does nothing from here on */
	double disk_free_us;

	/* The event at work. */
	uint32_t pass, layer;
	uint32_t current_token; /* the pass's first token */
	double t1_us;
	uint32_t n_row;
	uint32_t *row_token; /* [n_row] token of each present row */
	uint32_t n_request;
	uint32_t *request;         /* [n_request] experts in order of first appearance */
	uint32_t *request_token;   /* [n_expert] token of the row of first appearance */
	enum judgement *judgement; /* [n_expert] */
	enum answer *answer;       /* [n_row][top_k] */
	uint8_t *fetched;          /* [n_expert] some row's answer is FETCH */
	uint8_t *on_cpu;           /* [n_expert] some row's answer is CPU */
	uint8_t *is_substitute;    /* [n_expert] substitutes in some row */
	uint8_t *queued_now;       /* [n_expert] its copy was queued in this event */
	double *arrival_us;        /* [n_expert] of what is fetched or a late hit */
	double *read_end_us;       /* [n_expert] of what is fetched, a late hit or computed on the CPU */
	uint8_t *pinned;           /* [n_layer][n_expert] */
};

/* ----------------------------------------------------- small things shared by the files */

static inline void reach(struct ref_coverage *coverage, enum ref_branch branch)
{
	if (coverage)
		coverage->times[branch]++;
}

static inline void *zalloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p) {
		fprintf(stderr, "reference: out of memory\n");
		abort();
	}
	return p;
}

static inline size_t row_index(const struct ref_trace *trace, uint32_t token, uint32_t layer)
{
	return (size_t)token * trace->n_layer + layer;
}

static inline size_t expert_id(const struct replay *r, uint32_t layer, uint32_t e)
{
	return (size_t)layer * r->trace->n_expert + e;
}

static inline uint32_t layer_of(const struct replay *r, size_t id)
{
	return (uint32_t)(id / r->trace->n_expert);
}

static inline size_t n_id(const struct replay *r)
{
	return (size_t)r->trace->n_layer * r->trace->n_expert;
}

static inline uint64_t bytes_of(const struct replay *r, size_t id)
{
	return r->trace->expert_bytes[layer_of(r, id)];
}

static inline double layer_value(const double *values, uint32_t layer)
{
	return values ? values[layer] : 0.0;
}

/* R5: the first N tokens of the trace are left out of every statistic. */
static inline uint64_t counted(const struct replay *r, uint32_t token)
{
	return token >= r->config->warmup ? 1 : 0;
}

/* The counters and the times of the layer at work. */
static inline struct ref_counters *layer_counters(struct replay *r)
{
	return &r->result->layer[r->layer];
}

static inline struct ref_token *token_result(struct replay *r, uint32_t token)
{
	return &r->result->token[token];
}

/* Index in the routes and in `present` of the i-th present row of the event at work. */
static inline size_t event_row(const struct replay *r, uint32_t row)
{
	return row_index(r->trace, r->row_token[row], r->layer);
}

static inline const uint32_t *row_selected(const struct replay *r, uint32_t row)
{
	return r->routes.selected + event_row(r, row) * r->trace->top_k;
}

static inline const double *row_weight(const struct replay *r, uint32_t row)
{
	return r->routes.weight + event_row(r, row) * r->trace->top_k;
}

static inline enum answer *row_answer(const struct replay *r, uint32_t row)
{
	return r->answer + (size_t)row * r->trace->top_k;
}

/* -------------------------------------------------------------- trace.c, route.c */

int ref_trace_is_valid(const struct ref_trace *trace);

/* R1-R3 of all present rows. REF_BAD_TRACE, and nothing to free, when one is invalid. */
int ref_routes_init(struct routes *routes, const struct ref_trace *trace, struct ref_coverage *coverage);
void ref_routes_free(struct routes *routes);

/* ---------------------------------------------------------------- start.c: R5 */

/* Fills r->popularity from the preload trace. */
int ref_count_popularity(struct replay *r);

/* Everything as before the first token, the preload included. */
void ref_start(struct replay *r);

/* The same at a new sequence. */
void ref_reset(struct replay *r);

/* ------------------------------------------------------- room.c: R11, eviction */

/*
 * Makes room for one expert; 1: there is room. fetch: it is a fetched expert, not a reservation, so belady-bypass may
 * refuse it. Victims that went before nothing was left to evict stay evicted. token: to whom an eviction counts.
 */
int ref_make_room(struct replay *r, size_t id, int fetch, uint32_t token);

/* 2^(-delta/h), delta = tokens from the expert's last access to the current token. */
double ref_decay(const struct replay *r, const struct expert *x);

/* ------------------------------------------------------------- decide.c: R7-R9 */

void ref_classify(struct replay *r);   /* R7 */
void ref_decide(struct replay *r);     /* R8 */
void ref_substitute(struct replay *r); /* R9 */

/* --------------------------------------------------- event.c: an event, R10, R12, R13 */

/* The event of r->pass and r->layer, if any of its rows is present. */
void ref_run_event(struct replay *r);

/* ------------------------------------------------------ time.c: R6, R14-R16, R18, R19 */

/* R6: starts queued copies and lands those that have arrived by T1. */
void ref_link_and_landing(struct replay *r);

/*
 * R18: one issue at T1: touches the expert in host RAM, reads it if it is not there. Returns the end of its read,
 * before which nothing may be done with it: never before T1, and T1 itself without a disk tier.
 */
double ref_issue_read(struct replay *r, size_t id);

/* R14: a copy that is asked for now: at max(T1, link free), not before its read has ended. */
void ref_start_copy_now(struct replay *r, size_t id, uint32_t e);

/* R15, R16, R19: the layer's end, and its split into the statistics if the pass counts (R17). */
double ref_layer_end(struct replay *r);

#endif
