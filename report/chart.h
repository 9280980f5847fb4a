/* What all charts share: the paper, axes with grid and labels, a legend, marks that can be told apart without colour.
 *
 * A chart is drawn for a column of a page or a phone: 480 units wide, text of 13 units. What stands for a row of the figure's data carries
 * its index in data-i: hover, filter and keyboard work by it. Marks of one look are one path, which carries all their indexes: of ten
 * thousand elements a browser would grow slow.
 */
#ifndef GM_REPORT_CHART_H
#define GM_REPORT_CHART_H

#include "base/error.h"
#include "report/scale.h"
#include "report/svg.h"

#define GM_CHART_WIDTH 480.0
#define GM_CHART_HEIGHT 330.0
#define GM_CHART_TEXT 13.0 /* size of text, as in chart.css */

struct gm_chart_mark {
	size_t look, index; /* look: what marks of one path share, private */
	double x, y;        /* on the paper */
};

struct gm_chart {
	struct gm_svg svg;
	struct gm_chart_mark *mark; /* [n_mark] those not yet drawn */
	size_t n_mark;
	bool failed; /* out of memory */
	double width, height;
	double left, right, top, bottom; /* of the plot within its axes */
	struct gm_scale x, y;
};

/* Begins a chart on `out`. label: what a screen reader says of it. */
void gm_chart_begin(struct gm_chart *chart, FILE *out, double width, double height, const char *label);

/* A legend at the top, of entries [n] with the mark of their colour. Moves chart->top below it. */
struct gm_legend {
	const char *name;
	size_t colour;
};
void gm_chart_legend(struct gm_chart *chart, const struct gm_legend *entry, size_t n);

/* A legend for a ramp of nine colours (classes prefix0 ... prefix8) from low to high. Moves chart->top below it. */
void gm_chart_ramp(struct gm_chart *chart, const char *prefix, const char *low, const char *high);

/* Grid, ticks and labels for chart->x and chart->y, whose places are set here. percent: ticks get a % sign. */
void gm_chart_axes(struct gm_chart *chart, const char *x_label, const char *y_label, bool x_percent, bool y_percent);

/* A mark at a value, drawn at the end of the chart. index GM_CHART_NO_INDEX: it stands for no row. */
#define GM_CHART_NO_INDEX SIZE_MAX
enum gm_mark { GM_MARK_PLAIN, GM_MARK_REST, GM_MARK_BEST }; /* rest: paler, below the others */
void gm_chart_mark(struct gm_chart *chart, size_t colour, enum gm_mark kind, double x, double y, size_t index);

/* A line through values [n]. class: "line s3". first_row: the row of data of its first mark, the others follow; or GM_CHART_NO_INDEX. */
void gm_chart_line(struct gm_chart *chart, const char *class, const double *x, const double *y, size_t n, size_t first_row);

/* A small dot of a line, that stands for a row, in a colour of the ramp of depths (class d0 ... d8). */
void gm_chart_dot(struct gm_chart *chart, int step, double x, double y, size_t index);

/* Draws the marks and ends the chart; GM_ERR_MEMORY where some were lost. Must be called also after a failure. */
int gm_chart_end(struct gm_chart *chart, struct gm_error *err);

/* How wide text will be, about: fonts differ. */
double gm_chart_text_width(const char *text);

/* As many whole characters of text as fit width, with an ellipsis where some are cut off. Returns out. */
char *gm_chart_fit(const char *text, double width, char *out, size_t size);

/* Steps of a ramp of nine, 0..8, for a value within low..high. */
int gm_chart_step(double value, double low, double high);

#endif
