/* Keys and columns of results (sim/result.h) against docs/cli.md. */
#include "sim/result.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SETTINGS                                                                                                         \
	"trace,model,n_layer,n_expert,n_expert_used,cache_slots,cache_fraction,cache_scope,evict,miss,admit,prefill,hw," \
	"warmup"
#define COUNTERS                                                                                                       \
	"tokens,rows,picks,accesses,hits,late_hits,misses,fetches,substitutions,drops,cpu_picks,substitute_fallbacks," \
	"bypasses,"                                                                                                    \
	"background_copies,evictions,link_bytes"
#define MEANS "hit_rate,substituted_rate,substituted_mass,dropped_mass,time_per_token_us,tokens_per_s,link_bytes_per_token"
#define SPLIT "time_dense_us,time_gpu_us,time_link_wait_us,time_disk_wait_us,time_cpu_wait_us,time_token_us"
#define ORIGIN "preload,reset_per_sequence,trace_hash,settings_hash,semantics_version,version,error"

static const double unknown = (double)NAN;

static char *csv_of(const struct gm_result *result, bool extra)
{
	char *text = NULL;
	size_t size;
	struct gm_csv_writer csv = {.stream = open_memstream(&text, &size)};

	if (result)
		gm_result_csv_row(&csv, result, 0, GM_RESULT_ALL, extra);
	else
		gm_result_csv_header(&csv, 0, GM_RESULT_ALL, extra);
	gm_csv_end_row(&csv);
	fclose(csv.stream);
	return text;
}

static void columns_are_those_of_the_contract(void **state)
{
	(void)state;
	char *text = csv_of(NULL, false);
	assert_string_equal(text, SETTINGS "," COUNTERS "," MEANS "," SPLIT "," ORIGIN "\n");
	free(text);
	text = csv_of(NULL, true);
	assert_string_equal(text, SETTINGS "," COUNTERS "," MEANS "," SPLIT "," ORIGIN ",head_exhausted\n");
	free(text);
}

static struct gm_result sample(void)
{
	struct gm_result r = {
		.trace = "a \"b\",c.gmt",
		.model = "m",
		.n_layer = 3,
		.n_expert = 4,
		.n_expert_used = 2,
		.cache_slots = 2,
		.cache_fraction = 0.5,
		.cache_scope = "layer",
		.evict = "lru",
		.miss = "fetch",
		.admit = "fetch",
		.prefill = "token",
		.hw = "instant",
		.reset_per_sequence = "false",
		.semantics_version = 1,
		.version = "x",
	};

	return r;
}

static void keys_are_those_of_the_contract(void **state)
{
	struct gm_result r = sample();
	char names[1024] = "";
	struct gm_json *json = gm_result_json(&r, false);

	(void)state;
	for (const struct gm_json *m = gm_json_first(json); m; m = gm_json_next(m))
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", *names ? "," : "", gm_json_key(m));
	assert_string_equal(names, SETTINGS "," COUNTERS "," MEANS ",time_us");
	names[0] = '\0';
	for (const struct gm_json *m = gm_json_first(gm_json_get(json, "time_us")); m; m = gm_json_next(m))
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", *names ? "," : "", gm_json_key(m));
	assert_string_equal(names, "dense,gpu,link_wait,disk_wait,cpu_wait,token");
	gm_json_free(json);
	json = gm_result_json(&r, true);
	assert_non_null(gm_json_get(json, "head_exhausted"));
	gm_json_free(json);
}

static void counts_and_means(void **state)
{
	uint64_t bytes[] = {7};
	const struct gm_plan plan = {.timed = true, .hw = {.expert_bytes = bytes}};
	const struct gm_tally tally = {
		.tokens = 4,
		.timed_tokens = 4,
		.count = {.rows = 12,
			  .accesses = 20,
			  .hits = 5,
			  .late_hits = 1,
			  .substitutions = 6,
			  .link_bytes = 100,
			  .substituted_mass = 3},
		.time_us = {.dense = 8, .gpu = 4, .link_wait = 2, .disk_wait = 1, .cpu_wait = 1, .token = 4},
	};
	struct gm_result r = sample();

	(void)state;
	gm_result_count(&r, &plan, &tally);
	assert_int_equal(r.picks, 24);
	assert_int_equal(r.misses, 14);
	assert_true(r.hit_rate == 0.25 && r.substituted_rate == 0.25 && r.substituted_mass == 0.25);
	assert_true(r.time_per_token_us == 5 && r.tokens_per_s == 2e5 && r.link_bytes_per_token == 25);
	assert_true(r.dense_us + r.gpu_us + r.link_wait_us + r.disk_wait_us + r.cpu_wait_us + r.token_us == 5);
}

static void unknown_values_are_empty(void **state)
{
	struct gm_plan plan = {.timed = false};
	const struct gm_tally nothing = {0};
	struct gm_result r = sample();

	(void)state;
	r.cache_slots = unknown;
	gm_result_count(&r, &plan, &nothing);
	struct gm_json *json = gm_result_json(&r, false);
	static const char *const empty[] = {"cache_slots", "link_bytes", "hit_rate", "time_per_token_us", "tokens_per_s"};
	for (size_t i = 0; i < sizeof(empty) / sizeof(*empty); i++)
		assert_int_equal(gm_json_type(gm_json_get(json, empty[i])), GM_JSON_NULL);
	assert_int_equal(gm_json_type(gm_json_get(gm_json_get(json, "time_us"), "token")), GM_JSON_NULL);
	assert_true(gm_json_value(gm_json_get(json, "hits")) == 0);
	gm_json_free(json);
}

static void a_failed_point_has_its_reason(void **state)
{
	struct gm_result r = sample();

	(void)state;
	snprintf(r.error, sizeof(r.error), "no, \"never\"");
	char *text = csv_of(&r, false);
	assert_string_equal(text, "\"a \"\"b\"\",c.gmt\",m,3,4,2,2,0.5,layer,lru,fetch,fetch,token,instant,0,"
				  ",,,,,,,,,,,,,,,,,,,,,,,,,,,,,,false,,,1,x,\"no, \"\"never\"\"\"\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(columns_are_those_of_the_contract),
		cmocka_unit_test(keys_are_those_of_the_contract),
		cmocka_unit_test(counts_and_means),
		cmocka_unit_test(unknown_values_are_empty),
		cmocka_unit_test(a_failed_point_has_its_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
