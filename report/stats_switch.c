/* What happens after a change of topic, by the distance from it; and the same places in texts that go on with the topic of the text before,
 * which tell the switch from a text's beginning. Each policy against the baseline, and with background admission against without. */
#include "report/stats.h"
#include "report/switches.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum place { AFTER_SWITCH, SAME_TOPIC, N_PLACE };
static const char *const place_names[N_PLACE] = {"after a switch", "same topic"};

static const long bin_start[] = {0, 8, 16, 32, 64, 128};
#define N_BIN (sizeof(bin_start) / sizeof(*bin_start))
#define NEAR_BINS 4 /* "near" is the first bins: 64 tokens */

struct cell {
	double d, n; /* negative log-likelihood less the baseline's, tokens that have one */
	double lost, rows, tokens;
};

/* What a policy did in each text, or what it did less what another did. */
struct profile {
	size_t point;
	struct cell (*cell)[N_PLACE][N_BIN]; /* [n_sequence] */
};

struct view {
	const struct gm_report_stats *stats;
	struct gm_tokens tokens;
	double *nll, *baseline, *rows, *substituted, *dropped; /* columns [n_row] */
	long *since;                                           /* [n_row] */
	size_t *text; /* [n_row] of a sequence's number: a number that no row has is no text, and must not be drawn */
	size_t n_sequence, n_profile, n_switch;
	struct profile *profile;
	struct profile difference;
};

/* --- reading --- */

static int read_columns(struct view *v, const struct gm_sheet *sheet, struct gm_error *err)
{
	const struct {
		double **values;
		const char *name;
	} columns[] = {{&v->nll, "nll"},
		       {&v->baseline, "baseline_nll"},
		       {&v->rows, "rows"},
		       {&v->substituted, "substituted_mass"},
		       {&v->dropped, "dropped_mass"}};

	GM_TRY(gm_report_stats_need(sheet, "trace", "--per-token file of emulate", err));
	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
		GM_TRY(gm_report_stats_need(sheet, columns[i].name, "--per-token file of emulate", err));
	GM_TRY(gm_tokens_make(&v->tokens, sheet, err));
	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++)
		if (!(*columns[i].values = gm_sheet_numbers(sheet, columns[i].name, err)))
			return err->code;
	v->since = gm_alloc(sheet->n_row, sizeof(*v->since), err);
	return v->since ? GM_OK : GM_ERR_MEMORY;
}

static int find_texts(struct view *v, struct gm_error *err)
{
	const struct gm_sheet *sheet = v->tokens.sheet;
	const double *sequence = v->tokens.sequence;

	v->text = gm_alloc(sheet->n_row, sizeof(*v->text), err);
	if (!v->text)
		return GM_ERR_MEMORY;
	/* Every policy has the same tokens, and texts rise. */
	for (size_t row = 0, to = gm_tokens_end(&v->tokens, 0); row < to; row++) {
		if (!(sequence[row] < (double)sheet->n_row) || sequence[row] != floor(sequence[row]))
			return gm_sheet_fail(sheet, row, gm_sheet_find(sheet, "sequence"), "no number of a sequence",
					     "whole numbers from 0, without large gaps", err);
		if (row == 0 || sequence[row] != sequence[row - 1])
			v->text[(size_t)sequence[row]] = v->n_sequence++;
	}
	return GM_OK;
}

static void add_token(const struct view *v, struct profile *p, size_t row, enum place place, long distance)
{
	size_t bin = N_BIN - 1;
	struct cell *cell;

	while (bin_start[bin] > distance)
		bin--;
	cell = &p->cell[v->text[(size_t)v->tokens.sequence[row]]][place][bin];
	cell->tokens++;
	if (!isnan(v->nll[row]) && !isnan(v->baseline[row])) {
		cell->d += v->nll[row] - v->baseline[row];
		cell->n++;
	}
	/* Without rows there is no mass to lose; what is not known leaves the sum unknown. */
	if (v->rows[row] != 0) {
		cell->rows += v->rows[row];
		cell->lost += v->rows[row] * (v->substituted[row] + v->dropped[row]);
	}
}

/* The rows from..to-1 are a policy's tokens in order. */
static void add_rows(struct view *v, struct profile *p, size_t from, size_t to)
{
	bool goes_on = false; /* with the topic of the text before */
	size_t start = from;

	v->n_switch = gm_switches_find(&v->tokens, from, to, v->since);
	for (size_t row = from; row < to; row++) {
		if (row > from && v->tokens.sequence[row] != v->tokens.sequence[row - 1]) {
			goes_on = v->since[row - from] != 0;
			start = row;
		}
		if (v->since[row - from] >= 0)
			add_token(v, p, row, AFTER_SWITCH, v->since[row - from]);
		if (goes_on)
			add_token(v, p, row, SAME_TOPIC, (long)(row - start));
	}
}

/* Are they the tokens of the texts that the result is of? */
static int check_run(const struct view *v, size_t point, size_t from, size_t to, struct gm_error *err)
{
	const struct gm_sheet *sheet = v->tokens.sheet;
	double n = 0, nll = 0;

	for (size_t row = from; row < to; row++) {
		if (!isnan(v->nll[row]) != !isnan(v->baseline[row]))
			return gm_sheet_fail(sheet, row, gm_sheet_find(sheet, "baseline_nll"), "nothing to compare with",
					     "a number where nll has one", err);
		if (isnan(v->nll[row]))
			continue;
		n++;
		nll += v->nll[row];
	}
	return gm_report_stats_check_sum(v->stats, point, n, nll, gm_sheet_file_name(sheet, from), err);
}

static int add_profile(struct view *v, size_t point, size_t from, size_t to, struct gm_error *err)
{
	struct profile *p;

	GM_GROW(v->profile, v->n_profile + 1, err);
	p = &v->profile[v->n_profile];
	*p = (struct profile){point, gm_alloc(v->n_sequence, sizeof(*p->cell), err)};
	if (!p->cell)
		return GM_ERR_MEMORY;
	v->n_profile++;
	add_rows(v, p, from, to);
	return GM_OK;
}

static int read_profiles(struct view *v, struct gm_error *err)
{
	const struct gm_sheet *sheet = v->tokens.sheet;
	const struct gm_results *results = &v->stats->study->results;

	for (size_t from = 0, to; from < sheet->n_row; from = to) {
		to = gm_tokens_end(&v->tokens, from);
		const size_t point = gm_results_find(results, gm_sheet_text(sheet, from, v->tokens.trace),
						     gm_sheet_text(sheet, from, v->tokens.settings));

		if (point == GM_NO_POINT)
			continue;
		if (v->n_profile > 0 && results->point[point].scene != results->point[v->profile[0].point].scene)
			return gm_fail(err, GM_ERR_UNSUPPORTED, "more than one model or set of texts: %s: one at a time",
				       sheet->file[0].name);
		GM_TRY(check_run(v, point, from, to, err));
		if (strcmp(gm_report_stats_cell(v->stats, point, "miss"), "none") != 0)
			GM_TRY(add_profile(v, point, from, to, err));
	}
	if (v->n_profile == 0)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "no result for its rows: %s: give the file that --csv of the same run wrote, too",
			       sheet->file[0].name);
	return GM_OK;
}

/* --- measuring --- */

enum { CHANGE, MASS, N_MEASURE };
enum contrast { NEAR_LATER, NEAR_SAME, N_CONTRAST };
#define N_VALUE (N_PLACE * N_BIN * N_MEASURE + N_CONTRAST)

static const char *const contrast_names[N_CONTRAST] = {"first 64 less later", "first 64 less same topic's first 64"};

static void add_cell(struct cell *sum, const struct cell *cell, double sign)
{
	sum->d += sign * cell->d;
	sum->lost += sign * cell->lost;
	if (sign > 0) {
		sum->n += cell->n;
		sum->rows += cell->rows;
		sum->tokens += cell->tokens;
	}
}

/* Mean difference in negative log-likelihood, over bins from..to-1. */
static double mean_d(const struct cell *bins, size_t from, size_t to)
{
	double d = 0, n = 0;

	for (size_t b = from; b < to; b++) {
		d += bins[b].d;
		n += bins[b].n;
	}
	return n > 0 ? d / n : (double)NAN;
}

static void sum_cells(const struct profile *p, const size_t *unit, size_t n, struct cell sum[N_PLACE][N_BIN])
{
	memset(sum, 0, N_PLACE * sizeof(*sum));
	for (size_t i = 0; i < n; i++)
		for (size_t place = 0; place < N_PLACE; place++)
			for (size_t b = 0; b < N_BIN; b++)
				add_cell(&sum[place][b], &p->cell[unit[i]][place][b], 1);
}

static void measure(void *data, const size_t *unit, size_t n, double *value)
{
	struct cell sum[N_PLACE][N_BIN];

	sum_cells(data, unit, n, sum);
	for (size_t place = 0; place < N_PLACE; place++)
		for (size_t b = 0; b < N_BIN; b++) {
			const struct cell *cell = &sum[place][b];

			*value++ = 100 * expm1(mean_d(cell, 0, 1));
			*value++ = cell->lost / cell->rows; /* NaN without rows */
		}
	const double near = mean_d(sum[AFTER_SWITCH], 0, NEAR_BINS);
	*value++ = near - mean_d(sum[AFTER_SWITCH], NEAR_BINS, N_BIN);
	*value = near - mean_d(sum[SAME_TOPIC], 0, NEAR_BINS);
}

/* What `with` did less what `without` did. Both ran the same tokens, or there is nothing to compare. */
static int subtract(struct view *v, const struct profile *with, const struct profile *without, struct gm_error *err)
{
	v->difference.point = with->point;
	for (size_t s = 0; s < v->n_sequence; s++)
		for (size_t place = 0; place < N_PLACE; place++)
			for (size_t b = 0; b < N_BIN; b++) {
				struct cell *cell = &v->difference.cell[s][place][b];

				if (with->cell[s][place][b].n != without->cell[s][place][b].n)
					return gm_fail(
						err, GM_ERR_UNSUPPORTED,
						"not the same tokens: %s: sequence %zu of %s and of %s: give whole files "
						"of one warm-up",
						v->tokens.sheet->file[0].name, s,
						gm_point_policy(&v->stats->study->results, with->point),
						gm_point_policy(&v->stats->study->results, without->point));
				*cell = (struct cell){0};
				add_cell(cell, &with->cell[s][place][b], 1);
				add_cell(cell, &without->cell[s][place][b], -1);
			}
	return GM_OK;
}

/* --- tables --- */

struct tables {
	struct gm_report_stats_table distance, contrast;
};

static int put_against(const struct view *v, struct gm_report_stats_table *t, size_t against, struct gm_error *err)
{
	if (against != GM_NO_POINT)
		return gm_report_stats_put_against(t, &v->stats->study->results, against, err);
	GM_TRY(gm_sheet_put(&t->sheet, "baseline", err));
	return gm_sheet_put(&t->sheet, NULL, err);
}

static int put_bin(struct gm_report_stats_table *t, const struct cell *cell, size_t b, struct gm_error *err)
{
	char range[64];

	if (b == N_BIN - 1)
		snprintf(range, sizeof(range), "%ld on", bin_start[b]);
	else
		snprintf(range, sizeof(range), "%ld to %ld", bin_start[b], bin_start[b + 1] - 1);
	GM_TRY(gm_sheet_put(&t->sheet, range, err));
	GM_TRY(gm_sheet_put_number(&t->sheet, (double)bin_start[b], err));
	return gm_sheet_put_number(&t->sheet, cell->tokens, err);
}

static int put_profile(const struct view *v, struct tables *t, struct profile *p, size_t against, struct gm_error *err)
{
	const struct gm_results *results = &v->stats->study->results;
	struct gm_estimate estimate[N_VALUE], *e = estimate;

	GM_TRY(gm_bootstrap_run(&v->stats->bootstrap, v->n_sequence, measure, p, N_VALUE, estimate, err));
	for (size_t place = 0; place < N_PLACE; place++)
		for (size_t b = 0; b < N_BIN; b++, e += N_MEASURE) {
			struct cell all = {0};

			for (size_t s = 0; s < v->n_sequence; s++)
				add_cell(&all, &p->cell[s][place][b], 1);
			if (all.tokens == 0)
				continue;
			GM_TRY(gm_report_stats_row(&t->distance, results, p->point, err));
			GM_TRY(put_against(v, &t->distance, against, err));
			GM_TRY(gm_sheet_put(&t->distance.sheet, place_names[place], err));
			GM_TRY(put_bin(&t->distance, &all, b, err));
			GM_TRY(gm_report_stats_put_estimate(&t->distance, &e[MASS], err));
			GM_TRY(gm_report_stats_put_estimate(&t->distance, &e[CHANGE], err));
		}
	for (int c = 0; c < N_CONTRAST; c++, e++) {
		if (isnan(e->value))
			continue;
		GM_TRY(gm_report_stats_row(&t->contrast, results, p->point, err));
		GM_TRY(put_against(v, &t->contrast, against, err));
		GM_TRY(gm_sheet_put(&t->contrast.sheet, contrast_names[c], err));
		GM_TRY(gm_report_stats_put_estimate(&t->contrast, e, err));
	}
	return GM_OK;
}

static int begin_tables(struct tables *t, struct gm_error *err)
{
	static const char *const distance[] = {"against",
					       "against_hash",
					       "place",
					       "distance",
					       "from_token",
					       "n_token",
					       "lost_mass\xc2\xb1",
					       "perplexity_change_pct\xc2\xb1",
					       NULL};
	static const char *const contrast[] = {"against", "against_hash", "contrast", "nll_difference\xc2\xb1", NULL};

	GM_TRY(gm_report_stats_begin(&t->distance, "switch", distance, err));
	return gm_report_stats_begin(&t->contrast, "switch_contrast", contrast, err);
}

static int end_tables(struct gm_report_stats *stats, struct tables *t, size_t n_switch, struct gm_error *err)
{
	static const char *const distance[] = {
		"policy", "against", "cache", "place", "distance", "n_token", "lost_mass", "perplexity_change_pct", NULL};
	static const char *const contrast[] = {"policy", "against", "cache", "contrast", "nll_difference", NULL};
	char title[160];

	snprintf(title, sizeof(title),
		 "By tokens since the last of %zu topic switches, and since the beginning of texts without one", n_switch);
	GM_TRY(gm_report_stats_end(stats, &t->distance, title, distance, err));
	return gm_report_stats_end(stats, &t->contrast, "Is it more right after a switch? Difference of mean NLL changes",
				   contrast, err);
}

static int put_all(struct view *v, struct tables *t, struct gm_error *err)
{
	GM_TRY(begin_tables(t, err));
	for (size_t k = 0; k < v->n_profile; k++)
		if (!(v->stats->study->results.point[v->profile[k].point].lost_mass <= 0))
			GM_TRY(put_profile(v, t, &v->profile[k], GM_NO_POINT, err));
	for (size_t k = 0; k < v->n_profile; k++)
		for (size_t j = 0; j < v->n_profile; j++) {
			const struct profile *with = &v->profile[k], *without = &v->profile[j];

			if (strncmp(gm_report_stats_cell(v->stats, with->point, "admit"), "background", 10) != 0 ||
			    strcmp(gm_report_stats_cell(v->stats, without->point, "admit"), "fetch") != 0 ||
			    !gm_report_stats_same_but(v->stats, with->point, without->point, "admit"))
				continue;
			GM_TRY(subtract(v, with, without, err));
			GM_TRY(put_profile(v, t, &v->difference, without->point, err));
		}
	return GM_OK;
}

static int make(struct view *v, struct gm_report_stats *stats, struct tables *t, struct gm_error *err)
{
	GM_TRY(read_columns(v, &stats->study->inputs.sheet[GM_INPUT_TOKENS], err));
	GM_TRY(gm_tokens_check(&v->tokens, err));
	GM_TRY(find_texts(v, err));
	stats->n_text = v->n_sequence;
	GM_TRY(read_profiles(v, err));
	v->difference.cell = gm_alloc(v->n_sequence, sizeof(*v->difference.cell), err);
	if (!v->difference.cell)
		return GM_ERR_MEMORY;
	GM_TRY(put_all(v, t, err));
	return end_tables(stats, t, v->n_switch, err);
}

int gm_report_stats_switch(struct gm_report_stats *stats, struct gm_error *err)
{
	struct view view = {.stats = stats};
	struct tables tables = {0};
	int status = make(&view, stats, &tables, err);

	gm_sheet_free(&tables.distance.sheet);
	gm_sheet_free(&tables.contrast.sheet);
	gm_tokens_free(&view.tokens);
	free(view.nll);
	free(view.baseline);
	free(view.rows);
	free(view.substituted);
	free(view.dropped);
	free(view.since);
	free(view.text);
	for (size_t k = 0; k < view.n_profile; k++)
		free(view.profile[k].cell);
	free(view.profile);
	free(view.difference.cell);
	return status;
}
