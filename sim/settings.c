#include "sim/settings.h"

#include "base/json.h"
#include "base/number.h"
#include "sim/settings_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct gm_option gm_policy_options[] = {
	{GM_OPTION_POLICY, 0, "policy", "NAME",
	 "a preset (see `sim policies`); --evict, --miss and --admit override its parts"},
	{GM_OPTION_CACHE, 0, "cache", "SIZE",
	 "slots a layer (32), a share of the experts (25%), bytes (6GiB),\n"
	 "or FILE.json with a list of slots for each layer [25%]"},
	{GM_OPTION_CACHE_SCOPE, 0, "cache-scope", "layer|global",
	 "global: one pool over all layers, in bytes or % [layer]"},
	{GM_OPTION_EVICT, 0, "evict", "NAME[:ARG]", "what leaves when room is needed [lru]"},
	{GM_OPTION_MISS, 0, "miss", "NAME[:ARG]", "what a miss does [fetch]"},
	{GM_OPTION_ADMIT, 0, "admit", "NAME[:ARG]", "fetch, or background:WEIGHT for copies beside the work [fetch]"},
	{GM_OPTION_PREFILL, 0, "prefill", "token|batch", "prompts token by token, or each pass as one event [token]"},
	{GM_OPTION_HW, 0, "hw", "NAME|FILE", "hardware profile; instant: only count [" GM_DEFAULT_PROFILE "]"},
	{GM_OPTION_WARMUP, 0, "warmup", "N", "leave the first N tokens out of every statistic [0]"},
	{GM_OPTION_RESET, 0, "reset-per-sequence", NULL, "begin every sequence with a fresh cache"},
	{GM_OPTION_PRELOAD, 0, "preload", "TRACE", "begin with the experts that TRACE asked for most; none: cold [none]"},
	{GM_OPTION_HEAD_ONLY, 0, "head-only", NULL,
	 "where a substitute would be sought past the stored ranking, fetch\n"
	 "and count it as head_exhausted"},
	{0, 0, NULL, NULL, NULL},
};

const struct gm_option *gm_settings_option(int option_id)
{
	return &gm_policy_options[option_id - GM_OPTION_POLICY];
}

bool gm_settings_takes_ranges(int option_id)
{
	return option_id == GM_OPTION_POLICY || option_id == GM_OPTION_CACHE || option_id == GM_OPTION_EVICT ||
	       option_id == GM_OPTION_MISS || option_id == GM_OPTION_ADMIT || option_id == GM_OPTION_WARMUP;
}

/* --- what settings point to --- */

void gm_settings_store_free(struct gm_settings_store *store)
{
	for (size_t i = 0; i < store->n; i++)
		free(store->block[i]);
	for (size_t i = 0; i < store->n_profile; i++) {
		gm_profile_free(store->profile[i]);
		free(store->profile[i]);
		free(store->profile_name[i]);
	}
	free(store->block);
	free(store->profile);
	free(store->profile_name);
	*store = (struct gm_settings_store){0};
}

/* Takes a block over, also on failure. */
static int keep(struct gm_settings_store *store, void *block, struct gm_error *err)
{
	void **larger = block ? gm_realloc(store->block, store->n + 1, sizeof(*larger), err) : NULL;

	if (!larger) {
		free(block);
		return GM_ERR_MEMORY;
	}
	store->block = larger;
	store->block[store->n++] = block;
	return GM_OK;
}

static int keep_text(struct gm_settings_store *store, const char *text, const char **out, struct gm_error *err)
{
	char *copy = gm_strdup(text, err);

	GM_TRY(keep(store, copy, err));
	*out = copy;
	return GM_OK;
}

/* --- one option each --- */

static int set_layers(const char *count, struct gm_settings *out, struct gm_error *err)
{
	uint64_t n;

	if (!count || gm_parse_u64(count, "", 0, GM_MAX_LAYER, &n, NULL) < 0)
		return gm_fail(err, GM_ERR_USAGE, "not a number of layers: give NAME:N, N the layers on the CPU");
	out->cpu_layers = (int64_t)n;
	return GM_OK;
}

static int set_policy(struct gm_settings_store *store, const char *text, struct gm_settings *out, struct gm_error *err)
{
	const struct gm_preset *preset = gm_preset_table;
	const char *colon = strchr(text, ':');
	size_t length = colon ? (size_t)(colon - text) : strlen(text);
	char known[160] = "";

	for (; preset->name; preset++) {
		if (strncmp(preset->name, text, length) == 0 && preset->name[length] == '\0')
			break;
		snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s%s", *known ? ", " : "", preset->name,
			 preset->takes_layers ? ":N" : "");
	}
	if (!preset->name)
		return gm_fail(err, GM_ERR_USAGE, "unknown preset: give one of %s", known);
	if (colon && !preset->takes_layers)
		return gm_fail(err, GM_ERR_USAGE, "a preset without arguments: give %s", preset->name);
	if (preset->takes_layers)
		GM_TRY(set_layers(colon ? colon + 1 : NULL, out, err));
	if (preset->evict)
		GM_TRY(gm_evict_parse(preset->evict, &out->evict, err));
	if (preset->miss)
		GM_TRY(gm_miss_parse(preset->miss, &out->miss, err));
	if (preset->admit)
		GM_TRY(gm_admit_parse(preset->admit, &out->admit, err));
	return keep_text(store, text, &out->policy, err);
}

static bool ends_in(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && strcmp(text + n - m, end) == 0;
}

/* FILE.json: a list of slots for each layer. */
static int set_cache_list(struct gm_settings_store *store, const char *path, struct gm_settings *out, struct gm_error *err)
{
	struct gm_json *json = gm_json_parse_file(path, err);
	size_t n = 0, i = 0;
	uint32_t *list = NULL;
	int status = GM_OK;

	if (!json)
		return err->code;
	n = gm_json_size(json);
	if (gm_json_type(json) != GM_JSON_ARRAY || n == 0 || n > GM_MAX_LAYER) {
		status = gm_fail(err, GM_ERR_USAGE, "not a list of slots: give [8, 8, 16, ...], a number for each layer");
		goto out;
	}
	list = gm_alloc(n, sizeof(*list), err);
	for (const struct gm_json *item = gm_json_first(json); list && item; item = gm_json_next(item)) {
		double value = gm_json_value(item);
		if (!(value >= 0 && value <= GM_MAX_EXPERT && value == floor(value))) {
			status = gm_fail(err, GM_ERR_USAGE,
					 "not a number of slots: item %zu: give a whole number from 0 to %u", i + 1,
					 GM_MAX_EXPERT);
			goto out;
		}
		list[i++] = (uint32_t)value;
	}
	out->cache_kind = GM_CACHE_LIST;
	out->cache_list = list;
	out->n_cache_list = (uint32_t)n;
	status = keep(store, list, err);
	list = NULL;
out:
	free(list);
	gm_json_free(json);
	return status;
}

static int set_percent(const char *text, struct gm_settings *out, struct gm_error *err)
{
	char number[64];
	size_t length = strlen(text) - 1;

	snprintf(number, sizeof(number), "%.*s", (int)length, text);
	if (length >= sizeof(number) || gm_parse_double(number, "", &out->cache_percent, NULL) < 0 ||
	    !(out->cache_percent >= 0 && out->cache_percent <= 100))
		return gm_fail(err, GM_ERR_USAGE, "not a share: give 0%% to 100%%");
	out->cache_kind = GM_CACHE_PERCENT;
	return GM_OK;
}

static int set_cache(struct gm_settings_store *store, const char *text, struct gm_settings *out, struct gm_error *err)
{
	bool has_unit;

	GM_TRY(keep_text(store, text, &out->cache_text, err));
	if (ends_in(text, ".json") || strcmp(text, "-") == 0)
		return set_cache_list(store, text, out, err);
	if (ends_in(text, "%"))
		return set_percent(text, out, err);
	if (gm_parse_bytes(text, "", &out->cache_size, &has_unit, NULL) < 0)
		return gm_fail(err, GM_ERR_USAGE,
			       "not a cache size: give slots a layer (32), a share (25%%), bytes (6GiB) or FILE.json");
	out->cache_kind = has_unit ? GM_CACHE_BYTES : GM_CACHE_SLOTS;
	if (has_unit && out->cache_size == 0)
		return gm_fail(err, GM_ERR_USAGE, "no bytes: give room for one expert at least");
	return GM_OK;
}

/* The index of text in two words. */
static int set_word(const char *text, const char *first, const char *second, int *out, struct gm_error *err)
{
	*out = strcmp(text, second) == 0;
	if (*out == 0 && strcmp(text, first) != 0)
		return gm_fail(err, GM_ERR_USAGE, "unknown value: give %s or %s", first, second);
	return GM_OK;
}

static int set_hw(struct gm_settings_store *store, const char *text, struct gm_settings *out, struct gm_error *err)
{
	struct gm_profile **profile;
	char **name;
	size_t n = store->n_profile;

	out->hw_given = true;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(store->profile_name[i], text) == 0) {
			out->profile = store->profile[i];
			return GM_OK;
		}
	}
	if (!(profile = gm_realloc(store->profile, n + 1, sizeof(*profile), err)))
		return GM_ERR_MEMORY;
	store->profile = profile;
	if (!(name = gm_realloc(store->profile_name, n + 1, sizeof(*name), err)))
		return GM_ERR_MEMORY;
	store->profile_name = name;
	profile[n] = gm_alloc(1, sizeof(**profile), err);
	name[n] = gm_strdup(text, err);
	int status = profile[n] && name[n] ? gm_profile_load(text, profile[n], err) : GM_ERR_MEMORY;
	if (status < 0) {
		free(profile[n]);
		free(name[n]);
		return status;
	}
	out->profile = profile[n];
	store->n_profile++;
	return GM_OK;
}

static int set_warmup(const char *text, struct gm_settings *out, struct gm_error *err)
{
	if (gm_parse_u64(text, "", 0, UINT64_C(1) << 53, &out->warmup, NULL) < 0)
		return gm_fail(err, GM_ERR_USAGE, "not a number of tokens: give a whole number from 0 on");
	return GM_OK;
}

static int set(struct gm_settings_store *store, int option_id, const char *text, struct gm_settings *out,
	       struct gm_error *err)
{
	int word = 0;

	switch (option_id) {
	case GM_OPTION_POLICY:
		return set_policy(store, text, out, err);
	case GM_OPTION_CACHE:
		return set_cache(store, text, out, err);
	case GM_OPTION_CACHE_SCOPE:
		GM_TRY(set_word(text, "layer", "global", &word, err));
		out->scope = word ? GM_SCOPE_GLOBAL : GM_SCOPE_LAYER;
		return GM_OK;
	case GM_OPTION_EVICT:
		return gm_evict_parse(text, &out->evict, err);
	case GM_OPTION_MISS:
		return gm_miss_parse(text, &out->miss, err);
	case GM_OPTION_ADMIT:
		return gm_admit_parse(text, &out->admit, err);
	case GM_OPTION_PREFILL:
		GM_TRY(set_word(text, "token", "batch", &word, err));
		out->prefill = word ? GM_PREFILL_BATCH : GM_PREFILL_TOKEN;
		return GM_OK;
	case GM_OPTION_HW:
		return set_hw(store, text, out, err);
	case GM_OPTION_WARMUP:
		return set_warmup(text, out, err);
	case GM_OPTION_RESET:
	case GM_OPTION_HEAD_ONLY:
		GM_TRY(set_word(text, "false", "true", &word, err));
		*(option_id == GM_OPTION_RESET ? &out->reset_per_sequence : &out->head_only) = word;
		return GM_OK;
	default:
		if (*text == '\0')
			return gm_fail(err, GM_ERR_USAGE, "empty name: give a trace, or none");
		out->preload = NULL;
		return strcmp(text, "none") == 0 ? GM_OK : keep_text(store, text, &out->preload, err);
	}
}

int gm_settings_set(struct gm_settings_store *store, int option_id, const char *text, struct gm_settings *out,
		    struct gm_error *err)
{
	int status = set(store, option_id, text, out, err);

	if (status < 0)
		gm_error_at(err, "--%s \"%.60s\"", gm_settings_option(option_id)->name, text);
	return status;
}

void gm_settings_apply(int option_id, const struct gm_settings *from, struct gm_settings *to)
{
	switch (option_id) {
	case GM_OPTION_POLICY:
		to->policy = from->policy;
		to->cpu_layers = from->cpu_layers;
		to->evict = from->evict.ops ? from->evict : to->evict;
		to->miss = from->miss.ops ? from->miss : to->miss;
		to->admit = from->admit.ops ? from->admit : to->admit;
		break;
	case GM_OPTION_CACHE:
		to->cache_text = from->cache_text;
		to->cache_kind = from->cache_kind;
		to->cache_percent = from->cache_percent;
		to->cache_size = from->cache_size;
		to->cache_list = from->cache_list;
		to->n_cache_list = from->n_cache_list;
		break;
	case GM_OPTION_CACHE_SCOPE:
		to->scope = from->scope;
		break;
	case GM_OPTION_EVICT:
		to->evict = from->evict;
		break;
	case GM_OPTION_MISS:
		to->miss = from->miss;
		break;
	case GM_OPTION_ADMIT:
		to->admit = from->admit;
		break;
	case GM_OPTION_PREFILL:
		to->prefill = from->prefill;
		break;
	case GM_OPTION_HW:
		to->profile = from->profile;
		to->hw_given = from->hw_given;
		break;
	case GM_OPTION_WARMUP:
		to->warmup = from->warmup;
		break;
	case GM_OPTION_RESET:
		to->reset_per_sequence = from->reset_per_sequence;
		break;
	case GM_OPTION_PRELOAD:
		to->preload = from->preload;
		break;
	case GM_OPTION_HEAD_ONLY:
		to->head_only = from->head_only;
		break;
	}
}

char *gm_settings_describe(const struct gm_settings *settings, char *out, size_t size)
{
	char evict[GM_POLICY_TEXT], miss[GM_POLICY_TEXT], admit[GM_POLICY_TEXT], room[128] = "";

	if (settings->cpu_layers < 0)
		snprintf(room, sizeof(room), "--cache %.80s%s ", settings->cache_text,
			 settings->scope == GM_SCOPE_GLOBAL ? " --cache-scope global" : "");
	else
		snprintf(room, sizeof(room), "--policy %.80s ", settings->policy);
	snprintf(out, size, "%s--evict %s --miss %s --admit %s", room,
		 gm_policy_format(&settings->evict.ops->info, settings->evict.arg, evict),
		 gm_policy_format(&settings->miss.ops->info, settings->miss.arg, miss),
		 gm_policy_format(&settings->admit.ops->info, settings->admit.arg, admit));
	return out;
}
