/* The simulator against the slow reference (reference.h) on random small traces: all scopes, gatings, groups, bias, batches, absent rows,
 * policies, profiles, disk tier, through a trace file each. Counters must agree exactly, times to 1e-9 relative and what the readings of a clock are
 * rounded by. GM_RANDOM_CASES sets how many cases (GM_RANDOM_WIDE_CASES of hundreds of experts, GM_RANDOM_LONG_CASES of long rows),
 * GM_RANDOM_SEED the first seed.
 */
#include "tests/support/random_case.h"
#include "traces/reader.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRACE_PATH_SIZE 64

struct outcome {
	struct gm_tally total;
	struct gm_tally *layer; /* [n_layer] */
	uint8_t *residency;     /* [n_layer][n_expert] */
	struct gm_tally *token; /* [n_token] where asked for */
	struct gm_tally *sequence;
	uint32_t n_sequence;
	bool late; /* a replay that went ahead has no results */
};

/* How often replays went ahead of copies beside the work, and how many of them held. */
struct ahead {
	uint64_t n, n_held;
};

static void keep_token(void *user, uint64_t token, uint32_t sequence, const struct gm_tally *tally)
{
	struct outcome *out = user;

	(void)sequence;
	out->token[token] = *tally;
}

static void must(int status, const struct gm_error *err)
{
	if (status < 0)
		fail_msg("%s", err->text);
}

static uint32_t *load_preload(struct random_case *c, const char *path)
{
	struct gm_error err = {0};
	uint32_t *order = NULL;
	struct gm_trace *trace;

	random_case_write(c, &c->preload, path);
	trace = gm_trace_open(path, &err);
	must(trace ? 0 : err.code, &err);
	must(gm_popularity(trace, c->config.core.scope, &order, &err), &err);
	gm_trace_close(trace);
	c->config.preload = order;
	c->config.n_preload = (size_t)c->trace.n_layer * c->trace.n_expert;
	return order;
}

static unsigned window_flags(const struct gm_replay_config *config)
{
	unsigned flags = GM_WINDOWS_TAIL | GM_WINDOWS_GATES;

	return config->core.evict.ops->info.flags & GM_NEEDS_NEXT_USE ? flags | GM_WINDOWS_NEXT_USE : flags;
}

static void collect(struct gm_replay *replay, const struct random_case *c, struct outcome *out)
{
	size_t n_layer = c->trace.n_layer;
	const struct gm_tally *sequences;

	gm_replay_total(replay, NULL, &out->total);
	out->layer = malloc(n_layer * sizeof(*out->layer));
	assert_non_null(out->layer);
	memcpy(out->layer, gm_replay_layers(replay), n_layer * sizeof(*out->layer));
	sequences = gm_replay_sequences(replay, &out->n_sequence);
	out->sequence = malloc((out->n_sequence + 1) * sizeof(*out->sequence));
	assert_non_null(out->sequence);
	if (out->n_sequence)
		memcpy(out->sequence, sequences, out->n_sequence * sizeof(*out->sequence));
}

static void run(struct random_case *c, const char *path, bool split, struct outcome *out)
{
	struct gm_error err = {0};
	struct gm_trace *trace = gm_trace_open(path, &err);
	struct gm_scratch *scratch = gm_scratch_new(c->trace.n_expert, c->trace.top_k, &err);
	const struct gm_window *window;
	struct gm_replay_sink sink = {0};
	int status;

	must(trace && scratch ? 0 : err.code, &err);
	*out = (struct outcome){0};
	out->token = calloc(c->trace.n_token, sizeof(*out->token));
	if (split)
		sink = (struct gm_replay_sink){.token = keep_token, .user = out, .per_sequence = true};
	struct gm_windows *windows = gm_windows_new(trace, c->config.prefill, window_flags(&c->config), &err);

	must(windows ? 0 : err.code, &err);
	c->config.core.first_use = gm_windows_first_use(windows);
	struct gm_replay *replay = gm_replay_new(&c->config, &sink, scratch, &err);

	must(replay ? 0 : err.code, &err);
	while ((status = gm_windows_next(windows, &window, &err)) > 0)
		must(gm_replay_windows(replay, windows, window, (uint32_t)status, &err), &err);
	must(status, &err);
	out->late = gm_replay_is_late(replay, c->config.hw);
	if (!out->late)
		collect(replay, c, out);
	gm_replay_free(replay);
	gm_windows_free(windows);
	gm_scratch_free(scratch);
	gm_trace_close(trace);
}

static void free_outcome(struct outcome *out)
{
	free(out->layer);
	free(out->token);
	free(out->sequence);
}

/* --- comparison --- */

static bool differs(double a, double b, double slack)
{
	return !(fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b)) + 1e-12 + slack);
}

/* The parts of a time are differences of what a clock shows, which are rounded as the clock's last reading is. */
static double clock_slack(const struct random_case *c, const struct ref_result *want)
{
	return want->time.total * DBL_EPSILON * c->trace.n_token;
}

static void check_count(const struct random_case *c, const char *where, const char *what, uint64_t got, uint64_t want)
{
	char text[400];

	if (got == want)
		return;
	random_case_describe(c, text, sizeof(text));
	fail_msg("%s\n%s: %s is %llu, the reference says %llu", text, where, what, (unsigned long long)got,
		 (unsigned long long)want);
}

static void check_number(const struct random_case *c, const char *where, const char *what, double got, double want,
			 double slack)
{
	char text[400];

	if (!differs(got, want, slack))
		return;
	random_case_describe(c, text, sizeof(text));
	fail_msg("%s\n%s: %s is %.17g, the reference says %.17g", text, where, what, got, want);
}

static void check_counters(const struct random_case *c, const char *where, const struct gm_counters *got,
			   const struct ref_counters *want)
{
#define CHECK(name) check_count(c, where, #name, got->name, want->name)
	CHECK(rows);
	CHECK(accesses);
	CHECK(hits);
	CHECK(late_hits);
	CHECK(fetches);
	CHECK(substitutions);
	CHECK(drops);
	CHECK(cpu_picks);
	CHECK(substitute_fallbacks);
	CHECK(bypasses);
	CHECK(background_copies);
	CHECK(evictions);
	CHECK(link_bytes);
#undef CHECK
	check_count(c, where, "misses", got->accesses - got->hits - got->late_hits, want->misses);
	check_count(c, where, "picks", got->rows * c->trace.top_k, want->picks);
	check_count(c, where, "head_exhausted", got->head_exhausted, 0);
	check_number(c, where, "substituted mass", got->substituted_mass, want->substituted_mass, 0);
	check_number(c, where, "dropped mass", got->dropped_mass, want->dropped_mass, 0);
}

static void check_time(const struct random_case *c, const char *where, const struct gm_time_split *got,
		       const struct ref_time *want, double slack)
{
	if (!c->config.timed)
		return;
	check_number(c, where, "dense time", got->dense, want->dense, slack);
	check_number(c, where, "gpu time", got->gpu, want->gpu, slack);
	check_number(c, where, "link wait", got->link_wait, want->link_wait, slack);
	check_number(c, where, "disk wait", got->disk_wait, want->disk_wait, slack);
	check_number(c, where, "cpu wait", got->cpu_wait, want->cpu_wait, slack);
	check_number(c, where, "token time", got->token, want->token, slack);
	check_number(c, where, "time", gm_time_total(got), want->total, slack);
}

static void check_tokens(const struct random_case *c, const struct outcome *got, const struct ref_result *want)
{
	char where[32];

	for (uint32_t i = c->ref.warmup; i < c->trace.n_token; i++) {
		const struct gm_counters *count = &got->token[i].count;

		snprintf(where, sizeof(where), "token %u", i);
		check_count(c, where, "tokens", got->token[i].tokens, 1);
		check_count(c, where, "hits", count->hits, want->token[i].hits);
		check_count(c, where, "accesses", count->accesses, want->token[i].accesses);
		check_count(c, where, "fetches", count->fetches, want->token[i].fetches);
		check_count(c, where, "substitutions", count->substitutions, want->token[i].substitutions);
		check_number(c, where, "mass", count->substituted_mass, want->token[i].substituted_mass, 0);
	}
}

static void check_total(const struct random_case *c, const struct outcome *got, const struct ref_result *want)
{
	double slack = clock_slack(c, want);

	check_count(c, "trace", "tokens", got->total.tokens, want->counters.tokens);
	check_count(c, "trace", "timed tokens", got->total.timed_tokens, want->pass_tokens);
	check_counters(c, "trace", &got->total.count, &want->counters);
	check_time(c, "trace", &got->total.time_us, &want->time, slack);
	for (uint32_t l = 0; l < c->trace.n_layer; l++) {
		char where[32];

		snprintf(where, sizeof(where), "layer %u", l);
		check_counters(c, where, &got->layer[l].count, &want->layer[l]);
		check_time(c, where, &got->layer[l].time_us, &want->layer_time[l], slack);
	}
}

static void check_sequences(const struct random_case *c, const struct outcome *got)
{
	struct gm_tally sum = {0};

	for (uint32_t s = 0; s < got->n_sequence; s++)
		gm_tally_add(&sum, &got->sequence[s]);
	check_count(c, "sequences", "tokens", sum.tokens, got->total.tokens);
	check_count(c, "sequences", "hits", sum.count.hits, got->total.count.hits);
	check_number(c, "sequences", "time", gm_time_total(&sum.time_us), gm_time_total(&got->total.time_us), 0);
}

/* Layer by layer, as if no copy came late: right, or said to be wrong. */
static void check_ahead(struct random_case *c, const char *path, const struct ref_result *want, struct ahead *ahead)
{
	struct outcome got;

	c->config.ahead = true;
	if (!gm_replay_goes_ahead(&c->config))
		return;
	run(c, path, false, &got);
	if (!got.late)
		check_total(c, &got, want);
	ahead->n++;
	ahead->n_held += !got.late;
	free_outcome(&got);
}

static void check_case(void (*make)(struct random_case *, uint64_t), uint64_t seed, struct ref_coverage *coverage,
		       struct ahead *ahead)
{
	char path[TRACE_PATH_SIZE], preload[TRACE_PATH_SIZE];
	struct ref_result want;
	struct random_case c;
	struct outcome got;
	uint32_t *order = NULL;

	snprintf(path, sizeof(path), "/tmp/gatemass-random-%d.gmt", (int)getpid());
	snprintf(preload, sizeof(preload), "/tmp/gatemass-preload-%d.gmt", (int)getpid());
	make(&c, seed);
	c.ref.want_tokens = 1;
	if (!c.config.timed)
		c.ref.dense_us = NULL; /* the reference with all times 0 is the profile "instant" */
	assert_int_equal(ref_replay(&c.trace, &c.ref, &want, coverage), REF_OK);
	random_case_write(&c, &c.trace, path);
	if (c.ref.preload)
		order = load_preload(&c, preload);

	run(&c, path, true, &got);
	check_total(&c, &got, &want);
	check_tokens(&c, &got, &want);
	check_sequences(&c, &got);
	free_outcome(&got);
	run(&c, path, false, &got);
	check_total(&c, &got, &want);
	free_outcome(&got);
	check_ahead(&c, path, &want, ahead);

	free(order);
	ref_result_free(&want);
	random_case_free(&c);
	unlink(path);
	unlink(preload);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

static void test_random_traces(void **state)
{
	uint64_t first = from_environment("GM_RANDOM_SEED", 1), n = from_environment("GM_RANDOM_CASES", 6000);
	struct ref_coverage coverage = {0};
	struct ahead ahead = {0};

	(void)state;
	for (uint64_t seed = first; seed < first + n; seed++)
		check_case(random_case_make, seed, &coverage, &ahead);
	printf("%llu random cases from seed %llu; how often each rule and branch was reached:\n", (unsigned long long)n,
	       (unsigned long long)first);
	unsigned missing = ref_coverage_print(&coverage, stdout);

	printf("%llu replays went ahead of copies beside the work, %llu of them rightly\n", (unsigned long long)ahead.n,
	       (unsigned long long)ahead.n_held);
	if (n >= 6000) {
		assert_int_equal(missing, 0);
		assert_true(ahead.n_held > 0 && ahead.n_held < ahead.n);
	}
}

/* Hundreds of experts: what the simulator does only where there are many. */
static void test_wide_traces(void **state)
{
	uint64_t first = from_environment("GM_RANDOM_SEED", 1), n = from_environment("GM_RANDOM_WIDE_CASES", 100);
	struct ref_coverage coverage = {0};
	struct ahead ahead = {0};

	(void)state;
	for (uint64_t seed = first; seed < first + n; seed++)
		check_case(random_case_make_wide, seed, &coverage, &ahead);
}

/* More picks than a word has bits take other paths. */
static void test_long_rows(void **state)
{
	uint64_t first = from_environment("GM_RANDOM_SEED", 1), n = from_environment("GM_RANDOM_LONG_CASES", 250);
	struct ref_coverage coverage = {0};
	struct ahead ahead = {0};

	(void)state;
	for (uint64_t seed = first; seed < first + n; seed++)
		check_case(random_case_make_long_rows, seed, &coverage, &ahead);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_traces), cmocka_unit_test(test_wide_traces),
					   cmocka_unit_test(test_long_rows)};

	return cmocka_run_group_tests_name("simulator against the slow reference", tests, NULL, NULL);
}
