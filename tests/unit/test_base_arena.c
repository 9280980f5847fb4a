/* base/arena.h: parts lie apart, are zero and can be written to their ends. */
#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_parts(void **state)
{
	static const size_t size[] = {1, 64, 65, 0, 5000000, 3};
	struct gm_error err = {0};
	size_t bytes = 0;
	char *end = NULL;

	(void)state;
	for (int i = 0; i < 6; i++)
		bytes += gm_arena_bytes(size[i]);
	struct gm_arena *arena = gm_arena_new(bytes, &err);

	assert_non_null(arena);
	for (int i = 0; i < 6; i++) {
		char *part = gm_arena_take(arena, size[i]);

		assert_int_equal((uintptr_t)part % 64, 0);
		assert_true(i == 0 || part >= end);
		for (size_t j = 0; j < size[i]; j++)
			assert_int_equal(part[j], 0);
		memset(part, 0x5a, size[i]);
		end = part + size[i];
	}
	gm_arena_free(arena);
	gm_arena_free(NULL);
}

static void test_an_empty_one(void **state)
{
	struct gm_error err = {0};
	struct gm_arena *arena = gm_arena_new(0, &err);

	(void)state;
	assert_non_null(arena);
	gm_arena_free(arena);
}

static void test_more_than_there_is(void **state)
{
	struct gm_error err = {0};

	(void)state;
	assert_null(gm_arena_new(SIZE_MAX / 4, &err));
	assert_int_equal(err.code, GM_ERR_MEMORY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_an_empty_one),
		cmocka_unit_test(test_more_than_there_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
