#include "report/plot.h"

#include "base/file.h"
#include "report/embedded.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define NAME_BYTES 64 /* of the files in a folder */
#define NO_GNUPLOT 127

static const char *const extensions[] = {".svg", ".pdf", ".png"};

int gm_plot_format(const char *path, enum gm_plot_format *format, struct gm_error *err)
{
	const char *dot = strrchr(path, '.');

	for (int i = 0; dot && i < 3; i++)
		if (strcmp(dot, extensions[i]) == 0) {
			*format = (enum gm_plot_format)i;
			return GM_OK;
		}
	return gm_fail(err, GM_ERR_USAGE, "no such format: --out \"%.100s\": a name that ends in .svg, .pdf or .png", path);
}

/* --- data --- */

/* What gnuplot would take for a mark is replaced: a name is for the eye only. */
static void put_field(FILE *out, const char *text)
{
	for (; *text; text++)
		fputc(*text == '\t' || *text == '\n' || *text == '\r' ? ' ' : *text == '"' ? '\'' : *text, out);
}

/* Do two rows belong to one series? */
static bool same_group(const struct gm_figure *f, size_t a, size_t b)
{
	const size_t trace = gm_sheet_find(&f->data, "trace");

	return f->group == GM_NO_COLUMN ||
	       (strcmp(gm_sheet_text(&f->data, a, f->group), gm_sheet_text(&f->data, b, f->group)) == 0 &&
		strcmp(gm_sheet_text(&f->data, a, trace), gm_sheet_text(&f->data, b, trace)) == 0);
}

static void put_row(FILE *out, const struct gm_figure *f, size_t row)
{
	if (f->group != GM_NO_COLUMN)
		put_field(out, gm_sheet_text(&f->data, row, f->group));
	for (size_t c = 0; c < f->data.n_column; c++) {
		if (c == f->group)
			continue;
		fputs(c > 0 || f->group != GM_NO_COLUMN ? "\t" : "", out);
		put_field(out, gm_sheet_text(&f->data, row, c));
	}
	fputc('\n', out);
}

/* The first line of a block: the name of the series, then those of the columns. */
static void put_header(FILE *out, const struct gm_figure *f, size_t row, bool many_traces)
{
	if (f->group != GM_NO_COLUMN) {
		fputc('"', out);
		put_field(out, gm_sheet_text(&f->data, row, f->group));
		if (many_traces) {
			fputs(" (", out);
			put_field(out, gm_sheet_text(&f->data, row, gm_sheet_find(&f->data, "trace")));
			fputc(')', out);
		}
		fputc('"', out);
	}
	for (size_t c = 0; c < f->data.n_column; c++)
		if (c != f->group)
			fprintf(out, "%s%s", c > 0 || f->group != GM_NO_COLUMN ? "\t" : "", f->data.column[c]);
	fputc('\n', out);
}

static size_t put_blocks(FILE *out, const struct gm_figure *f, bool *done)
{
	const size_t trace = gm_sheet_find(&f->data, "trace");
	bool many_traces = false;
	size_t n = 0;

	for (size_t row = 1; row < f->data.n_row; row++)
		many_traces =
			many_traces || strcmp(gm_sheet_text(&f->data, row, trace), gm_sheet_text(&f->data, 0, trace)) != 0;
	for (size_t first = 0; first < f->data.n_row; first++) {
		if (done[first])
			continue;
		fputs(n++ > 0 ? "\n\n" : "", out); /* two empty lines: the next block */
		put_header(out, f, first, many_traces);
		for (size_t row = first; row < f->data.n_row; row++)
			if (!done[row] && same_group(f, first, row)) {
				put_row(out, f, row);
				done[row] = true;
			}
	}
	return n;
}

/* --- settings --- */

static double column_max(const struct gm_sheet *sheet, const char *name)
{
	const size_t column = gm_sheet_find(sheet, name);
	double most = 0, value;

	for (size_t row = 0; column != GM_NO_COLUMN && row < sheet->n_row; row++)
		if (gm_sheet_number(sheet, row, column, &value, NULL) == GM_OK && value > most)
			most = value;
	return most;
}

/* Sizes of a column (3.35 in) and of a page's width (7 in) of usual two-column papers; text of 8 points. */
static void put_terminal(FILE *out, const struct gm_plot *plot)
{
	const double width = plot->wide ? 7.0 : 3.35;
	double height = plot->wide ? 2.9 : 2.5;
	const bool bars = strcmp(plot->figure->kind->id, "time") == 0;

	if (bars) /* a bar needs its room */
		height = fmax(height, 0.85 + 0.135 * (double)plot->figure->data.n_row);
	if (strcmp(plot->figure->kind->id, "switch") == 0)
		height = fmax(height, 3.2);
	switch (plot->format) {
	case GM_PLOT_SVG:
		fprintf(out, "set terminal svg size %.0f,%.0f dynamic font \"Helvetica,10.5\" background \"white\"\n",
			width * 96, height * 96);
		break;
	case GM_PLOT_PDF:
		fprintf(out, "set terminal pdfcairo size %.2fin,%.2fin font \"Helvetica,8\"\n", width, height);
		break;
	case GM_PLOT_PNG:
		fprintf(out,
			"set terminal pngcairo size %.0f,%.0f font \"Helvetica,8\" fontscale 3.1 linewidth 3.1 pointscale "
			"3.1 "
			"background \"white\"\n",
			width * 300, height * 300);
		break;
	}
	fprintf(out, "set output \"figure%s\"\n", extensions[plot->format]);
}

static void put_settings(FILE *out, const struct gm_plot *plot, size_t n_series)
{
	const struct gm_sheet *data = &plot->figure->data;
	const double longest = column_max(data, "time_per_token_us");

	fputs("# Made by report plot. To draw the figure again: gnuplot settings.gp style.gp ", out);
	fprintf(out, "%s.gp\n", plot->figure->kind->plot);
	put_terminal(out, plot);
	fprintf(out, "n_series = %zu\nn_row = %zu\nn_layer = %.0f\n", n_series, data->n_row, column_max(data, "layer") + 1);
	fprintf(out, "time_unit = %s\ntime_label = \"%s a token\"\n", longest >= 5000 ? "1e-3" : "1",
		longest >= 5000 ? "ms" : "\xc2\xb5s");
	fprintf(out, "mass_label = \"gate weight substituted%s\"\n", plot->study->results.has_dropped ? " or dropped" : "");
	fprintf(out, "perplexity_label = \"%s\"\n",
		gm_sheet_find(data, "perplexity_change_pct") != GM_NO_COLUMN ? "perplexity against the baseline (%)"
									     : "perplexity");
}

/* --- the folder --- */

static int open_in(struct gm_output *out, const char *folder, const char *name, struct gm_error *err)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/%s", folder, name); /* it fits: gm_plot_files has looked */
	return gm_output_open(out, path, err);
}

static int copy_script(const char *folder, const char *name, struct gm_error *err)
{
	struct gm_output out;

	GM_TRY(open_in(&out, folder, name, err));
	fputs(gm_embedded(name), out.stream);
	return gm_output_commit(&out, err);
}

static int write_data(const struct gm_plot *plot, const char *folder, size_t *n_series, struct gm_error *err)
{
	bool *done = gm_alloc(plot->figure->data.n_row, sizeof(*done), err);
	struct gm_output out;
	int status = done ? open_in(&out, folder, "data.tsv", err) : GM_ERR_MEMORY;

	if (status == GM_OK) {
		*n_series = put_blocks(out.stream, plot->figure, done);
		status = gm_output_commit(&out, err);
	}
	free(done);
	return status;
}

static int write_settings(const struct gm_plot *plot, const char *folder, size_t n_series, struct gm_error *err)
{
	struct gm_output out;

	GM_TRY(open_in(&out, folder, "settings.gp", err));
	put_settings(out.stream, plot, n_series);
	return gm_output_commit(&out, err);
}

int gm_plot_files(const struct gm_plot *plot, const char *folder, struct gm_error *err)
{
	size_t n_series = 0;
	char script[64];

	if (strlen(folder) + NAME_BYTES > PATH_BYTES)
		return gm_fail(err, GM_ERR_USAGE, "name too long: --files %.60s...: at most %d bytes", folder,
			       PATH_BYTES - NAME_BYTES);
	if (mkdir(folder, 0777) != 0 && errno != EEXIST)
		return gm_fail(err, GM_ERR_IO, "cannot make a folder: %s: %s", folder, strerror(errno));
	snprintf(script, sizeof(script), "%s.gp", plot->figure->kind->plot);
	GM_TRY(write_data(plot, folder, &n_series, err));
	GM_TRY(write_settings(plot, folder, n_series, err));
	GM_TRY(copy_script(folder, "style.gp", err));
	return copy_script(folder, script, err);
}

/* --- gnuplot --- */

/* In the child: only what is allowed between fork and exec. */
static void become_gnuplot(const char *folder, const char *script)
{
	int log = chdir(folder) == 0 ? open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;

	if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		_exit(126);
	execlp("gnuplot", "gnuplot", "settings.gp", "style.gp", script, (char *)NULL);
	_exit(NO_GNUPLOT);
}

/* The last line of what gnuplot said that is not empty. */
static void last_words(const char *folder, char *out, size_t size)
{
	char path[PATH_BYTES], line[512];

	snprintf(out, size, "it said nothing");
	snprintf(path, sizeof(path), "%s/log", folder);
	FILE *log = fopen(path, "re");
	while (log && fgets(line, sizeof(line), log)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[strspn(line, " \t^")])
			snprintf(out, size, "%.150s", line + strspn(line, " \t"));
	}
	if (log)
		fclose(log);
}

static int run_gnuplot(const char *folder, const char *script, struct gm_error *err)
{
	char words[200];
	int status = 0;

	fflush(NULL);
	pid_t child = fork();
	if (child < 0)
		return gm_fail(err, GM_ERR_IO, "cannot start gnuplot: %s", strerror(errno));
	if (child == 0)
		become_gnuplot(folder, script);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return gm_fail(err, GM_ERR_IO, "lost gnuplot: %s", strerror(errno));
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_GNUPLOT)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "no gnuplot: install it (Debian: gnuplot-nox), or take data and scripts elsewhere with "
			       "--files FOLDER");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return GM_OK;
	last_words(folder, words, sizeof(words));
	return gm_fail(err, GM_ERR_IO, "gnuplot failed: %s: %s", script, words);
}

static int copy_picture(const char *folder, enum gm_plot_format format, const char *path, struct gm_error *err)
{
	char from[PATH_BYTES];
	struct gm_output out;
	size_t size;

	snprintf(from, sizeof(from), "%s/figure%s", folder, extensions[format]);
	char *bytes = gm_read_file(from, (size_t)256 << 20, &size, err);
	if (!bytes)
		return err->code;
	int status = gm_output_open(&out, path, err);
	if (status == GM_OK) {
		fwrite(bytes, 1, size, out.stream);
		status = gm_output_commit(&out, err);
	}
	free(bytes);
	return status;
}

static void remove_folder(const char *folder, const char *script, enum gm_plot_format format)
{
	const char *const names[] = {"data.tsv", "settings.gp", "style.gp", script, "log"};
	char path[PATH_BYTES];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/figure%s", folder, extensions[format]);
	unlink(path);
	rmdir(folder);
}

int gm_plot_draw(const struct gm_plot *plot, const char *path, struct gm_error *err)
{
	const char *temporary = getenv("TMPDIR");
	char folder[PATH_BYTES / 2], script[64];
	int status;

	snprintf(script, sizeof(script), "%s.gp", plot->figure->kind->plot);
	if (snprintf(folder, sizeof(folder), "%s/gatemass-plot-XXXXXX", temporary && *temporary ? temporary : "/tmp") >=
		    (int)sizeof(folder) ||
	    !mkdtemp(folder))
		return gm_fail(err, GM_ERR_IO, "cannot make a folder: %.100s: %s", folder, strerror(errno));
	status = gm_plot_files(plot, folder, err);
	if (status == GM_OK)
		status = run_gnuplot(folder, script, err);
	if (status == GM_OK)
		status = copy_picture(folder, plot->format, path, err);
	remove_folder(folder, script, plot->format);
	return status;
}
