#include "emulate/driver.h"

#include "recorder/logprob.h"
#include "recorder/sample.h"
#include "traces/select.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct gm_driver {
	struct gm_hook *hook;
	const struct gm_hook_info *info;
	const struct gm_model *model;
	struct gm_driver_setup setup;
	struct gm_hook_ops ops; /* what the setup needs to see */
	bool needs_missed;      /* the weights of missed experts */
	/* the pass under way; rows of the layer under way */
	uint64_t first_token;
	struct gm_selector *selector[2]; /* rankings that end with the selected, and whole ones */
	uint16_t *ranked;                /* [n_row][n_ranked] */
	double *gate;                    /* [n_row][top_k] */
	struct gm_decision *decision;    /* [n_row][top_k] of the lead */
	bool *changed;                   /* [n_row] the lead wants something else than the router */
	uint16_t *rank;                  /* [n_row][top_k] by slot */
	float *missed;                   /* [n_row][top_k] by rank: the model's weight before renormalisation */
	float *logit;                    /* [top_k] of the selected */
	/* between passes */
	uint32_t n_last; /* tokens of the last pass */
	bool has_output; /* of a token of this sequence */
	uint64_t n_tie;
};

static bool has_lead(const struct gm_driver *d)
{
	return d->setup.lead < d->setup.n_follower;
}

/* --- the observer --- */

/* What the model multiplies an expert with before it renormalises, from the expert's logit. */
static float raw_weight(const struct gm_driver *d, float logit, double lse)
{
	if (d->info->softmax_after_selection)
		return logit;
	if (d->model->gating == GM_GATING_SIGMOID)
		return (float)(1.0 / (1.0 + exp(-(double)logit)));
	return (float)exp((double)logit - lse);
}

static int rank_row(struct gm_driver *d, uint32_t layer, uint32_t row, uint32_t n_ranked, const float *logits,
		    struct gm_error *err)
{
	uint32_t top_k = d->model->top_k;
	bool whole = n_ranked > top_k;
	uint16_t *ranked = d->ranked + (size_t)row * n_ranked;
	double lse = 0;

	GM_TRY(gm_select_rank(d->selector[whole], layer, logits, ranked, d->needs_missed ? &lse : NULL, err));
	for (uint32_t r = 0; r < top_k; r++)
		d->logit[r] = logits[ranked[r]];
	gm_gate_weights(d->model->gating, top_k, d->logit, d->gate + (size_t)row * top_k);
	for (uint32_t r = 0; d->needs_missed && r < top_k; r++)
		d->missed[(size_t)row * top_k + r] = raw_weight(d, d->logit[r], lse);
	return GM_OK;
}

/* Somebody else's pass has begun. */
static int begin_observed(struct gm_driver *d, uint32_t n, struct gm_error *err)
{
	if (n > d->info->n_ubatch)
		return gm_fail(err, GM_ERR_USAGE, "a pass of %u tokens: must be at most %u", n, d->info->n_ubatch);
	d->first_token += d->n_last;
	d->n_last = n;
	for (size_t f = 0; f < d->setup.n_follower; f++)
		gm_follower_begin_pass(d->setup.follower[f], d->first_token, n);
	return GM_OK;
}

static int on_logits(void *user, uint32_t layer, uint32_t first, uint32_t n, const float *logits, struct gm_error *err)
{
	struct gm_driver *d = user;
	const struct gm_driver_setup *setup = &d->setup;
	uint32_t top_k = d->model->top_k, n_ranked = setup->substitutes ? d->model->n_expert : top_k;
	struct gm_rows rows = {
		.n = n,
		.ranked = d->ranked + (size_t)first * n_ranked,
		.n_ranked = n_ranked,
		.gate = d->gate + (size_t)first * top_k,
	};

	if (setup->observes && layer == 0)
		GM_TRY(begin_observed(d, n, err));
	if (setup->recording)
		GM_TRY(gm_recording_append(setup->recording, layer, first, n, logits, err));
	for (uint32_t i = 0; i < n; i++)
		if (rank_row(d, layer, first + i, n_ranked, logits + (size_t)i * d->model->n_expert, err) < 0)
			return gm_error_at(err, "layer %u, token %" PRIu64, layer, d->first_token + first + i);
	for (size_t f = 0; f < setup->n_follower; f++)
		GM_TRY(gm_follower_rows(setup->follower[f], layer, first, &rows,
					f == setup->lead ? d->decision + (size_t)first * top_k : NULL, err));
	return GM_OK;
}

/* Did the model select the experts that the decisions are about? */
static bool is_tie(const struct gm_decision *decision, uint32_t top_k, const int32_t *expert)
{
	for (uint32_t i = 0; i < top_k; i++) {
		bool found = false;

		for (uint32_t r = 0; r < top_k && !found; r++)
			found = decision[r].expert == expert[i];
		if (!found)
			return true;
	}
	return false;
}

/* Two slots with one expert are computed wrongly by some of ggml's backends. */
static int check_distinct(const int32_t *expert, uint32_t top_k, uint32_t layer, struct gm_error *err)
{
	for (uint32_t i = 1; i < top_k; i++)
		for (uint32_t j = 0; j < i; j++)
			if (expert[i] == expert[j])
				return gm_fail(err, GM_ERR_UNSUPPORTED,
					       "expert %d would be computed twice in a row: layer %u", expert[i], layer);
	return GM_OK;
}

static void on_failure(void *user, const struct gm_error *why)
{
	const struct gm_driver *d = user;

	d->setup.on_failure(d->setup.user, why);
}

static int on_topk(void *user, uint32_t layer, uint32_t first, uint32_t n, int32_t *expert, bool *changed,
		   struct gm_error *err)
{
	struct gm_driver *d = user;
	uint32_t top_k = d->model->top_k;

	for (uint32_t i = 0; i < n; i++) {
		size_t row = first + i, at = row * top_k;
		int32_t *mine = expert + (size_t)i * top_k;

		d->n_tie += is_tie(d->decision + at, top_k, mine);
		d->changed[row] = gm_override_is_needed(d->decision + at, top_k);
		if (!d->changed[row])
			continue; /* bit for bit the model's own */
		gm_override_experts(d->decision + at, top_k, mine, d->rank + at);
		GM_TRY(check_distinct(mine, top_k, layer, err));
		*changed = true;
	}
	if (d->setup.on_experts)
		return d->setup.on_experts(d->setup.user, layer, first, n, expert, changed, err);
	return GM_OK;
}

static int on_weights(void *user, uint32_t layer, uint32_t first, uint32_t n, float *weight, bool *changed,
		      struct gm_error *err)
{
	struct gm_driver *d = user;
	uint32_t top_k = d->model->top_k;
	float none = d->info->softmax_after_selection ? -INFINITY : 0.0f;

	(void)layer, (void)err;
	for (uint32_t i = 0; i < n; i++) {
		size_t row = first + i, at = row * top_k;

		if (!d->changed[row])
			continue;
		gm_override_weights(&d->setup.override, d->decision + at, top_k, d->rank + at, d->missed + at, none,
				    weight + (size_t)i * top_k);
		*changed = true;
	}
	return GM_OK;
}

static int on_gates(void *user, uint32_t layer, uint32_t first, uint32_t n, float *gate, bool *changed,
		    struct gm_error *err)
{
	struct gm_driver *d = user;
	uint32_t top_k = d->model->top_k;

	(void)layer, (void)err;
	for (uint32_t i = 0; i < n; i++) {
		size_t row = first + i, at = row * top_k;

		if (!d->changed[row])
			continue;
		gm_override_gates(d->decision + at, top_k, d->rank + at, gate + (size_t)i * top_k);
		*changed = true;
	}
	return GM_OK;
}

/* --- life --- */

struct gm_driver *gm_driver_new(struct gm_hook *hook, struct gm_error *err)
{
	struct gm_driver *d = gm_alloc(1, sizeof(*d), err);

	if (!d)
		return NULL;
	d->hook = hook;
	d->info = gm_hook_info(hook);
	d->model = gm_hook_model(hook);
	const size_t n = d->info->n_ubatch, k = d->model->top_k;
	d->selector[0] = gm_selector_new(d->model, d->model->top_k, err);
	d->selector[1] = gm_selector_new(d->model, d->model->n_expert, err);
	d->ranked = gm_alloc(n * d->model->n_expert, sizeof(*d->ranked), err);
	d->gate = gm_alloc(n * k, sizeof(*d->gate), err);
	d->decision = gm_alloc(n * k, sizeof(*d->decision), err);
	d->changed = gm_alloc(n, sizeof(*d->changed), err);
	d->rank = gm_alloc(n * k, sizeof(*d->rank), err);
	d->missed = gm_alloc(n * k, sizeof(*d->missed), err);
	d->logit = gm_alloc(k, sizeof(*d->logit), err);
	if (!d->selector[0] || !d->selector[1] || !d->ranked || !d->gate || !d->decision || !d->changed || !d->rank ||
	    !d->missed || !d->logit) {
		gm_driver_free(d);
		return NULL;
	}
	return d;
}

void gm_driver_free(struct gm_driver *d)
{
	if (!d)
		return;
	gm_hook_set_ops(d->hook, NULL, NULL);
	gm_selector_free(d->selector[0]);
	gm_selector_free(d->selector[1]);
	free(d->ranked);
	free(d->gate);
	free(d->decision);
	free(d->changed);
	free(d->rank);
	free(d->missed);
	free(d->logit);
	free(d);
}

uint32_t gm_driver_max_pass(const struct gm_driver *d)
{
	return d->info->n_ubatch;
}

void gm_driver_set(struct gm_driver *d, const struct gm_driver_setup *setup)
{
	bool missed = setup->substitutes && setup->override.substitute == GM_SUBSTITUTE_MISSED;
	bool keep = setup->drops && setup->override.drop == GM_DROP_KEEP;
	bool leads;

	d->setup = *setup;
	d->needs_missed = missed;
	leads = has_lead(d);
	d->ops = (struct gm_hook_ops){
		.on_logits = setup->n_follower || setup->recording ? on_logits : NULL,
		.on_topk = leads ? on_topk : NULL,
		.on_weights = leads && (missed || (setup->drops && !keep)) ? on_weights : NULL,
		.on_gates = leads && keep ? on_gates : NULL,
		.on_failure = setup->on_failure ? on_failure : NULL,
	};
	gm_hook_set_ops(d->hook, &d->ops, d);
}

/* --- passes --- */

int gm_driver_begin_sequence(struct gm_driver *d, const char *id, const char *label, struct gm_error *err)
{
	gm_hook_begin_sequence(d->hook);
	d->has_output = false;
	for (size_t f = 0; f < d->setup.n_follower; f++)
		GM_TRY(gm_follower_begin_sequence(d->setup.follower[f], err));
	return d->setup.recording ? gm_recording_begin_sequence(d->setup.recording, id, label, err) : GM_OK;
}

int gm_driver_pass(struct gm_driver *d, uint64_t first_token, const int32_t *token, uint32_t n, float *logprob,
		   struct gm_error *err)
{
	const uint32_t position = gm_hook_position(d->hook), n_vocab = d->info->n_vocab;
	int status;

	/* the last pass's outputs are valid until the next */
	logprob[0] = d->has_output ? gm_logprob(gm_hook_output(d->hook, d->n_last - 1), n_vocab, token[0]) : NAN;
	for (size_t f = 0; f < d->setup.n_follower; f++)
		gm_follower_begin_pass(d->setup.follower[f], first_token, n);
	d->first_token = first_token;
	status = gm_hook_pass(d->hook, token, n, err);
	if (status < 0) {
		d->has_output = false;
		if (d->setup.recording)
			gm_recording_drop(d->setup.recording);
		return status;
	}
	for (uint32_t i = 1; i < n; i++)
		logprob[i] = gm_logprob(gm_hook_output(d->hook, i - 1), n_vocab, token[i]);
	d->n_last = n;
	d->has_output = true;
	return d->setup.recording ? gm_recording_commit(d->setup.recording, n, token, position, logprob, err) : GM_OK;
}

int32_t gm_driver_next(const struct gm_driver *d, bool *is_end)
{
	struct gm_sampler greedy = {.temperature = 0};
	int32_t token = gm_sample(&greedy, gm_hook_output(d->hook, d->n_last - 1), d->info->n_vocab);

	*is_end = gm_hook_is_end(d->hook, token);
	return token;
}

uint64_t gm_driver_n_token(const struct gm_driver *d)
{
	return d->first_token + d->n_last;
}

uint64_t gm_driver_n_tie(const struct gm_driver *d)
{
	return d->n_tie;
}
