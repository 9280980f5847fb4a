/* The core by itself: the hand case, layer by layer against token by token, copies of the whole state, rerouting, experts beyond the
 * ranking. That its rules are right on every kind of trace is what tests/reference/test_random.c shows.
 */
#include "policies/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_LAYER 3
#define N_EXPERT 16
#define TOP_K 3
#define N_TOKEN 200

struct fixture {
	struct gm_core_config config;
	uint32_t slot[N_LAYER];
	struct gm_arrivals arrivals;
	struct gm_scratch *scratch;
	struct gm_core *core;
	size_t bytes;
};

static void policies(struct gm_core_config *config, const char *evict, const char *miss, const char *admit)
{
	struct gm_error err = {0};

	assert_int_equal(gm_evict_parse(evict, &config->evict, &err), 0);
	assert_int_equal(gm_miss_parse(miss, &config->miss, &err), 0);
	assert_int_equal(gm_admit_parse(admit, &config->admit, &err), 0);
}

static void start(struct fixture *f, uint32_t n_expert, uint32_t top_k, uint32_t n_slot, const char *evict,
		  const char *miss, const char *admit)
{
	struct gm_error err = {0};

	*f = (struct fixture){.arrivals = gm_arrivals_instant};
	for (int l = 0; l < N_LAYER; l++)
		f->slot[l] = n_slot;
	f->config = (struct gm_core_config){.n_layer = N_LAYER, .n_expert = n_expert, .top_k = top_k, .n_slot = f->slot};
	policies(&f->config, evict, miss, admit);
	assert_int_equal(gm_core_check(&f->config, &err), 0);
	f->scratch = gm_scratch_new(n_expert, top_k, &err);
	f->bytes = gm_core_bytes(&f->config);
	void *memory = calloc(1, f->bytes);

	assert_non_null(f->scratch);
	assert_non_null(memory);
	f->core = gm_core_init(memory, &f->config, &f->arrivals, f->scratch);
}

static void stop(struct fixture *f)
{
	free(f->core);
	gm_scratch_free(f->scratch);
}

/* docs/semantics.md, "A case to check by hand". */
static void test_hand_case(void **state)
{
	static const uint16_t request[5][2] = {{0, 1}, {0, 2}, {0, 1}, {0, 3}, {0, 1}};
	static const double gate[2] = {0.5, 0.5};
	struct gm_counters total = {0};
	struct gm_error err = {0};
	struct fixture f;

	(void)state;
	start(&f, 4, 2, 2, "lru", "fetch", "fetch");
	for (uint32_t t = 0; t < 5; t++) {
		struct gm_rows rows = {.n = 1, .ranked = request[t], .n_ranked = 2, .gate = gate};

		for (uint32_t l = 0; l < N_LAYER; l++)
			assert_int_equal(gm_event(f.core, l, t, &rows, &total, true, NULL, &err), 0);
	}
	assert_int_equal(total.hits, 12);
	assert_int_equal(total.accesses - total.hits, 18);
	assert_int_equal(total.rows, 15);
	stop(&f);
}

/* A trace by arithmetic: a full ranking and falling weights for each token and layer. */
static void make_row(uint32_t token, uint32_t layer, uint16_t *ranked, double *gate)
{
	uint32_t shift = (token / 7 + token * token % 5 + layer) % N_EXPERT, stride = 2 * ((token + layer) % 3) + 1;

	for (uint32_t r = 0; r < N_EXPERT; r++)
		ranked[r] = (uint16_t)((shift + r * stride) % N_EXPERT);
	for (uint32_t r = 0; r < TOP_K; r++)
		gate[r] = (double)(TOP_K - r) / 6;
}

static void event(struct fixture *f, uint32_t token, uint32_t layer, struct gm_counters *counters)
{
	struct gm_error err = {0};
	uint16_t ranked[N_EXPERT];
	double gate[TOP_K];
	struct gm_rows rows = {.n = 1, .ranked = ranked, .n_ranked = N_EXPERT, .gate = gate};

	make_row(token, layer, ranked, gate);
	assert_int_equal(gm_event(f->core, layer, token, &rows, counters, true, NULL, &err), 0);
}

static void test_layer_by_layer_equals_token_by_token(void **state)
{
	static const char *const evicts[] = {"lru", "fifo", "lfu", "lfu-decay:8"};

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct gm_counters by_token = {0}, by_layer = {0};
		struct fixture a, b;

		start(&a, N_EXPERT, TOP_K, 5, evicts[i], "threshold:0.3", "background:0.5");
		start(&b, N_EXPERT, TOP_K, 5, evicts[i], "threshold:0.3", "background:0.5");
		for (uint32_t t = 0; t < N_TOKEN; t++)
			for (uint32_t l = 0; l < N_LAYER; l++)
				event(&a, t, l, &by_token);
		for (uint32_t l = 0; l < N_LAYER; l++)
			for (uint32_t t = 0; t < N_TOKEN; t++)
				event(&b, t, l, &by_layer);
		assert_true(by_token.background_copies > 0 && by_token.substitutions > 0 && by_token.evictions > 0);
		by_layer.substituted_mass = by_token.substituted_mass; /* the order of the sum differs */
		assert_memory_equal(&by_token, &by_layer, sizeof(by_token));
		for (uint32_t l = 0; l < N_LAYER; l++)
			assert_memory_equal(gm_core_residency(a.core, l), gm_core_residency(b.core, l), N_EXPERT);
		stop(&a);
		stop(&b);
	}
}

/* Expert after expert, each once: whoever is oldest leaves, also where it was last pinned as many events ago as there are stamps. */
/* With counts that hardly fade, too: many are so near to each other that the formula itself decides, for the current token. */
static void test_a_run_equals_its_events(void **state)
{
	static const char *const evicts[] = {"lru", "fifo", "lfu", "lfu-decay:8", "lfu-decay:1e10"};
	static const char *const misses[] = {"fetch", "threshold:0.3", "first-choice"};
	static uint16_t ranked[N_TOKEN][N_EXPERT];
	static double gate[N_TOKEN][TOP_K];
	const struct gm_rows rows = {.n = N_TOKEN, .ranked = ranked[0], .n_ranked = N_EXPERT, .gate = gate[0]};

	(void)state;
	for (uint32_t t = 0; t < N_TOKEN; t++)
		make_row(t, 1, ranked[t], gate[t]);
	for (int i = 0; i < 15; i++) {
		struct gm_counters one_by_one = {0}, run = {0};
		struct gm_error err = {0};
		struct fixture a, b;

		start(&a, N_EXPERT, TOP_K, 5, evicts[i / 3], misses[i % 3], "background:0.5");
		start(&b, N_EXPERT, TOP_K, 5, evicts[i / 3], misses[i % 3], "background:0.5");
		for (uint32_t t = 0; t < N_TOKEN; t++)
			event(&a, t, 1, &one_by_one);
		assert_int_equal(gm_event_run(b.core, 1, 0, &rows, &run, NULL, &err), GM_OK);
		assert_true(run.evictions > 0);
		assert_memory_equal(&one_by_one, &run, sizeof(run));
		assert_memory_equal(gm_core_residency(a.core, 1), gm_core_residency(b.core, 1), N_EXPERT);
		stop(&a);
		stop(&b);
	}
}

static void test_pins_last_one_event(void **state)
{
	static const double gate[1] = {1};
	struct gm_error err = {0};

	(void)state;
	for (uint32_t n_slot = 250; n_slot < 260; n_slot++) {
		struct fixture f;

		start(&f, 1024, 1, n_slot, "lru", "fetch", "fetch");
		for (uint16_t e = 0; e < 1024; e++) {
			struct gm_rows rows = {.n = 1, .ranked = &e, .n_ranked = 1, .gate = gate};

			assert_int_equal(gm_event(f.core, 1, e, &rows, NULL, true, NULL, &err), 0);
			assert_int_equal(gm_core_residency(f.core, 1)[e], GM_RESIDENT);
			if (e >= n_slot)
				assert_int_equal(gm_core_residency(f.core, 1)[e - n_slot], GM_ABSENT);
		}
		stop(&f);
	}
}

static void test_state_can_be_copied(void **state)
{
	struct gm_counters a = {0}, b = {0};
	struct fixture f;

	(void)state;
	start(&f, N_EXPERT, TOP_K, 4, "lfu", "first-choice", "background:0.4");
	for (uint32_t t = 0; t < N_TOKEN; t++)
		for (uint32_t l = 0; l < N_LAYER; l++)
			event(&f, t, l, NULL);
	void *copy = malloc(f.bytes);

	assert_non_null(copy);
	memcpy(copy, f.core, f.bytes);
	for (uint32_t t = N_TOKEN; t < 2 * N_TOKEN; t++)
		for (uint32_t l = 0; l < N_LAYER; l++)
			event(&f, t, l, &a);
	memcpy(f.core, copy, f.bytes);
	for (uint32_t t = N_TOKEN; t < 2 * N_TOKEN; t++)
		for (uint32_t l = 0; l < N_LAYER; l++)
			event(&f, t, l, &b);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_true(a.hits > 0);
	free(copy);
	stop(&f);
}

static void test_reset_is_a_cold_start(void **state)
{
	struct gm_counters first = {0}, second = {0};
	struct fixture f;

	(void)state;
	start(&f, N_EXPERT, TOP_K, 4, "lfu-decay:5", "threshold:0.3", "background:0.4");
	for (uint32_t t = 0; t < N_TOKEN; t++)
		event(&f, t, 1, &first);
	gm_core_reset(f.core);
	assert_int_equal(gm_core_n_resident(f.core, 1), 0);
	for (uint32_t t = 0; t < N_TOKEN; t++)
		event(&f, t, 1, &second);
	assert_memory_equal(&first, &second, sizeof(first));
	stop(&f);
}

/* Keeps the first choice and puts residents of the ranking before everything else. */
static void prefer_resident(const double *arg, const struct gm_reroute_row *row, uint16_t *position)
{
	uint32_t n = 0;

	(void)arg;
	position[n++] = 0;
	for (int resident = 1; resident >= 0; resident--)
		for (uint32_t r = 1; r < row->n_ranked && n < row->top_k; r++)
			if ((row->residency[row->ranked[r]] >= GM_RESIDENT) == resident)
				position[n++] = (uint16_t)r;
}

static void halves(void *user, const float *logit, double *gate)
{
	(void)user;
	gate[0] = logit[0] > logit[1] ? 0.75 : 0.25;
	gate[1] = 1 - gate[0];
}

static void test_reroute(void **state)
{
	static const struct gm_reroute_ops ops = {.info = {.name = "prefer-resident"}, .reroute = prefer_resident};
	static const uint16_t ranked[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {3, 2, 1, 0}};
	static const float logit[4] = {4, 3, 2, 1};
	static const uint16_t want[3][2] = {{0, 1}, {0, 1}, {3, 1}};
	struct gm_counters total = {0};
	struct gm_error err = {0};
	struct fixture f;

	(void)state;
	start(&f, 4, 2, 2, "lru", "fetch", "fetch");
	f.config.reroute.ops = &ops;
	for (uint32_t t = 0; t < 3; t++) {
		struct gm_rows rows = {.n = 1, .ranked = ranked[t], .n_ranked = 4, .logit = logit, .regate = halves};
		struct gm_decision decision[2];

		assert_int_equal(gm_event(f.core, 0, t, &rows, &total, true, decision, &err), 0);
		assert_int_equal(decision[0].expert, want[t][0]);
		assert_int_equal(decision[1].expert, want[t][1]);
	}
	assert_int_equal(total.hits, 3); /* 0 and 1, then 1 */
	stop(&f);
}

struct others {
	uint16_t expert[3];
	uint32_t n;
	int status;
};

/* One at a time. */
static int beyond(void *user, uint32_t row, uint32_t from, const uint16_t **expert, uint32_t *n, struct gm_error *err)
{
	struct others *others = user;

	assert_int_equal(row, 0);
	*expert = others->expert + from;
	*n = from < others->n;
	return others->status ? gm_fail(err, others->status, "nothing beyond") : 0;
}

/* Residents are found past the ranking in the order given; where nothing is known there, the pick is fetched. */
static void test_beyond_the_ranking(void **state)
{
	static const double gate[2] = {0.5, 0.5};
	static const uint16_t warm[3][2] = {{2, 3}, {4, 5}, {2, 4}}, ranked[2] = {0, 1};
	struct gm_counters total = {0};
	struct gm_decision decision[2];
	struct gm_error err = {0};
	struct fixture f;

	(void)state;
	start(&f, 6, 2, 4, "lru", "substitute", "fetch");
	/* cold: nothing to substitute with, nobody needs to be asked, and 2, 3 are fetched; then they are resident somewhere beyond the
	 * ranking, but nothing is known of it, so 4, 5 are fetched too */
	for (uint32_t t = 0; t < 3; t++) {
		struct others none = {.n = 0};
		struct gm_rows rows = {
			.n = 1, .ranked = warm[t], .n_ranked = 2, .gate = gate, .beyond = beyond, .user = &none};

		assert_int_equal(gm_event(f.core, 0, t, &rows, &total, true, NULL, &err), 0);
	}
	assert_int_equal(total.substitute_fallbacks, 4);
	assert_int_equal(total.head_exhausted, 2);
	struct others others = {.expert = {3, 5, 2}, .n = 3};
	struct gm_rows rows = {.n = 1, .ranked = ranked, .n_ranked = 2, .gate = gate, .beyond = beyond, .user = &others};

	assert_int_equal(gm_event(f.core, 0, 3, &rows, &total, true, decision, &err), 0);
	assert_int_equal(decision[0].action, GM_SUBSTITUTE);
	assert_int_equal(decision[0].substitute, 3);
	assert_int_equal(decision[1].substitute, 5);
	others.status = GM_ERR_UNSUPPORTED;
	assert_int_equal(gm_event(f.core, 0, 4, &rows, &total, true, decision, &err), GM_ERR_UNSUPPORTED);
	assert_string_equal(err.text, "nothing beyond");
	stop(&f);
}

static void test_configurations_that_cannot_run(void **state)
{
	static const uint64_t bytes[N_LAYER] = {100, 200, 300};
	struct gm_core_config config = {.n_layer = N_LAYER, .n_expert = 4, .top_k = 2, .scope = GM_SCOPE_GLOBAL};
	struct gm_error err = {0};

	(void)state;
	policies(&config, "lru", "fetch", "fetch");
	config.pool_bytes = 99;
	assert_int_equal(gm_core_check(&config, &err), GM_ERR_USAGE);
	assert_non_null(strstr(err.text, "expert_bytes"));
	config.expert_bytes = bytes;
	err = (struct gm_error){0};
	assert_int_equal(gm_core_check(&config, &err), GM_ERR_USAGE);
	assert_non_null(strstr(err.text, "99 bytes"));
	config.pool_bytes = 100;
	err = (struct gm_error){0};
	assert_int_equal(gm_core_check(&config, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hand_case),
		cmocka_unit_test(test_layer_by_layer_equals_token_by_token),
		cmocka_unit_test(test_a_run_equals_its_events),
		cmocka_unit_test(test_pins_last_one_event),
		cmocka_unit_test(test_state_can_be_copied),
		cmocka_unit_test(test_reset_is_a_cold_start),
		cmocka_unit_test(test_reroute),
		cmocka_unit_test(test_beyond_the_ranking),
		cmocka_unit_test(test_configurations_that_cannot_run),
	};

	return cmocka_run_group_tests_name("core", tests, NULL, NULL);
}
