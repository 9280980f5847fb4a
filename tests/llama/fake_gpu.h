/* A device of ggml that llama.cpp takes for an NVIDIA GPU ("CUDA0"): its memory comes from a CUDA runtime (the stand-in's, which is host
 * memory), its kernels are the CPU backend's. So what records from device memory is tested with llama.cpp's real scheduler, which
 * reuses the router's memory as soon as the observer has returned. */
#ifndef GM_TESTS_LLAMA_FAKE_GPU_H
#define GM_TESTS_LLAMA_FAKE_GPU_H

#include "recorder/capture_cuda.h"

/* Once a process, after the CPU backend was loaded. */
void fake_gpu_register(const struct gm_cuda *cuda);

#endif
