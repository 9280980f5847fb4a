/* A timeline that several threads tell: what the link copied, under which name, and what ended in the passes asked for. Built with
 * ThreadSanitizer too (make check-engine-threads). */
#include "engine/link.h"
#include "engine/spans.h"
#include "tests/unit/test_engine_common.h"

#include <math.h>
#include <string.h>

enum { MAX_SPAN = 1000, N_JOB = 100 };

struct kept {
	struct gm_span span[MAX_SPAN];
	size_t n;
};

/* Without a lock of its own: it must not be called by two threads at once. */
static void keep(void *user, const struct gm_span *span)
{
	struct kept *kept = user;

	assert_true(kept->n < MAX_SPAN);
	kept->span[kept->n++] = *span;
}

static void on_copied(void *user, uint64_t tag, bool demand, const struct gm_link_times *times)
{
	gm_spans_add(user, GM_LANE_LINK, demand ? "fetch" : "background", 0, (uint32_t)tag, times->started_us,
		     times->arrived_us);
}

static size_t count(const struct kept *kept, const char *what)
{
	size_t n = 0;

	for (size_t i = 0; i < kept->n; i++)
		n += strcmp(kept->span[i].what, what) == 0;
	return n;
}

/* Half of the jobs are demand jobs, which are told by name and tag, each once; computing is told by this thread meanwhile. */
static void test_two_threads(void **state)
{
	static char from[N_JOB], to[N_JOB];
	struct kept *kept = calloc(1, sizeof(*kept));
	const struct gm_span_sink sink = {.span = keep, .user = kept};
	struct gm_error err = {0};
	struct gm_spans *spans = gm_spans_new(&sink, &err);
	const struct gm_link_options options = {
		.ops = gm_link_memcpy, .max_job = N_JOB, .on_copied = on_copied, .user = spans};
	struct gm_link *link = gm_link_open(&options, &err);
	bool seen[N_JOB] = {false};
	struct gm_link_stats stats;
	double us = 0;

	(void)state;
	assert_true(kept && spans && link);
	gm_spans_begin_pass(spans, true);
	for (uint32_t i = 0; i < N_JOB; i++) {
		const struct gm_link_request request = {.tag = i,
							.piece[0] = {.to = to, .offset = i, .from = from + i, .bytes = 1}};
		double now = gm_spans_now_us();
		uint32_t job = 0;

		assert_int_equal((i % 2 ? gm_link_background : gm_link_demand)(link, &request, &job, &err), 0);
		gm_spans_routed(spans);
		gm_spans_experts(spans, i / 10, UINT32_MAX, now, gm_spans_now_us());
	}
	assert_int_equal(gm_link_drain(link, &err), 0);
	gm_spans_end_pass(spans);
	gm_link_stats(link, &stats);
	assert_int_equal(gm_link_close(link, &err), 0);
	gm_spans_free(spans);
	assert_int_equal(count(kept, "fetch"), N_JOB / 2);
	assert_int_equal(count(kept, "background"), N_JOB / 2);
	assert_int_equal(count(kept, "expert"), N_JOB);
	assert_int_equal(count(kept, "dense"), N_JOB / 10); /* once a layer */
	assert_int_equal(count(kept, "token"), 1);
	for (size_t i = 0; i < kept->n; i++) {
		const struct gm_span *span = &kept->span[i];

		if (span->lane != GM_LANE_LINK)
			continue;
		assert_false(seen[span->expert]);
		seen[span->expert] = true;
		assert_string_equal(span->what, span->expert % 2 ? "background" : "fetch");
		us += span->end_us - span->start_us;
	}
	assert_true(fabs(us - stats.busy_us) < 1);
	free(kept);
}

/* Of three passes the second is wanted, whose beginning is time 0. */
static void test_passes(void **state)
{
	struct kept *kept = calloc(1, sizeof(*kept));
	const struct gm_span_sink sink = {.span = keep, .user = kept};
	struct gm_error err = {0};
	struct gm_spans *spans = gm_spans_new(&sink, &err);

	(void)state;
	assert_true(kept && spans);
	for (uint32_t pass = 0; pass < 3; pass++) {
		double now = gm_spans_now_us();

		gm_spans_begin_pass(spans, pass == 1);
		gm_spans_routed(spans);
		gm_spans_experts(spans, 0, pass, now + 10, now + 20);
		gm_spans_add(spans, GM_LANE_DISK, "read", 0, pass, now, now + 5);
		gm_spans_end_pass(spans);
	}
	gm_spans_free(spans);
	assert_int_equal(kept->n, 4);
	assert_string_equal(kept->span[0].what, "dense");
	assert_true(kept->span[0].start_us == 0);
	assert_string_equal(kept->span[1].what, "expert");
	assert_int_equal(kept->span[1].expert, 1);
	assert_true(fabs(kept->span[1].end_us - kept->span[1].start_us - 10) < 0.01);
	assert_string_equal(kept->span[2].what, "read");
	assert_string_equal(kept->span[3].what, "token");
	assert_true(fabs(kept->span[3].start_us - kept->span[1].end_us) < 0.01);
	free(kept);
	gm_spans_begin_pass(NULL, true); /* nobody wants to know */
	gm_spans_experts(NULL, 0, 0, 0, 0);
	gm_spans_end_pass(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_threads), cmocka_unit_test(test_passes)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
