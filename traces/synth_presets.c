/* Parameters and presets of the synthetic traces. */
#include "traces/synth.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PARAMETER(member, name_, min_, max_, help_) \
	{.name = name_, .help = help_, .offset = offsetof(struct gm_synth_model, member), .min = min_, .max = max_},

const struct gm_synth_parameter gm_synth_parameters[] = {GM_SYNTH_PARAMETERS(PARAMETER)};
const int gm_synth_n_parameter = (int)(sizeof(gm_synth_parameters) / sizeof(gm_synth_parameters[0]));

/* Tuned with tests/soak/synth_tuning.c; targets, evidence and what is only plausible: docs/synthetic-traces.md. */
const struct gm_synth_preset gm_synth_presets[] = {
	{
		.name = "qwen3-next-80b",
		.help = "48 layers, 512 experts, top 10: cache behaviour as measured for this shape",
		.model = "synthetic qwen3-next-80b",
		.n_layer = 48,
		.n_expert = 512,
		.top_k = 10,
		.expert_bytes = 1904640,
		.dense_bytes = 25537184,
		.options = {.n_token = 10000,
			    .sequence_length = 256,
			    .n_topic = 48,
			    .model = {.popularity = 0.29,
				      .topic = 1.0,
				      .context = 0.75,
				      .persistence = 0.8,
				      .token_noise = 0.75,
				      .noise = 0.5,
				      .topic_drift = 20000,
				      .drift = 80,
				      .persistence_drift = 3,
				      .first_layer = 0.35,
				      .rise = 0.1,
				      .layer_spread = 0.05,
				      .topic_run = 2,
				      .topic_switch = 0,
				      .common = 0.5}},
	},
	{
		.name = "gpt-oss-20b",
		.help = "24 layers, 32 experts, top 4: reuse, LRU hits and gates as in a recorded trace",
		.model = "synthetic gpt-oss-20b",
		.n_layer = 24,
		.n_expert = 32,
		.top_k = 4,
		.expert_bytes = 13253760,
		.dense_bytes = 28569600,
		.options = {.n_token = 4000,
			    .sequence_length = 192,
			    .n_topic = 24,
			    .model = {.popularity = 0.15,
				      .topic = 0.5,
				      .context = 0.25,
				      .persistence = 0.35,
				      .token_noise = 0.3,
				      .noise = 0.23,
				      .topic_drift = 20000,
				      .drift = 80,
				      .persistence_drift = 2,
				      .first_layer = 0.4,
				      .rise = 0.1,
				      .layer_spread = 0.1,
				      .topic_run = 1,
				      .topic_switch = 0,
				      .common = 0.5}},
	},
	{
		.name = "small",
		.help = "6 layers, 128 experts, top 8: for tests and first steps, roughly like tinymoe",
		.model = "synthetic small",
		.n_layer = 6,
		.n_expert = 128,
		.top_k = 8,
		.expert_bytes = 24576,
		.dense_bytes = 163840,
		.options = {.n_token = 2000,
			    .sequence_length = 256,
			    .n_topic = 6,
			    .model = {.popularity = 0.12,
				      .topic = 0.6,
				      .context = 0.3,
				      .persistence = 0.5,
				      .token_noise = 0.35,
				      .noise = 0.3,
				      .topic_drift = 20000,
				      .drift = 80,
				      .persistence_drift = 3,
				      .first_layer = 0.2,
				      .rise = 0.6,
				      .layer_spread = 0,
				      .topic_run = 2,
				      .topic_switch = 0,
				      .common = 0.3}},
	},
};
const int gm_synth_n_preset = (int)(sizeof(gm_synth_presets) / sizeof(gm_synth_presets[0]));

const struct gm_synth_preset *gm_synth_find_preset(const char *name, struct gm_error *err)
{
	char known[160] = "";
	size_t used = 0;
	for (int i = 0; i < gm_synth_n_preset; i++) {
		if (strcmp(gm_synth_presets[i].name, name) == 0)
			return &gm_synth_presets[i];
		int n = snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", gm_synth_presets[i].name);
		used += n > 0 && (size_t)n < sizeof(known) - used ? (size_t)n : 0;
	}
	gm_fail(err, GM_ERR_USAGE, "unknown preset: %.40s: give one of %s", name, known);
	return NULL;
}

int gm_synth_preset_facts(const struct gm_synth_preset *preset, struct gm_model *facts, struct gm_error *err)
{
	*facts = (struct gm_model){.n_layer = preset->n_layer, .n_expert = preset->n_expert, .top_k = preset->top_k};
	facts->name = gm_strdup(preset->model, err);
	facts->expert_bytes = gm_alloc(preset->n_layer, sizeof(uint64_t), err);
	facts->dense_bytes = gm_alloc(preset->n_layer, sizeof(uint64_t), err);
	if (!facts->name || !facts->expert_bytes || !facts->dense_bytes) {
		gm_model_free(facts);
		return GM_ERR_MEMORY;
	}
	for (uint32_t l = 0; l < preset->n_layer; l++) {
		facts->expert_bytes[l] = preset->expert_bytes;
		facts->dense_bytes[l] = preset->dense_bytes;
	}
	return 0;
}

double gm_synth_parameter_get(const struct gm_synth_model *model, int i)
{
	double value;
	memcpy(&value, (const char *)model + gm_synth_parameters[i].offset, sizeof(value));
	return value;
}

void gm_synth_parameter_set(struct gm_synth_model *model, int i, double value)
{
	memcpy((char *)model + gm_synth_parameters[i].offset, &value, sizeof(value));
}

int gm_synth_describe(const struct gm_synth_options *options, struct gm_json *object, struct gm_error *err)
{
	char seed[24];
	snprintf(seed, sizeof(seed), "%" PRIu64, options->seed);
	bool ok = gm_json_add_number(object, "version", GM_SYNTH_VERSION) && gm_json_add_string(object, "seed", seed) &&
		  gm_json_add_uint(object, "sequence-length", options->sequence_length) &&
		  gm_json_add_uint(object, "topics", options->n_topic);
	for (int i = 0; i < gm_synth_n_parameter; i++)
		ok = ok &&
		     gm_json_add_number(object, gm_synth_parameters[i].name, gm_synth_parameter_get(&options->model, i));
	return ok ? 0 : gm_fail(err, GM_ERR_MEMORY, "out of memory");
}
