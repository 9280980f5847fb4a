/* The options that say which model is run on what, and how: one table for all programs that stand on the hook. */
#ifndef GM_RECORDER_MODEL_OPTIONS_H
#define GM_RECORDER_MODEL_OPTIONS_H

#include "base/options.h"
#include "recorder/hook.h"

enum gm_model_option {
	GM_OPTION_CTX = 2000,
	GM_OPTION_UBATCH,
	GM_OPTION_THREADS,
	GM_OPTION_NGL,
	GM_OPTION_CPU_MOE,
	GM_OPTION_N_CPU_MOE,
	GM_OPTION_OVERRIDE,
	GM_OPTION_FLASH,
	GM_OPTION_NO_REPACK,
};

extern const struct gm_option gm_model_options[];

/* Is this id one of gm_model_options? */
bool gm_model_takes(int option_id);

/* One option; value is NULL for a flag and lives as long as options. Errors name option, value and what would be right. */
int gm_model_option(struct gm_hook_options *options, int option_id, const char *value, struct gm_error *err);

/* --verbose: llama.cpp's own messages go to stderr; without it they are dropped. */
void gm_model_set_verbose(struct gm_hook_options *options, bool verbose);

/* llama.cpp's short names of more than one letter, -ngl and -ot, become the long ones. */
void gm_model_short_names(int argc, char **argv);

#endif
