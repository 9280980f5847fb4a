/* One forced substitution, or one dropped expert, against a double-precision computation of the whole model that shares no code with
 * llama.cpp. The fixtures' attention output is set to zero, so that a token's values depend on no other token: then nothing but the
 * experts, the router and the norms is left to compute, and any other token's row must stay as it was, to the bit.
 */
#include "tests/llama/emulate_support.h"

#include "emulate/driver.h"
#include "traces/select.h"

#include <ggml.h>
#include <gguf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64, F = 32, VOCAB = 288, N = 40, MAX_K = 4, MAX_E = 32 };

/* --- weights, read from the file --- */

struct weights {
	struct gguf_context *gguf;
	struct ggml_context *ggml;
};

static const float *tensor(const struct weights *w, const char *name)
{
	struct ggml_tensor *t = ggml_get_tensor(w->ggml, name);

	if (!t)
		return NULL;
	assert_int_equal(t->type, GGML_TYPE_F32);
	return t->data;
}

static const float *layer_tensor(const struct weights *w, uint32_t layer, const char *name)
{
	char full[96];

	snprintf(full, sizeof(full), "blk.%u.%s", layer, name);
	return tensor(w, full);
}

static void open_weights(struct weights *w, const char *path)
{
	struct gguf_init_params params = {.no_alloc = false, .ctx = &w->ggml};

	w->gguf = gguf_init_from_file(path, params);
	assert_non_null(w->gguf);
}

static void close_weights(struct weights *w)
{
	gguf_free(w->gguf);
	ggml_free(w->ggml);
}

/* Overwrites what attention adds in all layers with zeros, in the file. */
static void silence_attention(const char *path)
{
	struct weights w;
	FILE *file = fopen(path, "r+b");

	assert_non_null(file);
	open_weights(&w, path);
	for (int64_t i = 0; i < gguf_get_n_tensors(w.gguf); i++) {
		const char *name = gguf_get_tensor_name(w.gguf, i);
		size_t size = gguf_get_tensor_size(w.gguf, i);
		char *zeros = calloc(1, size);

		if (strstr(name, ".attn_output.")) {
			fseek(file, (long)(gguf_get_data_offset(w.gguf) + gguf_get_tensor_offset(w.gguf, i)), SEEK_SET);
			assert_int_equal(fwrite(zeros, 1, size, file), size);
		}
		free(zeros);
	}
	close_weights(&w);
	assert_int_equal(fclose(file), 0);
}

/* --- the model in double --- */

/* What is forced upon one row. */
struct force {
	uint32_t token, layer;
	uint8_t action;
	uint16_t expert, substitute;
	struct gm_override override;
};

struct exact {
	const struct gm_model *model;
	const struct gm_hook_info *info;
	struct weights w;
	double scale; /* of the final gates */
	bool gpt_oss; /* its activation, biases and softmax over the selected */
};

static void multiply(const float *matrix, const double *x, uint32_t n_in, uint32_t n_out, const float *bias, double *out)
{
	for (uint32_t o = 0; o < n_out; o++) {
		out[o] = bias ? (double)bias[o] : 0;
		for (uint32_t i = 0; i < n_in; i++)
			out[o] += (double)matrix[(size_t)o * n_in + i] * x[i];
	}
}

static void norm(const double *x, const float *scale, double *out)
{
	double sum = 0;

	for (uint32_t i = 0; i < D; i++)
		sum += x[i] * x[i];
	for (uint32_t i = 0; i < D; i++)
		out[i] = x[i] / sqrt(sum / D + 1e-6) * (double)scale[i];
}

static double activate(bool gpt_oss, double gate, double up)
{
	if (!gpt_oss)
		return gate / (1 + exp(-gate)) * up;
	/* gpt-oss: clamped at 7, steepness 1.702 (OpenAI's reference implementation) */
	gate = fmin(gate, 7);
	up = fmax(fmin(up, 7), -7);
	return gate / (1 + exp(-1.702 * gate)) * (up + 1);
}

/* Adds weight * FFN(h), of width `width`. */
static void add_ffn(const struct exact *x, const float *const matrix[3], const float *const bias[3], uint32_t width,
		    double weight, const double *h, double *out)
{
	double gate[2 * F], up[2 * F], down[D];

	multiply(matrix[0], h, D, width, bias[0], gate);
	multiply(matrix[1], h, D, width, bias[1], up);
	for (uint32_t i = 0; i < width; i++)
		gate[i] = activate(x->gpt_oss, gate[i], up[i]);
	multiply(matrix[2], gate, width, D, bias[2], down);
	for (uint32_t i = 0; i < D; i++)
		out[i] += weight * down[i];
}

/* The weights of the experts in the end, from those that the router gave (R1). */
static void finish_weights(const struct exact *x, const bool *dropped, bool keep, uint32_t k, double *weight)
{
	bool renormalises = x->info->renormalises || x->gpt_oss;
	double sum = 0;

	for (uint32_t i = 0; i < k; i++) {
		if (x->gpt_oss)
			weight[i] = exp(weight[i]);
		if (!dropped[i] || keep)
			sum += weight[i];
	}
	for (uint32_t i = 0; i < k; i++)
		weight[i] = dropped[i] ? 0 : (renormalises ? weight[i] / sum : weight[i]) * x->scale;
}

static double raw(const struct exact *x, const double *logit, uint32_t expert)
{
	double sum = 0;

	if (x->gpt_oss)
		return logit[expert];
	if (x->model->gating == GM_GATING_SIGMOID)
		return 1 / (1 + exp(-logit[expert]));
	for (uint32_t e = 0; e < x->model->n_expert; e++)
		sum += exp(logit[e]);
	return exp(logit[expert]) / sum;
}

static void add_experts(const struct exact *x, uint32_t layer, uint32_t model_layer, uint32_t token,
			const struct force *force, const double *h, uint16_t *ranked, double *out)
{
	static const char *const names[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
	uint32_t k = x->model->top_k, n_expert = x->model->n_expert;
	struct gm_error err = {0};
	struct gm_selector *selector = gm_selector_new(x->model, n_expert, &err);
	double logit[MAX_E], weight[MAX_K];
	float logit32[MAX_E];
	bool dropped[MAX_K] = {false};
	char name[64];

	multiply(layer_tensor(&x->w, model_layer, "ffn_gate_inp.weight"), h, D, n_expert,
		 layer_tensor(&x->w, model_layer, "ffn_gate_inp.bias"), logit);
	for (uint32_t e = 0; e < n_expert; e++)
		logit32[e] = (float)logit[e];
	assert_non_null(selector);
	assert_ok(gm_select_rank(selector, layer, logit32, ranked, NULL, &err), &err);
	gm_selector_free(selector);
	for (uint32_t r = 0; r < k; r++) {
		uint16_t expert = ranked[r];

		weight[r] = raw(x, logit, expert);
		if (!force || force->token != token || force->layer != layer || force->expert != expert)
			continue;
		dropped[r] = force->action == GM_DROP;
		if (force->action == GM_SUBSTITUTE && force->override.substitute == GM_SUBSTITUTE_OWN)
			weight[r] = raw(x, logit, force->substitute);
	}
	finish_weights(x, dropped, force && force->override.drop == GM_DROP_KEEP, k, weight);
	for (uint32_t r = 0; r < k; r++) {
		const float *matrix[3], *bias[3];
		uint16_t expert = ranked[r];

		if (force && force->token == token && force->layer == layer && force->expert == expert &&
		    force->action == GM_SUBSTITUTE)
			expert = force->substitute;
		for (int m = 0; m < 3; m++) {
			snprintf(name, sizeof(name), "%s.weight", names[m]);
			matrix[m] = layer_tensor(&x->w, model_layer, name) + (size_t)expert * D * F;
			snprintf(name, sizeof(name), "%s.bias", names[m]);
			bias[m] = layer_tensor(&x->w, model_layer, name);
			if (bias[m])
				bias[m] += (size_t)expert * (m == 2 ? D : F);
		}
		add_ffn(x, matrix, bias, F, weight[r], h, out);
	}
}

static void add_dense(const struct exact *x, uint32_t model_layer, const char *const names[3], uint32_t width,
		      const double *h, double *out)
{
	const float *matrix[3], *const bias[3] = {NULL};

	for (int m = 0; m < 3; m++)
		matrix[m] = layer_tensor(&x->w, model_layer, names[m]);
	if (matrix[0])
		add_ffn(x, matrix, bias, width, 1, h, out);
}

/* Output logits of a token; ranked [n_layer][n_expert]. */
static void compute(const struct exact *x, uint32_t at, int32_t token, const struct force *force, uint16_t ranked[][MAX_E],
		    double *output)
{
	static const char *const dense[] = {"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"};
	static const char *const shared[] = {"ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight"};
	double v[D], h[D], out[D];
	uint32_t moe = 0;

	for (uint32_t i = 0; i < D; i++)
		v[i] = (double)tensor(&x->w, "token_embd.weight")[(size_t)token * D + i];
	for (uint32_t l = 0; l < x->info->n_model_layer; l++) {
		const float *scale = layer_tensor(&x->w, l, "ffn_norm.weight");

		norm(v, scale ? scale : layer_tensor(&x->w, l, "post_attention_norm.weight"), h);
		memset(out, 0, sizeof(out));
		add_dense(x, l, dense, 2 * F, h, out);
		add_dense(x, l, shared, F, h, out);
		if (moe < x->model->n_layer && x->info->model_layer[moe] == l) {
			add_experts(x, moe, l, at, force, h, ranked[moe], out);
			moe++;
		}
		for (uint32_t i = 0; i < D; i++)
			v[i] += out[i];
	}
	norm(v, tensor(&x->w, "output_norm.weight"), h);
	multiply(tensor(&x->w, "output.weight"), h, D, VOCAB, NULL, output);
}

/* --- the emulator with a rule that acts once --- */

static struct force forced; /* what the rule below does: rules have no user data */

static void force_decide(void *state, const double *arg, const struct gm_miss_row *row, uint8_t *action)
{
	(void)state, (void)arg;
	for (uint32_t i = 0; i < row->n_missed; i++)
		action[row->missed[i]] =
			row->token == forced.token && row->layer == forced.layer ? forced.action : GM_FETCH;
}

static const struct gm_miss_ops force_rule = {
	.info = {.name = "force", .help = "", .flags = GM_NEEDS_RANKING | GM_NEEDS_GATES | GM_DROPS},
	.decide = force_decide,
};

/* Everything is resident but the expert that is to be missed; see that nothing else has happened. */
static float *run_forced(struct gm_hook *hook, const int32_t *token)
{
	const struct gm_model *model = gm_hook_model(hook);
	uint32_t n_item = model->n_layer * model->n_expert, n_vocab = gm_hook_info(hook)->n_vocab;
	float *output = calloc((size_t)N * n_vocab, sizeof(float)), logprob[N];
	uint32_t *order = calloc(n_item, sizeof(*order)), n_order = 0;
	struct gm_error err = {0};
	struct gm_scratch *scratch = gm_scratch_new(model->n_expert, model->top_k, &err);
	struct gm_grid *grid = gm_grid_new(false, &err);
	struct gm_preloads *preloads = gm_preloads_new(&err);
	struct gm_driver *driver = gm_driver_new(hook, &err);
	const struct gm_settings *settings;
	struct gm_settings own;
	struct gm_account account;
	struct gm_plan plan;
	size_t n;

	assert_true(output && order && scratch && grid && preloads && driver);
	assert_ok(gm_grid_option(grid, GM_OPTION_HW, "instant", &err), &err);
	assert_ok(gm_grid_option(grid, GM_OPTION_CACHE, "100%", &err), &err);
	assert_ok(gm_grid_expand(grid, &settings, &n, &err), &err);
	own = *settings;
	own.miss.ops = &force_rule;
	assert_ok(gm_plan_make_live(&plan, &own, model, preloads, &err), &err);
	for (uint32_t i = 0; i < n_item; i++)
		if (i != forced.layer * model->n_expert + forced.expert)
			order[n_order++] = i;
	plan.config.preload = order;
	plan.config.n_preload = n_order;
	assert_ok(gm_account_init(&account, model->n_layer, 1, 0, NULL, 0, &err), &err);
	struct gm_follower *follower = gm_follower_new(&plan, &account, gm_driver_max_pass(driver), scratch, &err);
	assert_non_null(follower);
	struct gm_driver_setup setup = {
		.follower = &follower, .n_follower = 1, .substitutes = true, .drops = true, .override = forced.override};
	gm_driver_set(driver, &setup);
	assert_ok(gm_driver_begin_sequence(driver, "x", "", &err), &err);
	assert_ok(gm_driver_pass(driver, 0, token, N, logprob, &err), &err);
	for (uint32_t i = 0; i < N; i++)
		memcpy(output + (size_t)i * n_vocab, gm_hook_output(hook, i), n_vocab * sizeof(float));
	struct gm_tally sum = {0};
	for (uint32_t l = 0; l < model->n_layer; l++)
		gm_tally_add(&sum, &account.layer[l]);
	assert_int_equal(sum.count.substitutions, forced.action == GM_SUBSTITUTE);
	assert_int_equal(sum.count.drops, forced.action == GM_DROP);
	gm_follower_free(follower);
	gm_driver_free(driver);
	gm_account_free(&account);
	gm_plan_free(&plan);
	gm_preloads_free(preloads);
	gm_grid_free(grid);
	gm_scratch_free(scratch);
	free(order);
	return output;
}

/* Relative to the row's largest logit. */
static double difference(const float *got, const double *expected)
{
	double worst = 0, largest = 0;

	for (uint32_t i = 0; i < VOCAB; i++) {
		worst = fmax(worst, fabs((double)got[i] - expected[i]));
		largest = fmax(largest, fabs(expected[i]));
	}
	return worst / largest;
}

/* A token past the first ten, and an expert of it at rank r that no token before it asks of this layer. */
static bool find_first_use(const struct exact *x, uint16_t ranked[N][4][MAX_E], uint32_t r, struct force *force)
{
	for (force->token = 10; force->token < N; force->token++)
		for (force->layer = 0; force->layer < x->model->n_layer; force->layer++) {
			bool used = false;

			force->expert = ranked[force->token][force->layer][r];
			for (uint32_t t = 0; t < force->token; t++)
				for (uint32_t q = 0; q < x->model->top_k; q++)
					used |= ranked[t][force->layer][q] == force->expert;
			if (!used)
				return true;
		}
	return false;
}

static void check_force(const struct exact *x, struct gm_hook *hook, const int32_t *token, const float *baseline,
			uint16_t ranked[N][4][MAX_E], double *worst)
{
	static const struct {
		uint8_t action;
		struct gm_override override;
	} cases[] = {
		{GM_SUBSTITUTE, {GM_SUBSTITUTE_OWN, GM_DROP_RENORMALISE}},
		{GM_SUBSTITUTE, {GM_SUBSTITUTE_MISSED, GM_DROP_RENORMALISE}},
		{GM_DROP, {GM_SUBSTITUTE_OWN, GM_DROP_RENORMALISE}},
		{GM_DROP, {GM_SUBSTITUTE_OWN, GM_DROP_KEEP}},
	};
	uint16_t unused[4][MAX_E];
	double expected[VOCAB];

	for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
		forced.action = cases[c].action;
		forced.override = cases[c].override;
		forced.substitute = ranked[forced.token][forced.layer][x->model->top_k];
		float *output = run_forced(hook, token);
		const float *changed = output + (size_t)forced.token * VOCAB;

		for (uint32_t t = 0; t < N; t++)
			if (t != forced.token)
				assert_memory_equal(output + (size_t)t * VOCAB, baseline + (size_t)t * VOCAB,
						    VOCAB * sizeof(float));
		compute(x, forced.token, token[forced.token], &forced, unused, expected);
		*worst = fmax(*worst, difference(changed, expected));
		/* and the change is no rounding error */
		compute(x, forced.token, token[forced.token], NULL, unused, expected);
		assert_true(difference(changed, expected) > 1e-3);
		free(output);
	}
}

static void check_fixture(const char *name, double scale)
{
	struct exact x = {.scale = scale, .gpt_oss = strcmp(name, "gpt-oss") == 0};
	const char *path = support_path("silent.gguf");
	struct gm_hook_options options = support_options(64);
	struct gm_error err = {0};
	static uint16_t ranked[N][4][MAX_E];
	int32_t token[N];
	float *baseline = calloc((size_t)N * VOCAB, sizeof(float));
	double expected[VOCAB], worst = 0, worst_baseline = 0;
	unsigned n_forced = 0;

	assert_non_null(baseline);
	assert_ok(fixture_write(name, path, 1, NULL, &err), &err);
	silence_attention(path);
	struct gm_hook *hook = support_open(path, &options);
	x.model = gm_hook_model(hook);
	x.info = gm_hook_info(hook);
	open_weights(&x.w, path);
	support_tokens(token, N, 17);
	support_run(hook, token, N, baseline);
	for (uint32_t t = 0; t < N; t++) {
		compute(&x, t, token[t], NULL, ranked[t], expected);
		worst_baseline = fmax(worst_baseline, difference(baseline + (size_t)t * VOCAB, expected));
	}
	for (uint32_t r = 0; r < x.model->top_k; r++)
		if (find_first_use(&x, ranked, r, &forced)) {
			check_force(&x, hook, token, baseline, ranked, &worst);
			n_forced++;
		}
	print_message(
		"%s: %u places, 4 changes each: within %.1e of a double-precision computation (unchanged rows %.1e)\n",
		name, n_forced, worst, worst_baseline);
	assert_true(n_forced > 0);
	assert_true(worst_baseline < 1e-5 && worst < 1e-5);
	close_weights(&x.w);
	gm_hook_close(hook);
	free(baseline);
}

static void test_renormalised(void **state)
{
	(void)state;
	check_fixture("qwen3moe", 1);
}

static void test_not_renormalised(void **state)
{
	(void)state;
	check_fixture("olmoe", 1);
}

static void test_sigmoid_groups(void **state)
{
	(void)state;
	check_fixture("deepseek2-groups", 2.5);
}

static void test_softmax_after(void **state)
{
	(void)state;
	check_fixture("gpt-oss", 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_renormalised),
		cmocka_unit_test(test_not_renormalised),
		cmocka_unit_test(test_sigmoid_groups),
		cmocka_unit_test(test_softmax_after),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
