/* Small random runs of the reference replay: what must always hold, and every rule and rare branch is reached. */
#include "tests/reference/test_reference_common.h"

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

static uint32_t below(uint64_t *seed, uint32_t n)
{
	return (uint32_t)(next_random(seed) % n);
}

/* A small random trace with many ties: logits are quarters of small integers. */
static void random_trace(struct ref_trace *trace, uint64_t *seed, uint32_t n_layer, uint32_t n_expert, uint32_t top_k)
{
	uint32_t n_token = 1 + below(seed, 24);
	uint32_t spread = 2 + below(seed, 24);
	int absent = below(seed, 3) == 0;

	ref_trace_init(trace, n_layer, n_expert, top_k, n_token);
	trace->gating = below(seed, 2) ? REF_SOFTMAX : REF_SIGMOID;
	for (size_t i = 0; i < (size_t)n_token * n_layer * n_expert; i++)
		trace->logit[i] = (float)below(seed, spread) / 4.0f - 2.0f;
	for (size_t i = 0; i < (size_t)n_token * n_layer; i++) {
		if (absent)
			trace->present[i] = below(seed, 3) != 0;
		/* R3: a row whose p are all 0 under sigmoid gating. */
		if (below(seed, 40) == 0)
			for (uint32_t e = 0; e < n_expert; e++)
				trace->logit[i * n_expert + e] = -1000.0f;
	}
	for (uint32_t l = 0; l < n_layer; l++)
		trace->expert_bytes[l] = 1 + below(seed, 3);
	for (uint32_t t = 1; t < n_token; t++) {
		trace->sequence[t] = trace->sequence[t - 1] + (below(seed, 8) == 0);
		trace->pass[t] = trace->pass[t - 1] + (below(seed, 3) == 0 || trace->sequence[t] != trace->sequence[t - 1]);
	}
	if (below(seed, 3) == 0) {
		trace->bias = calloc((size_t)n_layer * n_expert, sizeof(double));
		assert_non_null(trace->bias);
		for (size_t i = 0; i < (size_t)n_layer * n_expert; i++)
			trace->bias[i] = (double)below(seed, 5) / 8.0;
	}
	for (uint32_t n_group = 4; n_group > 1; n_group--) {
		uint32_t size = n_expert / n_group;

		if (n_expert % n_group != 0 || below(seed, 4) != 0)
			continue;
		trace->n_group = n_group;
		trace->topk_group = (top_k + size - 1) / size;
		break;
	}
}

/* Times are small integers, so that sums are exact and equalities happen. */
static void random_config(struct world *w, uint64_t *seed)
{
	struct ref_config *config = &w->config;
	uint32_t n_layer = w->trace.n_layer;

	for (uint32_t l = 0; l < n_layer; l++) {
		w->slots[l] = below(seed, w->trace.n_expert + 2);
		w->dense_us[l] = below(seed, 8);
		w->gpu_expert_us[l] = below(seed, 4);
		w->cpu_expert_us[l] = below(seed, 4);
	}
	config->scope = below(seed, 2) ? REF_SCOPE_GLOBAL : REF_SCOPE_LAYER;
	config->pool_bytes = below(seed, n_layer * w->trace.n_expert * 2);
	config->evict = (enum ref_evict)below(seed, REF_BELADY_BYPASS + 1);
	config->half_life = 1 + below(seed, 8);
	config->miss = (enum ref_miss)below(seed, REF_CPU + 1);
	config->tau = (double)below(seed, 8) / 8.0;
	config->background = below(seed, 4) != 0;
	config->beta = (double)below(seed, 8) / 8.0;
	config->prefill_batch = (int)below(seed, 2);
	config->warmup = below(seed, 3) == 0 ? below(seed, 12) : 0;
	config->reset_per_sequence = (int)below(seed, 2);
	config->preload_all = below(seed, 4) == 0;
	config->cpu_roundtrip_us = below(seed, 8);
	config->token_us = below(seed, 4);
	config->link_gb_s = below(seed, 2) ? 0.0009765625 : 0; /* 2^-10 */
	config->link_latency_us = below(seed, 40);
	config->disk = (int)below(seed, 2);
	config->disk_latency_us = below(seed, 40);
	config->host_expert_bytes = below(seed, 12);
}

static void assert_invariants(const struct world *w)
{
	const struct ref_counters *c = &w->result.counters;
	uint64_t bytes = 0;
	uint64_t pool = 0;
	struct ref_token sum = {0};

	assert_int_equal(c->accesses, c->hits + c->late_hits + c->misses);
	assert_int_equal(c->picks, c->rows * w->trace.top_k);
	assert_true(c->bypasses <= c->fetches);
	assert_true(c->fetches <= c->misses);
	assert_split(&w->trace, &w->result);
	for (uint32_t l = 0; l < w->trace.n_layer; l++) {
		const struct ref_counters *one = &w->result.layer[l];
		uint64_t used = 0;

		bytes += (one->fetches + one->background_copies) * w->trace.expert_bytes[l];
		for (uint32_t e = 0; e < w->trace.n_expert; e++)
			used += w->result.place[(size_t)l * w->trace.n_expert + e] != REF_ABSENT;
		pool += used * w->trace.expert_bytes[l];
		if (w->config.scope == REF_SCOPE_LAYER)
			assert_true(used <= w->slots[l]);
	}
	assert_int_equal(c->link_bytes, bytes);
	if (w->config.scope == REF_SCOPE_GLOBAL)
		assert_true(pool <= w->config.pool_bytes);
	for (uint32_t t = w->config.warmup; t < w->trace.n_token; t++) {
		sum.hits += w->result.token[t].hits;
		sum.fetches += w->result.token[t].fetches;
		sum.substitutions += w->result.token[t].substitutions;
		sum.substituted_mass += w->result.token[t].substituted_mass;
	}
	assert_int_equal(sum.hits, c->hits);
	assert_int_equal(sum.fetches, c->fetches);
	assert_int_equal(sum.substitutions, c->substitutions);
	assert_near(sum.substituted_mass, c->substituted_mass);
}

/* Every rule and every rare branch is reached by small random runs. */
static void test_random_coverage(void **state)
{
	uint64_t seed = 1;
	struct ref_coverage coverage = {{0}};

	(void)state;
	for (int n = 0; n < 4000; n++) {
		uint32_t n_layer = 1 + below(&seed, 3);
		uint32_t n_expert = 2 + below(&seed, 9);
		uint32_t top_k = 1 + below(&seed, n_expert < 4 ? n_expert : 4);
		struct ref_trace other;
		struct world w;

		world_init(&w, n_layer, n_expert, top_k, 1, 0);
		ref_trace_free(&w.trace);
		random_trace(&w.trace, &seed, n_layer, n_expert, top_k);
		random_trace(&other, &seed, n_layer, n_expert, top_k);
		random_config(&w, &seed);
		if (!w.config.preload_all && below(&seed, 3) == 0)
			w.config.preload = &other;
		w.coverage = coverage;
		run(&w);
		coverage = w.coverage;
		assert_invariants(&w);
		world_free(&w);
		ref_trace_free(&other);
	}
	for (unsigned i = 0; i < REF_N_BRANCH; i++)
		assert_non_null(ref_branch_name((enum ref_branch)i));
	if (getenv("REF_COVERAGE"))
		ref_coverage_print(&coverage, stderr);
	for (unsigned i = 0; i < REF_N_BRANCH; i++)
		if (coverage.times[i] == 0)
			fail_msg("never reached: %s", ref_branch_name((enum ref_branch)i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_coverage),
	};

	return cmocka_run_group_tests_name("reference replay: random runs", tests, NULL, NULL);
}
