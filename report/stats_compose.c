/* The same mass, made up otherwise (the paper's Experiment B): rules compose:heavy|light|random:MASS that differ in nothing but the order.
 * That they did lose the same mass is checked, not assumed. */
#include "report/stats.h"

#include "base/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 0.02 /* of the target: by how much a mass may be off, and two masses apart */

/* "compose:heavy:0.05". False for other rules. */
static bool read_rule(const char *miss, double *mass, const char **rest)
{
	static const char prefix[] = "compose:";

	if (strncmp(miss, prefix, strlen(prefix)) != 0)
		return false;
	*rest = strchr(miss + strlen(prefix), ':');
	return *rest && gm_parse_double(*rest + 1, "", mass, NULL) == GM_OK && *mass > 0;
}

struct mass_view {
	const struct gm_scores *scores;
	size_t policy, other; /* other GM_NO_POINT: none */
};

static double mean_mass(const struct gm_scores *s, size_t policy, const size_t *unit, size_t n)
{
	double lost = 0, rows = 0;

	for (size_t i = 0; i < n; i++) {
		lost += s->lost[policy * s->n_sequence + unit[i]];
		rows += s->rows[policy * s->n_sequence + unit[i]];
	}
	return lost / rows;
}

/* Mean mass of a row, less that of the other policy. */
static void measure_mass(void *data, const size_t *unit, size_t n, double *value)
{
	const struct mass_view *v = data;

	*value = mean_mass(v->scores, v->policy, unit, n);
	if (v->other != GM_NO_POINT)
		*value -= mean_mass(v->scores, v->other, unit, n);
}

/* Is a mass what it should be, within the tolerance? Of one that is not known nothing can be said: NULL. */
static const char *verdict(double off, double target)
{
	return isnan(off) ? NULL : fabs(off) <= TOLERANCE * target ? "yes" : "no";
}

static int put_one(const struct gm_report_stats *stats, struct gm_report_stats_table *t, size_t p, double target,
		   struct gm_error *err)
{
	const struct gm_scores *s = stats->scores;
	struct mass_view view = {s, p, GM_NO_POINT};
	struct gm_estimate change, mass;

	GM_TRY(gm_report_stats_compare(stats, p, s->baseline[p], &change, err));
	GM_TRY(gm_bootstrap_run(&stats->bootstrap, s->n_sequence, measure_mass, &view, 1, &mass, err));
	GM_TRY(gm_report_stats_row(t, s->results, s->point[p], err));
	GM_TRY(gm_sheet_put_number(&t->sheet, target, err));
	GM_TRY(gm_report_stats_put_estimate(t, &mass, err));
	GM_TRY(gm_sheet_put(&t->sheet, verdict(mass.value - target, target), err));
	GM_TRY(gm_sheet_put(&t->sheet, gm_report_stats_cell(stats, s->point[p], "substituted_rate"), err));
	return gm_report_stats_put_estimate(t, &change, err);
}

static int make_ones(struct gm_report_stats *stats, struct gm_report_stats_table *t, struct gm_error *err)
{
	static const char *const columns[] = {
		"target_mass", "lost_mass\xc2\xb1", "reached", "substituted_rate", "perplexity_change_pct\xc2\xb1", NULL};
	static const char *const shown[] = {
		"policy", "cache", "target_mass", "lost_mass", "reached", "substituted_rate", "perplexity_change_pct",
		NULL};
	const struct gm_scores *s = stats->scores;
	const char *rest;
	double target;

	GM_TRY(gm_report_stats_begin(t, "compose", columns, err));
	for (size_t p = 0; p < s->n_policy; p++)
		if (read_rule(gm_report_stats_cell(stats, s->point[p], "miss"), &target, &rest))
			GM_TRY(put_one(stats, t, p, target, err));
	return gm_report_stats_end(stats, t, "The same mass, made up otherwise: was it reached (within 2 %)?", shown, err);
}

/* Two rules of one mass and equal settings. */
static bool is_pair(const struct gm_report_stats *stats, size_t a, size_t b, double *target)
{
	const struct gm_scores *s = stats->scores;
	const char *rest, *other_rest;
	double other;

	return read_rule(gm_report_stats_cell(stats, s->point[a], "miss"), target, &rest) &&
	       read_rule(gm_report_stats_cell(stats, s->point[b], "miss"), &other, &other_rest) && *target == other &&
	       gm_report_stats_same_but(stats, s->point[a], s->point[b], "miss");
}

static int put_pair(const struct gm_report_stats *stats, struct gm_report_stats_table *t, size_t a, size_t b, double target,
		    struct gm_error *err)
{
	const struct gm_scores *s = stats->scores;
	struct mass_view view = {s, a, b};
	struct gm_estimate change, mass;

	GM_TRY(gm_report_stats_compare(stats, a, b, &change, err));
	GM_TRY(gm_bootstrap_run(&stats->bootstrap, s->n_sequence, measure_mass, &view, 1, &mass, err));
	GM_TRY(gm_report_stats_row(t, s->results, s->point[a], err));
	GM_TRY(gm_report_stats_put_against(t, s->results, s->point[b], err));
	GM_TRY(gm_sheet_put_number(&t->sheet, target, err));
	GM_TRY(gm_report_stats_put_estimate(t, &mass, err));
	GM_TRY(gm_sheet_put(&t->sheet, verdict(mass.value, target), err));
	return gm_report_stats_put_estimate(t, &change, err);
}

static double share(const struct gm_report_stats *stats, size_t policy)
{
	const char *text = gm_report_stats_cell(stats, stats->scores->point[policy], "substituted_rate");
	double value;

	return gm_parse_double(text, "", &value, NULL) == GM_OK ? value : (double)NAN;
}

static int make_pairs(struct gm_report_stats *stats, struct gm_report_stats_table *t, struct gm_error *err)
{
	static const char *const columns[] = {"against",     "against_hash",
					      "target_mass", "mass_difference\xc2\xb1",
					      "equal",       "perplexity_change_pct\xc2\xb1",
					      NULL};
	static const char *const shown[] = {
		"policy", "against", "cache", "mass_difference", "equal", "perplexity_change_pct", NULL};
	const struct gm_scores *s = stats->scores;
	double target;

	GM_TRY(gm_report_stats_begin(t, "compose_pair", columns, err));
	for (size_t a = 0; a < s->n_policy; a++)
		for (size_t b = 0; b < s->n_policy; b++)
			/* The one with fewer, heavier substitutions stands first. */
			if (a != b && is_pair(stats, a, b, &target) && share(stats, a) < share(stats, b))
				GM_TRY(put_pair(stats, t, a, b, target, err));
	return gm_report_stats_end(stats, t, "Fewer, heavier substitutions against more, lighter ones of the same mass",
				   shown, err);
}

int gm_report_stats_compose(struct gm_report_stats *stats, struct gm_error *err)
{
	struct gm_report_stats_table t = {0};
	int status = make_ones(stats, &t, err);

	gm_sheet_free(&t.sheet);
	if (status == GM_OK)
		status = make_pairs(stats, &t, err);
	gm_sheet_free(&t.sheet);
	return status;
}
