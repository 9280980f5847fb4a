/* The timeline of what really happened says what the counters say: every copy, read and computation stands in it, once, on a lane where one thing
 * happens at a time, and nothing is computed before its copy has arrived. */
#include "tests/llama/engine_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 40, MAX_SPAN = 100000 };

struct kept {
	struct gm_span *span; /* [n] */
	size_t n;
};

static void keep(void *user, const struct gm_span *span)
{
	struct kept *kept = user;

	assert_true(kept->n < MAX_SPAN);
	kept->span[kept->n++] = *span;
}

static size_t count(const struct kept *kept, const char *what, double *us)
{
	size_t n = 0;

	*us = 0;
	for (size_t i = 0; i < kept->n; i++)
		if (strcmp(kept->span[i].what, what) == 0) {
			*us += kept->span[i].end_us - kept->span[i].start_us;
			n++;
		}
	return n;
}

static int by_start(const void *a, const void *b)
{
	const struct gm_span *p = a, *q = b;

	if (p->lane != q->lane)
		return p->lane < q->lane ? -1 : 1;
	return p->start_us < q->start_us ? -1 : p->start_us > q->start_us;
}

/* By lane and start; a hundredth of a µs is what differences of large times are good for. */
static void check_lanes(struct kept *kept)
{
	qsort(kept->span, kept->n, sizeof(*kept->span), by_start);
	for (size_t i = 0; i < kept->n; i++) {
		const struct gm_span *span = &kept->span[i];

		assert_true(span->end_us >= span->start_us - 0.01);
		if (i > 0 && span[-1].lane == span->lane && span->start_us < span[-1].end_us - 0.01)
			fail_msg("lane %d: %s of layer %u at %.3f while %s of layer %u goes on to %.3f", span->lane,
				 span->what, span->layer, span->start_us, span[-1].what, span[-1].layer, span[-1].end_us);
	}
}

/* An expert that is computed by itself was waited for: it was copied by then. */
static size_t check_waited(const struct kept *kept)
{
	size_t n = 0;

	for (size_t i = 0; i < kept->n; i++) {
		const struct gm_span *span = &kept->span[i];
		bool found = false;

		if (strcmp(span->what, "expert") != 0 || span->expert == UINT32_MAX)
			continue;
		for (size_t k = 0; k < kept->n && !found; k++)
			found = kept->span[k].lane == GM_LANE_LINK && kept->span[k].layer == span->layer &&
				kept->span[k].expert == span->expert && kept->span[k].end_us <= span->start_us + 0.01;
		if (!found)
			fail_msg("expert %u of layer %u is computed at %.3f and was not copied before", span->expert,
				 span->layer, span->start_us);
		n++;
	}
	return n;
}

static void run_passes(struct engined *run, struct gm_spans *spans)
{
	uint32_t max = gm_hook_info(run->hook)->n_ubatch;
	float *logprob = calloc(max, sizeof(*logprob));
	struct gm_error err = {0};
	int32_t token[N];

	assert_non_null(logprob);
	support_tokens(token, N, 51);
	assert_ok(gm_cache_begin_sequence(run->cache, NULL, NULL, &err), &err);
	for (uint32_t done = 0, n; done < N; done += n) {
		n = N - done < max ? N - done : max;
		gm_spans_begin_pass(spans, true);
		assert_ok(gm_cache_pass(run->cache, token + done, n, logprob, &err), &err);
		gm_spans_end_pass(spans);
	}
	free(logprob);
}

static void compare(struct engined *run, struct gm_cache_options options, const char *const *option, bool beside,
		    bool reads)
{
	struct kept kept = {.span = calloc(MAX_SPAN, sizeof(*kept.span))};
	const struct gm_span_sink sink = {.span = keep, .user = &kept};
	uint32_t n_pass = (N + gm_hook_info(run->hook)->n_ubatch - 1) / gm_hook_info(run->hook)->n_ubatch;
	struct gm_engine_stats stats, before;
	struct gm_error err = {0};
	struct gm_spans *spans = gm_spans_new(&sink, &err);
	double dense_us, expert_us, token_us, fetch_us, background_us, read_us;
	size_t n_fetch, n_background, n_waited;

	assert_true(kept.span && spans);
	options.beside = beside;
	options.spans = spans;
	assert_ok(engined_with(run, option, &options, &err), &err);
	gm_cache_stats(run->cache, &before);
	run_passes(run, spans);
	while (gm_cache_stats(run->cache, &stats), beside && stats.link_copies < stats.fetches + stats.background_copies)
		; /* what was admitted last arrives after the last pass */
	gm_engine_stats_since(&stats, &before);
	gm_cache_free(run->cache);
	run->cache = NULL;
	gm_spans_free(spans);

	check_lanes(&kept);
	n_waited = check_waited(&kept);
	assert_int_equal(count(&kept, "dense", &dense_us), n_pass * gm_hook_model(run->hook)->n_layer);
	assert_int_equal(count(&kept, "token", &token_us), n_pass);
	assert_true(count(&kept, "expert", &expert_us) >= n_pass * gm_hook_model(run->hook)->n_layer);
	assert_true(fabs(expert_us - stats.compute_us) <= 1e-3 * stats.compute_us);
	n_fetch = count(&kept, "fetch", &fetch_us);
	n_background = count(&kept, "background", &background_us);
	assert_int_equal(n_fetch + n_background, stats.fetches + stats.background_copies);
	assert_true(n_fetch >= stats.fetches); /* and late hits whose copy had not begun */
	if (beside) {
		assert_true(n_waited > 0);
		assert_true(fabs(fetch_us + background_us - stats.link_busy_us) <= 1e-3 * stats.link_busy_us);
	}
	assert_int_equal(count(&kept, "read", &read_us), reads ? stats.n_read : 0);
	assert_true(!reads || fabs(read_us - stats.read_us) <= 1e-3 * stats.read_us);
	print_message(
		"passes of %u: %zu computations, %zu of them waited for; %zu fetches, %zu copies in the background, %llu "
		"reads\n",
		gm_hook_info(run->hook)->n_ubatch, count(&kept, "expert", &expert_us), n_waited, n_fetch, n_background,
		(unsigned long long)(reads ? stats.n_read : 0));
	free(kept.span);
}

static const char *const policy[] = {"cache", "6", "miss", "first-choice", "evict", "lfu", "admit", "background:0.1", NULL};

static const char *const batch[] = {"cache",   "6",     "miss", "first-choice", "evict", "lfu", "admit", "background:0.1",
				    "prefill", "batch", NULL};

static void test_memory(void **state)
{
	const struct gm_cache_options slow = {.throttle = {.latency_us = 500}}, as_it_is = {0};
	static const uint32_t ubatches[] = {1, 16};

	(void)state;
	for (size_t u = 0; u < 2; u++) {
		struct gm_hook_options options = support_options(ubatches[u]);
		struct engined run;

		engined_open(&run, support_fixture("qwen3moe"), &options, policy);
		compare(&run, slow, policy, ubatches[u] == 1, false);
		compare(&run, as_it_is, policy, false, false);
		compare(&run, slow, batch, true, false);
		compare(&run, as_it_is, batch, false, false);
		engined_close(&run);
	}
}

static void test_file(void **state)
{
	const struct gm_plugin_options plugin = {.experts = GM_EXPERT_STORE_READ, .disk = {.latency_us = 200}};
	struct gm_hook_options options = support_options(1);
	struct gm_error err = {0};
	struct engined run;

	(void)state;
	assert_ok(engined_from(&run, plugin, support_fixture("qwen3moe"), &options, policy, &err), &err);
	compare(&run, (struct gm_cache_options){0}, policy, true, true);
	engined_close(&run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_file),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
