/* The functions of CUDA's runtime that the stand-in has, under their own names: those that recorder/capture_cuda.h names. With
 * GM_CUDA_HEADER these are declared a second time, after the toolkit's own header: any difference is an error of the compiler. */
#ifndef GM_TESTS_FAKE_CUDA_RUNTIME_API_H
#define GM_TESTS_FAKE_CUDA_RUNTIME_API_H

#include "recorder/capture_cuda.h"

#define FAKE_DECLARE(name, arguments) extern cudaError_t name arguments;
GM_CUDA_FUNCTIONS(FAKE_DECLARE)
#undef FAKE_DECLARE
extern const char *cudaGetErrorString(cudaError_t error);

#endif
