/* Measured arrivals: which copies in the background had landed by which event of a run (R6). The engine writes them beside a trace, and a
 * replay of that trace with them decides what the engine decided. The file: docs/engine.md, "Arrivals".
 */
#ifndef GM_SIM_LANDINGS_H
#define GM_SIM_LANDINGS_H

#include "base/csv.h"
#include "base/file.h"
#include "base/hash.h"

/* Before the event of a token's row in a layer, the copy of an expert of expert_layer has landed. In scope layer both layers are one. */
struct gm_landing {
	uint64_t token;
	uint32_t layer, expert_layer, expert;
};

/* In the order of the events. */
struct gm_landings {
	struct gm_landing *landing; /* [n] */
	size_t n;
	char trace_hash[GM_HASH_TEXT];
	char policy_hash[GM_HASH_TEXT]; /* of gm_plan_policy_hash */
	char *policy;                   /* the run's settings, for messages */
	char *path;
};

/* Reads a whole file ("-": standard input). GM_ERR_FORMAT: not such a file, of another version, cut off, out of order; names file and line.
 * Release with gm_landings_free, also after a failure. */
int gm_landings_read(struct gm_landings *landings, const char *path, struct gm_error *err);
void gm_landings_free(struct gm_landings *landings);

/* --- writing --- */

struct gm_landings_writer {
	struct gm_output output;
	struct gm_csv_writer csv;
	struct gm_landing *waiting; /* [n_waiting] of events that are still to come, as they were put */
	size_t n_waiting, max_waiting;
	uint64_t n_written;
};

/* Begins PATH.part. policy_hash, policy: as in struct gm_landings. Release with gm_landings_discard, after gm_landings_commit too. */
int gm_landings_open(struct gm_landings_writer *writer, const char *path, const char *policy_hash, const char *policy,
		     struct gm_error *err);

/* A landing, in the order in which they happened; its event may be later than that of the next one put. */
int gm_landings_put(struct gm_landings_writer *writer, const struct gm_landing *landing, struct gm_error *err);

/* All events of tokens before `token` are over: writes what landed by them. */
void gm_landings_pass(struct gm_landings_writer *writer, uint64_t token);

/* The cache starts anew (R5): what landed by no event so far never will. */
void gm_landings_forget(struct gm_landings_writer *writer);

/* The trace is whole: writes the last line, and renames. What landed by no event of the trace is left out. */
int gm_landings_commit(struct gm_landings_writer *writer, const char *trace_hash, struct gm_error *err);
void gm_landings_discard(struct gm_landings_writer *writer);

#endif
