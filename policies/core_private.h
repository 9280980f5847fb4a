/* What core.c (state and life), event.c (one event), run.c (runs of them), classify.c (R7), substitutes.c (R9) and scratch.c share; nobody else
 * includes it. */
#ifndef GM_POLICIES_CORE_PRIVATE_H
#define GM_POLICIES_CORE_PRIVATE_H

#include "policies/core.h"
#include "policies/machine.h"

#include <string.h>

/* A set of items that compete for room. */
struct pool {
	uint32_t first_item; /* index of item 0 in the core's per-expert arrays */
	uint32_t n_item;
	uint32_t n_slot, n_resident, n_reserved;
	uint8_t stamp;       /* of the current event, for pins */
	uint64_t bytes_left; /* scope global */
	size_t reserved;     /* offset of uint32_t [n_slot]: items in order of reservation */
	size_t evict, admit; /* offsets of the policies' states */
};

struct gm_core {
	const struct gm_core_config *config;
	struct gm_arrivals *arrivals;
	struct gm_scratch *scratch;
	uint32_t n_pool;
	size_t pools;     /* offset of struct pool [n_pool] */
	size_t residency; /* offset of uint8_t [n_layer][n_expert] */
	size_t pin;       /* offset of uint8_t [n_layer][n_expert] */
	size_t miss;      /* offset of the miss rule's state */
	size_t bytes;
};

#define GM_MAX_PICK 64 /* picks that a word of bits holds */
#define GM_LIST_PICK 8 /* picks that are listed side by side */
#define GM_VECTOR_BYTES 16

enum request_flag { FETCHED = 1, ON_CPU = 2, QUEUED = 4 };

/* Work space. Request arrays [n_expert] hold the distinct experts of an event in request order; pick arrays [n_row][top_k]. */
struct gm_scratch {
	uint32_t n_expert, top_k;
	uint32_t whole_k; /* top_k rounded up to what is looked up side by side; UINT32_MAX: the machine has no vectors */
	uint32_t stamp;
	uint32_t *stamp_of;                 /* [n_expert] an expert is requested where stamp_of == stamp ... */
	uint32_t *request_of;               /* [n_expert] ... and this is its request */
	uint64_t places[1 << GM_LIST_PICK]; /* of a set of bits: the places of those that are set, a byte each */
	uint16_t *expert;
	uint8_t *class;
	uint8_t *flags;
	uint32_t *row_of;   /* row of first appearance */
	uint32_t *no_row;   /* [top_k] all 0: row_of where an event has one row */
	uint32_t *identity; /* [top_k] 0, 1, ...: request of each pick where an event has one row */
	uint64_t *next_use;
	struct gm_work *work;
	uint16_t *queued;
	uint32_t *missed; /* requests that are no hits, in order */
	size_t max_pick;
	uint32_t *request; /* picks: index of the request */
	uint32_t *wanting; /* picks that are no hits, row by row in rank order */
	uint8_t *action;
	uint16_t *substitute;
	uint16_t *rerouted; /* picks after rerouting, and their weights */
	double *gate;
	uint16_t *position;   /* [top_k] */
	float *logit;         /* [top_k] */
	uint8_t *row_class;   /* [top_k] */
	uint32_t *row_missed; /* [top_k] */
	void *room;           /* [room_bytes] of gm_scratch_room */
	size_t room_bytes;
};

/* One event under way; in a run of events of one layer the first part stays as it is. */
struct event {
	struct gm_core *core;
	const struct gm_core_config *config;
	const struct gm_evict_ops *evict;
	struct gm_scratch *s;
	struct pool *pool;
	void *evict_state;
	uint8_t *residency; /* [n_expert] of the layer */
	uint8_t *pin;       /* [n_expert] of the layer */
	struct gm_candidates candidates;
	struct gm_requests requests; /* what the policy was told of the event */
	uint32_t layer, top_k;
	uint32_t first_item;   /* pool item of the layer's expert 0 */
	uint64_t expert_bytes; /* for link_bytes; 0: not known */
	uint64_t room_bytes;   /* what an expert of the layer takes from its pool; 0 in scope layer */
	bool shared;           /* one entry of counters for all rows */
	bool spares;           /* the policy knows what is requested: it needs no pin */

	uint64_t token; /* current token */
	const struct gm_rows *rows;
	uint32_t first_row;   /* number of row 0 for rows->beyond */
	const uint16_t *pick; /* row i: pick + i * pick_stride */
	uint32_t pick_stride;
	const double *gate; /* [n][top_k] */
	struct gm_counters *counters;
	/* requests: in the scratch, or, where the event has one row, the row itself */
	const uint16_t *expert;  /* [n_request] */
	const uint32_t *row_of;  /* [n_request] */
	const uint32_t *request; /* [n][top_k] index of each pick's request */
	const uint32_t *wanting; /* [n_wanting] picks that are no hits, row by row in rank order; after R8 */
	uint32_t n_wanting;
	uint32_t n_request, n_missed; /* requests, and how many are no hits */
	uint64_t missed;              /* of one row: these picks, if they are at most GM_MAX_PICK; bit r is pick r */
	uint32_t n_ready;
	struct gm_event_log log; /* what it has to do besides, so far */
	unsigned actions;        /* set of 1 << enum gm_action that picks other than hits got; 0: all hits */
	bool pinned;             /* requests have their pins, or need none */
	uint32_t n_loose;        /* substitutes of one row that have no pin yet: the first residents behind its picks */
};

static inline void *gm_core_at(struct gm_core *core, size_t offset)
{
	return (char *)core + offset;
}

static inline struct pool *gm_core_pool(struct gm_core *core, uint32_t layer)
{
	struct pool *pools = gm_core_at(core, core->pools);

	return &pools[core->n_pool == 1 ? 0 : layer];
}

static inline uint8_t *gm_core_pool_residency(struct gm_core *core, const struct pool *pool)
{
	return (uint8_t *)gm_core_at(core, core->residency) + pool->first_item;
}

static inline bool gm_core_all_resident(const struct gm_core_config *config)
{
	return (config->evict.ops->info.flags & GM_ALL_RESIDENT) != 0;
}

/* Bytes that an expert of a layer takes from its pool's room; scope layer counts slots instead. */
static inline uint64_t gm_core_room_bytes(const struct gm_core_config *config, uint32_t layer)
{
	bool counts = config->scope == GM_SCOPE_GLOBAL && !gm_core_all_resident(config);

	return counts && config->expert_bytes ? config->expert_bytes[layer]
					      : 0; /* gm_core_check wants them in scope global */
}

/* A reserved item becomes resident. */
void gm_core_land_item(struct gm_core *core, struct pool *pool, uint32_t item);

static inline const uint16_t *event_picks(const struct event *ev, uint32_t row)
{
	return ev->pick + (size_t)row * ev->pick_stride;
}

static inline uint32_t event_row_of_pick(const struct event *ev, uint32_t pick)
{
	return ev->rows->n == 1 ? 0 : pick / ev->top_k;
}

static inline struct gm_counters *event_counters(const struct event *ev, uint32_t row)
{
	return &ev->counters[ev->shared ? 0 : row];
}

/* A new stamp for pins; on wrap-around the old ones are wiped, so that none can match by chance. They are bytes, so that a layer's lie in few cache
 * lines. */
static inline void gm_event_next_stamp(struct event *ev)
{
	struct pool *pool = ev->pool;

	if (++pool->stamp == 0) {
		memset((uint8_t *)gm_core_at(ev->core, ev->core->pin) + pool->first_item, 0, pool->n_item);
		pool->stamp = 1;
	}
	ev->candidates.stamp = pool->stamp;
	ev->candidates.token = ev->token;
}

/* Next use of request q, which pick p is: an event number that grows over all layers. */
static inline void gm_event_note_next_use(struct event *ev, uint32_t q, size_t p)
{
	uint32_t next = ev->rows->next_use[p];

	ev->s->next_use[q] = next == UINT32_MAX ? GM_NEVER : (uint64_t)next * ev->config->n_layer + ev->layer;
}

/* Pins the substitutes of one row that have no pin yet. */
void gm_event_pin_loose(struct event *ev);

/* Pins the requests of an event of one row and its substitutes, once a victim is asked for: few events ask. All requests: those that are not
 * resident are no candidates until they are fetched, and then they are pinned (R11). */
static inline void gm_event_pin_row(struct event *ev)
{
	const uint16_t *pick = ev->pick;
	uint8_t *pin = ev->pin, stamp = ev->candidates.stamp;
	uint32_t top_k = ev->top_k;

	if (!ev->pinned)
		for (uint32_t r = 0; r < top_k; r++)
			pin[pick[r]] = stamp;
	ev->pinned = true;
	if (ev->n_loose)
		gm_event_pin_loose(ev);
}

/* GM_ABSENT: GM_MISS, GM_RESERVED: GM_LATE, GM_RESIDENT and more: GM_HIT. */
static inline uint8_t gm_event_class_of(uint8_t residency)
{
	return (uint8_t)(GM_MISS - (residency < GM_RESIDENT ? residency : GM_RESIDENT));
}

/* R7 for one row: sets the scratch's class and missed of its picks, and the event's missed and n_missed. */
void gm_event_classify(struct event *ev);

/* Only which of a row's picks, at most GM_MAX_PICK, are no hits: bit r is pick r. The function for rows such as the event's. */
typedef uint64_t gm_find_misses(const uint8_t *residency, const uint16_t *pick, uint32_t top_k);
gm_find_misses *gm_event_miss_finder(const struct event *ev);

/* The part of an event that is the same for all events of a layer. */
void gm_event_set_up(struct event *ev, struct gm_core *core, uint32_t layer);

/* R6 where copies land by the layer's next event. */
void gm_event_land_all(struct event *ev);

/* R12, R13 for the substituted picks of one row, all of them true misses. */
void gm_event_count_substituted(struct event *ev, uint64_t picks);

/* Tells the arrivals what an event of one row had to do: these picks were fetched, and copies were queued. */
void gm_event_tell_fetches(struct event *ev, uint64_t picks);

/* R6-R13 for the rows that ev points to. */
int gm_event_one(struct event *ev, struct gm_error *err);

/* R9 for one row, nothing rerouted, whose `picks` are to be substituted, where it does not matter which substitute is whose: if the ranking has as
 * many residents behind the row's picks, they are counted as ready and wait for their pins. False: the search has to be made. */
bool gm_event_has_substitutes(struct event *ev, uint64_t picks);

/* The same after that was false: 1 if there is nothing more to search, and then *picks are those that have substitutes, the others of them are
 * counted as fallbacks; 0 if the search goes beyond the ranking. missed: the row's picks that are no hits. */
int gm_event_fall_back(struct event *ev, uint64_t missed, uint64_t *picks, struct gm_error *err);

/* R9 */
int gm_event_substitute(struct event *ev, struct gm_error *err);

/* Room in the pick arrays for n_row rows. */
int gm_scratch_grow(struct gm_scratch *scratch, uint32_t n_row, struct gm_error *err);

#endif
