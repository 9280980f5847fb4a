#include "sim/result.h"

#include "base/version.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(struct gm_result, field)
#define SETTING(name, type, help)                                      \
	{                                                              \
#name, NULL, NULL, GM_COLUMN_##type, 0, AT(name), help \
	}
#define COUNT(name, help)                                                          \
	{                                                                          \
#name, NULL, NULL, GM_COLUMN_UINT, GM_COLUMN_COUNT, AT(name), help \
	}
#define MEAN(name, flags, help)                                                              \
	{                                                                                    \
#name, NULL, NULL, GM_COLUMN_REAL, GM_COLUMN_COUNT | (flags), AT(name), help \
	}
#define SPLIT(part, help)                                                                                               \
	{                                                                                                               \
		"time_" #part "_us", "time_us", #part, GM_COLUMN_REAL, GM_COLUMN_COUNT | GM_COLUMN_TIME, AT(part##_us), \
			help                                                                                            \
	}
#define ORIGIN(name, type, flags, help)                                                           \
	{                                                                                         \
#name, NULL, NULL, GM_COLUMN_##type, GM_COLUMN_CSV_ONLY | (flags), AT(name), help \
	}

const struct gm_column gm_result_columns[] = {
	SETTING(trace, TEXT, "file that was replayed"),
	SETTING(model, TEXT, "name of the recorded model"),
	SETTING(n_layer, UINT, "MoE layers"),
	SETTING(n_expert, UINT, "experts a layer"),
	SETTING(n_expert_used, UINT, "experts a token uses"),
	SETTING(cache_slots, REAL, "slots a layer; empty where layers differ or share one pool"),
	SETTING(cache_fraction, REAL, "share of all experts (scope global: of all expert bytes) that fits"),
	SETTING(cache_scope, TEXT, "layer or global"),
	SETTING(evict, CHARS, "eviction policy"),
	SETTING(miss, CHARS, "miss rule"),
	SETTING(admit, CHARS, "admission"),
	SETTING(prefill, TEXT, "token or batch"),
	SETTING(hw, TEXT, "hardware profile"),
	SETTING(warmup, UINT, "tokens left out of every statistic"),
	COUNT(tokens, "tokens counted"),
	COUNT(rows, "rows: tokens times layers, as far as present"),
	COUNT(picks, "experts the router picked: rows times n_expert_used"),
	COUNT(accesses, "distinct experts of an event"),
	COUNT(hits, "of these resident"),
	COUNT(late_hits, "of these on their way, and waited for"),
	COUNT(misses, "the others"),
	COUNT(fetches, "copies waited for"),
	COUNT(substitutions, "picks served by another expert"),
	COUNT(drops, "picks left out"),
	COUNT(cpu_picks, "picks computed on the CPU"),
	COUNT(substitute_fallbacks, "substitutions that found no expert and became fetches"),
	COUNT(bypasses, "fetched experts that were not kept"),
	COUNT(background_copies, "copies queued beside the work"),
	COUNT(evictions, "experts that left"),
	{"link_bytes", NULL, NULL, GM_COLUMN_UINT, GM_COLUMN_COUNT | GM_COLUMN_BYTES, AT(link_bytes),
	 "bytes of fetches and background copies"},
	MEAN(hit_rate, 0, "hits / accesses"),
	MEAN(substituted_rate, 0, "substitutions / picks"),
	MEAN(substituted_mass, 0, "gate weight substituted, mean of the rows"),
	MEAN(dropped_mass, 0, "gate weight dropped, mean of the rows"),
	MEAN(time_per_token_us, GM_COLUMN_TIME, "simulated time a token"),
	MEAN(tokens_per_s, GM_COLUMN_TIME, "its inverse; empty where the time is 0"),
	MEAN(link_bytes_per_token, GM_COLUMN_BYTES, "link_bytes / tokens"),
	SPLIT(dense, "of this: dense part of the layers"),
	SPLIT(gpu, "experts on the GPU"),
	SPLIT(link_wait, "GPU waits for the link"),
	SPLIT(disk_wait, "GPU waits for the disk"),
	SPLIT(cpu_wait, "GPU waits for experts on the CPU"),
	SPLIT(token, "once a pass: output layer, sampling"),
	ORIGIN(preload, TEXT, 0, "trace whose popular experts were preloaded"),
	ORIGIN(reset_per_sequence, TEXT, 0, "true or false"),
	ORIGIN(trace_hash, CHARS, 0, "names the trace's content"),
	ORIGIN(settings_hash, CHARS, 0, "names the resolved settings: equal hashes, equal results"),
	ORIGIN(semantics_version, UINT, 0, "of the replay rules"),
	ORIGIN(version, TEXT, 0, "of gatemass"),
	ORIGIN(error, CHARS, 0, "why the point could not be replayed"),
	{"head_exhausted", NULL, NULL, GM_COLUMN_UINT, GM_COLUMN_COUNT | GM_COLUMN_LAST, AT(head_exhausted),
	 "fallbacks because the stored ranking ended (--head-only)"},
	{0},
};

/* --- filling --- */

void gm_result_begin(struct gm_result *r, const char *source, const struct gm_model *model, const struct gm_settings *s)
{
	const double unknown = (double)NAN;

	*r = (struct gm_result){
		.trace = source,
		.model = model->name,
		.n_layer = model->n_layer,
		.n_expert = model->n_expert,
		.n_expert_used = model->top_k,
		.cache_slots = unknown,
		.cache_fraction = unknown,
		.cache_scope = s->scope == GM_SCOPE_GLOBAL ? "global" : "layer",
		.prefill = s->prefill == GM_PREFILL_BATCH ? "batch" : "token",
		.hw = s->profile->name,
		.warmup = s->warmup,
		.preload = s->preload,
		.reset_per_sequence = s->reset_per_sequence ? "true" : "false",
		.semantics_version = GM_SEMANTICS_VERSION,
		.version = GM_VERSION,
	};
	gm_policy_format(&s->evict.ops->info, s->evict.arg, r->evict);
	gm_policy_format(&s->miss.ops->info, s->miss.arg, r->miss);
	gm_policy_format(&s->admit.ops->info, s->admit.arg, r->admit);
}

void gm_result_plan(struct gm_result *r, const struct gm_plan *plan)
{
	r->cache_slots = plan->cache_slots;
	r->cache_fraction = plan->cache_fraction;
	snprintf(r->settings_hash, sizeof(r->settings_hash), "%s", plan->hash);
}

/* NaN where nothing was counted. */
static double ratio(double part, uint64_t whole)
{
	return whole ? part / (double)whole : (double)NAN;
}

static void count_times(struct gm_result *r, const struct gm_tally *tally)
{
	const struct gm_time_split *time = &tally->time_us;
	const uint64_t n = tally->timed_tokens;

	r->dense_us = ratio(time->dense, n);
	r->gpu_us = ratio(time->gpu, n);
	r->link_wait_us = ratio(time->link_wait, n);
	r->disk_wait_us = ratio(time->disk_wait, n);
	r->cpu_wait_us = ratio(time->cpu_wait, n);
	r->token_us = ratio(time->token, n);
	r->time_per_token_us = ratio(gm_time_total(time), n);
	r->tokens_per_s = r->time_per_token_us > 0 ? 1e6 / r->time_per_token_us : (double)NAN;
}

void gm_result_count(struct gm_result *r, const struct gm_plan *plan, const struct gm_tally *tally)
{
	const struct gm_counters *c = &tally->count;

	r->has_counts = true;
	r->has_bytes = plan->hw.expert_bytes != NULL;
	r->has_times = plan->timed;
	r->tokens = tally->tokens;
	r->rows = c->rows;
	r->picks = c->rows * r->n_expert_used;
	r->accesses = c->accesses;
	r->hits = c->hits;
	r->late_hits = c->late_hits;
	r->misses = c->accesses - c->hits - c->late_hits;
	r->fetches = c->fetches;
	r->substitutions = c->substitutions;
	r->drops = c->drops;
	r->cpu_picks = c->cpu_picks;
	r->substitute_fallbacks = c->substitute_fallbacks;
	r->bypasses = c->bypasses;
	r->background_copies = c->background_copies;
	r->evictions = c->evictions;
	r->link_bytes = c->link_bytes;
	r->head_exhausted = c->head_exhausted;
	r->hit_rate = ratio((double)c->hits, c->accesses);
	r->substituted_rate = ratio((double)c->substitutions, r->picks);
	r->substituted_mass = ratio(c->substituted_mass, c->rows);
	r->dropped_mass = ratio(c->dropped_mass, c->rows);
	r->link_bytes_per_token = ratio((double)c->link_bytes, tally->tokens);
	count_times(r, tally);
}

/* --- reading by column --- */

static bool is_empty(const struct gm_result *r, const struct gm_column *column)
{
	return ((column->flags & GM_COLUMN_COUNT) && !r->has_counts) ||
	       ((column->flags & GM_COLUMN_BYTES) && !r->has_bytes) || ((column->flags & GM_COLUMN_TIME) && !r->has_times);
}

static const void *field(const struct gm_result *r, const struct gm_column *column)
{
	return (const char *)r + column->offset;
}

/* The text of a column of type TEXT or CHARS; NULL where it is empty. */
static const char *text_of(const struct gm_result *r, const struct gm_column *column)
{
	const char *text = column->type == GM_COLUMN_TEXT ? *(const char *const *)field(r, column) : field(r, column);

	return text && *text ? text : NULL;
}

static int first_with(unsigned flag)
{
	int i = 0;

	while (!(gm_result_columns[i].flags & flag))
		i++;
	return i;
}

int gm_result_first_count(void)
{
	return first_with(GM_COLUMN_COUNT);
}

int gm_result_first_csv_only(void)
{
	return first_with(GM_COLUMN_CSV_ONLY);
}

void gm_result_csv_header(struct gm_csv_writer *csv, int from, int to, bool extra)
{
	for (int i = from; i < to && gm_result_columns[i].name; i++)
		if (extra || !(gm_result_columns[i].flags & GM_COLUMN_LAST))
			gm_csv_text(csv, gm_result_columns[i].name);
}

static void put_csv(struct gm_csv_writer *csv, const struct gm_result *r, const struct gm_column *column)
{
	if (is_empty(r, column)) {
		gm_csv_text(csv, NULL);
		return;
	}
	switch (column->type) {
	case GM_COLUMN_TEXT:
	case GM_COLUMN_CHARS:
		gm_csv_text(csv, text_of(r, column));
		return;
	case GM_COLUMN_UINT:
		gm_csv_uint(csv, *(const uint64_t *)field(r, column));
		return;
	case GM_COLUMN_REAL:
		gm_csv_double(csv, *(const double *)field(r, column));
		return;
	}
}

void gm_result_csv_row(struct gm_csv_writer *csv, const struct gm_result *r, int from, int to, bool extra)
{
	for (int i = from; i < to && gm_result_columns[i].name; i++)
		if (extra || !(gm_result_columns[i].flags & GM_COLUMN_LAST))
			put_csv(csv, r, &gm_result_columns[i]);
}

static bool put_json(struct gm_json *object, const char *key, const struct gm_result *r, const struct gm_column *column)
{
	if (is_empty(r, column))
		return gm_json_add_null(object, key);
	switch (column->type) {
	case GM_COLUMN_TEXT:
	case GM_COLUMN_CHARS:
		return text_of(r, column) ? gm_json_add_string(object, key, text_of(r, column))
					  : gm_json_add_null(object, key);
	case GM_COLUMN_UINT:
		return gm_json_add_uint(object, key, *(const uint64_t *)field(r, column));
	case GM_COLUMN_REAL:
		return gm_json_add_number(object, key, *(const double *)field(r, column));
	}
	return false;
}

/* The object of the columns from `first` on that share its group. */
static bool put_group(struct gm_json *object, const struct gm_result *r, const struct gm_column *first)
{
	struct gm_json *group = gm_json_new_object();
	bool ok = group != NULL;

	for (const struct gm_column *c = first; ok && c->group && strcmp(c->group, first->group) == 0; c++)
		ok = put_json(group, c->key, r, c);
	return gm_json_add(object, first->group, group) && ok; /* the object owns the group in any case */
}

struct gm_json *gm_result_json(const struct gm_result *r, bool extra)
{
	struct gm_json *object = gm_json_new_object();
	const char *group = ""; /* the one just written */
	bool ok = object != NULL;

	for (const struct gm_column *c = gm_result_columns; ok && c->name; c++) {
		if ((c->flags & GM_COLUMN_CSV_ONLY) || ((c->flags & GM_COLUMN_LAST) && !extra))
			continue;
		if (!c->group)
			ok = put_json(object, c->name, r, c);
		else if (strcmp(c->group, group) != 0)
			ok = put_group(object, r, c);
		group = c->group ? c->group : "";
	}
	if (ok)
		return object;
	gm_json_free(object);
	return NULL;
}
