#include "report/table.h"

#include "report/columns.h"
#include "report/escape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One cell as it will be shown. */
struct cell {
	char *text;
	bool best;
};

struct layout {
	const struct gm_table *table;
	struct cell *cell; /* [n_row][n_column] */
	bool *number;      /* [n_column] aligned to the right */
	size_t *width;     /* [n_column] in characters, marks included */
};

/* Digits are grouped by thin spaces on pages; plain text and LaTeX do without. */
static void drop_thin_spaces(char *text)
{
	char *to = text;

	for (const char *from = text; *from;) {
		if (strncmp(from, "\xe2\x80\x89", 3) == 0)
			from += 3;
		else
			*to++ = *from++;
	}
	*to = '\0';
}

static const char *show(const struct gm_table *t, size_t row, size_t column, char out[GM_SHOWN_TEXT])
{
	const struct gm_known_column *known = gm_known_column(t->summary->column[column]);
	double value;

	if (t->full || (known && known->form == GM_FORM_TEXT) ||
	    gm_sheet_number(t->summary, row, column, &value, NULL) < 0 || isnan(value))
		return gm_sheet_text(t->summary, row, column);
	drop_thin_spaces(gm_show_number(known, value, out));
	return out;
}

/* The column NAME_low or NAME_high. */
static size_t bound(const struct gm_sheet *summary, size_t column, const char *which)
{
	char name[256];

	snprintf(name, sizeof(name), "%s_%s", summary->column[column], which);
	return gm_sheet_find(summary, name);
}

static int make_cell(struct layout *l, size_t r, size_t c, struct gm_error *err)
{
	const struct gm_sheet *s = l->table->summary;
	const size_t row = l->table->row[r], column = l->table->column[c].column, low = bound(s, column, "low"),
		     high = bound(s, column, "high");
	char value[GM_SHOWN_TEXT], from[GM_SHOWN_TEXT], to[GM_SHOWN_TEXT];
	struct cell *cell = &l->cell[r * l->table->n_column + c];

	if (low != GM_NO_COLUMN && high != GM_NO_COLUMN && *gm_sheet_text(s, row, low) && *gm_sheet_text(s, row, high)) {
		const char *parts[] = {show(l->table, row, column, value), show(l->table, row, low, from),
				       show(l->table, row, high, to)};
		size_t size = strlen(parts[0]) + strlen(parts[1]) + strlen(parts[2]) + 8;

		if ((cell->text = gm_alloc(size, 1, err)))
			snprintf(cell->text, size, "%s [%s, %s]", parts[0], parts[1], parts[2]);
	} else {
		cell->text = gm_strdup(show(l->table, row, column, value), err);
	}
	return cell->text ? GM_OK : GM_ERR_MEMORY;
}

/* Are all known values of a column equal? Then none is best. */
static bool all_equal(const struct gm_table *t, size_t column)
{
	double first = (double)NAN, value;

	for (size_t r = 0; r < t->n_row; r++) {
		if (gm_sheet_number(t->summary, t->row[r], column, &value, NULL) < 0 || isnan(value))
			continue;
		if (!isnan(first) && value != first)
			return false;
		first = value;
	}
	return true;
}

/* Marks the best of each scene; all of equal ones. */
static void mark_best(struct layout *l, size_t c)
{
	const struct gm_table *t = l->table;
	const struct gm_table_column *column = &t->column[c];

	if (column->best == 0 || all_equal(t, column->column))
		return;
	for (size_t scene = 0; scene < t->results->n_scene; scene++) {
		double best = (double)NAN, value;

		for (int pass = 0; pass < 2; pass++)
			for (size_t r = 0; r < t->n_row; r++) {
				if (t->results->point[t->row[r]].scene != scene ||
				    gm_sheet_number(t->summary, t->row[r], column->column, &value, NULL) < 0 ||
				    isnan(value))
					continue;
				if (pass == 0 && (isnan(best) || (value - best) * column->best > 0))
					best = value;
				else if (pass == 1 && value == best)
					l->cell[r * t->n_column + c].best = true;
			}
	}
}

static const char *title(const struct gm_table *t, size_t c)
{
	const char *name = t->summary->column[t->column[c].column];
	const struct gm_known_column *known = gm_known_column(name);

	return known && !t->full ? known->title : name;
}

/* --- the formats --- */

static void put_padding(FILE *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fputc(' ', out);
}

static void put_text_cell(FILE *out, const struct layout *l, size_t c, const char *text, bool best, bool last)
{
	size_t used = gm_text_width(text) + best, room = l->width[c] - used;

	if (l->number[c])
		put_padding(out, room);
	gm_put_line(out, text);
	if (best)
		fputc('*', out);
	if (!l->number[c] && !last)
		put_padding(out, room);
	fputs(last ? "\n" : "  ", out);
}

static void write_text(const struct layout *l, FILE *out)
{
	const struct gm_table *t = l->table;

	for (size_t c = 0; c < t->n_column; c++)
		put_text_cell(out, l, c, title(t, c), false, c + 1 == t->n_column);
	for (size_t r = 0; r < t->n_row; r++)
		for (size_t c = 0; c < t->n_column; c++) {
			const struct cell *cell = &l->cell[r * t->n_column + c];
			put_text_cell(out, l, c, cell->text, cell->best, c + 1 == t->n_column);
		}
}

static void write_markdown(const struct layout *l, FILE *out)
{
	const struct gm_table *t = l->table;

	for (size_t c = 0; c < t->n_column; c++) {
		fputs(c ? " | " : "| ", out);
		gm_put_markdown(out, title(t, c));
	}
	fputs(" |\n", out);
	for (size_t c = 0; c < t->n_column; c++)
		fputs(l->number[c] ? "|---:" : "|---", out);
	fputs("|\n", out);
	for (size_t r = 0; r < t->n_row; r++) {
		for (size_t c = 0; c < t->n_column; c++) {
			const struct cell *cell = &l->cell[r * t->n_column + c];

			fputs(c ? " | " : "| ", out);
			fputs(cell->best ? "**" : "", out);
			gm_put_markdown(out, cell->text);
			fputs(cell->best ? "**" : "", out);
		}
		fputs(" |\n", out);
	}
}

static void write_latex(const struct layout *l, FILE *out)
{
	const struct gm_table *t = l->table;

	fputs("% \\usepackage{booktabs}\n\\begin{tabular}{", out);
	for (size_t c = 0; c < t->n_column; c++)
		fputc(l->number[c] ? 'r' : 'l', out);
	fputs("}\n\\toprule\n", out);
	for (size_t c = 0; c < t->n_column; c++) {
		fputs(c ? " & " : "", out);
		gm_put_latex(out, title(t, c));
	}
	fputs(" \\\\\n\\midrule\n", out);
	for (size_t r = 0; r < t->n_row; r++) {
		for (size_t c = 0; c < t->n_column; c++) {
			const struct cell *cell = &l->cell[r * t->n_column + c];

			/* At the start of a row these would belong to the \\ before it. */
			fputs(c ? " & " : *cell->text == '[' || *cell->text == '*' ? "{}" : "", out);
			fputs(cell->best ? "\\textbf{" : "", out);
			gm_put_latex(out, cell->text);
			fputs(cell->best ? "}" : "", out);
		}
		fputs(" \\\\\n", out);
	}
	fputs("\\bottomrule\n\\end{tabular}\n", out);
}

/* --- all --- */

static int lay_out(struct layout *l, struct gm_error *err)
{
	const struct gm_table *t = l->table;

	l->cell = gm_alloc(t->n_row * t->n_column, sizeof(*l->cell), err);
	l->number = gm_alloc(t->n_column, sizeof(*l->number), err);
	l->width = gm_alloc(t->n_column, sizeof(*l->width), err);
	if (!l->cell || !l->number || !l->width)
		return GM_ERR_MEMORY;
	for (size_t c = 0; c < t->n_column; c++) {
		const struct gm_known_column *known = gm_known_column(t->summary->column[t->column[c].column]);

		l->number[c] =
			!(known && known->form == GM_FORM_TEXT) && gm_sheet_is_numeric(t->summary, t->column[c].column);
		l->width[c] = gm_text_width(title(t, c));
		for (size_t r = 0; r < t->n_row; r++)
			GM_TRY(make_cell(l, r, c, err));
		if (l->number[c])
			mark_best(l, c);
		for (size_t r = 0; r < t->n_row; r++) {
			const struct cell *cell = &l->cell[r * t->n_column + c];
			size_t width = gm_text_width(cell->text) + cell->best;
			l->width[c] = width > l->width[c] ? width : l->width[c];
		}
	}
	return GM_OK;
}

int gm_table_write(const struct gm_table *table, FILE *out, struct gm_error *err)
{
	static void (*const writers[])(const struct layout *l, FILE *out) = {write_text, write_markdown, write_latex};
	struct layout layout = {.table = table};
	int status = lay_out(&layout, err);

	if (status == GM_OK)
		writers[table->format](&layout, out);
	for (size_t i = 0; layout.cell && i < table->n_row * table->n_column; i++)
		free(layout.cell[i].text);
	free(layout.cell);
	free(layout.number);
	free(layout.width);
	return status;
}
