#include "engine/cache.h"

#include "base/number.h"
#include "emulate/emulate.h"
#include "engine/copies.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct gm_cache {
	struct gm_hook *hook;
	struct gm_plugin *plugin;
	const struct gm_model *model;
	struct gm_settings settings;
	struct gm_plan plan;
	struct gm_account account;
	struct gm_scratch *scratch;
	struct gm_follower *follower;
	struct gm_follower_watch watch;
	struct gm_slots *slots;
	struct gm_copies *copies; /* NULL: the plugin's own, at once */
	struct gm_driver *driver;
	struct gm_driver_setup setup;
	const struct gm_core *core;
	uint32_t n_scratch;
	bool observes, has_pools, in_layer;
	uint32_t first_row;   /* of the rows under way, in their pass */
	uint64_t first_token; /* of the next pass */
	/* for those who want to know what has landed */
	void (*on_landed)(void *user, uint64_t event, const struct gm_landing *landing);
	void *user;
	struct gm_spans *spans;
	uint32_t layer;       /* of the rows under way */
	uint64_t *next_token; /* [n_layer] whose event is the layer's next; it begins when its row comes */
	char cache_text[GM_NUMBER_TEXT];
};

/* --- sizes --- */

static bool is_batch(const struct gm_cache *cache)
{
	return cache->settings.prefill == GM_PREFILL_BATCH;
}

/* As many slots in every layer as fit, those for scratch included. */
static int fit_bytes(struct gm_cache *cache, uint64_t bytes, bool beside, struct gm_error *err)
{
	struct gm_settings *settings = &cache->settings;
	bool in_flight = beside && settings->admit.ops->substituted;
	uint64_t all = cache->model->expert_bytes[0], fit, n_scratch; /* see gm_slots_scratch */

	n_scratch = in_flight ? cache->model->top_k + 1 : is_batch(cache) ? 2 : 1;

	if (settings->scope == GM_SCOPE_GLOBAL)
		return gm_fail(err, GM_ERR_USAGE,
			       "device memory by layer: --cache-scope global: give the pool's size by --cache");
	for (uint32_t l = 1; l < cache->model->n_layer; l++)
		all += cache->model->expert_bytes[l];
	fit = bytes / all;
	if (fit <
	    cache->model->top_k + n_scratch) /* fewer slots than a row has experts would want more scratch than that */
		return gm_fail(err, GM_ERR_USAGE,
			       "no room for a token's experts: %" PRIu64 " bytes: must be %" PRIu64 " or more", bytes,
			       all * (cache->model->top_k + n_scratch));
	fit -= n_scratch;
	settings->cache_kind = GM_CACHE_SLOTS;
	settings->cache_size = fit < cache->model->n_expert ? fit : cache->model->n_expert;
	snprintf(cache->cache_text, sizeof(cache->cache_text), "%" PRIu64, settings->cache_size);
	settings->cache_text = cache->cache_text;
	return GM_OK;
}

static int make_plan(struct gm_cache *cache, struct gm_preloads *preloads, const struct gm_cache_options *options,
		     struct gm_error *err)
{
	if (options->device_bytes)
		GM_TRY(fit_bytes(cache, options->device_bytes, options->beside, err));
	GM_TRY(gm_plan_make_live(&cache->plan, &cache->settings, cache->model, preloads, err));
	if (cache->settings.miss.ops->info.flags & GM_NEEDS_CPU)
		return gm_fail(err, GM_ERR_USAGE,
			       "experts for the CPU: --miss %s: the engine computes all of them on the device",
			       cache->settings.miss.ops->info.name);
	return gm_emulate_check(&cache->settings, &cache->plan, gm_hook_info(cache->hook)->n_ubatch, err);
}

/* --- pools --- */

static int put(void *user, uint32_t layer, uint32_t expert, uint32_t slot, struct gm_error *err)
{
	struct gm_cache *cache = user;

	return gm_plugin_put(cache->plugin, layer, expert, slot, err);
}

static int make_pools(struct gm_cache *cache, struct gm_error *err)
{
	const struct gm_core_config *config = &cache->plan.config.core;
	struct gm_plugin_pools pools = {
		.n_layer = cache->model->n_layer,
		.model_layer = gm_hook_info(cache->hook)->model_layer,
		.shared = config->scope == GM_SCOPE_GLOBAL,
	};
	uint32_t *n_slot = gm_alloc(pools.n_layer, sizeof(*n_slot), err);
	int status;

	if (!n_slot)
		return GM_ERR_MEMORY;
	for (uint32_t l = 0; l < pools.n_layer; l++)
		n_slot[l] = gm_slots_needed(config, l) + cache->n_scratch;
	pools.n_slot = n_slot;
	status = gm_plugin_make_pools(cache->plugin, &pools, err);
	free(n_slot);
	cache->has_pools = status == GM_OK;
	return status < 0 ? status : gm_slots_start(cache->slots, cache->core, put, cache, err);
}

/* --- what the follower and the driver tell --- */

static int on_start(void *user, const struct gm_core *core, struct gm_error *err)
{
	struct gm_cache *cache = user;

	cache->core = core;
	if (cache->copies)
		GM_TRY(gm_copies_clear(cache->copies, err));
	gm_plugin_reset_store(cache->plugin);
	/* a model that others load has no tensors yet: with its first rows it has */
	return cache->has_pools ? gm_slots_start(cache->slots, core, put, cache, err) : GM_OK;
}

static int end_layer(struct gm_cache *cache, struct gm_error *err)
{
	bool ends = cache->in_layer;

	cache->in_layer = false;
	if (!ends)
		return GM_OK;
	if (cache->copies)
		gm_copies_end(cache->copies);
	return gm_slots_end(cache->slots, err);
}

static int on_rows(void *user, uint32_t layer, uint32_t first, uint32_t n, struct gm_error *err)
{
	struct gm_cache *cache = user;

	if (!cache->has_pools)
		GM_TRY(make_pools(cache, err));
	GM_TRY(end_layer(cache, err)); /* of the layer before, which is computed by now */
	gm_plugin_schedule(cache->plugin, NULL);
	gm_slots_begin(cache->slots, layer, n, is_batch(cache));
	cache->in_layer = true;
	cache->first_row = first;
	cache->layer = layer;
	cache->next_token[layer] = cache->first_token + first;
	return GM_OK;
}

static int on_decided(void *user, const struct gm_decision *decision, struct gm_error *err)
{
	struct gm_cache *cache = user;

	cache->next_token[cache->layer]++;
	return gm_slots_decided(cache->slots, decision, err);
}

/* A pass of several tokens is decided layer by layer. With slots by layer, what lands in another layer's event matters to its own layer's next one;
 * one pool sees all events in the order of the trace: its passes have one token, or are one event in each layer. */
static void on_landed(void *user, uint64_t event, uint32_t layer, uint32_t expert)
{
	const struct gm_cache *cache = user;
	uint32_t meets = cache->plan.config.core.scope == GM_SCOPE_GLOBAL ? cache->layer : layer;
	const struct gm_landing landing = {
		.token = cache->next_token[meets], .layer = meets, .expert_layer = layer, .expert = expert};

	if (cache->on_landed)
		cache->on_landed(cache->user, event, &landing);
}

static int on_experts(void *user, uint32_t layer, uint32_t first, uint32_t n, int32_t *expert, bool *changed,
		      struct gm_error *err)
{
	struct gm_cache *cache = user;
	const struct gm_schedule *schedule;

	(void)layer;
	GM_TRY(gm_slots_experts(cache->slots, first - cache->first_row, n, expert, changed, err));
	schedule = gm_slots_schedule(cache->slots);
	gm_plugin_schedule(cache->plugin, schedule);
	gm_spans_routed(cache->spans);
	if (!cache->copies)
		return GM_OK;
	GM_TRY(gm_copies_order(cache->copies, schedule, err));
	/* what one event computes with is pinned: none of it lies in a slot that is to be overwritten */
	return schedule->n_row == 1 || schedule->one_event ? gm_slots_end(cache->slots, err) : GM_OK;
}

static void on_failure(void *user, const struct gm_error *why)
{
	gm_plugin_refuse(((struct gm_cache *)user)->plugin, why);
}

/* --- life --- */

static int make_copies(struct gm_cache *cache, const struct gm_cache_options *options, struct gm_error *err)
{
	const struct gm_core_config *config = &cache->plan.config.core;
	struct gm_copies_options copies = {.n_layer = config->n_layer,
					   .n_expert = config->n_expert,
					   .throttle = options->throttle,
					   .ops = options->link_ops,
					   .spans = options->spans};

	for (uint32_t l = 0; l < config->n_layer; l++)
		copies.n_slot += config->scope == GM_SCOPE_GLOBAL && l > 0 ? 0 : gm_slots_needed(config, l);
	copies.n_slot += cache->n_scratch;
	cache->copies = gm_copies_new(cache->plugin, &copies, err);
	return cache->copies ? GM_OK : err->code;
}

static int make_slots(struct gm_cache *cache, const struct gm_cache_options *options, uint32_t n_row, struct gm_error *err)
{
	const struct gm_core_config *config = &cache->plan.config.core;
	struct gm_slots_options slots = {.config = config, .max_row = n_row, .on_landed = on_landed, .user = cache};

	cache->next_token = gm_alloc(config->n_layer, sizeof(*cache->next_token), err);
	if (!cache->next_token)
		return GM_ERR_MEMORY;
	slots.n_scratch = cache->n_scratch = gm_slots_scratch(config, options->beside, is_batch(cache));
	if (options->beside) {
		GM_TRY(make_copies(cache, options, err));
		slots.background = gm_copies_background(cache->copies);
	}
	cache->slots = gm_slots_new(&slots, err);
	if (!cache->slots)
		return GM_ERR_MEMORY;
	if (cache->copies)
		gm_copies_set_slots(cache->copies, cache->slots);
	return GM_OK;
}

static int make_follower(struct gm_cache *cache, uint32_t n_row, struct gm_error *err)
{
	const struct gm_core_config *config = &cache->plan.config.core;

	GM_TRY(gm_account_init(&cache->account, config->n_layer, 1, cache->plan.config.warmup, NULL, 0, err));
	cache->scratch = gm_scratch_new(config->n_expert, config->top_k, err);
	if (!cache->scratch)
		return GM_ERR_MEMORY;
	cache->follower = gm_follower_new(&cache->plan, &cache->account, n_row, cache->scratch, err);
	if (!cache->follower)
		return GM_ERR_MEMORY;
	cache->watch = (struct gm_follower_watch){
		.arrivals = gm_slots_arrivals(cache->slots),
		.start = on_start,
		.rows = on_rows,
		.decided = on_decided,
		.user = cache,
	};
	return gm_follower_set_watch(cache->follower, &cache->watch, err);
}

static int make_cache(struct gm_cache *cache, struct gm_preloads *preloads, const struct gm_cache_options *options,
		      struct gm_error *err)
{
	unsigned flags = cache->settings.miss.ops->info.flags;

	GM_TRY(make_plan(cache, preloads, options, err));
	GM_TRY(make_slots(cache, options, gm_hook_info(cache->hook)->n_ubatch, err));
	GM_TRY(make_follower(cache, gm_hook_info(cache->hook)->n_ubatch, err));
	if (!options->observes)
		GM_TRY(make_pools(cache, err));
	cache->driver = gm_driver_new(cache->hook, err);
	if (!cache->driver)
		return GM_ERR_MEMORY;
	cache->setup = (struct gm_driver_setup){
		.follower = &cache->follower,
		.n_follower = 1,
		.substitutes = (flags & GM_NEEDS_RANKING) != 0,
		.drops = (flags & GM_DROPS) != 0,
		.override = options->override,
		.on_experts = on_experts,
		.on_failure = on_failure,
		.user = cache,
		.observes = options->observes,
	};
	gm_driver_set(cache->driver, &cache->setup);
	return GM_OK;
}

struct gm_cache *gm_cache_new(struct gm_hook *hook, struct gm_plugin *plugin, const struct gm_settings *settings,
			      struct gm_preloads *preloads, const struct gm_cache_options *options, struct gm_error *err)
{
	struct gm_cache *cache = gm_alloc(1, sizeof(*cache), err);

	if (!cache)
		return NULL;
	cache->hook = hook;
	cache->plugin = plugin;
	cache->model = gm_hook_model(hook);
	cache->settings = *settings;
	cache->observes = options->observes;
	cache->on_landed = options->on_landed;
	cache->user = options->user;
	cache->spans = options->spans;
	gm_plugin_set_spans(plugin, cache->spans);
	if (make_cache(cache, preloads, options, err) < 0) {
		gm_cache_free(cache);
		return NULL;
	}
	return cache;
}

void gm_cache_free(struct gm_cache *cache)
{
	if (!cache)
		return;
	gm_plugin_schedule(cache->plugin, NULL);
	gm_plugin_set_spans(cache->plugin, NULL);
	gm_driver_free(cache->driver);
	gm_follower_free(cache->follower);
	gm_copies_free(cache->copies);
	gm_slots_free(cache->slots);
	free(cache->next_token);
	gm_scratch_free(cache->scratch);
	gm_account_free(&cache->account);
	gm_plan_free(&cache->plan);
	free(cache);
}

/* --- passes --- */

void gm_cache_record(struct gm_cache *cache, struct gm_recording *recording)
{
	cache->setup.recording = recording;
	gm_driver_set(cache->driver, &cache->setup);
}

int gm_cache_begin_sequence(struct gm_cache *cache, const char *id, const char *label, struct gm_error *err)
{
	return gm_driver_begin_sequence(cache->driver, id, label, err);
}

/* What made the pass fail says more than that it failed. */
static int fail_pass(const struct gm_cache *cache, const struct gm_error *failure, struct gm_error *err)
{
	const struct gm_error *why = gm_plugin_error(cache->plugin);

	if (!why->code)
		why = failure;
	return gm_fail(err, why->code, "%s", why->text);
}

int gm_cache_pass(struct gm_cache *cache, const int32_t *token, uint32_t n, float *logprob, struct gm_error *err)
{
	struct gm_error failure = {0};
	struct gm_account_pass pass = {
		.position = gm_hook_position(cache->hook),
		.first_token = cache->first_token,
		.n = n,
		.token = token,
		.logprob = logprob,
		.baseline = logprob,
	};

	if (gm_plugin_error(cache->plugin)->code || /* slots hold what nobody knows */
	    gm_driver_pass(cache->driver, cache->first_token, token, n, logprob, &failure) < 0)
		return fail_pass(cache, &failure, err);
	gm_follower_end_pass(cache->follower, &pass);
	cache->first_token += n;
	return end_layer(cache, err);
}

/* --- what it came to --- */

const struct gm_settings *gm_cache_settings(const struct gm_cache *cache)
{
	return &cache->settings;
}

const struct gm_plan *gm_cache_plan(const struct gm_cache *cache)
{
	return &cache->plan;
}

const struct gm_driver *gm_cache_driver(const struct gm_cache *cache)
{
	return cache->driver;
}

const struct gm_account *gm_cache_account(const struct gm_cache *cache)
{
	return &cache->account;
}

void gm_cache_stats(const struct gm_cache *cache, struct gm_engine_stats *stats)
{
	const struct gm_core_config *config = &cache->plan.config.core;
	struct gm_plugin_stats plugin;
	struct gm_counters c = {0};
	struct gm_copies_stats copies = {0};
	double rows;

	for (uint32_t l = 0; l < config->n_layer; l++)
		gm_counters_add(&c, &cache->account.layer[l].count);
	rows = c.rows ? (double)c.rows : 1;
	gm_plugin_stats(cache->plugin, &plugin);
	if (cache->copies)
		gm_copies_get_stats(cache->copies, &copies);
	*stats = (struct gm_engine_stats){
		.tokens = cache->observes ? gm_driver_n_token(cache->driver) : cache->account.tokens,
		.accesses = c.accesses,
		.hits = c.hits,
		.late_hits = c.late_hits,
		.fetches = c.fetches,
		.bypasses = c.bypasses,
		.background_copies = c.background_copies,
		.evictions = c.evictions,
		.rows = c.rows,
		.picks = c.rows * config->top_k,
		.substitutions = c.substitutions,
		.drops = c.drops,
		.substituted_mass = c.substituted_mass / rows,
		.dropped_mass = c.dropped_mass / rows,
		.link_bytes = c.link_bytes,
		.copied_bytes = plugin.bytes,
		.n_read = plugin.n_read,
		.read_bytes = plugin.read_bytes,
		.read_us = plugin.read_us,
		.copy_us = plugin.copy_us,
		.compute_us = plugin.compute_us,
		.link_copies = copies.n_copied,
		.link_busy_us = copies.busy_us,
		.device_bytes = cache->has_pools ? gm_plugin_pool_bytes(cache->plugin) : 0,
		.n_slot = gm_slots_needed(config, 0),
	};
}

/* Of means over all rows and over the rows before, the mean over the rows since. */
static double mean_since(double mean, uint64_t rows, double mean_before, uint64_t rows_before)
{
	return rows > rows_before ? (mean * (double)rows - mean_before * (double)rows_before) / (double)(rows - rows_before)
				  : 0;
}

void gm_engine_stats_since(struct gm_engine_stats *s, const struct gm_engine_stats *before)
{
	s->substituted_mass = mean_since(s->substituted_mass, s->rows, before->substituted_mass, before->rows);
	s->dropped_mass = mean_since(s->dropped_mass, s->rows, before->dropped_mass, before->rows);
	s->tokens -= before->tokens;
	s->accesses -= before->accesses;
	s->hits -= before->hits;
	s->late_hits -= before->late_hits;
	s->fetches -= before->fetches;
	s->bypasses -= before->bypasses;
	s->background_copies -= before->background_copies;
	s->evictions -= before->evictions;
	s->rows -= before->rows;
	s->picks -= before->picks;
	s->substitutions -= before->substitutions;
	s->drops -= before->drops;
	s->link_bytes -= before->link_bytes;
	s->copied_bytes -= before->copied_bytes;
	s->n_read -= before->n_read;
	s->read_bytes -= before->read_bytes;
	s->read_us -= before->read_us;
	s->copy_us -= before->copy_us;
	s->compute_us -= before->compute_us;
	s->link_copies -= before->link_copies;
	s->link_busy_us -= before->link_busy_us;
}
