#include "sim/plan.h"

#include "base/number.h"
#include "base/version.h"
#include "sim/lru.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- popularity of preload traces, read once for all points that use it --- */

struct preload {
	struct gm_error error; /* why it cannot be read; then only path and scope are set */
	char *path;
	enum gm_scope scope;
	uint32_t n_layer, n_expert;
	uint32_t *order; /* [n_layer * n_expert] */
	char hash[GM_HASH_TEXT];
};

struct gm_preloads {
	struct preload *item; /* [n] */
	size_t n;
};

struct gm_preloads *gm_preloads_new(struct gm_error *err)
{
	return gm_alloc(1, sizeof(struct gm_preloads), err);
}

void gm_preloads_free(struct gm_preloads *preloads)
{
	if (!preloads)
		return;
	for (size_t i = 0; i < preloads->n; i++) {
		free(preloads->item[i].path);
		free(preloads->item[i].order);
	}
	free(preloads->item);
	free(preloads);
}

static int read_preload(struct preload *item, struct gm_error *err)
{
	if (strcmp(item->path, "-") == 0)
		return gm_fail(err, GM_ERR_USAGE, "a preload trace on standard input: --preload -: give a file");
	struct gm_trace *trace = gm_trace_open(item->path, err);
	if (!trace)
		return err->code;
	item->n_layer = gm_trace_model(trace)->n_layer;
	item->n_expert = gm_trace_model(trace)->n_expert;
	int status = gm_popularity(trace, item->scope, &item->order, err);
	if (status == GM_OK)
		snprintf(item->hash, sizeof(item->hash), "%s", gm_trace_hash(trace));
	gm_trace_close(trace);
	return status;
}

/* The popularity list of a trace; it is the preloads' until they are freed. A trace that cannot be read is tried once. */
static int get_preload(struct gm_preloads *preloads, const char *path, enum gm_scope scope, const struct preload **out,
		       struct gm_error *err)
{
	for (size_t i = 0; i < preloads->n; i++) {
		*out = &preloads->item[i];
		if ((*out)->scope == scope && strcmp((*out)->path, path) == 0)
			return (*out)->error.code ? gm_fail(err, (*out)->error.code, "%s", (*out)->error.text) : GM_OK;
	}
	struct preload *larger = gm_realloc(preloads->item, preloads->n + 1, sizeof(*larger), err);
	if (!larger)
		return GM_ERR_MEMORY;
	preloads->item = larger;
	larger += preloads->n;
	*larger = (struct preload){.scope = scope};
	if (!(larger->path = gm_strdup(path, err)))
		return GM_ERR_MEMORY;
	preloads->n++;
	*out = larger;
	if (read_preload(larger, &larger->error) < 0)
		return gm_fail(err, larger->error.code, "%s", larger->error.text);
	return GM_OK;
}

/* --- sizes (R4) --- */

static int no_bytes(const char *cache, struct gm_error *err)
{
	return gm_fail(
		err, GM_ERR_USAGE,
		"expert bytes not known: --cache %.40s: import the trace with --expert-bytes, or give expert_bytes in a "
		"hardware profile (--hw FILE)",
		cache);
}

static uint64_t total_bytes(const struct gm_hw *hw)
{
	uint64_t sum = 0;

	for (uint32_t l = 0; l < hw->n_layer; l++)
		sum += hw->expert_bytes[l];
	return sum;
}

/* A share of n, rounded half up; the tiny excess makes decimals such as 0.7 % count as they are written. */
static uint64_t share_of(double n, double percent)
{
	return (uint64_t)floor(n * percent / 100 + 0.5 + 1e-9);
}

static int slots_from_bytes(const struct gm_settings *s, const struct gm_hw *hw, uint64_t *slots, struct gm_error *err)
{
	char least[GM_NUMBER_TEXT];

	if (!hw->expert_bytes)
		return no_bytes(s->cache_text, err);
	uint64_t all = total_bytes(hw);
	*slots = all ? s->cache_size / all : UINT64_MAX;
	if (*slots < 1)
		return gm_fail(err, GM_ERR_USAGE,
			       "less than a slot a layer: --cache %.40s: give at least %s (%" PRIu64 " bytes)",
			       s->cache_text, gm_format_bytes(all, least), all);
	return GM_OK;
}

static int resolve_slots(struct gm_plan *plan, const struct gm_settings *s, const struct gm_model *model,
			 struct gm_error *err)
{
	uint64_t slots = s->cache_size;

	if (s->cache_kind == GM_CACHE_PERCENT)
		slots = share_of(model->n_expert, s->cache_percent);
	else if (s->cache_kind == GM_CACHE_BYTES)
		GM_TRY(slots_from_bytes(s, &plan->hw, &slots, err));
	else if (s->cache_kind == GM_CACHE_LIST && s->n_cache_list != model->n_layer)
		return gm_fail(err, GM_ERR_USAGE,
			       "list of slots does not fit: --cache %.80s has %u: give %u, one for each layer",
			       s->cache_text, s->n_cache_list, model->n_layer);
	if (s->cache_kind == GM_CACHE_PERCENT && slots < 1)
		slots = 1;
	for (uint32_t l = 0; l < model->n_layer; l++) {
		uint64_t n = s->cache_kind == GM_CACHE_LIST ? s->cache_list[l] : slots;
		plan->n_slot[l] = n < model->n_expert ? (uint32_t)n : model->n_expert;
	}
	return GM_OK;
}

static int resolve_pool(struct gm_plan *plan, const struct gm_settings *s, const struct gm_model *model,
			struct gm_error *err)
{
	uint64_t bytes = s->cache_size;

	if (s->cache_kind == GM_CACHE_SLOTS || s->cache_kind == GM_CACHE_LIST)
		return gm_fail(
			err, GM_ERR_USAGE,
			"slots are a layer's: --cache %.60s with --cache-scope global: give bytes (6GiB) or a share (25%%)",
			s->cache_text);
	if (!plan->hw.expert_bytes)
		return no_bytes(s->cache_text, err);
	uint64_t all = total_bytes(&plan->hw) * model->n_expert, least = UINT64_MAX;
	for (uint32_t l = 0; l < model->n_layer; l++)
		least = plan->hw.expert_bytes[l] < least ? plan->hw.expert_bytes[l] : least;
	if (s->cache_kind == GM_CACHE_PERCENT)
		bytes = share_of((double)all, s->cache_percent);
	if (bytes < least)
		return gm_fail(err, GM_ERR_USAGE, "no room for an expert: --cache %.40s: give at least %" PRIu64 " bytes",
			       s->cache_text, least);
	plan->config.core.pool_bytes = bytes < all ? bytes : all;
	plan->cache_fraction = all ? (double)plan->config.core.pool_bytes / (double)all : 1;
	return GM_OK;
}

/* stock-ncmoe:N: the first N layers have no slots, the others hold all their experts from the start. */
static int resolve_stock(struct gm_plan *plan, const struct gm_settings *s, const struct gm_model *model,
			 struct gm_error *err)
{
	size_t n = (size_t)model->n_layer * model->n_expert;

	if (s->room_given)
		return gm_fail(err, GM_ERR_USAGE,
			       "cache options beside a preset that sets the cache: --policy %.60s: leave out --cache, "
			       "--cache-scope and --preload",
			       s->policy);
	if (s->cpu_layers > model->n_layer)
		return gm_fail(err, GM_ERR_USAGE, "more layers than the trace has: --policy %.60s: give 0 to %u", s->policy,
			       model->n_layer);
	for (uint32_t l = 0; l < model->n_layer; l++)
		plan->n_slot[l] = l < s->cpu_layers ? 0 : model->n_expert;
	if (!(plan->order = gm_alloc(n, sizeof(*plan->order), err)))
		return GM_ERR_MEMORY;
	for (uint32_t i = 0; i < n; i++)
		plan->order[i] = i;
	plan->config.preload = plan->order;
	plan->config.n_preload = n;
	return GM_OK;
}

static int resolve_room(struct gm_plan *plan, const struct gm_settings *s, const struct gm_model *model,
			struct gm_error *err)
{
	uint64_t sum = 0;
	bool equal = true;

	plan->cache_slots = plan->cache_fraction = (double)NAN;
	if (!(plan->n_slot = gm_alloc(model->n_layer, sizeof(*plan->n_slot), err)))
		return GM_ERR_MEMORY;
	plan->config.core.n_slot = plan->n_slot;
	if (s->cpu_layers >= 0)
		GM_TRY(resolve_stock(plan, s, model, err));
	else if (s->scope == GM_SCOPE_GLOBAL)
		return resolve_pool(plan, s, model, err);
	else
		GM_TRY(resolve_slots(plan, s, model, err));
	for (uint32_t l = 0; l < model->n_layer; l++) {
		sum += plan->n_slot[l];
		equal = equal && plan->n_slot[l] == plan->n_slot[0];
	}
	plan->cache_slots = equal ? (double)plan->n_slot[0] : (double)NAN;
	plan->cache_fraction = (double)sum / ((double)model->n_layer * model->n_expert);
	return GM_OK;
}

/* --- what the trace can give --- */

static bool has_everything_ranked(const struct gm_trace *trace)
{
	return gm_trace_n_head(trace) == gm_trace_model(trace)->n_expert;
}

static int resolve_needs(struct gm_plan *plan, const struct gm_settings *s, const struct gm_trace *trace,
			 struct gm_error *err)
{
	bool next_use = s->evict.ops->info.flags & GM_NEEDS_NEXT_USE;
	bool ranking = s->miss.ops->info.flags & GM_NEEDS_RANKING;
	char miss[GM_POLICY_TEXT];

	if (ranking && gm_trace_kind(trace) == GM_KIND_TOPK)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "no substitutes in a trace without logits: --miss %s: %.60s holds the selected experts "
			       "only; give a "
			       "trace with logits, or --miss fetch, drop or cpu",
			       gm_policy_format(&s->miss.ops->info, s->miss.arg, miss), gm_trace_path(trace));
	if (next_use && !gm_trace_seekable(trace))
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "a bound needs the future of the trace: --evict %s: give the trace as a file, not on a pipe",
			       s->evict.ops->info.name);
	if (next_use)
		plan->window_flags |= GM_WINDOWS_NEXT_USE;
	if (ranking && !has_everything_ranked(trace) && gm_trace_tail(trace) != GM_TAIL_NONE)
		plan->window_flags |= GM_WINDOWS_TAIL;
	if (s->miss.ops->info.flags & GM_NEEDS_GATES)
		plan->window_flags |= GM_WINDOWS_GATES;
	plan->config.head_only = s->head_only && gm_trace_tail(trace) == GM_TAIL_NONE;
	return GM_OK;
}

static int resolve_hw(struct gm_plan *plan, const struct gm_settings *s, const struct gm_model *model, struct gm_error *err)
{
	bool needs_cpu = s->miss.ops->info.flags & GM_NEEDS_CPU;
	struct gm_error why = {0};

	GM_TRY(gm_hw_derive(s->profile, model, &plan->hw, err));
	int status = gm_hw_check(&plan->hw, s->profile, needs_cpu, &why);
	if (status < 0 && s->hw_given) {
		gm_error_at(&why, "--hw %.60s", s->profile->name);
		return gm_fail(err, status, "%s", why.text);
	}
	plan->timed = status == GM_OK;
	snprintf(plan->untimed, sizeof(plan->untimed), "%s", why.text);
	plan->config.hw = &plan->hw;
	plan->config.timed = plan->timed && !plan->hw.instant;
	return GM_OK;
}

static int resolve_preload(struct gm_plan *plan, const struct gm_settings *s, const struct gm_model *model,
			   struct gm_preloads *preloads, struct gm_error *err)
{
	const struct preload *item;

	if (!s->preload || s->cpu_layers >= 0)
		return GM_OK;
	GM_TRY(get_preload(preloads, s->preload, s->scope, &item, err));
	if (item->n_layer != model->n_layer || item->n_expert != model->n_expert)
		return gm_fail(
			err, GM_ERR_USAGE,
			"preload trace of another model: --preload %.60s is %u layers by %u experts: give one of %u by %u",
			s->preload, item->n_layer, item->n_expert, model->n_layer, model->n_expert);
	plan->config.preload = item->order;
	plan->config.n_preload = (size_t)item->n_layer * item->n_expert;
	snprintf(plan->preload_hash, sizeof(plan->preload_hash), "%s", item->hash);
	return GM_OK;
}

/* No count of bytes may pass 64 bits: neither all experts together nor all that a replay copies (a pick copies one expert at most, and one
 * more in the background). Rows from a pipe or a running model do not say how many tokens there will be. */
static int check_bytes(const struct gm_hw *hw, const struct gm_model *model, const struct gm_trace *trace,
		       struct gm_error *err)
{
	const double tokens = trace && gm_trace_seekable(trace) ? (double)gm_trace_n_token(trace) : 0x1p24;
	double sum = 0;

	for (uint32_t l = 0; hw->expert_bytes && l < hw->n_layer; l++)
		sum += (double)hw->expert_bytes[l];
	if (sum * model->n_expert >= 0x1p63 || 2 * sum * model->top_k * tokens >= 0x1p63)
		return gm_fail(err, GM_ERR_UNSUPPORTED,
			       "experts too large: %g bytes, one of each layer: their copies would not be counted in 64 "
			       "bits: give "
			       "a smaller expert_bytes in a hardware profile",
			       sum);
	return GM_OK;
}

/* --- the fingerprint --- */

static void put_times(FILE *out, const char *name, const double *times, uint32_t n)
{
	char text[GM_NUMBER_TEXT];

	fprintf(out, "\n%s", name);
	for (uint32_t i = 0; i < n; i++) {
		if (i == 0 || times[i] != times[i - 1])
			gm_format_double(times[i], text); /* mostly, all layers have the same */
		fprintf(out, " %s", text);
	}
}

static void put_policy(FILE *out, const char *kind, const struct gm_policy_info *info, const double *arg)
{
	char text[GM_POLICY_TEXT];

	fprintf(out, "\n%s %s", kind, gm_policy_format(info, arg, text));
}

static void put_bytes(FILE *out, const struct gm_plan *plan)
{
	const struct gm_hw *hw = &plan->hw;

	fprintf(out, "\nexpert_bytes");
	for (uint32_t l = 0; hw->expert_bytes && l < hw->n_layer; l++)
		fprintf(out, " %" PRIu64, hw->expert_bytes[l]);
	fprintf(out, "\ntimed %d", plan->config.timed);
}

static void put_hw(FILE *out, const struct gm_plan *plan)
{
	const struct gm_hw *hw = &plan->hw;

	if (!plan->config.timed) {
		fprintf(out, " known %d", plan->timed);
		return;
	}
	put_times(out, "dense", hw->dense_us, hw->n_layer);
	put_times(out, "gpu", hw->gpu_expert_us, hw->n_layer);
	put_times(out, "cpu", hw->cpu_expert_us, hw->n_layer);
	put_times(out, "copy", hw->copy_us, hw->n_layer);
	put_times(out, "read", hw->read_us, hw->n_layer);
	put_times(out, "roundtrip", &hw->cpu_roundtrip_us, 1);
	put_times(out, "token", &hw->token_us, 1);
	fprintf(out, "\nhost %" PRIu64, hw->host_bytes);
}

/* Eviction has nothing to choose from where a miss rule never inserts, but for a policy that holds everything; nor where every miss is substituted:
 * a pick is fetched only if no resident of its layer is left for it, so that all are pinned. */
static bool substitutes_all(const struct gm_core_config *core, bool head_only)
{
	return (core->miss.ops->info.flags & GM_ONLY_SUBSTITUTES) && !core->admit.ops->substituted &&
	       core->scope == GM_SCOPE_LAYER && !head_only && !(core->evict.ops->info.flags & GM_ALL_RESIDENT);
}

static bool never_evicts(const struct gm_core_config *core, bool head_only)
{
	bool never_inserts =
		(core->miss.ops->info.flags & GM_NO_INSERT) && !(core->evict.ops->info.flags & GM_ALL_RESIDENT);

	return never_inserts || substitutes_all(core, head_only);
}

/* Slots of a layer that can make a difference: where every miss of a row is substituted, a cold layer never holds more than top_k experts, for it
 * fetches one only if the row has use for all that it holds. */
static uint32_t slots_of_use(const struct gm_plan *plan, const struct gm_settings *s, uint32_t layer)
{
	const struct gm_core_config *core = &plan->config.core;
	bool few = substitutes_all(core, s->head_only) && s->prefill == GM_PREFILL_TOKEN && !plan->config.preload;

	return few && plan->n_slot[layer] > core->top_k ? core->top_k : plan->n_slot[layer];
}

enum fingerprint {
	AS_GIVEN, /* all settings: the hash that users see */
	REPLAYED, /* policies as they take effect, hardware times only where they can change what is replayed, no sizes where all are replayed in
		     one */
	DECIDING, /* what decides on given arrivals */
};

/* Canonical text of the settings. */
static void put_settings(FILE *out, const struct gm_plan *plan, const struct gm_settings *s, enum fingerprint kind)
{
	const struct gm_core_config *core = &plan->config.core;
	bool as_given = kind != REPLAYED;
	const struct gm_admit *admit = as_given ? &s->admit : &core->admit;
	bool sizes = s->scope == GM_SCOPE_LAYER && (as_given || !gm_lru_serves(&plan->config));

	fprintf(out, "semantics %d\nscope %d\nslots", GM_SEMANTICS_VERSION, (int)s->scope);
	for (uint32_t l = 0; sizes && l < core->n_layer; l++)
		fprintf(out, " %u", as_given ? plan->n_slot[l] : slots_of_use(plan, s, l));
	fprintf(out, "\npool %" PRIu64, core->pool_bytes);
	if (as_given || !never_evicts(core, s->head_only))
		put_policy(out, "evict", &s->evict.ops->info, s->evict.arg);
	put_policy(out, "miss", &s->miss.ops->info, s->miss.arg);
	put_policy(out, "admit", &admit->ops->info, admit->arg);
	fprintf(out, "\nprefill %d\nwarmup %" PRIu64 "\nreset %d\npreload %s %d\nhead_only %d", (int)s->prefill,
		kind == DECIDING ? 0 : s->warmup, s->reset_per_sequence, plan->preload_hash, s->cpu_layers >= 0,
		s->head_only);
	put_bytes(out, plan);
	if (kind == AS_GIVEN ||
	    (kind == REPLAYED && !gm_replay_counts_work(&plan->config) && !gm_replay_goes_ahead(&plan->config)))
		put_hw(out, plan);
}

static int fingerprint(const struct gm_plan *plan, const struct gm_settings *s, enum fingerprint kind, char *hash,
		       struct gm_error *err)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory: a fingerprint");
	put_settings(out, plan, s, kind);
	if (fclose(out) != 0) {
		free(text);
		return gm_fail(err, GM_ERR_MEMORY, "out of memory: a fingerprint");
	}
	gm_hash_format(gm_hash(text, size), hash);
	free(text);
	return GM_OK;
}

/* Background admission takes what was substituted: a rule that never substitutes has none, and its layers need not wait for each other.
 * The table begins with plain fetching. */
static struct gm_admit effective_admit(const struct gm_settings *s)
{
	return (s->miss.ops->info.flags & GM_NEEDS_RANKING) ? s->admit : (struct gm_admit){.ops = gm_admit_table[0]};
}

/* trace: NULL where the rows come from a running model. */
static int make(struct gm_plan *plan, const struct gm_settings *s, const struct gm_model *model,
		const struct gm_trace *trace, struct gm_preloads *preloads, struct gm_error *err)
{
	struct gm_core_config *core = &plan->config.core;

	*plan = (struct gm_plan){0};
	GM_TRY(resolve_hw(plan, s, model, err));
	*core = (struct gm_core_config){
		.n_layer = model->n_layer,
		.n_expert = model->n_expert,
		.top_k = model->top_k,
		.scope = s->scope,
		.expert_bytes = plan->hw.expert_bytes,
		.evict = s->evict,
		.miss = s->miss,
		.admit = effective_admit(s),
	};
	GM_TRY(check_bytes(&plan->hw, model, trace, err));
	plan->config.prefill = s->prefill;
	plan->config.warmup = s->warmup;
	plan->config.reset_per_sequence = s->reset_per_sequence;
	plan->config.ahead = trace && gm_trace_seekable(trace);
	GM_TRY(resolve_room(plan, s, model, err));
	if (trace)
		GM_TRY(resolve_needs(plan, s, trace, err));
	GM_TRY(resolve_preload(plan, s, model, preloads, err));
	GM_TRY(gm_core_check(core, err));
	GM_TRY(fingerprint(plan, s, AS_GIVEN, plan->hash, err));
	return fingerprint(plan, s, REPLAYED, plan->replay_hash, err);
}

int gm_plan_make(struct gm_plan *plan, const struct gm_settings *s, const struct gm_trace *trace,
		 struct gm_preloads *preloads, struct gm_error *err)
{
	return make(plan, s, gm_trace_model(trace), trace, preloads, err);
}

int gm_plan_make_live(struct gm_plan *plan, const struct gm_settings *s, const struct gm_model *model,
		      struct gm_preloads *preloads, struct gm_error *err)
{
	return make(plan, s, model, NULL, preloads, err);
}

/* --- measured arrivals --- */

int gm_plan_policy_hash(const struct gm_plan *plan, const struct gm_settings *s, char *hash, struct gm_error *err)
{
	return fingerprint(plan, s, DECIDING, hash, err);
}

/* The same settings with other arrivals give other results. */
static void add_landings(struct gm_plan *plan, const struct gm_landings *landings)
{
	uint64_t hash = gm_hash(plan->hash, strlen(plan->hash));

	for (size_t i = 0; i < landings->n; i++) {
		const struct gm_landing *landing = &landings->landing[i];
		const uint64_t numbers[] = {hash, landing->token, landing->layer, landing->expert_layer, landing->expert};

		hash = gm_hash(numbers, sizeof(numbers));
	}
	gm_hash_format(hash, plan->hash);
}

int gm_plan_land(struct gm_plan *plan, const struct gm_settings *s, const struct gm_trace *trace,
		 const struct gm_landings *landings, struct gm_error *err)
{
	const char *trace_hash = gm_trace_hash(trace);
	char hash[GM_HASH_TEXT];

	if (plan->config.timed)
		return gm_fail(err, GM_ERR_USAGE, "simulated times beside measured arrivals: --hw %.60s: leave it out",
			       s->profile->name);
	if (!trace_hash)
		return gm_fail(err, GM_ERR_USAGE, "a trace on a pipe: --arrivals %.60s: give it as a file", landings->path);
	if (strcmp(trace_hash, landings->trace_hash) != 0)
		return gm_fail(err, GM_ERR_USAGE,
			       "arrivals of another trace: --arrivals %.60s: is of %s, not of %s (%.60s)", landings->path,
			       landings->trace_hash, trace_hash, gm_trace_path(trace));
	GM_TRY(gm_plan_policy_hash(plan, s, hash, err));
	if (strcmp(hash, landings->policy_hash) != 0)
		return gm_fail(err, GM_ERR_USAGE, "not the settings of the run: --arrivals %.60s: give %s", landings->path,
			       landings->policy);
	plan->config.landings = landings;
	add_landings(plan, landings);
	return GM_OK;
}

void gm_plan_free(struct gm_plan *plan)
{
	if (!plan)
		return;
	gm_hw_free(&plan->hw);
	free(plan->n_slot);
	free(plan->order);
	*plan = (struct gm_plan){0};
}
