/* Conformance of every entry of the policy table to the contract in policies/policy.h, and parsing. */
#include "policies/table.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_ITEM 40
#define N_SLOT 12
#define N_STEP 2000

/* A pool driven at random by the contract's call order. Requests are pinned unless the policy spares them by itself. */
struct world {
	const struct gm_evict_ops *ops;
	void *state;
	size_t bytes;
	uint8_t residency[N_ITEM];
	uint8_t pin[N_ITEM], stamp;
	uint32_t resident[N_SLOT], n_resident, n_reserved;
	uint16_t request[4]; /* of the last access */
	uint64_t token, rng;
};

static uint32_t below(struct world *w, uint32_t n)
{
	w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(w->rng >> 33) % n;
}

static struct gm_pool_dims dims(void)
{
	return (struct gm_pool_dims){.n_item = N_ITEM, .n_slot = N_SLOT, .n_expert = N_ITEM, .seed = 7};
}

static const double *args(const struct gm_policy_info *info)
{
	static double arg[GM_MAX_ARG];

	for (int i = 0; i < info->n_param; i++)
		arg[i] = info->param[i].words ? 0 : info->param[i].max < 10 ? info->param[i].max / 2 : 10;
	return arg;
}

static void start(struct world *w, const struct gm_evict_ops *ops)
{
	struct gm_pool_dims d = dims();

	*w = (struct world){.ops = ops, .rng = 99};
	w->bytes = ops->state_bytes(&d, args(&ops->info));
	w->state = calloc(1, w->bytes + 1);
	assert_non_null(w->state);
	((char *)w->state)[w->bytes] = 0x5a; /* a guard behind the block */
	ops->init(w->state, &d, args(&ops->info), false);
}

static void stop(struct world *w)
{
	assert_int_equal(((char *)w->state)[w->bytes], 0x5a);
	free(w->state);
}

static uint32_t ask(struct world *w, uint32_t incoming)
{
	struct gm_requests requests = {.n = 4, .expert = w->request};
	struct gm_candidates c = {
		.residency = w->residency, .pin = w->pin, .stamp = w->stamp, .token = w->token, .requests = &requests};

	return w->ops->victim(w->state, &c, incoming);
}

/* A request that a policy spares though it has no pin. */
static bool is_spared(const struct world *w, uint32_t item)
{
	bool spares = (w->ops->info.flags & GM_SPARES_REQUESTS) != 0;

	return spares && (item == w->request[0] || item == w->request[1] || item == w->request[2] || item == w->request[3]);
}

static bool make_room(struct world *w, uint32_t incoming)
{
	uint32_t n_candidate = 0;

	if (w->n_resident + w->n_reserved < N_SLOT)
		return true;
	for (uint32_t i = 0; i < N_ITEM; i++)
		n_candidate += w->residency[i] == GM_RESIDENT && w->pin[i] != w->stamp && !is_spared(w, i);
	uint32_t victim = ask(w, incoming);

	assert_int_equal(victim, ask(w, incoming)); /* asking changes nothing */
	if (n_candidate == 0)
		assert_true(victim == GM_NO_ITEM);
	if (victim == GM_NO_ITEM || victim == incoming) {
		assert_true(n_candidate == 0 || victim == incoming);
		return false;
	}
	assert_int_equal(w->residency[victim], GM_RESIDENT);
	assert_true(w->pin[victim] != w->stamp);
	assert_false(is_spared(w, victim));
	for (uint32_t i = 0; i < w->n_resident; i++)
		if (w->resident[i] == victim) {
			w->resident[i] = w->resident[--w->n_resident];
			break;
		}
	w->residency[victim] = GM_ABSENT;
	w->ops->forget(w->state, victim);
	return true;
}

static void become_resident(struct world *w, uint32_t item)
{
	w->residency[item] = GM_RESIDENT;
	w->resident[w->n_resident++] = item;
	if (!(w->ops->info.flags & GM_SPARES_REQUESTS))
		w->pin[item] = w->stamp;
}

/* One event: four distinct requests; some misses are fetched, some reserved, reserved items land now and then. */
static void step(struct world *w)
{
	bool spares = (w->ops->info.flags & GM_SPARES_REQUESTS) != 0;
	uint16_t *request = w->request;
	uint64_t next_use[4];
	uint8_t plan[4];

	if (++w->stamp == 0) {
		memset(w->pin, 0, sizeof(w->pin));
		w->stamp = 1;
	}
	w->token++;
	for (uint32_t i = 0; i < N_ITEM; i++) {
		if (w->residency[i] == GM_RESERVED && below(w, 2)) {
			w->n_reserved--;
			w->residency[i] = GM_RESIDENT;
			w->resident[w->n_resident++] = i;
			w->ops->land(w->state, i);
		}
	}
	for (uint32_t r = 0; r < 4; r++) {
		request[r] = (uint16_t)(below(w, N_ITEM / 4) * 4 + r);
		next_use[r] = below(w, 10) ? w->token + 1 + below(w, 50) : GM_NEVER;
		plan[r] = (uint8_t)below(w, 3);
		if (w->residency[request[r]] == GM_RESIDENT && !spares)
			w->pin[request[r]] = w->stamp;
	}
	struct gm_requests requests = {.n = 4, .expert = request, .next_use = next_use, .token = w->token};

	w->ops->access(w->state, &requests);
	for (uint32_t r = 0; r < 4; r++) {
		uint16_t item = request[r];

		if (w->residency[item] == GM_ABSENT && plan[r] == 1 && make_room(w, item)) {
			become_resident(w, item);
			w->ops->insert(w->state, item, false);
		} else if (w->residency[item] == GM_ABSENT && plan[r] == 2 && make_room(w, GM_NO_ITEM)) {
			w->n_reserved++;
			w->residency[item] = GM_RESERVED;
			w->ops->reserve(w->state, item);
		}
	}
}

static void test_eviction_policies(void **state)
{
	(void)state;
	for (int i = 0; gm_evict_table[i]; i++) {
		const struct gm_evict_ops *ops = gm_evict_table[i];
		struct world w;

		if (ops->info.flags & GM_ALL_RESIDENT)
			continue; /* never asked for a victim */
		start(&w, ops);
		for (int s = 0; s < N_STEP; s++)
			step(&w);
		stop(&w);
	}
}

/* A state is a flat block: a copy goes on as the original does. */
static void test_state_can_be_copied(void **state)
{
	(void)state;
	for (int i = 0; gm_evict_table[i]; i++) {
		struct world a, b;

		if (gm_evict_table[i]->info.flags & GM_ALL_RESIDENT)
			continue;
		start(&a, gm_evict_table[i]);
		for (int s = 0; s < N_STEP / 2; s++)
			step(&a);
		b = a;
		b.state = malloc(a.bytes + 1);
		assert_non_null(b.state);
		memcpy(b.state, a.state, a.bytes + 1);
		for (int s = 0; s < N_STEP / 2; s++) {
			step(&a);
			step(&b);
		}
		assert_memory_equal(a.residency, b.residency, N_ITEM);
		assert_memory_equal(a.state, b.state, a.bytes);
		stop(&a);
		stop(&b);
	}
}

/* Reset between sequences: what a policy learnt is gone, so a replay from there on is that of a fresh one. */
static void test_reset_forgets(void **state)
{
	(void)state;
	for (int i = 0; gm_evict_table[i]; i++) {
		const struct gm_evict_ops *ops = gm_evict_table[i];
		struct gm_pool_dims d = dims();
		struct world used, fresh;

		if (ops->info.flags & (GM_ALL_RESIDENT | GM_NEEDS_NEXT_USE))
			continue; /* those may keep what they know of the future */
		start(&used, ops);
		for (int s = 0; s < N_STEP; s++)
			step(&used);
		ops->init(used.state, &d, args(&ops->info), true);
		void *state_block = used.state;
		size_t bytes = used.bytes;

		start(&fresh, ops);
		used = fresh;
		used.state = state_block;
		assert_int_equal(bytes, fresh.bytes);
		for (int s = 0; s < N_STEP; s++) {
			step(&used);
			step(&fresh);
		}
		assert_memory_equal(used.residency, fresh.residency, N_ITEM);
		stop(&used);
		stop(&fresh);
	}
}

/* lfu-decay by its formula, step by step: the rule as docs/semantics.md has it. */
struct fading {
	double half_life, count[9];
	uint64_t token[9], last[9];
};

static double faded(const struct fading *f, uint32_t item, uint64_t now)
{
	return f->count[item] * exp2(-(double)(now - f->token[item]) / f->half_life);
}

static uint32_t first_to_leave(const struct fading *f, const uint8_t *residency, const uint16_t *pinned, uint64_t now)
{
	uint32_t best = GM_NO_ITEM;

	for (uint32_t i = 0; i < 9; i++) {
		if (residency[i] != GM_RESIDENT || i == pinned[0] || i == pinned[1])
			continue;
		if (best == GM_NO_ITEM || faded(f, i, now) < faded(f, best, now) ||
		    (!(faded(f, i, now) > faded(f, best, now)) && f->last[i] < f->last[best]))
			best = i;
	}
	return best;
}

/* Long skewed traces with short half-lives, where counts come so close that rounding decides. */
static void test_lfu_decay_is_its_formula(void **state)
{
	static const double half_lives[] = {0.3, 1, 3, 5, 20};
	struct gm_evict evict;
	struct gm_error err = {0};

	(void)state;
	for (size_t h = 0; h < sizeof(half_lives) / sizeof(*half_lives); h++) {
		struct gm_pool_dims d = {.n_item = 9, .n_slot = 3, .n_expert = 9};
		struct fading f = {.half_life = half_lives[h]};
		uint8_t residency[9] = {0};
		uint8_t pin[16] = {0};
		uint32_t n_resident = 0;
		struct world w = {.rng = h};
		uint64_t tick = 0;

		assert_int_equal(gm_evict_parse("lfu-decay:1", &evict, &err), 0);
		evict.arg[0] = half_lives[h];
		void *pool = calloc(1, evict.ops->state_bytes(&d, evict.arg));

		assert_non_null(pool);
		evict.ops->init(pool, &d, evict.arg, false);
		for (uint32_t t = 0; t < 20000; t++) {
			uint16_t pick[2] = {(uint16_t)(below(&w, 3) ? below(&w, 3) : below(&w, 9)), 0};
			struct gm_requests requests = {.n = 2, .expert = pick, .token = t};
			struct gm_candidates c = {.residency = residency, .pin = pin, .stamp = 1, .token = t};

			memset(pin, 0, sizeof(pin));
			do
				pick[1] = (uint16_t)(below(&w, 2) ? below(&w, 4) : below(&w, 9));
			while (pick[1] == pick[0]);
			for (int i = 0; i < 2; i++) {
				f.count[pick[i]] = faded(&f, pick[i], t) + 1;
				f.token[pick[i]] = t;
				f.last[pick[i]] = ++tick;
				pin[pick[i]] = 1;
			}
			evict.ops->access(pool, &requests);
			for (int i = 0; i < 2; i++) {
				if (residency[pick[i]] == GM_RESIDENT)
					continue;
				if (n_resident == 3) {
					uint32_t victim = evict.ops->victim(pool, &c, pick[i]);

					assert_int_equal(victim, first_to_leave(&f, residency, pick, t));
					residency[victim] = GM_ABSENT;
					evict.ops->forget(pool, victim);
					n_resident--;
				}
				residency[pick[i]] = GM_RESIDENT;
				evict.ops->insert(pool, pick[i], false);
				n_resident++;
			}
		}
		free(pool);
	}
}

static void test_miss_rules(void **state)
{
	static const uint16_t expert[4] = {9, 3, 7, 1};
	static const double gate[4] = {0.4, 0.3, 0.2, 0.1};
	static const uint8_t class[4] = {GM_MISS, GM_HIT, GM_LATE, GM_MISS};
	static const uint32_t missed[3] = {0, 2, 3};
	static const uint8_t residency[10];

	(void)state;
	for (int i = 0; gm_miss_table[i]; i++) {
		const struct gm_miss_ops *ops = gm_miss_table[i];
		size_t bytes = ops->state_bytes ? ops->state_bytes(2, args(&ops->info)) : 0;
		void *memory = calloc(1, bytes + 1);
		struct gm_miss_row row = {.top_k = 4,
					  .expert = expert,
					  .gate = gate,
					  .missed = missed,
					  .n_missed = 3,
					  .class = class,
					  .residency = residency};
		uint8_t action[4] = {GM_USE, GM_USE, GM_USE, GM_USE};

		assert_non_null(memory);
		if (ops->init)
			ops->init(memory, 2, args(&ops->info), 1);
		ops->decide(memory, args(&ops->info), &row, action);
		assert_int_equal(action[1], GM_USE);
		for (int r = 0; r < 4; r++) {
			if (class[r] != GM_HIT)
				assert_true(action[r] >= GM_FETCH && action[r] <= GM_CPU);
			if (action[r] == GM_SUBSTITUTE)
				assert_true(ops->info.flags & GM_NEEDS_RANKING);
			if (action[r] == GM_SUBSTITUTE || action[r] == GM_DROP)
				assert_true(ops->info.flags & GM_NEEDS_GATES); /* their mass is counted */
		}
		free(memory);
	}
}

static void expect_actions(const char *text, const char *want)
{
	static const uint16_t expert[4] = {9, 3, 7, 1};
	static const double gate[4] = {0.5, 0.25, 0.15, 0.1};
	static const uint8_t class[4] = {GM_MISS, GM_MISS, GM_LATE, GM_MISS};
	static const uint32_t missed[4] = {0, 1, 2, 3};
	struct gm_miss_row row = {
		.top_k = 4, .expert = expert, .gate = gate, .missed = missed, .n_missed = 4, .class = class};
	uint8_t action[4] = {0};
	struct gm_error err = {0};
	struct gm_miss miss;
	char got[5] = "";

	assert_int_equal(gm_miss_parse(text, &miss, &err), 0);
	miss.ops->decide(NULL, miss.arg, &row, action);
	for (int r = 0; r < 4; r++)
		got[r] = "UFSDC"[action[r]];
	assert_string_equal(got, want);
}

static void test_miss_rules_by_hand(void **state)
{
	(void)state;
	expect_actions("fetch", "FFFF");
	expect_actions("threshold:0.15", "FFFS");
	expect_actions("threshold:1", "FSSS");
	expect_actions("first-choice", "FSSS");
	expect_actions("substitute", "SSSS");
	expect_actions("drop:0.2", "FFDD");
	expect_actions("cpu", "CCCC");
}

/* `fetches` says in bits what `decide` says pick by pick. */
static void test_fetches_is_decide(void **state)
{
	uint16_t expert[64];
	uint8_t class[64], action[64];
	uint32_t missed[64];
	double gate[64];

	(void)state;
	for (uint32_t r = 0; r < 64; r++) {
		expert[r] = (uint16_t)r;
		class[r] = GM_MISS;
		missed[r] = r;
		gate[r] = r * 37 % 64 / 64.0;
	}
	for (int i = 0; gm_miss_table[i]; i++) {
		const struct gm_miss_ops *ops = gm_miss_table[i];
		double arg[GM_MAX_ARG] = {23 / 64.0};

		for (uint32_t n = 1; ops->fetches && n <= 64; n++) {
			struct gm_miss_row row = {.top_k = n,
						  .expert = expert,
						  .gate = gate,
						  .missed = missed,
						  .n_missed = n,
						  .class = class};
			uint64_t bits = ops->fetches(arg, gate, n);

			ops->decide(NULL, arg, &row, action);
			for (uint32_t r = 0; r < n; r++)
				assert_int_equal(action[r], bits >> r & 1 ? GM_FETCH : GM_SUBSTITUTE);
		}
	}
}

static bool asks(const struct gm_admit *admit, void *state, uint16_t expert, double gate)
{
	uint64_t asked = admit->ops->substituted(state, admit->arg, 0, &expert, &gate, 1);

	assert_true(asked <= 1);
	return asked == 1;
}

static void test_background_admission(void **state)
{
	struct gm_error err = {0};
	struct gm_admit admit;

	(void)state;
	assert_int_equal(gm_admit_parse("background:0.5", &admit, &err), 0);
	void *acc = calloc(1, admit.ops->state_bytes(3));

	assert_non_null(acc);
	assert_false(asks(&admit, acc, 1, 0.25));
	assert_false(asks(&admit, acc, 2, 0.25));
	assert_true(asks(&admit, acc, 1, 0.25));  /* 0.5 is enough */
	assert_true(asks(&admit, acc, 1, 0.125)); /* refused: the sum stays */
	admit.ops->queued(acc, 1);
	assert_false(asks(&admit, acc, 1, 0.25));
	free(acc);
}

static void test_tables(void **state)
{
	(void)state;
	for (int kind = GM_POLICY_EVICT; kind <= GM_POLICY_ADMIT; kind++) {
		const struct gm_policy_info *info, *other;

		for (int i = 0; (info = gm_policy_info((enum gm_policy_kind)kind, i)); i++) {
			assert_true(strlen(info->help) > 10);
			assert_null(strchr(info->help, '\n'));
			assert_null(strchr(info->name, ':'));
			for (int j = 0; j < i; j++) {
				other = gm_policy_info((enum gm_policy_kind)kind, j);
				assert_string_not_equal(info->name, other->name);
			}
		}
	}
	for (const struct gm_preset *p = gm_preset_table; p->name; p++) {
		struct gm_error err = {0};
		struct gm_evict evict;
		struct gm_admit admit;
		struct gm_miss miss;

		assert_true(!p->evict || gm_evict_parse(p->evict, &evict, &err) == 0);
		assert_true(!p->miss || gm_miss_parse(p->miss, &miss, &err) == 0);
		assert_true(!p->admit || gm_admit_parse(p->admit, &admit, &err) == 0);
	}
}

static void expect_evict(const char *text, const char *canonical)
{
	struct gm_error err = {0};
	struct gm_evict evict;
	char out[GM_POLICY_TEXT];

	assert_int_equal(gm_evict_parse(text, &evict, &err), 0);
	assert_string_equal(gm_policy_format(&evict.ops->info, evict.arg, out), canonical);
}

static void expect_refusal(const char *text, const char *message)
{
	struct gm_error err = {0};
	struct gm_evict evict;

	assert_int_equal(gm_evict_parse(text, &evict, &err), GM_ERR_USAGE);
	assert_string_equal(err.text, message);
}

static void test_parsing(void **state)
{
	(void)state;
	expect_evict("lru", "lru");
	expect_evict("lfu-decay:64", "lfu-decay:64");
	expect_evict("lfu-decay:1e2", "lfu-decay:100");
	expect_refusal("lru:3", "lru takes 0 arguments, 1 given: write lru");
	expect_refusal("lfu-decay", "lfu-decay takes 1 argument, 0 given: write lfu-decay:HALFLIFE");
	expect_refusal("lfu-decay:0", "HALFLIFE of lfu-decay is \"0\": a number above 0 and at most 1000000000000");
	expect_refusal("lfu-decay:x", "HALFLIFE of lfu-decay is \"x\": a number above 0 and at most 1000000000000");
	expect_refusal("lfu-decay:1:2", "lfu-decay takes 1 argument, 2 given: write lfu-decay:HALFLIFE");
	expect_refusal("mru", "unknown eviction policy: one of lru, fifo, lfu, lfu-decay, belady, belady-bypass, nop");
	expect_refusal("", "unknown eviction policy: one of lru, fifo, lfu, lfu-decay, belady, belady-bypass, nop");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_eviction_policies),
		cmocka_unit_test(test_state_can_be_copied),
		cmocka_unit_test(test_reset_forgets),
		cmocka_unit_test(test_lfu_decay_is_its_formula),
		cmocka_unit_test(test_miss_rules),
		cmocka_unit_test(test_miss_rules_by_hand),
		cmocka_unit_test(test_fetches_is_decide),
		cmocka_unit_test(test_background_admission),
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_parsing),
	};

	return cmocka_run_group_tests_name("policies", tests, NULL, NULL);
}
