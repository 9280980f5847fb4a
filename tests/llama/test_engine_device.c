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

static void compare(const char *path, uint32_t n_ubatch, bool beside)
{
	const char *const option[] = {"cache", "25%", "evict", "lfu", NULL};
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
			compare(support_fixture(fixture_info(i)->name), 1, beside);
			compare(support_fixture(fixture_info(i)->name), 16, beside);
		}
}

/* --- computing while copies are under way --- */

/* A link whose first copies go on until the device has come to an expert's last multiplication, or for a while. */
struct slow {
	struct gm_link_ops plugin;
	int n_tried, n_seen;
};

static int slow_copy(void *user, void *to, size_t offset, const void *from, size_t bytes, struct gm_error *err)
{
	const struct timespec moment = {.tv_nsec = 100000};
	struct slow *slow = user;
	unsigned long before = fake_gpu_n_down();

	if (slow->n_tried++ < 40) {
		for (int i = 0; i < 500 && fake_gpu_n_down() == before; i++)
			nanosleep(&moment, NULL);
		slow->n_seen += fake_gpu_n_down() != before;
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
	print_message("experts were computed during %d of %d copies\n", slow.n_seen, 40);
	assert_true(slow.n_tried > 40 && slow.n_seen > 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_beside),
		cmocka_unit_test(test_no_room),
	};

	return cmocka_run_group_tests(tests, begin, support_end);
}
