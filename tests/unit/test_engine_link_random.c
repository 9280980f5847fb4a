/* Random schedules of jobs against a slow obvious link. */
#include "tests/unit/test_engine_link_common.h"

enum slow_state { SLOW_FREE, SLOW_QUEUED, SLOW_RUNNING, SLOW_ARRIVED };

struct slow_job {
	enum slow_state state;
	bool demand;      /* or promoted */
	unsigned asked;   /* when it was queued or promoted */
	unsigned arrived; /* the how manieth */
	bool pending;
	uint32_t job;
};

#define N_TAG 600u

struct slow_link {
	struct slow_job job[N_TAG]; /* by tag, which is the read too */
	unsigned n_asked, n_arrived, n_begun;
	uint64_t order[N_TAG];
	uint64_t running; /* N_TAG: none */
};

/* The next one to start, or N_TAG. */
static uint64_t slow_next(const struct slow_link *slow, const struct reads *reads)
{
	uint64_t best = N_TAG;

	for (uint64_t tag = 0; tag < N_TAG; tag++) {
		const struct slow_job *j = &slow->job[tag], *b = best < N_TAG ? &slow->job[best] : NULL;

		if (j->state == SLOW_QUEUED &&
		    (!b || j->demand > b->demand || (j->demand == b->demand && j->asked < b->asked)))
			best = tag;
	}
	if (best < N_TAG && slow->job[best].pending && !reads->state[best])
		return N_TAG;
	return best;
}

static void slow_start(struct slow_link *slow, const struct reads *reads)
{
	uint64_t tag = slow->running == N_TAG ? slow_next(slow, reads) : N_TAG;

	if (tag == N_TAG)
		return;
	slow->running = tag;
	slow->job[tag].state = SLOW_RUNNING;
	slow->order[slow->n_begun++] = tag;
}

static void slow_finish(struct slow_link *slow)
{
	slow->job[slow->running].state = SLOW_ARRIVED;
	slow->job[slow->running].arrived = ++slow->n_arrived;
	slow->running = N_TAG;
}

static uint64_t slow_poll(struct slow_link *slow)
{
	uint64_t best = N_TAG;

	for (uint64_t tag = 0; tag < N_TAG; tag++)
		if (slow->job[tag].state == SLOW_ARRIVED && !slow->job[tag].demand &&
		    (best == N_TAG || slow->job[tag].arrived < slow->job[best].arrived))
			best = tag;
	return best;
}

struct play {
	struct fixture_random random;
	struct device device;
	struct reads reads;
	struct slow_link slow;
	struct gm_link *link;
	uint64_t n_tag;
};

/* A random tag whose job is in this state and hands, or N_TAG. */
static uint64_t pick(struct play *p, enum slow_state state, bool is_demand)
{
	uint32_t from = random_below(&p->random, N_TAG);

	for (uint32_t i = 0; i < N_TAG; i++) {
		uint64_t tag = (from + i) % N_TAG;

		if (p->slow.job[tag].state == state && p->slow.job[tag].demand == is_demand)
			return tag;
	}
	return N_TAG;
}

static void play_queue(struct play *p, bool is_demand)
{
	struct slow_job *j = &p->slow.job[p->n_tag];
	struct gm_link_request request = request_of(p->n_tag);
	struct gm_error err = {0};

	if (p->n_tag == N_TAG)
		return;
	*j = (struct slow_job){.state = SLOW_QUEUED, .demand = is_demand, .asked = ++p->slow.n_asked};
	j->pending = random_below(&p->random, 3) == 0;
	if (j->pending)
		request = pending_of(p->n_tag, (uint32_t)p->n_tag);
	if (is_demand)
		assert_ok(gm_link_demand(p->link, &request, &j->job, &err), &err);
	else
		assert_ok(gm_link_background(p->link, &request, &j->job, &err), &err);
	p->n_tag++;
}

static void play_promote(struct play *p)
{
	uint64_t tag = pick(p, (enum slow_state)(SLOW_QUEUED + random_below(&p->random, 3)), false);

	if (tag == N_TAG)
		return;
	promote(p->link, p->slow.job[tag].job);
	p->slow.job[tag].demand = true;
	p->slow.job[tag].asked = ++p->slow.n_asked;
}

static void play_read(struct play *p)
{
	uint32_t from = random_below(&p->random, N_TAG);

	for (uint32_t i = 0; i < N_TAG; i++) {
		uint32_t tag = (from + i) % N_TAG;

		if (p->slow.job[tag].state == SLOW_QUEUED && p->slow.job[tag].pending && !p->reads.state[tag]) {
			reads_end(&p->reads, tag, 1);
			return;
		}
	}
}

/* Lets the copy under way end. The model knows that it has arrived; the link tells the waiter, and a poll sees it soon. */
static void play_step(struct play *p)
{
	uint64_t n_copied = stats_of(p->link).n_copied;

	if (p->slow.running == N_TAG)
		return;
	device_step(&p->device);
	while (stats_of(p->link).n_copied == n_copied)
		pause_us(20);
	slow_finish(&p->slow);
}

static void play_poll(struct play *p)
{
	uint64_t tag = slow_poll(&p->slow);
	struct gm_link_arrival arrival = {.tag = N_TAG};
	struct gm_error err = {0};

	assert_int_equal(gm_link_poll(p->link, HUGE_VAL, &arrival, &err), tag < N_TAG);
	assert_int_equal(arrival.tag, tag);
	if (tag < N_TAG)
		p->slow.job[tag].state = SLOW_FREE;
}

static void play_wait(struct play *p)
{
	uint64_t tag = pick(p, SLOW_ARRIVED, true);

	if (tag == N_TAG)
		return;
	await_job(p->link, p->slow.job[tag].job);
	gm_link_release(p->link, p->slow.job[tag].job);
	p->slow.job[tag].state = SLOW_FREE;
}

static void play_once(struct play *p)
{
	switch (random_below(&p->random, 8)) {
	case 0:
		play_queue(p, true);
		break;
	case 1:
		play_queue(p, false);
		break;
	case 2:
		play_promote(p);
		break;
	case 3:
	case 4:
		play_read(p);
		break;
	case 5:
		play_poll(p);
		break;
	case 6:
		play_wait(p);
		break;
	default:
		play_step(p);
	}
	slow_start(&p->slow, &p->reads);
	device_await(&p->device, p->slow.n_begun);
}

static void check_play(struct play *p)
{
	uint32_t n_used = 0;

	check_order(&p->device, p->slow.order, p->slow.n_begun);
	for (uint32_t tag = 0; tag < N_TAG; tag++) {
		const struct slow_job *j = &p->slow.job[tag];
		bool copied = tag < p->n_tag && j->pending && (j->state == SLOW_FREE || j->state == SLOW_ARRIVED);

		n_used += j->state != SLOW_FREE;
		assert_int_equal(p->reads.n_done[tag], copied);
	}
	assert_int_equal(stats_of(p->link).n_used, n_used);
}

static void test_random_schedules(void **state)
{
	static struct play p;

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		p = (struct play){.random = {seed}, .slow.running = N_TAG};
		device_init(&p.device);
		reads_init(&p.reads);
		p.device.gated = true;
		p.link = open_link(&p.device, &p.reads, (struct gm_link_options){.max_job = N_TAG});
		for (unsigned i = 0; i < 800; i++)
			play_once(&p);
		check_play(&p);
		device_open_gate(&p.device);
		close_link(p.link);
		for (uint32_t tag = 0; tag < p.n_tag; tag++) /* all reads were given back, copied or not */
			assert_int_equal(p.reads.n_done[tag], p.slow.job[tag].pending);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_schedules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
