#include "emulate/follower.h"

#include <stdlib.h>
#include <string.h>

struct gm_follower {
	const struct gm_replay_config *config;
	struct gm_account *account;
	struct gm_scratch *scratch;
	struct gm_arrivals instant;
	struct gm_core *core;
	const struct gm_follower_watch *watch; /* may be NULL */
	bool began;                            /* a sequence */
	/* the pass under way */
	uint64_t first_token;
	struct gm_counters *event; /* [n_row] of the call under way */
	struct gm_counters *row;   /* [n_row] all layers together */
	double *mass;              /* [n_row][n_layer] substituted or dropped */
};

static void start(struct gm_follower *f)
{
	if (f->config->preload)
		gm_core_preload(f->core, f->config->preload, f->config->n_preload);
}

struct gm_follower *gm_follower_new(const struct gm_plan *plan, struct gm_account *account, uint32_t n_row,
				    struct gm_scratch *scratch, struct gm_error *err)
{
	const struct gm_core_config *core = &plan->config.core;
	struct gm_follower *f = gm_alloc(1, sizeof(*f), err);
	void *memory = gm_alloc(1, gm_core_bytes(core), err);

	if (!f || !memory) {
		free(f);
		free(memory);
		return NULL;
	}
	f->config = &plan->config;
	f->account = account;
	f->scratch = scratch;
	f->instant = gm_arrivals_instant;
	f->core = gm_core_init(memory, core, &f->instant, scratch);
	f->event = gm_alloc(n_row, sizeof(*f->event), err);
	f->row = gm_alloc(n_row, sizeof(*f->row), err);
	f->mass = gm_alloc((size_t)n_row * core->n_layer, sizeof(*f->mass), err);
	if (!f->event || !f->row || !f->mass) {
		gm_follower_free(f);
		return NULL;
	}
	start(f);
	return f;
}

void gm_follower_free(struct gm_follower *f)
{
	if (!f)
		return;
	free(f->core);
	free(f->event);
	free(f->row);
	free(f->mass);
	free(f);
}

int gm_follower_set_watch(struct gm_follower *f, const struct gm_follower_watch *watch, struct gm_error *err)
{
	f->watch = watch;
	if (watch->arrivals) {
		memset(f->core, 0, gm_core_bytes(&f->config->core));
		f->core = gm_core_init(f->core, &f->config->core, watch->arrivals, f->scratch);
		start(f);
	}
	return watch->start(watch->user, f->core, err);
}

int gm_follower_begin_sequence(struct gm_follower *f, struct gm_error *err)
{
	bool again = f->began && f->config->reset_per_sequence;

	f->began = true;
	if (!again)
		return GM_OK;
	gm_core_reset(f->core);
	start(f);
	return f->watch ? f->watch->start(f->watch->user, f->core, err) : GM_OK;
}

void gm_follower_begin_pass(struct gm_follower *f, uint64_t first_token, uint32_t n)
{
	f->first_token = first_token;
	memset(f->row, 0, n * sizeof(*f->row));
	memset(f->mass, 0, (size_t)n * f->config->core.n_layer * sizeof(*f->mass));
}

static int tell(struct gm_follower *f, const struct gm_decision *decision, uint32_t n, struct gm_error *err)
{
	for (uint32_t i = 0; f->watch && i < n; i++)
		GM_TRY(f->watch->decided(f->watch->user, decision + (size_t)i * f->config->core.top_k, err));
	return GM_OK;
}

static int run_batch(struct gm_follower *f, uint32_t layer, uint32_t first, const struct gm_rows *rows,
		     struct gm_decision *decision, struct gm_error *err)
{
	if (first != 0)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "the model computes a pass in parts: --prefill batch: give a smaller --ubatch, or "
			       "--prefill token");
	GM_TRY(gm_event(f->core, layer, f->first_token, rows, f->event, false, decision, err));
	return tell(f, decision, rows->n, err);
}

static int run_rows(struct gm_follower *f, uint32_t layer, uint32_t first, const struct gm_rows *rows,
		    struct gm_decision *decision, struct gm_error *err)
{
	uint32_t top_k = f->config->core.top_k;
	struct gm_rows one = *rows;

	if (f->watch)
		GM_TRY(f->watch->rows(f->watch->user, layer, first, rows->n, err));
	if (f->config->prefill == GM_PREFILL_BATCH)
		return run_batch(f, layer, first, rows, decision, err);
	one.n = 1;
	one.token = NULL;
	for (uint32_t i = 0; i < rows->n; i++) {
		struct gm_decision *its = decision ? decision + (size_t)i * top_k : NULL;

		GM_TRY(gm_event(f->core, layer, f->first_token + first + i, &one, &f->event[i], true, its, err));
		GM_TRY(tell(f, its, 1, err));
		one.ranked += one.n_ranked;
		one.gate += top_k;
	}
	return GM_OK;
}

int gm_follower_rows(struct gm_follower *f, uint32_t layer, uint32_t first, const struct gm_rows *rows,
		     struct gm_decision *decision, struct gm_error *err)
{
	memset(f->event, 0, rows->n * sizeof(*f->event));
	GM_TRY(run_rows(f, layer, first, rows, decision, err));
	for (uint32_t i = 0; i < rows->n; i++) {
		const struct gm_counters *count = &f->event[i];

		gm_counters_add(&f->row[first + i], count);
		f->mass[(size_t)(first + i) * f->config->core.n_layer + layer] =
			count->substituted_mass + count->dropped_mass;
		if (f->first_token + first + i >= f->account->warmup)
			gm_counters_add(&f->account->layer[layer].count, count);
	}
	return GM_OK;
}

void gm_follower_end_pass(struct gm_follower *f, struct gm_account_pass *pass)
{
	pass->row = f->row;
	pass->mass = f->mass;
	gm_account_add_pass(f->account, pass);
}
