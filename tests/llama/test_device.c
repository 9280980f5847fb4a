/* Recording from device memory through llama.cpp's scheduler: the fake GPU's memory is the stand-in CUDA runtime's, whose copies come
 * late and in their own time, while llama.cpp goes on to overwrite the router's logits. */
#include "tests/llama/support.h"

#include "base/file.h"
#include "recorder/record.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/llama/fake_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text_bytes[] =
	"the quick brown fox jumps over the lazy dog, and so on until there are tokens enough for several passes";
static struct fake_gpu gpu;

static int begin(void **state)
{
	const struct fake_cuda_options options = {.seed = 1, .max_delay_us = 500};

	gm_hook_load_library();
	return fake_gpu_begin(&gpu, &options) < 0 ? -1 : support_begin(state);
}

struct notes {
	char text[1024];
};

static void note(void *user, const char *text)
{
	struct notes *notes = user;
	size_t used = strlen(notes->text);

	snprintf(notes->text + used, sizeof(notes->text) - used, "%s\n", text);
}

/* Records on the fake GPU, or with n_gpu_layers 0 on the CPU; the file's bytes. */
static char *record(const char *model, int n_gpu_layers, enum gm_device_capture mode, bool verify, size_t *size,
		    struct notes *notes)
{
	struct gm_text text = {.text = text_bytes, .size = strlen(text_bytes), .id = (char[]){"t"}, .label = (char[]){""}};
	const struct gm_texts texts = {.text = &text, .n = 1};
	struct gm_hook_options hook_options = support_options(32);
	struct gm_record_options options = {.output = support_path("out.gmt"),
					    .generate = true,
					    .n_generate = 5,
					    .tail = GM_TAIL_F32,
					    .verify = verify,
					    .device_capture = mode,
					    .quiet = true,
					    .note = note,
					    .user = notes};
	struct gm_record_result result;
	struct gm_error err = {0};
	struct gm_hook *hook;
	char *bytes;

	memset(notes, 0, sizeof(*notes));
	hook_options.n_gpu_layers = n_gpu_layers;
	hook = support_open(support_fixture(model), &hook_options);
	assert_ok(gm_record(hook, &texts, &options, &result, &err), &err);
	if (verify) {
		assert_true(result.check.n_row > 0);
		assert_int_equal(result.check.n_mismatch + result.check.n_weight_mismatch, 0);
	}
	gm_hook_close(hook);
	bytes = gm_read_file(options.output, 1 << 26, size, &err);
	assert_non_null(bytes);
	remove(options.output);
	return bytes;
}

static const char *const models[] = {"qwen3moe", "gpt-oss", "deepseek2-groups"};

/* What is recorded does not depend on the path. */
static void test_same_trace(void **state)
{
	struct notes notes;

	(void)state;
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
		size_t host_size, device_size;
		char *host = record(models[i], -1, GM_DEVICE_CAPTURE_OFF, false, &host_size, &notes);
		char *device;

		assert_null(strstr(notes.text, "captured on the device"));
		device = record(models[i], -1, GM_DEVICE_CAPTURE_ON, false, &device_size, &notes);
		assert_non_null(strstr(notes.text, "rows were captured on the device"));
		assert_int_equal(device_size, host_size);
		assert_memory_equal(device, host, host_size);
		free(host);
		free(device);
	}
	assert_string_equal(gpu.problems(), "");
}

static void test_verify(void **state)
{
	struct notes notes;
	size_t size;

	(void)state;
	free(record("qwen3moe", -1, GM_DEVICE_CAPTURE_ON, true, &size, &notes));
	assert_non_null(strstr(notes.text, "rows were captured on the device"));
	assert_string_equal(gpu.problems(), "");
}

/* Some layers in host memory: auto takes each where it lies, on refuses. */
static void test_split_model(void **state)
{
	struct notes notes;
	size_t whole_size, split_size;
	char *whole = record("qwen3moe", -1, GM_DEVICE_CAPTURE_OFF, false, &whole_size, &notes);
	char *split = record("qwen3moe", 2, GM_DEVICE_CAPTURE_AUTO, false, &split_size, &notes);

	(void)state;
	assert_non_null(strstr(notes.text, "rows were captured on the device"));
	assert_int_equal(split_size, whole_size);
	free(whole);
	free(split);
	split = record("qwen3moe", 0, GM_DEVICE_CAPTURE_AUTO, true, &split_size, &notes);
	assert_string_equal(notes.text, "");
	free(split);
	assert_string_equal(gpu.problems(), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_trace),
		cmocka_unit_test(test_verify),
		cmocka_unit_test(test_split_model),
	};

	return cmocka_run_group_tests_name("device", tests, begin, support_end);
}
