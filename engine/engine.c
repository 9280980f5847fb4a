#include "engine/cache.h"

#include <stdlib.h>
#include <string.h>

struct gm_engine {
	char *policy; /* the words that the grid knows */
	struct gm_grid *grid;
	struct gm_preloads *preloads;
	struct gm_plugin *plugin;
	struct gm_hook *hook;
	struct gm_cache *cache;
};

/* "--cache", "25%"; a flag's value is NULL. */
static int take_option(struct gm_engine *engine, const char *word, const char *value, struct gm_error *err)
{
	for (const struct gm_option *option = gm_policy_options; option->name; option++)
		if (strncmp(word, "--", 2) == 0 && strcmp(option->name, word + 2) == 0)
			return gm_grid_option(engine->grid, option->id, value, err);
	return gm_fail(err, GM_ERR_USAGE, "no such policy option: %.60s: see engine run --help", word);
}

static int take_options(struct gm_engine *engine, const char *policy, struct gm_error *err)
{
	char *rest;

	engine->policy = gm_strdup(policy, err);
	if (!engine->policy)
		return GM_ERR_MEMORY;
	for (char *word = strtok_r(engine->policy, " ", &rest), *next; word; word = next) {
		const char *value = NULL;

		next = strtok_r(NULL, " ", &rest);
		if (next && strncmp(next, "--", 2) != 0) {
			value = next;
			next = strtok_r(NULL, " ", &rest);
		}
		GM_TRY(take_option(engine, word, value, err));
	}
	return GM_OK;
}

static int take_policy(struct gm_engine *engine, const char *policy, const struct gm_settings **settings,
		       struct gm_error *err)
{
	size_t n;

	engine->grid = gm_grid_new(false, err);
	if (!engine->grid)
		return GM_ERR_MEMORY;
	GM_TRY(gm_grid_option(engine->grid, GM_OPTION_HW, "instant", err)); /* no simulated times */
	GM_TRY(take_options(engine, policy ? policy : "", err));
	return gm_grid_expand(engine->grid, settings, &n, err);
}

static int attach(struct gm_engine *engine, const char *model, struct llama_model_params *model_params,
		  struct llama_context_params *context_params, const struct gm_engine_config *config, struct gm_error *err)
{
	const struct gm_cache_options options = {
		.device_bytes = config->vram_expert_bytes, .observes = true, .beside = !config->at_once};
	struct gm_plugin_options plugin = {0};
	struct gm_hook_options hook;
	const struct gm_settings *settings = NULL;

	GM_TRY(take_policy(engine, config->policy, &settings, err));
	if (settings->scope == GM_SCOPE_GLOBAL && settings->prefill == GM_PREFILL_TOKEN)
		gm_hook_one_by_one(context_params); /* one pool meets the layers of a token before those of the next */
	gm_hook_load_library();
	gm_hook_attach_options(&hook, context_params);
	plugin.device = config->device;
	plugin.gpu = gm_hook_offloads(model_params);
	plugin.model = model;
	plugin.experts = config->experts_in_file ? GM_EXPERT_STORE_READ : GM_EXPERT_STORE_MEMORY;
	plugin.host_bytes = config->host_expert_bytes;
	engine->plugin = gm_plugin_new(&plugin, err);
	engine->hook = engine->plugin ? gm_hook_open(model, &hook, err) : NULL;
	engine->preloads = engine->hook ? gm_preloads_new(err) : NULL;
	if (!engine->preloads)
		return err->code;
	engine->cache = gm_cache_new(engine->hook, engine->plugin, settings, engine->preloads, &options, err);
	if (!engine->cache)
		return err->code;
	return gm_hook_attach(engine->hook, gm_plugin_buffer_type(engine->plugin), model_params, context_params, err);
}

struct gm_engine *gm_engine_attach(const char *model, struct llama_model_params *model_params,
				   struct llama_context_params *context_params, const struct gm_engine_config *config,
				   struct gm_error *err)
{
	static const struct gm_engine_config defaults;
	struct gm_error unwanted = {0};
	struct gm_engine *engine = gm_alloc(1, sizeof(*engine), err);

	if (!engine)
		return NULL;
	if (attach(engine, model, model_params, context_params, config ? config : &defaults, err ? err : &unwanted) < 0) {
		gm_engine_free(engine);
		return NULL;
	}
	return engine;
}

const struct gm_error *gm_engine_error(const struct gm_engine *engine)
{
	return gm_plugin_error(engine->plugin);
}

struct gm_engine_stats gm_engine_get_stats(const struct gm_engine *engine)
{
	struct gm_engine_stats stats;

	gm_cache_stats(engine->cache, &stats);
	return stats;
}

void gm_engine_free(struct gm_engine *engine)
{
	if (!engine)
		return;
	gm_cache_free(engine->cache);
	gm_hook_close(engine->hook);
	gm_plugin_free(engine->plugin);
	gm_preloads_free(engine->preloads);
	gm_grid_free(engine->grid);
	free(engine->policy);
	free(engine);
}
