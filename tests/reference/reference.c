/* The slow reference replay. Read reference.h first; every block names the rule of semantics.md it implements. */
#include "reference.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- coverage */

static const char *const branch_names[REF_N_BRANCH] = {
	[REF_R1_SOFTMAX] = "R1 softmax row",
	[REF_R1_SIGMOID] = "R1 sigmoid row",
	[REF_R2_BY_LOGIT] = "R2 selection by logit (no bias, no groups)",
	[REF_R2_BY_SCORE] = "R2 selection by p + b",
	[REF_R2_GROUPS] = "R2 selection with groups",
	[REF_R2_TIE] = "R2 tie in selection",
	[REF_R2_GROUP_TIE] = "R2 tie in group score",
	[REF_R2_GROUP_BARS] = "R2 group limit bars an expert better than a selected one",
	[REF_R3_WEIGHTS] = "R3 weights by p",
	[REF_R3_ZERO_SUM] = "R3 weights 1/k because the sum is 0",
	[REF_R4_LAYER] = "R4 scope layer run",
	[REF_R4_GLOBAL] = "R4 scope global run",
	[REF_R4_FEWER_THAN_K] = "R4 layer with 0 < C < k",
	[REF_R4_NO_SLOT] = "R4 layer with C = 0",
	[REF_R5_COLD] = "R5 cold start",
	[REF_R5_PRELOAD] = "R5 expert preloaded by popularity",
	[REF_R5_PRELOAD_ALL] = "R5 expert preloaded by preload_all",
	[REF_R5_PRELOAD_TIE] = "R5 popularity tie at the preload's edge",
	[REF_R5_PRELOAD_UNREQUESTED] = "R5 expert preloaded that the preload trace never requests",
	[REF_R5_PRELOAD_POOL_FULL] = "R5 preload ends because the pool is full",
	[REF_R5_PRELOAD_HIT] = "R5 first access of a preloaded expert is a hit",
	[REF_R5_RESET] = "R5 reset at a new sequence",
	[REF_R5_RESET_DROPS_COPY] = "R5 reset drops a queued copy or one under way",
	[REF_R5_RESET_DROPS_ACC] = "R5 reset clears an accumulator above 0",
	[REF_R5_WARMUP] = "R5 token left out as warm-up",
	[REF_R5_WARMUP_CUTS_PASS] = "R5 warm-up ends inside a batch pass",
	[REF_R5_WARMUP_SHARED_ACCESS] = "R5 expert requested by a warm-up row and again by a counted row of one event",
	[REF_ABSENT_ROW] = "absent row",
	[REF_ABSENT_ROW_IN_EVENT] = "absent row in an event that has others",
	[REF_ABSENT_EVENT] = "absent event",
	[REF_BATCH_EVENT] = "event with several rows",
	[REF_R6_START] = "R6 queued copy starts",
	[REF_R6_DELAYED_BY_LINK] = "R6 queued copy starts late because the link was busy",
	[REF_R6_LINK_BUSY] = "R6 queue stops: the link is busy beyond T1",
	[REF_R6_WAITS_FOR_DISK] = "R6 queue stops: the head's read ends after T1",
	[REF_R6_HEAD_BLOCKS] = "R6 FIFO head blocks a copy that could start",
	[REF_R6_LAND] = "R6 copy lands",
	[REF_R6_STILL_UNDER_WAY] = "R6 copy still under way after landing",
	[REF_R7_HIT] = "R7 hit",
	[REF_R7_LATE_QUEUED] = "R7 late, copy queued",
	[REF_R7_LATE_UNDER_WAY] = "R7 late, copy under way",
	[REF_R7_MISS] = "R7 miss",
	[REF_R7_SHARED] = "R7 one expert in several rows of an event",
	[REF_R8_FETCH] = "R8 FETCH",
	[REF_R8_SUBSTITUTE] = "R8 SUBSTITUTE",
	[REF_R8_DROP] = "R8 DROP",
	[REF_R8_CPU] = "R8 CPU",
	[REF_R8_OVERRULED] = "R8 another answer becomes FETCH because another row says so",
	[REF_R8_TAU_EQUAL] = "R8 weight equals tau",
	[REF_R9_SUBSTITUTE] = "R9 substitute found",
	[REF_R9_TIE] = "R9 tie between substitutes",
	[REF_R9_IGNORES_GROUPS] = "R9 substitute from a group that is not eligible",
	[REF_R9_ALREADY_USED] = "R9 best resident is already a substitute in this row",
	[REF_R9_SHARED] = "R9 one resident substitutes in several rows",
	[REF_R9_FALLBACK] = "R9 fallback: no substitute left",
	[REF_R9_FALLBACK_OTHER_KEEPS] = "R9 fallback while another row keeps its substitute",
	[REF_R10_FETCH_KEPT] = "R10 fetched and inserted",
	[REF_R10_LATE_HIT_QUEUED] = "R10 late hit, queued copy promoted",
	[REF_R10_LATE_HIT_UNDER_WAY] = "R10 late hit, copy under way",
	[REF_R10_LATE_MISS] = "R10 late counted as miss",
	[REF_R11_FREE] = "R11 room without a victim",
	[REF_R11_EVICT] = "R11 eviction",
	[REF_R11_OTHER_LAYER] = "R11 victim from another layer",
	[REF_R11_SEVERAL_VICTIMS] = "R11 several victims for one expert",
	[REF_R11_NO_ROOM] = "R11 bypass: nothing left to evict",
	[REF_R11_NO_ROOM_RESERVED] = "R11 nothing left to evict while a slot is reserved",
	[REF_R11_EVICTED_IN_VAIN] = "R11 no room although something was evicted for it",
	[REF_R11_LARGER_THAN_POOL] = "R11 expert larger than the pool",
	[REF_R12_ADD] = "R12 weight added to acc",
	[REF_R12_LATE] = "R12 pick left out: it was late",
	[REF_R12_FETCHED] = "R12 pick left out: fetched in this event",
	[REF_R12_QUEUED] = "R12 pick left out: queued in this event",
	[REF_R12_BELOW] = "R12 acc below beta",
	[REF_R12_QUEUE] = "R12 copy queued",
	[REF_R12_REFUSED] = "R12 reservation refused, acc kept",
	[REF_R12_RETRY] = "R12 copy queued after an earlier refusal",
	[REF_R12_FETCH_KEEPS_ACC] = "R12 fetch of an expert with acc above 0",
	[REF_R12_BETA_EQUAL] = "R12 acc equals beta",
	[REF_R13_SUBSTITUTED] = "R13 row with substituted mass",
	[REF_R13_DROPPED] = "R13 row with dropped mass",
	[REF_R14_AT_T1] = "R14 fetch starts at T1",
	[REF_R14_WAITS_FOR_LINK] = "R14 fetch waits for the link",
	[REF_R14_WAITS_FOR_DISK] = "R14 fetch waits for its read",
	[REF_R14_OVERTAKES] = "R14 fetch starts ahead of a queued copy",
	[REF_R14_BEHIND_BACKGROUND] = "R14 fetch waits for a background copy under way",
	[REF_R15_FROM_T1] = "R15 hits and substitutes computed from T1",
	[REF_R15_HIT_IS_SUBSTITUTE] = "R15 expert is a hit in one row and a substitute in another",
	[REF_R15_WAITS] = "R15 GPU waits for a fetched expert",
	[REF_R15_NO_WAIT] = "R15 fetched expert arrived before the GPU was free",
	[REF_R16_CPU] = "R16 CPU computes",
	[REF_R16_CPU_LAST] = "R16 CPU ends the layer",
	[REF_R16_GPU_LAST] = "R16 GPU ends the layer although the CPU had picks",
	[REF_R16_WAITS_FOR_DISK] = "R16 CPU waits for a read",
	[REF_R17_TOKEN] = "R17 pass counted",
	[REF_R17_PASS_LEFT_OUT] = "R17 pass left out",
	[REF_R18_READ] = "R18 read from disk",
	[REF_R18_DISK_BUSY] = "R18 read waits for the disk",
	[REF_R18_BACKGROUND] = "R18 issue for a background copy",
	[REF_R18_HOST_HIT] = "R18 found in host RAM",
	[REF_R18_IN_FLIGHT] = "R18 promoted copy waits for its read, still in flight",
	[REF_R18_HOST_EVICT] = "R18 expert leaves host RAM",
	[REF_R18_EVICT_IN_FLIGHT] = "R18 expert leaves host RAM before its read has ended",
	[REF_R18_LARGER_THAN_HOST] = "R18 expert larger than host RAM",
	[REF_R19_DISK_WAIT] = "R19 disk wait",
	[REF_R19_LINK_WAIT] = "R19 link wait",
	[REF_R19_DISK_THEN_LINK] = "R19 one gap is disk wait, then link wait",
	[REF_R19_CPU_WAIT] = "R19 CPU wait",
	[REF_EVICT_LRU] = "lru victim",
	[REF_EVICT_FIFO] = "fifo victim",
	[REF_EVICT_LFU] = "lfu victim",
	[REF_EVICT_LFU_TIE] = "lfu victim after a tie of counts",
	[REF_EVICT_DECAY] = "lfu-decay victim",
	[REF_EVICT_DECAY_TIE] = "lfu-decay victim after a tie of decayed counts",
	[REF_EVICT_BELADY] = "belady victim with a next access",
	[REF_EVICT_BELADY_NEVER] = "belady victim that is never accessed again",
	[REF_EVICT_BELADY_NEVER_TIE] = "belady tie: several are never accessed again",
	[REF_EVICT_BELADY_EVENT_TIE] = "belady tie: next access in the same event",
	[REF_EVICT_BELADY_BYPASS] = "belady-bypass: the fetched expert itself is not kept",
	[REF_EVICT_BELADY_BYPASS_TIE] = "belady-bypass: tie between the fetched expert and a resident",
};

const char *ref_branch_name(enum ref_branch branch)
{
	return branch_names[branch];
}

unsigned ref_coverage_print(const struct ref_coverage *coverage, FILE *out)
{
	unsigned n_zero = 0;

	for (unsigned i = 0; i < REF_N_BRANCH; i++) {
		fprintf(out, "%12llu  %s\n", (unsigned long long)coverage->times[i], branch_names[i]);
		if (coverage->times[i] == 0)
			n_zero++;
	}
	return n_zero;
}

static void reach(struct ref_coverage *coverage, enum ref_branch branch)
{
	if (coverage)
		coverage->times[branch]++;
}

/* ------------------------------------------------------------------ traces */

static void *zalloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p) {
		fprintf(stderr, "reference: out of memory\n");
		abort();
	}
	return p;
}

void ref_trace_init(struct ref_trace *trace, uint32_t n_layer, uint32_t n_expert, uint32_t top_k, uint32_t n_token)
{
	memset(trace, 0, sizeof(*trace));
	trace->n_layer = n_layer;
	trace->n_expert = n_expert;
	trace->top_k = top_k;
	trace->gating = REF_SOFTMAX;
	trace->n_token = n_token;
	trace->expert_bytes = zalloc(n_layer, sizeof(uint64_t));
	trace->dense_bytes = zalloc(n_layer, sizeof(uint64_t));
	trace->sequence = zalloc(n_token, sizeof(uint32_t));
	trace->pass = zalloc(n_token, sizeof(uint32_t));
	trace->present = zalloc((size_t)n_token * n_layer, 1);
	trace->logit = zalloc((size_t)n_token * n_layer * n_expert, sizeof(float));
	for (uint32_t l = 0; l < n_layer; l++)
		trace->expert_bytes[l] = 1;
	for (uint32_t t = 0; t < n_token; t++)
		trace->pass[t] = t;
	memset(trace->present, 1, (size_t)n_token * n_layer);
}

void ref_trace_free(struct ref_trace *trace)
{
	free(trace->bias);
	free(trace->expert_bytes);
	free(trace->dense_bytes);
	free(trace->sequence);
	free(trace->pass);
	free(trace->present);
	free(trace->logit);
	memset(trace, 0, sizeof(*trace));
}

static size_t row_index(const struct ref_trace *trace, uint32_t token, uint32_t layer)
{
	return (size_t)token * trace->n_layer + layer;
}

float *ref_trace_row(struct ref_trace *trace, uint32_t token, uint32_t layer)
{
	return trace->logit + row_index(trace, token, layer) * trace->n_expert;
}

static int trace_is_valid(const struct ref_trace *trace)
{
	if (trace->n_layer == 0 || trace->n_expert == 0 || trace->top_k == 0 || trace->top_k > trace->n_expert)
		return 0;
	if (trace->n_group > 1) {
		if (trace->n_expert % trace->n_group != 0)
			return 0;
		if (trace->topk_group == 0 || trace->topk_group > trace->n_group)
			return 0;
		/* R2: fewer than k eligible. */
		if (trace->topk_group * (trace->n_expert / trace->n_group) < trace->top_k)
			return 0;
	}
	return 1;
}

/* ----------------------------------------------------------------- routing */

/*
 * R2: opens the experts of the topk_group best groups. A group's score is the sum of its two largest scores (of its
 * only one, if groups have one expert).
 */
static void open_groups(const struct ref_trace *trace, const double *score, uint8_t *open,
			struct ref_coverage *coverage)
{
	uint32_t size = trace->n_expert / trace->n_group;
	double *group_score = zalloc(trace->n_group, sizeof(double));
	uint8_t *taken = zalloc(trace->n_group, 1);

	for (uint32_t g = 0; g < trace->n_group; g++) {
		const double *s = score + (size_t)g * size;
		uint32_t best = 0;
		int second = -1;

		for (uint32_t i = 1; i < size; i++)
			if (s[i] > s[best])
				best = i;
		for (uint32_t i = 0; i < size; i++)
			if (i != best && (second < 0 || s[i] > s[second]))
				second = (int)i;
		group_score[g] = s[best];
		if (second >= 0)
			group_score[g] = s[best] + s[second];
	}
	memset(open, 0, trace->n_expert);
	for (uint32_t n = 0; n < trace->topk_group; n++) {
		int best = -1;

		/* Ties to the lower group: a later group must be strictly better. */
		for (uint32_t g = 0; g < trace->n_group; g++)
			if (!taken[g] && (best < 0 || group_score[g] > group_score[best]))
				best = (int)g;
		for (uint32_t g = 0; g < trace->n_group; g++)
			if (!taken[g] && (int)g != best && group_score[g] >= group_score[best])
				reach(coverage, REF_R2_GROUP_TIE);
		taken[best] = 1;
		memset(open + (size_t)best * size, 1, size);
	}
	free(group_score);
	free(taken);
}

/* R1-R3 of one row; open [n_expert]: the expert is eligible under the group limits. */
static int route_row(const struct ref_trace *trace, uint32_t token, uint32_t layer, uint32_t *selected, double *weight,
		     double *score, uint8_t *open, struct ref_coverage *coverage)
{
	uint32_t n_expert = trace->n_expert;
	const float *z = trace->logit + row_index(trace, token, layer) * n_expert;
	const double *bias = trace->bias ? trace->bias + (size_t)layer * n_expert : NULL;
	double *p = zalloc(n_expert, sizeof(double));
	uint8_t *taken = zalloc(n_expert, 1);
	int status = REF_OK;

	/* R2: a logit that is not finite makes the trace invalid. */
	for (uint32_t e = 0; e < n_expert; e++)
		if (!isfinite(z[e]) || (bias && !isfinite(bias[e]))) {
			status = REF_BAD_TRACE;
			goto out;
		}

	/* R1: scores, in double. The largest logit is subtracted so that exp() cannot overflow. */
	if (trace->gating == REF_SOFTMAX) {
		double max = (double)z[0];
		double sum = 0;

		for (uint32_t e = 1; e < n_expert; e++)
			if ((double)z[e] > max)
				max = (double)z[e];
		for (uint32_t e = 0; e < n_expert; e++) {
			p[e] = exp((double)z[e] - max);
			sum += p[e];
		}
		for (uint32_t e = 0; e < n_expert; e++)
			p[e] = p[e] / sum;
		reach(coverage, REF_R1_SOFTMAX);
	} else {
		for (uint32_t e = 0; e < n_expert; e++)
			p[e] = 1.0 / (1.0 + exp(-(double)z[e]));
		reach(coverage, REF_R1_SIGMOID);
	}

	/* R2: what is compared. Neither bias nor groups: the logit itself. */
	if (!bias && trace->n_group <= 1) {
		for (uint32_t e = 0; e < n_expert; e++)
			score[e] = (double)z[e];
		reach(coverage, REF_R2_BY_LOGIT);
	} else {
		for (uint32_t e = 0; e < n_expert; e++)
			score[e] = p[e] + (bias ? bias[e] : 0.0);
		reach(coverage, REF_R2_BY_SCORE);
	}

	/* R2: groups. */
	memset(open, 1, n_expert);
	if (trace->n_group > 1) {
		open_groups(trace, score, open, coverage);
		reach(coverage, REF_R2_GROUPS);
	}

	/* R2: the k eligible experts with the largest score, ties to the lower id, in rank order. */
	for (uint32_t rank = 0; rank < trace->top_k; rank++) {
		int best = -1;

		for (uint32_t e = 0; e < n_expert; e++)
			if (open[e] && !taken[e] && (best < 0 || score[e] > score[best]))
				best = (int)e;
		assert(best >= 0);
		for (uint32_t e = 0; e < n_expert; e++) {
			if (open[e] && !taken[e] && (int)e != best && score[e] >= score[best])
				reach(coverage, REF_R2_TIE);
			if (!open[e] && score[e] > score[best])
				reach(coverage, REF_R2_GROUP_BARS);
		}
		taken[best] = 1;
		selected[rank] = (uint32_t)best;
	}

	/* R3: gate weights from p (not from p + b), summed in rank order. */
	double sum = 0;

	for (uint32_t rank = 0; rank < trace->top_k; rank++)
		sum += p[selected[rank]];
	for (uint32_t rank = 0; rank < trace->top_k; rank++)
		weight[rank] = sum > 0 ? p[selected[rank]] / sum : 1.0 / (double)trace->top_k;
	reach(coverage, sum > 0 ? REF_R3_WEIGHTS : REF_R3_ZERO_SUM);
out:
	free(p);
	free(taken);
	return status;
}

int ref_route(const struct ref_trace *trace, uint32_t token, uint32_t layer, uint32_t *selected, double *weight,
	      double *score)
{
	uint8_t *open;
	int status;

	if (!trace_is_valid(trace))
		return REF_BAD_TRACE;
	open = zalloc(trace->n_expert, 1);
	status = route_row(trace, token, layer, selected, weight, score, open, NULL);
	free(open);
	return status;
}

/* The routes of all rows of a trace. */
struct routes {
	uint32_t *selected; /* [n_token][n_layer][top_k] */
	double *weight;     /* [n_token][n_layer][top_k] */
	double *score;      /* [n_token][n_layer][n_expert] */
	uint8_t *open;      /* [n_token][n_layer][n_expert] */
};

static void routes_free(struct routes *routes)
{
	free(routes->selected);
	free(routes->weight);
	free(routes->score);
	free(routes->open);
	memset(routes, 0, sizeof(*routes));
}

static int routes_init(struct routes *routes, const struct ref_trace *trace, struct ref_coverage *coverage)
{
	size_t n_row = (size_t)trace->n_token * trace->n_layer;

	routes->selected = zalloc(n_row * trace->top_k, sizeof(uint32_t));
	routes->weight = zalloc(n_row * trace->top_k, sizeof(double));
	routes->score = zalloc(n_row * trace->n_expert, sizeof(double));
	routes->open = zalloc(n_row * trace->n_expert, 1);
	for (uint32_t t = 0; t < trace->n_token; t++)
		for (uint32_t l = 0; l < trace->n_layer; l++) {
			size_t row = row_index(trace, t, l);
			int status;

			if (!trace->present[row])
				continue;
			status = route_row(trace, t, l, routes->selected + row * trace->top_k,
					   routes->weight + row * trace->top_k, routes->score + row * trace->n_expert,
					   routes->open + row * trace->n_expert, coverage);
			if (status) {
				routes_free(routes);
				return status;
			}
		}
	return REF_OK;
}

/* ------------------------------------------------------------------- sizes */

uint64_t ref_slots_percent(uint32_t n_expert, double percent)
{
	/* R4: rounded half up, at least 1. */
	double slots = floor((double)n_expert * percent / 100.0 + 0.5);

	return slots < 1 ? 1 : (uint64_t)slots;
}

uint64_t ref_slots_bytes(const struct ref_trace *trace, uint64_t bytes)
{
	/* R4: floor(bytes / sum over layers of one expert's bytes). */
	uint64_t sum = 0;

	for (uint32_t l = 0; l < trace->n_layer; l++)
		sum += trace->expert_bytes[l];
	return bytes / sum;
}

/* ------------------------------------------------------------------ replay */

#define NEVER UINT64_MAX

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
	uint32_t current_token;    /* the pass's first token */
	double t1_us;
	uint32_t n_row;
	uint32_t *row_token;       /* [n_row] token of each present row */
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

static size_t expert_id(const struct replay *r, uint32_t layer, uint32_t e)
{
	return (size_t)layer * r->trace->n_expert + e;
}

static uint32_t layer_of(const struct replay *r, size_t id)
{
	return (uint32_t)(id / r->trace->n_expert);
}

static size_t n_id(const struct replay *r)
{
	return (size_t)r->trace->n_layer * r->trace->n_expert;
}

static uint64_t bytes_of(const struct replay *r, size_t id)
{
	return r->trace->expert_bytes[layer_of(r, id)];
}

static double layer_value(const double *values, uint32_t layer)
{
	return values ? values[layer] : 0.0;
}

/* R5: the first N tokens of the trace are left out of every statistic. */
static uint64_t counted(const struct replay *r, uint32_t token)
{
	return token >= r->config->warmup ? 1 : 0;
}

/* The counters and the times of the layer at work. */
static struct ref_counters *layer_counters(struct replay *r)
{
	return &r->result->layer[r->layer];
}

static struct ref_token *token_result(struct replay *r, uint32_t token)
{
	return &r->result->token[token];
}

/* bytes / bandwidth; GB/s are 1e3 bytes a us, and 0 means infinitely fast. */
static double transfer_us(double latency_us, double gb_s, uint64_t bytes)
{
	if (gb_s > 0)
		return latency_us + (double)bytes / (gb_s * 1e3);
	return latency_us;
}

/* copy(e) */
static double copy_us(const struct replay *r, size_t id)
{
	return transfer_us(r->config->link_latency_us, r->config->link_gb_s, bytes_of(r, id));
}

/* Index in the routes and in `present` of the i-th present row of the event at work. */
static size_t event_row(const struct replay *r, uint32_t row)
{
	return row_index(r->trace, r->row_token[row], r->layer);
}

static const uint32_t *row_selected(const struct replay *r, uint32_t row)
{
	return r->routes.selected + event_row(r, row) * r->trace->top_k;
}

static const double *row_weight(const struct replay *r, uint32_t row)
{
	return r->routes.weight + event_row(r, row) * r->trace->top_k;
}

static enum answer *row_answer(const struct replay *r, uint32_t row)
{
	return r->answer + (size_t)row * r->trace->top_k;
}

/* -------------------------------------------------------------- eviction */

static int row_requests(const struct replay *r, uint32_t token, uint32_t layer, uint32_t e)
{
	size_t row = row_index(r->trace, token, layer);

	if (!r->trace->present[row])
		return 0;
	for (uint32_t i = 0; i < r->trace->top_k; i++)
		if (r->routes.selected[row * r->trace->top_k + i] == e)
			return 1;
	return 0;
}

/*
 * Belady: the next event after the present one that requests the expert, as pass * n_layer + layer; NEVER if none. The
 * future is the whole rest of the trace, found by looking through it.
 */
static uint64_t next_access(const struct replay *r, size_t id)
{
	uint32_t layer = layer_of(r, id);
	uint32_t e = (uint32_t)(id % r->trace->n_expert);

	for (uint32_t pass = r->pass; pass < r->n_pass; pass++) {
		if (pass == r->pass && layer <= r->layer)
			continue;
		for (uint32_t i = 0; i < r->pass_length[pass]; i++)
			if (row_requests(r, r->pass_first[pass] + i, layer, e))
				return (uint64_t)pass * r->trace->n_layer + layer;
	}
	return NEVER;
}

/* 2^(-delta/h), delta = tokens from the expert's last access to the current token. */
static double decay(const struct replay *r, const struct expert *x)
{
	double delta = (double)(r->current_token - x->last_token);

	return exp2(-delta / r->config->half_life);
}

/* lfu-decay: the count after decay to the current token. */
static double count_now(const struct replay *r, size_t id)
{
	const struct expert *x = &r->expert[id];

	return x->decayed_count * decay(r, x);
}

/* The table of eviction policies: is expert a evicted before expert b? */
static int goes_before(const struct replay *r, size_t a, size_t b)
{
	const struct expert *xa = &r->expert[a];
	const struct expert *xb = &r->expert[b];

	switch (r->config->evict) {
	case REF_LRU:
		return xa->last_access < xb->last_access;
	case REF_FIFO:
		return xa->insertion < xb->insertion;
	case REF_LFU:
		if (xa->count != xb->count)
			return xa->count < xb->count;
		if (xa->last_access != xb->last_access)
			return xa->last_access < xb->last_access;
		return a < b;
	case REF_LFU_DECAY: {
		double ca = count_now(r, a);
		double cb = count_now(r, b);

		if (ca < cb || ca > cb)
			return ca < cb;
		if (xa->last_access != xb->last_access)
			return xa->last_access < xb->last_access;
		return a < b;
	}
	case REF_BELADY:
	case REF_BELADY_BYPASS: {
		uint64_t na = next_access(r, a);
		uint64_t nb = next_access(r, b);

		if (na != nb)
			return na > nb;
		return a < b;
	}
	}
	return 0;
}

static int is_candidate(const struct replay *r, size_t id)
{
	if (r->expert[id].place != REF_RESIDENT || r->pinned[id])
		return 0;
	return r->config->scope == REF_SCOPE_GLOBAL || layer_of(r, id) == r->layer;
}

/* Coverage only: which policy named the victim, and was there a tie on the first criterion? */
static void reach_victim(struct replay *r, size_t victim)
{
	int tie = 0;
	uint64_t next = 0;

	if (r->config->evict == REF_BELADY || r->config->evict == REF_BELADY_BYPASS)
		next = next_access(r, victim);
	for (size_t id = 0; id < n_id(r); id++) {
		if (id == victim || !is_candidate(r, id))
			continue;
		if (r->config->evict == REF_LFU && r->expert[id].count == r->expert[victim].count)
			tie = 1;
		if (r->config->evict == REF_LFU_DECAY && count_now(r, id) <= count_now(r, victim))
			tie = 1;
		if (next != 0 && next_access(r, id) == next)
			tie = 1;
	}
	switch (r->config->evict) {
	case REF_LRU:
		reach(r->coverage, REF_EVICT_LRU);
		break;
	case REF_FIFO:
		reach(r->coverage, REF_EVICT_FIFO);
		break;
	case REF_LFU:
		reach(r->coverage, tie ? REF_EVICT_LFU_TIE : REF_EVICT_LFU);
		break;
	case REF_LFU_DECAY:
		reach(r->coverage, tie ? REF_EVICT_DECAY_TIE : REF_EVICT_DECAY);
		break;
	case REF_BELADY:
	case REF_BELADY_BYPASS:
		reach(r->coverage, next == NEVER ? REF_EVICT_BELADY_NEVER : REF_EVICT_BELADY);
		if (tie)
			reach(r->coverage, next == NEVER ? REF_EVICT_BELADY_NEVER_TIE : REF_EVICT_BELADY_EVENT_TIE);
		break;
	}
}

/* R11: does one more expert fit beside residents and reservations? */
static int fits(const struct replay *r, size_t id)
{
	uint64_t slots = 0;
	uint64_t bytes = 0;

	for (size_t i = 0; i < n_id(r); i++) {
		if (r->expert[i].place == REF_ABSENT)
			continue;
		bytes += bytes_of(r, i);
		if (layer_of(r, i) == r->layer)
			slots++;
	}
	if (r->config->scope == REF_SCOPE_GLOBAL)
		return bytes + bytes_of(r, id) <= r->config->pool_bytes;
	return slots < r->config->slots[r->layer];
}

/*
 * R11: makes room for one expert; 1: there is room. fetch: it is a fetched expert, not a reservation, so belady-bypass
 * may refuse it. Victims that went before nothing was left to evict stay evicted. token: to whom an eviction counts.
 */
static int make_room(struct replay *r, size_t id, int fetch, uint32_t token)
{
	unsigned n_victim = 0;

	if (r->config->scope == REF_SCOPE_GLOBAL && bytes_of(r, id) > r->config->pool_bytes)
		reach(r->coverage, REF_R11_LARGER_THAN_POOL);
	while (!fits(r, id)) {
		size_t victim = SIZE_MAX;

		for (size_t i = 0; i < n_id(r); i++)
			if (is_candidate(r, i) && (victim == SIZE_MAX || goes_before(r, i, victim)))
				victim = i;
		if (victim == SIZE_MAX) {
			for (size_t i = 0; i < n_id(r); i++)
				if (r->expert[i].place == REF_QUEUED || r->expert[i].place == REF_UNDER_WAY) {
					reach(r->coverage, REF_R11_NO_ROOM_RESERVED);
					break;
				}
			if (fetch)
				reach(r->coverage, REF_R11_NO_ROOM);
			if (n_victim > 0)
				reach(r->coverage, REF_R11_EVICTED_IN_VAIN);
			return 0;
		}
		/* belady-bypass: the fetched expert stands in the order too; if it comes first it is not kept. */
		if (r->config->evict == REF_BELADY_BYPASS && fetch) {
			if (next_access(r, id) == next_access(r, victim))
				reach(r->coverage, REF_EVICT_BELADY_BYPASS_TIE);
			if (goes_before(r, id, victim)) {
				reach(r->coverage, REF_EVICT_BELADY_BYPASS);
				return 0;
			}
		}
		reach_victim(r, victim);
		reach(r->coverage, REF_R11_EVICT);
		if (layer_of(r, victim) != r->layer)
			reach(r->coverage, REF_R11_OTHER_LAYER);
		r->expert[victim].place = REF_ABSENT;
		layer_counters(r)->evictions += counted(r, token);
		n_victim++;
	}
	if (n_victim == 0)
		reach(r->coverage, REF_R11_FREE);
	if (n_victim > 1)
		reach(r->coverage, REF_R11_SEVERAL_VICTIMS);
	return 1;
}

/* ------------------------------------------------------------- R5: start */

/* R5: how many rows of the preload trace select each expert. */
static int count_popularity(struct replay *r)
{
	const struct ref_trace *trace = r->config->preload;
	struct routes routes = {0};
	int status;

	if (!trace)
		return REF_OK;
	if (!trace_is_valid(trace) || trace->n_layer != r->trace->n_layer || trace->n_expert != r->trace->n_expert)
		return REF_BAD_TRACE;
	status = routes_init(&routes, trace, NULL);
	if (status)
		return status;
	for (uint32_t t = 0; t < trace->n_token; t++)
		for (uint32_t l = 0; l < trace->n_layer; l++) {
			size_t row = row_index(trace, t, l);

			if (!trace->present[row])
				continue;
			for (uint32_t i = 0; i < trace->top_k; i++)
				r->popularity[expert_id(r, l, routes.selected[row * trace->top_k + i])]++;
		}
	routes_free(&routes);
	return REF_OK;
}

/* R5: inserts ranked[0 .. n-1], least popular first, with ticks of their own and count 0. */
static void insert_preloaded(struct replay *r, const size_t *ranked, size_t n)
{
	for (size_t i = n; i > 0; i--) {
		struct expert *x = &r->expert[ranked[i - 1]];

		x->place = REF_RESIDENT;
		x->insertion = ++r->insertion_clock;
		x->last_access = ++r->access_clock;
		x->preloaded = 1;
		reach(r->coverage, r->config->preload ? REF_R5_PRELOAD : REF_R5_PRELOAD_ALL);
		if (r->config->preload && r->popularity[ranked[i - 1]] == 0)
			reach(r->coverage, REF_R5_PRELOAD_UNREQUESTED);
	}
}

/* Full sort of n ids by popularity, most popular first, ties to the lower id. */
static void rank_by_popularity(const struct replay *r, size_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t j = i + 1; j < n; j++) {
			uint64_t pi = r->popularity[ids[i]];
			uint64_t pj = r->popularity[ids[j]];

			if (pj > pi || (pj == pi && ids[j] < ids[i])) {
				size_t swap = ids[i];

				ids[i] = ids[j];
				ids[j] = swap;
			}
		}
}

/* R5: fills the cache. */
static void preload(struct replay *r)
{
	uint32_t n_expert = r->trace->n_expert;
	size_t *ranked = zalloc(n_id(r), sizeof(size_t));
	size_t n = 0;

	if (r->config->scope == REF_SCOPE_LAYER) {
		for (uint32_t l = 0; l < r->trace->n_layer; l++) {
			for (uint32_t e = 0; e < n_expert; e++)
				ranked[e] = expert_id(r, l, e);
			rank_by_popularity(r, ranked, n_expert);
			n = 0;
			while (n < n_expert && n < r->config->slots[l])
				n++;
			if (n > 0 && n < n_expert && r->popularity[ranked[n - 1]] == r->popularity[ranked[n]])
				reach(r->coverage, REF_R5_PRELOAD_TIE);
			insert_preloaded(r, ranked, n);
		}
	} else {
		uint64_t bytes = 0;

		for (size_t id = 0; id < n_id(r); id++)
			ranked[id] = id;
		rank_by_popularity(r, ranked, n_id(r));
		while (n < n_id(r) && bytes + bytes_of(r, ranked[n]) <= r->config->pool_bytes) {
			bytes += bytes_of(r, ranked[n]);
			n++;
		}
		if (n < n_id(r))
			reach(r->coverage, REF_R5_PRELOAD_POOL_FULL);
		insert_preloaded(r, ranked, n);
	}
	free(ranked);
}

/* R5: everything as before the first token: residents, copies, accumulators, counts, host RAM and all clocks. */
static void start(struct replay *r)
{
	memset(r->expert, 0, n_id(r) * sizeof(*r->expert));
	r->access_clock = 0;
	r->insertion_clock = 0;
	r->queue_clock = 0;
	r->host_clock = 0;
	r->now_us = 0;
	r->link_free_us = 0;
	r->disk_free_us = 0;
	if (r->config->preload || r->config->preload_all)
		preload(r);
	else
		reach(r->coverage, REF_R5_COLD);
}

static void reset(struct replay *r)
{
	reach(r->coverage, REF_R5_RESET);
	for (size_t id = 0; id < n_id(r); id++) {
		if (r->expert[id].place == REF_QUEUED || r->expert[id].place == REF_UNDER_WAY)
			reach(r->coverage, REF_R5_RESET_DROPS_COPY);
		if (r->expert[id].acc > 0)
			reach(r->coverage, REF_R5_RESET_DROPS_ACC);
	}
	start(r);
}

/* -------------------------------------------------------- R18: disk tier */

static uint64_t host_bytes(const struct replay *r)
{
	uint64_t bytes = 0;

	for (size_t id = 0; id < n_id(r); id++)
		if (r->expert[id].in_host)
			bytes += bytes_of(r, id);
	return bytes;
}

/* R18: the least recently touched expert in host RAM, SIZE_MAX if it is empty. */
static size_t host_victim(const struct replay *r)
{
	size_t victim = SIZE_MAX;

	for (size_t id = 0; id < n_id(r); id++)
		if (r->expert[id].in_host &&
		    (victim == SIZE_MAX || r->expert[id].host_touch < r->expert[victim].host_touch))
			victim = id;
	return victim;
}

/*
 * R18: one issue at T1: touches the expert in host RAM, reads it if it is not there. Returns the end of its read,
 * before which nothing may be done with it: never before T1, and T1 itself without a disk tier.
 */
static double issue_read(struct replay *r, size_t id)
{
	struct expert *x = &r->expert[id];
	double start_us;

	if (!r->config->disk)
		return r->t1_us;
	x->host_touch = ++r->host_clock;
	if (x->in_host) {
		/*
		 * Its read has ended: the layer waits for the reads of fetches and CPU picks, and while the read of a
		 * background copy runs its expert is late, so that nothing issues it again.
		 */
		assert(x->read_end_us <= r->t1_us);
		reach(r->coverage, REF_R18_HOST_HIT);
		return r->t1_us;
	}
	/* The disk does one thing at a time, in order of issue. */
	start_us = fmax(r->t1_us, r->disk_free_us);
	if (start_us > r->t1_us)
		reach(r->coverage, REF_R18_DISK_BUSY);
	x->read_end_us = start_us + transfer_us(r->config->disk_latency_us, r->config->disk_gb_s, bytes_of(r, id));
	r->disk_free_us = x->read_end_us;
	reach(r->coverage, REF_R18_READ);

	/* The least recently touched leave until it fits; what is larger than host RAM is not kept. */
	while (host_bytes(r) + bytes_of(r, id) > r->config->host_expert_bytes) {
		size_t victim = host_victim(r);

		if (victim == SIZE_MAX) {
			reach(r->coverage, REF_R18_LARGER_THAN_HOST);
			return x->read_end_us;
		}
		reach(r->coverage, REF_R18_HOST_EVICT);
		if (r->expert[victim].read_end_us > r->t1_us)
			reach(r->coverage, REF_R18_EVICT_IN_FLIGHT);
		r->expert[victim].in_host = 0;
	}
	x->in_host = 1;
	return x->read_end_us;
}

/* ------------------------------------------------------- R6: queue, landing */

/* The queued copy that was queued first, SIZE_MAX if the queue is empty. */
static size_t queue_head(const struct replay *r)
{
	size_t head = SIZE_MAX;

	for (size_t id = 0; id < n_id(r); id++)
		if (r->expert[id].place == REF_QUEUED &&
		    (head == SIZE_MAX || r->expert[id].queue_number < r->expert[head].queue_number))
			head = id;
	return head;
}

/* Coverage only: why the queue stopped at its head. */
static void reach_stopped_queue(struct replay *r, size_t head)
{
	if (r->link_free_us > r->t1_us) {
		reach(r->coverage, REF_R6_LINK_BUSY);
		return;
	}
	reach(r->coverage, REF_R6_WAITS_FOR_DISK);
	for (size_t id = 0; id < n_id(r); id++)
		if (id != head && r->expert[id].place == REF_QUEUED && r->expert[id].queued_us <= r->t1_us) {
			reach(r->coverage, REF_R6_HEAD_BLOCKS);
			return;
		}
}

static void link_and_landing(struct replay *r)
{
	/* R6: queued copies start in FIFO order while their start is not after T1. */
	for (;;) {
		size_t head = queue_head(r);
		struct expert *x;
		double start_us;

		if (head == SIZE_MAX)
			break;
		x = &r->expert[head];
		start_us = fmax(r->link_free_us, x->queued_us);
		if (start_us > r->t1_us) {
			reach_stopped_queue(r, head);
			break;
		}
		reach(r->coverage, REF_R6_START);
		if (start_us > x->queued_us)
			reach(r->coverage, REF_R6_DELAYED_BY_LINK);
		x->place = REF_UNDER_WAY;
		x->arrival_us = start_us + copy_us(r, head);
		r->link_free_us = x->arrival_us;
	}
	/* R6: every copy that has arrived by T1 becomes resident. */
	for (size_t id = 0; id < n_id(r); id++) {
		struct expert *x = &r->expert[id];

		if (x->place != REF_UNDER_WAY)
			continue;
		if (x->arrival_us <= r->t1_us) {
			x->place = REF_RESIDENT;
			reach(r->coverage, REF_R6_LAND);
		} else {
			reach(r->coverage, REF_R6_STILL_UNDER_WAY);
		}
	}
}

/* ------------------------------------------------------ R7-R9: judge, decide */

/* R7: the request list in order of first appearance, and each expert's judgement. */
static void classify(struct replay *r)
{
	uint32_t n_expert = r->trace->n_expert;
	uint8_t *from_warmup = zalloc(n_expert, 1);

	r->n_request = 0;
	for (uint32_t e = 0; e < n_expert; e++)
		r->judgement[e] = NOT_REQUESTED;
	for (uint32_t row = 0; row < r->n_row; row++)
		for (uint32_t i = 0; i < r->trace->top_k; i++) {
			uint32_t e = row_selected(r, row)[i];

			if (r->judgement[e] != NOT_REQUESTED) {
				reach(r->coverage, REF_R7_SHARED);
				if (from_warmup[e] && counted(r, r->row_token[row]))
					reach(r->coverage, REF_R5_WARMUP_SHARED_ACCESS);
				continue;
			}
			from_warmup[e] = !counted(r, r->row_token[row]);
			r->request[r->n_request++] = e;
			r->request_token[e] = r->row_token[row];
			switch (r->expert[expert_id(r, r->layer, e)].place) {
			case REF_RESIDENT:
				r->judgement[e] = HIT;
				reach(r->coverage, REF_R7_HIT);
				break;
			case REF_QUEUED:
				r->judgement[e] = LATE;
				reach(r->coverage, REF_R7_LATE_QUEUED);
				break;
			case REF_UNDER_WAY:
				r->judgement[e] = LATE;
				reach(r->coverage, REF_R7_LATE_UNDER_WAY);
				break;
			case REF_ABSENT:
				r->judgement[e] = MISS;
				reach(r->coverage, REF_R7_MISS);
				break;
			}
		}
	free(from_warmup);
}

/* The table of miss rules: the answer for a pick of rank (1, 2, ...) and weight w. */
static enum answer miss_rule(struct replay *r, uint32_t rank, double w)
{
	double tau = r->config->tau;

	switch (r->config->miss) {
	case REF_FETCH:
		return ANSWER_FETCH;
	case REF_THRESHOLD:
		if (rank != 1 && w >= tau && w <= tau)
			reach(r->coverage, REF_R8_TAU_EQUAL);
		return rank == 1 || w >= tau ? ANSWER_FETCH : ANSWER_SUBSTITUTE;
	case REF_FIRST_CHOICE:
		return rank == 1 ? ANSWER_FETCH : ANSWER_SUBSTITUTE;
	case REF_SUBSTITUTE:
		return ANSWER_SUBSTITUTE;
	case REF_DROP:
		return rank == 1 || w >= tau ? ANSWER_FETCH : ANSWER_DROP;
	case REF_CPU:
		return ANSWER_CPU;
	}
	return ANSWER_FETCH;
}

static void decide(struct replay *r)
{
	static const enum ref_branch branch_of[] = {
		[ANSWER_FETCH] = REF_R8_FETCH,
		[ANSWER_SUBSTITUTE] = REF_R8_SUBSTITUTE,
		[ANSWER_DROP] = REF_R8_DROP,
		[ANSWER_CPU] = REF_R8_CPU,
	};
	uint32_t top_k = r->trace->top_k;
	uint8_t *says_fetch = zalloc(r->trace->n_expert, 1);

	/* R8: every (row, expert) that is not a hit is put to the miss rule. */
	for (uint32_t row = 0; row < r->n_row; row++)
		for (uint32_t i = 0; i < top_k; i++) {
			uint32_t e = row_selected(r, row)[i];
			enum answer *answer = &row_answer(r, row)[i];

			*answer = ANSWER_HIT;
			if (r->judgement[e] == HIT)
				continue;
			*answer = miss_rule(r, i + 1, row_weight(r, row)[i]);
			reach(r->coverage, branch_of[*answer]);
			if (*answer == ANSWER_FETCH)
				says_fetch[e] = 1;
		}
	/* R8: if any row says FETCH, the expert is fetched for all rows. */
	for (uint32_t row = 0; row < r->n_row; row++)
		for (uint32_t i = 0; i < top_k; i++) {
			enum answer *answer = &row_answer(r, row)[i];

			if (!says_fetch[row_selected(r, row)[i]] || *answer == ANSWER_FETCH)
				continue;
			*answer = ANSWER_FETCH;
			reach(r->coverage, REF_R8_OVERRULED);
		}
	free(says_fetch);
}

/* R9: the substitute for one pick of a row, -1 if there is none. used [n_expert]: already a substitute in this row. */
static int find_substitute(struct replay *r, uint32_t row, const uint8_t *used)
{
	const double *score = r->routes.score + event_row(r, row) * r->trace->n_expert;
	const uint8_t *open = r->routes.open + event_row(r, row) * r->trace->n_expert;
	int best = -1;
	int best_with_used = -1;
	int tie = 0;

	for (uint32_t e = 0; e < r->trace->n_expert; e++) {
		int in_s = 0;

		for (uint32_t i = 0; i < r->trace->top_k; i++)
			if (row_selected(r, row)[i] == e)
				in_s = 1;
		if (in_s || r->expert[expert_id(r, r->layer, e)].place != REF_RESIDENT)
			continue;
		if (best_with_used < 0 || score[e] > score[best_with_used])
			best_with_used = (int)e;
		if (used[e])
			continue;
		if (best < 0 || score[e] > score[best]) {
			best = (int)e;
			tie = 0;
		} else if (score[e] >= score[best]) {
			tie = 1;
		}
	}
	if (best_with_used != best)
		reach(r->coverage, REF_R9_ALREADY_USED);
	if (best >= 0 && tie)
		reach(r->coverage, REF_R9_TIE);
	if (best >= 0 && !open[best])
		reach(r->coverage, REF_R9_IGNORES_GROUPS);
	return best;
}

static void substitute(struct replay *r)
{
	uint32_t top_k = r->trace->top_k;
	uint32_t n_expert = r->trace->n_expert;
	uint8_t *fell_back = zalloc(n_expert, 1);
	uint8_t *used = zalloc(n_expert, 1);

	memset(r->is_substitute, 0, n_expert);
	/* R9: row by row, in rank order of its SUBSTITUTE picks. */
	for (uint32_t row = 0; row < r->n_row; row++) {
		memset(used, 0, n_expert);
		for (uint32_t i = 0; i < top_k; i++) {
			int s;

			if (row_answer(r, row)[i] != ANSWER_SUBSTITUTE)
				continue;
			s = find_substitute(r, row, used);
			if (s < 0) {
				/* R9: no substitute: FETCH, for this row only. */
				row_answer(r, row)[i] = ANSWER_FETCH;
				fell_back[row_selected(r, row)[i]] = 1;
				layer_counters(r)->substitute_fallbacks += counted(r, r->row_token[row]);
				reach(r->coverage, REF_R9_FALLBACK);
				continue;
			}
			reach(r->coverage, REF_R9_SUBSTITUTE);
			if (r->is_substitute[s])
				reach(r->coverage, REF_R9_SHARED);
			used[s] = 1;
			r->is_substitute[s] = 1;
		}
	}
	for (uint32_t row = 0; row < r->n_row; row++)
		for (uint32_t i = 0; i < top_k; i++)
			if (row_answer(r, row)[i] == ANSWER_SUBSTITUTE && fell_back[row_selected(r, row)[i]])
				reach(r->coverage, REF_R9_FALLBACK_OTHER_KEEPS);
	free(fell_back);
	free(used);
}

/* ------------------------------------------------ R10-R12: access, admission */

/* R10: records one access: the clock of accesses, the counts, the token. */
static void record_access(struct replay *r, size_t id)
{
	struct expert *x = &r->expert[id];

	if (x->preloaded && x->place == REF_RESIDENT)
		reach(r->coverage, REF_R5_PRELOAD_HIT);
	x->preloaded = 0;
	x->last_access = ++r->access_clock;
	x->count = x->count + 1;
	/* lfu-decay: count <- count * 2^(-delta/h) + 1. */
	if (r->config->evict == REF_LFU_DECAY)
		x->decayed_count = x->decayed_count * decay(r, x) + 1.0;
	x->last_token = r->current_token;
}

/* R14: a copy that is asked for now: at max(T1, link free), not before its read has ended. */
static void start_copy_now(struct replay *r, size_t id, uint32_t e)
{
	double start_us = fmax(fmax(r->t1_us, r->link_free_us), r->read_end_us[e]);

	if (start_us <= r->t1_us)
		reach(r->coverage, REF_R14_AT_T1);
	if (r->link_free_us > r->t1_us)
		reach(r->coverage, REF_R14_WAITS_FOR_LINK);
	if (r->read_end_us[e] > fmax(r->t1_us, r->link_free_us))
		reach(r->coverage, REF_R14_WAITS_FOR_DISK);
	if (queue_head(r) != SIZE_MAX)
		reach(r->coverage, REF_R14_OVERTAKES);
	for (size_t i = 0; i < n_id(r); i++)
		if (r->expert[i].place == REF_UNDER_WAY && r->expert[i].arrival_us > r->t1_us) {
			reach(r->coverage, REF_R14_BEHIND_BACKGROUND);
			break;
		}
	r->arrival_us[e] = start_us + copy_us(r, id);
	r->link_free_us = r->arrival_us[e];
}

/* R10: a miss that is fetched: makes room, is inserted and pinned; without room it is used once and not kept. */
static void fetch_miss(struct replay *r, size_t id, uint32_t e)
{
	struct expert *x = &r->expert[id];
	uint32_t token = r->request_token[e];

	if (x->acc > 0)
		reach(r->coverage, REF_R12_FETCH_KEEPS_ACC);
	if (make_room(r, id, 1, token)) {
		x->place = REF_RESIDENT;
		x->insertion = ++r->insertion_clock;
		r->pinned[id] = 1;
		reach(r->coverage, REF_R10_FETCH_KEPT);
	} else {
		layer_counters(r)->bypasses += counted(r, token);
	}
	r->read_end_us[e] = issue_read(r, id);
	start_copy_now(r, id, e);
	layer_counters(r)->fetches += counted(r, token);
	layer_counters(r)->link_bytes += counted(r, token) * bytes_of(r, id);
	token_result(r, token)->fetches++;
}

/*
 * R10: a late expert that is fetched: no new copy, and no issue (R18): its read, if there was one, was issued when the
 * copy was queued, and its end is the copy's "time queued".
 */
static void fetch_late(struct replay *r, size_t id, uint32_t e)
{
	struct expert *x = &r->expert[id];

	r->read_end_us[e] = x->queued_us;
	if (x->place == REF_QUEUED) {
		x->place = REF_RESIDENT;
		start_copy_now(r, id, e);
		reach(r->coverage, REF_R10_LATE_HIT_QUEUED);
		if (x->queued_us > r->t1_us)
			reach(r->coverage, REF_R18_IN_FLIGHT);
	} else {
		x->place = REF_RESIDENT;
		r->arrival_us[e] = x->arrival_us;
		reach(r->coverage, REF_R10_LATE_HIT_UNDER_WAY);
	}
	r->pinned[id] = 1;
}

static void access_and_fetch(struct replay *r)
{
	struct ref_counters *counters = layer_counters(r);

	/* What the answers of the rows mean for each expert. */
	memset(r->fetched, 0, r->trace->n_expert);
	memset(r->on_cpu, 0, r->trace->n_expert);
	for (uint32_t row = 0; row < r->n_row; row++)
		for (uint32_t i = 0; i < r->trace->top_k; i++) {
			if (row_answer(r, row)[i] == ANSWER_FETCH)
				r->fetched[row_selected(r, row)[i]] = 1;
			if (row_answer(r, row)[i] == ANSWER_CPU)
				r->on_cpu[row_selected(r, row)[i]] = 1;
		}
	/* R11: pinned are the event's hits, its substitutes, and (below) what it has fetched so far. */
	memset(r->pinned, 0, n_id(r));
	for (uint32_t e = 0; e < r->trace->n_expert; e++)
		if (r->judgement[e] == HIT || r->is_substitute[e])
			r->pinned[expert_id(r, r->layer, e)] = 1;

	/* R10: in request order. */
	for (uint32_t n = 0; n < r->n_request; n++) {
		uint32_t e = r->request[n];
		size_t id = expert_id(r, r->layer, e);
		uint32_t token = r->request_token[e];
		struct ref_token *of_token = token_result(r, token);

		record_access(r, id);
		counters->accesses += counted(r, token);
		of_token->accesses++;
		if (r->judgement[e] == HIT) {
			counters->hits += counted(r, token);
			of_token->hits++;
		} else if (r->judgement[e] == LATE && r->fetched[e]) {
			counters->late_hits += counted(r, token);
			of_token->late_hits++;
			fetch_late(r, id, e);
		} else {
			counters->misses += counted(r, token);
			of_token->misses++;
			if (r->judgement[e] == LATE)
				reach(r->coverage, REF_R10_LATE_MISS);
			if (r->fetched[e])
				fetch_miss(r, id, e);
		}
		/* R18: CPU picks issue their reads in request order too. */
		if (r->on_cpu[e])
			r->read_end_us[e] = issue_read(r, id);
	}
}

static void background_admission(struct replay *r)
{
	memset(r->queued_now, 0, r->trace->n_expert);
	if (!r->config->background)
		return;
	/* R12: row by row, in rank order, every SUBSTITUTE pick whose expert was a true miss. */
	for (uint32_t row = 0; row < r->n_row; row++)
		for (uint32_t i = 0; i < r->trace->top_k; i++) {
			uint32_t e = row_selected(r, row)[i];
			size_t id = expert_id(r, r->layer, e);
			struct expert *x = &r->expert[id];
			uint32_t token = r->row_token[row];

			if (row_answer(r, row)[i] != ANSWER_SUBSTITUTE)
				continue;
			if (r->judgement[e] != MISS) {
				reach(r->coverage, REF_R12_LATE);
				continue;
			}
			if (r->fetched[e]) {
				reach(r->coverage, REF_R12_FETCHED);
				continue;
			}
			if (r->queued_now[e]) {
				reach(r->coverage, REF_R12_QUEUED);
				continue;
			}
			x->acc += row_weight(r, row)[i];
			reach(r->coverage, REF_R12_ADD);
			if (x->acc < r->config->beta) {
				reach(r->coverage, REF_R12_BELOW);
				continue;
			}
			if (x->acc <= r->config->beta)
				reach(r->coverage, REF_R12_BETA_EQUAL);
			/* R12: no room: acc is kept. */
			if (!make_room(r, id, 0, token)) {
				x->refused = 1;
				reach(r->coverage, REF_R12_REFUSED);
				continue;
			}
			/* R12: a slot is reserved, the copy queued at T1 (R18: at the end of its read). */
			x->acc = 0;
			x->place = REF_QUEUED;
			x->insertion = ++r->insertion_clock;
			x->queue_number = ++r->queue_clock;
			x->queued_us = issue_read(r, id);
			r->queued_now[e] = 1;
			layer_counters(r)->background_copies += counted(r, token);
			layer_counters(r)->link_bytes += counted(r, token) * bytes_of(r, id);
			reach(r->coverage, REF_R12_QUEUE);
			if (x->refused)
				reach(r->coverage, REF_R12_RETRY);
			x->refused = 0;
			if (r->config->disk)
				reach(r->coverage, REF_R18_BACKGROUND);
		}
}

/* R13 and the counters of the rows and their picks. */
static void count_rows(struct replay *r)
{
	struct ref_counters *counters = layer_counters(r);

	for (uint32_t row = 0; row < r->n_row; row++) {
		uint32_t token = r->row_token[row];
		struct ref_token *of_token = token_result(r, token);
		double substituted_mass = 0;
		double dropped_mass = 0;

		counters->rows += counted(r, token);
		counters->picks += counted(r, token) * r->trace->top_k;
		for (uint32_t i = 0; i < r->trace->top_k; i++) {
			double w = row_weight(r, row)[i];

			switch (row_answer(r, row)[i]) {
			case ANSWER_HIT:
			case ANSWER_FETCH:
				break;
			case ANSWER_SUBSTITUTE:
				counters->substitutions += counted(r, token);
				of_token->substitutions++;
				substituted_mass += w;
				break;
			case ANSWER_DROP:
				counters->drops += counted(r, token);
				of_token->drops++;
				dropped_mass += w;
				break;
			case ANSWER_CPU:
				counters->cpu_picks += counted(r, token);
				of_token->cpu_picks++;
				break;
			}
		}
		if (substituted_mass > 0)
			reach(r->coverage, REF_R13_SUBSTITUTED);
		if (dropped_mass > 0)
			reach(r->coverage, REF_R13_DROPPED);
		of_token->substituted_mass += substituted_mass;
		of_token->dropped_mass += dropped_mass;
		if (counted(r, token)) {
			counters->substituted_mass += substituted_mass;
			counters->dropped_mass += dropped_mass;
			r->result->counters.substituted_mass += substituted_mass;
			r->result->counters.dropped_mass += dropped_mass;
		}
	}
}

/* ------------------------------------------------------ R15, R16, R19: time */

/* R15: what the GPU does in the layer; adds to the split and returns the GPU's end. */
static double gpu_time(struct replay *r, struct ref_time *split)
{
	double expert_us = layer_value(r->config->gpu_expert_us, r->layer);
	double gpu_free_us;
	uint32_t n_from_t1 = 0;
	uint32_t n_computed;

	/* R15: hits and substitutes, distinct experts, from T1. */
	for (uint32_t e = 0; e < r->trace->n_expert; e++) {
		if (r->judgement[e] == HIT || r->is_substitute[e])
			n_from_t1++;
		if (r->judgement[e] == HIT && r->is_substitute[e])
			reach(r->coverage, REF_R15_HIT_IS_SUBSTITUTE);
	}
	if (n_from_t1 > 0)
		reach(r->coverage, REF_R15_FROM_T1);
	gpu_free_us = r->t1_us + (double)n_from_t1 * expert_us;
	n_computed = n_from_t1;

	/* R15: then each fetched or late-hit expert in request order. */
	for (uint32_t n = 0; n < r->n_request; n++) {
		uint32_t e = r->request[n];

		if (!r->fetched[e])
			continue;
		if (r->arrival_us[e] > gpu_free_us) {
			/* R19: idle until the arrival: first for its disk read, then for the link. */
			double read_us = fmax(gpu_free_us, r->read_end_us[e]);

			split->disk_wait += read_us - gpu_free_us;
			split->link_wait += r->arrival_us[e] - read_us;
			reach(r->coverage, REF_R15_WAITS);
			if (read_us > gpu_free_us)
				reach(r->coverage, REF_R19_DISK_WAIT);
			if (r->arrival_us[e] > read_us)
				reach(r->coverage, REF_R19_LINK_WAIT);
			if (read_us > gpu_free_us && r->arrival_us[e] > read_us)
				reach(r->coverage, REF_R19_DISK_THEN_LINK);
			gpu_free_us = r->arrival_us[e];
		} else {
			reach(r->coverage, REF_R15_NO_WAIT);
		}
		gpu_free_us += expert_us;
		n_computed++;
	}
	split->gpu += (double)n_computed * expert_us;
	return gpu_free_us;
}

/* R16: the CPU's end; T1 if it has nothing to do. */
static double cpu_time(struct replay *r)
{
	double expert_us = layer_value(r->config->cpu_expert_us, r->layer);
	double cpu_free_us = r->t1_us + r->config->cpu_roundtrip_us;
	uint32_t n_cpu = 0;

	/* R16, R18: the distinct experts one after the other in request order, none before the end of its read. */
	for (uint32_t n = 0; n < r->n_request; n++) {
		uint32_t e = r->request[n];

		if (!r->on_cpu[e])
			continue;
		if (r->read_end_us[e] > cpu_free_us) {
			reach(r->coverage, REF_R16_WAITS_FOR_DISK);
			cpu_free_us = r->read_end_us[e];
		}
		cpu_free_us += expert_us;
		n_cpu++;
	}
	if (n_cpu == 0)
		return r->t1_us;
	reach(r->coverage, REF_R16_CPU);
	return cpu_free_us;
}

static void add_time(struct ref_time *sum, const struct ref_time *part)
{
	sum->total += part->total;
	sum->dense += part->dense;
	sum->gpu += part->gpu;
	sum->link_wait += part->link_wait;
	sum->disk_wait += part->disk_wait;
	sum->cpu_wait += part->cpu_wait;
	sum->token += part->token;
}

/* The layer's end, and its split (R19) into the statistics if the pass counts (R17). */
static double layer_end(struct replay *r)
{
	struct ref_time split = {0};
	double gpu_end_us = gpu_time(r, &split);
	double cpu_end_us = cpu_time(r);
	double end_us = fmax(gpu_end_us, cpu_end_us);
	int has_cpu = 0;

	for (uint32_t n = 0; n < r->n_request; n++)
		if (r->on_cpu[r->request[n]])
			has_cpu = 1;
	if (has_cpu)
		reach(r->coverage, cpu_end_us > gpu_end_us ? REF_R16_CPU_LAST : REF_R16_GPU_LAST);
	if (end_us > gpu_end_us)
		reach(r->coverage, REF_R19_CPU_WAIT);
	split.dense = r->t1_us - r->now_us;
	split.cpu_wait = end_us - gpu_end_us;
	split.total = end_us - r->now_us;
	if (counted(r, r->current_token)) {
		add_time(&r->result->layer_time[r->layer], &split);
		split.total = 0; /* the total of the run is summed over passes */
		add_time(&r->result->time, &split);
	}
	return end_us;
}

/* -------------------------------------------------------------------- event */

static void log_event(const struct replay *r, double end_us)
{
	static const char judgement_letter[] = {'-', 'h', 'l', 'm'};
	static const char answer_letter[] = {' ', 'F', 'S', 'D', 'C'};

	fprintf(r->config->log, "token %u layer %u T %.9g T1 %.9g end %.9g:", r->current_token, r->layer, r->now_us,
		r->t1_us, end_us);
	for (uint32_t row = 0; row < r->n_row; row++) {
		for (uint32_t i = 0; i < r->trace->top_k; i++) {
			uint32_t e = row_selected(r, row)[i];

			fprintf(r->config->log, " %u%c%c", e, judgement_letter[r->judgement[e]],
				answer_letter[row_answer(r, row)[i]]);
		}
		fprintf(r->config->log, " |");
	}
	fprintf(r->config->log, " now");
	for (uint32_t e = 0; e < r->trace->n_expert; e++) {
		enum ref_place place = r->expert[expert_id(r, r->layer, e)].place;

		if (place != REF_ABSENT)
			fprintf(r->config->log, " %u%s", e,
				place == REF_QUEUED ? "q" : place == REF_UNDER_WAY ? "u" : "");
	}
	fprintf(r->config->log, "\n");
}

static void run_event(struct replay *r)
{
	double end_us;

	/* The rows of the event. An event without rows does not exist. */
	r->n_row = 0;
	for (uint32_t i = 0; i < r->pass_length[r->pass]; i++) {
		uint32_t token = r->pass_first[r->pass] + i;

		if (r->trace->present[row_index(r->trace, token, r->layer)])
			r->row_token[r->n_row++] = token;
		else
			reach(r->coverage, REF_ABSENT_ROW);
	}
	if (r->n_row == 0) {
		reach(r->coverage, REF_ABSENT_EVENT);
		return;
	}
	if (r->n_row > 1)
		reach(r->coverage, REF_BATCH_EVENT);
	if (r->n_row < r->pass_length[r->pass])
		reach(r->coverage, REF_ABSENT_ROW_IN_EVENT);

	r->t1_us = r->now_us + layer_value(r->config->dense_us, r->layer);
	link_and_landing(r);     /* R6 */
	classify(r);             /* R7 */
	decide(r);               /* R8 */
	substitute(r);           /* R9 */
	access_and_fetch(r);     /* R10, R11, R14, R18 */
	background_admission(r); /* R12 */
	count_rows(r);           /* R13 */
	end_us = layer_end(r);   /* R15, R16, R19 */
	if (r->config->log)
		log_event(r, end_us);
	r->now_us = end_us;
}

/* ------------------------------------------------------------------- passes */

/* A forward pass: with prefill batch the recorded one (never across sequences), else every token its own. */
static void find_passes(struct replay *r)
{
	const struct ref_trace *trace = r->trace;

	for (uint32_t t = 0; t < trace->n_token; t++) {
		if (t > 0 && r->config->prefill_batch && trace->sequence[t] == trace->sequence[t - 1] &&
		    trace->pass[t] == trace->pass[t - 1]) {
			r->pass_length[r->n_pass - 1]++;
			continue;
		}
		r->pass_first[r->n_pass] = t;
		r->pass_length[r->n_pass] = 1;
		r->n_pass++;
	}
}

static void run_pass(struct replay *r)
{
	uint32_t first = r->pass_first[r->pass];
	uint32_t length = r->pass_length[r->pass];
	double start_us;

	if (r->config->reset_per_sequence && first > 0 && r->trace->sequence[first] != r->trace->sequence[first - 1])
		reset(r);
	if (counted(r, first) != counted(r, first + length - 1))
		reach(r->coverage, REF_R5_WARMUP_CUTS_PASS);
	for (uint32_t t = first; t < first + length; t++) {
		r->result->counters.tokens += counted(r, t);
		if (!counted(r, t))
			reach(r->coverage, REF_R5_WARMUP);
	}

	r->current_token = first;
	start_us = r->now_us;
	for (r->layer = 0; r->layer < r->trace->n_layer; r->layer++)
		run_event(r);

	/* R17: token_us once, after the last layer. */
	r->now_us += r->config->token_us;
	if (counted(r, first)) {
		r->result->time.token += r->config->token_us;
		r->result->time.total += r->now_us - start_us;
		r->result->pass_tokens += length;
		reach(r->coverage, REF_R17_TOKEN);
	} else {
		reach(r->coverage, REF_R17_PASS_LEFT_OUT);
	}
}

/* The integer counters of the run are the sums over the layers. */
static void sum_layers(struct replay *r)
{
	struct ref_counters *all = &r->result->counters;

	for (uint32_t l = 0; l < r->trace->n_layer; l++) {
		struct ref_counters *one = &r->result->layer[l];

		one->tokens = all->tokens;
		all->rows += one->rows;
		all->picks += one->picks;
		all->accesses += one->accesses;
		all->hits += one->hits;
		all->late_hits += one->late_hits;
		all->misses += one->misses;
		all->fetches += one->fetches;
		all->substitutions += one->substitutions;
		all->drops += one->drops;
		all->cpu_picks += one->cpu_picks;
		all->substitute_fallbacks += one->substitute_fallbacks;
		all->bypasses += one->bypasses;
		all->background_copies += one->background_copies;
		all->evictions += one->evictions;
		all->link_bytes += one->link_bytes;
	}
	assert(all->misses == all->accesses - all->hits - all->late_hits);
	for (size_t id = 0; id < n_id(r); id++) {
		r->result->place[id] = (uint8_t)r->expert[id].place;
		r->result->acc[id] = r->expert[id].acc;
	}
}

static int config_is_valid(const struct ref_config *config)
{
	if (config->scope == REF_SCOPE_LAYER && !config->slots)
		return 0;
	if (config->evict == REF_LFU_DECAY && !(config->half_life > 0))
		return 0;
	if (config->preload && config->preload_all)
		return 0;
	return 1;
}

static void reach_sizes(struct replay *r)
{
	if (r->config->scope == REF_SCOPE_GLOBAL) {
		reach(r->coverage, REF_R4_GLOBAL);
		return;
	}
	reach(r->coverage, REF_R4_LAYER);
	for (uint32_t l = 0; l < r->trace->n_layer; l++) {
		if (r->config->slots[l] == 0)
			reach(r->coverage, REF_R4_NO_SLOT);
		else if (r->config->slots[l] < r->trace->top_k)
			reach(r->coverage, REF_R4_FEWER_THAN_K);
	}
}

static void replay_alloc(struct replay *r)
{
	size_t n_token = r->trace->n_token;
	size_t n_expert = r->trace->n_expert;

	r->pass_first = zalloc(n_token, sizeof(uint32_t));
	r->pass_length = zalloc(n_token, sizeof(uint32_t));
	r->popularity = zalloc(n_id(r), sizeof(uint64_t));
	r->expert = zalloc(n_id(r), sizeof(struct expert));
	r->row_token = zalloc(n_token, sizeof(uint32_t));
	r->request = zalloc(n_expert, sizeof(uint32_t));
	r->request_token = zalloc(n_expert, sizeof(uint32_t));
	r->judgement = zalloc(n_expert, sizeof(enum judgement));
	r->answer = zalloc(n_token * r->trace->top_k, sizeof(enum answer));
	r->fetched = zalloc(n_expert, 1);
	r->on_cpu = zalloc(n_expert, 1);
	r->is_substitute = zalloc(n_expert, 1);
	r->queued_now = zalloc(n_expert, 1);
	r->arrival_us = zalloc(n_expert, sizeof(double));
	r->read_end_us = zalloc(n_expert, sizeof(double));
	r->pinned = zalloc(n_id(r), 1);
	r->result->layer = zalloc(r->trace->n_layer, sizeof(struct ref_counters));
	r->result->layer_time = zalloc(r->trace->n_layer, sizeof(struct ref_time));
	r->result->token = zalloc(n_token, sizeof(struct ref_token));
	r->result->place = zalloc(n_id(r), 1);
	r->result->acc = zalloc(n_id(r), sizeof(double));
}

static void replay_free(struct replay *r)
{
	routes_free(&r->routes);
	free(r->pass_first);
	free(r->pass_length);
	free(r->popularity);
	free(r->expert);
	free(r->row_token);
	free(r->request);
	free(r->request_token);
	free(r->judgement);
	free(r->answer);
	free(r->fetched);
	free(r->on_cpu);
	free(r->is_substitute);
	free(r->queued_now);
	free(r->arrival_us);
	free(r->read_end_us);
	free(r->pinned);
}

int ref_replay(const struct ref_trace *trace, const struct ref_config *config, struct ref_result *result,
	       struct ref_coverage *coverage)
{
	struct replay r = {.trace = trace, .config = config, .result = result, .coverage = coverage};
	int status;

	memset(result, 0, sizeof(*result));
	if (!trace_is_valid(trace))
		return REF_BAD_TRACE;
	if (!config_is_valid(config))
		return REF_BAD_CONFIG;
	replay_alloc(&r);
	status = routes_init(&r.routes, trace, coverage);
	if (!status)
		status = count_popularity(&r);
	if (!status) {
		reach_sizes(&r);
		find_passes(&r);
		start(&r);
		for (r.pass = 0; r.pass < r.n_pass; r.pass++)
			run_pass(&r);
		sum_layers(&r);
		if (!config->want_tokens) {
			free(result->token);
			result->token = NULL;
		}
	} else {
		ref_result_free(result);
	}
	replay_free(&r);
	return status;
}

void ref_result_free(struct ref_result *result)
{
	free(result->layer);
	free(result->layer_time);
	free(result->token);
	free(result->place);
	free(result->acc);
	memset(result, 0, sizeof(*result));
}
