/* The cache on a device whose memory the host cannot compute in: the fake GPU. */
#include "tests/llama/engine_support.h"

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/llama/fake_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 50 };

static struct fake_gpu gpu;

static int begin(void **state)
{
	const struct fake_cuda_options options = {.seed = 1};

	gm_hook_load_library();
	return fake_gpu_begin(&gpu, &options) < 0 ? -1 : support_begin(state);
}

static struct gm_hook_options device_options(uint32_t n_ubatch)
{
	struct gm_hook_options options = support_options(n_ubatch);

	options.n_gpu_layers = -1;
	return options;
}

static void compare(const char *path, uint32_t n_ubatch, bool beside, const char *prefill, const char *scope)
{
	const char *const option[] = {"cache", "25%", "evict", "lfu", "prefill", prefill, "cache-scope", scope, NULL};
	const struct gm_cache_options cache = {.beside = beside};
	const struct fake_cuda_options fake = {.seed = 1};
	struct gm_hook_options options = device_options(n_ubatch);
	float *expected, *output;
	struct gm_hook *stock;
	size_t n;
	struct gm_error err = {0};
	struct engined run;
	int32_t token[N];

	gpu.reset(&fake); /* it has room for so many allocations */
	stock = support_open(path, &options);
	n = (size_t)N * gm_hook_info(stock)->n_vocab;
	expected = calloc(n, sizeof(*expected));
	output = calloc(n, sizeof(*output));
	assert_true(expected && output);
	support_tokens(token, N, 3);
	support_run(stock, token, N, expected);
	gm_hook_close(stock);
	engined_open(&run, path, &options, option);
	assert_string_equal(gm_plugin_device(run.plugin), "CUDA0");
	assert_ok(engined_with(&run, option, &cache, &err), &err);
	assert_ok(engined_run(&run, token, N, output, &err), &err);
	assert_memory_equal(output, expected, n * sizeof(*output));
	assert_true(engined_counters(&run).evictions > 0);
	engined_close(&run);
	assert_string_equal(gpu.problems(), "");
	free(expected);
	free(output);
}

static void test_exact(void **state)
{
	(void)state;
	for (unsigned i = 0; i < GM_FIXTURE_N_RECORDABLE; i++)
		for (int beside = 0; beside < 2; beside++) {
			const char *path = support_fixture(fixture_info(i)->name);

			compare(path, 1, beside, "token", "layer");
			compare(path, 16, beside, "token", "layer");
			compare(path, 16, beside, "batch", "layer");
			compare(path, 16, beside, "batch", "global");
		}
}

/* --- computing while copies are under way --- */

/* A link whose copies go on until the device has come to an expert's last multiplication, or for a while: not every event has one to compute, and a
 * busy machine may not come to it. */
struct slow {
	struct gm_link_ops plugin;
	int n_tried;
	bool seen;
};

static int slow_copy(void *user, void *to, size_t offset, const void *from, size_t bytes, struct gm_error *err)
{
	const struct timespec moment = {.tv_nsec = 100000};
	struct slow *slow = user;
	unsigned long before = fake_gpu_n_down();

	if (!slow->seen && slow->n_tried++ < 400) {
		for (int i = 0; i < 500 && fake_gpu_n_down() == before; i++)
			nanosleep(&moment, NULL);
		slow->seen = fake_gpu_n_down() != before;
	}
	return slow->plugin.copy(slow->plugin.user, to, offset, from, bytes, err);
}

static int slow_finish(void *user, struct gm_error *err)
{
	struct slow *slow = user;

	return slow->plugin.finish(slow->plugin.user, err);
}

/* R15: what is there is computed, to the end, before what is fetched has arrived. */
static void test_beside(void **state)
{
	const char *const option[] = {"cache", "60%", "evict", "lfu", NULL};
	struct gm_hook_options options = device_options(1);
	struct slow slow = {0};
	const struct gm_link_ops ops = {.copy = slow_copy, .finish = slow_finish, .user = &slow};
	const struct gm_cache_options cache = {.beside = true, .link_ops = &ops};
	const struct fake_cuda_options fake = {.seed = 1};
	struct gm_error err = {0};
	struct engined run;
	int32_t token[N];

	(void)state;
	gpu.reset(&fake);
	support_tokens(token, N, 3);
	engined_open(&run, support_fixture("qwen3moe"), &options, option);
	assert_ok(gm_plugin_link_ops(run.plugin, &slow.plugin, &err), &err);
	assert_ok(engined_with(&run, option, &cache, &err), &err);
	assert_ok(engined_run(&run, token, N, NULL, &err), &err);
	print_message("experts were computed during copy %d\n", slow.n_tried);
	assert_true(slow.seen);
	engined_close(&run);
}

/* Room for the model but not for the slots: an error that says so, and a smaller cache fits. */
static void test_no_room(void **state)
{
	const char *const all[] = {"cache", "128", NULL}, *const few[] = {"cache", "8", NULL};
	const struct fake_cuda_options limited = {.seed = 1, .device_bytes = 16 << 20}, unlimited = {.seed = 1};
	struct gm_hook_options options = device_options(16);
	struct gm_error err = {0};
	struct engined run;
	int32_t token[N];

	(void)state;
	gpu.reset(&limited);
	support_tokens(token, N, 3);
	assert_int_equal(engined_try(&run, TINYMOE, &options, all, &err), GM_ERR_MEMORY);
	if (!strstr(err.text, "no memory for 129 slots") || !strstr(err.text, "CUDA0"))
		fail_msg("%s", err.text);
	memset(&err, 0, sizeof(err));
	assert_ok(engined_again(&run, few, &err), &err);
	assert_ok(engined_run(&run, token, N, NULL, &err), &err);
	engined_close(&run);
	gpu.reset(&unlimited);
}

/* The smallest device memory with which a model and a cache can be opened. */
static size_t least_bytes(const struct gm_hook_options *options, const char *const *option)
{
	size_t low = 0, high = 16 << 20; /* too little, enough */

	while (high - low > 1) {
		const struct fake_cuda_options fake = {.seed = 1, .device_bytes = (low + high) / 2};
		struct gm_error err = {0};
		struct engined run;

		gpu.reset(&fake);
		if (engined_try(&run, support_fixture("qwen3moe"), options, option, &err) < 0)
			low = fake.device_bytes;
		else
			high = fake.device_bytes;
		engined_close(&run);
	}
	return high;
}

/* Room for the slots, but not for results that must stay away while another part is computed: then the multiplications are computed one by one,
 * and each tensor's share of an expert is copied by itself. */
static void check_no_room(const char *prefill, size_t few_bytes)
{
	const char *const option[] = {"cache", "25%", "prefill", prefill, NULL};
	const struct gm_cache_options cache = {.beside = true};
	struct gm_hook_options options = device_options(16);
	struct gm_engine_stats stats[2];
	size_t least = least_bytes(&options, option), n;
	float *output[2];

	for (int large = 0; large < 2; large++) {
		const struct fake_cuda_options fake = {.seed = 1, .device_bytes = least + (large ? 1 << 20 : few_bytes)};
		struct gm_error err = {0};
		struct engined run;
		int32_t token[N];

		gpu.reset(&fake);
		support_tokens(token, N, 3);
		engined_open(&run, support_fixture("qwen3moe"), &options, option);
		n = (size_t)N * gm_hook_info(run.hook)->n_vocab;
		output[large] = calloc(n, sizeof(**output));
		assert_non_null(output[large]);
		assert_ok(engined_with(&run, option, &cache, &err), &err);
		assert_ok(engined_run(&run, token, N, output[large], &err), &err);
		gm_cache_stats(run.cache, &stats[large]);
		engined_close(&run);
	}
	assert_memory_equal(output[0], output[1], n * sizeof(**output));
	assert_int_equal(stats[0].copied_bytes, stats[1].copied_bytes);
	assert_int_equal(stats[1].link_copies, stats[1].fetches);
	assert_true(stats[0].link_copies > 2 * stats[1].link_copies);
	free(output[0]);
	free(output[1]);
	gpu.reset(&(struct fake_cuda_options){.seed = 1});
}

static void test_no_room_for_results(void **state)
{
	(void)state;
	check_no_room("token", 2048); /* enough for the slots' numbers, and half of a part's first results */
	check_no_room("batch", 8192); /* and for a few picks that are brought together */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_beside),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_no_room_for_results),
	};

	return cmocka_run_group_tests(tests, begin, support_end);
}
