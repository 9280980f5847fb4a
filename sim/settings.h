/* Settings: one point of a grid as the user asks for it (docs/cli.md: "Policy options"), and the grid they come from. The same for sim,
 * emulate and engine. What settings come to on a given trace is in plan.h.
 */
#ifndef GM_SIM_SETTINGS_H
#define GM_SIM_SETTINGS_H

#include "base/file.h"
#include "base/options.h"
#include "policies/table.h"
#include "sim/profile.h"
#include "sim/window.h"

#define GM_DEFAULT_PROFILE "rtx3090-pcie4"

enum gm_cache_kind { GM_CACHE_SLOTS, GM_CACHE_PERCENT, GM_CACHE_BYTES, GM_CACHE_LIST };

/* Texts, lists and profiles are owned by the grid. */
struct gm_settings {
	const char *policy; /* preset as given, or NULL */
	const char *cache_text;
	enum gm_cache_kind cache_kind;
	double cache_percent;       /* GM_CACHE_PERCENT: 0 ... 100 */
	uint64_t cache_size;        /* GM_CACHE_SLOTS: slots a layer; GM_CACHE_BYTES: bytes */
	const uint32_t *cache_list; /* GM_CACHE_LIST: [n_cache_list] slots a layer, from a file */
	uint32_t n_cache_list;
	enum gm_scope scope;
	struct gm_evict evict;
	struct gm_miss miss;
	struct gm_admit admit;
	enum gm_prefill prefill;
	const struct gm_profile *profile;
	bool hw_given; /* false: the default profile, which may lack something on a trace */
	uint64_t warmup;
	bool reset_per_sequence;
	const char *preload; /* path or NULL */
	int64_t cpu_layers;  /* stock-ncmoe:N, -1: not asked for */
	bool room_given;     /* --cache, --cache-scope or --preload was given: an error beside stock-ncmoe */
	bool head_only;
};

enum gm_policy_option {
	GM_OPTION_POLICY = 1000, /* the axes of a grid, the slowest first */
	GM_OPTION_CACHE,
	GM_OPTION_CACHE_SCOPE,
	GM_OPTION_EVICT,
	GM_OPTION_MISS,
	GM_OPTION_ADMIT,
	GM_OPTION_PREFILL,
	GM_OPTION_HW,
	GM_OPTION_WARMUP,
	GM_OPTION_RESET,
	GM_OPTION_PRELOAD,
	GM_OPTION_HEAD_ONLY, /* the last axis */
};
#define GM_N_AXIS (GM_OPTION_HEAD_ONLY - GM_OPTION_POLICY + 1)

/* The policy options as a table for struct gm_command. */
extern const struct gm_option gm_policy_options[];

/* A grid collects the options' values. With lists, every option takes a comma list ("\," is a comma inside a value), and numbers
 * also ranges from..to/step ("threshold:0.05..0.25/0.05"); without, one value. An option given twice counts the last time. */
struct gm_grid;
struct gm_grid *gm_grid_new(bool lists, struct gm_error *err);
void gm_grid_free(struct gm_grid *grid);
bool gm_grid_takes(int option_id); /* is this id one of gm_policy_options? */

/* One option; value is NULL for a flag. Errors name option, value and what would be right. */
int gm_grid_option(struct gm_grid *grid, int option_id, const char *value, struct gm_error *err);

/* A JSON file with an object of option names without dashes ("cache-scope" or "cache_scope"): each a list of values, or a single value
 * that is read as on the command line. */
int gm_grid_file(struct gm_grid *grid, const char *path, struct gm_error *err);

/* The files that the options name: profiles, lists of slots, preload traces, grid files. free() *use; the names are the grid's. */
int gm_grid_inputs(const struct gm_grid *grid, struct gm_file_use **use, size_t *n, struct gm_error *err);

/* The product of all lists, presets expanded first and overridden by --evict, --miss and --admit wherever they stand. The order is that
 * of enum gm_policy_option, the first varies slowest; duplicates stay. *settings is the grid's. */
int gm_grid_expand(struct gm_grid *grid, const struct gm_settings **settings, size_t *n, struct gm_error *err);

/* "--cache 25% --evict lru --miss fetch": a point in a line, for messages; at most size bytes. Returns out. */
char *gm_settings_describe(const struct gm_settings *settings, char *out, size_t size);

#endif
