#include "report/interval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED 1

/* SplitMix64 (Steele, Lea and Flood, 2014). */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static int upwards(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* A percentile of sorted values, between neighbours where it falls between. */
static double percentile(const double *sorted, size_t n, double p)
{
	double at = p * (double)(n - 1);
	size_t below = (size_t)floor(at), above = below + 1 < n ? below + 1 : below;

	return sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
}

int gm_interval_change(const double *d, const double *n, size_t n_sequence, uint64_t seed, double *low, double *high,
		       struct gm_error *err)
{
	double *change = gm_alloc(GM_RESAMPLES, sizeof(*change), err);

	if (!change)
		return GM_ERR_MEMORY;
	for (size_t r = 0; r < GM_RESAMPLES; r++) {
		double sum = 0, tokens = 0;

		for (size_t i = 0; i < n_sequence; i++) {
			size_t s = (size_t)(next_random(&seed) % n_sequence);
			sum += d[s];
			tokens += n[s];
		}
		change[r] = 100 * expm1(sum / tokens);
	}
	qsort(change, GM_RESAMPLES, sizeof(*change), upwards);
	*low = percentile(change, GM_RESAMPLES, 0.025);
	*high = percentile(change, GM_RESAMPLES, 0.975);
	free(change);
	return GM_OK;
}

/* Scores of sequences: rows of the files that belong to one result stand together. */
struct scores {
	const struct gm_results *results;
	const struct gm_sheet *sheet;
	double *sequence, *n, *nll; /* columns [n_row] */
	size_t *point;              /* [n_row] the result that a row belongs to */
	size_t miss;                /* column of the results */
	size_t *baseline;           /* [n_baseline] rows that belong to a baseline */
	size_t n_baseline;
	double *d, *tokens; /* [n_row] of one result */
};

static bool is_baseline(const struct scores *s, size_t point)
{
	return point != GM_NO_POINT &&
	       strcmp(gm_sheet_text(s->results->sheet, s->results->point[point].row, s->miss), "none") == 0;
}

/* The row of a sequence in the baseline of a scene, or n_row. */
static size_t baseline_row(const struct scores *s, size_t scene, double sequence)
{
	for (size_t i = 0; i < s->n_baseline; i++) {
		size_t row = s->baseline[i];

		if (s->sequence[row] == sequence && s->results->point[s->point[row]].scene == scene)
			return row;
	}
	return s->sheet->n_row;
}

/* The interval of the result that rows from..to-1 belong to. */
static int make_interval(const struct scores *s, size_t from, size_t to, double *low, double *high, struct gm_error *err)
{
	const struct gm_point *point = &s->results->point[s->point[from]];
	size_t n = 0;

	for (size_t row = from; row < to; row++) {
		size_t base = baseline_row(s, point->scene, s->sequence[row]);

		/* Paired: only where the baseline scored the same tokens. */
		if (base == s->sheet->n_row || !(s->n[row] > 0) || s->n[base] != s->n[row])
			continue;
		s->d[n] = (s->nll[row] - s->nll[base]) * s->n[row];
		s->tokens[n++] = s->n[row];
	}
	if (n < 2 || is_baseline(s, s->point[from]))
		return GM_OK;
	return gm_interval_change(s->d, s->tokens, n, SEED, &low[s->point[from]], &high[s->point[from]], err);
}

static int prepare(struct scores *s, struct gm_error *err)
{
	const size_t trace = gm_sheet_find(s->sheet, "trace"), settings = gm_sheet_find(s->sheet, "settings_hash");

	s->miss = gm_sheet_find(s->results->sheet, "miss");
	s->sequence = gm_sheet_numbers(s->sheet, "sequence", err);
	s->n = gm_sheet_numbers(s->sheet, "n_scored", err);
	s->nll = gm_sheet_numbers(s->sheet, "nll", err);
	s->point = gm_alloc(s->sheet->n_row, sizeof(*s->point), err);
	s->baseline = gm_alloc(s->sheet->n_row, sizeof(*s->baseline), err);
	s->d = gm_alloc(s->sheet->n_row, sizeof(*s->d), err);
	s->tokens = gm_alloc(s->sheet->n_row, sizeof(*s->tokens), err);
	if (!s->sequence || !s->n || !s->nll || !s->point || !s->baseline || !s->d || !s->tokens)
		return err->code;
	for (size_t row = 0; row < s->sheet->n_row; row++) {
		s->point[row] = gm_results_find(s->results, gm_sheet_text(s->sheet, row, trace),
						gm_sheet_text(s->sheet, row, settings));
		if (is_baseline(s, s->point[row]))
			s->baseline[s->n_baseline++] = row;
	}
	return GM_OK;
}

int gm_intervals_make(const struct gm_results *results, const struct gm_sheet *sequences, double *low, double *high,
		      struct gm_error *err)
{
	struct scores s = {.results = results, .sheet = sequences};
	int status = prepare(&s, err);

	for (size_t i = 0; i < results->n_point; i++)
		low[i] = high[i] = (double)NAN;
	for (size_t from = 0, to; from < sequences->n_row && status == GM_OK; from = to) {
		for (to = from + 1; to < sequences->n_row && s.point[to] == s.point[from];)
			to++;
		if (s.point[from] != GM_NO_POINT)
			status = make_interval(&s, from, to, low, high, err);
	}
	free(s.sequence);
	free(s.n);
	free(s.nll);
	free(s.point);
	free(s.baseline);
	free(s.d);
	free(s.tokens);
	return status;
}
