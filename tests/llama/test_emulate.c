/* The emulator on small models: what must not change, what may not be asked, and what it writes. */
#include "tests/llama/emulate_support.h"

#include "base/csv.h"
#include "emulate/driver.h"
#include "emulate/output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gm_emulate_options default_options(void)
{
	return emulate_options(GM_SUBSTITUTE_OWN, GM_DROP_RENORMALISE);
}

/* --- the size of a pass --- */

static void test_ubatch(void **state)
{
	static const uint32_t ubatches[] = {7, 64, 512};
	static const char *const option[] = {
		"cache", "25%,50%", "policy", "quality-first,speed-first", "miss", "threshold:0.15,first-choice,drop:0.15",
		"evict", "lfu,lru", NULL};
	static const char *const models[] = {TINYMOE, "deepseek2-groups", "qwen3moe", "gpt-oss"};
	/* 148, 149, 150: with passes of 7 or 64 one token would stand alone at the end of some */
	struct gm_texts texts = support_texts(3, 148, 11), more = support_texts(2, 149, 12);

	(void)state;
	for (size_t m = 0; m < sizeof(models) / sizeof(*models); m++) {
		struct emulated run[3];
		size_t n_point = 0;

		for (size_t u = 0; u < 3; u++) {
			struct gm_hook_options hook_options = support_options(ubatches[u]);
			struct gm_hook *hook = support_open(m ? support_fixture(models[m]) : models[m], &hook_options);
			struct gm_emulate_options options = default_options();

			emulated_run(&run[u], hook, m % 2 ? &texts : &more, &options, option);
			n_point = run[u].emulation.n_point - run[u].emulation.n_baseline;
			for (size_t i = 0; u > 0 && i < n_point; i++) {
				struct gm_tally a = emulated_total(&run[u], i), b = emulated_total(&run[0], i);

				assert_equal_counters(&a.count, &b.count, models[m]);
				if (emulated_nll(&run[u], i) != emulated_nll(&run[0], i))
					fail_msg("%s, ubatch %u: NLL %.17g against %.17g", models[m], ubatches[u],
						 emulated_nll(&run[u], i), emulated_nll(&run[0], i));
			}
			gm_hook_close(hook);
		}
		print_message("%s: %zu policies, ubatch 7, 64 and 512 equal\n", models[m], n_point);
		for (size_t u = 0; u < 3; u++)
			emulated_free(&run[u]);
	}
	gm_texts_free(&texts);
	gm_texts_free(&more);
}

/* --- policies that substitute nothing --- */

/* Output logits of a text under a lead that may change them, or none. */
static float *outputs(struct gm_hook *hook, struct gm_follower *follower, const int32_t *token, uint32_t n)
{
	uint32_t n_vocab = gm_hook_info(hook)->n_vocab;
	float *output = calloc((size_t)n * n_vocab, sizeof(float)), logprob[64];
	struct gm_error err = {0};
	struct gm_driver *driver = gm_driver_new(hook, &err);
	struct gm_driver_setup setup = {.follower = &follower,
					.n_follower = follower ? 1 : 0,
					.substitutes = true,
					.drops = true,
					.override = {GM_SUBSTITUTE_MISSED, GM_DROP_KEEP}};

	assert_true(output && driver);
	gm_driver_set(driver, &setup);
	assert_ok(gm_driver_begin_sequence(driver, "x", "", &err), &err);
	for (uint32_t i = 0; i < n; i += 50) {
		uint32_t pass = n - i < 50 ? n - i : 50;

		assert_ok(gm_driver_pass(driver, i, token + i, pass, logprob, &err), &err);
		for (uint32_t j = 0; j < pass; j++)
			memcpy(output + (size_t)(i + j) * n_vocab, gm_hook_output(hook, j), n_vocab * sizeof(float));
	}
	gm_driver_free(driver);
	return output;
}

/* As if it might change the model's outputs, every row looked at: bit-equal nevertheless. */
static void test_fetch_only(void **state)
{
	const struct fixture_info *info;
	int32_t token[120];

	(void)state;
	support_tokens(token, 120, 4);
	for (unsigned f = 0; f < GM_FIXTURE_N_RECORDABLE; f++) {
		info = fixture_info(f);
		struct gm_hook_options options = support_options(64), bare_options = options;
		struct gm_hook *hook = support_open(support_fixture(info->name), &options), *bare;
		const struct gm_model *model = gm_hook_model(hook);
		size_t size = 120 * gm_hook_info(hook)->n_vocab * sizeof(float);
		struct gm_error err = {0};
		struct gm_scratch *scratch = gm_scratch_new(model->n_expert, model->top_k, &err);
		struct gm_grid *grid = gm_grid_new(false, &err);
		struct gm_preloads *preloads = gm_preloads_new(&err);
		const struct gm_settings *settings;
		struct gm_account account;
		struct gm_plan plan;
		size_t n;

		assert_true(scratch && grid && preloads);
		assert_ok(gm_grid_option(grid, GM_OPTION_HW, "instant", &err), &err);
		assert_ok(gm_grid_option(grid, GM_OPTION_CACHE, "50%", &err), &err);
		assert_ok(gm_grid_expand(grid, &settings, &n, &err), &err);
		assert_ok(gm_plan_make_live(&plan, settings, model, preloads, &err), &err);
		assert_ok(gm_account_init(&account, model->n_layer, 1, 0, NULL, 0, &err), &err);
		struct gm_follower *follower = gm_follower_new(&plan, &account, 64, scratch, &err);
		assert_non_null(follower);
		float *under_policy = outputs(hook, follower, token, 120);
		float *watched = outputs(hook, NULL, token, 120);
		gm_follower_free(follower);
		gm_plan_free(&plan);
		gm_hook_close(hook);

		bare_options.bare = true;
		bare = support_open(support_fixture(info->name), &bare_options);
		float *untouched = outputs(bare, NULL, token, 120);
		assert_memory_equal(under_policy, untouched, size);
		assert_memory_equal(watched, untouched, size);
		gm_hook_close(bare);
		free(under_policy);
		free(watched);
		free(untouched);
		gm_account_free(&account);
		gm_scratch_free(scratch);
		gm_preloads_free(preloads);
		gm_grid_free(grid);
	}
}

/* All experts resident, by preload or by "nop": substituting everything is the baseline, to the bit. */
static void test_all_resident(void **state)
{
	struct gm_hook_options hook_options = support_options(64);
	struct gm_hook *hook = support_open(support_fixture("deepseek2-groups"), &hook_options);
	struct gm_texts texts = support_texts(2, 90, 8);
	struct gm_emulate_options options = default_options();
	const char *trace = support_path("all.gmt");
	const char *const none[] = {"miss", "fetch", NULL};
	const char *const all[] = {"cache", "100%,32", "miss", "substitute,first-choice", "preload", trace, NULL};
	const char *const nop[] = {"evict", "nop", "miss", "substitute,drop:1", NULL};
	struct emulated run;

	(void)state;
	options.record = trace;
	emulated_run(&run, hook, &texts, &options, none);
	emulated_free(&run);
	options.record = NULL;
	for (int k = 0; k < 2; k++) {
		emulated_run(&run, hook, &texts, &options, k ? nop : all);
		for (size_t i = 0; i < run.emulation.n_point - run.emulation.n_baseline; i++) {
			const struct gm_account *account = &emulated_point(&run, i)->account;
			struct gm_tally total = emulated_total(&run, i);

			assert_int_equal(total.count.substitutions + total.count.drops, 0);
			assert_int_equal(total.count.hits, total.count.accesses);
			for (uint32_t s = 0; s < 2; s++)
				assert_true(account->score[s].nll == account->score[s].baseline_nll);
		}
		emulated_free(&run);
	}
	gm_texts_free(&texts);
	gm_hook_close(hook);
}

/* Policies that substitute nothing share one run of the texts; equal points are run once. */
static void test_sharing(void **state)
{
	static const char *const option[] = {"cache", "25%,50%,4", "miss", "fetch,cpu,substitute",
					     "evict", "lru,lfu",   NULL};
	struct gm_hook_options hook_options = support_options(64);
	struct gm_hook *hook = support_open(support_fixture("qwen3moe"), &hook_options); /* 16 experts: 25% is 4 */
	struct gm_texts texts = support_texts(1, 70, 9);
	struct gm_emulate_options options = default_options();
	struct emulated run;

	(void)state;
	emulated_run(&run, hook, &texts, &options, option);
	assert_int_equal(run.emulation.n_point, 1 + 18);
	assert_int_equal(run.emulation.n_run, 1 + 4);
	assert_int_equal(run.emulation.n_pass, 5 * 2);
	assert_int_equal(run.emulation.n_token, 5 * 70);
	emulated_free(&run);
	gm_texts_free(&texts);
	gm_hook_close(hook);
}

/* --- refusals --- */

static void assert_refused(struct gm_hook *hook, const struct gm_texts *texts, const struct gm_emulate_options *options,
			   const char *const *option, const char *message)
{
	struct gm_error err = {0};
	struct emulated run;

	assert_int_equal(emulated_try(&run, hook, texts, options, option, &err), GM_ERR_USAGE);
	if (!strstr(err.text, message))
		fail_msg("\"%s\": must tell \"%s\"", err.text, message);
	emulated_free(&run);
}

static void test_refusals(void **state)
{
	static const char *const hw[] = {"hw", "rtx3090-pcie4", NULL}, *const belady[] = {"evict", "belady", NULL},
				 *const global[] = {"cache-scope", "global", NULL}, *const head[] = {"head-only", "", NULL},
				 *const two[] = {"cache", "25%,50%", NULL}, *const big[] = {"cache", "1kB", NULL};
	struct gm_hook_options hook_options = support_options(64);
	struct gm_hook *hook = support_open(support_fixture("mixtral"), &hook_options);
	struct gm_texts texts = support_texts(1, 10, 1), none = {0};
	struct gm_emulate_options options = default_options();
	struct gm_error err = {0};
	struct emulated run;

	(void)state;
	assert_refused(hook, &texts, &options, hw, "--hw instant");
	assert_refused(hook, &texts, &options, belady, "a bound needs the future");
	assert_refused(hook, &texts, &options, global, "--ubatch 1");
	assert_refused(hook, &texts, &options, head, "--head-only");
	assert_refused(hook, &texts, &options, big, "less than a slot");
	assert_refused(hook, &none, &options, head, "nothing to run");
	options.record = support_path("two.gmt");
	assert_refused(hook, &texts, &options, two, "give one policy");
	options = default_options();
	options.n_generate = 600;
	assert_refused(hook, &texts, &options, head, "the context holds 512");

	/* one impossible point leaves the others alone */
	const char *const some[] = {"evict", "belady,lru", NULL};
	options.n_generate = 0;
	assert_ok(emulated_try(&run, hook, &texts, &options, some, &err), &err);
	assert_int_equal(run.emulation.n_failed, 1);
	assert_int_equal(emulated_total(&run, 1).tokens, 10);
	emulated_free(&run);
	gm_texts_free(&texts);
	gm_hook_close(hook);
}

/* --- results --- */

struct csv {
	struct gm_csv_reader reader;
	FILE *file;
	char **name;
	size_t n;
};

static const char *column(const struct csv *csv, const char *name)
{
	for (size_t i = 0; i < csv->n; i++)
		if (strcmp(csv->name[i], name) == 0)
			return csv->reader.field[i];
	fail_msg("no column %s", name);
	return NULL;
}

static void open_csv(struct csv *csv, const char *path)
{
	struct gm_error err = {0};

	csv->file = fopen(path, "r");
	assert_non_null(csv->file);
	gm_csv_open(&csv->reader, csv->file, path);
	assert_int_equal(gm_csv_next(&csv->reader, &err), 1);
	csv->n = csv->reader.n_field;
	csv->name = calloc(csv->n, sizeof(char *));
	assert_non_null(csv->name);
	for (size_t i = 0; i < csv->n; i++)
		csv->name[i] = strdup(csv->reader.field[i]);
}

static bool next_row(struct csv *csv)
{
	struct gm_error err = {0};
	int got = gm_csv_next(&csv->reader, &err);

	assert_ok(got, &err);
	if (got)
		assert_int_equal(csv->reader.n_field, csv->n);
	return got;
}

static void close_csv(struct csv *csv)
{
	for (size_t i = 0; i < csv->n; i++)
		free(csv->name[i]);
	free(csv->name);
	gm_csv_close(&csv->reader);
	fclose(csv->file);
}

static void test_csv(void **state)
{
	static const char *const option[] = {"cache", "25%", "policy", "rule-0.15,fetch-all", "warmup", "0,30", NULL};
	char paths[GM_N_EMULATE_FILE][192];
	const char *path[GM_N_EMULATE_FILE];
	struct gm_hook_options hook_options = support_options(64);
	struct gm_hook *hook = support_open(support_fixture("qwen3moe"), &hook_options);
	struct gm_texts texts = support_texts(3, 40, 2);
	struct gm_emulate_options options = default_options();
	struct gm_emulate_output output = {.source = "texts"};
	struct gm_error err = {0};
	struct emulated run;
	struct csv csv;
	double sum = 0, mass = 0;
	uint64_t n = 0, n_rows = 0;

	(void)state;
	for (int i = 0; i < GM_N_EMULATE_FILE; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s%d", support_path("out.csv"), i);
		path[i] = paths[i];
	}
	texts.text[0].answer = strdup("x");
	options.per_token = true;
	options.n_generate = 5;
	emulated_run(&run, hook, &texts, &options, option);
	assert_ok(gm_emulate_output_open(&output, path, &err), &err);
	assert_ok(gm_emulate_output_write(&output, &run.emulation, &err), &err);
	assert_ok(gm_emulate_output_commit(&output, &err), &err);

	/* baselines of both warm-ups, then the policies; fetch-all is the baseline's perplexity */
	open_csv(&csv, path[GM_EMULATE_POINTS]);
	for (int i = 0; i < 6; i++) {
		assert_true(next_row(&csv));
		assert_string_equal(column(&csv, "miss"), i < 2 ? "none" : i < 4 ? "threshold:0.15" : "fetch");
		assert_string_equal(column(&csv, "warmup"), i % 2 ? "30" : "0");
		assert_string_equal(column(&csv, "n_scored"), i % 2 ? "88" : "117");
		assert_string_equal(column(&csv, "substitute_weight"), i == 2 || i == 3 ? "own" : "");
		if (i < 2 || i > 3) {
			assert_string_equal(column(&csv, "perplexity_change_pct"), "0");
			assert_string_equal(column(&csv, "agreement"), "1");
		}
		if (i >= 2)
			assert_string_equal(column(&csv, "tokens"), i % 2 ? "105" : "135"); /* 3 * (40 + 5) */
		assert_string_equal(column(&csv, "n_answer"), "1");
	}
	assert_false(next_row(&csv));
	close_csv(&csv);

	open_csv(&csv, path[GM_EMULATE_TOKENS]);
	while (next_row(&csv)) {
		if (strcmp(column(&csv, "settings_hash"), emulated_point(&run, 0)->hash) != 0)
			continue;
		n_rows++;
		if (*column(&csv, "nll")) {
			sum += atof(column(&csv, "nll"));
			n++;
		}
		mass += atof(column(&csv, "substituted_mass"));
		assert_true(fabs(atof(column(&csv, "mass_0")) + atof(column(&csv, "mass_1")) +
				 atof(column(&csv, "mass_2")) + atof(column(&csv, "mass_3")) -
				 4 * atof(column(&csv, "substituted_mass"))) < 1e-12);
	}
	close_csv(&csv);
	assert_int_equal(n_rows, 135);
	assert_int_equal(n, 117);
	assert_true(fabs(sum / (double)n - emulated_nll(&run, 0)) < 1e-9);
	assert_true(fabs(4 * mass - emulated_total(&run, 0).count.substituted_mass) < 1e-9);

	open_csv(&csv, path[GM_EMULATE_LABELS]);
	assert_true(next_row(&csv));
	assert_string_equal(column(&csv, "label"), "even");
	assert_string_equal(column(&csv, "n_scored"), "78");
	assert_true(next_row(&csv));
	assert_string_equal(column(&csv, "label"), "odd");
	close_csv(&csv);

	open_csv(&csv, path[GM_EMULATE_SEQUENCES]);
	assert_true(next_row(&csv));
	assert_string_equal(column(&csv, "id"), "text-0");
	close_csv(&csv);
	open_csv(&csv, path[GM_EMULATE_LAYERS]);
	assert_true(next_row(&csv));
	assert_string_equal(column(&csv, "rows"), "135");
	close_csv(&csv);

	open_csv(&csv, path[GM_EMULATE_CONTINUATIONS]);
	for (int i = 0; i < 6 * 3; i++) {
		assert_true(next_row(&csv));
		assert_string_equal(column(&csv, "n_generated"), "5");
		if (i < 6)
			assert_string_equal(column(&csv, "first_difference"), "");
	}
	assert_false(next_row(&csv));
	close_csv(&csv);
	emulated_free(&run);
	gm_texts_free(&texts);
	gm_hook_close(hook);
}

/* Generation under a policy that changes nothing is the baseline's; under one that substitutes everything it differs, and what was
 * fed is what a recording holds. */
static void test_generate(void **state)
{
	static const char *const option[] = {"cache", "16", "evict", "lfu", "miss", "fetch,substitute", NULL};
	struct gm_hook_options hook_options = support_options(64);
	struct gm_hook *hook = support_open(TINYMOE, &hook_options);
	struct gm_texts texts = support_texts(2, 60, 21);
	struct gm_emulate_options options = default_options();
	struct emulated run;

	(void)state;
	options.n_generate = 20;
	emulated_run(&run, hook, &texts, &options, option);
	for (uint32_t s = 0; s < 2; s++) {
		const struct gm_continuation *base = &run.emulation.point[0].continuation[s];
		const struct gm_continuation *fetch = &emulated_point(&run, 0)->continuation[s];
		const struct gm_continuation *other = &emulated_point(&run, 1)->continuation[s];

		assert_int_equal(fetch->n, base->n);
		assert_int_equal(fetch->n_agree, base->n);
		assert_true(other->first_difference < 20 && other->n_agree < other->n_compared);
	}
	emulated_free(&run);
	gm_texts_free(&texts);
	gm_hook_close(hook);
}

/* The same mean mass in three compositions; where few experts are missing it cannot be reached, and falls short. */
static void test_compose(void **state)
{
	static const char *const option[] = {
		"cache", "25%",  "evict",
		"lfu",   "miss", "compose:heavy:0.1,compose:light:0.1,compose:random:0.1,compose:light:1",
		NULL};
	struct gm_hook_options hook_options = support_options(256);
	struct gm_hook *hook = support_open(TINYMOE, &hook_options);
	struct gm_texts texts = {0};
	struct gm_emulate_options options = default_options();
	struct gm_error err = {0};
	struct emulated run;
	uint64_t n_substituted[4];

	(void)state;
	assert_ok(gm_texts_add_prompts(&texts, "tests/tinymoe/prompts.jsonl", &err), &err);
	for (size_t i = 16; i < texts.n; i++) {
		free(texts.text[i].text);
		free(texts.text[i].id);
		free(texts.text[i].label);
	}
	texts.n = 16;
	emulated_run(&run, hook, &texts, &options, option);
	for (size_t i = 0; i < 4; i++) {
		struct gm_counters count = emulated_total(&run, i).count;
		double mass = count.substituted_mass / (double)count.rows;

		n_substituted[i] = count.substitutions;
		print_message("compose %zu: mass %.5f by %llu substitutions, perplexity %.4f\n", i, mass,
			      (unsigned long long)count.substitutions, exp(emulated_nll(&run, i)));
		if (i < 3)
			assert_true(fabs(mass - 0.1) < 0.0025);
		else
			assert_true(mass < 0.95);
	}
	assert_true(n_substituted[0] < n_substituted[2] && n_substituted[2] < n_substituted[1]);
	emulated_free(&run);
	gm_texts_free(&texts);
	gm_hook_close(hook);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ubatch),   cmocka_unit_test(test_fetch_only), cmocka_unit_test(test_all_resident),
		cmocka_unit_test(test_sharing),  cmocka_unit_test(test_refusals),   cmocka_unit_test(test_csv),
		cmocka_unit_test(test_generate), cmocka_unit_test(test_compose),
	};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
