/* What the tests that need llama.cpp share. They run one thread: two on a busy machine make llama.cpp hundreds of times slower. */
#ifndef GM_TESTS_LLAMA_SUPPORT_H
#define GM_TESTS_LLAMA_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "recorder/check.h"
#include "recorder/hook.h"
#include "tests/fixtures/gguf.h"

#define TINYMOE "tests/tinymoe/tinymoe-F16.gguf"

/* cmocka group set-up and tear-down: a folder for temporary files, with every fixture in it. */
int support_begin(void **state);
int support_end(void **state);

/* "FOLDER/NAME": the returned text lives until the next call but three. */
const char *support_path(const char *name);
const char *support_fixture(const char *fixture); /* path of a fixture's GGUF */

/* One thread, flash attention off, plain kernels; context of 512. */
struct gm_hook_options support_options(uint32_t n_ubatch);

/* Fails the test with the error's text. */
struct gm_hook *support_open(const char *path, const struct gm_hook_options *options);
#define assert_ok(call, err)                                                    \
	do {                                                                    \
		if ((call) < 0)                                                 \
			fail_msg("%s:%d: %s", __FILE__, __LINE__, (err)->text); \
	} while (0)

/* n tokens that depend on seed, from the byte tokens all fixtures share. */
void support_tokens(int32_t *token, uint32_t n, uint64_t seed);

/* Observes everything and checks it; counts rows by layer. */
struct watcher {
	const struct gm_hook *hook;
	struct gm_check *check;
	uint64_t n_row[64];
};
extern const struct gm_hook_ops watcher_ops;
void watcher_begin(struct watcher *watcher, struct gm_hook *hook); /* sets the hook's ops */
void watcher_end(struct watcher *watcher);

/* Runs n tokens as passes of at most n_ubatch; output [n][n_vocab] may be NULL. */
void support_run(struct gm_hook *hook, const int32_t *token, uint32_t n, float *output);

#endif
