#include "report/scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Columns of a sheet of sequences. */
struct columns {
	const struct gm_sheet *sheet;
	size_t trace, settings;
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

/* The result that a row with a likelihood belongs to, or GM_NO_POINT. */
static size_t point_of(const struct columns *c, const struct gm_results *results, size_t row, size_t scene)
{
	size_t point;

	if (!(c->n[row] > 0) || isnan(c->nll[row]))
		return GM_NO_POINT;
	point = gm_results_find(results, gm_sheet_text(c->sheet, row, c->trace), gm_sheet_text(c->sheet, row, c->settings));
	return point != GM_NO_POINT && results->point[point].scene == scene ? point : GM_NO_POINT;
}

/* Numbers the policies that have a row; policy [n_point] out. */
static int find_policies(struct gm_scores *s, const struct columns *c, size_t scene, size_t *policy, struct gm_error *err)
{
	for (size_t i = 0; i < s->results->n_point; i++)
		policy[i] = GM_NO_POINT;
	s->point = gm_alloc(s->results->n_point, sizeof(*s->point), err);
	s->baseline = gm_alloc(s->results->n_point, sizeof(*s->baseline), err);
	if (!s->point || !s->baseline)
		return GM_ERR_MEMORY;
	for (size_t row = 0; row < c->sheet->n_row; row++) {
		const size_t point = point_of(c, s->results, row, scene);

		if (point == GM_NO_POINT)
			continue;
		/* emulate counts them from 0, and each has a row. */
		if (!(c->sequence[row] >= 0 && c->sequence[row] < (double)c->sheet->n_row) ||
		    c->sequence[row] != floor(c->sequence[row]))
			return gm_sheet_fail(c->sheet, row, gm_sheet_find(c->sheet, "sequence"), "no number of a sequence",
					     "whole numbers from 0, without large gaps", err);
		if ((size_t)c->sequence[row] >= s->n_sequence)
			s->n_sequence = (size_t)c->sequence[row] + 1;
		if (policy[point] == GM_NO_POINT) {
			s->point[s->n_policy] = point;
			policy[point] = s->n_policy++;
		}
	}
	return GM_OK;
}

static int fill(struct gm_scores *s, const struct columns *c, size_t scene, const size_t *policy, struct gm_error *err)
{
	for (size_t row = 0; row < c->sheet->n_row; row++) {
		const size_t point = point_of(c, s->results, row, scene);
		double lost = 0, nll;
		size_t i;

		if (point == GM_NO_POINT)
			continue;
		i = policy[point] * s->n_sequence + (size_t)c->sequence[row];
		nll = c->nll[row] * c->n[row];
		if (s->n[i] > 0 && (s->n[i] != c->n[row] || s->nll[i] != nll))
			return gm_sheet_fail(c->sheet, row, gm_sheet_find(c->sheet, "nll"), "two results for one text",
					     "a row before it has another for the same settings", err);
		lost += isnan(c->substituted[row]) ? 0 : c->substituted[row];
		lost += isnan(c->dropped[row]) ? 0 : c->dropped[row];
		s->n[i] = c->n[row];
		s->nll[i] = nll;
		s->rows[i] = isnan(c->rows[row]) ? 0 : c->rows[row];
		s->lost[i] = lost * s->rows[i];
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

static int make(struct gm_scores *s, const struct columns *c, size_t scene, size_t *policy, struct gm_error *err)
{
	double **const sums[] = {&s->n, &s->nll, &s->lost, &s->rows};

	GM_TRY(find_policies(s, c, scene, policy, err));
	for (size_t i = 0; i < sizeof(sums) / sizeof(*sums); i++)
		if (!(*sums[i] = gm_alloc(s->n_policy * s->n_sequence, sizeof(**sums[i]), err)))
			return GM_ERR_MEMORY;
	GM_TRY(fill(s, c, scene, policy, err));
	find_baselines(s);
	return GM_OK;
}

int gm_scores_make(struct gm_scores *scores, const struct gm_results *results, const struct gm_sheet *sequences,
		   size_t scene, struct gm_error *err)
{
	size_t *policy = gm_alloc(results->n_point, sizeof(*policy), err);
	struct columns columns;
	int status = policy ? GM_OK : GM_ERR_MEMORY;

	*scores = (struct gm_scores){.results = results};
	if (status == GM_OK) {
		status = read_columns(&columns, sequences, err);
		if (status == GM_OK)
			status = make(scores, &columns, scene, policy, err);
		free_columns(&columns);
	}
	free(policy);
	return status;
}

void gm_scores_free(struct gm_scores *s)
{
	free(s->point);
	free(s->baseline);
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
