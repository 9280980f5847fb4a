/* Figures through gnuplot: the data of a figure as blocks of tab-separated text, and a run of the scripts in report/plots/. */
#ifndef GM_REPORT_PLOT_H
#define GM_REPORT_PLOT_H

#include "report/figure.h"

enum gm_plot_format { GM_PLOT_SVG, GM_PLOT_PDF, GM_PLOT_PNG };

struct gm_plot {
	const struct gm_study *study;
	struct gm_figure *figure; /* its rows are put in order of their groups */
	enum gm_plot_format format;
	bool wide; /* for both columns of a page */
};

/* What the format is, by the end of the name; GM_ERR_USAGE for others. */
int gm_plot_format(const char *path, enum gm_plot_format *format, struct gm_error *err);

/* Writes data.tsv, settings.gp and the scripts into a folder, which is made if it is not there: what gnuplot, or a user, needs. */
int gm_plot_files(const struct gm_plot *plot, const char *folder, struct gm_error *err);

/* Draws the figure. Errors: GM_ERR_UNSUPPORTED where there is no gnuplot; what gnuplot says. */
int gm_plot_draw(const struct gm_plot *plot, const char *path, struct gm_error *err);

#endif
