#include "emulate/policy_recording.h"

#include "base/version.h"
#include "recorder/record_header.h"

#include <stdio.h>

#define QUEUE_BYTES ((size_t)64 << 20) /* rows that wait for the writer */

static struct gm_json *metadata_of(const struct gm_policy_recording *options, const struct gm_hook *hook,
				   const struct gm_record_layers *layers, struct gm_error *err)
{
	const struct gm_record_options record = {.generate = options->generates};
	struct gm_json *metadata = gm_record_metadata(hook, &record, layers, err);
	char policy[256];

	if (metadata) {
		gm_json_add_string(metadata, "policy", gm_settings_describe(options->settings, policy, sizeof(policy)));
		if (options->substitutes)
			gm_json_add_string(metadata, "substitute_weight",
					   options->override.substitute == GM_SUBSTITUTE_OWN ? "own" : "missed");
		if (options->drops)
			gm_json_add_string(metadata, "drop_weight",
					   options->override.drop == GM_DROP_KEEP ? "keep" : "renormalise");
	}
	return metadata;
}

struct gm_recording *gm_policy_recording_open(const struct gm_policy_recording *options, const struct gm_hook *hook,
					      struct gm_error *err)
{
	char tool[64];
	struct gm_writer_options writer_options = {
		.kind = GM_KIND_LOGITS,
		.tail = GM_TAIL_F32,
		.logprobs = true,
		.source = options->source,
		.tool = tool,
	};
	struct gm_record_layers layers = {0};
	struct gm_json *metadata;
	struct gm_writer *writer = NULL;

	snprintf(tool, sizeof(tool), "%s %s", options->source, GM_VERSION);
	if (gm_record_layers_choose(&layers, gm_hook_model(hook), NULL, err) < 0)
		return NULL;
	writer_options.metadata = metadata = metadata_of(options, hook, &layers, err);
	if (metadata)
		writer = gm_writer_open(options->path, &layers.model, &writer_options, err);
	gm_json_free(metadata);
	gm_record_layers_free(&layers);
	return writer ? gm_recording_open(writer, gm_hook_model(hook)->n_expert, QUEUE_BYTES, err) : NULL;
}
