#include "tests/llama/support.h"

#include "tests/fixtures/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

const char *support_path(const char *name)
{
	static char paths[4][192];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

const char *support_fixture(const char *fixture)
{
	char name[64];

	snprintf(name, sizeof(name), "%s.gguf", fixture);
	return support_path(name);
}

int support_begin(void **state)
{
	const struct fixture_info *info;
	struct gm_error err = {0};

	(void)state;
	strcpy(folder, "/tmp/gatemass-llama-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	for (unsigned i = 0; (info = fixture_info(i)); i++)
		if (fixture_write(info->name, support_fixture(info->name), 1, NULL, &err) < 0) {
			print_error("%s\n", err.text);
			return -1;
		}
	return 0;
}

int support_end(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command);
}

struct gm_hook_options support_options(uint32_t n_ubatch)
{
	struct gm_hook_options options = gm_hook_default_options();

	options.n_ctx = 512;
	options.n_ubatch = n_ubatch;
	options.n_thread = 1;
	options.flash = GM_FLASH_OFF;
	options.extra_bufts = false;
	return options;
}

struct gm_hook *support_open(const char *path, const struct gm_hook_options *options)
{
	struct gm_error err = {0};
	struct gm_hook *hook = gm_hook_open(path, options, &err);

	if (!hook)
		fail_msg("%s", err.text);
	return hook;
}

void support_tokens(int32_t *token, uint32_t n, uint64_t seed)
{
	struct fixture_random random;

	fixture_random_begin(&random, seed, "tokens");
	for (uint32_t i = 0; i < n; i++)
		token[i] = (int32_t)(fixture_next(&random) % 256);
}

static int watch_logits(void *user, uint32_t layer, uint32_t first, uint32_t n, const float *logits, struct gm_error *err)
{
	struct watcher *watcher = user;

	(void)first;
	watcher->n_row[layer] += n;
	return gm_check_logits(watcher->check, n, logits, err);
}

static int watch_topk(void *user, uint32_t layer, uint32_t first, uint32_t n, int32_t *expert, bool *changed,
		      struct gm_error *err)
{
	(void)layer, (void)first, (void)changed;
	return gm_check_topk(((struct watcher *)user)->check, n, expert, err);
}

static int watch_weights(void *user, uint32_t layer, uint32_t first, uint32_t n, float *weight, bool *changed,
			 struct gm_error *err)
{
	(void)layer, (void)first, (void)changed;
	return gm_check_weights(((struct watcher *)user)->check, n, weight, err);
}

static int watch_gates(void *user, uint32_t layer, uint32_t first, uint32_t n, float *gate, bool *changed,
		       struct gm_error *err)
{
	(void)first, (void)changed;
	return gm_check_gates(((struct watcher *)user)->check, layer, n, gate, err);
}

const struct gm_hook_ops watcher_ops = {
	.on_logits = watch_logits,
	.on_topk = watch_topk,
	.on_weights = watch_weights,
	.on_gates = watch_gates,
};

void watcher_begin(struct watcher *watcher, struct gm_hook *hook)
{
	struct gm_error err = {0};

	memset(watcher, 0, sizeof(*watcher));
	watcher->hook = hook;
	watcher->check = gm_check_new(gm_hook_model(hook), gm_hook_info(hook)->softmax_after_selection, &err);
	if (!watcher->check)
		fail_msg("%s", err.text);
	gm_hook_set_ops(hook, &watcher_ops, watcher);
}

void watcher_end(struct watcher *watcher)
{
	gm_check_free(watcher->check);
}

void support_run(struct gm_hook *hook, const int32_t *token, uint32_t n, float *output)
{
	const struct gm_hook_info *info = gm_hook_info(hook);
	struct gm_error err = {0};

	for (uint32_t done = 0; done < n;) {
		uint32_t pass = n - done < info->n_ubatch ? n - done : info->n_ubatch;

		assert_ok(gm_hook_pass(hook, token + done, pass, &err), &err);
		for (uint32_t i = 0; output && i < pass; i++)
			memcpy(output + (size_t)(done + i) * info->n_vocab, gm_hook_output(hook, i),
			       info->n_vocab * sizeof(float));
		done += pass;
	}
}
