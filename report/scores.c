#include "report/scores.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Columns of a sheet of sequences. */
struct columns {
	const struct gm_sheet *sheet;
	size_t trace, hash, settings;
	double *sequence, *n, *nll, *substituted, *dropped, *rows;
};

static void free_columns(struct columns *c)
{
	free(c->sequence);
	free(c->n);
	free(c->nll);
	free(c->substituted);
	free(c->dropped);
	free(c->rows);
}

static int read_columns(struct columns *c, const struct gm_sheet *sheet, struct gm_error *err)
{
	*c = (struct columns){
		.sheet = sheet,
		.trace = gm_sheet_find(sheet, "trace"),
		.hash = gm_sheet_find(sheet, "trace_hash"),
		.settings = gm_sheet_find(sheet, "settings_hash"),
		.sequence = gm_sheet_numbers(sheet, "sequence", err),
		.n = gm_sheet_numbers(sheet, "n_scored", err),
		.nll = gm_sheet_numbers(sheet, "nll", err),
		.substituted = gm_sheet_numbers(sheet, "substituted_mass", err),
		.dropped = gm_sheet_numbers(sheet, "dropped_mass", err),
		.rows = gm_sheet_numbers(sheet, "rows", err),
	};
	return c->sequence && c->n && c->nll && c->substituted && c->dropped && c->rows ? GM_OK : err->code;
}

static const char *cell(const struct gm_results *results, size_t point, const char *column)
{
	return gm_sheet_text(results->sheet, results->point[point].row, gm_sheet_find(results->sheet, column));
}

bool gm_scores_is_baseline(const struct gm_scores *s, size_t policy)
{
	return strcmp(cell(s->results, s->point[policy], "miss"), "none") == 0;
}

static bool has_text(const struct gm_results *results, size_t point, const char *column, const char *text)
{
	return strcmp(cell(results, point, column), text) == 0;
}

/* Traces of one name may hold other texts: a row belongs to the result of its own. */
static int find_texts(const struct columns *c, const struct gm_results *results, size_t row, size_t *point,
		      struct gm_error *err)
{
	const char *hash = gm_sheet_text(c->sheet, row, c->hash);
	const size_t named = *point;
	char right[160];

	if (named == GM_NO_POINT || c->hash == GM_NO_COLUMN || has_text(results, named, "trace_hash", hash))
		return GM_OK;
	for (size_t i = 0; i < results->n_point; i++)
		if (has_text(results, i, "trace_hash", hash) &&
		    has_text(results, i, "trace", cell(results, named, "trace")) &&
		    has_text(results, i, "settings_hash", cell(results, named, "settings_hash"))) {
			*point = i;
			return GM_OK;
		}
	snprintf(right, sizeof(right), "%.20s in %.60s: give files of one run", cell(results, named, "trace_hash"),
		 gm_sheet_file_name(results->sheet, results->point[named].row));
	return gm_sheet_fail(c->sheet, row, c->hash, "other texts than those of the results", right, err);
}

/* The result that a row with a likelihood belongs to, or GM_NO_POINT. */
static int find_point(const struct columns *c, const struct gm_results *results, size_t row, size_t scene, size_t *point,
		      struct gm_error *err)
{
	*point = GM_NO_POINT;
	if (!(c->n[row] > 0) || isnan(c->nll[row]))
		return GM_OK;
	*point =
		gm_results_find(results, gm_sheet_text(c->sheet, row, c->trace), gm_sheet_text(c->sheet, row, c->settings));
	GM_TRY(find_texts(c, results, row, point, err));
	if (*point != GM_NO_POINT && results->point[*point].scene != scene)
		*point = GM_NO_POINT;
	return GM_OK;
}

/* What stands where: policies that have a row, and texts that have one, in order of their number. */
struct places {
	size_t *point;    /* [n_row] the result that a row belongs to, or GM_NO_POINT */
	size_t *policy;   /* [n_point] */
	size_t *sequence; /* [n_row] of a sequence's number; emulate counts them from 0, and each has a row */
};

static int find_rows(struct gm_scores *s, const struct columns *c, size_t scene, struct places *at, struct gm_error *err)
{
	for (size_t i = 0; i < s->results->n_point; i++)
		at->policy[i] = GM_NO_POINT;
	for (size_t row = 0; row < c->sheet->n_row; row++)
		at->sequence[row] = GM_NO_POINT;
	for (size_t row = 0; row < c->sheet->n_row; row++) {
		size_t point;

		GM_TRY(find_point(c, s->results, row, scene, &at->point[row], err));
		point = at->point[row];
		if (point == GM_NO_POINT)
			continue;
		if (!(c->sequence[row] >= 0 && c->sequence[row] < (double)c->sheet->n_row) ||
		    c->sequence[row] != floor(c->sequence[row]))
			return gm_sheet_fail(c->sheet, row, gm_sheet_find(c->sheet, "sequence"), "no number of a sequence",
					     "whole numbers from 0, without large gaps", err);
		at->sequence[(size_t)c->sequence[row]] = 0;
		if (at->policy[point] == GM_NO_POINT) {
			s->point[s->n_policy] = point;
			at->policy[point] = s->n_policy++;
		}
	}
	return GM_OK;
}

static int find_places(struct gm_scores *s, const struct columns *c, size_t scene, struct places *at, struct gm_error *err)
{
	s->point = gm_alloc(s->results->n_point, sizeof(*s->point), err);
	s->baseline = gm_alloc(s->results->n_point, sizeof(*s->baseline), err);
	s->number = gm_alloc(c->sheet->n_row, sizeof(*s->number), err);
	if (!s->point || !s->baseline || !s->number)
		return GM_ERR_MEMORY;
	GM_TRY(find_rows(s, c, scene, at, err));
	/* A number that no row has is no text: it must not be drawn. */
	for (size_t number = 0; number < c->sheet->n_row; number++)
		if (at->sequence[number] != GM_NO_POINT) {
			s->number[s->n_sequence] = number;
			at->sequence[number] = s->n_sequence++;
		}
	return GM_OK;
}

/* Substituted and dropped mass over the rows of a text. Without rows there is none to lose; what is not known stays so. */
static double lost_mass(const struct columns *c, size_t row)
{
	return c->rows[row] == 0 ? 0 : (c->substituted[row] + c->dropped[row]) * c->rows[row];
}

static int fill(struct gm_scores *s, const struct columns *c, const struct places *at, struct gm_error *err)
{
	for (size_t row = 0; row < c->sheet->n_row; row++) {
		double nll;
		size_t i;

		if (at->point[row] == GM_NO_POINT)
			continue;
		i = at->policy[at->point[row]] * s->n_sequence + at->sequence[(size_t)c->sequence[row]];
		nll = c->nll[row] * c->n[row];
		if (s->n[i] > 0 && (s->n[i] != c->n[row] || s->nll[i] != nll))
			return gm_sheet_fail(c->sheet, row, gm_sheet_find(c->sheet, "nll"), "two results for one text",
					     "a row before it has another for the same settings", err);
		s->n[i] = c->n[row];
		s->nll[i] = nll;
		s->rows[i] = c->rows[row];
		s->lost[i] = lost_mass(c, row);
	}
	return GM_OK;
}

static void find_baselines(struct gm_scores *s)
{
	for (size_t p = 0; p < s->n_policy; p++) {
		s->baseline[p] = GM_NO_POINT;
		for (size_t b = 0; b < s->n_policy && s->baseline[p] == GM_NO_POINT; b++)
			if (gm_scores_is_baseline(s, b) &&
			    strcmp(cell(s->results, s->point[b], "warmup"), cell(s->results, s->point[p], "warmup")) == 0)
				s->baseline[p] = b;
	}
}

static int make(struct gm_scores *s, const struct columns *c, size_t scene, struct places *at, struct gm_error *err)
{
	double **const sums[] = {&s->n, &s->nll, &s->lost, &s->rows};

	GM_TRY(find_places(s, c, scene, at, err));
	for (size_t i = 0; i < sizeof(sums) / sizeof(*sums); i++)
		if (!(*sums[i] = gm_alloc(s->n_policy * s->n_sequence, sizeof(**sums[i]), err)))
			return GM_ERR_MEMORY;
	GM_TRY(fill(s, c, at, err));
	find_baselines(s);
	return GM_OK;
}

int gm_scores_make(struct gm_scores *scores, const struct gm_results *results, const struct gm_sheet *sequences,
		   size_t scene, struct gm_error *err)
{
	struct places at = {
		.point = gm_alloc(sequences->n_row, sizeof(*at.point), err),
		.policy = gm_alloc(results->n_point, sizeof(*at.policy), err),
		.sequence = gm_alloc(sequences->n_row, sizeof(*at.sequence), err),
	};
	struct columns columns;
	int status = at.point && at.policy && at.sequence ? GM_OK : GM_ERR_MEMORY;

	*scores = (struct gm_scores){.results = results};
	if (status == GM_OK) {
		status = read_columns(&columns, sequences, err);
		if (status == GM_OK)
			status = make(scores, &columns, scene, &at, err);
		free_columns(&columns);
	}
	free(at.point);
	free(at.policy);
	free(at.sequence);
	return status;
}

void gm_scores_free(struct gm_scores *s)
{
	free(s->point);
	free(s->baseline);
	free(s->number);
	free(s->n);
	free(s->nll);
	free(s->lost);
	free(s->rows);
	*s = (struct gm_scores){0};
}

size_t gm_scores_pair(const struct gm_scores *s, size_t policy, size_t other, double *d, double *n)
{
	const size_t a = policy * s->n_sequence, b = other * s->n_sequence;
	size_t count = 0;

	for (size_t i = 0; i < s->n_sequence; i++)
		if (s->n[a + i] > 0 && s->n[a + i] == s->n[b + i]) {
			d[count] = s->nll[a + i] - s->nll[b + i];
			n[count++] = s->n[a + i];
		}
	return count;
}
