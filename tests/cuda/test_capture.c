/* Capturing rows from device memory: all rows, right, in order, whatever the sizes and speeds. Runs on the stand-in and on a GPU. */
#include "tests/cuda/support.h"

#include <string.h>

#define N_EXPERT 96u
#define ROW (N_EXPERT * sizeof(float))

struct scene {
	uint32_t n_layer, max_rows;
	uint64_t n_token;
	size_t ring_bytes, gap;
	bool on_default_stream, flush;
	unsigned sink_pause_us;
	uint64_t seed; /* of the passes' sizes; 0: all max_rows */
};

/* Runs a scene to its end, and returns what the capture counted. */
static struct gm_capture_stats play(const struct scene *scene)
{
	struct gm_capture_stats stats;
	struct gm_error err = {0};
	struct gm_capture *capture;
	struct forward forward;
	struct sink sink;

	sink_begin(&sink, scene->n_layer, N_EXPERT);
	sink.pause_us = scene->sink_pause_us;
	forward_begin(&forward, scene->n_layer, scene->n_token, N_EXPERT, scene->max_rows, scene->gap,
		      scene->on_default_stream);
	capture = support_open(&sink, scene->ring_bytes, &err);
	if (!capture)
		fail_msg("%s", err.text);
	assert_ok(forward_run(&forward, capture, scene->seed, &err), &err);
	if (scene->flush) {
		assert_ok(gm_capture_flush(capture, &err), &err);
		sink_check(&sink, scene->n_token);
	}
	gm_capture_stats(capture, &stats);
	assert_int_equal(stats.n_row, scene->n_token * scene->n_layer);
	assert_ok(gm_capture_close(capture, &err), &err);
	sink_check(&sink, scene->n_token);
	assert_int_equal(sink.n_row, scene->n_token * scene->n_layer);
	sink_end(&sink);
	forward_end(&forward);
	return stats;
}

/* Each layer overwrites the logits of the one before on the same stream. */
static void test_reused_memory(void **state)
{
	(void)state;
	support_begin(1, 500);
	play(&(struct scene){.n_layer = 4, .n_token = 60, .max_rows = 20, .flush = true});
	support_end();
}

static void test_gaps_between_rows(void **state)
{
	(void)state;
	support_begin(2, 300);
	play(&(struct scene){.n_layer = 3, .n_token = 50, .max_rows = 10, .gap = 128, .seed = 1});
	support_end();
}

static void test_default_stream(void **state)
{
	(void)state;
	support_begin(3, 300);
	play(&(struct scene){.n_layer = 3, .n_token = 30, .max_rows = 10, .on_default_stream = true});
	support_end();
}

/* The ring's size is no multiple of anything, so that pieces end at ever new places of it. */
static void test_wrap_around(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 5; seed++) {
		support_begin(seed, 100);
		play(&(struct scene){
			.n_layer = 2, .n_token = 200, .max_rows = 9, .ring_bytes = 17 * ROW + 100 * seed, .seed = seed});
		support_end();
	}
}

static void test_rows_larger_than_the_ring(void **state)
{
	(void)state;
	support_begin(4, 200);
	play(&(struct scene){.n_layer = 2, .n_token = 400, .max_rows = 100, .ring_bytes = 8 * ROW, .flush = true});
	play(&(struct scene){.n_layer = 1, .n_token = 20, .max_rows = 20, .ring_bytes = 2 * 512}); /* of two rows */
	support_end();
}

/* More pieces than the capture has places for, and more bytes than its ring holds. */
static void test_slow_sink(void **state)
{
	struct gm_capture_stats stats;

	(void)state;
	support_begin(5, 0);
	stats = play(
		&(struct scene){.n_layer = 3, .n_token = 40, .max_rows = 4, .ring_bytes = 16 * ROW, .sink_pause_us = 1000});
	assert_true(stats.n_wait > 0);
	stats = play(&(struct scene){.n_layer = 1, .n_token = 600, .max_rows = 1, .sink_pause_us = 300});
	assert_true(stats.n_wait > 0);
	support_end();
}

/* close, right after the last call: the copies are still under way. */
static void test_close_in_flight(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 5; seed++) {
		support_begin(seed, 3000);
		play(&(struct scene){.n_layer = 5, .n_token = 3, .max_rows = 3});
		support_end();
	}
}

static void test_nothing_recorded(void **state)
{
	struct gm_error err = {0};
	struct gm_capture *capture;
	struct sink sink;

	(void)state;
	support_begin(6, 0);
	sink_begin(&sink, 1, N_EXPERT);
	capture = support_open(&sink, 0, &err);
	assert_non_null(capture);
	assert_ok(gm_capture_flush(capture, &err), &err);
	assert_ok(gm_capture_rows(capture, 0, 0, 0, NULL, 0, NULL, &err), &err);
	assert_ok(gm_capture_close(capture, &err), &err);
	assert_int_equal(sink.n_row, 0);
	assert_ok(gm_capture_close(NULL, &err), &err);
	sink_end(&sink);
	support_end();
}

/* --- several streams --- */

#define N_STREAM 3

/* Streams take turns; each has its own layers (numbered apart through `from`). */
struct part {
	struct forward forward;
	struct gm_capture *capture;
	uint32_t from;
	struct gm_error err;
	int status;
};

static void begin_parts(struct part *part, struct gm_capture *capture)
{
	memset(part, 0, N_STREAM * sizeof(*part));
	for (uint32_t i = 0; i < N_STREAM; i++) {
		/* a layer's values depend on its number, so each part makes all, and uses its own two */
		forward_begin(&part[i].forward, 2 * N_STREAM, 40, N_EXPERT, 8, 0, false);
		part[i].capture = capture;
		part[i].from = 2 * i;
	}
}

static int capture_step(struct part *part, uint64_t first, uint32_t n)
{
	for (uint32_t layer = part->from; layer < part->from + 2; layer++) {
		if (forward_layer(&part->forward, layer, first, n) != cudaSuccess)
			return gm_fail(&part->err, GM_ERR_IO, FORWARD_FAILED);
		GM_TRY(forward_capture(&part->forward, part->capture, layer, first, n, &part->err));
	}
	return 0;
}

static void end_parts(struct part *part, struct sink *sink)
{
	struct gm_error err = {0};

	assert_ok(gm_capture_close(part[0].capture, &err), &err);
	sink_check(sink, 40);
	sink_end(sink);
	for (uint32_t i = 0; i < N_STREAM; i++)
		forward_end(&part[i].forward);
}

static void test_streams_interleaved(void **state)
{
	struct gm_error err = {0};
	struct part part[N_STREAM];
	struct sink sink;

	(void)state;
	support_begin(7, 400);
	sink_begin(&sink, 2 * N_STREAM, N_EXPERT);
	begin_parts(part, support_open(&sink, 40 * ROW, &err));
	for (uint64_t first = 0; first < 40; first += 8)
		for (uint32_t i = 0; i < N_STREAM; i++)
			assert_ok(capture_step(&part[i], first, 8), &part[i].err);
	end_parts(part, &sink);
	support_end();
}

static void *run_part(void *user)
{
	struct part *part = user;

	for (uint64_t first = 0; first < 40 && part->status == 0; first += 5)
		part->status = capture_step(part, first, 5);
	return NULL;
}

static void test_several_threads(void **state)
{
	struct gm_error err = {0};
	pthread_t thread[N_STREAM];
	struct part part[N_STREAM];
	struct sink sink;

	(void)state;
	support_begin(8, 200);
	sink_begin(&sink, 2 * N_STREAM, N_EXPERT);
	begin_parts(part, support_open(&sink, 12 * ROW, &err));
	for (uint32_t i = 0; i < N_STREAM; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, run_part, &part[i]), 0);
	for (uint32_t i = 0; i < N_STREAM; i++) {
		pthread_join(thread[i], NULL);
		assert_ok(part[i].status, &part[i].err);
	}
	end_parts(part, &sink);
	support_end();
}

/* --- failures that need no help from the runtime --- */

static void test_failing_sink(void **state)
{
	struct gm_error err = {0}, later = {0}, last = {0};
	struct gm_capture *capture;
	struct forward forward;
	struct sink sink;

	(void)state;
	support_begin(9, 100);
	sink_begin(&sink, 2, N_EXPERT);
	sink.fail_at = 20;
	forward_begin(&forward, 2, 200, N_EXPERT, 8, 0, false);
	capture = support_open(&sink, 12 * ROW, &err);
	assert_non_null(capture);
	assert_int_equal(forward_run(&forward, capture, 0, &err), GM_ERR_IO);
	assert_string_equal(err.text, "the disk is full");
	assert_int_equal(forward_capture(&forward, capture, 0, 0, 1, &later), GM_ERR_IO);
	assert_string_equal(later.text, err.text);
	assert_int_equal(gm_capture_flush(capture, NULL), GM_ERR_IO);
	assert_int_equal(gm_capture_close(capture, &last), GM_ERR_IO);
	assert_string_equal(last.text, err.text);
	assert_int_equal(sink.n_after, 1);
	assert_int_equal(sink.n_wrong, 0);
	assert_true(sink.n_row <= 20);
	sink_end(&sink);
	forward_end(&forward);
	support_end();
}

static int refuse(void *user, uint32_t layer, uint64_t first, uint32_t n, const float *rows, struct gm_error *err)
{
	(void)user, (void)layer, (void)first, (void)n, (void)rows, (void)err;
	return GM_ERR_UNSUPPORTED;
}

/* A sink that does not say why. */
static void test_silent_sink(void **state)
{
	struct gm_capture_options options = {.cuda = support_cuda(), .device = -1, .n_expert = N_EXPERT, .deliver = refuse};
	struct gm_error err = {0};
	struct gm_capture *capture;
	struct forward forward;

	(void)state;
	support_begin(10, 100);
	forward_begin(&forward, 4, 8, N_EXPERT, 8, 0, false);
	capture = gm_capture_open(&options, &err);
	assert_non_null(capture);
	assert_cuda(forward_layer(&forward, 3, 0, 8));
	assert_ok(forward_capture(&forward, capture, 3, 0, 8, &err), &err);
	assert_int_equal(gm_capture_close(capture, &err), GM_ERR_UNSUPPORTED);
	assert_string_equal(err.text, "captured rows were not taken: layer 3");
	forward_end(&forward);
	support_end();
}

static void refuse_options(struct gm_capture_options options, const char *text)
{
	struct gm_error err = {0};

	options.cuda = support_cuda();
	assert_null(gm_capture_open(&options, &err));
	assert_int_equal(err.code, GM_ERR_USAGE);
	assert_non_null(strstr(err.text, text));
}

static void refuse_rows(struct gm_capture *capture, const void *rows, size_t stride, const char *text)
{
	struct gm_error err = {0};

	assert_int_equal(gm_capture_rows(capture, 0, 0, 2, rows, stride, NULL, &err), GM_ERR_USAGE);
	assert_non_null(strstr(err.text, text));
}

/* Wrong use is refused, and the capture goes on. */
static void test_usage(void **state)
{
	struct gm_error err = {0};
	struct gm_capture *capture;
	struct forward forward;
	struct sink sink;

	(void)state;
	support_begin(11, 100);
	refuse_options((struct gm_capture_options){.n_expert = 8}, "a function to deliver to");
	refuse_options((struct gm_capture_options){.deliver = refuse}, "0 experts");
	refuse_options((struct gm_capture_options){.n_expert = 70000, .deliver = refuse}, "1 to 65535");
	refuse_options((struct gm_capture_options){.n_expert = 512, .ring_bytes = 4095, .deliver = refuse},
		       "must hold two rows");

	sink_begin(&sink, 1, N_EXPERT);
	forward_begin(&forward, 1, 8, N_EXPERT, 8, 0, false);
	capture = support_open(&sink, 0, &err);
	assert_non_null(capture);
	refuse_rows(capture, NULL, 0, "no rows");
	refuse_rows(capture, forward.logits, ROW - 4, "bytes apart");
	refuse_rows(capture, forward.logits, ROW + 2, "bytes apart");
	assert_ok(forward_run(&forward, capture, 0, &err), &err);
	assert_ok(gm_capture_close(capture, &err), &err);
	sink_check(&sink, 8);
	sink_end(&sink);
	forward_end(&forward);
	support_end();
}

/* --- anything at random --- */

static void test_random(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		uint64_t random = seed;
		struct scene scene = {
			.n_layer = 1 + support_random(&random, 5),
			.n_token = 1 + support_random(&random, 150),
			.max_rows = 1 + support_random(&random, 40),
			.ring_bytes = 2 * 512 + support_random(&random, 60 * ROW),
			.gap = 4 * support_random(&random, 3),
			.on_default_stream = support_random(&random, 4) == 0,
			.flush = support_random(&random, 2) == 0,
			.sink_pause_us = support_random(&random, 3) == 0 ? support_random(&random, 200) : 0,
			.seed = seed,
		};

		support_begin(seed, support_random(&random, 200));
		play(&scene);
		support_end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reused_memory),
		cmocka_unit_test(test_gaps_between_rows),
		cmocka_unit_test(test_default_stream),
		cmocka_unit_test(test_wrap_around),
		cmocka_unit_test(test_rows_larger_than_the_ring),
		cmocka_unit_test(test_slow_sink),
		cmocka_unit_test(test_close_in_flight),
		cmocka_unit_test(test_nothing_recorded),
		cmocka_unit_test(test_streams_interleaved),
		cmocka_unit_test(test_several_threads),
		cmocka_unit_test(test_failing_sink),
		cmocka_unit_test(test_silent_sink),
		cmocka_unit_test(test_usage),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests_name("capture", tests, NULL, NULL);
}
