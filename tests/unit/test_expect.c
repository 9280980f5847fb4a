/* What a replay tells policies to expect (gm_core_expect) comes true: these experts are among the requests of the layer's next event. */
#include "sim/replay.h"
#include "sim/window.h"
#include "tests/support/random_case.h"
#include "traces/reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_CASE = 200, MAX_TOP_K = 8 };

/* Expectations that wait for their layer's event. A policy knows its layer by its state (scope layer) or by the first item. */
static struct expected {
	const void *state;
	uint32_t first_item, n;
	uint16_t expert[MAX_TOP_K];
} expected[RC_MAX_LAYER];
static const struct gm_evict_ops *watched;
static uint64_t n_expected;

static struct expected *find(const void *state, uint32_t first_item)
{
	uint32_t i = 0;

	while (i < RC_MAX_LAYER && expected[i].state &&
	       !(expected[i].state == state && expected[i].first_item == first_item))
		i++;
	assert_true(i < RC_MAX_LAYER);
	return &expected[i];
}

static void expect(void *state, const struct gm_requests *requests)
{
	struct expected *e = find(state, requests->first_item);

	assert_true(requests->n <= MAX_TOP_K);
	*e = (struct expected){.state = state, .first_item = requests->first_item, .n = requests->n};
	memcpy(e->expert, requests->expert, requests->n * sizeof(*e->expert));
}

static void access_all(void *state, const struct gm_requests *requests)
{
	struct expected *e = find(state, requests->first_item);

	for (uint32_t i = 0; i < e->n; i++) {
		uint32_t q = 0;

		while (q < requests->n && requests->expert[q] != e->expert[i])
			q++;
		assert_true(q < requests->n);
		n_expected++;
	}
	e->n = 0;
	watched->access(state, requests);
}

static void check_case(uint64_t seed, const char *path)
{
	struct gm_evict_ops watching;
	struct gm_error err = {0};
	const struct gm_window *window;
	struct random_case c;
	int status;

	random_case_make(&c, seed);
	random_case_write(&c, &c.trace, path);
	watched = c.config.core.evict.ops;
	watching = *watched;
	watching.expect = expect;
	watching.access = access_all;
	c.config.core.evict.ops = &watching;
	memset(expected, 0, sizeof(expected));

	struct gm_trace *trace = gm_trace_open(path, &err);
	struct gm_scratch *scratch = gm_scratch_new(c.trace.n_expert, c.trace.top_k, &err);

	assert_non_null(trace);
	assert_non_null(scratch);
	struct gm_windows *windows =
		gm_windows_new(trace, c.config.prefill, GM_WINDOWS_TAIL | GM_WINDOWS_GATES | GM_WINDOWS_NEXT_USE, &err);

	assert_non_null(windows);
	c.config.core.first_use = gm_windows_first_use(windows);
	struct gm_replay *replay = gm_replay_new(&c.config, NULL, scratch, &err);

	assert_non_null(replay);
	while ((status = gm_windows_next(windows, &window, &err)) > 0)
		assert_int_equal(gm_replay_windows(replay, windows, window, (uint32_t)status, &err), 0);
	assert_int_equal(status, 0);
	gm_replay_free(replay);
	gm_windows_free(windows);
	gm_scratch_free(scratch);
	gm_trace_close(trace);
	random_case_free(&c);
}

static void what_is_expected_comes(void **state)
{
	char path[64];

	(void)state;
	snprintf(path, sizeof(path), "/tmp/gatemass-expect-%d.gmt", (int)getpid());
	for (uint64_t seed = 1; seed <= N_CASE; seed++)
		check_case(seed, path);
	assert_true(n_expected > 1000);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_expected_comes)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
