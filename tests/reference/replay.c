/* The replay: its passes (R17), the counters of the run, and its memory. */
#include "tests/reference/reference_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

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
		ref_reset(r);
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
		ref_run_event(r);

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
	ref_routes_free(&r->routes);
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
	if (!ref_trace_is_valid(trace))
		return REF_BAD_TRACE;
	if (!config_is_valid(config))
		return REF_BAD_CONFIG;
	replay_alloc(&r);
	status = ref_routes_init(&r.routes, trace, coverage);
	if (!status)
		status = ref_count_popularity(&r);
	if (!status) {
		reach_sizes(&r);
		find_passes(&r);
		ref_start(&r);
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
