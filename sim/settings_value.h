/* One value of one policy option: the part of settings.h that only the grid uses. */
#ifndef GM_SIM_SETTINGS_VALUE_H
#define GM_SIM_SETTINGS_VALUE_H

#include "sim/settings.h"

/* Owns what settings point to. */
struct gm_settings_store {
	void **block; /* [n] */
	size_t n;
	struct gm_profile **profile; /* [n_profile] */
	char **profile_name;         /* [n_profile] as they were asked for */
	size_t n_profile;
};
void gm_settings_store_free(struct gm_settings_store *store);

/* Sets the option's own fields of *out. Errors begin with the option's name. */
int gm_settings_set(struct gm_settings_store *store, int option_id, const char *text, struct gm_settings *out,
		    struct gm_error *err);

/* Copies the fields that the option sets; a preset brings its eviction, miss and admission rule. */
void gm_settings_apply(int option_id, const struct gm_settings *from, struct gm_settings *to);

/* The option's row in gm_policy_options; numbers: do its values take ranges? */
const struct gm_option *gm_settings_option(int option_id);
bool gm_settings_takes_ranges(int option_id);

#endif
