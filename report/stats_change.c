/* How much worse than the model as it is, and than each other? */
#include "report/stats.h"

#include <math.h>
#include <stdlib.h>

#define MAX_SHOWN_PAIRS 100

static int put_mean(struct gm_report_stats_table *t, const struct gm_report_stats *stats, const char *column, size_t point,
		    struct gm_error *err)
{
	return gm_sheet_put(&t->sheet, gm_report_stats_cell(stats, point, column), err);
}

static int put_changes(const struct gm_report_stats *stats, struct gm_report_stats_table *t, struct gm_error *err)
{
	static const char *const columns[] = {"n_sequence",
					      "n_scored",
					      "hit_rate",
					      "substituted_rate",
					      "lost_mass",
					      "perplexity",
					      "perplexity_change_pct\xc2\xb1",
					      NULL};
	const struct gm_scores *s = stats->scores;

	GM_TRY(gm_report_stats_begin(t, "change", columns, err));
	for (size_t p = 0; p < s->n_policy; p++) {
		struct gm_estimate change;
		double texts = 0, tokens = 0;

		if (gm_scores_is_baseline(s, p))
			continue;
		for (size_t i = 0; i < s->n_sequence; i++) {
			texts += s->n[i] > 0;
			tokens += s->n[i];
		}
		GM_TRY(gm_report_stats_compare(stats, p, s->baseline[p], &change, err));
		GM_TRY(gm_report_stats_row(t, s->results, s->point[p], err));
		GM_TRY(gm_sheet_put_number(&t->sheet, texts, err));
		GM_TRY(gm_sheet_put_number(&t->sheet, tokens, err));
		GM_TRY(put_mean(t, stats, "hit_rate", s->point[p], err));
		GM_TRY(put_mean(t, stats, "substituted_rate", s->point[p], err));
		GM_TRY(gm_sheet_put_number(&t->sheet, s->results->point[s->point[p]].lost_mass, err));
		GM_TRY(put_mean(t, stats, "perplexity", s->point[p], err));
		GM_TRY(gm_report_stats_put_estimate(t, &change, err));
	}
	return GM_OK;
}

static bool is_pair(const struct gm_report_stats *stats, size_t a, size_t b)
{
	const struct gm_scores *s = stats->scores;

	return !gm_scores_is_baseline(s, a) && !gm_scores_is_baseline(s, b) &&
	       gm_report_stats_same_cache(stats, s->point[a], s->point[b]);
}

static int put_pairs(const struct gm_report_stats *stats, struct gm_report_stats_table *t, struct gm_error *err)
{
	static const char *const columns[] = {"against", "against_hash", "perplexity_change_pct\xc2\xb1", NULL};
	const struct gm_scores *s = stats->scores;

	GM_TRY(gm_report_stats_begin(t, "pair", columns, err));
	for (size_t b = 0; b < s->n_policy; b++)
		for (size_t a = b + 1; a < s->n_policy; a++) {
			struct gm_estimate change;

			if (!is_pair(stats, a, b))
				continue;
			GM_TRY(gm_report_stats_compare(stats, a, b, &change, err));
			GM_TRY(gm_report_stats_row(t, s->results, s->point[a], err));
			GM_TRY(gm_report_stats_put_against(t, s->results, s->point[b], err));
			GM_TRY(gm_report_stats_put_estimate(t, &change, err));
		}
	return GM_OK;
}

static int show_pairs(struct gm_report_stats *stats, struct gm_report_stats_table *t, struct gm_error *err)
{
	static const char *const shown[] = {"policy", "against", "cache", "perplexity_change_pct", NULL};

	if (t->sheet.n_row <= MAX_SHOWN_PAIRS)
		return gm_report_stats_end(stats, t, "Policy against policy at the same cache size", shown, err);
	fprintf(stats->out, "\nPolicy against policy: %zu pairs, too many to show; --csv has them\n", t->sheet.n_row);
	return gm_sheet_append(&stats->all, &t->sheet, err);
}

int gm_report_stats_change(struct gm_report_stats *stats, struct gm_error *err)
{
	static const char *const shown[] = {
		"policy", "cache", "substituted_rate", "lost_mass", "perplexity", "perplexity_change_pct", NULL};
	struct gm_report_stats_table t;
	int status = put_changes(stats, &t, err);

	if (status == GM_OK)
		status = gm_report_stats_end(stats, &t, "Perplexity against the baseline", shown, err);
	gm_sheet_free(&t.sheet);
	GM_TRY(status);
	status = put_pairs(stats, &t, err);
	if (status == GM_OK)
		status = show_pairs(stats, &t, err);
	gm_sheet_free(&t.sheet);
	return status;
}
