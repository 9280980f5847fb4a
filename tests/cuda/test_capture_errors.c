/* Capturing when CUDA fails, at every call there is; and that the stand-in finds what it is meant to find. Only on the stand-in. */
#include "tests/cuda/support.h"
#include "tests/fake_cuda/fake_cuda.h"

#include <string.h>

#define N_EXPERT 64u
#define ROW (N_EXPERT * sizeof(float))

/* --- the stand-in itself --- */

struct lab {
	const struct gm_cuda *cuda;
	float *a, *b, *host;
	cudaStream_t one, two;
	cudaEvent_t event;
};

static void lab_begin(struct lab *lab)
{
	support_begin(1, 200);
	lab->cuda = support_cuda();
	assert_cuda(lab->cuda->cudaMalloc((void **)&lab->a, 256));
	assert_cuda(lab->cuda->cudaMalloc((void **)&lab->b, 256));
	assert_cuda(lab->cuda->cudaHostAlloc((void **)&lab->host, 256, cudaHostAllocDefault));
	assert_cuda(lab->cuda->cudaStreamCreateWithFlags(&lab->one, cudaStreamNonBlocking));
	assert_cuda(lab->cuda->cudaStreamCreateWithFlags(&lab->two, cudaStreamNonBlocking));
	assert_cuda(lab->cuda->cudaEventCreateWithFlags(&lab->event, cudaEventDisableTiming));
	assert_cuda(lab->cuda->cudaMemcpyAsync(lab->a, lab->host, 256, cudaMemcpyHostToDevice, lab->one));
}

static cudaError_t copy_on_two(const struct lab *lab)
{
	return lab->cuda->cudaMemcpyAsync(lab->b, lab->a, 256, cudaMemcpyDeviceToDevice, lab->two);
}

static void assert_problem(const char *text)
{
	if (!strstr(fake_cuda_problems(), text))
		fail_msg("\"%s\" was expected, not \"%s\"", text, fake_cuda_problems());
}

static void test_finds_missing_order(void **state)
{
	struct lab lab;

	(void)state;
	lab_begin(&lab);
	assert_cuda(copy_on_two(&lab));
	assert_problem("a read on stream 5 is not ordered after a write on stream 4");
}

static void test_knows_order(void **state)
{
	struct lab lab;

	(void)state;
	lab_begin(&lab); /* through an event */
	assert_cuda(lab.cuda->cudaEventRecord(lab.event, lab.one));
	assert_cuda(lab.cuda->cudaStreamWaitEvent(lab.two, lab.event, 0));
	assert_cuda(copy_on_two(&lab));
	assert_string_equal(fake_cuda_problems(), "");
	lab_begin(&lab); /* through the host */
	assert_cuda(lab.cuda->cudaStreamSynchronize(lab.one));
	assert_cuda(copy_on_two(&lab));
	assert_string_equal(fake_cuda_problems(), "");
	lab_begin(&lab); /* an event that was recorded before the write does not help */
	assert_cuda(lab.cuda->cudaStreamSynchronize(lab.one));
	assert_cuda(lab.cuda->cudaEventRecord(lab.event, lab.one));
	assert_cuda(lab.cuda->cudaMemcpyAsync(lab.a, lab.host, 256, cudaMemcpyHostToDevice, lab.one));
	assert_cuda(lab.cuda->cudaStreamWaitEvent(lab.two, lab.event, 0));
	assert_cuda(copy_on_two(&lab));
	assert_problem("not ordered");
}

static void test_finds_misuse_of_memory(void **state)
{
	struct lab lab;

	(void)state;
	lab_begin(&lab);
	assert_cuda(lab.cuda->cudaFree(lab.a));
	assert_problem("freed while in use");
	assert_int_not_equal(copy_on_two(&lab), cudaSuccess);
	assert_problem("freed memory is used");
	lab_begin(&lab);
	assert_int_not_equal(lab.cuda->cudaMemcpyAsync(lab.b, lab.host, 260, cudaMemcpyHostToDevice, lab.one), cudaSuccess);
	assert_problem("past its end");
	lab_begin(&lab);
	assert_cuda(lab.cuda->cudaMemcpyAsync(lab.host, lab.a, 256, cudaMemcpyDeviceToHost, lab.one));
	fake_cuda_host_begin(lab.host, 4);
	assert_problem("the host reads what a copy on stream 4 may still write");
	lab_begin(&lab);
	assert_cuda(lab.cuda->cudaStreamSynchronize(lab.one));
	fake_cuda_host_begin(lab.host, 4);
	assert_cuda(lab.cuda->cudaMemcpyAsync(lab.host, lab.a, 256, cudaMemcpyDeviceToHost, lab.one));
	assert_problem("while the host reads");
	lab_begin(&lab);
	assert_cuda(lab.cuda->cudaStreamDestroy(lab.two));
	assert_int_not_equal(copy_on_two(&lab), cudaSuccess);
	assert_problem("a stream is used that is not there");
}

/* --- opening --- */

static void refuse_memory(size_t device_bytes, size_t pinned_bytes, const char *text)
{
	struct gm_error err = {0};
	struct gm_capture *capture;
	struct sink sink;

	fake_cuda_reset(&(struct fake_cuda_options){.device_bytes = device_bytes, .pinned_bytes = pinned_bytes});
	sink_begin(&sink, 1, N_EXPERT);
	assert_null(support_open(&sink, 1 << 20, &err));
	assert_int_equal(err.code, GM_ERR_MEMORY);
	assert_non_null(strstr(err.text, text));
	support_end(); /* nothing left, and no error for the program around to stumble over */
	memset(&err, 0, sizeof(err));
	capture = support_open(&sink, 1 << 16, &err);
	assert_non_null(capture);
	assert_ok(gm_capture_close(capture, &err), &err);
	sink_end(&sink);
	support_end();
}

static void test_out_of_memory(void **state)
{
	(void)state;
	refuse_memory(1 << 19, 0, "device memory for the staging ring: out of memory");
	refuse_memory(0, 1 << 19, "pinned host memory for the ring: out of memory");
}

/* --- every call --- */

struct outcome {
	bool opened;
	bool failed_outside; /* a call of the forward pass's own failed, and it ended */
	int status;          /* the first failure that was reported */
	uint64_t n_delivered;
};

static void note_failure(struct outcome *outcome, int status)
{
	if (status < 0 && outcome->status == 0)
		outcome->status = status;
}

#define N_LAYER 2u
#define N_TOKEN 30u

/* The forward pass itself is made before and taken down after what may fail. */
static struct outcome run_until_failure(const struct forward *forward)
{
	struct outcome outcome = {0};
	struct gm_error err = {0};
	struct gm_capture *capture;
	struct sink sink;

	sink_begin(&sink, N_LAYER, N_EXPERT);
	capture = support_open(&sink, 16 * ROW, &err);
	outcome.opened = capture != NULL;
	note_failure(&outcome, err.code);
	if (capture) {
		outcome.failed_outside =
			forward_run(forward, capture, 3, &err) < 0 && strcmp(err.text, FORWARD_FAILED) == 0;
		note_failure(&outcome, outcome.failed_outside ? 0 : err.code);
		note_failure(&outcome, gm_capture_flush(capture, NULL));
		if (outcome.status < 0) /* it stays */
			assert_int_equal(gm_capture_rows(capture, 0, 0, 1, forward->logits, 0, NULL, NULL), outcome.status);
		note_failure(&outcome, gm_capture_close(capture, NULL));
	}
	assert_int_equal(sink.n_wrong, 0);
	outcome.n_delivered = sink.n_row;
	sink_end(&sink);
	return outcome;
}

/* An outcome without an error has every row that was given. */
static void check_outcome(const struct outcome *outcome, unsigned n)
{
	if (outcome->status == 0 && !outcome->failed_outside && outcome->n_delivered != N_LAYER * N_TOKEN)
		fail_msg("call %u failed: rows were lost in silence", n);
}

/* What may be wrong after a call has failed: what could not be freed is left; and where waiting failed, memory is freed that nobody
 * waited for (the real function waits by itself). */
static void check_left(bool for_ever, unsigned n)
{
	bool waits = !for_ever && strcmp(fake_cuda_failed_call(), "cudaStreamSynchronize") != 0;

	if (!for_ever && fake_cuda_left() > 1)
		fail_msg("call %u failed: %u things were left", n, fake_cuda_left());
	if (waits && *fake_cuda_problems())
		fail_msg("call %u (%s) failed: %s", n, fake_cuda_failed_call(), fake_cuda_problems());
}

/* Fails call after call until a run does not come to the call any more. Returns how many there were. */
static unsigned fail_each_call(cudaError_t error, bool for_ever)
{
	unsigned n = 0;

	for (;;) {
		struct outcome outcome;
		struct forward forward;
		unsigned calls;

		n++;
		support_begin(n, n % 3 ? 0 : 50);
		forward_begin(&forward, N_LAYER, N_TOKEN, N_EXPERT, 6, 0, false);
		fake_cuda_fail_call(n, error, for_ever);
		outcome = run_until_failure(&forward);
		calls = fake_cuda_calls();
		fake_cuda_fail_call(0, cudaSuccess, false);
		support_cuda()->cudaGetLastError();
		support_cuda()->cudaStreamSynchronize(forward.stream);
		support_cuda()->cudaFree(forward.logits);
		support_cuda()->cudaFreeHost(forward.source);
		support_cuda()->cudaStreamDestroy(forward.stream);
		check_outcome(&outcome, n);
		check_left(for_ever, n);
		if (calls >= n)
			continue;
		assert_int_equal(outcome.status, 0);
		return n;
	}
}

static void test_each_call_fails_once(void **state)
{
	(void)state;
	/* 2 for the rings, 1 for the stream, 512 for the events, and then the passes */
	assert_true(fail_each_call(cudaErrorUnknown, false) > 600);
}

static void test_each_call_fails_for_ever(void **state)
{
	(void)state;
	assert_true(fail_each_call(cudaErrorIllegalAddress, true) > 600);
}

/* A copy fails on the device, long after the call that enqueued it went well. */
static void test_each_copy_fails(void **state)
{
	unsigned n_failed = 0;

	(void)state;
	for (unsigned n = 1; n <= 30; n++) {
		struct outcome outcome;
		struct forward forward;

		support_begin(n, 50);
		forward_begin(&forward, N_LAYER, N_TOKEN, N_EXPERT, 6, 0, false);
		fake_cuda_fail_copy(n, cudaErrorIllegalAddress);
		outcome = run_until_failure(&forward);
		assert_true(outcome.opened);
		check_outcome(&outcome, n);
		n_failed += outcome.status < 0;
	}
	assert_true(n_failed > 25);
}

/* --- what else CUDA can be --- */

static void test_stream_in_graph_capture(void **state)
{
	struct gm_error err = {0};
	struct gm_capture *capture;
	struct forward forward;
	struct sink sink;

	(void)state;
	support_begin(1, 0);
	sink_begin(&sink, 1, N_EXPERT);
	forward_begin(&forward, 1, 6, N_EXPERT, 6, 0, false);
	capture = support_open(&sink, 0, &err);
	assert_non_null(capture);
	fake_cuda_set_capturing(forward.stream, true);
	assert_int_equal(forward_capture(&forward, capture, 0, 0, 6, &err), GM_ERR_UNSUPPORTED);
	assert_non_null(strstr(err.text, "CUDA graph"));
	memset(&err, 0, sizeof(err));
	fake_cuda_set_capturing(forward.stream, false);
	assert_ok(forward_run(&forward, capture, 0, &err), &err);
	assert_ok(gm_capture_close(capture, &err), &err);
	sink_check(&sink, 6);
	sink_end(&sink);
	forward_end(&forward);
	support_end();
}

/* A capture of the second device, used by a thread whose current device is the first. */
static void test_other_device(void **state)
{
	const struct gm_cuda *cuda = support_cuda();
	struct gm_capture_options options = {.cuda = cuda, .device = 1, .n_expert = N_EXPERT, .deliver = sink_take};
	struct gm_error err = {0};
	struct gm_capture *capture;
	struct forward forward;
	struct sink sink;
	int device = -1;

	(void)state;
	fake_cuda_reset(&(struct fake_cuda_options){.n_device = 2, .max_delay_us = 100});
	sink_begin(&sink, 2, N_EXPERT);
	assert_cuda(cuda->cudaSetDevice(1));
	forward_begin(&forward, 2, 20, N_EXPERT, 5, 0, false);
	assert_cuda(cuda->cudaSetDevice(0));
	options.user = &sink;
	capture = gm_capture_open(&options, &err);
	assert_non_null(capture);
	assert_ok(forward_run(&forward, capture, 0, &err), &err);
	assert_ok(gm_capture_close(capture, &err), &err);
	assert_cuda(cuda->cudaGetDevice(&device));
	assert_int_equal(device, 0);
	sink_check(&sink, 20);
	sink_end(&sink);
	forward_end(&forward);
	support_end();
	options.device = 2;
	assert_null(gm_capture_open(&options, &err));
	assert_int_equal(err.code, GM_ERR_IO);
	support_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_finds_missing_order),    cmocka_unit_test(test_knows_order),
		cmocka_unit_test(test_finds_misuse_of_memory), cmocka_unit_test(test_out_of_memory),
		cmocka_unit_test(test_each_call_fails_once),   cmocka_unit_test(test_each_call_fails_for_ever),
		cmocka_unit_test(test_each_copy_fails),        cmocka_unit_test(test_stream_in_graph_capture),
		cmocka_unit_test(test_other_device),
	};
	int failed = cmocka_run_group_tests_name("capture_errors", tests, NULL, NULL);

	support_begin(0, 0); /* the threads of streams that tests left */
	return failed;
}
