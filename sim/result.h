/* Results: what a replay came to, as keys of `sim run --json`, columns of CSV and lines of a table. One table of columns drives all of
 * them (and serves emulate and engine, which add columns of their own).
 */
#ifndef GM_SIM_RESULT_H
#define GM_SIM_RESULT_H

#include "base/csv.h"
#include "base/json.h"
#include "sim/plan.h"

/* One row. Numbers that are not known are NaN, texts NULL; counters that are not known are told by the flags. The texts belong to
 * others, but for those in arrays. */
struct gm_result {
	const char *trace, *model;
	uint64_t n_layer, n_expert, n_expert_used;
	double cache_slots, cache_fraction;
	const char *cache_scope;
	char evict[GM_POLICY_TEXT], miss[GM_POLICY_TEXT], admit[GM_POLICY_TEXT];
	const char *prefill, *hw;
	uint64_t warmup;

	bool has_counts; /* false: the replay could not be; all below is empty */
	bool has_bytes;  /* bytes of experts are known */
	bool has_times;
	uint64_t tokens, rows, picks, accesses, hits, late_hits, misses, fetches, substitutions, drops, cpu_picks,
		substitute_fallbacks, bypasses, background_copies, evictions, link_bytes, head_exhausted;
	double hit_rate, substituted_rate, substituted_mass, dropped_mass; /* means; NaN where nothing was counted */
	double time_per_token_us, tokens_per_s, link_bytes_per_token;
	double dense_us, gpu_us, link_wait_us, disk_wait_us, cpu_wait_us, token_us; /* a token */

	const char *preload;
	const char *reset_per_sequence; /* "true", "false" */
	char trace_hash[GM_HASH_TEXT], settings_hash[GM_HASH_TEXT];
	uint64_t semantics_version;
	const char *version;
	char error[256];
};

/* The settings of a row; counts, trace_hash and error stay empty. source stands in the column trace. */
void gm_result_begin(struct gm_result *result, const char *source, const struct gm_model *model,
		     const struct gm_settings *settings);

/* What a plan resolved (sizes, hash). */
void gm_result_plan(struct gm_result *result, const struct gm_plan *plan);

/* The counters and means of a tally. */
void gm_result_count(struct gm_result *result, const struct gm_plan *plan, const struct gm_tally *tally);

/* --- columns --- */

enum gm_column_type { GM_COLUMN_TEXT, GM_COLUMN_CHARS, GM_COLUMN_UINT, GM_COLUMN_REAL };

/* When a column is empty, and where it stands. */
enum gm_column_flag {
	GM_COLUMN_COUNT = 1,    /* empty without has_counts */
	GM_COLUMN_BYTES = 2,    /* and without has_bytes */
	GM_COLUMN_TIME = 4,     /* and without has_times */
	GM_COLUMN_CSV_ONLY = 8, /* no key of --json */
	GM_COLUMN_LAST = 16,    /* an extra one: only with --head-only */
};

struct gm_column {
	const char *name;  /* of the CSV column */
	const char *group; /* the JSON object that holds it ("time_us"), or NULL */
	const char *key;   /* its key there */
	enum gm_column_type type;
	unsigned flags;
	size_t offset; /* in struct gm_result */
	const char *help;
};

extern const struct gm_column gm_result_columns[]; /* ended by name NULL, in the order of the keys */

/* Index of the first counter ("tokens"): what stands before are the settings. */
int gm_result_first_count(void);
/* Index of the first column that is no key of --json ("preload"). */
int gm_result_first_csv_only(void);

/* Columns from ... to - 1 of a header or a row; extra: GM_COLUMN_LAST too. They do not end the row. */
void gm_result_csv_header(struct gm_csv_writer *csv, int from, int to, bool extra);
void gm_result_csv_row(struct gm_csv_writer *csv, const struct gm_result *result, int from, int to, bool extra);
#define GM_RESULT_ALL 1000 /* as `to`: up to the last */

/* The JSON object; NULL when out of memory. */
struct gm_json *gm_result_json(const struct gm_result *result, bool extra);

#endif
