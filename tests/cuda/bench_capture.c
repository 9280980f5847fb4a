/* What capturing costs a forward pass on a real GPU: the same products with nothing captured, with rows read by a blocking
 * copy (the host path), and with gm_capture, turn by turn; medians.
 *
 *   bench_capture [N_ROUND]
 *
 * A layer is a product of the size of Qwen3-30B-A3B's active weights (three matrices of 2,048 x 768 for 8 experts, about 38 MB in float32)
 * and a router of 128 experts; 48 layers; passes of 1 and of 512 tokens.
 */
#include "base/progress.h"
#include "recorder/capture.h"
#include "recorder/capture_cuda.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_LAYER = 48, N_HIDDEN = 2048, N_INNER = 4608, N_EXPERT = 128, MAX_BATCH = 512, MAX_ROUND = 101 };
enum mode { MODE_OFF, MODE_HOST, MODE_DEVICE, N_MODE };

static const char *const mode_names[] = {"off", "host path", "device path"};

#define CHECK(call)                                                                                   \
	do {                                                                                          \
		int error_ = (int)(call);                                                             \
		if (error_ != 0) {                                                                    \
			fprintf(stderr, "bench_capture: %s:%d: error %d\n", #call, __LINE__, error_); \
			exit(1);                                                                      \
		}                                                                                     \
	} while (0)

struct bench {
	cublasHandle_t cublas;
	cudaStream_t stream;
	float *weight, *router, *hidden, *inner, *logits; /* of all layers the same: memory is not what is measured */
	float *host;
	struct gm_capture *capture;
	uint64_t n_row;
};

static float *make(size_t n)
{
	float *memory;

	CHECK(cudaMalloc((void **)&memory, n * sizeof(*memory)));
	CHECK(cudaMemset(memory, 0, n * sizeof(*memory)));
	return memory;
}

static int count_rows(void *user, uint32_t layer, uint64_t first, uint32_t n, const float *rows, struct gm_error *err)
{
	struct bench *b = user;

	(void)layer, (void)first, (void)rows, (void)err;
	b->n_row += n;
	return 0;
}

static void product(const struct bench *b, int rows, int n, int inner, const float *left, const float *right, float *out)
{
	const float zero = 0, one = 1;

	CHECK(cublasSgemm(b->cublas, CUBLAS_OP_N, CUBLAS_OP_N, rows, n, inner, &one, left, rows, right, inner, &zero, out,
			  rows));
}

static void capture_layer(struct bench *b, enum mode mode, uint32_t layer, int n)
{
	struct gm_error err = {0};

	if (mode == MODE_HOST) { /* what llama.cpp's hook does: the backend is waited for, then a copy to pageable memory */
		CHECK(cudaStreamSynchronize(b->stream));
		CHECK(cudaMemcpyAsync(b->host, b->logits, (size_t)n * N_EXPERT * sizeof(float), cudaMemcpyDeviceToHost,
				      cudaStreamPerThread));
		CHECK(cudaStreamSynchronize(cudaStreamPerThread));
	} else if (mode == MODE_DEVICE &&
		   gm_capture_rows(b->capture, layer, 0, (uint32_t)n, b->logits, 0, b->stream, &err) < 0) {
		fprintf(stderr, "bench_capture: %s\n", err.text);
		exit(1);
	}
}

/* ms of a pass */
static double run(struct bench *b, enum mode mode, int n)
{
	double started = gm_clock_s();

	for (uint32_t layer = 0; layer < N_LAYER; layer++) {
		product(b, N_INNER, n, N_HIDDEN, b->weight, b->hidden, b->inner);
		product(b, N_HIDDEN, n, N_INNER, b->weight, b->inner, b->hidden);
		product(b, N_EXPERT, n, N_HIDDEN, b->router, b->hidden, b->logits);
		capture_layer(b, mode, layer, n);
	}
	CHECK(cudaStreamSynchronize(b->stream));
	return (gm_clock_s() - started) * 1e3;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void compare(struct bench *b, int n, int n_round)
{
	double spent[N_MODE][MAX_ROUND];

	for (int round = -1; round < n_round; round++) /* the first is not counted */
		for (int mode = 0; mode < N_MODE; mode++) {
			double ms = run(b, (enum mode)mode, n);

			if (round >= 0)
				spent[mode][round] = ms;
		}
	for (int mode = 0; mode < N_MODE; mode++) {
		qsort(spent[mode], (size_t)n_round, sizeof(double), ascending);
		printf("%4d tokens a pass  %-12s %9.3f ms (%.3f-%.3f)  %+6.2f %%\n", n, mode_names[mode],
		       spent[mode][n_round / 2], spent[mode][0], spent[mode][n_round - 1],
		       100 * (spent[mode][n_round / 2] / spent[0][n_round / 2] - 1));
	}
}

int main(int argc, char **argv)
{
	int n_round = argc > 1 ? atoi(argv[1]) : 21;
	struct gm_error err = {0};
	struct bench b = {0};

	if (n_round < 1 || n_round > MAX_ROUND)
		n_round = 21;
	CHECK(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
	CHECK(cublasCreate(&b.cublas));
	CHECK(cublasSetStream(b.cublas, b.stream));
	b.weight = make((size_t)N_HIDDEN * N_INNER);
	b.router = make((size_t)N_EXPERT * N_HIDDEN);
	b.hidden = make((size_t)N_HIDDEN * MAX_BATCH);
	b.inner = make((size_t)N_INNER * MAX_BATCH);
	b.logits = make((size_t)N_EXPERT * MAX_BATCH);
	b.host = malloc((size_t)N_EXPERT * MAX_BATCH * sizeof(float));
	b.capture = gm_capture_open(
		&(struct gm_capture_options){
			.cuda = gm_cuda_linked(), .device = -1, .n_expert = N_EXPERT, .deliver = count_rows, .user = &b},
		&err);
	if (!b.host || !b.capture) {
		fprintf(stderr, "bench_capture: %s\n", err.text);
		free(b.host);
		return 1;
	}
	compare(&b, 1, n_round);
	compare(&b, MAX_BATCH, n_round);
	free(b.host);
	if (gm_capture_close(b.capture, &err) < 0) {
		fprintf(stderr, "bench_capture: %s\n", err.text);
		return 1;
	}
	if (b.n_row != (uint64_t)(n_round + 1) * N_LAYER * (1 + MAX_BATCH)) {
		fprintf(stderr, "bench_capture: rows were lost\n");
		return 1;
	}
	return 0;
}
