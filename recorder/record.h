/* Recording: texts through a model, the router's logits of every token and MoE layer into a trace. */
#ifndef GM_RECORDER_RECORD_H
#define GM_RECORDER_RECORD_H

#include "base/error.h"
#include "recorder/check.h"
#include "recorder/hook.h"
#include "recorder/record_device.h"
#include "recorder/texts.h"
#include "traces/writer.h"

#include <stdbool.h>
#include <stdint.h>

struct gm_record_options {
	const char *output;  /* "-": standard output */
	bool generate;       /* false: score the texts as they are */
	uint32_t n_generate; /* tokens after each prompt, fewer where the model ends its text */
	double temperature;  /* 0: greedy */
	uint64_t seed;
	bool special;    /* names of control tokens in the texts stand for these tokens */
	uint32_t n_head; /* 0: the writer's default */
	enum gm_tail tail;
	uint64_t max_tokens; /* 0: no limit */
	const char *layers;  /* "0,4..7": the MoE layers to record; NULL: all */
	bool verify;
	enum gm_device_capture device_capture;
	bool quiet;             /* no progress */
	const char *log_blocks; /* file for a line a block written (block_log.h), NULL: none */

	void (*note)(void *user, const char *text); /* what happened that one may want to know; may be NULL */
	bool (*stopped)(void *user); /* asked between passes: true ends the recording in order; may be NULL */
	void *user;
};

struct gm_record_result {
	uint64_t n_token, n_sequence, n_pass, bytes;
	uint64_t n_scored; /* tokens with a log-probability */
	double nll;        /* sum of their -ln p */
	double seconds;    /* of forward passes and waiting for the writer */
	uint64_t n_kept;   /* after a failure: tokens in output.part, 0: there is none */
	bool stopped;
	struct gm_check_result check; /* with verify */
};

/* One sequence a text, in order; a text longer than the context becomes several (when generating: GM_ERR_USAGE). Empty texts are
 * left out. A recording that fails, in a forward pass or in writing, leaves output.part with the passes before; one that was stopped
 * is a valid trace. *result tells what was recorded, also after a failure. */
int gm_record(struct gm_hook *hook, const struct gm_texts *texts, const struct gm_record_options *options,
	      struct gm_record_result *result, struct gm_error *err);

#endif
