/* The subcommands of the `sim` program, one file each (cmd_*.c), and what they share. */
#ifndef GM_SIM_COMMANDS_H
#define GM_SIM_COMMANDS_H

#include "base/options.h"
#include "sim/sweep_output.h"

extern const struct gm_command gm_sim_run;
extern const struct gm_command gm_sim_sweep;
extern const struct gm_command gm_sim_curve;
extern const struct gm_command gm_sim_policies;

/* --- options that run and sweep share: files by layer, sequence and token, --quiet --- */

enum gm_split_option { GM_OPTION_PER_LAYER = 100, GM_OPTION_PER_SEQUENCE, GM_OPTION_PER_TOKEN, GM_OPTION_QUIET };
extern const struct gm_option gm_split_options[];

struct gm_sim_state {
	struct gm_grid *grid; /* made by the first policy option, or by gm_sim_grid */
	const char *path[GM_N_SWEEP_FILE];
	const char *other; /* one more output, of the command itself, or NULL */
	const char *other_option;
	const char *arrivals; /* one more input, of run, or NULL */
	bool quiet;
};

/* One of gm_split_options or gm_policy_options; lists: whether it may be a list. */
int gm_sim_option(struct gm_sim_state *state, bool lists, int id, const char *value, struct gm_error *err);

/* The points that the options make. */
int gm_sim_expand(struct gm_sim_state *state, bool lists, const struct gm_settings **settings, size_t *n,
		  struct gm_error *err);
/* After gm_sim_expand: refuses files that two things would use, before anything is written. */
int gm_sim_check_files(const struct gm_sim_state *state, int n_trace, char *const *trace, struct gm_error *err);
/* Opens every preload trace and closes it: what is missing is missed before the work begins. */
int gm_sim_check_preloads(const struct gm_sim_state *state, struct gm_error *err);
int gm_sim_grid(struct gm_sim_state *state, bool lists, struct gm_error *err);
void gm_sim_release(struct gm_sim_state *state);

/* Fills what the files need. */
void gm_sim_wants(const struct gm_sim_state *state, struct gm_sweep_options *options);

/* Is standard output taken by a file? */
bool gm_sim_writes_stdout(const struct gm_sim_state *state);

/* Says on stderr, once, that times are not known. */
void gm_sim_tell_untimed(const struct gm_sweep *sweep);

#endif
