/* Finding CUDA's runtime without being linked with it (see capture_cuda.h). */
#include "recorder/capture_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One for the process, as CUDA itself is: found by the first call, never unloaded. */
static struct {
	pthread_once_t once;
	struct gm_cuda table;
	const struct gm_cuda *cuda; /* NULL: err says why */
	struct gm_error err;
} found = {.once = PTHREAD_ONCE_INIT};

static bool fill(struct gm_cuda *cuda, void *library, const char **missing)
{
	/* POSIX has an object pointer stand for a function pointer here */
#define LOOK_UP(name, arguments)                                  \
	*(void **)&cuda->name = dlsym(library, *missing = #name); \
	if (!cuda->name)                                          \
		return false;
	GM_CUDA_FUNCTIONS(LOOK_UP)
	LOOK_UP(cudaGetErrorString, )
#undef LOOK_UP
	return true;
}

static void fill_from(void *library, const char *path, struct gm_error *err)
{
	const struct gm_cuda *(*linked)(void);
	const char *missing = NULL;

	*(void **)&linked = dlsym(library, "gm_cuda_linked");
	if (linked)
		found.cuda = linked();
	else if (fill(&found.table, library, &missing))
		found.cuda = &found.table;
	else
		gm_fail(err, GM_ERR_UNSUPPORTED, "%s has no %s: CUDA 11 or later is needed", path, missing);
}

static bool try_path(const char *path, struct gm_error *err)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return false;
	fill_from(library, path, err);
	return true;
}

static bool try_folder(const char *folder, const char *name, struct gm_error *err)
{
	char path[4096 + 64];

	if (!folder)
		return false;
	snprintf(path, sizeof(path), "%.4096s/%s", folder, name);
	return access(path, R_OK) == 0 && try_path(path, err);
}

/* libgatemass-cuda.so in the lib/ beside the program's bin/, in the build folder as where it is installed */
static bool try_own(struct gm_error *err)
{
	char program[4096];
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
	char *slash;

	program[n > 0 ? n : 0] = '\0';
	slash = strrchr(program, '/');
	if (!slash)
		return false;
	*slash = '\0';
	return try_folder(program, "../lib/libgatemass-cuda.so", err);
}

static bool try_all(struct gm_error *err)
{
	static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"};

	if (try_own(err))
		return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (try_path(names[i], err))
			return true;
	return try_folder(getenv("CUDA_HOME"), "lib64/libcudart.so", err) ||
	       try_folder(getenv("CUDA_PATH"), "lib64/libcudart.so", err) ||
	       try_folder("/usr/local/cuda", "lib64/libcudart.so", err);
}

static void check_devices(struct gm_error *err)
{
	int count = 0;
	cudaError_t error = found.cuda->cudaGetDeviceCount(&count);

	if (error == cudaSuccess && count > 0)
		return;
	gm_fail(err, GM_ERR_UNSUPPORTED, "CUDA finds no GPU: %s",
		error == cudaSuccess ? "there is none" : found.cuda->cudaGetErrorString(error));
	found.cuda = NULL;
}

static void look(void)
{
	const char *wanted = getenv("GATEMASS_CUDART");
	struct gm_error *err = &found.err;

	if (wanted && strcmp(wanted, "none") == 0) {
		gm_fail(err, GM_ERR_UNSUPPORTED, "CUDA is not used: GATEMASS_CUDART=none");
	} else if (wanted && *wanted) {
		if (!try_path(wanted, err))
			gm_fail(err, GM_ERR_UNSUPPORTED, "cannot be loaded: GATEMASS_CUDART=%.120s: give a libcudart.so",
				wanted);
	} else if (!try_all(err)) {
		gm_fail(err, GM_ERR_UNSUPPORTED,
			"no CUDA runtime found: install one (libcudart.so), or name it in GATEMASS_CUDART");
	}
	if (found.cuda)
		check_devices(err);
}

const struct gm_cuda *gm_cuda_load(struct gm_error *err)
{
	pthread_once(&found.once, look);
	if (!found.cuda)
		gm_fail(err, found.err.code, "%s", found.err.text);
	return found.cuda;
}
