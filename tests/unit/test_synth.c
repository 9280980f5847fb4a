#include "traces/commands.h"
#include "traces/select.h"
#include "traces/synth.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A whole small trace in memory. */
struct drawn {
	uint32_t n_layer, n_expert;
	uint64_t n_token;
	float *logits;  /* [n_token][n_layer][n_expert] */
	int32_t *token; /* [n_token] */
	uint32_t *topic, *sequence, *position;
};

static void draw(struct drawn *d, uint32_t n_layer, uint32_t n_expert, const struct gm_synth_options *options,
		 uint32_t max_token, bool backwards)
{
	struct gm_error err = {0};
	struct gm_synth *synth = gm_synth_new(n_layer, n_expert, options, &err);
	struct gm_synth_chunk c;
	uint64_t at = 0;
	assert_non_null(synth);
	*d = (struct drawn){.n_layer = n_layer, .n_expert = n_expert, .n_token = options->n_token};
	d->logits = calloc((size_t)d->n_token * n_layer * n_expert, sizeof(float));
	d->token = calloc(d->n_token, sizeof(int32_t));
	d->topic = calloc(d->n_token, sizeof(uint32_t));
	d->sequence = calloc(d->n_token, sizeof(uint32_t));
	d->position = calloc(d->n_token, sizeof(uint32_t));
	float *rows = calloc((size_t)GM_SYNTH_CHUNK * n_expert, sizeof(float));
	assert_true(d->logits && d->token && d->topic && d->sequence && d->position && rows);
	while (gm_synth_next(synth, max_token, &c)) {
		assert_int_equal(c.first_token, at);
		assert_in_range(c.n_token, 1, max_token);
		for (uint32_t i = 0; i < c.n_token; i++) {
			d->token[at + i] = c.token[i];
			d->topic[at + i] = c.topic;
			d->sequence[at + i] = c.sequence;
			d->position[at + i] = c.position + i;
		}
		for (uint32_t l = 0; l < n_layer; l++) {
			uint32_t layer = backwards ? n_layer - 1 - l : l;
			gm_synth_rows(synth, layer, rows);
			for (uint32_t i = 0; i < c.n_token; i++)
				memcpy(d->logits + ((at + i) * n_layer + layer) * n_expert, rows + (size_t)i * n_expert,
				       n_expert * sizeof(float));
		}
		at += c.n_token;
	}
	assert_int_equal(at, options->n_token);
	assert_int_equal(gm_synth_next(synth, max_token, &c), 0);
	free(rows);
	gm_synth_free(synth);
}

static void release(struct drawn *d)
{
	free(d->logits);
	free(d->token);
	free(d->topic);
	free(d->sequence);
	free(d->position);
}

static const float *row_of(const struct drawn *d, uint64_t token, uint32_t layer)
{
	return d->logits + (token * d->n_layer + layer) * d->n_expert;
}

static struct gm_synth_options preset_options(const char *name)
{
	const struct gm_synth_preset *preset = gm_synth_find_preset(name, NULL);
	assert_non_null(preset);
	return preset->options;
}

/* Standard deviation 0 for every part. */
static struct gm_synth_options silent_options(void)
{
	struct gm_synth_options o = preset_options("small");
	struct gm_synth_model *m = &o.model;
	m->popularity = m->topic = m->context = m->persistence = m->token_noise = m->noise = 0;
	m->first_layer = 1;
	o.n_token = 512;
	o.sequence_length = 128;
	o.seed = 5;
	return o;
}

/* The hash of logits as the integers that they are multiples of, little-endian whatever the machine. */
static uint64_t hash_logits(const struct drawn *d)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
	for (size_t i = 0; i < (size_t)d->n_token * d->n_layer * d->n_expert; i++) {
		float scaled = d->logits[i] * 1024;
		int32_t z = (int32_t)scaled;
		assert_true((float)z == scaled);
		for (int byte = 0; byte < 4; byte++)
			h = (h ^ ((uint32_t)z >> (8 * byte) & 0xff)) * UINT64_C(0x100000001b3);
	}
	return h;
}

/* The same numbers with every compiler and machine; a change of them is a new GM_SYNTH_VERSION. */
static void test_same_everywhere(void **state)
{
	static const struct {
		const char *preset;
		uint32_t n_layer, n_expert; /* n_expert 126: no multiple of 4 */
		uint64_t seed, hash;
	} golden[] = {
		{"small", 6, 126, 0, UINT64_C(0x52a204fd04829051)},
		{"qwen3-next-80b", 12, 512, 20, UINT64_C(0xb2e44a6aeda003e5)},
		{"gpt-oss-20b", 24, 32, UINT64_MAX, UINT64_C(0x98ba4f3e3eb75206)},
	};
	(void)state;
	assert_int_equal(GM_SYNTH_VERSION, 1);
	for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
		struct gm_synth_options o = preset_options(golden[i].preset);
		struct drawn d;
		o.n_token = 300;
		o.sequence_length = 100;
		o.seed = golden[i].seed;
		o.model.topic_switch = 40;
		o.model.topic_drift = 130;
		draw(&d, golden[i].n_layer, golden[i].n_expert, &o, GM_SYNTH_CHUNK, false);
		uint64_t hash = hash_logits(&d);
		if (hash != golden[i].hash)
			fail_msg("%s: 0x%016llx", golden[i].preset, (unsigned long long)hash);
		release(&d);
	}
}

/* Neither the size of the chunks nor the order of the layers changes anything; the seed and the length of the trace do what they
 * should. */
static void test_independent_of_order(void **state)
{
	struct gm_synth_options o = preset_options("small");
	struct drawn a, b, c, longer, other;
	(void)state;
	o.n_token = 400;
	o.sequence_length = 150;
	o.model.topic_switch = 60;
	draw(&a, 6, 128, &o, GM_SYNTH_CHUNK, false);
	draw(&b, 6, 128, &o, 1, true);
	draw(&c, 6, 128, &o, 7, false);
	o.n_token = 500;
	draw(&longer, 6, 128, &o, GM_SYNTH_CHUNK, false);
	o.n_token = 400;
	o.seed++;
	draw(&other, 6, 128, &o, GM_SYNTH_CHUNK, false);
	const size_t bytes = 400 * 6 * 128 * sizeof(float);
	assert_memory_equal(a.logits, b.logits, bytes);
	assert_memory_equal(a.logits, c.logits, bytes);
	assert_memory_equal(a.logits, longer.logits, bytes);
	assert_memory_equal(a.token, b.token, 400 * sizeof(int32_t));
	assert_memory_equal(a.topic, c.topic, 400 * sizeof(uint32_t));
	assert_memory_not_equal(a.logits, other.logits, bytes);
	release(&a);
	release(&b);
	release(&c);
	release(&longer);
	release(&other);
}

/* Mean 0 and the variance that the parameters add up to, in every layer. */
static void test_moments(void **state)
{
	struct gm_synth_options o = preset_options("qwen3-next-80b");
	const struct gm_synth_model *m = &o.model;
	const double expected = m->popularity * m->popularity + m->topic * m->topic + m->context * m->context +
				m->persistence * m->persistence + m->token_noise * m->token_noise + m->noise * m->noise;
	struct drawn d;
	(void)state;
	o.n_token = 640;
	o.sequence_length = 16;
	o.model.topic_run = 1;
	draw(&d, 8, 512, &o, GM_SYNTH_CHUNK, false);
	for (uint32_t l = 0; l < 8; l++) {
		double sum = 0, square = 0;
		for (uint64_t t = 0; t < d.n_token; t++) {
			const float *z = row_of(&d, t, l);
			for (uint32_t e = 0; e < 512; e++) {
				sum += z[e];
				square += (double)z[e] * z[e];
			}
		}
		double n = (double)d.n_token * 512, mean = sum / n;
		assert_true(fabs(mean) < 0.05);
		assert_true(fabs((square / n - mean * mean) / expected - 1) < 0.06);
	}
	release(&d);
}

/* Correlation of two rows. */
static double correlation(const struct drawn *d, uint64_t a, uint64_t b, uint32_t layer)
{
	const float *x = row_of(d, a, layer), *y = row_of(d, b, layer);
	double xy = 0, xx = 0, yy = 0;
	for (uint32_t e = 0; e < d->n_expert; e++) {
		xy += (double)x[e] * y[e];
		xx += (double)x[e] * x[e];
		yy += (double)y[e] * y[e];
	}
	return xy / sqrt(xx * yy);
}

static double mean_correlation(const struct drawn *d, uint32_t lag)
{
	double sum = 0;
	uint64_t n = 0;
	for (uint64_t t = lag; t < d->n_token; t++) {
		if (d->sequence[t] != d->sequence[t - lag] || d->topic[t] != d->topic[t - lag])
			continue;
		sum += correlation(d, t, t - lag, 0);
		n++;
	}
	return sum / (double)n;
}

/* Every part alone does what it is named for. */
static void test_parts(void **state)
{
	struct gm_synth_options o = silent_options();
	struct drawn d;
	(void)state;
	draw(&d, 2, 512, &o, GM_SYNTH_CHUNK, false);
	for (uint32_t e = 0; e < 512; e++)
		assert_true(row_of(&d, 511, 1)[e] == 0);
	release(&d);

	o.model.popularity = 1;
	draw(&d, 2, 512, &o, GM_SYNTH_CHUNK, false);
	assert_memory_equal(row_of(&d, 0, 1), row_of(&d, 511, 1), 512 * sizeof(float));
	assert_true(fabs(correlation(&d, 0, 0, 0)) > 0.999);
	release(&d);
	o.model.popularity = 0;

	o.model.token_noise = 1;
	draw(&d, 2, 512, &o, GM_SYNTH_CHUNK, false);
	int pairs = 0;
	for (uint64_t t = 1; t < d.n_token; t++) {
		bool same = memcmp(row_of(&d, t, 1), row_of(&d, 0, 1), 512 * sizeof(float)) == 0;
		assert_int_equal(same, d.token[t] == d.token[0]);
		pairs += d.token[t] == d.token[t - 1];
	}
	assert_true(pairs < 60);
	release(&d);
	o.model.token_noise = 0;

	o.model.noise = 1;
	draw(&d, 2, 512, &o, GM_SYNTH_CHUNK, false);
	assert_true(fabs(mean_correlation(&d, 1)) < 0.01);
	release(&d);
	o.model.noise = 0;

	o.model.context = 1;
	o.model.drift = 20;
	draw(&d, 2, 512, &o, GM_SYNTH_CHUNK, false);
	assert_true(fabs(mean_correlation(&d, 1) - 0.966) < 0.01);
	assert_true(fabs(mean_correlation(&d, 20) - 0.5) < 0.03);
	assert_true(fabs(mean_correlation(&d, 60) - 0.125) < 0.03);
	assert_true(fabs(correlation(&d, 127, 128, 0)) < 0.15); /* another sequence */
	release(&d);
	o.model.context = 0;

	o.model.persistence = 1;
	o.model.persistence_drift = 2;
	draw(&d, 2, 512, &o, GM_SYNTH_CHUNK, false);
	assert_true(fabs(mean_correlation(&d, 2) - 0.5) < 0.01);
	assert_true(fabs(mean_correlation(&d, 6) - 0.125) < 0.01);
	release(&d);
}

/* A topic comes back as it was, changed by its drift. */
static void test_topics(void **state)
{
	struct gm_synth_options o = silent_options();
	struct drawn d;
	(void)state;
	int returns = 0;
	o.model.topic = 1;
	o.model.topic_run = 1;
	o.n_topic = 3;
	o.n_token = 2048;
	o.sequence_length = 32;
	draw(&d, 1, 512, &o, GM_SYNTH_CHUNK, false);
	for (uint64_t t = 32; t < d.n_token; t++) {
		if (t % 32 == 0)
			assert_int_not_equal(d.topic[t], d.topic[t - 1]);
		for (uint64_t back = 32; back <= t && back <= 192; back += 32) {
			double c = correlation(&d, t, t - back, 0);
			assert_true(d.topic[t] == d.topic[t - back] ? c > 0.95 : fabs(c) < 0.2);
			returns += d.topic[t] == d.topic[t - back];
		}
	}
	assert_true(returns > 1000);
	release(&d);

	o.model.topic_drift = 512;
	o.n_topic = 1;
	draw(&d, 1, 512, &o, GM_SYNTH_CHUNK, false);
	assert_true(fabs(mean_correlation(&d, 31) - 0.959) < 0.02);
	assert_true(fabs(correlation(&d, 0, 511, 0) - 0.5) < 0.12);
	assert_true(fabs(correlation(&d, 0, 2047, 0) - 0.0625) < 0.15);
	release(&d);

	/* A run without end: one topic; with switches inside the sequences all the same. */
	o.n_topic = 4;
	o.model.topic_run = 1e9;
	draw(&d, 1, 4, &o, GM_SYNTH_CHUNK, false);
	for (uint64_t t = 1; t < d.n_token; t++)
		assert_int_equal(d.topic[t], d.topic[0]);
	release(&d);
	o.sequence_length = 1024;
	o.model.topic_switch = 100;
	draw(&d, 1, 4, &o, 5, false);
	int switches = 0;
	for (uint64_t t = 1; t < d.n_token; t++)
		switches += d.topic[t] != d.topic[t - 1];
	assert_in_range(switches, 13, 30); /* 2048 / 100, and none where the sequence begins */
	assert_int_equal(d.topic[1023], d.topic[1024]);
	release(&d);
}

/* Least recently used experts first: position of every pick in the stack at the beginning of its event. */
static double lru_hits(const struct drawn *d, uint32_t layer, uint32_t top_k, uint32_t n_slot, double *reuse)
{
	uint16_t *stack = calloc(d->n_expert, sizeof(uint16_t));
	uint16_t set[16], last[16] = {0};
	uint32_t depth[16], n_stack = 0, hits = 0, again = 0;
	struct gm_error err = {0};
	const struct gm_model model = {.n_layer = d->n_layer, .n_expert = d->n_expert, .top_k = top_k};
	struct gm_selector *selector = gm_selector_new(&model, top_k, &err);
	assert_true(stack && selector);
	for (uint64_t t = 0; t < d->n_token; t++) {
		assert_int_equal(gm_select_rank(selector, layer, row_of(d, t, layer), set, NULL, &err), 0);
		for (uint32_t j = 0; j < top_k; j++) {
			for (depth[j] = 0; depth[j] < n_stack && stack[depth[j]] != set[j];)
				depth[j]++;
			hits += depth[j] < n_slot && depth[j] < n_stack;
			for (uint32_t i = 0; t > 0 && i < top_k; i++)
				again += last[i] == set[j];
		}
		for (uint32_t j = 0; j < top_k; j++) {
			uint32_t at = 0;
			while (at < n_stack && stack[at] != set[j])
				at++;
			n_stack += at == n_stack;
			memmove(stack + 1, stack, at * sizeof(uint16_t));
			stack[0] = set[j];
		}
		memcpy(last, set, sizeof(last));
	}
	gm_selector_free(selector);
	free(stack);
	*reuse = again / (double)((d->n_token - 1) * top_k);
	return hits / (double)(d->n_token * top_k);
}

/* A short look at what the long check (tests/soak/synth_tuning.c) measures: LRU hits 67 % and 81 %, first layers reuse least. */
static void test_locality(void **state)
{
	struct gm_synth_options o = preset_options("qwen3-next-80b");
	double hits64 = 0, hits128 = 0, reuse[48];
	struct drawn d;
	(void)state;
	o.n_token = 512;
	o.seed = 77;
	draw(&d, 48, 512, &o, GM_SYNTH_CHUNK, false);
	for (uint32_t l = 0; l < 48; l++) {
		hits64 += lru_hits(&d, l, 10, 64, &reuse[l]) / 48;
		hits128 += lru_hits(&d, l, 10, 128, &reuse[l]) / 48;
	}
	release(&d);
	assert_true(fabs(hits64 - 0.67) < 0.03);
	assert_true(fabs(hits128 - 0.81) < 0.03);
	double deep = 0;
	for (uint32_t l = 12; l < 48; l++) {
		deep += reuse[l] / 36;
		assert_true(reuse[l] > reuse[0] && reuse[l] > reuse[1] && reuse[l] > reuse[2]);
	}
	assert_true(reuse[0] < 0.07 && deep > 0.25 && deep < 0.38);
}

static void test_bad_options(void **state)
{
	const struct gm_synth_options good = preset_options("small");
	struct gm_synth_options o;
	struct gm_error err;
	(void)state;
#define REFUSED(change, layers, experts, word)                \
	o = good;                                             \
	change;                                               \
	err = (struct gm_error){0};                           \
	assert_null(gm_synth_new(layers, experts, &o, &err)); \
	assert_int_equal(err.code, GM_ERR_USAGE);             \
	assert_non_null(strstr(err.text, word))
	REFUSED(o.n_token = 0, 6, 128, "tokens");
	REFUSED(o.n_token = GM_SYNTH_MAX_TOKEN + 1, 6, 128, "tokens");
	REFUSED(o.sequence_length = 0, 6, 128, "sequence length");
	REFUSED((o.n_token = GM_SYNTH_MAX_TOKEN, o.sequence_length = 1), 6, 128, "sequence length");
	REFUSED(o.n_topic = 0, 6, 128, "topics");
	REFUSED(o.n_topic = GM_SYNTH_MAX_TOPIC + 1, 6, 128, "topics");
	REFUSED(o.n_topic = 4096, 48, 2048, "topics");
	REFUSED((void)0, 0, 128, "layers");
	REFUSED((void)0, 6, GM_MAX_EXPERT + 1, "experts");
	for (int i = 0; i < gm_synth_n_parameter; i++) {
		const struct gm_synth_parameter *p = &gm_synth_parameters[i];
		REFUSED(gm_synth_parameter_set(&o.model, i, p->max * 1.01), 6, 128, p->name);
		REFUSED(gm_synth_parameter_set(&o.model, i, p->min - 0.01), 6, 128, p->name);
		REFUSED(gm_synth_parameter_set(&o.model, i, (double)NAN), 6, 128, p->name);
	}
	err = (struct gm_error){0};
	assert_null(gm_synth_find_preset("huge", &err));
	assert_int_equal(err.code, GM_ERR_USAGE);
	for (int i = 0; i < gm_synth_n_preset; i++)
		assert_non_null(strstr(err.text, gm_synth_presets[i].name));
}

/* Every parameter at both ends of its range: finite rows of the expected size (sanitizers look for overflow). */
static void test_extremes(void **state)
{
	(void)state;
	for (int high = 0; high < 2; high++) {
		struct gm_synth_options o = preset_options("small");
		struct drawn d;
		for (int i = 0; i < gm_synth_n_parameter; i++)
			gm_synth_parameter_set(&o.model, i, high ? gm_synth_parameters[i].max : gm_synth_parameters[i].min);
		o.n_token = 300;
		o.sequence_length = 130;
		draw(&d, 3, 5, &o, GM_SYNTH_CHUNK, false);
		for (size_t i = 0; i < 300 * 3 * 5; i++)
			assert_true(fabsf(d.logits[i]) < 256);
		release(&d);
	}
}

/* --- the command --- */

static int run_synth(const char *const *argument, int n)
{
	const struct gm_program program = {
		.name = "traces", .help = "a test", .commands = &gm_traces_synth, .n_command = 1};
	char *argv[24];
	int argc = 0;
	argv[argc++] = (char *)(uintptr_t) "traces";
	argv[argc++] = (char *)(uintptr_t) "synth";
	for (int i = 0; i < n; i++)
		argv[argc++] = (char *)(uintptr_t)argument[i];
	argv[argc] = NULL;
	return gm_program_main(&program, argc, argv);
}

static struct gm_trace *written(const char *path, const char *const *argument, int n)
{
	const char *all[20] = {"-o", path, "--quiet"};
	struct gm_error err = {0};
	for (int i = 0; i < n; i++)
		all[3 + i] = argument[i];
	assert_int_equal(run_synth(all, 3 + n), 0);
	struct gm_trace *trace = gm_trace_open(path, &err);
	if (!trace)
		fail_msg("%s", err.text);
	return trace;
}

/* What stands in the file is what the generator gives, with passes, labels and the recipe in the header. */
static void test_command(void **state)
{
	static const char *const argument[] = {"--preset",
					       "small",
					       "--seed",
					       "18446744073709551615",
					       "--sequences",
					       "3",
					       "--sequence-length",
					       "70",
					       "--prompt-length",
					       "66",
					       "--tail",
					       "f32",
					       "--noise",
					       "0.25"};
	char path[] = "/tmp/gatemass-synth-XXXXXX";
	struct gm_synth_options o = preset_options("small");
	struct gm_block block = {0};
	struct gm_error err = {0};
	struct drawn d;
	float z[128];
	int fd = mkstemp(path);
	(void)state;
	assert_true(fd >= 0);
	close(fd);
	o.seed = UINT64_MAX;
	o.n_token = 210;
	o.sequence_length = 70;
	o.model.noise = 0.25;
	draw(&d, 6, 128, &o, GM_SYNTH_CHUNK, false);
	struct gm_trace *trace = written(path, argument, 14);
	const struct gm_model *model = gm_trace_model(trace);
	assert_int_equal(gm_trace_n_token(trace), 210);
	assert_int_equal(gm_trace_n_row(trace), 210 * 6);
	assert_int_equal(gm_trace_n_sequence(trace), 3);
	assert_int_equal(gm_trace_sequence(trace, 2)->first_token, 140);
	char label[24];
	snprintf(label, sizeof(label), "topic-%u", d.topic[70]);
	assert_string_equal(gm_trace_sequence(trace, 1)->label, label);
	assert_int_equal(model->expert_bytes[5], 24576);
	for (uint64_t b = 0; b < gm_trace_n_block(trace); b++) {
		assert_int_equal(gm_trace_read(trace, b, GM_WANT_TAIL, &block, &err), 1);
		for (uint32_t i = 0; i < block.n_token; i++) {
			uint64_t t = block.first_token + i;
			assert_int_equal(block.token[i], d.token[t]);
			assert_int_equal(block.position[i], t % 70);
			/* a pass for the prompt of 66 tokens, then one for each of the four others */
			assert_int_equal(block.pass[i], t / 70 * 5 + (t % 70 < 66 ? 0 : t % 70 - 65));
			for (uint32_t l = 0; l < 6; l++) {
				gm_block_logits(&block, model, l, i, z);
				assert_memory_equal(z, row_of(&d, t, l), sizeof(z));
			}
		}
	}
	char *header = gm_json_print(gm_trace_header(trace), false);
	assert_non_null(header);
	assert_non_null(strstr(header, "\"seed\":\"18446744073709551615\""));
	assert_non_null(strstr(header, "\"preset\":\"small\""));
	assert_non_null(strstr(header, "\"noise\":0.25"));
	assert_non_null(strstr(header, "\"sequence-length\":70"));
	free(header);
	gm_block_free(&block);
	gm_trace_close(trace);
	release(&d);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_everywhere), cmocka_unit_test(test_independent_of_order),
		cmocka_unit_test(test_moments),         cmocka_unit_test(test_parts),
		cmocka_unit_test(test_topics),          cmocka_unit_test(test_locality),
		cmocka_unit_test(test_bad_options),     cmocka_unit_test(test_extremes),
		cmocka_unit_test(test_command),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
