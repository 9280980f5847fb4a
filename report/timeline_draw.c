/* The picture: the time of a token broken into lines, like text; under each other the lanes. */
#include "report/chart.h"
#include "report/embedded.h"
#include "report/timeline.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define WIDTH 1100.0
#define LEFT 52.0
#define RIGHT 14.0
#define LANE 24.0        /* with the gap */
#define BAND 20.0        /* above the lanes: numbers of layers */
#define TICKS 22.0       /* below them: times */
#define LAYER_ROOM 230.0 /* that a layer should get; a line holds as many as fit */
#define MAX_LINES 16
#define LEGEND_TOP 60.0
#define LEAST 0.25 /* narrower spans would not be seen */

static const struct {
	const char *class, *name;
} kinds[GM_N_SPAN_KIND] = {
	{"fill t0", "dense part"},        {"fill t1", "expert that was there"}, {"fill t1 waited", "expert after its copy"},
	{"fill t5", "once a token"},      {"fill t2", "copy waited for"},       {"fill s5", "copy in the background"},
	{"fill t4", "expert on the CPU"}, {"fill t3", "read from disk"},
};
static const char *const lane_names[GM_N_PICTURE_LANE] = {"GPU", "link", "CPU", "disk"};

struct picture {
	const struct gm_timeline_file *file;
	struct gm_chart chart;
	double from, to; /* µs: of the token */
	double line_us;  /* that a line holds */
	size_t n_line, n_layer;
	bool has_kind[GM_N_SPAN_KIND];
	double lane_top[GM_N_PICTURE_LANE]; /* within a line; < 0: not used */
	double busy[GM_N_PICTURE_LANE];     /* µs */
	double line_height, top;
};

static bool overlaps(const struct picture *p, const struct gm_timeline_span *span)
{
	return span->end > p->from && span->start < p->to;
}

static void look(struct picture *p)
{
	bool used[GM_N_PICTURE_LANE] = {true, true, false, false};
	double top = BAND;

	for (size_t i = 0; i < p->file->n; i++) {
		const struct gm_timeline_span *span = &p->file->span[i];

		if (!overlaps(p, span))
			continue;
		p->has_kind[span->kind] = true;
		used[span->lane] = true;
		p->busy[span->lane] += fmin(span->end, p->to) - fmax(span->start, p->from);
		p->n_layer += span->kind == GM_SPAN_DENSE;
	}
	for (int lane = 0; lane < GM_N_PICTURE_LANE; lane++) {
		p->lane_top[lane] = used[lane] ? top : -1;
		top += used[lane] ? LANE : 0;
	}
	p->line_height = top + TICKS + 12;
	p->n_line = (size_t)ceil((double)(p->n_layer ? p->n_layer : 1) * LAYER_ROOM / (WIDTH - LEFT - RIGHT));
	p->n_line = p->n_line < 1 ? 1 : p->n_line > MAX_LINES ? MAX_LINES : p->n_line;
	p->line_us = (p->to - p->from) / (double)p->n_line;
}

static double x_of(const struct picture *p, size_t line, double us)
{
	return LEFT + (us - p->from - (double)line * p->line_us) / p->line_us * (WIDTH - LEFT - RIGHT);
}

static double line_top(const struct picture *p, size_t line)
{
	return p->top + (double)line * p->line_height;
}

/* What hovering over a span shows. */
static void put_title(struct picture *p, const struct gm_timeline_span *span)
{
	char text[200], start[GM_SCALE_TEXT], length[GM_SCALE_TEXT];
	int n = snprintf(text, sizeof(text), "%s", kinds[span->kind].name);

	if (span->layer >= 0)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ", layer %" PRId64, span->layer);
	if (span->expert >= 0)
		n += snprintf(text + n, sizeof(text) - (size_t)n, ", expert %" PRId64, span->expert);
	snprintf(text + n, sizeof(text) - (size_t)n, ": from %s \xc2\xb5s, %s \xc2\xb5s long",
		 gm_short_number(span->start - p->from, 4, start), gm_short_number(span->end - span->start, 4, length));
	gm_svg_open(&p->chart.svg, "title");
	gm_svg_content(&p->chart.svg, text);
	gm_svg_close(&p->chart.svg);
}

/* One span, in as many pieces as lines it touches. */
static void put_span(struct picture *p, const struct gm_timeline_span *span)
{
	char number[24];

	for (size_t line = 0; line < p->n_line; line++) {
		const double begin = p->from + (double)line * p->line_us, end = begin + p->line_us;

		if (span->end <= begin || span->start >= end)
			continue;
		const double x = x_of(p, line, fmax(span->start, begin)), to = x_of(p, line, fmin(span->end, end));
		const double y = line_top(p, line) + p->lane_top[span->lane], width = fmax(to - x, LEAST);

		gm_svg_open_rect(&p->chart.svg, kinds[span->kind].class, x, y, width > 3 ? width - 0.6 : width, LANE - 4);
		put_title(p, span);
		gm_svg_close(&p->chart.svg);
		snprintf(number, sizeof(number), "%" PRId64, span->expert);
		if (span->expert >= 0 && width > gm_chart_text_width(number) + 3)
			gm_svg_text(&p->chart.svg, span->lane == GM_PICTURE_LINK ? "mid in dark" : "mid in", x + width / 2,
				    y + 14.5, number);
	}
}

/* Stripes behind the lanes tell the layers apart. */
static void put_layers(struct picture *p)
{
	const struct gm_timeline_file *file = p->file;
	char number[32];

	for (size_t i = 0, count = 0; i < file->n; i++) {
		double start = file->span[i].start, end = p->to;

		if (file->span[i].kind != GM_SPAN_DENSE || !overlaps(p, &file->span[i]))
			continue;
		for (size_t k = i + 1; k < file->n; k++)
			if (file->span[k].kind == GM_SPAN_DENSE || file->span[k].kind == GM_SPAN_TOKEN) {
				end = fmin(end, file->span[k].start);
				break;
			}
		for (size_t line = 0; line < p->n_line; line++) {
			const double begin = p->from + (double)line * p->line_us;
			const double x = x_of(p, line, fmax(start, begin)),
				     to = x_of(p, line, fmin(end, begin + p->line_us));

			if (to <= x)
				continue;
			if (count % 2 == 0) {
				gm_svg_open_rect(&p->chart.svg, "band", x, line_top(p, line), to - x,
						 p->line_height - TICKS - 10);
				gm_svg_close(&p->chart.svg);
			}
			snprintf(number, sizeof(number), to - x > 60 ? "layer %" PRId64 : "%" PRId64, file->span[i].layer);
			if (to - x > 20 && start >= begin)
				gm_svg_text(&p->chart.svg, "small", x + 4, line_top(p, line) + 14, number);
		}
		count++;
	}
}

static void put_line(struct picture *p, size_t line)
{
	const double begin = (double)line * p->line_us, bottom = line_top(p, line) + p->line_height - TICKS - 10;
	struct gm_scale scale = gm_scale_nice(begin, begin + p->line_us, 8);
	char text[GM_SCALE_TEXT];

	for (int lane = 0; lane < GM_N_PICTURE_LANE; lane++)
		if (p->lane_top[lane] >= 0)
			gm_svg_text(&p->chart.svg, "end label", LEFT - 8, line_top(p, line) + p->lane_top[lane] + 14.5,
				    lane_names[lane]);
	gm_svg_line(&p->chart.svg, "axis", LEFT, bottom, WIDTH - RIGHT, bottom);
	for (int i = 0; i < gm_scale_n_tick(&scale); i++) {
		const double at = gm_scale_tick(&scale, i), x = x_of(p, line, p->from + at);

		if (at < begin - scale.step * 1e-6 || at > begin + p->line_us * (1 + 1e-9))
			continue;
		gm_svg_line(&p->chart.svg, "axis", x, bottom, x, bottom + 4);
		gm_svg_text(&p->chart.svg, "mid small", x, bottom + 16, gm_scale_text(&scale, at, text));
	}
}

/* The legend, or (draw false) only the place below it. */
static double put_legend(struct picture *p, bool draw)
{
	double x = LEFT, y = LEGEND_TOP;

	for (int k = 0; k < GM_N_SPAN_KIND; k++) {
		const double width = 19 + gm_chart_text_width(kinds[k].name) + 16;

		if (!p->has_kind[k])
			continue;
		if (x > LEFT && x + width > WIDTH) {
			x = LEFT;
			y += 20;
		}
		if (draw) {
			gm_svg_open_rect(&p->chart.svg, kinds[k].class, x, y, 13, 13);
			gm_svg_close(&p->chart.svg);
			gm_svg_text(&p->chart.svg, NULL, x + 19, y + 11, kinds[k].name);
		}
		x += width;
	}
	return y + 32;
}

static void put_head(struct picture *p, size_t token, const char *title)
{
	char text[400], time[GM_SCALE_TEXT], fit[400];
	const double whole = p->to - p->from;

	snprintf(text, sizeof(text), "%s%stoken %zu: %s \xc2\xb5s", title, *title ? ", " : "", token,
		 gm_short_number(whole, 4, time));
	gm_svg_text(&p->chart.svg, "big", LEFT, 26, gm_chart_fit(text, (WIDTH - LEFT - RIGHT) / 1.3, fit, sizeof(fit)));
	snprintf(text, sizeof(text), "busy: GPU %.0f %%, link %.0f %%", 100 * p->busy[GM_PICTURE_GPU] / whole,
		 100 * p->busy[GM_PICTURE_LINK] / whole);
	for (int lane = GM_PICTURE_CPU; lane < GM_N_PICTURE_LANE; lane++)
		if (p->lane_top[lane] >= 0)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), ", %s %.0f %%", lane_names[lane],
				 100 * p->busy[lane] / whole);
	strcat(text, ". Time runs on from line to line, in \xc2\xb5s.");
	gm_svg_text(&p->chart.svg, "label", LEFT, 47, text);
	put_legend(p, true);
}

int gm_timeline_draw(const struct gm_timeline_file *file, size_t token, const char *title, FILE *out, struct gm_error *err)
{
	struct picture p = {.file = file};

	if (token >= file->n_token)
		return gm_fail(err, GM_ERR_USAGE, "no such token: --token %zu: the file has %zu, from 0", token,
			       file->n_token);
	p.from = file->token[token];
	p.to = file->token[token + 1];
	if (!(p.to > p.from))
		return gm_fail(err, GM_ERR_FORMAT,
			       "a token without time: token %zu: a hardware profile with times is needed", token);
	look(&p);
	p.top = put_legend(&p, false);
	gm_chart_begin(&p.chart, out, WIDTH, p.top + (double)p.n_line * p.line_height,
		       "Timeline of one token: GPU, link, CPU and disk");
	gm_svg_open(&p.chart.svg, "style");
	gm_svg_content(&p.chart.svg, "");
	fputs(gm_embedded("chart.css"), out); /* as it is: it has nothing to escape */
	gm_svg_close(&p.chart.svg);
	put_head(&p, token, title ? title : file->title ? file->title : "");
	put_layers(&p);
	for (size_t line = 0; line < p.n_line; line++)
		put_line(&p, line);
	for (size_t i = 0; i < file->n; i++)
		if (overlaps(&p, &file->span[i]))
			put_span(&p, &file->span[i]);
	return gm_chart_end(&p.chart, err);
}
