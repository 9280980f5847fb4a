/* What the tests of the engine share. */
#ifndef GM_TESTS_LLAMA_ENGINE_SUPPORT_H
#define GM_TESTS_LLAMA_ENGINE_SUPPORT_H

#include "tests/llama/emulate_support.h"

#include "engine/cache.h"

/* A model with a cache, and all that it stands on. */
struct engined {
	struct gm_grid *grid;
	struct gm_preloads *preloads;
	struct gm_plugin *plugin;
	struct gm_hook *hook;
	struct gm_cache *cache;
};

/* option: pairs of option and value ("cache", "25%", ..., NULL), as on the command line; a flag's value is "". */
int engined_try(struct engined *run, const char *path, const struct gm_hook_options *options, const char *const *option,
		struct gm_error *err);
/* The same with experts that lie elsewhere; the plugin's model is filled in. */
int engined_from(struct engined *run, struct gm_plugin_options plugin, const char *path,
		 const struct gm_hook_options *options, const char *const *option, struct gm_error *err);
void engined_open(struct engined *run, const char *path, const struct gm_hook_options *options,
		  const char *const *option); /* fails the test */
void engined_close(struct engined *run);

/* A new policy and a cold cache for the same model. */
int engined_again(struct engined *run, const char *const *option, struct gm_error *err);
int engined_with(struct engined *run, const char *const *option, const struct gm_cache_options *options,
		 struct gm_error *err);

/* Runs n tokens as one sequence in passes of at most n_ubatch; output [n][n_vocab] may be NULL. */
int engined_run(struct engined *run, const int32_t *token, uint32_t n, float *output, struct gm_error *err);

/* Records what follows, until the recording is closed. */
struct gm_recording *engined_record(struct engined *run, const char *path);

/* The same tokens through the emulator, on a hook of the same model without a cache. arrivals: of copies in the background, NULL: instant. output
 * [n][n_vocab] and account out; the account is the caller's to free. */
void engined_emulate(const struct engined *run, struct gm_hook *stock, struct gm_override override,
		     struct gm_arrivals *arrivals, const int32_t *token, uint32_t n, float *output,
		     struct gm_account *account);

/* Counters of all layers. */
struct gm_counters engined_counters(const struct engined *run);

#endif
