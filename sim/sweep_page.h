/* The page of a sweep (`sim sweep --html`): the CSV files that it needs are made in a temporary folder where the user asked for none. */
#ifndef GM_SIM_SWEEP_PAGE_H
#define GM_SIM_SWEEP_PAGE_H

#include "sim/sweep_output.h"

struct gm_sweep_page {
	char folder[64];                     /* "" until it is made */
	char temporary[GM_N_SWEEP_FILE][96]; /* names in it of files that the user did not ask for */
	char stats[96];
};

/* Fills the names that the page needs and the user left out (points and layers) in path [GM_N_SWEEP_FILE]. GM_ERR_USAGE where a file the page
 * needs goes to standard output. */
int gm_sweep_page_begin(struct gm_sweep_page *page, const char *path[], struct gm_error *err);

/* After the files stand: statistics of the first trace, where it is a file, and the page under the name `out`. */
int gm_sweep_page_write(struct gm_sweep_page *page, const char *const path[], const char *trace, const char *out,
			struct gm_error *err);

/* Removes what is temporary. */
void gm_sweep_page_end(struct gm_sweep_page *page);

#endif
