#include "emulate/emulate.h"

#include "base/progress.h"
#include "emulate/driver.h"
#include "emulate/policy_recording.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Points that share forward passes. */
struct group {
	struct gm_emulation *emulation;
	struct gm_driver *driver;
	struct gm_scratch *scratch;
	struct gm_progress progress;
	struct gm_recording *recording;
	struct gm_emulate_point **point; /* [n_point] */
	struct gm_follower **follower;   /* [n_point] of the same points; NULL for a baseline */
	struct gm_follower **active;     /* [n_active] without the NULLs */
	size_t n_point, n_active;
	bool is_baseline;          /* the model runs as it is */
	uint64_t n_token;          /* in this run of the texts */
	float *logprob, *baseline; /* [n_ubatch] of the pass */
};

/* --- a pass --- */

/* Log-probabilities of a pass's tokens without a policy; generated tokens have none to compare with. */
static void baseline_of_pass(struct group *g, const struct gm_corpus_sequence *sequence, uint32_t position, uint32_t n)
{
	float *all = g->emulation->baseline;

	for (uint32_t i = 0; i < n; i++) {
		bool is_text = position + i < sequence->n_token;

		if (!is_text)
			g->logprob[i] = NAN;
		else if (g->is_baseline)
			all[sequence->first + position + i] = g->logprob[i];
		g->baseline[i] = is_text ? all[sequence->first + position + i] : NAN;
	}
}

static int run_pass(struct group *g, uint32_t s, uint32_t position, const int32_t *token, uint32_t n, struct gm_error *err)
{
	struct gm_emulation *e = g->emulation;
	struct gm_account_pass pass = {
		.sequence = s,
		.position = position,
		.first_token = g->n_token,
		.n = n,
		.token = token,
		.logprob = g->logprob,
		.baseline = g->baseline,
	};

	GM_TRY(gm_driver_pass(g->driver, g->n_token, token, n, g->logprob, err));
	baseline_of_pass(g, &e->corpus->sequence[s], position, n);
	for (size_t i = 0; i < g->n_point; i++) {
		struct gm_account_pass its = pass;

		if (g->follower[i])
			gm_follower_end_pass(g->follower[i], &its);
		else
			gm_account_add_pass(&g->point[i]->account, &its);
	}
	g->n_token += n;
	e->n_token += n;
	e->n_pass++;
	gm_progress_update(&g->progress, e->n_token);
	return GM_OK;
}

/* --- a sequence --- */

/* A pass of one token is computed by other kernels, whose last bits differ: none stands where another division of the text into
 * passes has none. */
static uint32_t pass_length(uint32_t left, uint32_t max)
{
	uint32_t n = left < max ? left : max;

	return left - n == 1 && n > 2 ? n - 1 : n;
}

static int generate(struct group *g, uint32_t s, struct gm_error *err)
{
	struct gm_emulation *e = g->emulation;
	uint32_t max = e->options->n_generate;
	struct gm_continuation *made = &g->point[0]->continuation[s];

	if (!(made->token = gm_alloc(max, sizeof(*made->token), err)))
		return GM_ERR_MEMORY;
	while (made->n < max) {
		int32_t token = gm_driver_next(g->driver, &made->ended);

		if (made->ended)
			break;
		made->token[made->n++] = token;
		GM_TRY(run_pass(g, s, e->corpus->sequence[s].n_token + made->n - 1, &token, 1, err));
	}
	gm_continuation_compare(made, &e->point[0].continuation[s]);
	return GM_OK;
}

/* Points that share a run have generated the same. */
static int share_continuation(struct group *g, uint32_t s, struct gm_error *err)
{
	const struct gm_continuation *made = &g->point[0]->continuation[s];

	for (size_t i = 1; i < g->n_point; i++) {
		struct gm_continuation *copy = &g->point[i]->continuation[s];

		*copy = *made;
		copy->token = gm_alloc(made->n, sizeof(*copy->token), err);
		if (!copy->token)
			return GM_ERR_MEMORY;
		memcpy(copy->token, made->token, made->n * sizeof(*copy->token));
	}
	return GM_OK;
}

static int run_sequence(struct group *g, uint32_t s, struct gm_error *err)
{
	const struct gm_emulation *e = g->emulation;
	const struct gm_corpus_sequence *sequence = &e->corpus->sequence[s];
	const int32_t *token = e->corpus->token + sequence->first;
	uint32_t max = gm_driver_max_pass(g->driver), n;

	GM_TRY(gm_driver_begin_sequence(g->driver, sequence->id, sequence->label, err));
	for (uint32_t done = 0; done < sequence->n_token; done += n) {
		n = pass_length(sequence->n_token - done, max);
		GM_TRY(run_pass(g, s, done, token + done, n, err));
	}
	if (!e->options->n_generate)
		return GM_OK;
	GM_TRY(generate(g, s, err));
	return share_continuation(g, s, err);
}

static int open_recording(struct group *g, const struct gm_emulate_point *point, struct gm_error *err)
{
	const struct gm_emulate_options *options = g->emulation->options;
	const struct gm_policy_recording recording = {
		.path = options->record,
		.source = "emulate",
		.settings = point->settings,
		.override = point->override,
		.substitutes = point->substitutes,
		.drops = point->drops,
		.generates = options->n_generate > 0,
	};

	g->recording = gm_policy_recording_open(&recording, g->emulation->hook, err);
	return g->recording ? GM_OK : err->code;
}

/* --- a group --- */

static int add_points(struct group *g, struct gm_emulate_point *const *point, size_t n, struct gm_error *err)
{
	const struct gm_emulation *e = g->emulation;

	g->point = gm_alloc(n, sizeof(*g->point), err);
	g->follower = gm_alloc(n, sizeof(*g->follower), err);
	g->active = gm_alloc(n, sizeof(*g->active), err);
	if (!g->point || !g->follower || !g->active)
		return GM_ERR_MEMORY;
	g->n_active = 0;
	for (g->n_point = 0; g->n_point < n; g->n_point++) {
		struct gm_emulate_point *its = point[g->n_point];

		g->point[g->n_point] = its;
		GM_TRY(gm_account_init(&its->account, gm_hook_model(e->hook)->n_layer, e->corpus->n_sequence,
				       its->settings ? its->settings->warmup : its->account.warmup, e->tokens,
				       (uint32_t)(its - e->point), err));
		if (e->options->n_generate &&
		    !(its->continuation = gm_alloc(e->corpus->n_sequence, sizeof(*its->continuation), err)))
			return GM_ERR_MEMORY;
		if (!its->settings)
			continue;
		g->follower[g->n_point] =
			gm_follower_new(&its->plan, &its->account, gm_driver_max_pass(g->driver), g->scratch, err);
		if (!g->follower[g->n_point])
			return GM_ERR_MEMORY;
		g->active[g->n_active++] = g->follower[g->n_point];
	}
	return GM_OK;
}

static void remove_points(struct group *g)
{
	for (size_t i = 0; i < g->n_active; i++)
		gm_follower_free(g->active[i]);
	free(g->point);
	free(g->follower);
	free(g->active);
	g->point = NULL;
	g->follower = g->active = NULL;
	g->n_point = g->n_active = 0;
}

/* A rule that changes outputs without saying so in its flags would spoil the baseline it shares. */
static int check_unchanged(const struct group *g, struct gm_error *err)
{
	for (size_t i = 0; i < g->n_point; i++) {
		struct gm_tally total;
		struct gm_score score;

		gm_account_total(&g->point[i]->account, &total, &score);
		if (g->is_baseline && total.count.substitutions + total.count.drops > 0)
			return gm_fail(err, GM_ERR_UNSUPPORTED,
				       "the miss rule %s substitutes or drops, but its flags do not say so",
				       g->point[i]->settings->miss.ops->info.name);
	}
	return GM_OK;
}

static int end_tokens(const struct group *g, struct gm_error *err)
{
	struct gm_emulation *e = g->emulation;

	for (size_t i = 0; e->tokens && i < g->n_point; i++)
		GM_TRY(gm_spool_end(e->tokens, (uint32_t)(g->point[i] - e->point), err));
	return GM_OK;
}

/* One run of the texts for these points: the lead, which may change what the model computes, or those that leave it as it is. */
static int run_group(struct group *g, struct gm_emulate_point *const *point, size_t n, bool is_baseline, bool record,
		     struct gm_error *err)
{
	struct gm_emulation *e = g->emulation;
	struct gm_driver_setup setup = {0};
	int status, closed;

	g->is_baseline = is_baseline;
	g->n_token = 0;
	GM_TRY_OUT(add_points(g, point, n, err));
	if (record)
		GM_TRY_OUT(open_recording(g, point[n - 1], err));
	setup = (struct gm_driver_setup){
		.follower = g->active,
		.n_follower = g->n_active,
		.lead = is_baseline ? g->n_active : 0,
		.substitutes = !is_baseline && point[0]->substitutes,
		.drops = !is_baseline && point[0]->drops,
		.override = point[0]->override,
		.recording = g->recording,
	};
	gm_driver_set(g->driver, &setup);
	for (uint32_t s = 0; s < e->corpus->n_sequence && status == GM_OK; s++)
		status = run_sequence(g, s, err);
	if (status == GM_OK)
		status = check_unchanged(g, err);
	if (status == GM_OK)
		status = end_tokens(g, err);
	e->n_run++;
out:
	closed = gm_recording_close(g->recording, status == GM_OK, NULL, err);
	g->recording = NULL;
	remove_points(g);
	return status < 0 ? status : closed;
}

/* --- all of it --- */

static bool has_run(const struct gm_emulation *e, size_t i)
{
	return !e->point[i].error.code && e->point[i].twin == i;
}

static bool changes_outputs(const struct gm_emulate_point *point)
{
	return point->substitutes || point->drops;
}

static uint64_t count_runs(const struct gm_emulation *e)
{
	uint64_t n = 1;

	for (size_t i = e->n_baseline; i < e->n_point; i++)
		n += has_run(e, i) && changes_outputs(&e->point[i]);
	return n;
}

/* The only point is recorded, whichever run it is in. */
static int run_points(struct group *g, struct gm_error *err)
{
	struct gm_emulation *e = g->emulation;
	struct gm_emulate_point **shared = gm_alloc(e->n_point, sizeof(struct gm_emulate_point *), err);
	bool record = e->options->record != NULL;
	size_t n = 0;
	int status = shared ? GM_OK : GM_ERR_MEMORY;

	if (!shared)
		return status;
	for (size_t i = 0; i < e->n_point; i++)
		if (has_run(e, i) && !changes_outputs(&e->point[i]))
			shared[n++] = &e->point[i];
	status = run_group(g, shared, n, true, record && n > e->n_baseline, err);
	free(shared);
	for (size_t i = 0; i < e->n_point && status == GM_OK; i++) {
		struct gm_emulate_point *one = &e->point[i];

		if (has_run(e, i) && changes_outputs(one))
			status = run_group(g, &one, 1, false, record, err);
	}
	return status;
}

static int run(struct gm_emulation *e, struct gm_error *err)
{
	const struct gm_model *model = gm_hook_model(e->hook);
	const uint64_t n = e->corpus->n_token + (uint64_t)e->corpus->n_sequence * e->options->n_generate;
	struct group g = {.emulation = e};
	double started = gm_clock_s();
	int status = GM_ERR_MEMORY;

	g.driver = gm_driver_new(e->hook, err);
	g.scratch = gm_scratch_new(model->n_expert, model->top_k, err);
	g.logprob = gm_alloc(gm_hook_info(e->hook)->n_ubatch, sizeof(float), err);
	g.baseline = gm_alloc(gm_hook_info(e->hook)->n_ubatch, sizeof(float), err);
	if (!g.driver || !g.scratch || !g.logprob || !g.baseline)
		goto out;
	gm_progress_start(&g.progress, "emulate", "tokens", n * count_runs(e), e->options->quiet);
	status = run_points(&g, err);
	gm_progress_end(&g.progress);
	e->n_tie = gm_driver_n_tie(g.driver);
	e->seconds = gm_clock_s() - started;
out:
	free(g.logprob);
	free(g.baseline);
	gm_scratch_free(g.scratch);
	gm_driver_free(g.driver);
	return status;
}

int gm_emulation_run(struct gm_emulation *e, struct gm_hook *hook, const struct gm_corpus *corpus,
		     const struct gm_settings *settings, size_t n_settings, struct gm_preloads *preloads,
		     const struct gm_emulate_options *options, struct gm_error *err)
{
	*e = (struct gm_emulation){.hook = hook, .corpus = corpus, .options = options};
	GM_TRY(gm_emulate_make_points(e, settings, n_settings, preloads, err));
	if (options->record && e->n_point - e->n_baseline != 1)
		return gm_fail(err, GM_ERR_USAGE, "%zu points and one recording: --record %.60s: give one policy",
			       e->n_point - e->n_baseline, options->record);
	if (e->n_failed == e->n_point - e->n_baseline)
		return gm_fail(err, e->point[e->n_baseline].error.code, "%s", e->point[e->n_baseline].error.text);
	if (!(e->baseline = gm_alloc(corpus->n_token, sizeof(*e->baseline), err)))
		return GM_ERR_MEMORY;
	if (options->per_token) {
		e->tokens = gm_spool_new((uint32_t)e->n_point, gm_account_record_bytes(gm_hook_model(hook)->n_layer), err);
		if (!e->tokens)
			return err->code;
	}
	return run(e, err);
}

void gm_emulation_free(struct gm_emulation *e)
{
	for (size_t i = 0; e->point && i < e->n_point; i++) {
		struct gm_emulate_point *point = &e->point[i];

		for (uint32_t s = 0; point->continuation && s < e->corpus->n_sequence; s++)
			free(point->continuation[s].token);
		free(point->continuation);
		gm_account_free(&point->account);
		gm_plan_free(&point->plan);
	}
	free(e->point);
	free(e->baseline);
	gm_spool_free(e->tokens);
	memset(e, 0, sizeof(*e));
}
