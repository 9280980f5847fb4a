/* Copies by the link's thread, with real slots and policies, on a plugin of host memory: whatever is decided, each row finds all bytes of its experts
 * in its slots while other slots are being filled. Built with ThreadSanitizer too (make check-engine-threads). */
#include "engine/copies.h"
#include "policies/table.h"
#include "tests/unit/test_engine_common.h"

enum {
	N_LAYER = 3,
	N_EXPERT = 11, /* a prime: each step from each start is an order of all */
	TOP_K = 3,
	MAX_ROW = 7,
	MAX_SLOT = N_LAYER * N_EXPERT + TOP_K + 1,
	N_WORD = 64
};

/* --- a plugin whose device is host memory: experts of two tensors, the first and the third --- */

struct expert {
	uint32_t word[2][N_WORD];
};

struct gm_plugin {
	struct expert host[N_LAYER][N_EXPERT], device[N_LAYER][MAX_SLOT];
	struct gm_plugin_copier copier;
	bool shared; /* one pool */
	int n_good;  /* copies until one fails; negative: none */
	uint32_t n_given_back;
};

static struct expert *device(struct gm_plugin *plugin, uint32_t layer)
{
	return plugin->device[plugin->shared ? 0 : layer];
}

static int copy_words(void *user, void *to, size_t offset, const void *from, size_t bytes, struct gm_error *err)
{
	struct gm_plugin *plugin = user;

	if (plugin->n_good == 0)
		return gm_fail(err, GM_ERR_IO, "the device is out of order");
	plugin->n_good -= plugin->n_good > 0;
	return gm_link_memcpy.copy(NULL, to, offset, from, bytes, err);
}

int gm_plugin_link_ops(struct gm_plugin *plugin, struct gm_link_ops *ops, struct gm_error *err)
{
	(void)err;
	*ops = (struct gm_link_ops){.copy = copy_words, .user = plugin};
	return GM_OK;
}

struct gm_link_source gm_plugin_link_source(struct gm_plugin *plugin)
{
	(void)plugin;
	return (struct gm_link_source){0};
}

void gm_plugin_set_copier(struct gm_plugin *plugin, const struct gm_plugin_copier *copier)
{
	plugin->copier = copier ? *copier : (struct gm_plugin_copier){0};
}

int gm_plugin_request(struct gm_plugin *plugin, uint32_t layer, uint32_t expert, uint32_t slot, uint32_t only,
		      struct gm_link_request *request, struct gm_error *err)
{
	(void)err;
	memset(request, 0, sizeof(*request));
	for (size_t i = 0; i < 2; i++)
		if (only == GM_PLUGIN_MAX_PART || only == 2 * i)
			request->piece[2 * i] = (struct gm_link_piece){.to = device(plugin, layer)[slot].word[i],
								       .from = plugin->host[layer][expert].word[i],
								       .bytes = sizeof(uint32_t[N_WORD])};
	return GM_OK;
}

void gm_plugin_give_back(struct gm_plugin *plugin, const struct gm_link_request *request)
{
	(void)request;
	plugin->n_given_back++;
}

/* --- an engine without a model --- */

struct engine {
	struct gm_plugin plugin;
	struct gm_core_config config;
	uint32_t n_slot[N_LAYER];
	uint64_t bytes[N_LAYER];
	struct gm_scratch *scratch;
	struct gm_core *core;
	struct gm_copies *copies;
	struct gm_slots *slots;
	struct fixture_random random;
	bool batch; /* a pass is one event */
	uint64_t n_row, n_part, n_copy, n_late, n_landed;
};

static void on_landed(void *user, uint64_t event, uint32_t layer, uint32_t expert)
{
	(void)event, (void)layer, (void)expert;
	((struct engine *)user)->n_landed++;
}

static int put(void *user, uint32_t layer, uint32_t expert, uint32_t slot, struct gm_error *err)
{
	struct engine *e = user;

	(void)err;
	device(&e->plugin, layer)[slot] = e->plugin.host[layer][expert];
	return GM_OK;
}

/* No two words are equal. */
static void fill(struct gm_plugin *plugin)
{
	uint32_t n = 0;

	for (int layer = 0; layer < N_LAYER; layer++)
		for (int expert = 0; expert < N_EXPERT; expert++)
			for (int i = 0; i < 2; i++)
				for (int w = 0; w < N_WORD; w++)
					plugin->host[layer][expert].word[i][w] = ++n;
}

static void start(struct engine *e, uint64_t seed, enum gm_scope scope, const char *evict, const char *miss,
		  struct gm_throttle throttle, bool batch)
{
	struct gm_copies_options copies = {
		.n_layer = N_LAYER, .n_expert = N_EXPERT, .n_slot = N_LAYER * MAX_SLOT, .throttle = throttle};
	struct gm_slots_options slots = {.max_row = MAX_ROW, .on_landed = on_landed, .user = e};
	struct gm_error err = {0};

	memset(e, 0, sizeof(*e));
	fixture_random_begin(&e->random, seed, "copies");
	e->batch = batch;
	e->plugin.n_good = -1;
	e->plugin.shared = scope == GM_SCOPE_GLOBAL;
	fill(&e->plugin);
	for (int l = 0; l < N_LAYER; l++) {
		e->n_slot[l] = 1 + random_below(&e->random, N_EXPERT);
		e->bytes[l] = sizeof(struct expert);
	}
	e->config = (struct gm_core_config){.n_layer = N_LAYER,
					    .n_expert = N_EXPERT,
					    .top_k = TOP_K,
					    .scope = scope,
					    .n_slot = e->n_slot,
					    .pool_bytes = sizeof(struct expert) *
							  (1 + random_below(&e->random, N_LAYER * N_EXPERT)),
					    .expert_bytes = e->bytes};
	assert_ok(gm_evict_parse(evict, &e->config.evict, &err), &err);
	assert_ok(gm_miss_parse(miss, &e->config.miss, &err), &err);
	assert_ok(gm_admit_parse("background:0.2", &e->config.admit, &err), &err);
	e->copies = gm_copies_new(&e->plugin, &copies, &err);
	assert_non_null(e->copies);
	slots.config = &e->config;
	slots.n_scratch = gm_slots_scratch(&e->config, true, batch);
	slots.background = gm_copies_background(e->copies);
	e->slots = gm_slots_new(&slots, &err);
	e->scratch = gm_scratch_new(N_EXPERT, TOP_K, &err);
	assert_true(e->slots && e->scratch);
	gm_copies_set_slots(e->copies, e->slots);
	e->core = gm_core_init(calloc(1, gm_core_bytes(&e->config)), &e->config, gm_slots_arrivals(e->slots), e->scratch);
	assert_ok(gm_slots_start(e->slots, e->core, put, e, &err), &err);
}

/* From a cold cache. */
static void again(struct engine *e)
{
	struct gm_error err = {0};

	assert_ok(gm_copies_clear(e->copies, &err), &err);
	gm_core_reset(e->core);
	assert_ok(gm_slots_start(e->slots, e->core, put, e, &err), &err);
}

static void stop(struct engine *e)
{
	gm_copies_free(e->copies);
	assert_null(e->plugin.copier.copy);
	gm_slots_free(e->slots);
	gm_scratch_free(e->scratch);
	free(e->core);
}

/* --- a layer --- */

/* The picks of a row that wait for copy c; n_copy: for none. */
static void check_picks(struct engine *e, const struct gm_schedule *schedule, const int32_t *expert, uint32_t row,
			uint32_t c)
{
	for (uint32_t i = row * TOP_K; i < (row + 1) * TOP_K; i++) {
		uint32_t its = 0;

		while (its < schedule->n_copy && (int32_t)schedule->copy[its].slot != schedule->slot[i])
			its++;
		if (c == its)
			assert_memory_equal(&device(&e->plugin, schedule->layer)[schedule->slot[i]],
					    &e->plugin.host[schedule->layer][expert[i]], sizeof(struct expert));
	}
}

/* What is there is looked at while the rest is copied, and that as it arrives. */
static int compute_row(struct engine *e, const struct gm_schedule *schedule, const int32_t *expert, struct gm_error *err)
{
	const struct gm_plugin_copier *copier = &e->plugin.copier;

	check_picks(e, schedule, expert, 0, schedule->n_copy);
	for (uint32_t c = 0; c < schedule->n_copy; c++) {
		GM_TRY(copier->copy(copier->user, schedule, c, 1, GM_PLUGIN_MAX_PART, err));
		check_picks(e, schedule, expert, 0, c);
	}
	return GM_OK;
}

/* Both tensors at once, or one after the other. */
static int get_copies(struct engine *e, const struct gm_schedule *schedule, uint32_t first, uint32_t n, bool whole,
		      struct gm_error *err)
{
	const struct gm_plugin_copier *copier = &e->plugin.copier;

	if (whole)
		return copier->copy(copier->user, schedule, first, n, GM_PLUGIN_MAX_PART, err);
	GM_TRY(copier->copy(copier->user, schedule, first, n, 0, err));
	return copier->copy(copier->user, schedule, first, n, 2, err);
}

/* Each part's copies, then its rows. A slot may be filled again for a later part. */
static int compute_parts(struct engine *e, const struct gm_schedule *schedule, const int32_t *expert, struct gm_error *err)
{
	bool whole = random_below(&e->random, 2) == 0;
	uint32_t c = 0, row = 0;

	for (uint32_t p = 0; p < schedule->n_part; p++) {
		uint32_t first = c;

		while (c < schedule->n_copy && schedule->copy[c].row < schedule->end[p])
			c++;
		if (c > first)
			GM_TRY(get_copies(e, schedule, first, c - first, whole, err));
		for (; row < schedule->end[p]; row++)
			for (uint32_t i = 0; i <= schedule->n_copy; i++)
				check_picks(e, schedule, expert, row, i);
	}
	return GM_OK;
}

/* Picks first ... first + n - 1 in the schedule's order find their experts. */
static void check_brought(struct engine *e, const struct gm_schedule *schedule, const int32_t *expert, uint32_t first,
			  uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++) {
		uint32_t place = schedule->pick[i];

		assert_memory_equal(&device(&e->plugin, schedule->layer)[schedule->slot[place]],
				    &e->plugin.host[schedule->layer][expert[place]], sizeof(struct expert));
	}
}

/* One event: by expert, with both tensors at once, or twice, for one after the other. */
static int compute_event(struct engine *e, const struct gm_schedule *schedule, const int32_t *expert, struct gm_error *err)
{
	bool whole = random_below(&e->random, 2) == 0;

	GM_TRY(get_copies(e, schedule, 0, 0, whole, err));
	check_brought(e, schedule, expert, 0, schedule->n_ready);
	for (uint32_t c = 0; c < schedule->n_copy; c++) {
		GM_TRY(get_copies(e, schedule, c, 1, whole, err));
		check_brought(e, schedule, expert, schedule->copy[c].first_pick, schedule->copy[c].n_pick);
	}
	return GM_OK;
}

static void rank(struct engine *e, uint16_t *ranked)
{
	/* the first experts are liked */
	uint32_t from = random_below(&e->random, 1 + random_below(&e->random, N_EXPERT));
	uint32_t step = 1 + random_below(&e->random, N_EXPERT - 1);

	for (uint32_t i = 0; i < N_EXPERT; i++)
		ranked[i] = (uint16_t)((from + i * step) % N_EXPERT);
}

/* An event of n rows and its decisions; expert [n][TOP_K] out. */
static int decide(struct engine *e, uint32_t layer, uint64_t token, uint32_t n, int32_t *expert, struct gm_error *err)
{
	static const double gates[TOP_K] = {0.5, 0.3, 0.2};
	struct gm_decision decision[MAX_ROW * TOP_K];
	uint16_t ranked[MAX_ROW * N_EXPERT];
	double gate[MAX_ROW * TOP_K];
	const struct gm_rows rows = {.n = n, .ranked = ranked, .n_ranked = N_EXPERT, .gate = gate};

	for (size_t row = 0; row < n; row++) {
		rank(e, ranked + row * N_EXPERT);
		memcpy(gate + row * TOP_K, gates, sizeof(gates));
	}
	GM_TRY(gm_event(e->core, layer, token, &rows, NULL, false, decision, err));
	for (size_t row = 0; row < n; row++)
		GM_TRY(gm_slots_decided(e->slots, decision + row * TOP_K, err));
	for (size_t p = 0; p < (size_t)n * TOP_K; p++)
		expert[p] = decision[p].action == GM_SUBSTITUTE ? decision[p].substitute : decision[p].expert;
	return GM_OK;
}

/* In the order of engine/cache.c. */
static int run_layer(struct engine *e, uint32_t layer, uint32_t n_row, uint64_t token, struct gm_error *err)
{
	int32_t expert[MAX_ROW * TOP_K];
	const struct gm_schedule *schedule;
	bool changed = false;

	uint32_t n_together = e->batch ? n_row : 1;

	gm_slots_begin(e->slots, layer, n_row, e->batch);
	for (size_t row = 0; row < n_row; row += n_together)
		GM_TRY(decide(e, layer, token + row, n_together, expert + row * TOP_K, err));
	GM_TRY(gm_slots_experts(e->slots, 0, n_row, expert, &changed, err));
	schedule = gm_slots_schedule(e->slots);
	GM_TRY(gm_copies_order(e->copies, schedule, err));
	if (n_row == 1 || e->batch)
		GM_TRY(gm_slots_end(e->slots, err));
	if (n_row == 1) {
		GM_TRY(compute_row(e, schedule, expert, err));
	} else if (e->batch) {
		GM_TRY(compute_event(e, schedule, expert, err));
	} else {
		GM_TRY(compute_parts(e, schedule, expert, err));
	}
	for (uint32_t c = 0; c < schedule->n_copy; c++)
		e->n_late += schedule->copy[c].ordered;
	e->n_copy += schedule->n_copy;
	e->n_part += schedule->n_part;
	e->n_row += n_row;
	gm_copies_end(e->copies);
	return gm_slots_end(e->slots, err);
}

static int run(struct engine *e, uint32_t n_pass, struct gm_error *err)
{
	for (uint32_t pass = 0; pass < n_pass; pass++) {
		bool one_by_one = e->plugin.shared && !e->batch;
		uint32_t n_row = one_by_one || random_below(&e->random, 2) ? 1 : 1 + random_below(&e->random, MAX_ROW);

		for (uint32_t layer = 0; layer < N_LAYER; layer++)
			GM_TRY(run_layer(e, layer, n_row, e->n_row, err));
	}
	return GM_OK;
}

/* --- tests --- */

static void run_random(bool batch)
{
	static const char *const evicts[] = {"lru", "fifo", "lfu", "lfu-decay:8"};
	static const char *const misses[] = {"fetch", "threshold:0.3", "first-choice", "substitute"};
	static const struct gm_throttle throttles[] = {{0}, {.latency_us = 30}};
	struct engine e, sum = {0};
	struct gm_error err = {0};

	for (uint64_t seed = 0; seed < 64; seed++) {
		start(&e, seed, seed / 32 ? GM_SCOPE_GLOBAL : GM_SCOPE_LAYER, evicts[seed % 4], misses[seed / 4 % 4],
		      throttles[seed / 16 % 2], batch);
		assert_ok(run(&e, 40, &err), &err);
		again(&e); /* with copies still under way */
		assert_ok(run(&e, 10, &err), &err);
		sum.n_row += e.n_row;
		sum.n_part += e.n_part;
		sum.n_copy += e.n_copy;
		sum.n_late += e.n_late;
		sum.n_landed += e.n_landed;
		assert_int_equal(e.plugin.n_given_back, 0);
		stop(&e);
	}
	print_message("%llu rows in %llu parts, %llu copies that were waited for, %llu of them late, %llu that landed\n",
		      (unsigned long long)sum.n_row, (unsigned long long)sum.n_part, (unsigned long long)sum.n_copy,
		      (unsigned long long)sum.n_late, (unsigned long long)sum.n_landed);
	assert_true(sum.n_part < sum.n_row && sum.n_copy && sum.n_late && sum.n_landed);
}

static void test_random(void **state)
{
	(void)state;
	run_random(false);
}

static void test_random_batch(void **state)
{
	(void)state;
	run_random(true);
}

/* The error comes back from whatever needs the copies, now or soon; then all goes on from the start. */
static void test_copy_fails(void **state)
{
	struct engine e;

	(void)state;
	for (int n_good = 0; n_good < 16; n_good += 3)
		for (int kind = 0; kind < 4; kind++) {
			struct gm_error err = {0};

			start(&e, 100 + (uint64_t)n_good, GM_SCOPE_LAYER, "lru", kind % 2 ? "substitute" : "fetch",
			      (struct gm_throttle){0}, kind / 2);
			e.plugin.n_good = n_good;
			/* as many passes as the link's thread needs to come to it */
			assert_fails(run(&e, 1000000, &err), GM_ERR_IO, "out of order", &err);
			again(&e);
			e.plugin.n_good = -1; /* while no copy is under way */
			assert_ok(run(&e, 20, &err), &err);
			stop(&e);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_random_batch),
		cmocka_unit_test(test_copy_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
