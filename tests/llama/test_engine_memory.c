/* Decoding token after token under policies that change shows no slope of memory: 1,500 tokens, or 20,000 with GM_SOAK (make soak). */
#include "tests/llama/engine_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_RUN = 50 }; /* tokens under one policy */

/* Bytes of the process that lie in memory. */
static long resident_bytes(void)
{
	FILE *stream = fopen("/proc/self/statm", "r");
	long pages = 0;

	assert_non_null(stream);
	assert_int_equal(fscanf(stream, "%*s %ld", &pages), 1);
	fclose(stream);
	return pages * sysconf(_SC_PAGESIZE);
}

static void test_no_slope(void **state)
{
	static const char *const policies[] = {"fetch-all", "rule-0.15", "quality-first", "speed-first", "substitute-all"};
	static const char *const caches[] = {"8", "25%", "50%"};
	const char *const all[] = {"evict", "nop", NULL};
	const int n_token = getenv("GM_SOAK") ? 20000 : 1500;
	struct gm_hook_options options = support_options(16);
	struct gm_error err = {0};
	struct engined run;
	int32_t token[N_RUN];
	long early = 0, late;

	(void)state;
#ifdef __SANITIZE_ADDRESS__
	skip(); /* which keeps what is freed for a while */
#endif
	engined_open(&run, TINYMOE, &options, all);
	for (int done = 0, i = 0; done < n_token; done += N_RUN, i++) {
		const char *const option[] = {"cache", caches[i % 3], "policy", policies[i % 5], NULL};
		const struct gm_cache_options cache = {.beside = i % 2, .throttle = {.latency_us = i % 4 == 3 ? 20 : 0}};

		support_tokens(token, N_RUN, (uint64_t)i);
		assert_ok(engined_with(&run, option, &cache, &err), &err);
		assert_ok(gm_cache_begin_sequence(run.cache, NULL, NULL, &err), &err);
		for (int t = 0; t < N_RUN; t++) {
			float logprob;

			assert_ok(gm_cache_pass(run.cache, &token[t], 1, &logprob, &err), &err);
		}
		if (done < n_token / 2)
			early = resident_bytes();
	}
	late = resident_bytes();
	engined_close(&run);
	print_message("%d tokens: %.1f MB after the first half, %.1f MB at the end\n", n_token, (double)early / 1e6,
		      (double)late / 1e6);
	assert_true(late < early + (1 << 20));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_slope)};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
