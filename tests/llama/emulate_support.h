/* What the tests of the emulator share. */
#ifndef GM_TESTS_LLAMA_EMULATE_SUPPORT_H
#define GM_TESTS_LLAMA_EMULATE_SUPPORT_H

#include "tests/llama/support.h"

#include "emulate/emulate.h"
#include "sim/sweep.h"

/* n texts of `length` printable characters each, which every fixture takes as one token a character; two labels in turn. */
struct gm_texts support_texts(uint32_t n, uint32_t length, uint64_t seed);

/* Of an option of gm_policy_options; fails the test where there is none of that name. */
int policy_option_id(const char *name);

/* An emulation with all that it stands on. */
struct emulated {
	struct gm_grid *grid;
	const struct gm_settings *settings;
	size_t n_settings;
	struct gm_preloads *preloads;
	struct gm_corpus corpus;
	struct gm_emulate_options options;
	struct gm_emulation emulation;
};

/* Pairs of option and value ("cache", "25%", ..., NULL), as on the command line; a flag's value is "". */
int emulated_try(struct emulated *run, struct gm_hook *hook, const struct gm_texts *texts,
		 const struct gm_emulate_options *options, const char *const *option, struct gm_error *err);
void emulated_run(struct emulated *run, struct gm_hook *hook, const struct gm_texts *texts,
		  const struct gm_emulate_options *options, const char *const *option); /* fails the test */
void emulated_free(struct emulated *run);

/* Options with one weight each. */
struct gm_emulate_options emulate_options(enum gm_substitute_weight substitute, enum gm_drop_weight drop);

/* Point i of the grid: 0 is the first after the baselines. */
const struct gm_emulate_point *emulated_point(const struct emulated *run, size_t i);
struct gm_tally emulated_total(const struct emulated *run, size_t i);
double emulated_nll(const struct emulated *run, size_t i); /* a token */

/* What `sim` makes of a recorded trace under the same settings; landings: see struct gm_sweep_options; layer [n_layer] out. */
struct gm_tally replayed(const char *path, const struct gm_settings *settings, struct gm_preloads *preloads,
			 const struct gm_landings *landings, struct gm_tally *layer, uint32_t n_layer);

/* Integer counters alike; masses to the last bits of their sums. */
void assert_equal_counters(const struct gm_counters *a, const struct gm_counters *b, const char *what);

#endif
