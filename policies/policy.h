/* The policy contract: eviction, miss rules, admission, rerouting (docs/policies.md; rules R1-R13 in docs/semantics.md).
 *
 * A policy is one `const struct gm_*_ops` in a file of its own and a line in the table (table.h). It owns only its own
 * bookkeeping: one flat block without pointers, so that a whole replay state can be copied with memcpy. The core (core.h)
 * owns residency, pins, room and counters. A policy sees no token text, file or clock.
 *
 * Pools and items. A pool is a set of items that compete for room. Scope layer: one pool a layer, item = expert id. Scope
 * global: one pool for all layers, item = layer * n_expert + expert. A policy is initialised once a pool.
 */
#ifndef GM_POLICIES_POLICY_H
#define GM_POLICIES_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How present an expert is in its pool: a number, not a bit, so that other precisions can follow above GM_RESIDENT. */
enum gm_residency {
	GM_ABSENT = 0,
	GM_RESERVED = 1, /* a background copy is queued or under way; the slot is taken */
	GM_RESIDENT = 2, /* usable now; so is every larger value */
};

enum gm_class { GM_HIT, GM_LATE, GM_MISS }; /* R7 */

enum gm_action { GM_USE, GM_FETCH, GM_SUBSTITUTE, GM_DROP, GM_CPU }; /* R8; GM_USE: a hit, computed from its slot */

#define GM_NO_ITEM UINT32_MAX
#define GM_NEVER UINT64_MAX /* next use of an item that the trace does not request again */

/* --- arguments: NAME[:ARG[:ARG]] --- */
#define GM_MAX_ARG 2

struct gm_param {
	const char *name;
	const char *help;
	const char *const *words; /* NULL-ended list of values; the argument is the index. NULL: a number */
	double min, max;          /* inclusive bounds of a number */
	bool above_min;           /* min itself is not allowed */
};

/* What all kinds of policy have in common; it drives parsing, `sim policies`, --help and docs. */
struct gm_policy_info {
	const char *name;
	const char *help; /* one line */
	unsigned flags;   /* enum gm_policy_flag */
	int n_param;      /* all required */
	struct gm_param param[GM_MAX_ARG];
};

enum gm_policy_flag {
	GM_NEEDS_NEXT_USE = 1,      /* the caller must know the future of the trace (a bound, not a policy) */
	GM_NEEDS_RANKING = 2,       /* substitutes: needs a ranking beyond the selected experts */
	GM_NEEDS_TOKEN_ORDER = 4,   /* events must come token by token, not layer by layer */
	GM_ALL_RESIDENT = 8,        /* everything is resident and nothing is ever evicted */
	GM_NEEDS_LOGITS = 16,       /* reroutes by logits */
	GM_NO_INSERT = 32,          /* never inserts what it misses */
	GM_NEEDS_GATES = 64,        /* decides or counts by gate weights */
	GM_NEEDS_CPU = 128,         /* computes on the CPU: its times must be known */
	GM_ONLY_FETCHES = 256,      /* a miss rule that answers FETCH and nothing else: the core need not ask it */
	GM_DROPS = 512,             /* a miss rule that may leave picks out */
	GM_ONLY_SUBSTITUTES = 1024, /* a miss rule that answers SUBSTITUTE and nothing else */
	GM_SPARES_REQUESTS = 2048,  /* never names a victim that the last access requested: the core need not pin those */
};

/* Loads what will be read soon; without effect on any result. */
static inline void gm_prefetch(const void *address)
{
#if defined(__GNUC__)
	__builtin_prefetch(address);
#else
	(void)address;
#endif
}

/* --- eviction --- */

struct gm_pool_dims {
	uint32_t n_item;
	uint32_t n_slot;   /* most items that can be resident and reserved at once */
	uint32_t n_expert; /* experts a layer: item / n_expert is the layer in scope global */
	uint64_t seed;
	/* [n_item] event number of the first request in the trace, GM_NEVER; NULL unless asked for */
	const uint64_t *first_use;
};

/* The requests of one event in request order (R7): distinct experts of one layer. */
struct gm_requests {
	uint32_t n;
	const uint16_t *expert;   /* [n] */
	uint32_t first_item;      /* item = first_item + expert */
	const uint64_t *next_use; /* [n] event number of the next request after this event, GM_NEVER; NULL unless asked for.
				   * Event numbers grow through the trace over all layers. */
	uint64_t token;           /* current token: the first of the pass */
};

/* What may be evicted: residents without a pin. Requests of the event have one, unless the policy is known to spare them (GM_SPARES_REQUESTS). */
struct gm_candidates {
	const uint8_t *residency; /* [n_item] enum gm_residency */
	const uint8_t *pin;       /* [n_item] pinned where pin[item] == stamp */
	uint8_t stamp;
	uint64_t token;                     /* current token */
	const struct gm_requests *requests; /* of the event; NULL: none */
};

static inline bool gm_is_candidate(const struct gm_candidates *c, uint32_t item)
{
	return c->pin[item] != c->stamp && c->residency[item] >= GM_RESIDENT;
}

/* Call order in one event: land* (R6), access once with all requests (R10), then in request order for every fetched expert
 * victim*, forget*, insert (or land for a late one), then for background admissions victim*, forget*, reserve (R12). Accesses of an event
 * are recorded before its first victim is named; since hits and fetched experts are pinned, this gives the same victims as
 * recording them one by one. */
struct gm_evict_ops {
	struct gm_policy_info info;
	size_t (*state_bytes)(const struct gm_pool_dims *dims, const double *arg);
	/* state is zeroed; called once a pool. Reset between sequences (again = true) leaves the state as it was: the policy
	 * clears what it learnt, and may keep what it was told of the future */
	void (*init)(void *state, const struct gm_pool_dims *dims, const double *arg, bool again);
	/* The next access will have these requests: what it reads may be loaded meanwhile (gm_prefetch). May be NULL. */
	void (*expect)(void *state, const struct gm_requests *requests);
	/* demand of the router, resident or not; use as a substitute is no access */
	void (*access)(void *state, const struct gm_requests *requests);
	/* a slot is taken by a fetched expert, resident at once. Preloading calls it too: then `preload` is set, and the item
	 * counts as last accessed at this insertion */
	void (*insert)(void *state, uint32_t item, bool preload);
	void (*reserve)(void *state, uint32_t item); /* a slot is taken for a background copy (the insertion tick) */
	void (*land)(void *state, uint32_t item);    /* a reserved item became resident */
	/* The candidate that comes first in the policy's order, GM_NO_ITEM if there is none. incoming: the fetched item that wants room;
	 * returning it means "do not keep it" (bypass). GM_NO_ITEM: a background admission, which may not be refused so. */
	uint32_t (*victim)(void *state, const struct gm_candidates *candidates, uint32_t incoming);
	void (*forget)(void *state, uint32_t item); /* the item left the pool */
};

/* --- miss rules (R8): a row at a time --- */

struct gm_miss_row {
	uint32_t layer;
	uint64_t token;
	uint32_t top_k;
	const uint16_t *expert; /* [top_k] in rank order */
	const double *gate;     /* [top_k] weights w (R3), their sum is 1 */
	const uint32_t *missed; /* [n_missed] ranks of the picks that are no hits; they rise */
	uint32_t n_missed;
	const uint8_t *class;     /* [top_k] enum gm_class */
	const uint8_t *residency; /* [n_expert] of the layer, enum gm_residency */
};

struct gm_miss_ops {
	struct gm_policy_info info;
	size_t (*state_bytes)(uint32_t n_layer, const double *arg);                    /* NULL: no state */
	void (*init)(void *state, uint32_t n_layer, const double *arg, uint64_t seed); /* state is zeroed */
	/* writes action[rank] (FETCH, SUBSTITUTE, DROP or CPU) for the picks that are no hits */
	void (*decide)(void *state, const double *arg, const struct gm_miss_row *row, uint8_t *action);
	/* The same at once, for a rule that answers FETCH or SUBSTITUTE by rank and weight alone: which of the first n <= 64 picks it fetches if they
	 * miss, bit r for rank r. gate [n] unless the rule answers without. NULL: the rule is another one. */
	uint64_t (*fetches)(const double *arg, const double *gate, uint32_t n);
};

/* --- admission --- */

struct gm_admit_ops {
	struct gm_policy_info info;
	size_t (*state_bytes)(uint32_t n_item); /* NULL: no state; one state a pool */
	/* substituted true misses (R12): bit r of picks is expert[r] (item = first_item + expert), whose weight is gate[r]. Returns those among them
	 * for which it asks for a background copy */
	uint64_t (*substituted)(void *state, const double *arg, uint32_t first_item, const uint16_t *expert,
				const double *gate, uint64_t picks);
	void (*queued)(void *state, uint32_t item);                      /* the copy that was asked for is queued */
	void (*expect)(void *state, const struct gm_requests *requests); /* as an eviction policy's; may be NULL */
};

/* --- rerouting of a row before R7 (cache-aware routing) --- */

struct gm_reroute_row {
	uint32_t layer;
	uint64_t token;
	uint32_t top_k, n_ranked;
	const uint16_t *ranked;   /* [n_ranked] experts, S first */
	const float *logit;       /* [n_ranked] their logits */
	const uint8_t *residency; /* [n_expert] of the layer */
};

struct gm_reroute_ops {
	struct gm_policy_info info;
	/* writes the new selection in rank order as positions in `ranked`, distinct; the caller computes its weights by R3 */
	void (*reroute)(const double *arg, const struct gm_reroute_row *row, uint16_t *position);
};

#endif
