/* The expert store: all that can go wrong with a file, before and while it is read. */
#include "tests/unit/test_engine_store_common.h"

static void test_missing_file(void **state)
{
	struct gm_error err = {0};

	(void)state;
	for (int kind = GM_EXPERT_STORE_MMAP; kind <= GM_EXPERT_STORE_READ; kind++) {
		struct gm_expert_store *store =
			new_store((struct gm_expert_store_options){.kind = (enum gm_expert_store_kind)kind}, &err);
		const struct gm_expert_store_part nowhere = {.name = "a", .expert_bytes = 1},
						  beyond = {.name = "a",
							    .expert_bytes = 1,
							    .path = "b",
							    .offset = UINT64_MAX - 2};

		assert_non_null(store);
		assert_fails(gm_expert_store_start(store, &err), GM_ERR_USAGE, "no experts: expert store: layer 0", &err);
		assert_fails(gm_expert_store_add(store, 0, 3, &nowhere, &err), GM_ERR_USAGE, "no file: tensor a", &err);
		gm_expert_store_close(store);
		store = new_store((struct gm_expert_store_options){.kind = (enum gm_expert_store_kind)kind}, &err);
		assert_fails(gm_expert_store_add(store, 0, 3, &beyond, &err), GM_ERR_FORMAT, "offset beyond any file",
			     &err);
		gm_expert_store_close(store);
		store = new_store((struct gm_expert_store_options){.kind = (enum gm_expert_store_kind)kind}, &err);
		assert_ok(add_parts(store, true, &err), &err);
		unlink(file_name[1]);
		assert_fails(gm_expert_store_start(store, &err), GM_ERR_IO, "cannot read: model-2.gguf: No such file",
			     &err);
		gm_expert_store_close(store);
		write_files();
	}
}

/* By one byte, and by more than the last expert. */
static void test_short_file(void **state)
{
	static const uint64_t missing[] = {1, 40000};
	struct gm_error err = {0};

	(void)state;
	for (int kind = GM_EXPERT_STORE_MMAP; kind <= GM_EXPERT_STORE_READ; kind++) {
		for (size_t i = 0; i < sizeof(missing) / sizeof(*missing); i++) {
			struct gm_expert_store *store =
				new_store((struct gm_expert_store_options){.kind = (enum gm_expert_store_kind)kind}, &err);
			char words[64];

			assert_ok(add_parts(store, true, &err), &err);
			assert_int_equal(truncate(file_name[1], (off_t)(file_bytes[1] - missing[i])), 0);
			snprintf(words, sizeof(words), "file too short: model-2.gguf: ends at byte %llu",
				 (unsigned long long)(file_bytes[1] - missing[i]));
			assert_fails(gm_expert_store_start(store, &err), GM_ERR_FORMAT, words, &err);
			gm_expert_store_close(store);
			write_files();
		}
	}
}

/* After the start. part 1 of layer 2 ends its file; the first experts are still there. */
static void test_file_cut_off(void **state)
{
	struct gm_error err = {0};

	(void)state;
	for (int kind = GM_EXPERT_STORE_MMAP; kind <= GM_EXPERT_STORE_READ; kind++) {
		for (int refuse = 0; refuse < 2; refuse++) {
			struct disk disk = {.refuse_direct = refuse};
			struct gm_expert_store *store = open_files(
				(struct gm_expert_store_options){.kind = (enum gm_expert_store_kind)kind,
								 .host_bytes = kind == GM_EXPERT_STORE_READ ? 1 << 20 : 0,
								 .pread = disk_pread,
								 .pread_user = &disk});
			uint32_t read, good;
			char words[64];

			assert_int_equal(truncate(file_name[1], (off_t)(offset_of(2, 1) + 3 * part_bytes(2, 1) + 5000)), 0);
			good = issue(store, 2, 2);
			read = issue(store, 2, 3);
			wait_and_check(store, good, 2, 2);
			snprintf(words, sizeof(words), "file too short: model-2.gguf: ends at byte %llu",
				 (unsigned long long)(offset_of(2, 1) + 3 * part_bytes(2, 1) + 5000));
			assert_fails(gm_expert_store_wait(store, read, NULL, &err), GM_ERR_FORMAT, words, &err);
			assert_fails(gm_expert_store_poll(store, read, NULL, NULL, &err), GM_ERR_FORMAT, "blk.2.part1",
				     &err);
			gm_expert_store_release(store, read);
			write_files(); /* the same file again */
			read = issue(store, 2, 3);
			wait_and_check(store, read, 2, 3);
			gm_expert_store_release(store, read);
			gm_expert_store_close(store);
		}
	}
}

/* Each of the three reads of an expert in turn. */
static void test_read_error(void **state)
{
	struct gm_error err = {0};

	(void)state;
	for (unsigned fail_at = 1; fail_at <= 3; fail_at++) {
		struct disk disk = {.fail_at = fail_at};
		struct gm_expert_store *store = open_files((struct gm_expert_store_options){
			.kind = GM_EXPERT_STORE_READ, .host_bytes = 1 << 20, .pread = disk_pread, .pread_user = &disk});
		uint32_t bad = issue(store, 0, 4), again;
		char words[64];

		snprintf(words, sizeof(words), "expert 4 of blk.0.part%u goes to %llu", fail_at - 1,
			 (unsigned long long)(offset_of(0, fail_at - 1) + 5 * part_bytes(0, fail_at - 1)));
		assert_fails(gm_expert_store_wait(store, bad, NULL, &err), GM_ERR_IO, words, &err);
		assert_fails(gm_expert_store_wait(store, bad, NULL, &err), GM_ERR_IO, "Input/output error", &err);
		assert_int_equal(stats_of(store).host_bytes, 0);
		again = issue(store, 0, 4);
		wait_and_check(store, again, 0, 4);
		assert_int_equal(stats_of(store).host_bytes, item_bytes(0));
		assert_int_equal(stats_of(store).bytes_read, item_bytes(0));
		gm_expert_store_close(store);
	}
}

static void test_no_memory_to_read_into(void **state)
{
	struct counted counted = {.fail_at = 2};
	struct gm_expert_store *store = open_files((struct gm_expert_store_options){
		.kind = GM_EXPERT_STORE_READ, .host_bytes = 1 << 20, .memory = memory_of(&counted)});
	struct gm_error err = {0};
	uint32_t read[3];

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		read[i] = issue(store, 1, i);
	wait_and_check(store, read[0], 1, 0);
	assert_fails(gm_expert_store_wait(store, read[1], NULL, &err), GM_ERR_MEMORY, "no host memory for experts", &err);
	wait_and_check(store, read[2], 1, 2);
	assert_int_equal(stats_of(store).host_bytes, 2 * item_bytes(1));
	gm_expert_store_close(store);
	assert_int_equal(counted.bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_missing_file, begin_files),
		cmocka_unit_test_setup(test_short_file, begin_files),
		cmocka_unit_test_setup(test_file_cut_off, begin_files),
		cmocka_unit_test_setup(test_read_error, begin_files),
		cmocka_unit_test_setup(test_no_memory_to_read_into, begin_files),
	};

	return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
