/* The one table of policies, and parsing of NAME[:ARG...] against it. */
#ifndef GM_POLICIES_TABLE_H
#define GM_POLICIES_TABLE_H

#include "policies/core.h"

extern const struct gm_evict_ops *const gm_evict_table[]; /* NULL-ended, as the other tables */
extern const struct gm_miss_ops *const gm_miss_table[];
extern const struct gm_admit_ops *const gm_admit_table[];

enum gm_policy_kind { GM_POLICY_EVICT, GM_POLICY_MISS, GM_POLICY_ADMIT };
const struct gm_policy_info *gm_policy_info(enum gm_policy_kind kind, int index); /* NULL past the end of the table */
const char *gm_policy_kind_name(enum gm_policy_kind kind);

/* A named combination; NULL parts are left as they are. */
struct gm_preset {
	const char *name;
	const char *help;
	const char *evict, *miss, *admit; /* NAME[:ARG] */
	bool takes_layers;                /* stock-ncmoe:N, which also sets slots and preload */
};
extern const struct gm_preset gm_preset_table[]; /* ended by name NULL */

/* GM_ERR_USAGE with the nearest or all known names, or what the argument should be. */
int gm_evict_parse(const char *text, struct gm_evict *out, struct gm_error *err);
int gm_miss_parse(const char *text, struct gm_miss *out, struct gm_error *err);
int gm_admit_parse(const char *text, struct gm_admit *out, struct gm_error *err);

/* "threshold:0.15": the canonical text of a policy with its arguments, in out [size]. */
#define GM_POLICY_TEXT 96
char *gm_policy_format(const struct gm_policy_info *info, const double *arg, char *out);

/* "lfu-decay:HALFLIFE" or "compose:heavy|light|random:MASS": for help. */
char *gm_policy_usage(const struct gm_policy_info *info, char *out);

#endif
