/* What can be said of an emulation, and how surely: the tables of `report stats`. A table is made in full, shown in part, and kept for the
 * CSV file, which holds them all. One file a question (stats_*.c); methods: docs/reports.md. */
#ifndef GM_REPORT_STATS_H
#define GM_REPORT_STATS_H

#include "report/bootstrap.h"
#include "report/figure.h"
#include "report/scores.h"

struct gm_report_stats {
	const struct gm_study *study;
	struct gm_bootstrap bootstrap;
	const struct gm_scores *scores; /* NULL: there is no --per-sequence file */
	FILE *out;                      /* for people */
	struct gm_sheet all;            /* all rows of all tables */
	size_t n_table;
	size_t n_text; /* that intervals are drawn from; 0: none */
};

/* Checks the files one by one before the tables are made: values that cannot be, and rows about the same thing that say different things;
 * those that say the same are left once. Errors name file, line and column. */
int gm_report_stats_prepare(struct gm_study *study, struct gm_error *err);

/* Makes every table that the files allow. Errors: files that do not belong together, and nothing that could be said. */
int gm_report_stats_make(struct gm_report_stats *stats, struct gm_error *err);
void gm_report_stats_free(struct gm_report_stats *stats);

/* --- for the tables' files --- */

struct gm_report_stats_table {
	const char *name; /* in the column "table" */
	struct gm_sheet sheet;
};

/* Begins a table with the columns table, policy, cache, settings_hash and then `column` [..., NULL]. "NAME±" stands for three: NAME,
 * NAME_low and NAME_high. */
int gm_report_stats_begin(struct gm_report_stats_table *table, const char *name, const char *const *column,
			  struct gm_error *err);

/* Begins a row about a result, or about none (GM_NO_POINT). */
int gm_report_stats_row(struct gm_report_stats_table *table, const struct gm_results *results, size_t point,
			struct gm_error *err);

/* The two cells that name another result: against, against_hash. */
int gm_report_stats_put_against(struct gm_report_stats_table *table, const struct gm_results *results, size_t point,
				struct gm_error *err);
int gm_report_stats_put_estimate(struct gm_report_stats_table *table, const struct gm_estimate *estimate,
				 struct gm_error *err);

/* Shows columns of a table [..., NULL] under a title, keeps its rows and frees it; one without rows is not shown. Frees it also on failure. */
int gm_report_stats_end(struct gm_report_stats *stats, struct gm_report_stats_table *table, const char *title,
			const char *const *shown, struct gm_error *err);

/* A cell of a result's row. */
const char *gm_report_stats_cell(const struct gm_report_stats *stats, size_t point, const char *column);

/* Do two results differ in no setting but one (miss, admit, ...)? */
bool gm_report_stats_same_but(const struct gm_report_stats *stats, size_t a, size_t b, const char *column);

/* The same cache: slots, share of the experts and scope, whatever they are shown as. */
bool gm_report_stats_same_cache(const struct gm_report_stats *stats, size_t a, size_t b);

/* A column that every file of a sheet must have; kind: what to give instead ("--per-token file of emulate"). */
int gm_report_stats_need(const struct gm_sheet *sheet, const char *column, const char *kind, struct gm_error *err);

/* Do tokens and the sum of their negative log-likelihood, from a file, add up to what the result says? */
int gm_report_stats_check_sum(const struct gm_report_stats *stats, size_t point, double n, double nll, const char *file,
			      struct gm_error *err);

/* Perplexity of one policy against another's, in percent. */
int gm_report_stats_compare(const struct gm_report_stats *stats, size_t policy, size_t other, struct gm_estimate *change,
			    struct gm_error *err);

int gm_report_stats_change(struct gm_report_stats *stats, struct gm_error *err);    /* stats_change.c */
int gm_report_stats_mass(struct gm_report_stats *stats, struct gm_error *err);      /* stats_mass.c */
int gm_report_stats_compose(struct gm_report_stats *stats, struct gm_error *err);   /* stats_compose.c */
int gm_report_stats_switch(struct gm_report_stats *stats, struct gm_error *err);    /* stats_switch.c */
int gm_report_stats_open_loop(struct gm_report_stats *stats, struct gm_error *err); /* stats_open_loop.c */

#endif
