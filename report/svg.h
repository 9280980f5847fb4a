/* A writer of SVG: elements with attributes, numbers short, text escaped. It knows how SVG is written and nothing of charts. Colours and
 * lines come from classes (report/page/chart.css). Write errors are found by the owner of the stream.
 */
#ifndef GM_REPORT_SVG_H
#define GM_REPORT_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define GM_SVG_DEPTH 16

struct gm_svg {
	FILE *out;
	const char *open[GM_SVG_DEPTH]; /* names of the elements that are open; they must outlive them */
	int depth;
	bool in_tag; /* attributes may still follow */
};

/* --- elements: open, attributes, content, close --- */
void gm_svg_open(struct gm_svg *svg, const char *name);
void gm_svg_attribute(struct gm_svg *svg, const char *name, const char *value);
void gm_svg_number(struct gm_svg *svg, const char *name, double value);
void gm_svg_content(struct gm_svg *svg, const char *text);
void gm_svg_close(struct gm_svg *svg); /* "/>" where nothing was inside */

/* A number with at most two decimals and no needless zeros: "12.5", "0", never "-0". Not finite: 0. */
void gm_svg_put_number(FILE *out, double value);

/* --- whole shapes; class may be NULL --- */
void gm_svg_line(struct gm_svg *svg, const char *class, double x1, double y1, double x2, double y2);
void gm_svg_text(struct gm_svg *svg, const char *class, double x, double y, const char *text);

/* Opens a rectangle; the caller may add attributes and closes it. */
void gm_svg_open_rect(struct gm_svg *svg, const char *class, double x, double y, double width, double height);

#endif
