/* lru: the resident whose last access is the oldest leaves first.
 *
 * Accesses are written to a log, and every item knows the place of its last one: a hit costs two stores. The log, without the entries that are
 * no longer their item's last, is the order in which residents leave: an eviction reads on where the one before it stopped. When the log is
 * full, what still counts moves to its front.
 */
#include "policies/machine.h"
#include "policies/policy.h"

#define GROUP 64u /* entries that are looked at together */
#define LANE 8u   /* entries that are compared side by side */

/* log: [1 ... passed - 1] has had its turn; [passed ... group - 1] could not be evicted when its turn came, because it was reserved or a
 * substitute; [group ... group + n_group - 1] is having its turn; [open ... end - 1] are the requests of this event, none of which can be
 * evicted in it. */
struct state {
	uint32_t n_item, capacity;
	uint32_t passed, group, n_group, open, end;
	bool avx2;
	uint64_t live; /* bit i: entry group + i was its item's last when the group was looked at, and has not left since */
	uint32_t last
		[]; /* [n_item] place of an item's last access; 0: none, or it left the pool. Then uint32_t log[capacity + LANE] */
};

/* Items, and as many requests of one event, must find room behind entry 0, which is nobody's. The more there is, the less often it is full. */
static uint32_t capacity(uint32_t n_item)
{
	return 4 * n_item + 1;
}

static uint32_t *log_of(struct state *s)
{
	return s->last + s->n_item;
}

static size_t state_bytes(const struct gm_pool_dims *dims, const double *arg)
{
	(void)arg;
	return sizeof(struct state) + ((size_t)dims->n_item + capacity(dims->n_item) + LANE) * sizeof(uint32_t);
}

static void init(void *state, const struct gm_pool_dims *dims, const double *arg, bool again)
{
	struct state *s = state;

	(void)arg, (void)again;
	*s = (struct state){.n_item = dims->n_item, .capacity = capacity(dims->n_item), .avx2 = gm_has_avx2()};
	s->passed = s->group = s->open = s->end = 1;
	for (uint32_t i = 0; i < dims->n_item; i++)
		s->last[i] = 0;
}

static void expect(void *state, const struct gm_requests *requests)
{
	struct state *s = state;

	gm_prefetch(log_of(s) + s->end);
	for (uint32_t i = 0; i < requests->n; i++)
		gm_prefetch(&s->last[requests->first_item + requests->expert[i]]);
}

/* --- which entries are their item's last --- */

static uint64_t lasts_plain(const uint32_t *last, const uint32_t *log, uint32_t from, uint32_t n)
{
	uint64_t bits = 0;

	for (uint32_t i = 0; i < n; i++)
		bits |= (uint64_t)(last[log[from + i]] == from + i) << i;
	return bits;
}

#if GM_HAVE_X86
/* Reads to the end of the last vector: there are older items there, or 0. */
GM_AVX2 static uint64_t lasts_avx2(const uint32_t *last, const uint32_t *log, uint32_t from, uint32_t n)
{
	__m256i place = _mm256_add_epi32(_mm256_set1_epi32((int)from), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
	uint64_t bits = 0;

	for (uint32_t i = 0; i < n; i += LANE) {
		__m256i item = _mm256_loadu_si256((const __m256i *)(const void *)(log + from + i));
		__m256i is = _mm256_cmpeq_epi32(_mm256_i32gather_epi32((const int *)(const void *)last, item, 4), place);

		bits |= (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(is)) << i;
		place = _mm256_add_epi32(place, _mm256_set1_epi32((int)LANE));
	}
	return n < GROUP ? bits & ((UINT64_C(1) << n) - 1) : bits;
}
#endif

/* Of the entries from ... from + n - 1, n <= GROUP, as bits. */
static uint64_t lasts(struct state *s, uint32_t from, uint32_t n)
{
#if GM_HAVE_X86
	if (s->avx2)
		return lasts_avx2(s->last, log_of(s), from, n);
#endif
	return lasts_plain(s->last, log_of(s), from, n);
}

/* --- the log --- */

static void put(struct state *s, uint32_t at, uint32_t item)
{
	log_of(s)[at] = item;
	s->last[item] = at;
}

/* What still counts moves to the front. */
GM_RARE static void move_to_front(struct state *s)
{
	uint32_t to = 1;

	for (uint32_t from = s->passed; from < s->end; from += GROUP) {
		uint32_t n = s->end - from < GROUP ? s->end - from : GROUP;

		for (uint64_t bits = lasts(s, from, n); bits; bits &= bits - 1)
			put(s, to++, log_of(s)[from + (uint32_t)__builtin_ctzll(bits)]);
	}
	s->passed = s->group = 1;
	s->n_group = 0;
	s->live = 0;
	s->open = s->end = to;
}

static void access_all(void *state, const struct gm_requests *requests)
{
	struct state *s = state;
	const uint16_t *expert = requests->expert;
	uint32_t first_item = requests->first_item, n = requests->n, open, *last = s->last, *log;

	if (s->capacity - s->end < n)
		move_to_front(s);
	open = s->open = s->end;
	s->end = open + n;
	log = log_of(s) + open;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t item = first_item + expert[i];

		log[i] = item;
		last[item] = open + i;
	}
}

static void insert(void *state, uint32_t item, bool preload)
{
	struct state *s = state;

	if (preload) /* else it was accessed a moment ago */
		put(s, s->end++, item);
}

static void reserve(void *state, uint32_t item)
{
	(void)state, (void)item;
}

static void land(void *state, uint32_t item)
{
	(void)state, (void)item;
}

/* --- who leaves --- */

GM_RARE static uint32_t first_passed(struct state *s, const struct gm_candidates *candidates)
{
	for (uint32_t at = s->passed; at < s->group; at++) {
		uint32_t item = log_of(s)[at];

		if (s->last[item] == at && gm_is_candidate(candidates, item))
			return item;
	}
	return GM_NO_ITEM;
}

static uint32_t first_of_group(struct state *s, const struct gm_candidates *candidates)
{
	for (uint64_t bits = s->live; bits; bits &= bits - 1) {
		uint32_t at = s->group + (uint32_t)__builtin_ctzll(bits), item = log_of(s)[at];

		if (s->last[item] == at) {
			if (gm_is_candidate(candidates, item))
				return item;
			if (candidates->residency[item] != GM_ABSENT)
				continue;
		}
		s->live &= ~(bits & -bits);
	}
	return GM_NO_ITEM;
}

/* What was passed, and what is still alive in the group, moves up to the next group. */
static void pull_up(struct state *s, uint32_t next)
{
	uint32_t passed = next;

	for (uint32_t at = next; at-- > s->passed;) {
		uint32_t item = log_of(s)[at];

		if (s->last[item] == at && (at < s->group || s->live >> (at - s->group) & 1))
			put(s, --passed, item);
	}
	s->passed = passed;
}

GM_RARE static void next_group(struct state *s)
{
	uint32_t next = s->group + s->n_group, left = s->open - next;

	if (s->live || s->passed < s->group)
		pull_up(s, next);
	else
		s->passed = next;
	s->group = next;
	s->n_group = left < GROUP ? left : GROUP;
	s->live = lasts(s, next, s->n_group);
}

static uint32_t victim(void *state, const struct gm_candidates *candidates, uint32_t incoming)
{
	struct state *s = state;
	uint32_t item = s->passed < s->group ? first_passed(s, candidates) : GM_NO_ITEM;

	(void)incoming;
	if (item != GM_NO_ITEM)
		return item;
	while ((item = first_of_group(s, candidates)) == GM_NO_ITEM && s->group + s->n_group < s->open)
		next_group(s);
	return item;
}

static void forget(void *state, uint32_t item)
{
	struct state *s = state;
	uint32_t at = s->last[item] - s->group;

	if (at < GROUP)
		s->live &= ~(UINT64_C(1) << at);
	s->last[item] = 0;
}

extern const struct gm_evict_ops gm_evict_lru;
const struct gm_evict_ops gm_evict_lru = {
	.info = {.name = "lru", .help = "least recently used: smallest last access", .flags = GM_SPARES_REQUESTS},
	.state_bytes = state_bytes,
	.init = init,
	.expect = expect,
	.access = access_all,
	.insert = insert,
	.reserve = reserve,
	.land = land,
	.victim = victim,
	.forget = forget,
};
