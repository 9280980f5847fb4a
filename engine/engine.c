#include "engine/cache.h"

#include <stdlib.h>
#include <string.h>

struct gm_engine {
	struct gm_grid *grid;
	struct gm_preloads *preloads;
	struct gm_plugin *plugin;
	struct gm_hook *hook;
	struct gm_cache *cache;
};

static int option_id(const char *name)
{
	for (const struct gm_option *option = gm_policy_options; option->name; option++)
		if (strcmp(option->name, name) == 0)
			return option->id;
	return 0;
}

/* Pairs of name and value as one settings. */
static int take_policy(struct gm_engine *engine, const char *const *policy, const struct gm_settings **settings,
		       struct gm_error *err)
{
	size_t n;

	engine->grid = gm_grid_new(false, err);
	if (!engine->grid)
		return GM_ERR_MEMORY;
	GM_TRY(gm_grid_option(engine->grid, GM_OPTION_HW, "instant", err)); /* no simulated times */
	for (; policy && policy[0]; policy += 2) {
		int id = option_id(policy[0]);

		if (!id)
			return gm_fail(err, GM_ERR_USAGE, "no such policy option: %.60s: see engine run --help", policy[0]);
		GM_TRY(gm_grid_option(engine->grid, id, policy[1], err));
	}
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

void gm_engine_get_stats(const struct gm_engine *engine, struct gm_engine_stats *stats)
{
	gm_cache_stats(engine->cache, stats);
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
	free(engine);
}
