/* The clock of replays that go ahead of copies beside the work (sim/ahead.h), on schedules that can be counted by hand. */
#include "sim/ahead.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define N_LAYER 2u
#define TOP_K 2u

/* A copy of layer 0 takes 10, one of layer 1 only 1; a dense part takes 1, an expert nothing. */
static double dense_us[N_LAYER] = {1, 1}, gpu_us[N_LAYER], copy_us[N_LAYER] = {10, 1};

struct outcome {
	bool late;
	double token_us;
	struct gm_time_split layer[N_LAYER];
};

/* Two tokens: what the layers' events of the first queue and fetch; those of the second have nothing to do, but find what has landed. */
static struct outcome replay(double token_us, const uint32_t n_queued[N_LAYER], const uint32_t n_fetch[N_LAYER])
{
	struct gm_hw hw = {.n_layer = N_LAYER,
			   .dense_us = dense_us,
			   .gpu_expert_us = gpu_us,
			   .copy_us = copy_us,
			   .token_us = token_us};
	struct gm_error err = {0};
	struct gm_scratch *scratch = gm_scratch_new(TOP_K, TOP_K, &err);
	struct gm_ahead *ahead = gm_ahead_new(N_LAYER, TOP_K, scratch, &err);
	struct outcome out;

	assert_non_null(ahead);
	assert_int_equal(gm_ahead_add(ahead, &hw, &err), GM_OK);
	assert_int_equal(gm_ahead_begin(ahead, 2, &err), GM_OK);
	for (uint32_t l = 0; l < N_LAYER; l++) {
		struct gm_arrivals *arrivals = gm_ahead_arrivals(ahead);
		struct gm_event_log first = {.layer = l, .n_row = 1, .n_work = n_fetch[l], .n_queued = n_queued[l]};
		const struct gm_event_log second = {.layer = l, .n_row = 1};

		first.work_kinds = n_fetch[l] ? GM_WORK_FETCH : 0;
		gm_ahead_set_layer(ahead, l, 0, NULL);
		arrivals->end(arrivals, &first);
		arrivals->end(arrivals, &second);
	}
	gm_ahead_end(ahead, true);
	out.late = gm_ahead_is_late(ahead, &hw);
	for (uint32_t l = 0; l < N_LAYER; l++)
		out.layer[l] = gm_ahead_times(ahead, &hw, &out.token_us)[l];
	gm_ahead_free(ahead);
	gm_scratch_free(scratch);
	return out;
}

static bool is_late(double token_us, uint32_t n_queued_0, uint32_t n_queued_1)
{
	const uint32_t n_queued[N_LAYER] = {n_queued_0, n_queued_1}, n_fetch[N_LAYER] = {0, 0};

	return replay(token_us, n_queued, n_fetch).late;
}

/* Queued at 1, the copies of layer 0 arrive at 11 and 21; those of layer 1, queued at 2, after them, else at 3 and 4. The second events know their
 * routers' output at 3 + token_us and 4 + token_us. */
static void copies_are_late_or_in_time_to_the_bit(void **state)
{
	(void)state;
	assert_false(is_late(8, 1, 0));
	assert_true(is_late(7.999, 1, 0));
	assert_false(is_late(18, 2, 0));
	assert_true(is_late(17.999, 2, 0));
	assert_false(is_late(0, 0, 2));
}

/* As many as there can be, each with its own layer's time: 11, 21, 22, 23. */
static void all_copies_are_under_way_at_once(void **state)
{
	(void)state;
	assert_false(is_late(19, TOP_K, TOP_K));
	assert_true(is_late(18.999, TOP_K, TOP_K));
}

/* Two copies of layer 0 are queued, and layer 1 fetches at 2: from 11, when the first has arrived, to 12, and the second goes on to 22. */
static void a_fetch_waits_only_for_what_is_under_way(void **state)
{
	const uint32_t n_queued[N_LAYER] = {2, 0}, n_fetch[N_LAYER] = {0, 1};
	struct outcome out = replay(9, n_queued, n_fetch);

	(void)state;
	assert_false(out.late);
	assert_true(replay(8.999, n_queued, n_fetch).late);
	assert_true(out.token_us == 18);
	assert_true(out.layer[0].dense == 2 && out.layer[0].link_wait == 0);
	assert_true(out.layer[1].dense == 2 && out.layer[1].link_wait == 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_are_late_or_in_time_to_the_bit),
		cmocka_unit_test(all_copies_are_under_way_at_once),
		cmocka_unit_test(a_fetch_waits_only_for_what_is_under_way),
	};

	return cmocka_run_group_tests_name("replays ahead of copies", tests, NULL, NULL);
}
