/* Copies beside the work land when the machine lets them. What landed when is written down beside the trace, and `sim` replays both to the
 * engine's own counters in every layer. */
#include "tests/llama/engine_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 60 };

struct written {
	struct gm_landings_writer landings;
	size_t n;
};

static void on_landed(void *user, uint64_t event, const struct gm_landing *landing)
{
	struct written *written = user;
	struct gm_error err = {0};

	(void)event;
	assert_ok(gm_landings_put(&written->landings, landing, &err), &err);
	written->n++;
}

/* n_sequence times the same tokens, pass by pass. */
static void run_engine(struct engined *run, struct written *written, uint32_t n_sequence)
{
	uint32_t max = gm_hook_info(run->hook)->n_ubatch;
	float *logprob = calloc(max, sizeof(*logprob));
	struct gm_error err = {0};
	uint64_t n_token = 0;
	int32_t token[N];

	assert_non_null(logprob);
	support_tokens(token, N, 41);
	for (uint32_t s = 0; s < n_sequence; s++) {
		if (gm_cache_settings(run->cache)->reset_per_sequence)
			gm_landings_forget(&written->landings);
		assert_ok(gm_cache_begin_sequence(run->cache, NULL, NULL, &err), &err);
		for (uint32_t done = 0, n; done < N; done += n) {
			n = N - done < max ? N - done : max;
			assert_ok(gm_cache_pass(run->cache, token + done, n, logprob, &err), &err);
			n_token += n;
			gm_landings_pass(&written->landings, n_token);
		}
	}
	free(logprob);
}

static void begin(struct engined *run, const char *const *option, struct gm_cache_options options, struct written *written,
		  const char *path)
{
	char hash[GM_HASH_TEXT], policy[256];
	struct gm_error err = {0};

	options.on_landed = on_landed;
	options.user = written;
	assert_ok(engined_with(run, option, &options, &err), &err);
	assert_ok(gm_plan_policy_hash(gm_cache_plan(run->cache), gm_cache_settings(run->cache), hash, &err), &err);
	gm_settings_describe(gm_cache_settings(run->cache), policy, sizeof(policy));
	assert_ok(gm_landings_open(&written->landings, path, hash, policy, &err), &err);
}

static void end(struct written *written, const char *trace_path)
{
	struct gm_error err = {0};
	struct gm_trace *trace = gm_trace_open(trace_path, &err);

	if (!trace)
		fail_msg("%s", err.text);
	assert_ok(gm_landings_commit(&written->landings, gm_trace_hash(trace), &err), &err);
	gm_landings_discard(&written->landings);
	gm_trace_close(trace);
}

/* Returns how many landed by themselves; counters of all layers are added to sum. */
static size_t compare(struct engined *run, const char *const *option, struct gm_cache_options options, uint32_t n_sequence,
		      struct gm_counters *sum)
{
	const char *trace = support_path("run.gmt"), *path = support_path("run.arrivals");
	struct written written = {.n = 0};
	struct gm_recording *recording;
	struct gm_landings landings;
	struct gm_tally layer[64];
	struct gm_error err = {0};
	char what[320];

	begin(run, option, options, &written, path);
	gm_settings_describe(gm_cache_settings(run->cache), what, sizeof(what));
	recording = engined_record(run, trace);
	run_engine(run, &written, n_sequence);
	assert_ok(gm_recording_close(recording, true, NULL, &err), &err);
	end(&written, trace);
	assert_ok(gm_landings_read(&landings, path, &err), &err);
	assert_true(landings.n <= written.n);
	replayed(trace, gm_cache_settings(run->cache), run->preloads, &landings, layer, gm_hook_model(run->hook)->n_layer);
	for (uint32_t l = 0; l < gm_hook_model(run->hook)->n_layer; l++) {
		const struct gm_counters *count = &gm_cache_account(run->cache)->layer[l].count;

		assert_equal_counters(&layer[l].count, count, what);
		gm_counters_add(sum, count);
	}
	gm_landings_free(&landings);
	return written.n;
}

static void tell(const struct engined *run, const struct gm_counters *sum, size_t n_landed)
{
	print_message("%s, passes of %u: %llu hits, %llu late hits, %llu fetches, %llu background copies, %llu evictions, "
		      "%zu landings\n",
		      gm_hook_model(run->hook)->name, gm_hook_info(run->hook)->n_ubatch, (unsigned long long)sum->hits,
		      (unsigned long long)sum->late_hits, (unsigned long long)sum->fetches,
		      (unsigned long long)sum->background_copies, (unsigned long long)sum->evictions, n_landed);
}

static void open_run(struct engined *run, const char *path, uint32_t n_ubatch)
{
	const char *const all[] = {"evict", "nop", NULL};
	struct gm_hook_options options = support_options(n_ubatch);

	engined_open(run, path, &options, all);
}

static void compare_all(const char *path, uint32_t n_ubatch, const char *prefill, const char *scope)
{
	static const char *const misses[] = {"threshold:0.1", "first-choice"};
	static const char *const slots[] = {"3", "6", "60%"}, *const shares[] = {"10%", "25%", "60%"};
	uint64_t few = strcmp(prefill, "batch") == 0 ? 1 : 20; /* an event of many rows leaves less that is not pinned */
	const char *const *caches = strcmp(scope, "global") == 0 ? shares : slots;
	const struct gm_cache_options options = {.beside = true,
						 .throttle = {.latency_us = 1500}}; /* a token's time or more */
	struct gm_counters sum = {0};
	struct engined run;
	size_t n_landed = 0;

	open_run(&run, path, n_ubatch);
	for (size_t m = 0; m < 2; m++)
		for (size_t c = 0; c < 3; c++) {
			const char *const option[] = {"cache", caches[c],        "miss",    misses[m], "evict",       "lfu",
						      "admit", "background:0.1", "prefill", prefill,   "cache-scope", scope,
						      NULL};

			n_landed += compare(&run, option, options, 1, &sum);
		}
	tell(&run, &sum, n_landed);
	assert_true(sum.late_hits >= few && n_landed >= few && sum.evictions && sum.fetches && sum.hits);
	engined_close(&run);
}

static void test_tokens(void **state)
{
	(void)state;
	compare_all(support_fixture("qwen3moe"), 1, "token", "layer");
	compare_all(support_fixture("deepseek2-groups"), 1, "token", "layer");
}

/* Decided layer by layer, replayed token by token. */
static void test_passes(void **state)
{
	(void)state;
	compare_all(support_fixture("qwen3moe"), 16, "token", "layer");
	compare_all(support_fixture("olmoe"), 45, "token", "layer");
}

/* Decided and replayed pass by pass. */
static void test_batch(void **state)
{
	(void)state;
	compare_all(support_fixture("qwen3moe"), 3, "batch", "layer");
	compare_all(support_fixture("olmoe"), 3, "batch", "global");
}

/* One pool, whose victims are of any layer; a cache that is emptied while copies are under way; warm-up; at once. */
static void test_settings(void **state)
{
	const char *const global[] = {"cache",        "30%",   "cache-scope",    "global", "miss",
				      "first-choice", "admit", "background:0.1", NULL};
	const char *const reset[] = {
		"cache", "60%", "miss", "first-choice", "admit", "background:0.02", "reset-per-sequence", "", NULL};
	const char *const warmup[] = {"cache",  "6",  "miss", "first-choice", "admit", "background:0.1",
				      "warmup", "31", NULL};
	const struct gm_cache_options slow = {.beside = true, .throttle = {.latency_us = 300}}, at_once = {0};
	struct gm_counters sum = {0};
	struct engined run;
	size_t n_landed = 0;

	(void)state;
	open_run(&run, support_fixture("qwen3moe"), 1);
	n_landed += compare(&run, global, slow, 2, &sum);
	n_landed += compare(&run, reset, slow, 4, &sum);
	n_landed += compare(&run, warmup, slow, 1, &sum);
	assert_true(compare(&run, warmup, at_once, 1, &sum));
	tell(&run, &sum, n_landed);
	assert_true(sum.late_hits && n_landed);
	engined_close(&run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_passes),
		cmocka_unit_test(test_batch),
		cmocka_unit_test(test_settings),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
