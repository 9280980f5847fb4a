/* The points of a grid (see emulate.h). */
#include "emulate/emulate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- refusals --- */

static bool needs_token_order(const struct gm_settings *s)
{
	return ((s->evict.ops->info.flags | s->miss.ops->info.flags | s->admit.ops->info.flags) & GM_NEEDS_TOKEN_ORDER) !=
	       0;
}

int gm_emulate_check(const struct gm_settings *s, const struct gm_plan *plan, uint32_t n_ubatch, struct gm_error *err)
{
	if (!plan->hw.instant)
		return gm_fail(err, GM_ERR_USAGE,
			       "a time model in an emulation: --hw %.60s: what a copy under way would change depends on "
			       "times that "
			       "an emulated pass does not have; --hw instant",
			       s->profile->name);
	if (s->evict.ops->info.flags & GM_NEEDS_NEXT_USE)
		return gm_fail(err, GM_ERR_USAGE,
			       "a bound needs the future: --evict %s: what the router will choose depends on what is "
			       "substituted now; another policy, or --record and sim run",
			       s->evict.ops->info.name);
	if (s->head_only)
		return gm_fail(err, GM_ERR_USAGE, "nothing is left out of the ranking: --head-only: leave it out");
	if (n_ubatch == 1 || s->prefill == GM_PREFILL_BATCH)
		return GM_OK;
	if (s->scope == GM_SCOPE_GLOBAL)
		return gm_fail(
			err, GM_ERR_USAGE,
			"one pool for all layers: --cache-scope global: a pass of %u tokens meets it layer by layer, "
			"not token by token; --ubatch 1",
			n_ubatch);
	if (needs_token_order(s))
		return gm_fail(err, GM_ERR_USAGE,
			       "a policy that needs one token after the other: a pass of %u tokens comes layer by layer; "
			       "--ubatch 1",
			       n_ubatch);
	return GM_OK;
}

/* --- points --- */

/* Weights that a rule has no use for make no points of their own. */
static size_t n_variants(const struct gm_settings *s, const struct gm_emulate_weights *weights)
{
	size_t n = s->miss.ops->info.flags & GM_NEEDS_RANKING ? weights->n_substitute : 1;

	return s->miss.ops->info.flags & GM_DROPS ? n * weights->n_drop : n;
}

static int hash_point(struct gm_emulate_point *point, struct gm_error *err)
{
	char text[GM_HASH_TEXT + 32];
	bool missed = point->substitutes && point->override.substitute != GM_SUBSTITUTE_OWN;
	bool keep = point->drops && point->override.drop != GM_DROP_RENORMALISE;

	(void)err;
	if (!missed && !keep) { /* the hash that `sim` gives to the same settings */
		memcpy(point->hash, point->plan.hash, sizeof(point->hash));
		return GM_OK;
	}
	snprintf(text, sizeof(text), "%s missed %d keep %d", point->plan.hash, missed, keep);
	gm_hash_format(gm_hash(text, strlen(text)), point->hash);
	return GM_OK;
}

static int make_point(struct gm_emulation *e, struct gm_emulate_point *point, const struct gm_settings *s, size_t variant,
		      struct gm_preloads *preloads, struct gm_error *err)
{
	const struct gm_emulate_weights *weights = &e->options->weights;

	point->settings = s;
	point->twin = (size_t)(point - e->point);
	point->substitutes = (s->miss.ops->info.flags & GM_NEEDS_RANKING) != 0;
	point->drops = (s->miss.ops->info.flags & GM_DROPS) != 0;
	if (point->substitutes) {
		point->override.substitute = weights->substitute[variant % weights->n_substitute];
		variant /= weights->n_substitute;
	}
	if (point->drops)
		point->override.drop = weights->drop[variant];
	int status = gm_plan_make_live(&point->plan, s, gm_hook_model(e->hook), preloads, &point->error);
	if (status == GM_OK)
		status = gm_emulate_check(s, &point->plan, gm_hook_info(e->hook)->n_ubatch, &point->error);
	if (status < 0 && status != GM_ERR_USAGE && status != GM_ERR_UNSUPPORTED)
		return gm_fail(err, status, "%s", point->error.text);
	return hash_point(point, err);
}

/* A baseline for each warm-up of the grid, so that every change is against the same tokens. */
static void add_baseline(struct gm_emulation *e, const uint64_t *warmup)
{
	struct gm_emulate_point *point = &e->point[e->n_baseline];
	char text[64];

	point->twin = e->n_baseline++;
	point->account.warmup = *warmup;
	snprintf(text, sizeof(text), "baseline, warmup %" PRIu64, *warmup);
	gm_hash_format(gm_hash(text, strlen(text)), point->hash);
}

static bool has_baseline(const struct gm_emulation *e, uint64_t warmup)
{
	for (size_t i = 0; i < e->n_baseline; i++)
		if (e->point[i].account.warmup == warmup)
			return true;
	return false;
}

/* Equal points are computed once: the later ones refer to the first. */
static void find_twin(struct gm_emulation *e, size_t i)
{
	for (size_t j = e->n_baseline; j < i; j++)
		if (!e->point[j].error.code && strcmp(e->point[j].hash, e->point[i].hash) == 0) {
			e->point[i].twin = e->point[j].twin;
			return;
		}
}

int gm_emulate_make_points(struct gm_emulation *e, const struct gm_settings *settings, size_t n_settings,
			   struct gm_preloads *preloads, struct gm_error *err)
{
	size_t n = n_settings;

	for (size_t i = 0; i < n_settings; i++)
		n += n_variants(&settings[i], &e->options->weights);
	if (!(e->point = gm_alloc(n, sizeof(*e->point), err)))
		return GM_ERR_MEMORY;
	for (size_t i = 0; i < n_settings; i++)
		if (!has_baseline(e, settings[i].warmup))
			add_baseline(e, &settings[i].warmup);
	e->n_point = e->n_baseline;
	for (size_t i = 0; i < n_settings; i++)
		for (size_t v = 0; v < n_variants(&settings[i], &e->options->weights); v++) {
			struct gm_emulate_point *point = &e->point[e->n_point++];

			GM_TRY(make_point(e, point, &settings[i], v, preloads, err));
			if (!point->error.code)
				find_twin(e, e->n_point - 1);
			e->n_failed += point->error.code != 0;
		}
	return GM_OK;
}
