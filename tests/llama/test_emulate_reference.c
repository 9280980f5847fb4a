/* The emulator against an independent one in PyTorch (tests/tinymoe/emulated.txt): F16 weights, all 72 texts, 32 of 128 experts
 * resident. In a forward pass the first near-tie that falls otherwise sends both ways apart, so shares and perplexities are compared
 * with a tolerance, not counters. GM_SOAK=1 compares all rows, else three of them.
 */
#include "tests/llama/emulate_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFERENCE "tests/tinymoe/emulated.txt"

/* A line: rule-0.15 ppl 12.9365 +10.26 % hits 0.4386 subs 0.4784 fetched 0.0830 mass 0.3923 bg 0 */
struct row {
	char name[32];
	double perplexity, change, hits, substituted, fetched, mass;
	unsigned long long background;
};

static size_t read_rows(struct row *row, size_t max, double *baseline)
{
	FILE *file = fopen(REFERENCE, "r");
	char line[256];
	size_t n = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		struct row *r = &row[n];

		if (sscanf(line, "baseline ppl %lf tokens 18312", baseline) == 1)
			continue;
		assert_true(n < max);
		assert_int_equal(sscanf(line, "%31s ppl %lf %lf %% hits %lf subs %lf fetched %lf mass %lf bg %llu", r->name,
					&r->perplexity, &r->change, &r->hits, &r->substituted, &r->fetched, &r->mass,
					&r->background),
				 8);
		n++;
	}
	fclose(file);
	return n;
}

static void compare(const struct row *row, const struct emulated *run, size_t point)
{
	struct gm_tally total = emulated_total(run, point);
	const struct gm_counters *c = &total.count;
	double picks = (double)c->rows * 8, perplexity = exp(emulated_nll(run, point));
	double off = perplexity / row->perplexity - 1, bound = row->change < 50 ? 0.01 : 0.05;
	double hits = (double)c->hits / (double)c->accesses, substituted = (double)c->substitutions / picks,
	       fetched = (double)c->fetches / picks, mass = c->substituted_mass / (double)c->rows;

	print_message("%-21s perplexity %9.4f, reference %9.4f (%+.2f %%); off by: hits %+.4f, substituted %+.4f, fetched "
		      "%+.4f, mass %+.4f, background copies %+.2f %%\n",
		      row->name, perplexity, row->perplexity, 100 * off, hits - row->hits, substituted - row->substituted,
		      fetched - row->fetched, mass - row->mass,
		      row->background ? 100 * ((double)c->background_copies / (double)row->background - 1) : 0.0);
	assert_true(fabs(off) < bound);
	assert_true(fabs(hits - row->hits) < 0.01 && fabs(substituted - row->substituted) < 0.01 &&
		    fabs(fetched - row->fetched) < 0.01 && fabs(mass - row->mass) < 0.01);
}

/* The policies of one grid, each with both weights where it substitutes, against the rows NAME and NAME/missed. Returns how many. */
static unsigned compare_grid(struct gm_hook *hook, const struct gm_texts *texts, const struct row *row, size_t n_row,
			     const char *const *name, const char *const *option, double baseline)
{
	static const enum gm_substitute_weight both[] = {GM_SUBSTITUTE_OWN, GM_SUBSTITUTE_MISSED};
	struct gm_emulate_options options = emulate_options(GM_SUBSTITUTE_OWN, GM_DROP_RENORMALISE);
	struct emulated run;
	unsigned n = 0;
	char full[64];

	options.weights.substitute = both;
	options.weights.n_substitute = 2;
	emulated_run(&run, hook, texts, &options, option);
	if (strcmp(*name, "fetch-all") == 0) /* bit-equal to no policy at all */
		assert_true(fabs(exp(emulated_nll(&run, 0)) / baseline - 1) < 0.001);
	for (size_t i = 0; i < run.emulation.n_point - run.emulation.n_baseline; i++) {
		const struct gm_emulate_point *point = emulated_point(&run, i);
		bool missed = point->override.substitute == GM_SUBSTITUTE_MISSED;

		snprintf(full, sizeof(full), "%s%s", *name, missed ? "/missed" : "");
		for (size_t r = 0; r < n_row; r++)
			if (strcmp(row[r].name, full) == 0) {
				compare(&row[r], &run, i);
				n++;
			}
		name += missed || !point->substitutes;
	}
	emulated_free(&run);
	return n;
}

static void test_reference(void **state)
{
	static const char *const all[] = {"fetch-all", "rule-0.15", "quality-first", "first-choice", "speed-first"};
	static const char *const all_options[] = {"policy", "fetch-all,rule-0.15,quality-first,first-choice,speed-first",
						  "cache", "32", NULL};
	static const char *const last[] = {"substitute+bg"};
	static const char *const last_options[] = {"policy", "substitute-all", "admit", "background:0.5", "cache", "32",
						   NULL};
	static const char *const some[] = {"fetch-all", "quality-first"};
	static const char *const some_options[] = {"policy", "fetch-all,quality-first", "cache", "32", NULL};
	bool soak = getenv("GM_SOAK") && *getenv("GM_SOAK");
	struct gm_hook_options hook_options = support_options(256);
	struct gm_hook *hook = support_open(TINYMOE, &hook_options);
	struct gm_texts texts = {0};
	struct gm_error err = {0};
	struct row row[16];
	double baseline = 0;
	size_t n = read_rows(row, 16, &baseline);

	(void)state;
	assert_int_equal(n, 11);
	assert_ok(gm_texts_add_prompts(&texts, "tests/tinymoe/prompts.jsonl", &err), &err);
	if (soak) {
		assert_int_equal(compare_grid(hook, &texts, row, n, all, all_options, baseline), 9);
		assert_int_equal(compare_grid(hook, &texts, row, n, last, last_options, baseline), 2);
	} else {
		assert_int_equal(compare_grid(hook, &texts, row, n, some, some_options, baseline), 3);
	}
	gm_texts_free(&texts);
	gm_hook_close(hook);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
