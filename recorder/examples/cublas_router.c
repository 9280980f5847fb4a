/* Recording from a CUDA program of your own: a forward pass whose router is a cuBLAS product, captured into a trace.
 *
 *   make cuda && build/cuda/cublas_router out.gmt && build/bin/traces info out.gmt
 *
 * The model is a toy with random weights: each layer adds W h to the hidden state h, and its router is R h. What matters are
 * the six lines marked with <---. Built from this file, recorder/capture.c, recorder/capture_cuda.cu, build/libgatemass.a, and -lcublas.
 */
#include "recorder/capture.h"
#include "recorder/capture_cuda.h"
#include "traces/writer.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_LAYER = 12, N_HIDDEN = 1024, N_EXPERT = 128, TOP_K = 8, N_BATCH = 64, N_PASS = 8, N_TOKEN = N_BATCH * N_PASS };

#define CHECK(call)                                                                                   \
	do {                                                                                          \
		int error_ = (int)(call);                                                             \
		if (error_ != 0) {                                                                    \
			fprintf(stderr, "cublas_router: %s:%d: error %d\n", #call, __LINE__, error_); \
			exit(1);                                                                      \
		}                                                                                     \
	} while (0)

/* Matrices are column-major, as cuBLAS has them: a column is a token, so a token's logits are N_EXPERT floats in a row. */
struct model {
	float *weight[N_LAYER]; /* W [N_HIDDEN][N_HIDDEN] */
	float *router[N_LAYER]; /* R [N_EXPERT][N_HIDDEN] */
	float *hidden;          /* [N_HIDDEN][N_BATCH] */
	float *logits;          /* [N_EXPERT][N_BATCH] of one layer: the next one overwrites them */
};

static float *random_matrix(size_t n, float scale)
{
	float *host = malloc(n * sizeof(*host)), *device;

	if (!host)
		exit(1);
	for (size_t i = 0; i < n; i++)
		host[i] = scale * ((float)rand() / (float)RAND_MAX - 0.5f);
	CHECK(cudaMalloc((void **)&device, n * sizeof(*device)));
	CHECK(cudaMemcpy(device, host, n * sizeof(*host), cudaMemcpyHostToDevice));
	free(host);
	return device;
}

static void make_model(struct model *m)
{
	for (int layer = 0; layer < N_LAYER; layer++) {
		m->weight[layer] = random_matrix((size_t)N_HIDDEN * N_HIDDEN, 0.05f);
		m->router[layer] = random_matrix((size_t)N_EXPERT * N_HIDDEN, 0.5f);
	}
	m->hidden = random_matrix((size_t)N_HIDDEN * N_BATCH, 1);
	m->logits = random_matrix((size_t)N_EXPERT * N_BATCH, 0);
}

/* One forward pass over N_BATCH tokens, from token number `first` on. Nothing here waits for the GPU. */
static int forward(const struct model *m, cublasHandle_t cublas, cudaStream_t stream, struct gm_capture *capture,
		   uint64_t first, struct gm_error *err)
{
	const float zero = 0, one = 1;

	for (int layer = 0; layer < N_LAYER; layer++) {
		CHECK(cublasSgemm(cublas, CUBLAS_OP_N, CUBLAS_OP_N, N_HIDDEN, N_BATCH, N_HIDDEN, &one, m->weight[layer],
				  N_HIDDEN, m->hidden, N_HIDDEN, &one, m->hidden, N_HIDDEN));
		CHECK(cublasSgemm(cublas, CUBLAS_OP_N, CUBLAS_OP_N, N_EXPERT, N_BATCH, N_HIDDEN, &one, m->router[layer],
				  N_EXPERT, m->hidden, N_HIDDEN, &zero, m->logits, N_EXPERT));
		GM_TRY(gm_capture_rows(capture, (uint32_t)layer, first, N_BATCH, m->logits, 0, stream, err)); /* <--- */
	}
	return 0;
}

/* Called on the capture's thread while the forward pass goes on. All tokens were declared before, so nobody else uses the writer
 * meanwhile; a program that declares them pass by pass needs a lock around both. */
static int write_rows(void *writer, uint32_t layer, uint64_t first, uint32_t n, const float *rows,
		      struct gm_error *err) /* <--- */
{
	return gm_writer_append(writer, layer, first, n, rows, N_EXPERT, err);
}

static int record(const struct model *m, cublasHandle_t cublas, cudaStream_t stream, struct gm_writer *writer,
		  struct gm_error *err)
{
	const struct gm_capture_options options = {/* <--- */
						   .cuda = gm_cuda_linked(),
						   .device = -1,
						   .n_expert = N_EXPERT,
						   .deliver = write_rows,
						   .user = writer};
	struct gm_capture *capture;
	uint64_t first;
	int status = 0, closed;

	GM_TRY(gm_writer_begin_sequence(writer, "random", NULL, err));
	GM_TRY(gm_writer_add_tokens(writer, N_TOKEN, NULL, 0, true, NULL, &first, err));
	capture = gm_capture_open(&options, err); /* <--- */
	if (!capture)
		return err->code;
	for (int pass = 0; pass < N_PASS && status == 0; pass++)
		status = forward(m, cublas, stream, capture, first + (uint64_t)pass * N_BATCH, err);
	closed = gm_capture_close(capture, err); /* <--- waits for the last rows */
	return status < 0 ? status : closed;
}

int main(int argc, char **argv)
{
	const struct gm_model facts = {.name = (char[]){"toy"},
				       .n_layer = N_LAYER,
				       .n_expert = N_EXPERT,
				       .top_k = TOP_K,
				       .gating = GM_GATING_SOFTMAX};
	const struct gm_writer_options options = {.kind = GM_KIND_LOGITS, .tail = GM_TAIL_F16, .source = "cublas_router"};
	struct gm_error err = {0};
	struct gm_writer *writer;
	cublasHandle_t cublas;
	cudaStream_t stream;
	struct model model;
	int status, closed;

	if (argc != 2) {
		fprintf(stderr, "usage: cublas_router OUT.gmt\n");
		return 2;
	}
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cublasCreate(&cublas));
	CHECK(cublasSetStream(cublas, stream));
	make_model(&model);
	writer = gm_writer_open(argv[1], &facts, &options, &err);
	if (!writer) {
		fprintf(stderr, "cublas_router: %s\n", err.text);
		return 1;
	}
	status = record(&model, cublas, stream, writer, &err);
	closed = gm_writer_close(writer, &err);
	if (status < 0 || closed < 0) {
		fprintf(stderr, "cublas_router: %s\n", err.text);
		return 1;
	}
	printf("%s: %d tokens, %d layers\n", argv[1], N_TOKEN, N_LAYER);
	CHECK(cublasDestroy(cublas));
	return 0;
}
