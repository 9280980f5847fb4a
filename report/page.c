#include "report/page.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/version.h"
#include "report/columns.h"
#include "report/embedded.h"
#include "report/escape.h"
#include "report/page_data.h"
#include "report/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LISTED 8 /* distinct values that are named under "What was run" */
#define MAX_KINDS 16 /* of figures */

struct page {
	FILE *out;
	const struct gm_study *study;
	struct gm_sheet summary;
	struct gm_figure figure[MAX_KINDS];
	size_t n_figure; /* those that have something to show */
};

/* --- data, for the scripts --- */

static void put_script_data(struct page *page)
{
	FILE *out = page->out;

	fputs("<script type=\"application/json\" id=\"data\">{\"results\":", out);
	gm_page_put_data(out, &page->summary, NULL);
	fputs(",\"figures\":{", out);
	for (size_t i = 0; i < page->n_figure; i++) {
		fprintf(out, "%s\n\"%s\":", i > 0 ? "," : "", page->figure[i].kind->id);
		gm_page_put_data(out, &page->figure[i].data, &page->figure[i]);
	}
	fputs("}}</script>\n", out);
}

/* --- what was run --- */

/* A line of the list: the distinct values of a column, the first few of many. */
static void put_fact(FILE *out, const struct gm_sheet *sheet, const char *column, const char *title)
{
	const size_t c = gm_sheet_find(sheet, column);
	size_t shown[MAX_LISTED], n = 0, more = 0;

	if (c == GM_NO_COLUMN)
		return;
	for (size_t row = 0; row < sheet->n_row; row++) {
		bool known = *gm_sheet_text(sheet, row, c) == '\0' ||
			     (row > 0 && strcmp(gm_sheet_text(sheet, row, c), gm_sheet_text(sheet, row - 1, c)) == 0);

		for (size_t k = 0; k < n && !known; k++)
			known = strcmp(gm_sheet_text(sheet, shown[k], c), gm_sheet_text(sheet, row, c)) == 0;
		if (!known && n < MAX_LISTED)
			shown[n++] = row;
		else if (!known)
			more++;
	}
	if (n == 0)
		return;
	fprintf(out, "<dt>%s</dt><dd>", title);
	for (size_t k = 0; k < n; k++) {
		fputs(k > 0 ? ", " : "", out);
		gm_put_xml(out, gm_sheet_text(sheet, shown[k], c));
	}
	fputs(more > 0 ? " and others</dd>\n" : "</dd>\n", out);
}

/* One name for all settings together: the hash of the rows' hashes. */
static void put_settings(FILE *out, const struct gm_sheet *sheet)
{
	const size_t c = gm_sheet_find(sheet, "settings_hash");
	struct gm_hash_state *state = gm_hash_new(NULL);
	char text[GM_HASH_TEXT];

	for (size_t row = 0; state && row < sheet->n_row; row++) {
		const char *hash = gm_sheet_text(sheet, row, c);
		gm_hash_add(state, hash, strlen(hash) + 1);
	}
	if (state)
		fprintf(out, "<dt>Hash of all settings</dt><dd class=\"mono\">%s</dd>\n",
			gm_hash_format(gm_hash_value(state), text));
	gm_hash_free(state);
}

static void put_shape(FILE *out, const struct gm_sheet *sheet)
{
	const size_t layer = gm_sheet_find(sheet, "n_layer"), expert = gm_sheet_find(sheet, "n_expert"),
		     used = gm_sheet_find(sheet, "n_expert_used");

	if (layer == GM_NO_COLUMN || expert == GM_NO_COLUMN || used == GM_NO_COLUMN ||
	    !gm_summary_is_constant(sheet, layer) || !gm_summary_is_constant(sheet, expert))
		return;
	fputs("<dt>Shape</dt><dd>", out);
	gm_put_xml(out, gm_sheet_text(sheet, 0, layer));
	fputs(" layers of ", out);
	gm_put_xml(out, gm_sheet_text(sheet, 0, expert));
	fputs(" experts, ", out);
	gm_put_xml(out, gm_sheet_text(sheet, 0, used));
	fputs(" used</dd>\n", out);
}

/* A page is sent around: folders of the machine that made it tell nobody anything. */
static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static void put_files(FILE *out, const struct gm_inputs *inputs)
{
	fputs("<dt>Files</dt><dd>", out);
	for (int i = 0, n = 0; i < GM_N_INPUT; i++)
		for (size_t f = 0; f < inputs->sheet[i].n_file; f++) {
			fputs(n++ > 0 ? "<br>" : "", out);
			gm_put_xml(out, base_name(inputs->sheet[i].file[f].name));
			fprintf(out, " (%s)", gm_input_name((enum gm_input)i));
		}
	fputs("</dd>\n", out);
}

static void put_run(struct page *page)
{
	const struct gm_results *r = &page->study->results;
	const struct gm_sheet *facts = r->n_point > 0 ? r->sheet : &page->study->inputs.sheet[GM_INPUT_STATS];
	FILE *out = page->out;

	fputs("<section aria-labelledby=\"h-run\"><h2 id=\"h-run\">What was run</h2>\n<dl class=\"run card\">\n", out);
	put_fact(out, facts, "model", "Model");
	if (r->n_point > 0)
		put_shape(out, facts);
	put_fact(out, facts, "trace", "Trace");
	put_fact(out, facts, "trace_hash", "Hash of the trace");
	put_fact(out, facts, "tokens", "Tokens counted");
	put_fact(out, facts, "hw", "Hardware profile");
	if (r->n_point > 0) {
		fprintf(out, "<dt>Results</dt><dd>%zu", r->n_point);
		if (r->n_failed > 0)
			fprintf(out, ", of them <span class=\"bad\">%zu could not be replayed</span> (column error)",
				r->n_failed);
		fputs("</dd>\n", out);
		put_settings(out, facts);
	}
	put_fact(out, facts, "semantics_version", "Replay rules, version");
	put_fact(out, facts, "version", "Made by gatemass");
	put_files(out, &page->study->inputs);
	fputs("</dl></section>\n", out);
}

/* --- figures --- */

static void put_figure(FILE *out, const struct gm_figure *f)
{
	const char *id = f->kind->id;

	fprintf(out, "<figure class=\"card%s\" id=\"%s\" aria-labelledby=\"h-%s\">\n<figcaption><h3 id=\"h-%s\">%s</h3>",
		f->n_panel > 1 ? " wide" : "", id, id, id, f->kind->title);
	if (*f->note) {
		fputs("<p>", out);
		gm_put_xml(out, f->note);
		fputs("</p>", out);
	}
	fputs("</figcaption>\n<div class=\"panels\">\n", out);
	for (size_t i = 0; i < f->n_panel; i++) {
		fputs("<div>", out);
		if (*f->panel[i].title) {
			fputs("<h4>", out);
			gm_put_xml(out, f->panel[i].title);
			fputs("</h4>", out);
		}
		fprintf(out, "\n%s</div>\n", f->panel[i].svg);
	}
	fprintf(out,
		"</div>\n<div class=\"tools\"></div>\n<details><summary>Data of this figure, %zu "
		"row%s</summary></details>\n"
		"</figure>\n",
		f->data.n_row, f->data.n_row == 1 ? "" : "s");
}

static int make_figures(struct page *page, struct gm_error *err)
{
	for (const struct gm_figure_kind *kind = gm_figure_kinds; kind->id && page->n_figure < MAX_KINDS; kind++) {
		struct gm_figure *figure = &page->figure[page->n_figure];
		int status = gm_figure_make(figure, kind, page->study, err);

		if (status < 0 || figure->n_panel == 0)
			gm_figure_free(figure);
		else
			page->n_figure++;
		GM_TRY(status);
	}
	return GM_OK;
}

/* --- the whole --- */

static void put_title(FILE *out, const struct gm_study *study, const char *title)
{
	const struct gm_sheet *sheet =
		study->results.n_point > 0 ? study->results.sheet : &study->inputs.sheet[GM_INPUT_STATS];
	const size_t model = gm_sheet_find(sheet, "model"), trace = gm_sheet_find(sheet, "trace");
	const char *name = sheet->n_row > 0 ? gm_sheet_text(sheet, 0, model) : "";

	if (title) {
		gm_put_xml(out, title);
		return;
	}
	if (*name == '\0' && sheet->n_row > 0)
		name = gm_sheet_text(sheet, 0, trace);
	gm_put_xml(out, name);
	if (model != GM_NO_COLUMN && !gm_summary_is_constant(sheet, model))
		fputs(" and others", out);
	fputs(*name ? ": experts in a cache" : "Experts in a cache", out);
}

static void put_head(struct page *page, const char *title)
{
	FILE *out = page->out;

	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	      "<meta name=\"color-scheme\" content=\"light dark\">\n"
	      /* Nothing is loaded from anywhere, whatever stands in the data. */
	      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
	      "script-src 'unsafe-inline'; img-src data:\">\n"
	      "<meta name=\"generator\" content=\"gatemass " GM_VERSION "\">\n<link rel=\"icon\" href=\"data:,\">\n<title>",
	      out);
	put_title(out, page->study, title);
	fprintf(out, "</title>\n<style>\n%s</style>\n<style id=\"chart-style\">\n%s</style>\n</head>\n<body>\n",
		gm_embedded("page.css"), gm_embedded("chart.css"));
	fputs("<a class=\"skip\" href=\"#main\">Skip to the results</a>\n<header><div><h1>", out);
	put_title(out, page->study, title);
	fputs("</h1>\n<p>Router traces replayed under expert-cache policies</p></div>\n"
	      "<button type=\"button\" id=\"theme\" hidden>Dark</button></header>\n<main id=\"main\">\n"
	      "<noscript><p class=\"card\">Figures show without JavaScript; tables, filters and downloads need "
	      "it.</p></noscript>\n",
	      out);
}

static void put_page(struct page *page, const char *title)
{
	static const char *const scripts[] = {"data.js", "table.js", "figure.js", "page.js"};
	FILE *out = page->out;

	put_head(page, title);
	put_run(page);
	if (page->study->results.n_point > 0)
		fputs("<section aria-labelledby=\"h-summary\"><h2 id=\"h-summary\">Results</h2>\n<div class=\"card\" "
		      "id=\"summary\">"
		      "</div></section>\n",
		      out);
	fputs("<section aria-labelledby=\"h-figures\"><h2 id=\"h-figures\">Figures</h2>\n<div class=\"figures\">\n", out);
	for (size_t i = 0; i < page->n_figure; i++)
		put_figure(out, &page->figure[i]);
	fputs("</div></section>\n</main>\n<footer>Made by gatemass " GM_VERSION
	      ". Hover over a mark, or focus a figure and use the arrow keys, to read its values. Times are "
	      "simulated.</footer>\n",
	      out);
	put_script_data(page);
	fputs("<script>\n", out);
	for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++)
		fputs(gm_embedded(scripts[i]), out);
	fputs("</script>\n</body>\n</html>\n", out);
}

static int write_page(struct page *page, const char *path, const char *title, struct gm_error *err)
{
	struct gm_output output;

	GM_TRY(gm_output_open(&output, path, err));
	page->out = output.stream;
	put_page(page, title);
	return gm_output_commit(&output, err);
}

int gm_report_page(int n_path, char *const *path, const char *out, const char *title, struct gm_error *err)
{
	struct gm_study study;
	struct page page = {.study = &study};
	int status;

	GM_TRY(gm_study_read(&study, n_path, path, err));
	status = gm_summary_make(&page.summary, &study.results, err);
	if (status == GM_OK)
		status = make_figures(&page, err);
	if (status == GM_OK)
		status = write_page(&page, out, title, err);
	for (size_t i = 0; i < page.n_figure; i++)
		gm_figure_free(&page.figure[i]);
	gm_sheet_free(&page.summary);
	gm_study_free(&study);
	return status;
}
