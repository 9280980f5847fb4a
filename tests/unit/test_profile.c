/* Hardware profiles and the times derived from them (sim/profile.h). */
#include "sim/profile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/gm_profile_XXXXXX.json";

static int make_path(void **state)
{
	(void)state;
	int fd = mkstemps(path, 5);

	return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
	(void)state;
	return unlink(path);
}

/* Loads a profile from text; the message of a failure stays in err. */
static int load(const char *text, struct gm_profile *profile, struct gm_error *err)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
	*err = (struct gm_error){0};
	return gm_profile_load(path, profile, err);
}

static void shipped_profiles_are_complete(void **state)
{
	static const char *const names[] = {"rtx3090-pcie4", "rtx3090-pcie3", "rtx4090-pcie4", "rtx3090-16gb-ram",
					    "instant"};
	uint64_t bytes[] = {1908736, 1908736}, dense[] = {11000000, 12000000};
	const struct gm_model model = {
		.n_layer = 2, .n_expert = 4, .top_k = 2, .expert_bytes = bytes, .dense_bytes = dense};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct gm_profile profile;
		struct gm_hw hw;
		struct gm_error err = {0};

		if (gm_profile_load(names[i], &profile, &err) < 0)
			fail_msg("%s", err.text);
		assert_string_equal(profile.name, names[i]);
		assert_true(strlen(profile.source) > 20);
		assert_int_equal(gm_hw_derive(&profile, &model, &hw, &err), GM_OK);
		if (gm_hw_check(&hw, &profile, true, &err) < 0)
			fail_msg("%s", err.text);
		assert_true(hw.disk == (i == 3));
		assert_true(hw.instant == (i == 4));
		gm_hw_free(&hw);
		gm_profile_free(&profile);
	}
}

static void times_are_derived_from_bytes(void **state)
{
	uint64_t bytes[] = {1000, 2000}, dense[] = {5000, 0};
	const struct gm_model model = {
		.n_layer = 2, .n_expert = 4, .top_k = 2, .expert_bytes = bytes, .dense_bytes = dense};
	struct gm_profile p;
	struct gm_hw hw;
	struct gm_error err;

	(void)state;
	assert_int_equal(
		load("{\"gpu_mem_gb_s\": 1, \"gpu_expert_overhead_us\": 3, \"layer_overhead_us\": 7, \"token_us\": 9,"
		     " \"link_gb_s\": 0.5, \"link_latency_us\": 2, \"cpu_mem_gb_s\": 0, \"cpu_roundtrip_us\": 4,"
		     " \"disk_gb_s\": 0.25, \"disk_latency_us\": 100, \"host_expert_bytes\": 2000}",
		     &p, &err),
		GM_OK);
	assert_int_equal(gm_hw_derive(&p, &model, &hw, &err), GM_OK);
	assert_int_equal(gm_hw_check(&hw, &p, true, &err), GM_OK);
	assert_true(hw.gpu_expert_us[0] == 3 + 1 && hw.gpu_expert_us[1] == 3 + 2);
	assert_true(hw.dense_us[0] == 7 + 5 && hw.dense_us[1] == 7);
	assert_true(hw.copy_us[0] == 2 + 2 && hw.copy_us[1] == 2 + 4);
	assert_true(hw.read_us[0] == 100 + 4 && hw.read_us[1] == 100 + 8);
	assert_true(hw.cpu_expert_us[1] == 0); /* infinitely fast */
	assert_true(hw.token_us == 9 && hw.cpu_roundtrip_us == 4 && hw.host_bytes == 2000);
	gm_hw_free(&hw);
	gm_profile_free(&p);
}

static void given_values_win(void **state)
{
	uint64_t bytes[] = {1000};
	const struct gm_model model = {.n_layer = 1, .n_expert = 4, .top_k = 2, .expert_bytes = bytes};
	struct gm_profile p;
	struct gm_hw hw;
	struct gm_error err;

	(void)state;
	assert_int_equal(load("{\"expert_bytes\": 4000, \"gpu_mem_gb_s\": 1, \"gpu_expert_us\": 2.5, \"dense_us\": 80,"
			      " \"cpu_expert_us\": 45, \"link_gb_s\": 1, \"link_latency_us\": 0, \"token_us\": 0}",
			      &p, &err),
			 GM_OK);
	assert_int_equal(gm_hw_derive(&p, &model, &hw, &err), GM_OK);
	assert_int_equal(gm_hw_check(&hw, &p, false, &err), GM_OK);
	assert_true(hw.gpu_expert_us[0] == 2.5 && hw.dense_us[0] == 80 && hw.cpu_expert_us[0] == 45);
	assert_true(hw.copy_us[0] == 4 && hw.expert_bytes[0] == 4000);
	/* nothing is silently 0: the round trip is not given */
	assert_int_equal(gm_hw_check(&hw, &p, true, &err), GM_ERR_USAGE);
	assert_non_null(strstr(err.text, "cpu_roundtrip_us"));
	gm_hw_free(&hw);
	gm_profile_free(&p);
}

/* What a check of a profile against a model without bytes says. */
static void lacks(const char *text, bool needs_cpu, const char *word)
{
	const struct gm_model model = {.n_layer = 1, .n_expert = 4, .top_k = 2};
	struct gm_profile p;
	struct gm_hw hw;
	struct gm_error err;

	if (load(text, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(gm_hw_derive(&p, &model, &hw, &err), GM_OK);
	assert_int_equal(gm_hw_check(&hw, &p, needs_cpu, &err), GM_ERR_USAGE);
	if (!strstr(err.text, word))
		fail_msg("%s: %s", word, err.text);
	gm_hw_free(&hw);
	gm_profile_free(&p);
}

static void what_is_missing_is_named(void **state)
{
	(void)state;
	lacks("{}", false, "layer_overhead_us");
	lacks("{\"layer_overhead_us\": 1, \"gpu_mem_gb_s\": 5}", false, "--dense-bytes");
	lacks("{\"dense_us\": 1}", false, "gpu_expert_overhead_us");
	lacks("{\"dense_us\": 1, \"gpu_expert_overhead_us\": 1, \"gpu_mem_gb_s\": 5}", false, "--expert-bytes");
	lacks("{\"dense_us\": 1, \"gpu_expert_us\": 1}", false, "link_latency_us");
	lacks("{\"dense_us\": 1, \"gpu_expert_us\": 1, \"link_latency_us\": 1, \"link_gb_s\": 1}", false, "expert_bytes");
	lacks("{\"dense_us\": 1, \"gpu_expert_us\": 1, \"link_latency_us\": 1, \"link_gb_s\": 0}", false, "token_us");
	lacks("{\"dense_us\": 1, \"gpu_expert_us\": 1, \"link_latency_us\": 1, \"link_gb_s\": 0, \"token_us\": 1}", true,
	      "cpu_mem_gb_s");
}

static void bad_files_are_refused(void **state)
{
	static const char *const cases[][2] = {
		{"{\"link_gb\": 1}", "unknown key: "},
		{"{\"link_gb_s\": -1}", "key \"link_gb_s\""},
		{"{\"link_gb_s\": \"fast\"}", "key \"link_gb_s\""},
		{"{\"expert_bytes\": 1.5}", "key \"expert_bytes\""},
		{"{\"expert_bytes\": 0}", "key \"expert_bytes\""},
		{"{\"name\": 3}", "key \"name\""},
		{"{\"disk_gb_s\": 3}", "host_expert_bytes"},
		{"{\"host_expert_bytes\": 3000}", "disk_gb_s"},
		{"[]", "not a profile"},
		{"{", "line 1"},
	};
	struct gm_profile p;
	struct gm_error err;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_true(load(cases[i][0], &p, &err) < 0);
		if (!strstr(err.text, cases[i][1]))
			fail_msg("%s: %s", cases[i][0], err.text);
	}
	err = (struct gm_error){0};
	assert_int_equal(gm_profile_load("rtx-nothing", &p, &err), GM_ERR_USAGE);
	assert_non_null(strstr(err.text, "rtx3090-pcie3"));
}

static void names_and_null_values(void **state)
{
	struct gm_profile p;
	struct gm_error err;

	(void)state;
	assert_int_equal(load("{\"source\": {\"dense_us\": \"a guess\"}, \"dense_us\": null}", &p, &err), GM_OK);
	assert_true(isnan(p.dense_us));
	assert_non_null(strstr(p.source, "a guess"));
	assert_true(strncmp(p.name, "gm_profile_", 11) == 0); /* after the file */
	assert_null(strstr(p.name, ".json"));
	gm_profile_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shipped_profiles_are_complete),
		cmocka_unit_test(times_are_derived_from_bytes),
		cmocka_unit_test(given_values_win),
		cmocka_unit_test(what_is_missing_is_named),
		cmocka_unit_test(bad_files_are_refused),
		cmocka_unit_test(names_and_null_values),
	};

	return cmocka_run_group_tests(tests, make_path, remove_path);
}
