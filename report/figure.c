#include "report/figure.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const struct gm_figure_kind gm_figure_kinds[] = {
	{"tradeoff", "pareto", "Time against substituted mass", "results with times and substituted mass",
	 gm_figure_tradeoff},
	{"curve", "curve", "Hit rate against cache size", "results with cache sizes", gm_figure_curve},
	{"time", "time", "Where the time goes", "results with times", gm_figure_time},
	{"perplexity", "mass-ppl", "Perplexity against substituted mass", "results of emulate, with perplexity",
	 gm_figure_perplexity},
	{"layers", "layers", "Layer by layer", "a file of --per-layer", gm_figure_layers},
	{"switch", "switch", "Around topic switches", "a file of --per-token, of a trace whose labels change",
	 gm_figure_switch},
	{"popularity", NULL, "Popularity of experts", "a file of traces stats", gm_figure_popularity},
	{"reuse", NULL, "Reuse from token to token", "a file of traces stats", gm_figure_reuse},
	{"ranks", NULL, "Weight and reuse by rank", "a file of traces stats", gm_figure_ranks},
	{"overlap", NULL, "Popular experts across label changes", "a file of traces stats", gm_figure_overlap},
	{NULL, NULL, NULL, NULL, NULL},
};

int gm_study_read(struct gm_study *study, int n_path, char *const *path, struct gm_error *err)
{
	*study = (struct gm_study){0};
	GM_TRY(gm_inputs_read_all(&study->inputs, n_path, path, err));
	int status = gm_results_make(&study->results, &study->inputs, err);
	if (status < 0)
		gm_inputs_free(&study->inputs);
	return status;
}

void gm_study_free(struct gm_study *study)
{
	gm_results_free(&study->results);
	gm_inputs_free(&study->inputs);
}

int gm_figure_make(struct gm_figure *figure, const struct gm_figure_kind *kind, const struct gm_study *study,
		   struct gm_error *err)
{
	*figure = (struct gm_figure){.kind = kind, .group = GM_NO_COLUMN};
	return kind->build(figure, study, err);
}

void gm_figure_free(struct gm_figure *figure)
{
	if (figure->stream) /* a panel that was not ended: its text comes with the stream's end */
		fclose(figure->stream);
	for (size_t i = 0; i < figure->n_panel; i++) {
		free(figure->panel[i].title);
		free(figure->panel[i].svg);
	}
	free(figure->panel);
	free(figure->result);
	gm_sheet_free(&figure->data);
	*figure = (struct gm_figure){0};
}

int gm_figure_columns(struct gm_figure *figure, const char *const *name, struct gm_error *err)
{
	for (; *name; name++)
		GM_TRY(gm_sheet_add_column(&figure->data, *name, err));
	return GM_OK;
}

int gm_figure_row(struct gm_figure *figure, size_t result, size_t *index, struct gm_error *err)
{
	if ((figure->n_result & (figure->n_result - 1)) == 0) /* grows at powers of two */
		GM_GROW(figure->result, figure->n_result ? figure->n_result * 2 : 1, err);
	*index = figure->n_result;
	figure->result[figure->n_result++] = result;
	return GM_OK;
}

int gm_figure_begin(struct gm_figure *figure, struct gm_chart *chart, const char *title, double height, const char *label,
		    struct gm_error *err)
{
	struct gm_panel *panel;

	GM_GROW(figure->panel, figure->n_panel + 1, err);
	panel = &figure->panel[figure->n_panel];
	*panel = (struct gm_panel){.title = gm_strdup(title, err)};
	if (!panel->title)
		return GM_ERR_MEMORY;
	figure->n_panel++;
	figure->stream = open_memstream(&panel->svg, &figure->stream_size);
	if (!figure->stream)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory: figure %s", figure->kind->id);
	gm_chart_begin(chart, figure->stream, GM_CHART_WIDTH, height, label);
	return GM_OK;
}

int gm_figure_end(struct gm_figure *figure, struct gm_chart *chart, struct gm_error *err)
{
	int status = gm_chart_end(chart, err);
	int failed = ferror(figure->stream) | fclose(figure->stream);
	figure->stream = NULL;
	if (failed)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory: figure %s", figure->kind->id);
	return status;
}

void gm_figure_note(struct gm_figure *figure, const char *format, ...)
{
	size_t n = strlen(figure->note);
	va_list args;

	if (n > 0 && n + 1 < sizeof(figure->note))
		figure->note[n++] = ' ';
	va_start(args, format);
	vsnprintf(figure->note + n, sizeof(figure->note) - n, format, args);
	va_end(args);
}

void gm_figure_colours(const struct gm_results *results, const size_t *chosen, size_t n, struct gm_legend *legend)
{
	bool differ = true;

	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < i; j++)
			differ = differ && results->point[chosen[i]].colour != results->point[chosen[j]].colour;
	for (size_t i = 0; i < n; i++)
		legend[i].colour = differ ? results->point[chosen[i]].colour : i;
}

size_t gm_figure_legend(const struct gm_results *results, const bool *used, struct gm_legend *legend)
{
	size_t n = 0;

	for (size_t i = 0; i < results->n_colour; i++)
		if (used[i])
			legend[n++] = (struct gm_legend){results->colour[i].text, i};
	return n;
}

char *gm_figure_point_name(const struct gm_results *results, size_t point, size_t cache, char *out, size_t size)
{
	if (cache == GM_NO_POINT && results->n_cache > 1)
		snprintf(out, size, "%s, %s", gm_point_policy(results, point), gm_point_cache(results, point));
	else
		snprintf(out, size, "%s", gm_point_policy(results, point));
	return out;
}
