#include "report/svg.h"

#include "report/escape.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static void end_tag(struct gm_svg *svg)
{
	if (svg->in_tag)
		fputc('>', svg->out);
	svg->in_tag = false;
}

void gm_svg_open(struct gm_svg *svg, const char *name)
{
	assert(svg->depth < GM_SVG_DEPTH);
	end_tag(svg);
	svg->open[svg->depth++] = name;
	fprintf(svg->out, "<%s", name);
	svg->in_tag = true;
}

void gm_svg_attribute(struct gm_svg *svg, const char *name, const char *value)
{
	assert(svg->in_tag);
	fprintf(svg->out, " %s=\"", name);
	gm_put_xml(svg->out, value);
	fputc('"', svg->out);
}

void gm_svg_put_number(FILE *out, double value)
{
	char text[400]; /* DBL_MAX has 309 digits */
	size_t n;

	if (!isfinite(value))
		value = 0;
	snprintf(text, sizeof(text), "%.2f", value);
	n = strlen(text);
	while (text[n - 1] == '0')
		n--;
	if (text[n - 1] == '.')
		n--;
	text[n] = '\0';
	fputs(strcmp(text, "-0") == 0 ? "0" : text, out);
}

void gm_svg_number(struct gm_svg *svg, const char *name, double value)
{
	assert(svg->in_tag);
	fprintf(svg->out, " %s=\"", name);
	gm_svg_put_number(svg->out, value);
	fputc('"', svg->out);
}

void gm_svg_content(struct gm_svg *svg, const char *text)
{
	end_tag(svg);
	gm_put_xml(svg->out, text);
}

/* A newline after shapes and groups; none inside a line of text. */
void gm_svg_close(struct gm_svg *svg)
{
	assert(svg->depth > 0);
	const char *name = svg->open[--svg->depth];

	if (svg->in_tag)
		fputs("/>", svg->out);
	else
		fprintf(svg->out, "</%s>", name);
	svg->in_tag = false;
	if (strcmp(name, "tspan") != 0)
		fputc('\n', svg->out);
}

static void open_with_class(struct gm_svg *svg, const char *name, const char *class)
{
	gm_svg_open(svg, name);
	if (class)
		gm_svg_attribute(svg, "class", class);
}

void gm_svg_line(struct gm_svg *svg, const char *class, double x1, double y1, double x2, double y2)
{
	open_with_class(svg, "line", class);
	gm_svg_number(svg, "x1", x1);
	gm_svg_number(svg, "y1", y1);
	gm_svg_number(svg, "x2", x2);
	gm_svg_number(svg, "y2", y2);
	gm_svg_close(svg);
}

void gm_svg_text(struct gm_svg *svg, const char *class, double x, double y, const char *text)
{
	open_with_class(svg, "text", class);
	gm_svg_number(svg, "x", x);
	gm_svg_number(svg, "y", y);
	gm_svg_content(svg, text);
	gm_svg_close(svg);
}

void gm_svg_open_rect(struct gm_svg *svg, const char *class, double x, double y, double width, double height)
{
	open_with_class(svg, "rect", class);
	gm_svg_number(svg, "x", x);
	gm_svg_number(svg, "y", y);
	gm_svg_number(svg, "width", width);
	gm_svg_number(svg, "height", height);
}
