/* fetch: fetched experts always enter the cache, substituted ones never do. */
#include "policies/policy.h"

extern const struct gm_admit_ops gm_admit_fetch;
const struct gm_admit_ops gm_admit_fetch = {
	.info = {.name = "fetch", .help = "fetched experts enter the cache, substituted ones do not"},
};
