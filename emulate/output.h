/* The files that `emulate` writes: points, and points split by layer, sequence, label and token, and what they generated
 * (docs/emulator.md). */
#ifndef GM_EMULATE_OUTPUT_H
#define GM_EMULATE_OUTPUT_H

#include "base/csv.h"
#include "base/file.h"
#include "emulate/emulate.h"

enum gm_emulate_file {
	GM_EMULATE_POINTS,
	GM_EMULATE_LAYERS,
	GM_EMULATE_SEQUENCES,
	GM_EMULATE_LABELS,
	GM_EMULATE_TOKENS,
	GM_EMULATE_CONTINUATIONS,
	GM_N_EMULATE_FILE,
};

struct gm_emulate_output {
	struct gm_output file[GM_N_EMULATE_FILE];
	struct gm_csv_writer csv[GM_N_EMULATE_FILE];
	const char *source; /* names the texts: the column trace */
};

/* Opens the files that have a path. On failure nothing is left behind. */
int gm_emulate_output_open(struct gm_emulate_output *output, const char *const path[GM_N_EMULATE_FILE],
			   struct gm_error *err);

/* Headers and rows of a finished emulation. */
int gm_emulate_output_write(struct gm_emulate_output *output, const struct gm_emulation *emulation, struct gm_error *err);

int gm_emulate_output_commit(struct gm_emulate_output *output, struct gm_error *err);
void gm_emulate_output_discard(struct gm_emulate_output *output);

/* A line for each point, for people. */
void gm_emulate_table(FILE *out, const struct gm_emulation *emulation);

/* The settings of a point as columns; miss is "none" and the cache empty for a baseline. */
void gm_emulate_result(const struct gm_emulation *emulation, const char *source, size_t point, struct gm_result *result);

#endif
