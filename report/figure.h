/* Figures: each is drawn as SVG, panel by panel, and carries the data it was drawn from. The page shows both; `report plot` gives the data to
 * gnuplot. One file a figure (figure_*.c), one table that lists them.
 */
#ifndef GM_REPORT_FIGURE_H
#define GM_REPORT_FIGURE_H

#include "report/chart.h"
#include "report/results.h"

#define GM_MAX_PANELS 6 /* traces, or traces and hardware, that get a panel of their own */
#define GM_FIGURE_TEXT 600

struct gm_study {
	struct gm_inputs inputs;
	struct gm_results results;
};

int gm_study_read(struct gm_study *study, int n_path, char *const *path, struct gm_error *err);
void gm_study_free(struct gm_study *study);

struct gm_panel {
	char *title; /* may be "" */
	char *svg;
};

struct gm_figure {
	const struct gm_figure_kind *kind;
	char note[GM_FIGURE_TEXT]; /* what is shown and what is left out, a sentence or two */
	struct gm_panel *panel;
	size_t n_panel;
	struct gm_sheet data;
	size_t *result; /* [n_result] the row of the results behind each row of data, or GM_NO_POINT; for filters */
	size_t n_result;
	size_t group; /* column of data by which a plot tells series apart; equal values stand together */
	FILE *stream; /* private: of the panel being drawn */
	size_t stream_size;
};

struct gm_figure_kind {
	const char *id;    /* "tradeoff": stands in the page */
	const char *plot;  /* name for `report plot --figure`, or NULL */
	const char *title; /* "Time against substituted mass" */
	const char *needs; /* what is missing where it has no panel: "a --per-layer file" */
	int (*build)(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err);
};

extern const struct gm_figure_kind gm_figure_kinds[]; /* ended by id NULL, in the order of the page */

/* Builds a figure; one that has nothing to show has no panel. Free it also after a failure. */
int gm_figure_make(struct gm_figure *figure, const struct gm_figure_kind *kind, const struct gm_study *study,
		   struct gm_error *err);
void gm_figure_free(struct gm_figure *figure);

/* --- for the figures' files --- */
int gm_figure_columns(struct gm_figure *figure, const char *const *name, struct gm_error *err); /* [..., NULL] */

/* Begins a row of data that stands for a row of the results, or GM_NO_POINT. Returns its index in *index. */
int gm_figure_row(struct gm_figure *figure, size_t result, size_t *index, struct gm_error *err);

/* Begins a panel and its chart, and ends both. */
int gm_figure_begin(struct gm_figure *figure, struct gm_chart *chart, const char *title, double height, const char *label,
		    struct gm_error *err);
int gm_figure_end(struct gm_figure *figure, struct gm_chart *chart, struct gm_error *err);

/* Adds a sentence to the note. */
void gm_figure_note(struct gm_figure *figure, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Colours of chosen points [n]: those of the results where they differ, else one each. n <= GM_MAX_COLOURS. */
void gm_figure_colours(const struct gm_results *results, const size_t *chosen, size_t n, struct gm_legend *legend);

/* Entries for the colours of the results that are used [n_colour]; legend has room for GM_MAX_COLOURS + 1. Returns how many. */
size_t gm_figure_legend(const struct gm_results *results, const bool *used, struct gm_legend *legend);

/* "policy" or "policy, 25 %": a point among chosen ones, cache as in gm_results_choose. Returns out. */
char *gm_figure_point_name(const struct gm_results *results, size_t point, size_t cache, char *out, size_t size);

int gm_figure_tradeoff(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err);
int gm_figure_curve(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err);
int gm_figure_time(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err);
int gm_figure_layers(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err);
int gm_figure_switch(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err);
int gm_figure_perplexity(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err);
int gm_figure_popularity(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err);
int gm_figure_reuse(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err);
int gm_figure_ranks(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err);
int gm_figure_overlap(struct gm_figure *figure, const struct gm_study *study, struct gm_error *err);

#endif
