/* Measured arrivals: their file, whole and damaged, and their player, which must decide what a core decided whose copies landed by the clock. */
#include "policies/table.h"
#include "sim/clock.h"
#include "sim/player.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define HASH "0123456789abcdef"
#define OTHER_HASH "fedcba9876543210"

static char folder[] = "/tmp/gatemass-landings-XXXXXX";

static int begin(void **state)
{
	(void)state;
	return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	unlink("a.csv");
	unlink("a.csv.part");
	return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1;
}

/* --- the file --- */

static void put(struct gm_landings_writer *writer, uint64_t token, uint32_t layer, uint32_t expert)
{
	const struct gm_landing landing = {token, layer, layer, expert};
	struct gm_error err = {0};

	assert_int_equal(gm_landings_put(writer, &landing, &err), 0);
}

static void test_round_trip(void **state)
{
	static const struct gm_landing expected[] = {
		{0, 1, 1, 7}, {0, 2, 2, 9}, {2, 1, 1, 4}, {2, 1, 1, 3}, {2, 4, 4, 4}, {9, 0, 0, 65535},
	};
	struct gm_landings_writer writer;
	struct gm_landings landings;
	struct gm_error err = {0};

	(void)state;
	assert_int_equal(gm_landings_open(&writer, "a.csv", HASH, "--cache 3, \"x\"", &err), 0);
	put(&writer, 2, 4, 4); /* a pass of two tokens is decided layer by layer */
	put(&writer, 0, 1, 7);
	put(&writer, 2, 1, 4);
	put(&writer, 0, 2, 9);
	put(&writer, 2, 1, 3);
	gm_landings_pass(&writer, 2);
	assert_int_equal(writer.n_written, 2);
	gm_landings_pass(&writer, 4);
	put(&writer, 5, 0, 1);
	gm_landings_forget(&writer);
	put(&writer, 10, 0, 2);
	put(&writer, 9, 0, 65535);
	gm_landings_pass(&writer, 10);
	assert_int_equal(access("a.csv", F_OK), -1); /* nothing half-written stands under its name */
	assert_int_equal(gm_landings_commit(&writer, OTHER_HASH, &err), 0);
	gm_landings_discard(&writer);

	assert_int_equal(gm_landings_read(&landings, "a.csv", &err), 0);
	assert_string_equal(landings.policy_hash, HASH);
	assert_string_equal(landings.policy, "--cache 3, \"x\"");
	assert_string_equal(landings.trace_hash, OTHER_HASH);
	assert_int_equal(landings.n, sizeof(expected) / sizeof(*expected));
	for (size_t i = 0; i < landings.n; i++) {
		assert_int_equal(landings.landing[i].token, expected[i].token);
		assert_int_equal(landings.landing[i].layer, expected[i].layer);
		assert_int_equal(landings.landing[i].expert_layer, expected[i].expert_layer);
		assert_int_equal(landings.landing[i].expert, expected[i].expert);
	}
	gm_landings_free(&landings);
}

static void write_text(const char *text, size_t size)
{
	FILE *file = fopen("a.csv", "we");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
}

#define HEAD "gatemass-arrivals,1\npolicy," HASH ",x\ntoken,layer,expert_layer,expert\n"

static void test_damage(void **state)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{"", "no arrivals of a run: a.csv: the first line must be \"gatemass-arrivals,1\"; engine run --arrivals "
		     "writes such a file"},
		{"token,layer\n1,2\n", "no arrivals of a run: a.csv: the first line must be"},
		{"gatemass-arrivals,2\n", "arrivals of version 2: a.csv: this program reads version 1"},
		{"gatemass-arrivals,1\n", "cut off: a.csv: its last line must be \"end\""},
		{"gatemass-arrivals,1\npolicy,0123,x\n", "no policy: a.csv, line 2: must be"},
		{"gatemass-arrivals,1\npolicy," HASH ",x\ntoken,layer,expert\n", "other columns: a.csv, line 3: must be"},
		{HEAD "1,0,0\n", "no landing: a.csv, line 4: must be"},
		{HEAD "1,0,0,-3\n", "not a whole number: a.csv, line 4: token"},
		{HEAD "1,0,0,3\n0,0,0,3\n", "out of order: a.csv, line 5: must be by token, then by layer"},
		{HEAD "1,2,2,3\n1,1,1,3\n", "out of order: a.csv, line 5: must be by token, then by layer"},
		{HEAD "1,0,0,3\n", "cut off: a.csv: its last line must be \"end\""},
		{HEAD "1,0,0,3\nend,1\n", "no end: a.csv, line 5: must be"},
		{HEAD "1,0,0,3\nend,1,beef\n", "no end: a.csv, line 5: must be"},
		{HEAD "1,0,0,3\nend,2," HASH "\n", "lines are missing: a.csv: there must be 2 landings, not 1"},
		{HEAD "1,0,0,3\nend,1," HASH "\n2,0,0,3\n", "a line after the end: a.csv, line 6: must be the last"},
		{HEAD "1,0,0,\"3\n", "quote"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct gm_landings landings;
		struct gm_error err = {0};

		write_text(cases[i].text, strlen(cases[i].text));
		assert_int_equal(gm_landings_read(&landings, "a.csv", &err), GM_ERR_FORMAT);
		if (!strstr(err.text, cases[i].message))
			fail_msg("case %zu: \"%s\": \"%s\" was expected", i, err.text, cases[i].message);
		gm_landings_free(&landings);
	}
}

/* Wherever a file is cut it is refused, but for the newline at its end. */
static void test_cut(void **state)
{
	static const char whole[] = HEAD "1,0,0,3\n1,2,2,4\n12,0,0,5\nend,3," HASH "\n";
	struct gm_landings landings;

	(void)state;
	for (size_t size = 0; size < sizeof(whole) - 2; size++) {
		struct gm_error err = {0};

		write_text(whole, size);
		assert_int_equal(gm_landings_read(&landings, "a.csv", &err), GM_ERR_FORMAT);
		gm_landings_free(&landings);
	}
	write_text(whole, sizeof(whole) - 1);
	assert_int_equal(gm_landings_read(&landings, "a.csv", NULL), GM_OK);
	assert_int_equal(landings.n, 3);
	gm_landings_free(&landings);
	assert_int_equal(gm_landings_read(&landings, "nofile.csv", NULL), GM_ERR_IO);
	gm_landings_free(&landings);
}

/* --- the player --- */

enum { N_LAYER = 4, N_EXPERT = 24, TOP_K = 4, N_TOKEN = 400 };

/* A clock that tells what it lands. */
struct spy {
	struct gm_arrivals arrivals;
	struct gm_arrivals *clock;
	struct gm_landings_writer writer;
	uint64_t token, n_landed;
};

static void spy_begin(struct gm_arrivals *self, struct gm_core *core, uint32_t layer)
{
	struct spy *spy = (struct spy *)(void *)self;
	uint8_t before[N_LAYER][N_EXPERT];

	for (uint32_t l = 0; l < N_LAYER; l++)
		memcpy(before[l], gm_core_residency(core, l), N_EXPERT);
	spy->clock->begin(spy->clock, core, layer);
	for (uint32_t l = 0; l < N_LAYER; l++)
		for (uint32_t e = 0; e < N_EXPERT; e++) {
			bool next = l < layer; /* its layer's event of this token is over */
			struct gm_landing landing = {spy->token + next, l, l, e};
			struct gm_error err = {0};

			if (before[l][e] != GM_RESERVED || gm_core_residency(core, l)[e] == GM_RESERVED)
				continue;
			assert_int_equal(gm_landings_put(&spy->writer, &landing, &err), 0);
			spy->n_landed++;
		}
}

static void spy_end(struct gm_arrivals *self, const struct gm_event_log *log)
{
	struct spy *spy = (struct spy *)(void *)self;

	spy->clock->end(spy->clock, log);
}

struct trace {
	uint16_t ranked[N_TOKEN][N_LAYER][N_EXPERT];
	double gate[TOP_K];
};

static uint32_t draw(uint64_t *state, uint32_t n)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33) % n;
}

/* Rankings in which lower ids come first more often. */
static void make_trace(struct trace *trace, uint64_t seed)
{
	for (uint32_t t = 0; t < N_TOKEN; t++)
		for (uint32_t l = 0; l < N_LAYER; l++) {
			uint16_t *ranked = trace->ranked[t][l];

			for (uint16_t e = 0; e < N_EXPERT; e++)
				ranked[e] = e;
			for (uint32_t e = 0; e < N_EXPERT; e++) {
				uint32_t other = e + draw(&seed, N_EXPERT - e) * draw(&seed, 4) / 4;
				uint16_t kept = ranked[e];

				ranked[e] = ranked[other];
				ranked[other] = kept;
			}
		}
	for (uint32_t r = 0; r < TOP_K; r++)
		trace->gate[r] = 0.4 - 0.1 * r;
}

/* The events of a token. */
static void run_token(struct gm_core *core, const struct trace *trace, uint64_t t, struct gm_counters *counters)
{
	struct gm_error err = {0};

	for (uint32_t l = 0; l < N_LAYER; l++) {
		const struct gm_rows rows = {
			.n = 1, .ranked = trace->ranked[t][l], .n_ranked = N_EXPERT, .gate = trace->gate};

		assert_int_equal(gm_event(core, l, t, &rows, &counters[l], true, NULL, &err), 0);
	}
}

static struct gm_core_config config_of(uint32_t *n_slot)
{
	struct gm_core_config config = {.n_layer = N_LAYER, .n_expert = N_EXPERT, .top_k = TOP_K, .n_slot = n_slot};
	struct gm_error err = {0};

	for (uint32_t l = 0; l < N_LAYER; l++)
		n_slot[l] = 8;
	assert_int_equal(gm_evict_parse("lfu", &config.evict, &err), 0);
	assert_int_equal(gm_miss_parse("first-choice", &config.miss, &err), 0);
	assert_int_equal(gm_admit_parse("background:0.3", &config.admit, &err), 0);
	return config;
}

/* Copies land by the clock, and what landed is written to a.csv. */
static uint64_t run_clock(const struct gm_core_config *config, const struct trace *trace, struct gm_scratch *scratch,
			  struct gm_counters *counters)
{
	double zero[N_LAYER] = {0}, one[N_LAYER], slow[N_LAYER];
	const struct gm_hw hw = {.n_layer = N_LAYER,
				 .dense_us = one,
				 .gpu_expert_us = one,
				 .cpu_expert_us = zero,
				 .copy_us = slow,
				 .read_us = zero};
	void *clock_memory = malloc(gm_clock_bytes(N_LAYER, N_EXPERT, false)), *memory = calloc(1, gm_core_bytes(config));
	struct spy spy = {.arrivals = {.begin = spy_begin, .end = spy_end}};
	struct gm_error err = {0};
	struct gm_core *core;

	assert_true(clock_memory && memory);
	for (uint32_t l = 0; l < N_LAYER; l++) {
		one[l] = 1;
		slow[l] = 25;
	}
	spy.clock = gm_clock_arrivals(gm_clock_init(clock_memory, &hw, N_EXPERT));
	assert_int_equal(gm_landings_open(&spy.writer, "a.csv", HASH, "x", &err), 0);
	core = gm_core_init(memory, config, &spy.arrivals, scratch);
	for (spy.token = 0; spy.token < N_TOKEN; spy.token++) {
		run_token(core, trace, spy.token, counters);
		gm_landings_pass(&spy.writer, spy.token + 1);
	}
	assert_int_equal(gm_landings_commit(&spy.writer, HASH, &err), 0);
	gm_landings_discard(&spy.writer);
	free(clock_memory);
	free(memory);
	return spy.n_landed;
}

static void run_player(const struct gm_core_config *config, const struct trace *trace, struct gm_scratch *scratch,
		       const struct gm_landings *landings, struct gm_counters *counters, struct gm_error *err)
{
	void *memory = calloc(1, gm_core_bytes(config));
	struct gm_player *player = gm_player_new(landings, config, err);
	struct gm_core *core;

	assert_true(memory && player);
	core = gm_core_init(memory, config, gm_player_arrivals(player), scratch);
	for (uint64_t t = 0; t < N_TOKEN && !err->code; t++) {
		gm_player_set_token(player, t);
		run_token(core, trace, t, counters);
		gm_player_check(player, err);
	}
	gm_player_check_end(player, err);
	gm_player_free(player);
	free(memory);
}

static void test_player(void **state)
{
	struct trace *trace = malloc(sizeof(*trace));
	struct gm_error err = {0};
	struct gm_scratch *scratch = gm_scratch_new(N_EXPERT, TOP_K, &err);

	(void)state;
	assert_true(trace && scratch);
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct gm_counters expected[N_LAYER] = {0}, counted[N_LAYER] = {0}, sum = {0};
		uint32_t n_slot[N_LAYER];
		const struct gm_core_config config = config_of(n_slot);
		struct gm_landings landings;

		make_trace(trace, seed);
		assert_true(run_clock(&config, trace, scratch, expected) > 100);
		assert_int_equal(gm_landings_read(&landings, "a.csv", &err), 0);
		run_player(&config, trace, scratch, &landings, counted, &err);
		assert_int_equal(err.code, 0);
		assert_memory_equal(counted, expected, sizeof(expected));
		for (uint32_t l = 0; l < N_LAYER; l++)
			gm_counters_add(&sum, &counted[l]);
		print_message("%llu late hits, %llu copies in the background, %llu evictions, %zu landings\n",
			      (unsigned long long)sum.late_hits, (unsigned long long)sum.background_copies,
			      (unsigned long long)sum.evictions, landings.n);
		assert_true(sum.late_hits > 100 && sum.background_copies > 100 && sum.evictions > 100);
		gm_landings_free(&landings);
	}
	gm_scratch_free(scratch);
	free(trace);
}

/* A landing is put where none can be. */
static void test_player_refuses(void **state)
{
	static const struct {
		struct gm_landing landing;
		const char *message;
	} cases[] = {
		{{0, 1, 1, 3}, "a copy landed that is not under way: a.csv: token 0, layer 1: expert 3 of layer 1 must"},
		{{5, N_LAYER, N_LAYER, 3}, "a landing before an event that there is not: a.csv: token 5, layer 4: must"},
		{{5, 0, 0, N_EXPERT}, "a copy landed that is not under way: a.csv: token 5, layer 0: expert 24 of layer 0"},
		{{5, 0, N_LAYER, 0}, "a copy landed that is not under way: a.csv: token 5, layer 0: expert 0 of layer 4"},
		{{N_TOKEN, 0, 0, 3}, "a landing before an event that there is not: a.csv: token 400, layer 0: must be"},
	};
	struct trace *trace = malloc(sizeof(*trace));
	struct gm_error none = {0};
	struct gm_scratch *scratch = gm_scratch_new(N_EXPERT, TOP_K, &none);
	uint32_t n_slot[N_LAYER];
	const struct gm_core_config config = config_of(n_slot);

	(void)state;
	assert_true(trace && scratch);
	make_trace(trace, 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct gm_landing landing = cases[i].landing;
		const struct gm_landings landings = {.landing = &landing, .n = 1, .path = (char[]){"a.csv"}};
		struct gm_counters counters[N_LAYER] = {0};
		struct gm_error err = {0};

		run_player(&config, trace, scratch, &landings, counters, &err);
		assert_int_equal(err.code, GM_ERR_FORMAT);
		if (!strstr(err.text, cases[i].message))
			fail_msg("case %zu: \"%s\": \"%s\" was expected", i, err.text, cases[i].message);
	}
	gm_scratch_free(scratch);
	free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_damage),         cmocka_unit_test(test_cut),
		cmocka_unit_test(test_player),     cmocka_unit_test(test_player_refuses),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
