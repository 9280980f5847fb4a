/* llama.cpp as a library: its backends, its log, and where tensors are to lie. */
#include "recorder/hook_private.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* llama.cpp has one log for the whole process, so this state has to be one too. Backends may log from their own threads. */
static struct {
	pthread_mutex_t lock;
	void (*log)(void *user, enum gm_hook_log level, const char *text);
	void *user;
	enum gm_hook_log level, last; /* last: of the line that a continuation continues */
	char error[160];
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum gm_hook_log level_of(enum ggml_log_level level)
{
	switch (level) {
	case GGML_LOG_LEVEL_ERROR:
		return GM_HOOK_LOG_ERROR;
	case GGML_LOG_LEVEL_WARN:
		return GM_HOOK_LOG_WARN;
	case GGML_LOG_LEVEL_INFO:
		return GM_HOOK_LOG_INFO;
	case GGML_LOG_LEVEL_CONT:
		return sink.last;
	default:
		return GM_HOOK_LOG_DEBUG;
	}
}

static void on_log(enum ggml_log_level ggml_level, const char *text, void *user)
{
	enum gm_hook_log level;

	(void)user;
	pthread_mutex_lock(&sink.lock);
	level = sink.last = level_of(ggml_level);
	/* The first error line names the cause; "failed to load model" and the like follow it. */
	if (level == GM_HOOK_LOG_ERROR && !sink.error[0]) {
		snprintf(sink.error, sizeof(sink.error), "%s", text);
		sink.error[strcspn(sink.error, "\n")] = 0;
	}
	if (sink.log && level <= sink.level)
		sink.log(sink.user, level, text);
	pthread_mutex_unlock(&sink.lock);
}

void hook_log_to(const struct gm_hook_options *options)
{
	pthread_mutex_lock(&sink.lock);
	sink.log = options ? options->log : NULL;
	sink.user = options ? options->log_user : NULL;
	sink.level = options ? options->log_level : GM_HOOK_LOG_ERROR;
	sink.error[0] = 0;
	pthread_mutex_unlock(&sink.lock);
	llama_log_set(on_log, NULL);
}

void hook_log_forget_error(void)
{
	pthread_mutex_lock(&sink.lock);
	sink.error[0] = 0;
	pthread_mutex_unlock(&sink.lock);
}

int hook_fail(struct gm_error *err, int code, const char *text, const char *path)
{
	char cause[sizeof(sink.error)];

	pthread_mutex_lock(&sink.lock);
	memcpy(cause, sink.error, sizeof(cause));
	pthread_mutex_unlock(&sink.lock);
	return gm_fail(err, code, "%s: %s%s%s", text, path, cause[0] ? ": llama.cpp says: " : "", cause);
}

/* Backends built as plugins lie beside the library; those compiled into it are there already. */
void gm_hook_load_library(void)
{
	char directory[4096];
	Dl_info info;
	char *slash;

	llama_log_set(on_log, NULL);
	if (ggml_backend_dev_count() > 0)
		return;
	if (dladdr((void *)llama_backend_init, &info) && info.dli_fname && strlen(info.dli_fname) < sizeof(directory)) {
		strcpy(directory, info.dli_fname);
		slash = strrchr(directory, '/');
		if (slash) {
			*slash = 0;
			ggml_backend_load_all_from_path(directory);
		}
	}
	if (ggml_backend_dev_count() == 0)
		ggml_backend_load_all();
	llama_backend_init();
}

static bool is_gpu(ggml_backend_dev_t device)
{
	enum ggml_backend_dev_type type = ggml_backend_dev_type(device);

	return type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
}

bool hook_has_gpu(void)
{
	for (size_t i = 0; i < ggml_backend_dev_count(); i++)
		if (is_gpu(ggml_backend_dev_get(i)))
			return true;
	return false;
}

uint64_t gm_hook_gpu_free_bytes(void)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
		size_t free_bytes = 0, total_bytes = 0;

		if (!is_gpu(ggml_backend_dev_get(i)))
			continue;
		ggml_backend_dev_memory(ggml_backend_dev_get(i), &free_bytes, &total_bytes);
		sum += free_bytes;
	}
	return sum;
}

const char *gm_hook_library_version(void)
{
	static char text[64];
	const char *(*version)(void);

	/* looked up: versions before 0.4 do not have it */
	*(void **)&version = dlsym(RTLD_DEFAULT, "llama_version");
	snprintf(text, sizeof(text), "llama.cpp %s", version ? version() : "of unknown version");
	return text;
}

char *gm_hook_describe_library(char *text, size_t size, bool brief)
{
	Dl_info info;
	size_t used;

	if (size == 0)
		return text;
	gm_hook_load_library();
	if (!dladdr((void *)llama_backend_init, &info) || !info.dli_fname)
		info.dli_fname = "linked in";
	if (brief)
		snprintf(text, size, "%s\n", gm_hook_library_version());
	else
		snprintf(text, size, "%s (%s)\n", gm_hook_library_version(), info.dli_fname);
	for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
		ggml_backend_dev_t device = ggml_backend_dev_get(i);
		size_t free_bytes = 0, total_bytes = 0;

		used = strlen(text);
		if (brief) {
			snprintf(text + used, size - used, "%s: %s\n", ggml_backend_dev_name(device),
				 ggml_backend_dev_description(device));
			continue;
		}
		ggml_backend_dev_memory(device, &free_bytes, &total_bytes);
		snprintf(text + used, size - used, "%s: %s, %.1f of %.1f GiB free\n", ggml_backend_dev_name(device),
			 ggml_backend_dev_description(device), (double)free_bytes / 0x1p30, (double)total_bytes / 0x1p30);
	}
	return text;
}

/* --- placement --- */

/* llama.cpp's own pattern for --cpu-moe */
#define EXPERTS "\\.ffn_(up|down|gate|gate_up)_(ch|)exps"

static ggml_backend_buffer_type_t find_buffer_type(const char *name, size_t length)
{
	for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
		ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(ggml_backend_dev_get(i));

		if (type && strlen(ggml_backend_buft_name(type)) == length &&
		    strncmp(ggml_backend_buft_name(type), name, length) == 0)
			return type;
	}
	return NULL;
}

static int fail_buffer_type(const char *name, size_t length, struct gm_error *err)
{
	char known[128] = "";

	for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
		ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(ggml_backend_dev_get(i));
		size_t used = strlen(known);

		if (type)
			snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "",
				 ggml_backend_buft_name(type));
	}
	return gm_fail(err, GM_ERR_USAGE, "no such buffer type here: --override-tensor %.*s: must be one of %s",
		       (int)length, name, known);
}

static int add_override(struct llama_model_tensor_buft_override *override, const char *pattern, size_t length,
			ggml_backend_buffer_type_t type, struct gm_error *err)
{
	char *copy = gm_alloc(length + 1, 1, err);

	if (!copy)
		return GM_ERR_MEMORY;
	memcpy(copy, pattern, length);
	override->pattern = copy;
	override->buft = type;
	return 0;
}

/* Biases stay where llama.cpp wants them. */
int hook_overrides_experts(struct llama_model_tensor_buft_override *override, struct ggml_backend_buffer_type *type,
			   struct gm_error *err)
{
	static const char pattern[] = EXPERTS "\\.weight";

	return add_override(override, pattern, sizeof(pattern) - 1, type, err);
}

/* "REGEX=BUFFER,REGEX=BUFFER" */
static int add_listed(struct llama_model_tensor_buft_override *to, const char *list, struct gm_error *err)
{
	while (*list) {
		size_t length = strcspn(list, ",");
		const char *equals = memchr(list, '=', length);
		ggml_backend_buffer_type_t type;

		if (!equals || equals == list)
			return gm_fail(err, GM_ERR_USAGE,
				       "not an override: --override-tensor %.*s: must be REGEX=BUFFER[,REGEX=BUFFER...]",
				       (int)length, list);
		type = find_buffer_type(equals + 1, (size_t)(list + length - equals - 1));
		if (!type)
			return fail_buffer_type(equals + 1, (size_t)(list + length - equals - 1), err);
		GM_TRY(add_override(to++, list, (size_t)(equals - list), type, err));
		list += length;
		list += *list == ',';
	}
	return 0;
}

static size_t count_listed(const char *list)
{
	size_t n = 1;

	if (!list || !*list)
		return 0;
	for (; *list; list++)
		n += *list == ',';
	return n;
}

int hook_overrides_parse(struct llama_model_tensor_buft_override **overrides, const struct gm_hook_options *options,
			 struct gm_error *err)
{
	uint32_t n_cpu_moe = options->cpu_moe ? 0 : options->n_cpu_moe;
	size_t n_listed = count_listed(options->override_tensor);
	struct llama_model_tensor_buft_override *next;
	int status = 0;

	*overrides = NULL;
	if (n_cpu_moe > GM_MAX_LAYER)
		return gm_fail(err, GM_ERR_USAGE, "out of range: --n-cpu-moe %u: at most %u", n_cpu_moe, GM_MAX_LAYER);
	if (n_listed + n_cpu_moe + options->cpu_moe == 0 && !options->expert_buffer)
		return 0;
	*overrides = next = gm_alloc(n_listed + n_cpu_moe + 3, sizeof(**overrides), err);
	if (!next)
		return GM_ERR_MEMORY;
	if (options->expert_buffer) /* the first pattern that matches decides */
		GM_TRY_OUT(hook_overrides_experts(next++, options->expert_buffer, err));
	if (n_listed) {
		GM_TRY_OUT(add_listed(next, options->override_tensor, err));
		while (next->pattern)
			next++;
	}
	for (uint32_t layer = 0; layer < n_cpu_moe; layer++) {
		char pattern[64 + sizeof(EXPERTS)];
		int length = snprintf(pattern, sizeof(pattern), "blk\\.%u" EXPERTS, layer);

		GM_TRY_OUT(add_override(next++, pattern, (size_t)length, ggml_backend_cpu_buffer_type(), err));
	}
	if (options->cpu_moe)
		status = add_override(next, EXPERTS, strlen(EXPERTS), ggml_backend_cpu_buffer_type(), err);
out:
	if (status < 0) {
		hook_overrides_free(*overrides);
		*overrides = NULL;
	}
	return status;
}

void hook_overrides_free(struct llama_model_tensor_buft_override *overrides)
{
	if (!overrides)
		return;
	for (struct llama_model_tensor_buft_override *next = overrides; next->pattern; next++)
		free((void *)next->pattern);
	free(overrides);
}
