/* Settings: one point of a grid as the user asks for it (docs/cli: "Policy options"), parsed and resolved against a model. The same
 * for sim, emulate and engine. */
#ifndef GM_SIM_SETTINGS_H
#define GM_SIM_SETTINGS_H

#include "base/options.h"
#include "policies/table.h"
#include "sim/replay.h"

enum gm_cache_kind { GM_CACHE_SLOTS, GM_CACHE_PERCENT, GM_CACHE_BYTES, GM_CACHE_LIST };

struct gm_settings {
	const char *policy; /* preset as given, or NULL */
	enum gm_cache_kind cache_kind;
	double cache_value;         /* slots, per cent or bytes */
	const uint32_t *cache_list; /* [n_cache_list] slots a layer from a file; owned by the grid */
	uint32_t n_cache_list;
	enum gm_scope scope;
	struct gm_evict evict;
	struct gm_miss miss;
	struct gm_admit admit;
	enum gm_prefill prefill;
	const char *hw; /* name or path; NULL: the default profile */
	uint64_t warmup;
	bool reset_per_sequence;
	const char *preload; /* path or NULL */
	int64_t cpu_layers;  /* stock-ncmoe:N, -1: not asked for */
	bool head_only;
};

/* The policy options as a table for struct gm_command, and a grid that collects their values: every option takes a comma list, numbers also
 * ranges from..to/step; --grid FILE reads the same from JSON. A program that takes single values only (sim run) asks for a grid of one. */
extern const struct gm_option gm_policy_options[];

struct gm_grid;
struct gm_grid *gm_grid_new(struct gm_error *err);
void gm_grid_free(struct gm_grid *grid);
bool gm_grid_takes(int option_id); /* is this id one of gm_policy_options? */
int gm_grid_option(struct gm_grid *grid, int option_id, const char *value, struct gm_error *err);

/* The product of all lists, presets expanded first, in the order of the options' lists (the first option varies slowest); duplicates stay. */
int gm_grid_expand(struct gm_grid *grid, const struct gm_settings **settings, size_t *n, struct gm_error *err);

/* A grid point held against a model: everything a replay needs. */
struct gm_plan {
	struct gm_replay_config config;
	struct gm_hw hw;
	uint32_t *n_slot;      /* [n_layer] */
	uint32_t *preload;     /* NULL unless the plan owns it */
	double cache_slots;    /* slots a layer where equal in all, else NaN; NaN in scope global */
	double cache_fraction; /* share of all experts (scope global: of all expert bytes) */
	bool counts_only;      /* the default profile lacks something on this trace: times stay empty */
	char reason[128];      /* why */
};

/* Resolves settings; opens preload traces and profiles. GM_ERR_USAGE or GM_ERR_UNSUPPORTED with a reason for a point that is impossible on this
 * trace. Release with gm_plan_free. */
int gm_plan_make(struct gm_plan *plan, const struct gm_settings *settings, struct gm_trace *trace, struct gm_error *err);
void gm_plan_free(struct gm_plan *plan);

/* Hash of everything in the settings and the resolved hardware that can change a result, 16 hex digits in out[17]. */
void gm_settings_hash(const struct gm_settings *settings, const struct gm_plan *plan, char *out);

#endif
