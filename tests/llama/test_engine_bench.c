/* `engine bench` with a GPU, a fake one: llama.cpp's side lies where its options say, the engine's experts in slots, and both say what they take
 * of the device. And the short form of scripts/engine-predict.sh. */
#include "tests/llama/engine_support.h"

#include "engine/bench.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/llama/fake_gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKEN = 16, N_LAYER = 6, N_EXPERT = 128, TOP_K = 8 }; /* of tinymoe */

static const char text[] = "P1 and P2 and store the answer in register P3. If either is nonzero";

static struct fake_gpu gpu;

static int begin(void **state)
{
	const struct fake_cuda_options options = {.seed = 1};

	gm_hook_load_library();
	return fake_gpu_begin(&gpu, &options) < 0 ? -1 : support_begin(state);
}

/* cache: slots a layer of the one policy; n_cpu_moe, override: where llama.cpp's experts lie. */
static void run(struct gm_bench *bench, const char *cache, uint32_t n_cpu_moe, const char *override,
		enum gm_bench_only only)
{
	const struct fake_cuda_options fake = {.seed = 1};
	struct gm_error err = {0};
	struct gm_grid *grid = gm_grid_new(true, &err);
	struct gm_bench_options options = {.n_token = N_TOKEN, .n_round = 1, .only = only, .quiet = true};

	gpu.reset(&fake); /* it has room for so many allocations */
	assert_non_null(grid);
	assert_ok(gm_grid_option(grid, GM_OPTION_HW, "instant", &err), &err);
	assert_ok(gm_grid_option(grid, policy_option_id("cache"), cache, &err), &err);
	assert_ok(gm_grid_expand(grid, &options.settings, &options.n_settings, &err), &err);
	options.run.model = TINYMOE;
	options.run.prompt = text;
	options.run.prompt_size = strlen(text);
	options.run.hook = support_options(1);
	options.run.hook.n_gpu_layers = -1;
	options.run.hook.n_cpu_moe = n_cpu_moe;
	options.run.hook.override_tensor = override;
	assert_ok(gm_bench_run(bench, &options, &err), &err);
	gm_grid_free(grid);
}

static double stock_bytes(uint32_t n_cpu_moe, const char *override)
{
	struct gm_bench bench;
	double bytes;

	run(&bench, "1", n_cpu_moe, override, GM_BENCH_STOCK);
	assert_int_equal(bench.n_point, 2);
	assert_true(bench.point[0].median_us > 0);
	assert_true(isnan(bench.point[1].median_us) && isnan(bench.point[0].ratio));
	bytes = (double)bench.point[0].gpu_bytes;
	gm_bench_free(&bench);
	return bytes;
}

/* Less on the device by the experts of so many layers; buffers for what the CPU computes change a little with it. */
static void test_stock_placement(void **state)
{
	const double expert = 3.0 * 64 * 64 * 2, layer = N_EXPERT * expert, all = stock_bytes(0, NULL);
	const double half = stock_bytes(3, NULL), none = stock_bytes(N_LAYER, NULL);

	(void)state;
	print_message(
		"MB on the device: %.2f, with three layers' experts on the CPU %.2f, with all %.2f; a layer's are %.2f\n",
		all / 1e6, half / 1e6, none / 1e6, layer / 1e6);
	assert_true(fabs(all - half - 3 * layer) < 0.1 * layer);
	assert_true(fabs(half - none - 3 * layer) < 0.1 * layer);
	assert_true(fabs(stock_bytes(0, "blk\\.[0-2]\\.ffn_(up|down|gate)_exps=CPU") - half) < 0.1 * layer);
}

/* Half of the experts of every layer in slots, or all experts of half the layers: the same memory but for the scratch. */
static void test_equal_memory(void **state)
{
	const double expert = 3.0 * 64 * 64 * 2;
	struct gm_bench bench;
	double more;

	(void)state;
	run(&bench, "64", 3, NULL, GM_BENCH_BOTH);
	assert_int_equal(bench.n_failed, 0);
	assert_true(bench.point[0].median_us > 0 && bench.point[1].median_us > 0 && bench.point[1].ratio > 0);
	assert_string_equal(bench.device, "CUDA0");
	more = (double)bench.point[1].gpu_bytes - (double)bench.point[0].gpu_bytes;
	print_message("MB on the device: llama.cpp %.2f, engine %.2f, slots among them %.2f\n",
		      (double)bench.point[0].gpu_bytes / 1e6, (double)bench.point[1].gpu_bytes / 1e6,
		      (double)bench.point[1].stats.device_bytes / 1e6);
	assert_true((double)bench.point[1].stats.device_bytes >= 64 * N_LAYER * expert);
	assert_true(fabs(more) < (TOP_K + 2) * N_LAYER * expert);
	gm_bench_free(&bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stock_placement),
		cmocka_unit_test(test_equal_memory),
	};

	return cmocka_run_group_tests(tests, begin, support_end);
}
