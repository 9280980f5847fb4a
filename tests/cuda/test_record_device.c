/* The recorder's device path: which rows it takes, and that they reach a trace. On the stand-in. */
#include "recorder/record_device.h"
#include "tests/cuda/support.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "traces/reader.h"
#include "traces/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_EXPERT 64u
#define N_LAYER 3u

static struct gm_record_device *open_device(enum gm_device_capture mode, struct sink *sink, size_t ring_bytes)
{
	const struct gm_record_device_options options = {.mode = mode,
							 .n_expert = N_EXPERT,
							 .cuda = support_cuda(),
							 .ring_bytes = ring_bytes,
							 .deliver = sink_take,
							 .user = sink};
	struct gm_record_device *device = gm_record_device_new(&options, NULL);

	assert_non_null(device);
	return device;
}

/* As the hook shows a layer: complete, and overwritten as soon as the observer returned. */
static int show(struct gm_record_device *device, const struct forward *forward, const char *name, uint32_t layer,
		uint64_t first, uint32_t n, struct gm_error *err)
{
	const struct gm_hook_device_rows rows = {.data = forward->logits, .stride = forward->stride, .device = name};

	assert_cuda(forward_layer(forward, layer, first, n));
	assert_cuda(support_cuda()->cudaStreamSynchronize(forward->stream));
	return gm_record_device_rows(device, layer, (uint32_t)first, n, &rows, err);
}

static void test_takes_rows(void **state)
{
	struct gm_record_device *device;
	struct gm_error err = {0};
	struct forward forward;
	struct sink sink;

	(void)state;
	support_begin(1, 300);
	sink_begin(&sink, N_LAYER, N_EXPERT);
	forward_begin(&forward, N_LAYER, 40, N_EXPERT, 8, 0, false);
	device = open_device(GM_DEVICE_CAPTURE_ON, &sink, 0);
	for (uint64_t first = 0; first < 40; first += 8) {
		for (uint32_t layer = 0; layer < N_LAYER; layer++)
			assert_int_equal(show(device, &forward, "CUDA0", layer, first, 8, &err), 1);
		assert_ok(gm_record_device_flush(device, &err), &err);
		sink_check(&sink, first + 8);
	}
	assert_int_equal(gm_record_device_count(device), 40 * N_LAYER);
	assert_ok(gm_record_device_free(device, &err), &err);
	sink_end(&sink);
	forward_end(&forward);
	support_end();
}

/* Layers on two devices and in host memory, as with a model that is split: one after the other into the same sink. */
static void test_layers_in_different_places(void **state)
{
	const struct gm_cuda *cuda = support_cuda();
	float *on_host = calloc(8 * N_EXPERT, sizeof(*on_host));
	struct forward forward[2];
	struct gm_record_device *device;
	struct gm_error err = {0};
	struct sink sink;

	(void)state;
	fake_cuda_reset(&(struct fake_cuda_options){.seed = 2, .max_delay_us = 300, .n_device = 2});
	sink_begin(&sink, N_LAYER, N_EXPERT);
	for (int i = 0; i < 2; i++) {
		assert_cuda(cuda->cudaSetDevice(i));
		forward_begin(&forward[i], N_LAYER, 8, N_EXPERT, 8, 0, false);
	}
	assert_cuda(cuda->cudaSetDevice(0));
	device = open_device(GM_DEVICE_CAPTURE_AUTO, &sink, 0);
	assert_int_equal(show(device, &forward[0], "CUDA0", 0, 0, 8, &err), 1);
	assert_int_equal(show(device, &forward[1], "CUDA1", 1, 0, 8, &err), 1);
	for (uint32_t i = 0; i < 8 * N_EXPERT; i++)
		on_host[i] = support_value(2, i / N_EXPERT, i % N_EXPERT);
	assert_ok(gm_record_device_host_rows(device, 2, &err), &err);
	fake_cuda_host_begin(forward[0].source, 4); /* all before was delivered: nothing is under way */
	assert_int_equal(sink.n_row, 16);
	sink.next[2] = 8;
	sink_check(&sink, 8);
	fake_cuda_host_end(forward[0].source);
	assert_ok(gm_record_device_free(device, &err), &err);
	for (int i = 0; i < 2; i++) {
		assert_cuda(cuda->cudaSetDevice(i));
		forward_end(&forward[i]);
	}
	free(on_host);
	sink_end(&sink);
	assert_cuda(cuda->cudaSetDevice(0));
	support_end();
}

static void refuse(enum gm_device_capture mode, const char *name, const void *data, size_t ring_bytes, const char *reason)
{
	const struct gm_hook_device_rows rows = {.data = data, .stride = N_EXPERT * sizeof(float), .device = name};
	struct gm_record_device *device = open_device(mode, NULL, ring_bytes);
	struct gm_error err = {0};
	int taken = gm_record_device_rows(device, 0, 0, 1, &rows, &err);

	if (mode == GM_DEVICE_CAPTURE_ON) {
		assert_true(taken < 0);
		assert_non_null(strstr(err.text, ": --device-capture on"));
		assert_non_null(strstr(err.text, reason));
	} else {
		assert_int_equal(taken, 0);
		assert_int_equal(err.code, 0);
		assert_non_null(strstr(gm_record_device_reason(device), reason));
		/* and it does not try again for every layer */
		assert_int_equal(gm_record_device_rows(device, 1, 0, 1, &rows, &err), 0);
	}
	assert_ok(gm_record_device_free(device, &err), &err);
}

static void test_falls_back(void **state)
{
	static const float elsewhere[N_EXPERT];
	void *memory;

	(void)state;
	fake_cuda_reset(&(struct fake_cuda_options){.device_bytes = 1 << 20});
	assert_cuda(support_cuda()->cudaMalloc(&memory, 1 << 12));
	for (int mode = GM_DEVICE_CAPTURE_AUTO; mode <= GM_DEVICE_CAPTURE_ON; mode++) {
		refuse((enum gm_device_capture)mode, "Vulkan0", elsewhere, 0, "lie on Vulkan0, not in CUDA memory");
		refuse((enum gm_device_capture)mode, "CUDA0", elsewhere, 0, "does not know the memory");
		refuse((enum gm_device_capture)mode, "CUDA0", memory, 1 << 21, "out of memory");
	}
	refuse(GM_DEVICE_CAPTURE_OFF, "CUDA0", memory, 0, "");
	assert_cuda(support_cuda()->cudaFree(memory));
	support_end();
}

static void test_on_refuses_host_rows(void **state)
{
	struct gm_record_device *device;
	struct gm_error err = {0};

	(void)state;
	support_begin(3, 0);
	device = open_device(GM_DEVICE_CAPTURE_ON, NULL, 0);
	assert_int_equal(gm_record_device_host_rows(device, 5, &err), GM_ERR_UNSUPPORTED);
	assert_non_null(strstr(err.text, "MoE layer 5 lie in host memory"));
	gm_record_device_free(device, NULL);
	assert_ok(gm_record_device_host_rows(NULL, 0, NULL), &err);
	support_end();
}

static void test_failing_sink_ends_the_pass(void **state)
{
	struct gm_record_device *device;
	struct gm_error err = {0};
	struct forward forward;
	struct sink sink;

	(void)state;
	support_begin(4, 0);
	sink_begin(&sink, 1, N_EXPERT);
	sink.fail_at = 8;
	forward_begin(&forward, 1, 16, N_EXPERT, 8, 0, false);
	device = open_device(GM_DEVICE_CAPTURE_AUTO, &sink, 0);
	assert_int_equal(show(device, &forward, "CUDA0", 0, 0, 8, &err), 1);
	assert_int_equal(show(device, &forward, "CUDA0", 0, 8, 8, &err), 1);
	assert_int_equal(gm_record_device_flush(device, &err), GM_ERR_IO);
	assert_string_equal(err.text, "the disk is full");
	assert_int_equal(show(device, &forward, "CUDA0", 0, 8, 8, &err), GM_ERR_IO);
	assert_int_equal(gm_record_device_free(device, &err), GM_ERR_IO);
	sink_end(&sink);
	forward_end(&forward);
	support_end();
}

static void test_modes(void **state)
{
	enum gm_device_capture mode;
	struct gm_error err = {0};

	(void)state;
	assert_int_equal(gm_parse_device_capture("auto", &mode, &err), 0);
	assert_int_equal(mode, GM_DEVICE_CAPTURE_AUTO);
	assert_int_equal(gm_parse_device_capture("on", &mode, &err), 0);
	assert_int_equal(mode, GM_DEVICE_CAPTURE_ON);
	assert_int_equal(gm_parse_device_capture("off", &mode, &err), 0);
	assert_int_equal(mode, GM_DEVICE_CAPTURE_OFF);
	assert_int_equal(gm_parse_device_capture("maybe", &mode, &err), GM_ERR_USAGE);
}

/* --- gm_capture with a trace writer as its sink, as in recorder/examples --- */

#define N_TOKEN 100u

static int write_rows(void *writer, uint32_t layer, uint64_t first, uint32_t n, const float *rows, struct gm_error *err)
{
	return gm_writer_append(writer, layer, first, n, rows, N_EXPERT, err);
}

static void record_trace(const char *path)
{
	const struct gm_model model = {.name = (char[]){"test"}, .n_layer = N_LAYER, .n_expert = N_EXPERT, .top_k = 4};
	const struct gm_writer_options options = {.n_head = N_EXPERT};
	struct gm_error err = {0};
	struct gm_writer *writer = gm_writer_open(path, &model, &options, &err);
	const struct gm_capture_options capture_options = {
		.cuda = support_cuda(), .device = -1, .n_expert = N_EXPERT, .deliver = write_rows, .user = writer};
	struct gm_capture *capture;
	struct forward forward;
	uint64_t first;

	assert_non_null(writer);
	assert_ok(gm_writer_begin_sequence(writer, "a", NULL, &err), &err);
	assert_ok(gm_writer_add_tokens(writer, N_TOKEN, NULL, 0, true, NULL, &first, &err), &err);
	forward_begin(&forward, N_LAYER, N_TOKEN, N_EXPERT, 16, 0, false);
	capture = gm_capture_open(&capture_options, &err);
	assert_non_null(capture);
	assert_ok(forward_run(&forward, capture, 5, &err), &err);
	assert_ok(gm_capture_close(capture, &err), &err);
	assert_ok(gm_writer_close(writer, &err), &err);
	forward_end(&forward);
}

static void check_block(struct gm_trace *trace, const struct gm_block *block)
{
	float logits[N_EXPERT];

	for (uint32_t layer = 0; layer < N_LAYER; layer++)
		for (uint32_t i = 0; i < block->n_token; i++) {
			gm_block_logits(block, gm_trace_model(trace), layer, i, logits);
			for (uint32_t expert = 0; expert < N_EXPERT; expert++)
				if (logits[expert] != support_value(layer, block->first_token + i, expert))
					fail_msg("layer %u, token %u, expert %u", layer, i, expert);
		}
}

static void test_into_a_trace(void **state)
{
	char path[] = "/tmp/gatemass-capture-XXXXXX";
	struct gm_block block = {0};
	struct gm_error err = {0};
	struct gm_trace *trace;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	support_begin(5, 100);
	record_trace(path);
	support_end();
	trace = gm_trace_open(path, &err);
	assert_non_null(trace);
	assert_int_equal(gm_trace_n_row(trace), N_TOKEN * N_LAYER);
	for (uint64_t i = 0; i < gm_trace_n_block(trace); i++) {
		assert_int_equal(gm_trace_read(trace, i, GM_WANT_TAIL, &block, &err), 1);
		check_block(trace, &block);
	}
	gm_block_free(&block);
	gm_trace_close(trace);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_takes_rows),
		cmocka_unit_test(test_layers_in_different_places),
		cmocka_unit_test(test_falls_back),
		cmocka_unit_test(test_on_refuses_host_rows),
		cmocka_unit_test(test_failing_sink_ends_the_pass),
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_into_a_trace),
	};

	return cmocka_run_group_tests_name("record_device", tests, NULL, NULL);
}
