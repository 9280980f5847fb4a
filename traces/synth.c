#include "traces/synth.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Set-up computes in double with + - * / and comparisons only, which IEEE 754 defines to the last bit; a fused multiply-add
 * would not be the same, and libm's exp differs from libc to libc. Rows are integer arithmetic. (gcc in -std=c11 does not
 * contract either; it does not know the pragma.) */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

/* --- arithmetic of the set-up --- */

/* 2^-x for x >= 0. */
static double exp2_minus(double x)
{
	if (x > 60)
		return 0;
	double y = x * 0.69314718055994530942 / 64, term = 1, sum = 1;
	for (int n = 1; n < 24; n++) { /* y < 0.65 */
		term = term * -y / n;
		sum += term;
	}
	for (int i = 0; i < 6; i++)
		sum *= sum;
	return sum;
}

static double square_root(double x)
{
	double r = x > 1 ? x : 1;
	for (int i = 0; i < 64 && x > 0; i++)
		r = 0.5 * (r + x / r);
	return x > 0 ? r : 0;
}

/* Normal distribution function by its power series, |x| < 5: 1e-10. */
static double normal_cdf(double x)
{
	double term = x * 0.39894228040143267794, sum = term; /* x / sqrt(2 pi) */
	for (int n = 1; n < 100; n++) {
		term = term * -(x * x) / (2 * n);
		sum += term / (2 * n + 1);
	}
	return 0.5 + sum;
}

/* --- random numbers --- */

#define GAUSS_BITS 12
#define GAUSS_SIZE (1u << GAUSS_BITS)

/* The state of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): any start is good, so a stream is opened by hashing its name. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t next_random(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	return mix(*state);
}

enum stream {
	STREAM_TEXT,
	STREAM_POPULARITY,
	STREAM_TOPIC,
	STREAM_TOPIC_DRIFT,
	STREAM_CONTEXT,
	STREAM_PERSISTENCE,
	STREAM_TOKEN,
	STREAM_NOISE,
	STREAM_SPREAD
};

static uint64_t open_stream(uint64_t seed, enum stream stream, uint64_t a, uint64_t b)
{
	uint64_t state = mix(seed + UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(stream + 1));
	state = mix(state ^ (a + 1) * UINT64_C(0xd1342543de82ef95));
	return mix(state ^ (b + 1) * UINT64_C(0x2545f4914f6cdd1d));
}

/* n (rounded up to a multiple of 4) normal numbers in units of 2^-12, from 12 bits each. */
static void fill_normal(const int16_t *gauss, uint64_t *state, int16_t *out, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += 4) {
		uint64_t r = next_random(state);
		out[i] = gauss[r >> 52];
		out[i + 1] = gauss[r >> 36 & (GAUSS_SIZE - 1)];
		out[i + 2] = gauss[r >> 20 & (GAUSS_SIZE - 1)];
		out[i + 3] = gauss[r >> 4 & (GAUSS_SIZE - 1)];
	}
}

/* Uniform in [0, 2^32). */
static uint32_t uniform32(uint64_t *state)
{
	return (uint32_t)(next_random(state) >> 32);
}

/* Uniform below n. */
static uint32_t uniform_below(uint64_t *state, uint32_t n)
{
	return (uint32_t)((uint64_t)uniform32(state) * n >> 32);
}

/* --- the generator --- */

#define VOCABULARY_COMMON 512u /* token ids that all topics use */
#define VOCABULARY_TOPIC 1024u /* and of one topic alone */

/* x <- a x + b g keeps the variance where a^2 + b^2 = 1. In units of 2^-15. */
struct decay {
	int32_t a, b;
};

struct gm_synth {
	struct gm_synth_options options;
	uint32_t n_layer, n_expert, stride; /* stride: n_expert rounded up to a multiple of 4 */
	/* text */
	uint64_t text; /* random state */
	uint64_t done; /* tokens given out */
	/* first token of the current run of one topic in one sequence: the context starts anew there */
	uint64_t segment_at;
	uint64_t next_switch;
	uint32_t topic, topic_sequence;
	uint32_t sequence, position; /* of the next token; position may be one past the sequence's end */
	uint32_t run_left;           /* sequences still to come before the topic changes */
	uint32_t *deck, deck_at;     /* [n_topic] topics in the order in which they come up; the next one */
	struct gm_synth_chunk chunk;
	int32_t token[GM_SYNTH_CHUNK];
	uint32_t *zipf_common, *zipf_topic; /* [VOCABULARY_*] cumulative probability in units of 2^-32 */
	/* amplitudes in units of 2^-10, by layer where the depth matters */
	int32_t amp_popularity, amp_noise;
	int32_t *amp_topic, *amp_context, *amp_persistence, *amp_token; /* [n_layer] */
	double *share;                                                  /* [n_layer] */
	/* parts in units of 2^-12 */
	int16_t *gauss;            /* [GAUSS_SIZE] quantiles of the normal distribution */
	int16_t *popularity;       /* [n_layer][stride] */
	int16_t *topics;           /* [n_layer][n_topic][stride] */
	int16_t *context;          /* [n_layer][stride] */
	int16_t *persistence;      /* [n_layer][stride] */
	uint64_t *topic_age;       /* [n_layer][n_topic] token at which the topic was last moved */
	uint64_t *context_segment; /* [n_layer] segment_at of the context at hand + 1 */
	uint64_t *stream_topic, *stream_context, *stream_persistence, *stream_noise; /* [n_layer] */
	uint64_t topic_interval, context_interval; /* tokens between two steps of a drift */
	struct decay context_step, persistence_step;
	int32_t *base;                     /* [stride] sum of the parts that change rarely, units of 2^-22 */
	int16_t *draw_a, *draw_b, *draw_c; /* [stride] */
};

static struct decay decay_over(double tokens, double half_life)
{
	double a = exp2_minus(tokens / half_life);
	return (struct decay){(int32_t)(a * 32768 + 0.5), (int32_t)(square_root(1 - a * a) * 32768 + 0.5)};
}

static void step(struct decay d, int16_t *x, const int16_t *g, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		int32_t v =
			(d.a * x[i] + d.b * g[i] + (1 << 14)) >> 15; /* arithmetic shift: gcc and clang on all machines */
		x[i] = (int16_t)(v > 32767 ? 32767 : v < -32768 ? -32768 : v);
	}
}

static void build_gauss(int16_t *gauss)
{
	int32_t x = -5 * 4096;
	for (uint32_t i = 0; i < GAUSS_SIZE / 2; i++) {
		double p = (i + 0.5) / GAUSS_SIZE;
		while (normal_cdf((x + 0.5) / 4096) < p)
			x++;
		gauss[i] = (int16_t)x;
		gauss[GAUSS_SIZE - 1 - i] = (int16_t)-x;
	}
}

/* Probability of rank r in proportion to 1 / (r + 2.7): Zipf's law as Mandelbrot corrected it. */
static void build_zipf(uint32_t *cumulative, uint32_t n)
{
	double total = 0, sum = 0;
	for (uint32_t r = 0; r < n; r++)
		total += 1 / (r + 2.7);
	for (uint32_t r = 0; r < n; r++) {
		sum += 1 / (r + 2.7);
		double c = sum / total * 4294967296.0;
		cumulative[r] = r + 1 == n || c >= 4294967295.0 ? UINT32_MAX : (uint32_t)c;
	}
}

static uint32_t draw_rank(const uint32_t *cumulative, uint32_t n, uint32_t u)
{
	uint32_t low = 0, high = n - 1;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (cumulative[middle] > u)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static int check_options(uint32_t n_layer, uint32_t n_expert, const struct gm_synth_options *o, struct gm_error *err)
{
	if (n_layer < 1 || n_layer > GM_MAX_LAYER || n_expert < 1 || n_expert > GM_MAX_EXPERT)
		return gm_fail(err, GM_ERR_USAGE, "out of range: %u layers of %u experts: up to %u layers of %u experts",
			       n_layer, n_expert, GM_MAX_LAYER, GM_MAX_EXPERT);
	if (o->n_token < 1 || o->n_token > GM_SYNTH_MAX_TOKEN)
		return gm_fail(err, GM_ERR_USAGE, "out of range: %" PRIu64 " tokens: from 1 to 2^40", o->n_token);
	if (o->sequence_length < 1 || o->n_token / o->sequence_length >= UINT32_MAX)
		return gm_fail(err, GM_ERR_USAGE, "out of range: sequence length %u: from 1, and fewer than 2^32 sequences",
			       o->sequence_length);
	if (o->n_topic < 1 || o->n_topic > GM_SYNTH_MAX_TOPIC)
		return gm_fail(err, GM_ERR_USAGE, "out of range: %u topics: from 1 to %d", o->n_topic, GM_SYNTH_MAX_TOPIC);
	if ((uint64_t)o->n_topic * n_layer * n_expert > GM_SYNTH_MAX_STATE)
		return gm_fail(err, GM_ERR_USAGE, "out of range: %u topics: times layers times experts at most %u",
			       o->n_topic, GM_SYNTH_MAX_STATE);
	for (int i = 0; i < gm_synth_n_parameter; i++) {
		const struct gm_synth_parameter *p = &gm_synth_parameters[i];
		double value = gm_synth_parameter_get(&o->model, i);
		if (!(value >= p->min && value <= p->max))
			return gm_fail(err, GM_ERR_USAGE, "out of range: --%s %g: from %g to %g", p->name, value, p->min,
				       p->max);
	}
	return 0;
}

static int32_t amplitude(double sd)
{
	return (int32_t)(sd * 1024 + 0.5);
}

/* A normal number of the layer's own. */
static double layer_draw(const struct gm_synth *s, uint32_t layer)
{
	uint64_t stream = open_stream(s->options.seed, STREAM_SPREAD, layer, 0);
	return s->gauss[next_random(&stream) >> 52] / 4096.0;
}

static void set_amplitudes(struct gm_synth *s)
{
	const struct gm_synth_model *m = &s->options.model;
	double drifting = m->topic * m->topic + m->context * m->context + m->persistence * m->persistence;
	double most = drifting > 0 ? square_root(1 + m->token_noise * m->token_noise / drifting) : 1;
	double spread_mean = 0; /* taken out, so that a seed does not move all layers together */
	for (uint32_t l = 0; l < s->n_layer; l++)
		spread_mean += layer_draw(s, l) / s->n_layer;
	s->amp_popularity = amplitude(m->popularity);
	s->amp_noise = amplitude(m->noise);
	for (uint32_t l = 0; l < s->n_layer; l++) {
		double depth = s->n_layer > 1 ? (double)l / (s->n_layer - 1) : 0;
		double share = 1 - (1 - m->first_layer) * exp2_minus(depth / m->rise * 1.44269504088896340736);
		share *= 1 + m->layer_spread * (layer_draw(s, l) - spread_mean);
		share = share < 0 ? 0 : share > most ? most : share;
		double token = m->token_noise * m->token_noise + (1 - share * share) * drifting;
		s->share[l] = share;
		s->amp_topic[l] = amplitude(m->topic * share);
		s->amp_context[l] = amplitude(m->context * share);
		s->amp_persistence[l] = amplitude(m->persistence * share);
		s->amp_token[l] = amplitude(square_root(token > 0 ? token : 0));
	}
}

static void open_streams(struct gm_synth *s)
{
	const uint64_t seed = s->options.seed;
	const uint32_t n_topic = s->options.n_topic;
	s->text = open_stream(seed, STREAM_TEXT, 0, 0);
	for (uint32_t l = 0; l < s->n_layer; l++) {
		uint64_t stream = open_stream(seed, STREAM_POPULARITY, l, 0);
		fill_normal(s->gauss, &stream, s->popularity + (size_t)l * s->stride, s->stride);
		for (uint32_t k = 0; k < n_topic; k++) {
			stream = open_stream(seed, STREAM_TOPIC, l, k);
			fill_normal(s->gauss, &stream, s->topics + ((size_t)l * n_topic + k) * s->stride, s->stride);
		}
		s->stream_topic[l] = open_stream(seed, STREAM_TOPIC_DRIFT, l, 0);
		s->stream_context[l] = open_stream(seed, STREAM_CONTEXT, l, 0);
		s->stream_persistence[l] = open_stream(seed, STREAM_PERSISTENCE, l, 0);
		s->stream_noise[l] = open_stream(seed, STREAM_NOISE, l, 0);
		fill_normal(s->gauss, &s->stream_persistence[l], s->persistence + (size_t)l * s->stride, s->stride);
	}
}

static bool allocate(struct gm_synth *s, struct gm_error *err)
{
	const size_t layers = s->n_layer, row = s->stride, topics = s->options.n_topic;
	return (s->deck = gm_alloc(topics, sizeof(uint32_t), err)) &&
	       (s->zipf_common = gm_alloc(VOCABULARY_COMMON, sizeof(uint32_t), err)) &&
	       (s->zipf_topic = gm_alloc(VOCABULARY_TOPIC, sizeof(uint32_t), err)) &&
	       (s->amp_topic = gm_alloc(layers, sizeof(int32_t), err)) &&
	       (s->amp_context = gm_alloc(layers, sizeof(int32_t), err)) &&
	       (s->amp_persistence = gm_alloc(layers, sizeof(int32_t), err)) &&
	       (s->amp_token = gm_alloc(layers, sizeof(int32_t), err)) &&
	       (s->share = gm_alloc(layers, sizeof(double), err)) &&
	       (s->gauss = gm_alloc(GAUSS_SIZE, sizeof(int16_t), err)) &&
	       (s->popularity = gm_alloc(layers * row, sizeof(int16_t), err)) &&
	       (s->topics = gm_alloc(layers * topics * row, sizeof(int16_t), err)) &&
	       (s->context = gm_alloc(layers * row, sizeof(int16_t), err)) &&
	       (s->persistence = gm_alloc(layers * row, sizeof(int16_t), err)) &&
	       (s->topic_age = gm_alloc(layers * topics, sizeof(uint64_t), err)) &&
	       (s->context_segment = gm_alloc(layers, sizeof(uint64_t), err)) &&
	       (s->stream_topic = gm_alloc(layers, sizeof(uint64_t), err)) &&
	       (s->stream_context = gm_alloc(layers, sizeof(uint64_t), err)) &&
	       (s->stream_persistence = gm_alloc(layers, sizeof(uint64_t), err)) &&
	       (s->stream_noise = gm_alloc(layers, sizeof(uint64_t), err)) &&
	       (s->base = gm_alloc(row, sizeof(int32_t), err)) && (s->draw_a = gm_alloc(row, sizeof(int16_t), err)) &&
	       (s->draw_b = gm_alloc(row, sizeof(int16_t), err)) && (s->draw_c = gm_alloc(row, sizeof(int16_t), err));
}

/* Tokens between two steps of a drift: so many that the integer steps stay coarse enough not to be rounded away. */
static uint64_t drift_interval(double half_life)
{
	return half_life >= 128 ? (uint64_t)(half_life / 64) : 1;
}

struct gm_synth *gm_synth_new(uint32_t n_layer, uint32_t n_expert, const struct gm_synth_options *options,
			      struct gm_error *err)
{
	if (check_options(n_layer, n_expert, options, err) < 0)
		return NULL;
	struct gm_synth *s = gm_alloc(1, sizeof(*s), err);
	if (!s)
		return NULL;
	s->options = *options;
	s->n_layer = n_layer;
	s->n_expert = n_expert;
	s->stride = (n_expert + 3) & ~3u;
	if (!allocate(s, err)) {
		gm_synth_free(s);
		return NULL;
	}
	build_gauss(s->gauss);
	build_zipf(s->zipf_common, VOCABULARY_COMMON);
	build_zipf(s->zipf_topic, VOCABULARY_TOPIC);
	set_amplitudes(s);
	open_streams(s);
	s->topic_interval = drift_interval(options->model.topic_drift);
	s->context_interval = drift_interval(options->model.drift);
	s->context_step = decay_over((double)s->context_interval, options->model.drift);
	s->persistence_step = decay_over(1, options->model.persistence_drift);
	for (uint32_t k = 0; k < options->n_topic; k++)
		s->deck[k] = k;
	s->deck_at = options->n_topic;
	s->topic = UINT32_MAX;
	s->next_switch = UINT64_MAX;
	return s;
}

void gm_synth_free(struct gm_synth *s)
{
	if (!s)
		return;
	free(s->deck);
	free(s->zipf_common);
	free(s->zipf_topic);
	free(s->amp_topic);
	free(s->amp_context);
	free(s->amp_persistence);
	free(s->amp_token);
	free(s->share);
	free(s->gauss);
	free(s->popularity);
	free(s->topics);
	free(s->context);
	free(s->persistence);
	free(s->topic_age);
	free(s->context_segment);
	free(s->stream_topic);
	free(s->stream_context);
	free(s->stream_persistence);
	free(s->stream_noise);
	free(s->base);
	free(s->draw_a);
	free(s->draw_b);
	free(s->draw_c);
	free(s);
}

double gm_synth_depth_share(const struct gm_synth *s, uint32_t layer)
{
	return s->share[layer];
}

/* --- text --- */

static bool chance(uint64_t *state, double p)
{
	return uniform32(state) < p * 4294967296.0;
}

/* The next topic of a shuffled pack: all come up before one comes back, so that how much two parts of a trace share does not
 * hang on chance. Never the same twice in a row where there is another. */
static void other_topic(struct gm_synth *s)
{
	const uint32_t n = s->options.n_topic;
	if (s->deck_at == n) {
		for (uint32_t i = n - 1; i > 0; i--) {
			uint32_t j = uniform_below(&s->text, i + 1);
			uint32_t swap = s->deck[i];
			s->deck[i] = s->deck[j];
			s->deck[j] = swap;
		}
		if (n > 1 && s->deck[0] == s->topic) {
			s->deck[0] = s->deck[n - 1];
			s->deck[n - 1] = s->topic;
		}
		s->deck_at = 0;
	}
	s->topic = s->deck[s->deck_at++];
}

/* How many sequences stay with a topic: evenly 1 ... 2 mean - 1. A geometric law would have runs long enough to make one half of a
 * trace predict the other. */
static uint32_t draw_run(struct gm_synth *s)
{
	double run = 1 + (2 * s->options.model.topic_run - 1) * (uniform32(&s->text) / 4294967296.0);
	return (uint32_t)run;
}

/* Where the topic changes next inside the sequence: uniform between half and one and a half times the mean. */
static void plan_switch(struct gm_synth *s)
{
	double mean = s->options.model.topic_switch;
	s->next_switch = UINT64_MAX;
	if (mean > 0)
		s->next_switch = s->done + 1 + (uint64_t)(mean * (0.5 + uniform32(&s->text) / 4294967296.0));
}

static int32_t draw_token(struct gm_synth *s)
{
	bool common = chance(&s->text, s->options.model.common);
	uint32_t u = uniform32(&s->text);
	if (common)
		return (int32_t)draw_rank(s->zipf_common, VOCABULARY_COMMON, u);
	return (int32_t)(VOCABULARY_COMMON + s->topic * VOCABULARY_TOPIC + draw_rank(s->zipf_topic, VOCABULARY_TOPIC, u));
}

int gm_synth_next(struct gm_synth *s, uint32_t max_token, struct gm_synth_chunk *chunk)
{
	assert(max_token >= 1 && max_token <= GM_SYNTH_CHUNK);
	if (s->done == s->options.n_token)
		return 0;
	if (s->position == s->options.sequence_length) {
		s->position = 0;
		s->sequence++;
	}
	const uint32_t position = s->position;
	if (position == 0) {
		if (s->run_left == 0) {
			other_topic(s);
			s->run_left = draw_run(s);
		}
		s->run_left--;
		s->topic_sequence = s->topic;
		s->segment_at = s->done;
		plan_switch(s);
	} else if (s->done == s->next_switch) {
		other_topic(s);
		s->segment_at = s->done;
		plan_switch(s);
	}
	uint64_t n = max_token;
	uint64_t in_sequence = s->options.sequence_length - position;
	uint64_t left = s->options.n_token - s->done;
	n = n < in_sequence ? n : in_sequence;
	n = n < left ? n : left;
	n = n < s->next_switch - s->done ? n : s->next_switch - s->done;
	for (uint32_t i = 0; i < n; i++)
		s->token[i] = draw_token(s);
	s->chunk = (struct gm_synth_chunk){.first_token = s->done,
					   .n_token = (uint32_t)n,
					   .sequence = s->sequence,
					   .position = position,
					   .topic = s->topic,
					   .topic_sequence = s->topic_sequence,
					   .token = s->token};
	s->done += n;
	s->position += (uint32_t)n;
	*chunk = s->chunk;
	return 1;
}

/* --- rows --- */

/* Moves a topic to token `now`, in whole intervals. */
static bool move_topic(struct gm_synth *s, uint32_t layer, uint64_t now)
{
	size_t at = (size_t)layer * s->options.n_topic + s->chunk.topic;
	uint64_t n = (now - s->topic_age[at]) / s->topic_interval;
	if (n == 0)
		return false;
	fill_normal(s->gauss, &s->stream_topic[layer], s->draw_a, s->stride);
	step(decay_over((double)(n * s->topic_interval), s->options.model.topic_drift), s->topics + at * s->stride,
	     s->draw_a, s->stride);
	s->topic_age[at] += n * s->topic_interval;
	return true;
}

/* Draws the context anew where a segment begins, or lets it drift by a step when one is due. Steps of the layers are spread over the
 * interval. */
static bool move_context(struct gm_synth *s, uint32_t layer, uint64_t now)
{
	int16_t *context = s->context + (size_t)layer * s->stride;
	if (s->context_segment[layer] != s->segment_at + 1) {
		s->context_segment[layer] = s->segment_at + 1;
		fill_normal(s->gauss, &s->stream_context[layer], context, s->stride);
		return true;
	}
	uint64_t phase = layer * s->context_interval / s->n_layer;
	if ((now + phase) % s->context_interval != 0)
		return false;
	fill_normal(s->gauss, &s->stream_context[layer], s->draw_a, s->stride);
	step(s->context_step, context, s->draw_a, s->stride);
	return true;
}

static void sum_base(struct gm_synth *s, uint32_t layer)
{
	const int16_t *popularity = s->popularity + (size_t)layer * s->stride;
	const int16_t *topic = s->topics + ((size_t)layer * s->options.n_topic + s->chunk.topic) * s->stride;
	const int16_t *context = s->context + (size_t)layer * s->stride;
	const int32_t a = s->amp_popularity, b = s->amp_topic[layer], c = s->amp_context[layer];
	for (uint32_t e = 0; e < s->stride; e++)
		s->base[e] = a * popularity[e] + b * topic[e] + c * context[e];
}

/* No overflow: the drifting parts are below 8 with amplitudes below 6, the others below 3.7 with amplitudes up to 8, so that
 * six parts in units of 2^-22 stay below 2^30. */
static void sum_row(const struct gm_synth *s, uint32_t layer, float *logits)
{
	const int16_t *persistence = s->persistence + (size_t)layer * s->stride;
	const int32_t p = s->amp_persistence[layer], t = s->amp_token[layer], n = s->amp_noise;
	for (uint32_t e = 0; e < s->n_expert; e++) {
		int32_t z = s->base[e] + p * persistence[e] + t * s->draw_b[e] + n * s->draw_c[e];
		logits[e] = (float)((z + (1 << 11)) >> 12) * (1.0F / 1024);
	}
}

void gm_synth_rows(struct gm_synth *s, uint32_t layer, float *logits)
{
	assert(layer < s->n_layer);
	for (uint32_t i = 0; i < s->chunk.n_token; i++) {
		uint64_t now = s->chunk.first_token + i;
		bool moved = move_topic(s, layer, now);
		if (move_context(s, layer, now) || moved || i == 0)
			sum_base(s, layer);
		fill_normal(s->gauss, &s->stream_persistence[layer], s->draw_a, s->stride);
		step(s->persistence_step, s->persistence + (size_t)layer * s->stride, s->draw_a, s->stride);
		uint64_t word = open_stream(s->options.seed, STREAM_TOKEN, (uint64_t)s->chunk.token[i], layer);
		fill_normal(s->gauss, &word, s->draw_b, s->stride);
		fill_normal(s->gauss, &s->stream_noise[layer], s->draw_c, s->stride);
		sum_row(s, layer, logits + (size_t)i * s->n_expert);
	}
}
