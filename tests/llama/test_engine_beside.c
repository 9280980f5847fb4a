/* Copies beside the work: by the link's thread, slowed down so that they are late. Which copy lands when then depends on the machine, so
 * what landed at which event is written down, and the emulator decides again with the same arrivals: outputs must be equal to the bit,
 * counters equal. */
#include "tests/llama/engine_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 60 };

/* --- arrivals, written down and played --- */

struct landing {
	uint64_t event;
	uint32_t layer, expert;
};

struct played {
	struct gm_arrivals arrivals; /* the core calls these */
	struct landing *landing;
	size_t n, next;
	uint64_t n_event;
};

static void on_landed(void *user, uint64_t event, const struct gm_landing *landing)
{
	struct played *p = user;

	p->landing = realloc(p->landing, (p->n + 1) * sizeof(*p->landing));
	assert_non_null(p->landing);
	p->landing[p->n++] = (struct landing){event, landing->expert_layer, landing->expert};
}

static void play(struct gm_arrivals *self, struct gm_core *core, uint32_t layer)
{
	struct played *p = (struct played *)self;

	(void)layer;
	for (; p->next < p->n && p->landing[p->next].event == p->n_event; p->next++)
		gm_core_land(core, p->landing[p->next].layer, p->landing[p->next].expert);
	p->n_event++;
}

/* --- comparing --- */

struct both {
	struct engined run;
	struct gm_hook *stock;
	int32_t token[N];
};

static void open_both(struct both *both, const char *path, uint32_t n_ubatch)
{
	const char *const all[] = {"evict", "nop", NULL};
	struct gm_hook_options options = support_options(n_ubatch);

	engined_open(&both->run, path, &options, all);
	both->stock = support_open(path, &options);
	support_tokens(both->token, N, 31);
}

static void close_both(struct both *both)
{
	gm_hook_close(both->stock);
	engined_close(&both->run);
}

static void compare(struct both *both, const char *const *option, struct gm_throttle throttle, struct gm_counters *sum,
		    size_t *n_landed)
{
	size_t n = (size_t)N * gm_hook_info(both->stock)->n_vocab;
	float *mine = calloc(n, sizeof(*mine)), *its = calloc(n, sizeof(*its));
	struct played played = {.arrivals = {.begin = play}};
	const struct gm_cache_options options = {
		.beside = true, .throttle = throttle, .on_landed = on_landed, .user = &played};
	struct gm_account expected;
	struct gm_error err = {0};
	char what[320];

	assert_true(mine && its);
	assert_ok(engined_with(&both->run, option, &options, &err), &err);
	gm_settings_describe(gm_cache_settings(both->run.cache), what, sizeof(what));
	assert_ok(engined_run(&both->run, both->token, N, mine, &err), &err);
	engined_emulate(&both->run, both->stock, options.override, &played.arrivals, both->token, N, its, &expected);
	assert_int_equal(played.next, played.n);
	for (size_t i = 0; i < n; i++)
		if (memcmp(&mine[i], &its[i], sizeof(float)) != 0)
			fail_msg("%s: value %zu: %.9g against the emulator's %.9g", what, i, (double)mine[i],
				 (double)its[i]);
	for (uint32_t l = 0; l < expected.n_layer; l++) {
		const struct gm_counters *count = &gm_cache_account(both->run.cache)->layer[l].count;

		assert_equal_counters(count, &expected.layer[l].count, what);
		gm_counters_add(sum, count);
	}
	*n_landed += played.n;
	gm_account_free(&expected);
	free(played.landing);
	free(mine);
	free(its);
}

static void compare_all(const char *path, uint32_t n_ubatch, const char *prefill, const char *scope)
{
	static const char *const misses[] = {"threshold:0.1", "first-choice", "substitute"};
	static const char *const slots[] = {"3", "6", "60%"}, *const shares[] = {"10%", "25%", "60%"};
	const char *const *caches = strcmp(scope, "global") == 0 ? shares : slots;
	static const struct gm_throttle throttles[] = {{0}, {.latency_us = 1000}}; /* about a token's time */
	struct gm_counters sum = {0};
	size_t n_landed = 0;
	struct both both;

	open_both(&both, path, n_ubatch);
	for (size_t m = 0; m < 3; m++)
		for (size_t c = 0; c < 3; c++)
			for (size_t t = 0; t < 2; t++) {
				const char *const option[] = {
					"cache",          caches[c], "miss",  misses[m],     "evict", "lfu", "admit",
					"background:0.1", "prefill", prefill, "cache-scope", scope,   NULL};

				compare(&both, option, throttles[t], &sum, &n_landed);
			}
	print_message("%s, passes of %u, %s, %s: %llu hits, %llu late hits, %llu fetches, %llu bypasses, %llu "
		      "substitutions, %llu "
		      "background copies, %zu of them landed by themselves\n",
		      gm_hook_model(both.stock)->name, n_ubatch, prefill, scope, (unsigned long long)sum.hits,
		      (unsigned long long)sum.late_hits, (unsigned long long)sum.fetches, (unsigned long long)sum.bypasses,
		      (unsigned long long)sum.substitutions, (unsigned long long)sum.background_copies, n_landed);
	assert_true(sum.hits && sum.late_hits && sum.fetches && sum.bypasses && sum.substitutions && n_landed);
	close_both(&both);
}

static void test_tokens(void **state)
{
	(void)state;
	compare_all(support_fixture("qwen3moe"), 1, "token", "layer");
	compare_all(support_fixture("deepseek2-groups"), 1, "token", "layer");
}

static void test_passes(void **state)
{
	(void)state;
	compare_all(support_fixture("qwen3moe"), 16, "token", "layer");
	compare_all(support_fixture("olmoe"), 45, "token", "layer");
}

static void test_batch(void **state)
{
	(void)state;
	compare_all(support_fixture("qwen3moe"), 3, "batch", "layer");
	compare_all(support_fixture("olmoe"), 3, "batch", "global");
}

/* One pool, and a cache that is emptied while copies are under way. */
static void test_settings(void **state)
{
	const char *const global[] = {"cache",        "30%",   "cache-scope",    "global", "miss",
				      "first-choice", "admit", "background:0.1", NULL};
	const char *const reset[] = {
		"cache", "60%", "miss", "first-choice", "admit", "background:0.02", "reset-per-sequence", "", NULL};
	const struct gm_throttle throttle = {.latency_us = 300};
	const struct gm_cache_options options = {.beside = true, .throttle = throttle};
	struct gm_counters sum = {0};
	struct gm_error err = {0};
	size_t n_landed = 0;
	struct both both;

	(void)state;
	open_both(&both, support_fixture("qwen3moe"), 1);
	compare(&both, global, throttle, &sum, &n_landed);
	assert_true(sum.hits && n_landed);
	assert_ok(engined_with(&both.run, reset, &options, &err), &err);
	for (int i = 0; i < 5; i++)
		assert_ok(engined_run(&both.run, both.token, 10, NULL, &err), &err);
	sum = engined_counters(&both.run);
	assert_true(sum.background_copies && sum.hits);
	close_both(&both);
}

/* --- faults --- */

/* A device whose n-th copy fails. */
struct failing {
	struct gm_link_ops plugin;
	int left;
	int status;
};

static int failing_copy(void *user, void *to, size_t offset, const void *from, size_t bytes, struct gm_error *err)
{
	struct failing *f = user;

	if (f->left-- <= 0)
		return f->status == GM_LINK_LOST ? (gm_fail(err, GM_ERR_IO, "the device is gone"), GM_LINK_LOST)
						 : gm_fail(err, f->status, "a copy failed");
	return f->plugin.copy(f->plugin.user, to, offset, from, bytes, err);
}

static int failing_finish(void *user, struct gm_error *err)
{
	struct failing *f = user;

	return f->plugin.finish(f->plugin.user, err);
}

/* A clear error, at once and for every pass from then on, and until then what the model would say. */
static void check_failure(struct both *both, const char *const *option, int n_good, int code, const char *words)
{
	size_t n_vocab = gm_hook_info(both->stock)->n_vocab;
	float *good = calloc(N * n_vocab, sizeof(*good)), *output = calloc(N * n_vocab, sizeof(*output));
	struct failing failing = {.left = n_good, .status = code};
	struct gm_link_ops ops = {.copy = failing_copy, .finish = failing_finish, .user = &failing};
	const struct gm_cache_options options = {.beside = true, .link_ops = &ops};
	struct gm_error err = {0};
	float logprob;

	assert_true(good && output);
	assert_ok(gm_plugin_link_ops(both->run.plugin, &failing.plugin, &err), &err);
	assert_ok(engined_with(&both->run, option, &options, &err), &err);
	gm_hook_begin_sequence(both->stock);
	support_run(both->stock, both->token, N, good);
	assert_int_equal(engined_run(&both->run, both->token, N, output, &err), code == GM_LINK_LOST ? GM_ERR_IO : code);
	if (!strstr(err.text, words))
		fail_msg("%s", err.text);
	for (size_t i = 0; i < N * n_vocab && gm_hook_info(both->stock)->n_ubatch == 1; i++)
		assert_true(output[i] == 0 || memcmp(&output[i], &good[i], sizeof(float)) == 0);
	for (int i = 0; i < 3; i++) {
		memset(&err, 0, sizeof(err));
		assert_true(gm_cache_pass(both->run.cache, both->token, 1, &logprob, &err) < 0);
		assert_non_null(strstr(err.text, words));
	}
	gm_cache_free(both->run.cache); /* which copies from what stands here */
	both->run.cache = NULL;
	free(good);
	free(output);
}

static void test_copy_fails(void **state)
{
	const char *const fetch[] = {"cache", "25%", NULL};
	const char *const background[] = {"cache", "60%", "miss", "substitute", "admit", "background:0.05", NULL};
	const char *const batch[] = {"cache", "25%", "prefill", "batch", NULL};
	static const uint32_t ubatches[] = {1, 32, 32};

	(void)state;
	for (size_t u = 0; u < 3; u++)
		for (int n_good = 0; n_good < 200; n_good += 37) {
			const char *const *option = u == 2 ? batch : fetch;
			struct both both;

			open_both(&both, support_fixture("qwen3moe"), ubatches[u]);
			check_failure(&both, option, n_good, GM_ERR_IO, "a copy failed");
			close_both(&both);
			open_both(&both, support_fixture("qwen3moe"), ubatches[u]);
			check_failure(&both, option, n_good, GM_LINK_LOST, "the device is gone");
			close_both(&both);
		}
	/* what is in the background fails, too, though nobody waits for it */
	for (int n_good = 0; n_good < 30; n_good += 9) {
		struct failing failing = {.left = n_good, .status = GM_ERR_IO};
		struct gm_link_ops ops = {.copy = failing_copy, .finish = failing_finish, .user = &failing};
		const struct gm_cache_options options = {.beside = true, .link_ops = &ops};
		struct gm_error err = {0};
		struct both both;

		open_both(&both, support_fixture("qwen3moe"), 1);
		assert_ok(gm_plugin_link_ops(both.run.plugin, &failing.plugin, &err), &err);
		assert_ok(engined_with(&both.run, background, &options, &err), &err);
		assert_int_equal(engined_run(&both.run, both.token, N, NULL, &err), GM_ERR_IO);
		assert_non_null(strstr(err.text, "a copy failed"));
		gm_cache_free(both.run.cache);
		both.run.cache = NULL;
		close_both(&both);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tokens),   cmocka_unit_test(test_passes),     cmocka_unit_test(test_batch),
		cmocka_unit_test(test_settings), cmocka_unit_test(test_copy_fails),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
