/* Results for people, on a terminal (see output.h). */
#include "emulate/output.h"

#include <math.h>

/* The lines that differ only in what a policy cannot change would read the same: the weights are told where they say something. */
static void describe(const struct gm_emulate_point *point, char *out, size_t size)
{
	const struct gm_settings *s = point->settings;
	char evict[GM_POLICY_TEXT], miss[GM_POLICY_TEXT], admit[GM_POLICY_TEXT];
	const char *weight = "";

	if (!s) {
		snprintf(out, size, "baseline%s", point->account.warmup ? " past the warm-up" : "");
		return;
	}
	if (point->substitutes && point->override.substitute == GM_SUBSTITUTE_MISSED)
		weight = " missed";
	else if (point->drops && point->override.drop == GM_DROP_KEEP)
		weight = " keep";
	snprintf(out, size, "%s %s %s %s%s", s->cache_text, gm_policy_format(&s->evict.ops->info, s->evict.arg, evict),
		 gm_policy_format(&s->miss.ops->info, s->miss.arg, miss),
		 gm_policy_format(&s->admit.ops->info, s->admit.arg, admit), weight);
}

void gm_emulate_table(FILE *out, const struct gm_emulation *e)
{
	char name[256];

	fprintf(out, "%-48s %10s %9s %7s %7s %7s %7s %9s\n", "cache, eviction, miss rule, admission", "perplexity",
		"change", "hits", "subst.", "mass", "dropped", "fetches");
	for (size_t i = 0; i < e->n_point; i++) {
		const struct gm_emulate_point *point = &e->point[i], *twin = gm_emulation_point(e, i);
		struct gm_tally total;
		struct gm_score score;
		double rows;

		describe(point, name, sizeof(name));
		if (point->error.code) {
			fprintf(out, "%-48s left out\n", name);
			continue;
		}
		gm_account_total(&twin->account, &total, &score);
		fprintf(out, "%-48s %10.4f", name, exp(score.nll / (double)score.n));
		if (point->settings) {
			const struct gm_counters *c = &total.count;

			rows = (double)c->rows;
			fprintf(out, " %+8.2f%% %7.4f %7.4f %7.4f %7.4f %9llu",
				100 * expm1((score.nll - score.baseline_nll) / (double)score.n),
				(double)c->hits / (double)c->accesses,
				(double)c->substitutions / (rows * gm_hook_model(e->hook)->top_k),
				c->substituted_mass / rows, c->dropped_mass / rows, (unsigned long long)c->fetches);
		}
		fputc('\n', out);
	}
}
