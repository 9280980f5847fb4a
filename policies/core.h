/* The core: residency, room, pins, decisions and counters of one event (docs/semantics.md, R4-R13).
 *
 * A caller brings events in any order that its policies allow: token by token (the simulator), layer by layer (an emulator inside a
 * forward pass), or as a real engine runs. There is no hidden current token; in scope layer all clocks are a layer's own.
 * When copies arrive is not the core's business: see struct gm_arrivals.
 *
 * The whole state is one flat block: two cores of equal configuration can be copied onto each other with memcpy
 * (gm_core_bytes). It points only to its configuration, its arrivals and its scratch, which the caller keeps alive.
 */
#ifndef GM_POLICIES_CORE_H
#define GM_POLICIES_CORE_H

#include "base/error.h"
#include "policies/policy.h"

enum gm_scope { GM_SCOPE_LAYER, GM_SCOPE_GLOBAL };

struct gm_core;
struct gm_scratch;

/* A policy with its arguments. */
struct gm_evict {
	const struct gm_evict_ops *ops;
	double arg[GM_MAX_ARG];
};
struct gm_miss {
	const struct gm_miss_ops *ops;
	double arg[GM_MAX_ARG];
};
struct gm_admit {
	const struct gm_admit_ops *ops;
	double arg[GM_MAX_ARG];
};
struct gm_reroute {
	const struct gm_reroute_ops *ops; /* NULL: rows are taken as they are */
	double arg[GM_MAX_ARG];
};

struct gm_core_config {
	uint32_t n_layer, n_expert, top_k;
	enum gm_scope scope;
	const uint32_t *n_slot;       /* [n_layer] scope layer: slots, 0 ... n_expert */
	uint64_t pool_bytes;          /* scope global */
	const uint64_t *expert_bytes; /* [n_layer]; NULL: not known (scope layer only; link_bytes stays 0) */
	struct gm_evict evict;
	struct gm_miss miss;
	struct gm_admit admit;
	struct gm_reroute reroute;
	/* [n_layer][n_expert] event numbers (see struct gm_requests); for GM_NEEDS_NEXT_USE, else NULL */
	const uint64_t *first_use;
	uint64_t seed;
};

/* Exact counters of docs/semantics.md; picks = rows * top_k and misses = accesses - hits - late_hits are left to the reader. */
struct gm_counters {
	uint64_t rows, accesses, hits, late_hits, fetches, substitutions, drops, cpu_picks, substitute_fallbacks,
		head_exhausted, bypasses, background_copies, evictions, link_bytes;
	double substituted_mass, dropped_mass; /* sums over rows */
};
void gm_counters_add(struct gm_counters *to, const struct gm_counters *from);

/* --- one event's rows --- */

struct gm_rows {
	uint32_t n;               /* rows that are there; >= 1 */
	const uint32_t *token;    /* [n] offset of each row's token from first_token; NULL: 0, 1, ... */
	const uint16_t *ranked;   /* [n][n_ranked] experts: S in rank order, then the others by selection score */
	uint32_t n_ranked;        /* top_k ... n_expert */
	const double *gate;       /* [n][top_k]; may be NULL unless the miss rule needs gates */
	const float *logit;       /* [n][n_ranked]; needed by rerouting only, else NULL */
	const uint32_t *next_use; /* [n][top_k] first token of the next pass that requests the same expert of this layer,
				   * UINT32_MAX never; NULL unless the eviction policy needs it */
	/* The experts beyond the ranking, for a substitute that is not found before, from place `from` of them on: sets the array [*n] in order of
	 * selection score, ties to the lower id, valid until the next call; what follows is asked for when it is needed. GM_ERR_UNSUPPORTED if
	 * they cannot be had. *n = 0 before the end makes the pick a fallback, counted as head_exhausted. May be NULL where n_ranked ==
	 * n_expert or nothing substitutes. */
	int (*beyond)(void *user, uint32_t row, uint32_t from, const uint16_t **expert, uint32_t *n, struct gm_error *err);
	/* Gate weights (R3) of a rerouted selection, from the logits of row; needed by rerouting only. */
	void (*regate)(void *user, const float *logit, double *gate);
	void *user;
};

/* What became of one pick. */
struct gm_decision {
	uint8_t action;      /* enum gm_action */
	uint8_t class;       /* enum gm_class */
	uint16_t expert;     /* the pick, after rerouting */
	uint16_t substitute; /* where action is GM_SUBSTITUTE */
};

/* --- arrivals: when background copies land, and what an event costs --- */

enum gm_work_kind {
	GM_WORK_FETCH = 1, /* a new copy, then computed on the GPU */
	GM_WORK_LATE = 2,  /* a late hit: its copy is under way, or starts now; then computed on the GPU */
	GM_WORK_CPU = 4,   /* computed on the CPU */
};

/* What an event has to do besides the experts that were ready. */
struct gm_event_log {
	uint32_t layer;
	uint32_t n_row;
	uint32_t n_ready;    /* hits and substitutes, distinct experts */
	uint32_t n_work;     /* distinct experts in request order */
	unsigned work_kinds; /* set of enum gm_work_kind that occur */
	const struct gm_work {
		uint16_t expert;
		uint16_t kind; /* enum gm_work_kind, FETCH or LATE and CPU may meet in a batch */
	} * work;
	uint32_t n_queued; /* background copies queued by this event, in order (R12) */
	const uint16_t *queued;
	/* all requests, and what each met; n_ready beyond the hits are substitutes. Only where the arrivals want them, else NULL */
	uint32_t n_request;
	const uint16_t *expert; /* [n_request] */
	const uint8_t *class;   /* [n_request] enum gm_class */
};

/* Implementations: gm_arrivals_instant (a copy lands at its pool's next event), the simulated clock (sim/clock.h), measured times
 * of an engine. The struct is embedded at the start of the implementation's own. */
struct gm_arrivals {
	/* R6: calls gm_core_land for every copy of this core that has arrived. NULL: all copies of the layer's pool land */
	void (*begin)(struct gm_arrivals *self, struct gm_core *core, uint32_t layer);
	/* after R12; may be NULL */
	void (*end)(struct gm_arrivals *self, const struct gm_event_log *log);
	bool wants_requests; /* fill gm_event_log.expert and .class */
};
extern const struct gm_arrivals gm_arrivals_instant;

/* --- life --- */

/* Work space for events; one serves any number of cores of equal n_expert and top_k, one after the other. */
struct gm_scratch *gm_scratch_new(uint32_t n_expert, uint32_t top_k, struct gm_error *err);
void gm_scratch_free(struct gm_scratch *scratch);

/* Room of at least so many bytes for a caller's own work, which events leave alone; another caller may ask for it after. NULL: GM_ERR_MEMORY. */
void *gm_scratch_room(struct gm_scratch *scratch, size_t bytes, struct gm_error *err);

/* Checks a configuration: GM_ERR_USAGE for one that cannot run (global scope without expert bytes, a pool that holds nothing, ...). */
int gm_core_check(const struct gm_core_config *config, struct gm_error *err);

/* Size of the flat block. */
size_t gm_core_bytes(const struct gm_core_config *config);

/* Makes memory [gm_core_bytes], all zero and aligned for any type, a cold core. config, arrivals and scratch must outlive it. */
struct gm_core *gm_core_init(void *memory, const struct gm_core_config *config, struct gm_arrivals *arrivals,
			     struct gm_scratch *scratch);

/* Puts experts into a cold core (R5): order [n] items layer * n_expert + expert, most popular first. Scope layer: the first n_slot of each
 * layer; scope global: until the first that does not fit. Inserted least popular first. */
void gm_core_preload(struct gm_core *core, const uint32_t *order, size_t n);

/* Clears everything: residents, copies, accumulators, counts, clocks (R5); the arrivals are the caller's to reset. */
void gm_core_reset(struct gm_core *core);

/* R6-R13 for one event: a pass's rows in one layer. first_token is the number of the pass's first token.
 *   counters [n] or NULL   added to, one entry for each row; what happens at an expert counts for the row where it appears first
 *   shared_counters        true: counters is a single entry for all rows
 *   decision [n][top_k]    out, may be NULL
 * Errors: only those of rows->beyond; the core is then in the middle of an event and must be thrown away. */
int gm_event(struct gm_core *core, uint32_t layer, uint64_t first_token, const struct gm_rows *rows,
	     struct gm_counters *counters, bool shared_counters, struct gm_decision *decision, struct gm_error *err);

/* The same for a run of passes of one token each: every row is an event of its own, whose token is first_token + its offset. Equal to one
 * call for each, and faster. counters is one entry, or NULL.
 *   work [top_k + 1][top_k + 1] or NULL: work[ready][fetched] counts the events with so many experts ready (hits, substitutes) and so many to
 *   fetch. It is all that an event's time depends on where copies land in no other event. */
int gm_event_run(struct gm_core *core, uint32_t layer, uint64_t first_token, const struct gm_rows *rows,
		 struct gm_counters *counters, uint64_t *work, struct gm_error *err);

/* The next event, or one soon, is of this layer, and these [n] distinct experts are among its requests: state that is not in the processor's
 * caches may be loaded meanwhile. Without effect on any result. */
void gm_core_expect(struct gm_core *core, uint32_t layer, const uint16_t *expert, uint32_t n);

/* Many events of this layer, whichever their requests, come next or soon: all that they may need is loaded meanwhile. Without effect on any result. */
void gm_core_expect_layer(const struct gm_core *core, uint32_t layer);

/* For arrivals: a reserved expert becomes resident. */
void gm_core_land(struct gm_core *core, uint32_t layer, uint32_t expert);

/* Residency of a layer's experts [n_expert], enum gm_residency. */
const uint8_t *gm_core_residency(const struct gm_core *core, uint32_t layer);
uint32_t gm_core_n_resident(const struct gm_core *core, uint32_t layer); /* scope global: of the pool */

/* Reserved experts of a layer's pool: items in order of reservation. */
const uint32_t *gm_core_reserved(const struct gm_core *core, uint32_t layer, uint32_t *n);

#endif
