/* Plans of a configuration (sim/plan.h): what their fingerprints tell apart. */
#include "sim/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* Two links that take 1 us for the first layer's 1,000 bytes, and 3 or 2 us for the others' 3,000. */
static void each_layers_time_is_in_the_fingerprint(void **state)
{
	uint64_t bytes[] = {1000, 3000, 3000};
	struct gm_model model = {.name = (char *)"m", .n_layer = 3, .n_expert = 8, .top_k = 2, .expert_bytes = bytes};
	char path[2][32], hw[80];
	struct gm_error err = {0};
	struct gm_grid *grid = gm_grid_new(true, &err);
	struct gm_preloads *preloads = gm_preloads_new(&err);
	const struct gm_settings *settings;
	struct gm_plan plan[2];
	size_t n;

	(void)state;
	assert_true(grid && preloads);
	for (int i = 0; i < 2; i++)
		snprintf(path[i], sizeof(path[i]), "/tmp/gm_plan_%d_%d.json", (int)getpid(), i);
	write_file(path[0],
		   "{\"dense_us\": 1, \"gpu_expert_us\": 1, \"token_us\": 1, \"link_gb_s\": 1, \"link_latency_us\": 0}");
	write_file(path[1],
		   "{\"dense_us\": 1, \"gpu_expert_us\": 1, \"token_us\": 1, \"link_gb_s\": 2, \"link_latency_us\": 0.5}");
	snprintf(hw, sizeof(hw), "%s,%s", path[0], path[1]);
	assert_int_equal(gm_grid_option(grid, GM_OPTION_HW, hw, &err), GM_OK);
	assert_int_equal(gm_grid_expand(grid, &settings, &n, &err), GM_OK);
	assert_int_equal(n, 2);
	for (int i = 0; i < 2; i++)
		if (gm_plan_make_live(&plan[i], &settings[i], &model, preloads, &err) < 0)
			fail_msg("%s", err.text);
	assert_true(plan[0].hw.copy_us[0] == 1 && plan[1].hw.copy_us[0] == 1);
	assert_true(plan[0].hw.copy_us[2] == 3 && plan[1].hw.copy_us[2] == 2);
	assert_string_not_equal(plan[0].hash, plan[1].hash);
	for (int i = 0; i < 2; i++) {
		gm_plan_free(&plan[i]);
		unlink(path[i]);
	}
	gm_preloads_free(preloads);
	gm_grid_free(grid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(each_layers_time_is_in_the_fingerprint)};

	return cmocka_run_group_tests_name("plans", tests, NULL, NULL);
}
