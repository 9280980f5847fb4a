#include "report/chart.h"

#include "base/json_check.h"
#include "report/escape.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define N_MARK 8
#define LINE_HEIGHT 18.0
#define LEGEND_GAP 14.0
#define MARK_ROOM 18.0 /* of a legend's mark with the gap to its text */

void gm_chart_begin(struct gm_chart *chart, FILE *out, double width, double height, const char *label)
{
	char box[64];

	*chart = (struct gm_chart){.svg = {.out = out},
				   .width = width,
				   .height = height,
				   .left = 62,
				   .right = width - 20,
				   .top = 12,
				   .bottom = height - 44};
	snprintf(box, sizeof(box), "0 0 %.0f %.0f", width, height);
	gm_svg_open(&chart->svg, "svg");
	gm_svg_attribute(&chart->svg, "xmlns", "http://www.w3.org/2000/svg");
	gm_svg_attribute(&chart->svg, "viewBox", box);
	gm_svg_attribute(&chart->svg, "class", "chart");
	gm_svg_attribute(&chart->svg, "role", "img");
	gm_svg_attribute(&chart->svg, "aria-label", label);
	gm_svg_content(&chart->svg, "");
	fputc('\n', out);
}

double gm_chart_text_width(const char *text)
{
	return (double)gm_text_width(text) * GM_CHART_TEXT * 0.55;
}

char *gm_chart_fit(const char *text, double width, char *out, size_t size)
{
	const size_t room = width > 0 ? (size_t)(width / (GM_CHART_TEXT * 0.55)) : 0;
	size_t n = 0, bytes = 0, left = strlen(text);

	if (gm_text_width(text) <= room && left < size) {
		memcpy(out, text, left + 1);
		return out;
	}
	while (n + 1 < room && bytes < left) {
		size_t step = gm_utf8_length(text + bytes, left - bytes);

		step = step ? step : 1;
		if (bytes + step + 4 > size)
			break;
		bytes += step;
		n += step < 3 ? 1 : 2; /* wide ones among them: rather too early than too late */
	}
	memcpy(out, text, bytes);
	memcpy(out + bytes, "\xe2\x80\xa6", 4);
	return out;
}

/* --- marks --- */

/* Shapes of about equal area around 0, 0: circle, square, triangle, diamond, triangle down, cross, plus, ring. */
static const char *const shape[N_MARK] = {
	"m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
	"m-3.6-3.6h7.2v7.2h-7.2z",
	"m0-4.8l4.6 8h-9.2z",
	"m0-5l5 5l-5 5l-5-5z",
	"m0 4.8l4.6-8h-9.2z",
	"m-4.2-2.4l1.8-1.8l2.4 2.4l2.4-2.4l1.8 1.8l-2.4 2.4l2.4 2.4l-1.8 1.8l-2.4-2.4l-2.4 2.4l-1.8-1.8l2.4-2.4z",
	"m-1.3-4.6h2.6v3.3h3.3v2.6h-3.3v3.3h-2.6v-3.3h-3.3v-2.6h3.3z",
	"m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
};

/* Looks: dots of lines, below marks; then marks by kind and colour. */
#define LOOK_DOT(step) ((size_t)(step))
#define N_DOT 9
#define LOOK_MARK(kind, colour) (N_DOT + (size_t)(kind)*N_MARK + (colour))

static void look_class(size_t look, char *out, size_t size)
{
	static const char *const kinds[] = {"", " rest", " best"};

	if (look < N_DOT)
		snprintf(out, size, "dot d%zu", look);
	else
		snprintf(out, size, "m s%zu%s", (look - N_DOT) % N_MARK, kinds[(look - N_DOT) / N_MARK]);
}

static void put_look(FILE *out, size_t look, double x, double y)
{
	fputc('M', out);
	gm_svg_put_number(out, x);
	fputc(' ', out);
	gm_svg_put_number(out, y);
	fputs(look < N_DOT ? "m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0z" : shape[(look - N_DOT) % N_MARK], out);
}

static void add_mark(struct gm_chart *chart, size_t look, double x, double y, size_t index)
{
	if (!isfinite(x) || !isfinite(y))
		return;
	if ((chart->n_mark & (chart->n_mark - 1)) == 0) { /* grows at powers of two */
		struct gm_chart_mark *more =
			gm_realloc(chart->mark, chart->n_mark ? 2 * chart->n_mark : 1, sizeof(*more), NULL);

		chart->failed = chart->failed || !more;
		if (!more)
			return;
		chart->mark = more;
	}
	chart->mark[chart->n_mark++] =
		(struct gm_chart_mark){look, index, gm_scale_at(&chart->x, x), gm_scale_at(&chart->y, y)};
}

void gm_chart_mark(struct gm_chart *chart, size_t colour, enum gm_mark kind, double x, double y, size_t index)
{
	add_mark(chart, LOOK_MARK(kind, colour < N_MARK ? colour : N_MARK - 1), x, y, index);
}

void gm_chart_dot(struct gm_chart *chart, int step, double x, double y, size_t index)
{
	add_mark(chart, LOOK_DOT(step), x, y, index);
}

/* Marks of one look, in the order they came. */
static void put_marks(struct gm_chart *chart, size_t look)
{
	FILE *out = chart->svg.out;
	const char *between = "";
	char class[32];

	look_class(look, class, sizeof(class));
	gm_svg_open(&chart->svg, "path");
	gm_svg_attribute(&chart->svg, "class", class);
	fputs(" data-i=\"", out);
	for (size_t i = 0; i < chart->n_mark; i++)
		if (chart->mark[i].look == look) {
			fprintf(out, "%s%zu", between, chart->mark[i].index);
			between = " ";
		}
	fputs("\" d=\"", out);
	for (size_t i = 0; i < chart->n_mark; i++)
		if (chart->mark[i].look == look)
			put_look(out, look, chart->mark[i].x, chart->mark[i].y);
	fputc('"', out);
	gm_svg_close(&chart->svg);
}

int gm_chart_end(struct gm_chart *chart, struct gm_error *err)
{
	/* Plain marks lie above pale ones. */
	static const enum gm_mark order[] = {GM_MARK_REST, GM_MARK_PLAIN, GM_MARK_BEST};
	bool used[LOOK_MARK(GM_MARK_BEST, N_MARK)] = {false};
	bool failed = chart->failed;

	for (size_t i = 0; i < chart->n_mark; i++)
		used[chart->mark[i].look] = true;
	for (size_t step = 0; step < N_DOT; step++)
		if (used[LOOK_DOT(step)])
			put_marks(chart, LOOK_DOT(step));
	for (int k = 0; k < 3; k++)
		for (size_t colour = 0; colour < N_MARK; colour++)
			if (used[LOOK_MARK(order[k], colour)])
				put_marks(chart, LOOK_MARK(order[k], colour));
	free(chart->mark);
	chart->mark = NULL;
	chart->n_mark = 0;
	gm_svg_close(&chart->svg);
	return failed ? gm_fail(err, GM_ERR_MEMORY, "out of memory: marks of a chart") : GM_OK;
}

static void put_key(struct gm_chart *chart, size_t colour, double x, double y)
{
	const size_t look = LOOK_MARK(GM_MARK_PLAIN, colour < N_MARK ? colour : N_MARK - 1);
	char class[32];

	look_class(look, class, sizeof(class));
	gm_svg_open(&chart->svg, "path");
	gm_svg_attribute(&chart->svg, "class", class);
	fputs(" d=\"", chart->svg.out);
	put_look(chart->svg.out, look, x, y);
	fputc('"', chart->svg.out);
	gm_svg_close(&chart->svg);
}

void gm_chart_legend(struct gm_chart *chart, const struct gm_legend *entry, size_t n)
{
	double x = chart->left, y = chart->top + 6;
	char text[256];

	if (n == 0)
		return;
	for (size_t i = 0; i < n; i++) {
		gm_chart_fit(entry[i].name, chart->right - chart->left - MARK_ROOM, text, sizeof(text));
		double width = MARK_ROOM + gm_chart_text_width(text);

		if (x > chart->left && x + width > chart->right) {
			x = chart->left;
			y += LINE_HEIGHT;
		}
		put_key(chart, entry[i].colour, x + 6, y);
		gm_svg_text(&chart->svg, NULL, x + MARK_ROOM - 2, y + 4.5, text);
		x += width + LEGEND_GAP;
	}
	chart->top = y + 26;
}

void gm_chart_ramp(struct gm_chart *chart, const char *prefix, const char *low, const char *high)
{
	const double step = 14, y = chart->top;
	double x = chart->left;
	char class[32];

	gm_svg_text(&chart->svg, NULL, x, y + 10.5, low);
	x += gm_chart_text_width(low) + 8;
	for (int i = 0; i < 9; i++) {
		snprintf(class, sizeof(class), "fill %s%d", prefix, i);
		gm_svg_open_rect(&chart->svg, class, x + i * step, y, step, 12);
		gm_svg_close(&chart->svg);
	}
	gm_svg_text(&chart->svg, NULL, x + 9 * step + 8, y + 10.5, high);
	chart->top = y + 28;
}

/* --- axes --- */

static void put_ticks(struct gm_chart *chart, bool vertical, bool percent)
{
	const struct gm_scale *scale = vertical ? &chart->y : &chart->x;
	struct gm_svg *svg = &chart->svg;
	char text[GM_SCALE_TEXT + 8];

	for (int i = 0; i < gm_scale_n_tick(scale); i++) {
		double value = gm_scale_tick(scale, i), at = gm_scale_at(scale, value);

		gm_scale_text(scale, value, text);
		if (percent)
			strcat(text, "%");
		if (vertical) {
			gm_svg_line(svg, "grid", chart->left, at, chart->right, at);
			gm_svg_text(svg, "end", chart->left - 7, at + 4.5, text);
		} else {
			gm_svg_line(svg, "grid", at, chart->top, at, chart->bottom);
			gm_svg_text(svg, "mid", at, chart->bottom + 18, text);
		}
	}
}

void gm_chart_axes(struct gm_chart *chart, const char *x_label, const char *y_label, bool x_percent, bool y_percent)
{
	struct gm_svg *svg = &chart->svg;
	char turn[80];

	chart->x.from = chart->left;
	chart->x.to = chart->right;
	chart->y.from = chart->bottom;
	chart->y.to = chart->top;
	put_ticks(chart, false, x_percent);
	put_ticks(chart, true, y_percent);
	gm_svg_line(svg, "axis", chart->left, chart->bottom, chart->right, chart->bottom);
	gm_svg_text(svg, "mid label", (chart->left + chart->right) / 2, chart->bottom + 38, x_label);
	snprintf(turn, sizeof(turn), "translate(14 %.0f) rotate(-90)", (chart->top + chart->bottom) / 2);
	gm_svg_open(svg, "text");
	gm_svg_attribute(svg, "class", "mid label");
	gm_svg_attribute(svg, "transform", turn);
	gm_svg_content(svg, y_label);
	gm_svg_close(svg);
}

void gm_chart_line(struct gm_chart *chart, const char *class, const double *x, const double *y, size_t n, size_t first_row)
{
	FILE *out = chart->svg.out;
	bool pen_down = false;

	gm_svg_open(&chart->svg, "path");
	gm_svg_attribute(&chart->svg, "class", class);
	if (first_row != GM_CHART_NO_INDEX)
		fprintf(out, " data-rows=\"%zu %zu\"", first_row, first_row + n);
	fputs(" d=\"", out);
	for (size_t i = 0; i < n; i++) {
		if (!isfinite(x[i]) || !isfinite(y[i])) {
			pen_down = false;
			continue;
		}
		fputc(pen_down ? 'L' : 'M', out);
		gm_svg_put_number(out, gm_scale_at(&chart->x, x[i]));
		fputc(' ', out);
		gm_svg_put_number(out, gm_scale_at(&chart->y, y[i]));
		pen_down = true;
	}
	fputc('"', out);
	gm_svg_close(&chart->svg);
}

int gm_chart_step(double value, double low, double high)
{
	if (!(high > low) || isnan(value))
		return 0;
	int step = (int)floor((value - low) / (high - low) * 9);
	return step < 0 ? 0 : step > 8 ? 8 : step;
}
