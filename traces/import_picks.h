/* What the importers of top-k CSV files share: comment lines of key=value pairs, the line of column names, and rows of several
 * lines, one a selected expert. */
#ifndef GM_TRACES_IMPORT_PICKS_H
#define GM_TRACES_IMPORT_PICKS_H

#include "base/csv.h"
#include "base/progress.h"
#include "traces/import_store.h"

#define GM_MAX_COLUMN 16

struct gm_picks_column {
	const char *name;
	bool required;
	int index; /* out: field of the column, -1: absent */
};

struct gm_picks {
	struct gm_feed *input;
	const struct gm_import_options *options;
	struct gm_csv_reader csv;
	struct gm_progress progress;
	struct gm_picks_column column[GM_MAX_COLUMN]; /* wanted; ended by name NULL */
	size_t n_column;                              /* names in the line of column names, wanted or not */
	struct gm_model model;
	struct gm_store *store;

	/* the row being collected */
	bool open;
	struct gm_store_row row;
	uint32_t n_pick;
	uint16_t *expert; /* [top_k] by rank */
	double *weight;   /* [top_k] */
	uint8_t *given;   /* [top_k] */
};

/* Reads the comment lines: the first must begin with magic ("# topk_trace v1"), whose rest and every further line is handed to
 * `take` pair by pair (pair 0 of each line with *first true); then the line of column names, which fills picks->column. */
int gm_picks_header(struct gm_picks *picks, const char *magic,
		    int (*take)(void *context, bool first, const char *key, const char *value, const char *where,
				struct gm_error *err),
		    void *context, struct gm_error *err);

/* After picks->model is known: makes room and opens the store. */
int gm_picks_begin(struct gm_picks *picks, struct gm_error *err);

/* Next line of the table: 1, 0 at the end, or an error. */
int gm_picks_next(struct gm_picks *picks, struct gm_error *err);

/* Fields of the line by number of the column in picks->column. An absent column leaves *out as it was. */
int gm_picks_uint(struct gm_picks *picks, int column, uint64_t max, uint64_t *out, struct gm_error *err);
int gm_picks_number(struct gm_picks *picks, int column, double *out, struct gm_error *err); /* empty: as if absent */
const char *gm_picks_text(const struct gm_picks *picks, int column);                        /* NULL: absent */

/* Error at the line just read: "what: FILE: line N: right". */
int gm_picks_bad(const struct gm_picks *picks, const char *what, const char *right, struct gm_error *err);

/* One pick. The row before goes to the store when another begins; it must have had all its ranks. */
int gm_picks_add(struct gm_picks *picks, const struct gm_store_row *row, uint32_t rank, uint32_t expert, double weight,
		 struct gm_error *err);

/* The last row; notes on what the file lacked. Then the store can be written. */
int gm_picks_end(struct gm_picks *picks, struct gm_error *err);
void gm_picks_free(struct gm_picks *picks);

#endif
