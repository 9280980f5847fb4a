/* Slots and schedules without a device: whatever the policy decides, every row must find its experts in the slots that the schedule names, if
 * the copies are made in the schedule's parts. */
#include "engine/slots.h"
#include "policies/table.h"
#include "tests/fixtures/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_LAYER = 3, MAX_EXPERT = 16, MAX_K = 4, MAX_ROW = 9, MAX_SLOT = N_LAYER * MAX_EXPERT + MAX_K + 1 };

#define assert_ok(call, err)                                                    \
	do {                                                                    \
		if ((call) < 0)                                                 \
			fail_msg("%s:%d: %s", __FILE__, __LINE__, (err)->text); \
	} while (0)

/* A copy that is on its way beside the work. */
struct flight {
	uint32_t layer, expert, slot;
	bool promoted;
};

struct bench {
	struct gm_core_config config;
	uint32_t n_slot[N_LAYER];
	uint64_t bytes[N_LAYER];
	struct gm_scratch *scratch;
	struct gm_core *core;
	struct gm_slots *slots;
	uint32_t n_scratch;
	struct fixture_random random;
	uint32_t content[N_LAYER][MAX_SLOT]; /* the device: item in each slot, as copied */
	struct flight flight[MAX_SLOT];
	uint32_t n_flight;
	bool takes_time, batch;
	uint64_t n_late, n_tie, n_part, n_row, n_changed, n_copy;
};

static uint32_t below(struct bench *b, uint32_t n)
{
	return (uint32_t)(fixture_next(&b->random) % n);
}

static uint32_t *device(struct bench *b, uint32_t layer)
{
	return b->content[b->config.scope == GM_SCOPE_GLOBAL ? 0 : layer];
}

static void copy_in(struct bench *b, uint32_t layer, uint32_t expert, uint32_t slot)
{
	assert_true(slot < gm_slots_needed(&b->config, layer) + b->n_scratch);
	device(b, layer)[slot] = layer * b->config.n_expert + expert;
	b->n_copy++;
}

static int put(void *user, uint32_t layer, uint32_t expert, uint32_t slot, struct gm_error *err)
{
	(void)err;
	copy_in(user, layer, expert, slot);
	return GM_OK;
}

/* --- copies that take their time --- */

static int queue(void *user, uint32_t layer, uint32_t expert, uint32_t slot, struct gm_error *err)
{
	struct bench *b = user;

	(void)err;
	assert_true(b->n_flight < MAX_SLOT);
	b->flight[b->n_flight++] = (struct flight){.layer = layer, .expert = expert, .slot = slot};
	return GM_OK;
}

static void arrive(struct bench *b, uint32_t i)
{
	copy_in(b, b->flight[i].layer, b->flight[i].expert, b->flight[i].slot);
	memmove(b->flight + i, b->flight + i + 1, (--b->n_flight - i) * sizeof(*b->flight));
}

static int poll(void *user, struct gm_error *err)
{
	struct bench *b = user;

	(void)err;
	while (b->n_flight && !b->flight[0].promoted && below(b, 4) == 0) {
		struct flight first = b->flight[0];

		arrive(b, 0);
		gm_slots_landed(b->slots, first.layer, first.expert);
	}
	return GM_OK;
}

static int promote(void *user, uint32_t layer, uint32_t expert, struct gm_error *err)
{
	struct bench *b = user;

	(void)err;
	for (uint32_t i = 0; i < b->n_flight; i++)
		if (b->flight[i].layer == layer && b->flight[i].expert == expert) {
			b->flight[i].promoted = true;
			return GM_OK;
		}
	fail_msg("a copy that nobody queued is wanted: layer %u, expert %u", layer, expert);
	return GM_OK;
}

static void await(struct bench *b, uint32_t layer, uint32_t expert)
{
	for (uint32_t i = 0; i < b->n_flight; i++)
		if (b->flight[i].layer == layer && b->flight[i].expert == expert) {
			b->n_late++;
			arrive(b, i);
			return;
		}
	fail_msg("a copy that nobody queued is waited for: layer %u, expert %u", layer, expert);
}

/* --- life --- */

/* How events come: each row by itself, or all of a pass; copies in the background at once, or beside the work. */
struct way {
	enum gm_scope scope;
	bool takes_time, batch;
};

static void start(struct bench *b, uint64_t seed, struct way way, const char *evict, const char *miss, const char *admit)
{
	struct gm_slots_options options = {.config = &b->config, .max_row = MAX_ROW};
	struct gm_error err = {0};

	memset(b, 0, sizeof(*b));
	fixture_random_begin(&b->random, seed, "slots");
	b->takes_time = way.takes_time;
	b->batch = way.batch;
	b->config = (struct gm_core_config){.n_layer = N_LAYER,
					    .n_expert = 6 + below(b, MAX_EXPERT - 5),
					    .top_k = 1 + below(b, MAX_K),
					    .scope = way.scope,
					    .n_slot = b->n_slot,
					    .expert_bytes = b->bytes};
	for (int l = 0; l < N_LAYER; l++) {
		b->n_slot[l] = 1 + below(b, b->config.n_expert);
		b->bytes[l] = 100;
	}
	b->config.pool_bytes = 100 * (1 + below(b, N_LAYER * b->config.n_expert)) + below(b, 100);
	assert_ok(gm_evict_parse(evict, &b->config.evict, &err), &err);
	assert_ok(gm_miss_parse(miss, &b->config.miss, &err), &err);
	assert_ok(gm_admit_parse(admit, &b->config.admit, &err), &err);
	assert_ok(gm_core_check(&b->config, &err), &err);
	options.n_scratch = b->n_scratch = gm_slots_scratch(&b->config, way.takes_time, way.batch);
	if (way.takes_time)
		options.background =
			(struct gm_slots_background){.queue = queue, .poll = poll, .promote = promote, .user = b};
	b->slots = gm_slots_new(&options, &err);
	b->scratch = gm_scratch_new(b->config.n_expert, b->config.top_k, &err);
	assert_true(b->slots && b->scratch);
	b->core = gm_core_init(calloc(1, gm_core_bytes(&b->config)), &b->config, gm_slots_arrivals(b->slots), b->scratch);
	memset(b->content, 0xff, sizeof(b->content));
	assert_ok(gm_slots_start(b->slots, b->core, put, b, &err), &err);
}

static void stop(struct bench *b)
{
	gm_slots_free(b->slots);
	free(b->core);
	gm_scratch_free(b->scratch);
}

/* --- a layer --- */

static void random_ranking(struct bench *b, uint16_t *ranked)
{
	uint32_t n = b->config.n_expert;

	for (uint32_t i = 0; i < n; i++)
		ranked[i] = (uint16_t)i;
	for (uint32_t i = 0; i < n; i++) { /* the first experts are liked */
		uint32_t j = i + below(b, below(b, 2) && n - i > 4 ? 4 : n - i);
		uint16_t other = ranked[i];

		ranked[i] = ranked[j];
		ranked[j] = other;
	}
}

/* What the graph computes for a row: the decisions' experts in another order, and now and then one that the model likes as much (a tie). */
static void model_row(struct bench *b, const struct gm_decision *decision, const uint16_t *ranked, int32_t *expert)
{
	uint32_t k = b->config.top_k, shift = below(b, k);
	bool plain = true;

	for (uint32_t r = 0; r < k; r++) {
		const struct gm_decision *d = &decision[r];

		plain &= d->action == GM_USE || d->action == GM_FETCH;
		expert[(r + shift) % k] = d->action == GM_SUBSTITUTE ? d->substitute : d->expert;
	}
	for (uint32_t t = 0; plain && t < k && k + t < b->config.n_expert && below(b, 10) == 0; t++) {
		expert[(k - 1 - t + shift) % k] = ranked[k + t];
		b->n_tie++;
	}
}

static void make(struct bench *b, uint32_t layer, const struct gm_slot_copy *copy)
{
	if (copy->ordered)
		await(b, layer, copy->expert);
	else
		copy_in(b, layer, copy->expert, copy->slot);
}

/* Picks first ... first + n - 1 in the schedule's order find their experts. */
static void look(struct bench *b, const struct gm_schedule *schedule, uint32_t first, uint32_t n, const int32_t *expert,
		 const struct gm_decision *decision, bool *seen)
{
	uint32_t k = b->config.top_k;

	for (uint32_t i = first; i < first + n; i++) {
		uint32_t place = schedule->pick[i];
		const struct gm_decision *its = decision + place / k * k;
		bool dropped = false;

		for (uint32_t r = 0; r < k; r++)
			dropped |= its[r].action == GM_DROP && its[r].expert == expert[place];
		assert_false(seen[place]);
		seen[place] = true;
		assert_int_equal(schedule->expert[place], expert[place]);
		if (!dropped)
			assert_int_equal(device(b, schedule->layer)[schedule->slot[place]],
					 schedule->layer * b->config.n_expert + (uint32_t)expert[place]);
	}
}

/* Those that stay are made first; every other as early as the schedule allows, while others are computed. */
static void compute_event(struct bench *b, const struct gm_schedule *schedule, const int32_t *expert,
			  const struct gm_decision *decision)
{
	uint32_t next = 0, n = schedule->n_row * b->config.top_k;
	bool seen[MAX_ROW * MAX_K] = {false};

	for (uint32_t c = 0; c < schedule->n_copy; c++)
		if (schedule->copy[c].stays)
			make(b, schedule->layer, &schedule->copy[c]);
	for (uint32_t c = 0; c <= schedule->n_copy; c++) { /* all that waits for copies before c is computed */
		for (; next < schedule->n_copy && (schedule->copy[next].stays || schedule->copy[next].after <= c); next++)
			if (!schedule->copy[next].stays)
				make(b, schedule->layer, &schedule->copy[next]);
		if (c == 0)
			look(b, schedule, 0, schedule->n_ready, expert, decision, seen);
		if (c < schedule->n_copy) {
			assert_true(next > c);
			look(b, schedule, schedule->copy[c].first_pick, schedule->copy[c].n_pick, expert, decision, seen);
		}
	}
	assert_int_equal(next, schedule->n_copy);
	for (uint32_t p = 0; p < n; p++)
		assert_true(seen[p]);
	b->n_part += schedule->n_copy + 1;
	b->n_row += schedule->n_row;
}

/* Makes the copies of each part, then looks into the slots of its rows. */
static void compute(struct bench *b, const struct gm_schedule *schedule, const int32_t *expert,
		    const struct gm_decision *decision)
{
	uint32_t k = b->config.top_k, layer = schedule->layer, c = 0, row = 0;

	for (uint32_t p = 0; p < schedule->n_part; p++) {
		assert_true(schedule->end[p] > row);
		for (; c < schedule->n_copy && schedule->copy[c].row < schedule->end[p]; c++)
			make(b, layer, &schedule->copy[c]);
		for (; row < schedule->end[p]; row++)
			for (uint32_t i = 0; i < k; i++) {
				int32_t slot = schedule->slot[row * k + i];
				bool dropped = false;

				for (uint32_t r = 0; r < k; r++)
					dropped |= decision[row * k + r].action == GM_DROP &&
						   decision[row * k + r].expert == expert[row * k + i];
				for (uint32_t j = 0; j < i; j++)
					assert_int_not_equal(slot, schedule->slot[row * k + j]);
				if (!dropped)
					assert_int_equal(device(b, layer)[slot],
							 layer * b->config.n_expert + (uint32_t)expert[row * k + i]);
			}
	}
	assert_int_equal(row, schedule->n_row);
	assert_int_equal(c, schedule->n_copy);
	b->n_part += schedule->n_part;
	b->n_row += row;
}

static void run_layer(struct bench *b, uint32_t layer, uint32_t n_row, uint64_t token)
{
	uint32_t k = b->config.top_k, n_expert = b->config.n_expert;
	uint16_t ranked[MAX_ROW * MAX_EXPERT];
	struct gm_decision decision[MAX_ROW * MAX_K];
	int32_t expert[MAX_ROW * MAX_K] = {0}, before[MAX_ROW * MAX_K];
	double gate[MAX_ROW * MAX_K];
	const struct gm_schedule *schedule;
	bool changed = false;
	struct gm_error err = {0};

	gm_slots_begin(b->slots, layer, n_row, b->batch);
	for (uint32_t row = 0; row < n_row; row++) {
		random_ranking(b, ranked + row * n_expert);
		for (uint32_t r = 0; r < k; r++)
			gate[row * k + r] = (double)(k - r) * 2 / (double)(k * (k + 1));
	}
	for (uint32_t row = 0; row < n_row; row++) {
		const struct gm_rows rows = {.n = b->batch ? n_row : 1,
					     .ranked = ranked + row * n_expert,
					     .n_ranked = n_expert,
					     .gate = gate + row * k};

		if (row == 0 || !b->batch)
			assert_ok(gm_event(b->core, layer, token + row, &rows, NULL, true, decision + row * k, &err), &err);
		assert_ok(gm_slots_decided(b->slots, decision + row * k, &err), &err);
		model_row(b, decision + row * k, ranked + row * n_expert, expert + row * k);
	}
	memcpy(before, expert, sizeof(before));
	for (uint32_t row = 0; row < n_row;) { /* in one or more calls */
		uint32_t n = 1 + below(b, n_row - row);

		assert_ok(gm_slots_experts(b->slots, row, n, expert + row * k, &changed, &err), &err);
		row += n;
	}
	assert_int_equal(changed, memcmp(before, expert, n_row * k * sizeof(*expert)) != 0);
	b->n_changed += changed;
	schedule = gm_slots_schedule(b->slots);
	if (schedule->one_event && schedule->n_copy > 0)
		compute_event(b, schedule, expert, decision);
	else
		compute(b, schedule, expert, decision);
	assert_ok(gm_slots_end(b->slots, &err), &err);
}

static void check_resident(struct bench *b)
{
	for (uint32_t layer = 0; layer < N_LAYER; layer++)
		for (uint32_t e = 0; e < b->config.n_expert; e++) {
			uint32_t slot = gm_slots_of(b->slots, layer, e);
			uint8_t residency = gm_core_residency(b->core, layer)[e];

			assert_int_equal(residency != GM_ABSENT, slot != GM_NO_SLOT);
			if (residency >= GM_RESIDENT)
				assert_int_equal(device(b, layer)[slot], layer * b->config.n_expert + e);
		}
}

static void run_case(uint64_t seed, struct way way, struct bench *sum)
{
	static const char *const evicts[] = {"lru", "fifo", "lfu", "lfu-decay:8", "nop"};
	static const char *const misses[] = {"fetch", "threshold:0.3", "first-choice", "substitute", "drop:0.3"};
	struct gm_error err = {0};
	struct bench b;
	uint64_t token = 0;

	start(&b, seed, way, evicts[seed % 5], misses[seed / 5 % 5], seed / 25 % 2 ? "background:0.2" : "fetch");
	for (int pass = 0; pass < 30; pass++) {
		bool one_by_one = way.scope == GM_SCOPE_GLOBAL && !way.batch;
		uint32_t n_row = one_by_one || below(&b, 2) ? 1 : 1 + below(&b, MAX_ROW);

		for (uint32_t layer = 0; layer < N_LAYER; layer++)
			run_layer(&b, layer, n_row, token);
		token += n_row;
		check_resident(&b);
	}
	if (!way.takes_time) { /* from the start again */
		gm_core_reset(b.core);
		assert_ok(gm_slots_start(b.slots, b.core, put, &b, &err), &err);
		check_resident(&b);
		run_layer(&b, 1, 1, token);
	}
	sum->n_late += b.n_late;
	sum->n_tie += b.n_tie;
	sum->n_part += b.n_part;
	sum->n_row += b.n_row;
	sum->n_changed += b.n_changed;
	sum->n_copy += b.n_copy;
	stop(&b);
}

static void run_cases(struct way way)
{
	struct bench sum = {0};

	for (uint64_t seed = 0; seed < 400; seed++)
		run_case(seed, way, &sum);
	print_message("%llu rows in %llu parts, %llu copies, %llu late, %llu ties, %llu of them by R2\n",
		      (unsigned long long)sum.n_row, (unsigned long long)sum.n_part, (unsigned long long)sum.n_copy,
		      (unsigned long long)sum.n_late, (unsigned long long)sum.n_tie, (unsigned long long)sum.n_changed);
	assert_true(sum.n_copy && sum.n_tie && (way.batch || sum.n_changed) && (sum.n_late > 0) == way.takes_time);
	assert_true(way.scope == GM_SCOPE_GLOBAL || way.batch || sum.n_part < sum.n_row);
}

static void test_layer(void **state)
{
	(void)state;
	run_cases((struct way){.scope = GM_SCOPE_LAYER});
}

static void test_global(void **state)
{
	(void)state;
	run_cases((struct way){.scope = GM_SCOPE_GLOBAL});
}

static void test_layer_in_flight(void **state)
{
	(void)state;
	run_cases((struct way){.scope = GM_SCOPE_LAYER, .takes_time = true});
}

static void test_global_in_flight(void **state)
{
	(void)state;
	run_cases((struct way){.scope = GM_SCOPE_GLOBAL, .takes_time = true});
}

static void test_batch(void **state)
{
	(void)state;
	run_cases((struct way){.scope = GM_SCOPE_LAYER, .batch = true});
	run_cases((struct way){.scope = GM_SCOPE_GLOBAL, .batch = true});
}

static void test_batch_in_flight(void **state)
{
	(void)state;
	run_cases((struct way){.scope = GM_SCOPE_LAYER, .batch = true, .takes_time = true});
	run_cases((struct way){.scope = GM_SCOPE_GLOBAL, .batch = true, .takes_time = true});
}

/* By hand: two slots, one expert a row. Row 2 wants a third expert and evicts that of row 0, so it begins a part; row 3 goes with it. */
static void test_parts(void **state)
{
	static const uint32_t slots[] = {0, 1, 0, 1};
	static const struct gm_slot_copy copies[] = {
		{.row = 0, .slot = 0, .expert = 5}, {.row = 2, .slot = 0, .expert = 7}, {.row = 1, .slot = 1, .expert = 6}};
	struct gm_schedule s;
	struct gm_error err = {0};

	(void)state;
	assert_ok(gm_schedule_init(&s, 4, 1, 2, &err), &err);
	gm_schedule_begin(&s, 0, 4, false);
	for (int i = 0; i < 3; i++)
		assert_ok(gm_schedule_copy(&s, &copies[i], &err), &err);
	for (int i = 0; i < 4; i++)
		s.slot[i] = (int32_t)slots[i];
	gm_schedule_divide(&s);
	assert_int_equal(s.copy[1].expert, 6); /* rows never fall */
	assert_int_equal(s.n_part, 2);
	assert_int_equal(s.end[0], 2);
	assert_int_equal(s.end[1], 4);
	gm_schedule_begin(&s, 1, 0, false);
	gm_schedule_divide(&s);
	assert_int_equal(s.n_part, 0);
	gm_schedule_free(&s);
}

/* By hand: three rows of one expert each, one slot and two of scratch. What stays is made at once; the third bypass waits for the first. */
static void test_event(void **state)
{
	static const struct gm_slot_copy copies[] = {
		{.slot = 0, .expert = 5}, {.slot = 1, .expert = 6}, {.slot = 2, .expert = 7}, {.slot = 1, .expert = 8}};
	static const uint32_t copy_of[] = {3, 0, GM_NO_COPY, 3, 1, 2};
	static const int32_t slots[] = {1, 0, 3, 1, 1, 2};
	struct gm_schedule s;
	struct gm_error err = {0};

	(void)state;
	assert_ok(gm_schedule_init(&s, 6, 1, 4, &err), &err);
	gm_schedule_begin(&s, 0, 6, true);
	for (int i = 0; i < 4; i++)
		assert_ok(gm_schedule_copy(&s, &copies[i], &err), &err);
	memcpy(s.slot, slots, sizeof(slots));
	memcpy(s.copy_of, copy_of, sizeof(copy_of));
	gm_schedule_divide(&s);
	assert_true(s.one_event && s.n_part == 1 && s.n_ready == 1 && s.pick[0] == 2);
	assert_true(s.copy[0].stays && !s.copy[1].stays && s.copy[2].stays && !s.copy[3].stays);
	assert_true(s.copy[1].after == 0 && s.copy[3].after == 2);
	assert_int_equal(s.copy[3].n_pick, 2);
	assert_int_equal(s.pick[s.copy[3].first_pick], 0);
	assert_int_equal(s.pick[s.copy[3].first_pick + 1], 3);
	gm_schedule_begin(&s, 0, 1, true);
	assert_false(s.one_event); /* a single row is computed as ever */
	gm_schedule_free(&s);
}

static void test_cpu_is_refused(void **state)
{
	struct gm_decision decision[MAX_K];
	struct gm_error err = {0};
	struct bench b;

	(void)state;
	start(&b, 1, (struct way){.scope = GM_SCOPE_LAYER}, "lru", "fetch", "fetch");
	for (uint32_t r = 0; r < b.config.top_k; r++)
		decision[r] = (struct gm_decision){.action = GM_CPU, .expert = (uint16_t)r};
	gm_slots_begin(b.slots, 0, 1, false);
	assert_int_equal(gm_slots_decided(b.slots, decision, &err), GM_ERR_UNSUPPORTED);
	stop(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layer),           cmocka_unit_test(test_global),
		cmocka_unit_test(test_layer_in_flight), cmocka_unit_test(test_global_in_flight),
		cmocka_unit_test(test_parts),           cmocka_unit_test(test_cpu_is_refused),
		cmocka_unit_test(test_batch),           cmocka_unit_test(test_batch_in_flight),
		cmocka_unit_test(test_event),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
