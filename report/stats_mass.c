/* Does lost gate mass tell the perplexity? Over policies on the same texts, and over texts under one policy. */
#include "report/correlation.h"
#include "report/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIN_POLICIES 4 /* of fewer, a correlation says nothing */

/* Miss rules that fetch the router's first choice whatever its weight (docs/semantics.md). */
static bool fetches_first_choices(const char *miss)
{
	static const char *const rules[] = {"threshold:", "first-choice", "drop:"};

	for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
		if (strncmp(miss, rules[i], strlen(rules[i])) == 0)
			return true;
	return false;
}

struct view {
	const struct gm_scores *scores;
	size_t *policy; /* [n] those that are looked at */
	size_t n;
	double *x, *y, *rank; /* [n], [n], [2 n]: n policies, or texts */
	size_t *order;        /* [n] */
};

static int begin(struct view *v, const struct gm_scores *s, struct gm_error *err)
{
	const size_t most = s->n_policy > s->n_sequence ? s->n_policy : s->n_sequence;

	*v = (struct view){
		.scores = s,
		.policy = gm_alloc(s->n_policy, sizeof(*v->policy), err),
		.x = gm_alloc(most, sizeof(*v->x), err),
		.y = gm_alloc(most, sizeof(*v->y), err),
		.rank = gm_alloc(2 * most, sizeof(*v->rank), err),
		.order = gm_alloc(most, sizeof(*v->order), err),
	};
	return v->policy && v->x && v->y && v->rank && v->order ? GM_OK : GM_ERR_MEMORY;
}

static void end(struct view *v)
{
	free(v->policy);
	free(v->x);
	free(v->y);
	free(v->rank);
	free(v->order);
}

static void correlate(struct view *v, size_t n, double *value)
{
	value[0] = gm_pearson(v->x, v->y, n);
	value[1] = gm_spearman(v->x, v->y, n, v->order, v->rank);
}

/* Perplexity change in percent from sums over n tokens: negative log-likelihood less the baseline's (d), and the baseline's. What is rounding
 * of the sums is none: it would be ranked. */
static double change(double d, double baseline, double n)
{
	return fabs(d) <= 1e-12 * baseline ? 0 : 100 * expm1(d / n);
}

/* A value of each policy, over the texts that were drawn. */
static void over_policies(void *data, const size_t *unit, size_t n_unit, double *value)
{
	struct view *v = data;
	const struct gm_scores *s = v->scores;

	for (size_t k = 0; k < v->n; k++) {
		const size_t at = v->policy[k] * s->n_sequence, base = s->baseline[v->policy[k]] * s->n_sequence;
		double lost = 0, rows = 0, d = 0, baseline = 0, n = 0;

		for (size_t i = 0; i < n_unit; i++) {
			lost += s->lost[at + unit[i]];
			rows += s->rows[at + unit[i]];
			d += s->nll[at + unit[i]] - s->nll[base + unit[i]];
			baseline += s->nll[base + unit[i]];
			n += s->n[at + unit[i]];
		}
		v->x[k] = lost / rows;
		v->y[k] = change(d, baseline, n);
	}
	correlate(v, v->n, value);
}

/* A value of each text, under one policy. */
static void over_texts(void *data, const size_t *unit, size_t n_unit, double *value)
{
	struct view *v = data;
	const struct gm_scores *s = v->scores;
	const size_t at = v->policy[0] * s->n_sequence, base = s->baseline[v->policy[0]] * s->n_sequence;
	size_t n = 0;

	for (size_t i = 0; i < n_unit; i++) {
		const size_t text = unit[i];

		if (!(s->n[at + text] > 0) || s->rows[at + text] == 0)
			continue;
		v->x[n] = s->lost[at + text] / s->rows[at + text];
		v->y[n++] = change(s->nll[at + text] - s->nll[base + text], s->nll[base + text], s->n[at + text]);
	}
	correlate(v, n, value);
}

/* So may one whose mass is not known: that leaves the correlations it belongs to unknown, too. */
static bool loses_mass(const struct gm_scores *s, size_t policy)
{
	return !(s->results->point[s->point[policy]].lost_mass <= 0);
}

enum group { ALL, FIRST_FETCHED, FIRST_NOT_FETCHED, N_GROUP };
static const char *const group_names[N_GROUP] = {"all that lose mass", "first choices always fetched",
						 "first choices may be lost"};

/* like: a policy with the cache that is meant, or GM_NO_POINT: all caches. */
static void choose(struct view *v, const struct gm_report_stats *stats, enum group group, size_t like)
{
	const struct gm_scores *s = v->scores;

	v->n = 0;
	for (size_t p = 0; p < s->n_policy; p++) {
		bool first = fetches_first_choices(gm_report_stats_cell(stats, s->point[p], "miss"));

		if (loses_mass(s, p) &&
		    (like == GM_NO_POINT || gm_report_stats_same_cache(stats, s->point[p], s->point[like])) &&
		    (group == ALL || first == (group == FIRST_FETCHED)))
			v->policy[v->n++] = p;
	}
}

/* The caches of policies that lose mass, in order of size; a policy stands for each. */
struct caches {
	size_t *like; /* [n] */
	size_t n;
};

static void find_caches(struct caches *c, const struct gm_report_stats *stats)
{
	const struct gm_scores *s = stats->scores;
	const struct gm_point *point = s->results->point;

	for (size_t p = 0; p < s->n_policy; p++) {
		bool known = !loses_mass(s, p);
		size_t at;

		for (size_t i = 0; i < c->n && !known; i++)
			known = gm_report_stats_same_cache(stats, s->point[p], s->point[c->like[i]]);
		if (known)
			continue;
		for (at = c->n++;
		     at > 0 && point[s->point[c->like[at - 1]]].cache_fraction > point[s->point[p]].cache_fraction; at--)
			c->like[at] = c->like[at - 1];
		c->like[at] = p;
	}
}

/* The size as it is shown elsewhere; where another cache would look the same, also what tells them apart. */
static void cache_name(const struct caches *c, const struct gm_report_stats *stats, size_t like, char *name, size_t size)
{
	const struct gm_scores *s = stats->scores;
	const size_t point = s->point[like];
	const char *label = gm_point_cache(s->results, point);
	bool alone = true;

	for (size_t i = 0; i < c->n && alone; i++)
		alone = c->like[i] == like || strcmp(gm_point_cache(s->results, s->point[c->like[i]]), label) != 0;
	if (alone)
		snprintf(name, size, "%s", label);
	else
		snprintf(name, size, "%s, %s slots, %s", label, gm_report_stats_cell(stats, point, "cache_slots"),
			 gm_report_stats_cell(stats, point, "cache_scope"));
}

static int put_group(struct view *v, const struct gm_report_stats *stats, struct gm_report_stats_table *t, enum group group,
		     const struct caches *caches, size_t like, struct gm_error *err)
{
	const struct gm_results *r = v->scores->results;
	struct gm_estimate estimate[2];
	char name[128] = "all";

	choose(v, stats, group, like);
	if (v->n < MIN_POLICIES)
		return GM_OK;
	if (like != GM_NO_POINT)
		cache_name(caches, stats, like, name, sizeof(name));
	GM_TRY(gm_bootstrap_run(&stats->bootstrap, v->scores->n_sequence, over_policies, v, 2, estimate, err));
	GM_TRY(gm_report_stats_row(t, r, GM_NO_POINT, err));
	GM_TRY(gm_sheet_put(&t->sheet, group_names[group], err));
	GM_TRY(gm_sheet_put(&t->sheet, name, err));
	GM_TRY(gm_sheet_put_number(&t->sheet, (double)v->n, err));
	GM_TRY(gm_report_stats_put_estimate(t, &estimate[0], err));
	return gm_report_stats_put_estimate(t, &estimate[1], err);
}

static int put_groups(struct view *v, const struct gm_report_stats *stats, struct gm_report_stats_table *t,
		      struct gm_error *err)
{
	struct caches caches = {gm_alloc(v->scores->n_policy, sizeof(*caches.like), err), 0};
	int status = caches.like ? GM_OK : GM_ERR_MEMORY;

	if (status == GM_OK)
		find_caches(&caches, stats);
	for (int group = 0; group < N_GROUP; group++)
		for (size_t i = 0; i <= caches.n && status == GM_OK; i++)
			status = put_group(v, stats, t, (enum group)group, &caches,
					   i == caches.n ? GM_NO_POINT : caches.like[i], err);
	free(caches.like);
	return status;
}

static int make_policies(struct view *v, struct gm_report_stats *stats, struct gm_report_stats_table *t,
			 struct gm_error *err)
{
	static const char *const columns[] = {"group",           "group_cache",      "n_policy",
					      "pearson\xc2\xb1", "spearman\xc2\xb1", NULL};
	static const char *const shown[] = {"group", "group_cache", "n_policy", "pearson", "spearman", NULL};

	GM_TRY(gm_report_stats_begin(t, "mass_policies", columns, err));
	GM_TRY(put_groups(v, stats, t, err));
	return gm_report_stats_end(stats, t, "Lost mass and perplexity change, over policies on the same texts", shown,
				   err);
}

static int make_texts(struct view *v, struct gm_report_stats *stats, struct gm_report_stats_table *t, struct gm_error *err)
{
	static const char *const columns[] = {"n_sequence", "pearson\xc2\xb1", "spearman\xc2\xb1", NULL};
	static const char *const shown[] = {"policy", "cache", "n_sequence", "pearson", "spearman", NULL};
	const struct gm_scores *s = v->scores;
	double texts = 0;

	for (size_t i = 0; i < s->n_sequence; i++)
		texts += s->n[i] > 0;
	GM_TRY(gm_report_stats_begin(t, "mass_texts", columns, err));
	for (size_t p = 0; p < s->n_policy && texts >= MIN_POLICIES; p++) {
		struct gm_estimate estimate[2];

		if (!loses_mass(s, p))
			continue;
		v->policy[0] = p;
		GM_TRY(gm_bootstrap_run(&stats->bootstrap, s->n_sequence, over_texts, v, 2, estimate, err));
		GM_TRY(gm_report_stats_row(t, s->results, s->point[p], err));
		GM_TRY(gm_sheet_put_number(&t->sheet, texts, err));
		GM_TRY(gm_report_stats_put_estimate(t, &estimate[0], err));
		GM_TRY(gm_report_stats_put_estimate(t, &estimate[1], err));
	}
	return gm_report_stats_end(stats, t, "Lost mass and perplexity change, over the texts under one policy", shown,
				   err);
}

int gm_report_stats_mass(struct gm_report_stats *stats, struct gm_error *err)
{
	struct gm_report_stats_table t = {0};
	struct view view;
	int status = begin(&view, stats->scores, err);

	if (status == GM_OK)
		status = make_policies(&view, stats, &t, err);
	gm_sheet_free(&t.sheet);
	if (status == GM_OK)
		status = make_texts(&view, stats, &t, err);
	gm_sheet_free(&t.sheet);
	end(&view);
	return status;
}
