/* A trace of the router's logits as they are under a policy: emulate and engine record it. */
#ifndef GM_EMULATE_POLICY_RECORDING_H
#define GM_EMULATE_POLICY_RECORDING_H

#include "emulate/override.h"
#include "recorder/hook.h"
#include "recorder/recording.h"
#include "sim/settings.h"

struct gm_policy_recording {
	const char *path;   /* "-": standard output */
	const char *source; /* "emulate": stands in the trace as what made it */
	const struct gm_settings *settings;
	struct gm_override override;
	bool substitutes, drops; /* what the miss rule may do */
	bool generates;          /* the model goes on after the texts */
};

/* Opens the trace, with a float32 tail and log-probabilities. NULL on failure. */
struct gm_recording *gm_policy_recording_open(const struct gm_policy_recording *options, const struct gm_hook *hook,
					      struct gm_error *err);

#endif
