#include "tests/cuda/support.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef GM_CUDA_HEADER

const struct gm_cuda *support_cuda(void)
{
	return gm_cuda_linked();
}

void support_begin(uint64_t seed, unsigned max_delay_us)
{
	(void)seed, (void)max_delay_us;
}

void support_end(void)
{
	assert_int_equal(support_cuda()->cudaGetLastError(), cudaSuccess);
}

static void host_begin(const void *memory, size_t size)
{
	(void)memory, (void)size;
}

static void host_end(const void *memory)
{
	(void)memory;
}

#else

#include "tests/fake_cuda/fake_cuda.h"

#define host_begin fake_cuda_host_begin
#define host_end fake_cuda_host_end

const struct gm_cuda *support_cuda(void)
{
	return fake_cuda_table();
}

void support_begin(uint64_t seed, unsigned max_delay_us)
{
	fake_cuda_reset(&(struct fake_cuda_options){.seed = seed, .max_delay_us = max_delay_us});
}

void support_end(void)
{
	assert_string_equal(fake_cuda_problems(), "");
	assert_int_equal(fake_cuda_left(), 0);
	assert_int_equal(support_cuda()->cudaGetLastError(), cudaSuccess);
}

#endif

uint32_t support_random(uint64_t *state, uint32_t n)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33) % n;
}

float support_value(uint32_t layer, uint64_t token, uint32_t expert)
{
	return (float)((layer * 7919u + token * 104729u + expert * 31u) % 1000003u);
}

/* --- forward pass --- */

void forward_begin(struct forward *f, uint32_t n_layer, uint64_t n_token, uint32_t n_expert, uint32_t max_rows, size_t gap,
		   bool on_default_stream)
{
	const struct gm_cuda *cuda = support_cuda();
	float *value;

	*f = (struct forward){.n_layer = n_layer,
			      .n_token = n_token,
			      .n_expert = n_expert,
			      .max_rows = max_rows,
			      .stride = n_expert * sizeof(float) + gap};
	assert_cuda(cuda->cudaHostAlloc((void **)&f->source, n_layer * n_token * n_expert * sizeof(float),
					cudaHostAllocDefault));
	assert_cuda(cuda->cudaMalloc((void **)&f->logits, max_rows * f->stride));
	if (!on_default_stream)
		assert_cuda(cuda->cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking));
	value = f->source;
	for (uint32_t layer = 0; layer < n_layer; layer++)
		for (uint64_t token = 0; token < n_token; token++)
			for (uint32_t expert = 0; expert < n_expert; expert++)
				*value++ = support_value(layer, token, expert);
}

cudaError_t forward_layer(const struct forward *f, uint32_t layer, uint64_t first, uint32_t n)
{
	size_t row = f->n_expert * sizeof(float);

	return support_cuda()->cudaMemcpy2DAsync(f->logits, f->stride,
						 f->source + (layer * f->n_token + first) * f->n_expert, row, row, n,
						 cudaMemcpyHostToDevice, f->stream);
}

int forward_capture(const struct forward *f, struct gm_capture *capture, uint32_t layer, uint64_t first, uint32_t n,
		    struct gm_error *err)
{
	return gm_capture_rows(capture, layer, first, n, f->logits, f->stride, f->stream, err);
}

int forward_run(const struct forward *f, struct gm_capture *capture, uint64_t seed, struct gm_error *err)
{
	uint64_t random = seed;

	for (uint64_t first = 0; first < f->n_token;) {
		uint32_t n = seed ? 1 + support_random(&random, f->max_rows) : f->max_rows;

		if (n > f->n_token - first)
			n = (uint32_t)(f->n_token - first);
		for (uint32_t layer = 0; layer < f->n_layer; layer++) {
			if (forward_layer(f, layer, first, n) != cudaSuccess)
				return gm_fail(err, GM_ERR_IO, FORWARD_FAILED);
			GM_TRY(forward_capture(f, capture, layer, first, n, err));
		}
		first += n;
	}
	return 0;
}

void forward_end(struct forward *f)
{
	const struct gm_cuda *cuda = support_cuda();

	assert_cuda(cuda->cudaStreamSynchronize(f->stream));
	if (f->stream)
		assert_cuda(cuda->cudaStreamDestroy(f->stream));
	assert_cuda(cuda->cudaFree(f->logits));
	assert_cuda(cuda->cudaFreeHost(f->source));
}

/* --- sink --- */

void sink_begin(struct sink *s, uint32_t n_layer, uint32_t n_expert)
{
	*s = (struct sink){.n_layer = n_layer, .n_expert = n_expert, .next = calloc(n_layer, sizeof(*s->next))};
	assert_non_null(s->next);
}

/* The values of a row that is being overwritten may still be right at its start: its end is looked at last, after the pause. */
static void look(struct sink *s, uint32_t layer, uint64_t token, const float *row)
{
	for (uint32_t expert = 0; expert < s->n_expert; expert++)
		if (row[expert] != support_value(layer, token, expert)) {
			s->n_wrong++;
			return;
		}
}

int sink_take(void *user, uint32_t layer, uint64_t first, uint32_t n, const float *rows, struct gm_error *err)
{
	struct sink *s = user;

	if (s->fail_at && s->n_row + n > s->fail_at) {
		s->n_after++;
		return gm_fail(err, GM_ERR_IO, "the disk is full");
	}
	host_begin(rows, n * s->n_expert * sizeof(*rows));
	if (s->pause_us)
		nanosleep(&(struct timespec){.tv_nsec = (long)s->pause_us * 1000}, NULL);
	if (layer >= s->n_layer || first != s->next[layer])
		s->n_wrong++;
	else
		s->next[layer] += n;
	for (uint32_t i = 0; i < n; i++)
		look(s, layer, first + i, rows + (size_t)i * s->n_expert);
	s->n_row += n;
	host_end(rows);
	return 0;
}

void sink_check(const struct sink *s, uint64_t n_token)
{
	assert_int_equal(s->n_wrong, 0);
	for (uint32_t layer = 0; layer < s->n_layer; layer++)
		assert_int_equal(s->next[layer], n_token);
}

void sink_end(struct sink *s)
{
	free(s->next);
}

struct gm_capture *support_open(struct sink *sink, size_t ring_bytes, struct gm_error *err)
{
	const struct gm_capture_options options = {.cuda = support_cuda(),
						   .device = -1,
						   .n_expert = sink->n_expert,
						   .ring_bytes = ring_bytes,
						   .deliver = sink_take,
						   .user = sink};

	return gm_capture_open(&options, err);
}
