/* A device of ggml that llama.cpp takes for an NVIDIA GPU ("CUDA0"): its memory comes from a CUDA runtime (the stand-in's, which is host
 * memory), its kernels are the CPU backend's. So what records from device memory is tested with llama.cpp's real scheduler, which
 * reuses the router's memory as soon as the observer has returned. */
#ifndef GM_TESTS_LLAMA_FAKE_GPU_H
#define GM_TESTS_LLAMA_FAKE_GPU_H

struct fake_cuda_options;

/* What the stand-in runtime offers beside CUDA's own functions (tests/fake_cuda/fake_cuda.h). */
struct fake_gpu {
	void (*reset)(const struct fake_cuda_options *options);
	const char *(*problems)(void);
};

/* Loads the stand-in runtime, resets it, and registers the device; once a process, after the CPU backend was loaded. 0, or -1. */
int fake_gpu_begin(struct fake_gpu *gpu, const struct fake_cuda_options *options);

/* Last multiplications of experts that were begun on it: those whose result is longer than what goes in, as in the fixtures. Any thread. */
unsigned long fake_gpu_n_down(void);

#endif
