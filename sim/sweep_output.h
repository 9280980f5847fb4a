/* The files that `sim run` and `sim sweep` write: points, and points split by layer, by sequence and by token (docs/cli.md). */
#ifndef GM_SIM_SWEEP_OUTPUT_H
#define GM_SIM_SWEEP_OUTPUT_H

#include "base/file.h"
#include "sim/sweep.h"

enum gm_sweep_file { GM_FILE_POINTS, GM_FILE_LAYERS, GM_FILE_SEQUENCES, GM_FILE_TOKENS, GM_N_SWEEP_FILE };

struct gm_sweep_output {
	struct gm_output file[GM_N_SWEEP_FILE];
	struct gm_csv_writer csv[GM_N_SWEEP_FILE];
	bool extra; /* --head-only: with the column head_exhausted */
};

/* Opens the files that have a path and writes their headers. On failure nothing is left behind. */
int gm_sweep_output_open(struct gm_sweep_output *output, const char *const path[GM_N_SWEEP_FILE], bool extra,
			 struct gm_error *err);

/* The rows of a finished sweep. */
int gm_sweep_output_write(struct gm_sweep_output *output, struct gm_sweep *sweep, struct gm_error *err);

/* All files get their final names; or none is left. */
int gm_sweep_output_commit(struct gm_sweep_output *output, struct gm_error *err);
void gm_sweep_output_discard(struct gm_sweep_output *output);

#endif
