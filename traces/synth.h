/* Synthetic router logits: a seeded generator with the locality of real models (docs/synthetic-traces.md).
 *
 * The logit of expert e in layer l at token t is a sum of independent, nearly Gaussian parts, each with its own time scale:
 *
 *	popularity[l][e]             fixed for the whole trace
 *	topic[l][topic of t][e]      shared by all sequences of a topic; drifts slowly through the trace
 *	context[l][e](t)             drawn anew for every sequence and topic switch, then drifts
 *	persistence[l][e](t)         lives for a few tokens
 *	token[l][token id of t][e]   the same whenever the same token comes again
 *	noise[l][e](t)               independent
 *
 * Everything but the set-up is integer arithmetic: a seed gives the same logits with every compiler, libc and machine.
 */
#ifndef GM_TRACES_SYNTH_H
#define GM_TRACES_SYNTH_H

#include "base/error.h"
#include "base/json.h"
#include "traces/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_SYNTH_VERSION 1 /* of the model below: other numbers from the same seed need a new one */
#define GM_SYNTH_CHUNK 64u /* most tokens a chunk */
#define GM_SYNTH_MAX_TOKEN (UINT64_C(1) << 40)
#define GM_SYNTH_MAX_TOPIC 4096 /* and n_topic * n_layer * n_expert <= GM_SYNTH_MAX_STATE */
#define GM_SYNTH_MAX_STATE (1u << 28)

/* The parameters of the model, the same for every shape; one list makes the struct, the options, --help and the header's
 * metadata: X(member, option and key in the metadata, smallest, largest, help).
 *
 * Parts: standard deviations in logits (nats); their squares add up to the variance of a row. Drifts: tokens after which the
 * correlation of a part with itself has fallen to a half. Depth: layer l of L has the share
 *	1 - (1 - first_layer) exp(-l / ((L - 1) rise))
 * of the standard deviations of the drifting parts (topic, context, persistence), give or take layer_spread; the variance that
 * they lack goes to the token part. */
#define GM_SYNTH_PARAMETERS(X)                                                                                            \
	X(popularity, "popularity", 0, 4, "standard deviation of an expert's fixed popularity in its layer")              \
	X(topic, "topic", 0, 4, "standard deviation of the part that all sequences of a topic share")                     \
	X(context, "context", 0, 4, "standard deviation of a sequence's own part")                                        \
	X(persistence, "persistence", 0, 4, "standard deviation of the part that lasts a few tokens")                     \
	X(token_noise, "token-noise", 0, 4, "standard deviation of the part that the token id decides")                   \
	X(noise, "noise", 0, 4, "standard deviation of independent noise")                                                \
	X(topic_drift, "topic-drift", 1, 1e9, "half-life of a topic's part, in tokens")                                   \
	X(drift, "drift", 1, 1e9, "half-life of a sequence's own part, in tokens")                                        \
	X(persistence_drift, "persistence-drift", 0.1, 1e9, "half-life of the part that lasts a few tokens")              \
	X(first_layer, "first-layer", 0, 1, "share of the drifting parts in the first layer")                             \
	X(rise, "rise", 0.001, 10, "part of the depth within which that share rises")                                     \
	X(layer_spread, "layer-spread", 0, 0.5, "relative spread of that share from layer to layer")                      \
	X(topic_run, "topic-run", 1, 1e9, "mean sequences in a row on one topic")                                         \
	X(topic_switch, "switch", 0, 1e9,                                                                                 \
	  "mean tokens from one change of topic inside a sequence to the next,\n0: topics change between sequences only") \
	X(common, "common", 0, 1, "share of tokens from the vocabulary that all topics share")

struct gm_synth_model {
#define GM_SYNTH_MEMBER(member, name, min, max, help) double member;
	GM_SYNTH_PARAMETERS(GM_SYNTH_MEMBER)
#undef GM_SYNTH_MEMBER
};

struct gm_synth_options {
	uint64_t seed;
	uint64_t n_token;         /* 1 ... GM_SYNTH_MAX_TOKEN */
	uint32_t sequence_length; /* tokens; the last sequence may be shorter */
	uint32_t n_topic;         /* 1 ... GM_SYNTH_MAX_TOPIC */
	struct gm_synth_model model;
};

/* One of GM_SYNTH_PARAMETERS. */
struct gm_synth_parameter {
	const char *name, *help;
	size_t offset; /* of the double in struct gm_synth_model */
	double min, max;
};

extern const struct gm_synth_parameter gm_synth_parameters[];
extern const int gm_synth_n_parameter;

/* Parameter number i of a model. */
double gm_synth_parameter_get(const struct gm_synth_model *model, int i);
void gm_synth_parameter_set(struct gm_synth_model *model, int i, double value);

/* A named shape with its tuned parameters. */
struct gm_synth_preset {
	const char *name, *help;
	const char *model; /* name for the header */
	uint32_t n_layer, n_expert, top_k;
	uint64_t expert_bytes, dense_bytes; /* a layer; derivation in docs/synthetic-traces.md */
	struct gm_synth_options options;    /* seed 0 */
};

extern const struct gm_synth_preset gm_synth_presets[];
extern const int gm_synth_n_preset;

/* The preset of that name, or NULL with GM_ERR_USAGE that lists the names. */
const struct gm_synth_preset *gm_synth_find_preset(const char *name, struct gm_error *err);

/* The preset's model facts; release with gm_model_free. */
int gm_synth_preset_facts(const struct gm_synth_preset *preset, struct gm_model *facts, struct gm_error *err);

/* Options and parameters as members of a JSON object (seed as text: it may exceed 2^53). */
int gm_synth_describe(const struct gm_synth_options *options, struct gm_json *object, struct gm_error *err);

struct gm_synth;

/* A generator for a shape. NULL with GM_ERR_USAGE for options out of bounds (names the option). */
struct gm_synth *gm_synth_new(uint32_t n_layer, uint32_t n_expert, const struct gm_synth_options *options,
			      struct gm_error *err);
void gm_synth_free(struct gm_synth *synth); /* NULL is fine */

/* Consecutive tokens of one sequence and one topic. */
struct gm_synth_chunk {
	uint64_t first_token;    /* number of the first in the trace */
	uint32_t n_token;        /* 1 ... GM_SYNTH_CHUNK */
	uint32_t sequence;       /* number of the sequence */
	uint32_t position;       /* of the first in its sequence */
	uint32_t topic;          /* 0 ... n_topic - 1 */
	uint32_t topic_sequence; /* the topic with which the sequence began: its label */
	const int32_t *token;    /* [n_token] token ids; valid until the next call */
};

/* The next chunk: 1, or 0 at the end. max_token: 1 ... GM_SYNTH_CHUNK, does not change the logits. */
int gm_synth_next(struct gm_synth *synth, uint32_t max_token, struct gm_synth_chunk *chunk);

/* Rows of one layer for the current chunk: logits [n_token][n_expert], multiples of 2^-10. Every layer once a chunk, in any
 * order. */
void gm_synth_rows(struct gm_synth *synth, uint32_t layer, float *logits);

/* Share of the drifting parts' standard deviations in a layer. */
double gm_synth_depth_share(const struct gm_synth *synth, uint32_t layer);

#endif
