/* Emulation: a grid of policies over the same texts, each in a real forward pass. The model is loaded once. Policies that cannot
 * change what the model computes share the baseline's passes; equal points are computed once; every other point runs the texts
 * once.
 */
#ifndef GM_EMULATE_EMULATE_H
#define GM_EMULATE_EMULATE_H

#include "emulate/account.h"
#include "emulate/continuation.h"
#include "emulate/corpus.h"
#include "emulate/override.h"
#include "sim/result.h"

/* What a point asks for beside its settings. */
struct gm_emulate_weights {
	const enum gm_substitute_weight *substitute; /* [n_substitute] */
	size_t n_substitute;
	const enum gm_drop_weight *drop; /* [n_drop] */
	size_t n_drop;
};

struct gm_emulate_options {
	struct gm_emulate_weights weights;
	const char *record;  /* trace of the only point's router logits, NULL: none */
	uint32_t n_generate; /* greedy tokens after each text; 0: score only */
	bool per_token;
	bool quiet; /* no progress */
};

struct gm_emulate_point {
	const struct gm_settings *settings; /* NULL: a baseline, without any policy */
	struct gm_override override;
	bool substitutes, drops; /* what the miss rule may do */
	struct gm_plan plan;
	struct gm_error error;   /* why this point is impossible */
	char hash[GM_HASH_TEXT]; /* of all that can change a result */
	size_t twin;             /* the first point with an equal hash; results are there */
	struct gm_account account;
	struct gm_continuation *continuation; /* [n_sequence] after each text, with n_generate */
};

struct gm_emulation {
	struct gm_hook *hook;
	const struct gm_corpus *corpus;
	const struct gm_emulate_options *options;
	struct gm_emulate_point *point; /* [n_point] baselines first, one for each warm-up, then the grid's */
	size_t n_point, n_baseline, n_failed;
	float *baseline;         /* [corpus->n_token] log-probability without a policy */
	struct gm_spool *tokens; /* struct gm_account_token by point; NULL unless asked for */
	/* what it took */
	uint64_t n_pass, n_token, n_run; /* forward passes, their tokens, times that the texts were run */
	uint64_t n_tie;                  /* rows whose near-tie the model broke otherwise than R2 */
	double seconds;
};

/* Runs all points. 0 also where points are impossible (n_failed counts them). What hook, corpus, settings [n_settings] and options
 * point to must outlive the emulation. Release with gm_emulation_free, also after a failure. */
int gm_emulation_run(struct gm_emulation *emulation, struct gm_hook *hook, const struct gm_corpus *corpus,
		     const struct gm_settings *settings, size_t n_settings, struct gm_preloads *preloads,
		     const struct gm_emulate_options *options, struct gm_error *err);
void gm_emulation_free(struct gm_emulation *emulation);

/* The point that holds a point's results: itself or its twin. */
static inline const struct gm_emulate_point *gm_emulation_point(const struct gm_emulation *emulation, size_t point)
{
	return &emulation->point[emulation->point[point].twin];
}

/* What a forward pass cannot give: GM_ERR_USAGE, with the reason and the way out. */
int gm_emulate_check(const struct gm_settings *settings, const struct gm_plan *plan, uint32_t n_ubatch,
		     struct gm_error *err);

/* --- private to emulate*.c --- */

/* emulate_points.c: the points of a grid, with their plans, refusals and twins. */
int gm_emulate_make_points(struct gm_emulation *emulation, const struct gm_settings *settings, size_t n_settings,
			   struct gm_preloads *preloads, struct gm_error *err);

#endif
