#include "tests/llama/engine_support.h"

#include <stdlib.h>
#include <string.h>

static int settings_of(struct engined *run, const char *const *option, const struct gm_settings **settings,
		       struct gm_error *err)
{
	size_t n;

	gm_grid_free(run->grid);
	run->grid = gm_grid_new(false, err);
	assert_non_null(run->grid);
	GM_TRY(gm_grid_option(run->grid, GM_OPTION_HW, "instant", err));
	for (; *option; option += 2)
		GM_TRY(gm_grid_option(run->grid, policy_option_id(option[0]), option[1][0] ? option[1] : NULL, err));
	return gm_grid_expand(run->grid, settings, &n, err);
}

int engined_with(struct engined *run, const char *const *option, const struct gm_cache_options *options,
		 struct gm_error *err)
{
	const struct gm_settings *settings;

	gm_cache_free(run->cache);
	run->cache = NULL;
	GM_TRY(settings_of(run, option, &settings, err));
	run->cache = gm_cache_new(run->hook, run->plugin, settings, run->preloads, options, err);
	return run->cache ? GM_OK : err->code;
}

int engined_again(struct engined *run, const char *const *option, struct gm_error *err)
{
	return engined_with(run, option, &(struct gm_cache_options){0}, err);
}

int engined_from(struct engined *run, struct gm_plugin_options plugin, const char *path,
		 const struct gm_hook_options *options, const char *const *option, struct gm_error *err)
{
	struct gm_hook_options hook = *options;

	memset(run, 0, sizeof(*run));
	gm_hook_load_library();
	run->preloads = gm_preloads_new(err);
	plugin.gpu = hook.n_gpu_layers != 0;
	plugin.model = path;
	run->plugin = gm_plugin_new(&plugin, err);
	assert_non_null(run->preloads);
	if (!run->plugin)
		return err->code;
	hook.expert_buffer = gm_plugin_buffer_type(run->plugin);
	run->hook = gm_hook_open(path, &hook, err);
	if (!run->hook)
		return err->code;
	return engined_again(run, option, err);
}

int engined_try(struct engined *run, const char *path, const struct gm_hook_options *options, const char *const *option,
		struct gm_error *err)
{
	return engined_from(run, (struct gm_plugin_options){0}, path, options, option, err);
}

void engined_open(struct engined *run, const char *path, const struct gm_hook_options *options, const char *const *option)
{
	struct gm_error err = {0};

	assert_ok(engined_try(run, path, options, option, &err), &err);
}

void engined_close(struct engined *run)
{
	gm_cache_free(run->cache);
	gm_hook_close(run->hook);
	gm_plugin_free(run->plugin);
	gm_preloads_free(run->preloads);
	gm_grid_free(run->grid);
}

int engined_run(struct engined *run, const int32_t *token, uint32_t n, float *output, struct gm_error *err)
{
	const struct gm_hook_info *info = gm_hook_info(run->hook);
	float *logprob = calloc(info->n_ubatch, sizeof(*logprob));
	int status = gm_cache_begin_sequence(run->cache, NULL, NULL, err);

	assert_non_null(logprob);
	for (uint32_t done = 0; done < n && status == GM_OK;) {
		uint32_t pass = n - done < info->n_ubatch ? n - done : info->n_ubatch;

		status = gm_cache_pass(run->cache, token + done, pass, logprob, err);
		for (uint32_t i = 0; output && i < pass && status == GM_OK; i++)
			memcpy(output + (size_t)(done + i) * info->n_vocab, gm_hook_output(run->hook, i),
			       info->n_vocab * sizeof(float));
		done += pass;
	}
	free(logprob);
	return status;
}

struct gm_recording *engined_record(struct engined *run, const char *path)
{
	const struct gm_model *model = gm_hook_model(run->hook);
	const struct gm_writer_options options = {
		.kind = GM_KIND_LOGITS, .tail = GM_TAIL_F32, .source = "test", .tool = "test"};
	struct gm_error err = {0};
	struct gm_writer *writer = gm_writer_open(path, model, &options, &err);
	struct gm_recording *recording;

	if (!writer)
		fail_msg("%s", err.text);
	recording = gm_recording_open(writer, model->n_expert, 1 << 24, &err);
	assert_non_null(recording);
	gm_cache_record(run->cache, recording);
	return recording;
}

struct gm_counters engined_counters(const struct engined *run)
{
	struct gm_counters sum = {0};
	const struct gm_account *account = gm_cache_account(run->cache);

	for (uint32_t l = 0; l < account->n_layer; l++)
		gm_counters_add(&sum, &account->layer[l].count);
	return sum;
}

static int start(void *user, const struct gm_core *core, struct gm_error *err)
{
	(void)user, (void)core, (void)err;
	return GM_OK;
}

static int rows(void *user, uint32_t layer, uint32_t first, uint32_t n, struct gm_error *err)
{
	(void)user, (void)layer, (void)first, (void)n, (void)err;
	return GM_OK;
}

static int decided(void *user, const struct gm_decision *decision, struct gm_error *err)
{
	(void)user, (void)decision, (void)err;
	return GM_OK;
}

void engined_emulate(const struct engined *run, struct gm_hook *stock, struct gm_override override,
		     struct gm_arrivals *arrivals, const int32_t *token, uint32_t n, float *output,
		     struct gm_account *account)
{
	const struct gm_follower_watch watch = {.arrivals = arrivals, .start = start, .rows = rows, .decided = decided};
	const struct gm_settings *settings = gm_cache_settings(run->cache);
	const struct gm_hook_info *info = gm_hook_info(stock);
	const struct gm_model *model = gm_hook_model(stock);
	struct gm_error err = {0};
	struct gm_scratch *scratch = gm_scratch_new(model->n_expert, model->top_k, &err);
	struct gm_driver *driver = gm_driver_new(stock, &err);
	struct gm_follower *follower;
	struct gm_driver_setup setup = {
		.follower = &follower,
		.n_follower = 1,
		.substitutes = (settings->miss.ops->info.flags & GM_NEEDS_RANKING) != 0,
		.drops = (settings->miss.ops->info.flags & GM_DROPS) != 0,
		.override = override,
	};
	float *logprob = calloc(info->n_ubatch, sizeof(*logprob));

	assert_true(scratch && driver && logprob);
	assert_ok(gm_account_init(account, model->n_layer, 1, settings->warmup, NULL, 0, &err), &err);
	follower = gm_follower_new(gm_cache_plan(run->cache), account, info->n_ubatch, scratch, &err);
	assert_non_null(follower);
	assert_ok(gm_follower_set_watch(follower, &watch, &err), &err);
	gm_driver_set(driver, &setup);
	assert_ok(gm_driver_begin_sequence(driver, NULL, NULL, &err), &err);
	for (uint32_t done = 0; done < n;) {
		uint32_t pass = n - done < info->n_ubatch ? n - done : info->n_ubatch;

		assert_ok(gm_driver_pass(driver, done, token + done, pass, logprob, &err), &err);
		for (uint32_t i = 0; i < pass; i++)
			memcpy(output + (size_t)(done + i) * info->n_vocab, gm_hook_output(stock, i),
			       info->n_vocab * sizeof(float));
		done += pass;
	}
	gm_driver_free(driver);
	gm_follower_free(follower);
	gm_scratch_free(scratch);
	free(logprob);
}
