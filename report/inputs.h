/* The files a report is made from, each recognised by its columns. */
#ifndef GM_REPORT_INPUTS_H
#define GM_REPORT_INPUTS_H

#include "report/sheet.h"

enum gm_input {
	GM_INPUT_RESULTS,   /* sim sweep --csv, emulate --csv */
	GM_INPUT_LAYERS,    /* --per-layer */
	GM_INPUT_SEQUENCES, /* --per-sequence */
	GM_INPUT_TOKENS,    /* --per-token */
	GM_INPUT_STATS,     /* traces stats --csv */
	GM_N_INPUT
};

struct gm_inputs {
	struct gm_sheet sheet[GM_N_INPUT]; /* several files of one kind follow each other in one sheet */
};

void gm_inputs_free(struct gm_inputs *inputs);

/* Reads a file into the sheet of its kind (returned in *kind unless NULL).
 * Errors, with file, line and column: what gm_sheet_read finds, a file of another kind of program, a cell of a number's column that is no
 * number, results of another version of the replay rules than those read before, a file without rows. */
int gm_inputs_read(struct gm_inputs *inputs, const char *path, enum gm_input *kind, struct gm_error *err);

/* All of them; *inputs is freed on failure. */
int gm_inputs_read_all(struct gm_inputs *inputs, int n_path, char *const *path, struct gm_error *err);

/* Refuses an output (option names it; path may be NULL) that is one of the files read. */
int gm_inputs_spare(const char *option, const char *path, int n_path, char *const *input, struct gm_error *err);

/* "results of sim sweep or emulate" */
const char *gm_input_name(enum gm_input kind);

#endif
