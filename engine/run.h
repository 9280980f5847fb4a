/* `engine run`: a text, and how the model goes on after it, with a real expert cache. */
#ifndef GM_ENGINE_RUN_H
#define GM_ENGINE_RUN_H

#include "engine/cache.h"

#include <stdio.h>

struct gm_run_options {
	const char *model; /* path of a GGUF */
	const char *prompt;
	size_t prompt_size;
	bool special;        /* names of control tokens in the prompt stand for these tokens */
	uint32_t n_generate; /* tokens after it */
	double temperature;  /* 0: greedy */
	uint64_t seed;
	struct gm_plugin_options plugin; /* device, and where experts stay; the model and `gpu` are filled in */
	const char *record;              /* trace of the router's logits; NULL: none */
	const char *arrivals;            /* with record, which is a file: what landed when (sim/landings.h); NULL: not */
	struct gm_hook_options hook;
	const char *trace_events;         /* timeline of the passes whose first token is in here; NULL: none */
	uint64_t events_from, events_end; /* tokens of the run, the end excluded */
	const struct gm_settings *settings;
	struct gm_cache_options cache;
	FILE *text; /* takes what is generated, as it comes */
};

/* What a part of the run took. */
struct gm_run_part {
	uint64_t tokens;
	double seconds;
	struct gm_engine_stats stats;
};

struct gm_run_result {
	struct gm_run_part prompt, generated;
	char device[64];  /* that computed the experts */
	char policy[256]; /* as it came to be */
	bool ended;       /* by the model, not by n_generate */
};

int gm_run(const struct gm_run_options *options, struct gm_run_result *result, struct gm_error *err);

/* A table for people. */
void gm_run_print(FILE *out, const struct gm_run_result *result);

#endif
