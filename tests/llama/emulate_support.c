#include "tests/llama/emulate_support.h"

#include "tests/fixtures/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gm_texts support_texts(uint32_t n, uint32_t length, uint64_t seed)
{
	struct gm_texts texts = {.text = calloc(n, sizeof(struct gm_text)), .n = n, .max = n};
	struct fixture_random random;
	char id[32];

	assert_non_null(texts.text);
	fixture_random_begin(&random, seed, "texts");
	for (uint32_t i = 0; i < n; i++) {
		struct gm_text *text = &texts.text[i];

		snprintf(id, sizeof(id), "text-%u", i);
		text->text = calloc(length + 1, 1);
		assert_non_null(text->text);
		for (uint32_t j = 0; j < length; j++)
			text->text[j] = (char)('!' + fixture_next(&random) % 90);
		text->size = length;
		text->id = strdup(id);
		text->label = strdup(i % 2 ? "odd" : "even");
	}
	return texts;
}

struct gm_emulate_options emulate_options(enum gm_substitute_weight substitute, enum gm_drop_weight drop)
{
	static const enum gm_substitute_weight substitutes[] = {GM_SUBSTITUTE_OWN, GM_SUBSTITUTE_MISSED};
	static const enum gm_drop_weight drops[] = {GM_DROP_RENORMALISE, GM_DROP_KEEP};

	return (struct gm_emulate_options){
		.weights = {&substitutes[substitute == GM_SUBSTITUTE_MISSED], 1, &drops[drop == GM_DROP_KEEP], 1},
		.quiet = true,
	};
}

int policy_option_id(const char *name)
{
	for (int i = 0; gm_policy_options[i].name; i++)
		if (strcmp(gm_policy_options[i].name, name) == 0)
			return gm_policy_options[i].id;
	fail_msg("no option %s", name);
	return 0;
}

int emulated_try(struct emulated *run, struct gm_hook *hook, const struct gm_texts *texts,
		 const struct gm_emulate_options *options, const char *const *option, struct gm_error *err)
{
	const struct gm_corpus_options corpus = {.n_generate = options->n_generate};

	memset(run, 0, sizeof(*run));
	run->options = *options;
	run->grid = gm_grid_new(true, err);
	run->preloads = gm_preloads_new(err);
	assert_true(run->grid && run->preloads);
	GM_TRY(gm_grid_option(run->grid, GM_OPTION_HW, "instant", err));
	for (; *option; option += 2)
		GM_TRY(gm_grid_option(run->grid, policy_option_id(option[0]), option[1][0] ? option[1] : NULL, err));
	GM_TRY(gm_grid_expand(run->grid, &run->settings, &run->n_settings, err));
	GM_TRY(gm_corpus_make(&run->corpus, hook, texts, &corpus, err));
	return gm_emulation_run(&run->emulation, hook, &run->corpus, run->settings, run->n_settings, run->preloads,
				&run->options, err);
}

void emulated_run(struct emulated *run, struct gm_hook *hook, const struct gm_texts *texts,
		  const struct gm_emulate_options *options, const char *const *option)
{
	struct gm_error err = {0};

	assert_ok(emulated_try(run, hook, texts, options, option, &err), &err);
	for (size_t i = 0; i < run->emulation.n_point; i++)
		if (run->emulation.point[i].error.code)
			fail_msg("%s", run->emulation.point[i].error.text);
}

void emulated_free(struct emulated *run)
{
	gm_emulation_free(&run->emulation);
	gm_corpus_free(&run->corpus);
	gm_preloads_free(run->preloads);
	gm_grid_free(run->grid);
}

const struct gm_emulate_point *emulated_point(const struct emulated *run, size_t i)
{
	return gm_emulation_point(&run->emulation, run->emulation.n_baseline + i);
}

struct gm_tally emulated_total(const struct emulated *run, size_t i)
{
	struct gm_tally total;
	struct gm_score score;

	gm_account_total(&emulated_point(run, i)->account, &total, &score);
	return total;
}

double emulated_nll(const struct emulated *run, size_t i)
{
	struct gm_tally total;
	struct gm_score score;

	gm_account_total(&emulated_point(run, i)->account, &total, &score);
	return score.nll / (double)score.n;
}

struct gm_tally replayed(const char *path, const struct gm_settings *settings, struct gm_preloads *preloads,
			 const struct gm_landings *landings, struct gm_tally *layer, uint32_t n_layer)
{
	const struct gm_sweep_options options = {
		.memory_bytes = 1 << 28, .per_layer = true, .landings = landings, .quiet = true};
	struct gm_error err = {0};
	struct gm_trace *trace = gm_trace_open(path, &err);
	struct gm_sweep sweep = {0};
	struct gm_tally total;

	if (!trace)
		fail_msg("%s", err.text);
	assert_int_equal(gm_trace_tail(trace), GM_TAIL_F32);
	assert_ok(gm_sweep_run(&sweep, trace, settings, 1, preloads, &options, &err), &err);
	if (sweep.n_failed)
		fail_msg("%s", sweep.point[0].error.text);
	total = sweep.point[0].total;
	memcpy(layer, sweep.point[0].layer, n_layer * sizeof(*layer));
	gm_sweep_free(&sweep);
	gm_trace_close(trace);
	return total;
}

#define SAME(field)                                                                                       \
	do {                                                                                              \
		if (a->field != b->field)                                                                 \
			fail_msg("%s: " #field ": %llu against %llu", what, (unsigned long long)a->field, \
				 (unsigned long long)b->field);                                           \
	} while (0)

void assert_equal_counters(const struct gm_counters *a, const struct gm_counters *b, const char *what)
{
	SAME(rows);
	SAME(accesses);
	SAME(hits);
	SAME(late_hits);
	SAME(fetches);
	SAME(substitutions);
	SAME(drops);
	SAME(cpu_picks);
	SAME(substitute_fallbacks);
	SAME(head_exhausted);
	SAME(bypasses);
	SAME(background_copies);
	SAME(evictions);
	SAME(link_bytes);
	if (fabs(a->substituted_mass - b->substituted_mass) > 1e-12 * b->substituted_mass ||
	    fabs(a->dropped_mass - b->dropped_mass) > 1e-12 * b->dropped_mass)
		fail_msg("%s: masses %.17g, %.17g against %.17g, %.17g", what, a->substituted_mass, a->dropped_mass,
			 b->substituted_mass, b->dropped_mass);
}
