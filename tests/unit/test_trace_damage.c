/* Damaged, cut-off and hostile files: an error or the right content, never a crash; and what a repair saves of them. */
#include "test_trace_common.h"

#include "base/hash.h"
#include "tests/fuzz/rehash.h"
#include "traces/format.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char *folder;
static char path[200], fixed_path[200];

static struct sample small;
static uint8_t *bytes; /* of the small trace */
static size_t n_byte;

static void save(const uint8_t *data, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, size), size);
	close(fd);
}

static uint8_t *load(const char *name, size_t *size)
{
	struct stat st;
	int fd = open(name, O_RDONLY);

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	*size = (size_t)st.st_size;
	uint8_t *data = must(malloc(*size + 1));
	assert_int_equal(read(fd, data, *size), *size);
	close(fd);
	return data;
}

/* Reads all of an open trace. checked: what comes must be the small trace's content. */
static int read_all(struct gm_trace *t, bool checked, uint64_t *n_token)
{
	struct gm_block block = {0};
	struct gm_error err = {0};
	int status = 1;

	*n_token = 0;
	for (uint64_t i = 0; status == 1; i++) {
		status = gm_trace_read(t, i, GM_WANT_TAIL | GM_WANT_PREDICTION, &block, &err);
		if (status == 1 && checked)
			check_block(&small, &block, GM_WANT_TAIL);
		if (status == 1)
			*n_token += block.n_token;
	}
	if (status < 0)
		assert_true(err.code == status && strlen(err.text) > 10);
	gm_block_free(&block);
	return status;
}

static struct gm_trace *open_piped(const uint8_t *data, size_t size, int ends[2], struct gm_error *err)
{
	char name[40];

	assert_int_equal(pipe(ends), 0);
	assert_true(size <= 65536); /* what a pipe holds without a reader */
	assert_int_equal(write(ends[1], data, size), size);
	close(ends[1]);
	snprintf(name, sizeof(name), "/dev/fd/%d", ends[0]);
	struct gm_trace *t = gm_trace_open(name, err);
	close(ends[0]);
	return t;
}

/* A file and a pipe with this content; whole: the reader must find it right to the end or fail. */
static void try_reading(const uint8_t *data, size_t size, bool checked)
{
	struct gm_error err = {0};
	uint64_t n_token;
	int ends[2];

	save(data, size);
	struct gm_trace *t = gm_trace_open(path, &err);
	if (!t)
		assert_true(err.code < 0 && strstr(err.text, path));
	else if (read_all(t, checked, &n_token) == 0 && checked)
		assert_int_equal(n_token, small.n_token);
	gm_trace_close(t);
	memset(&err, 0, sizeof(err));
	t = open_piped(data, size, ends, &err);
	if (!t)
		assert_true(err.code < 0);
	else if (read_all(t, checked, &n_token) == 0 && checked)
		assert_int_equal(n_token, small.n_token);
	gm_trace_close(t);
}

/* The repaired trace must be good; with `checked` its blocks hold the small trace's tokens. Returns the tokens saved. */
static uint64_t try_repair(bool checked)
{
	struct gm_repair_report report;
	struct gm_verify_report good;
	struct gm_error err = {0};

	unlink(fixed_path);
	int status = gm_trace_repair(path, fixed_path, &report, &err);
	if (status < 0) {
		assert_true(err.code == status && access(fixed_path, F_OK) != 0);
		return 0;
	}
	struct gm_trace *t = gm_trace_open(fixed_path, &err);
	if (!t)
		fail_msg("repaired: %s", err.text);
	struct gm_block block = {0};
	for (uint64_t i = 0; i < gm_trace_n_block(t); i++) {
		OK(gm_trace_read(t, i, GM_WANT_TAIL | GM_WANT_PREDICTION, &block, &err));
		if (!checked)
			continue;
		/* Which block it was shows in its passes; its content is then compared under its old number. */
		uint32_t from = 0;
		while (from < small.n_token && (small.pass[from] != block.pass[0] || small.token[from] != block.token[0] ||
						small.position[from] != block.position[0]))
			from++;
		block.first_token = from;
		check_block(&small, &block, GM_WANT_TAIL);
	}
	gm_block_free(&block);
	gm_trace_close(t);
	if (checked)
		OK(gm_trace_verify(fixed_path, &good, &err));
	return report.n_token;
}

static void test_every_truncation(void **state)
{
	struct gm_error err = {0};
	uint64_t last = 0;

	(void)state;
	for (size_t size = 0; size < n_byte; size++) {
		struct gm_verify_report report;
		try_reading(bytes, size, true);
		memset(&err, 0, sizeof(err));
		assert_int_equal(gm_trace_verify(path, &report, &err), GM_ERR_FORMAT);
		assert_true(report.n_problem > 0);
		uint64_t saved = try_repair(true);
		assert_true(saved >= last);
		last = saved;
	}
	assert_int_equal(last, small.n_token);
}

static void test_every_flip(void **state)
{
	uint64_t seed = 99;

	(void)state;
	for (size_t at = 0; at < n_byte; at++)
		for (int turn = 0; turn < 2; turn++) {
			uint8_t flip = (uint8_t)(turn ? 1u << draw_below(&seed, 8) : 0xffu);
			struct gm_verify_report report;
			struct gm_error err = {0};
			bytes[at] ^= flip;
			try_reading(bytes, n_byte, true);
			if (gm_trace_verify(path, &report, &err) != GM_ERR_FORMAT)
				fail_msg("a flip of %#x at byte %zu is not found", flip, at);
			if (turn && at % 2)
				try_repair(true);
			bytes[at] ^= flip;
		}
}

/* Stretches lost, doubled or overwritten in the middle: whole blocks around them are saved. */
static void test_repair_middle(void **state)
{
	uint64_t seed = 5;

	(void)state;
	for (int k = 0; k < 300; k++) {
		size_t at = draw_below(&seed, (uint32_t)n_byte), n = 1 + draw_below(&seed, 300);
		n = n < n_byte - at ? n : n_byte - at;
		uint8_t *copy = must(malloc(n_byte + n));
		size_t size = n_byte;
		memcpy(copy, bytes, n_byte);
		switch (k % 3) {
		case 0: /* lost */
			memmove(copy + at, copy + at + n, n_byte - at - n);
			size = n_byte - n;
			break;
		case 1: /* doubled */
			memmove(copy + at + n, copy + at, n_byte - at);
			size = n_byte + n;
			break;
		default:
			for (size_t i = 0; i < n; i++)
				copy[at + i] = (uint8_t)draw(&seed);
		}
		try_reading(copy, size, true);
		try_repair(true);
		free(copy);
	}
}

static void test_lost_block(void **state)
{
	struct gm_repair_report report;
	struct gm_error err = {0};

	(void)state;
	/* The last byte of the first block's payload: it lies just before the second block's frame. */
	struct gm_trace *t;
	save(bytes, n_byte);
	t = must(gm_trace_open(path, &err));
	uint64_t n_block = gm_trace_n_block(t);
	gm_trace_close(t);
	assert_int_equal(n_block, 3);
	size_t first = 0, second = 0;
	for (size_t i = 0; i + 4 < n_byte && !second; i++)
		if (memcmp(bytes + i, "BLCK", 4) == 0) {
			if (first)
				second = i;
			else
				first = i;
		}
	bytes[first + 300] ^= 1;
	save(bytes, n_byte);
	bytes[first + 300] ^= 1;
	OK(gm_trace_repair(path, fixed_path, &report, &err));
	assert_int_equal(report.n_block, 2);
	assert_int_equal(report.n_lost_block, 1);
	assert_int_equal(report.n_token, small.n_token - 64);
	assert_int_equal(report.n_problem, 1);
	assert_int_equal(report.problem[0].offset, first);
	assert_true(report.had_index);
	t = must(gm_trace_open(fixed_path, &err));
	assert_string_equal(gm_trace_sequence(t, 0)->id, "seq-0");
	gm_trace_close(t);
	/* A good file loses nothing and says so. */
	save(bytes, n_byte);
	OK(gm_trace_repair(path, fixed_path, &report, &err));
	assert_int_equal(report.n_problem, 0);
	assert_int_equal(report.lost_bytes, 0);
	assert_int_equal(report.n_token, small.n_token);
	size_t size;
	uint8_t *again = load(fixed_path, &size);
	assert_int_equal(size, n_byte);
	assert_memory_equal(again, bytes, size);
	free(again);
	/* Onto itself: refused. */
	assert_int_equal(gm_trace_repair(path, path, &report, &err), GM_ERR_USAGE);
}

/* Files whose checksums are right but whose content is hostile. */
static void test_hostile(void **state)
{
	uint64_t seed = 31;

	(void)state;
	for (int k = 0; k < 3000; k++) {
		uint8_t *copy = must(malloc(n_byte));
		struct gm_verify_report report;
		struct gm_error err = {0};
		memcpy(copy, bytes, n_byte);
		for (uint32_t i = 1 + draw_below(&seed, 3); i > 0; i--) {
			size_t at =
				draw_below(&seed, 3) ? draw_below(&seed, (uint32_t)n_byte) : 16 + draw_below(&seed, 500);
			static const uint8_t nasty[] = {0, 1, 0x7f, 0x80, 0xff, '9', '-', '"', 'e'};
			copy[at] = draw_below(&seed, 2) ? nasty[draw_below(&seed, 9)] : (uint8_t)draw(&seed);
		}
		rehash(copy, n_byte);
		try_reading(copy, n_byte, false);
		gm_trace_verify(path, &report, &err);
		if (k % 4 == 0)
			try_repair(false);
		free(copy);
	}
}

static void test_other_files(void **state)
{
	struct gm_error err = {0};

	(void)state;
	save((const uint8_t *)"hello, world: this is a text", 28);
	assert_null(gm_trace_open(path, &err));
	assert_non_null(strstr(err.text, "not a .gmt trace"));
	memset(&err, 0, sizeof(err));
	save((const uint8_t *)"", 0);
	assert_null(gm_trace_open(path, &err));
	assert_non_null(strstr(err.text, "empty"));
	memset(&err, 0, sizeof(err));
	assert_null(gm_trace_open(folder, &err));
	assert_non_null(strstr(err.text, "directory"));
	memset(&err, 0, sizeof(err));
	assert_null(gm_trace_open("/nonexistent/x.gmt", &err));
	assert_int_equal(err.code, GM_ERR_IO);
	memset(&err, 0, sizeof(err));
	bytes[8] = 2;
	save(bytes, n_byte);
	bytes[8] = 1;
	assert_null(gm_trace_open(path, &err));
	assert_non_null(strstr(err.text, ": byte 8: this program reads version 1"));
	memset(&err, 0, sizeof(err));
	save(bytes, n_byte - 1);
	assert_null(gm_trace_open(path, &err));
	assert_non_null(strstr(err.text, "traces verify --repair"));
}

/* Unknown frames and unknown optional columns are passed over; unknown required ones refuse the file. */
static void test_unknown_frame(void **state)
{
	uint8_t frame[GM_FRAME_BYTES + 5] = "XTRA";
	struct gm_error err = {0};
	struct gm_verify_report report;
	uint64_t n_token;
	int ends[2];

	(void)state;
	memcpy(frame + GM_FRAME_BYTES, "hello", 5);
	gm_put_u32(frame + 4, 0);
	gm_put_u64(frame + 8, 5);
	gm_put_u64(frame + 16, gm_hash("hello", 5));
	gm_put_u64(frame + 24, gm_hash(frame, 24));
	/* Between HEAD and the first block; the offsets in index and trailer move along. */
	size_t at = GM_PREAMBLE_BYTES + GM_FRAME_BYTES + gm_get_u64(bytes + GM_PREAMBLE_BYTES + 8),
	       size = n_byte + sizeof(frame);
	uint8_t *copy = must(malloc(size)), *index, *trailer;
	memcpy(copy, bytes, at);
	memcpy(copy + at, frame, sizeof(frame));
	memcpy(copy + at + sizeof(frame), bytes + at, n_byte - at);
	trailer = copy + size - GM_TRAILER_PAYLOAD;
	gm_put_u64(trailer, gm_get_u64(trailer) + sizeof(frame));
	gm_put_u64(trailer + 8, size);
	index = copy + gm_get_u64(trailer) + GM_FRAME_BYTES;
	for (uint64_t i = 0; i < gm_get_u64(index + 16); i++) {
		uint8_t *entry = index + GM_INDEX_BYTES + i * GM_INDEX_BLOCK_BYTES;
		gm_put_u64(entry, gm_get_u64(entry) + sizeof(frame));
	}
	rehash(copy, size);
	save(copy, size);
	OK(gm_trace_verify(path, &report, &err));
	struct gm_trace *t = must(gm_trace_open(path, &err));
	assert_int_equal(read_all(t, true, &n_token), 0);
	gm_trace_close(t);
	t = must(open_piped(copy, size, ends, &err));
	assert_int_equal(read_all(t, true, &n_token), 0);
	gm_trace_close(t);
	gm_put_u32(copy + at + 4, GM_FRAME_REQUIRED);
	rehash(copy, size);
	t = must(open_piped(copy, size, ends, &err));
	assert_int_equal(read_all(t, true, &n_token), GM_ERR_FORMAT);
	gm_trace_close(t);
	free(copy);
}

/* Every checksum is right, the log-sum-exp is not: no row to save. */
static void test_wrong_rows(void **state)
{
	struct gm_repair_report report;
	struct gm_error err = {0};
	uint8_t *data = must(malloc(n_byte)), *frame;
	bool changed = false;

	(void)state;
	memcpy(data, bytes, n_byte);
	frame = must(memmem(data, n_byte, "BLCK", 4));
	uint8_t *directory = frame + GM_FRAME_BYTES, *stored = directory + gm_get_u32(directory);
	for (uint32_t i = 0; i < gm_get_u32(directory + 28); i++) {
		uint8_t *entry = directory + 32 + 24 * (size_t)i;
		uint32_t n = gm_get_u32(entry + 8);

		if (gm_get_u16(entry) == 9 && entry[3] == 0) {
			for (uint32_t j = 0; j < n; j++)
				stored[j] ^= 0x30;
			gm_put_u64(entry + 16, gm_hash(stored, n));
			changed = true;
		}
		stored += n;
	}
	assert_true(changed);
	gm_put_u64(frame + 16, gm_hash(directory, gm_get_u32(directory)));
	gm_put_u64(frame + 24, gm_hash(frame, 24));
	save(data, n_byte);
	free(data);
	OK(gm_trace_repair(path, fixed_path, &report, &err));
	assert_int_equal(report.n_block, 2);
	assert_int_equal(report.n_lost_block, 1);
	assert_non_null(strstr(report.problem[0].text, "log-sum-exp"));
	struct gm_verify_report verified;
	OK(gm_trace_verify(fixed_path, &verified, &err));
}

static int set_up(void **state)
{
	uint64_t seed = 11;

	(void)state;
	folder = test_folder();
	snprintf(path, sizeof(path), "%s/damaged.gmt", folder);
	snprintf(fixed_path, sizeof(fixed_path), "%s/repaired.gmt", folder);
	small.model.name = must(strdup("small"));
	small.model.n_layer = 2;
	small.model.n_expert = 6;
	small.model.top_k = 2;
	small.options = (struct gm_writer_options){
		.n_head = 3, .tail = GM_TAIL_F16, .logprobs = true, .predictions = true, .tool = "test"};
	small.n_token = 130;
	sample_alloc(&small);
	fill_tokens(&small, &seed, 20);
	fill_rows(&small, &seed, VALUES_TIES, 0.1);
	write_sample(&small, path, &seed);
	bytes = load(path, &n_byte);
	return 0;
}

static int tear_down(void **state)
{
	char command[300];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	int status = system(command);
	free(folder);
	free(bytes);
	sample_free(&small);
	return status;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_truncation), cmocka_unit_test(test_every_flip),
		cmocka_unit_test(test_repair_middle),    cmocka_unit_test(test_lost_block),
		cmocka_unit_test(test_hostile),          cmocka_unit_test(test_other_files),
		cmocka_unit_test(test_unknown_frame),    cmocka_unit_test(test_wrong_rows),
	};

	return cmocka_run_group_tests_name("damaged traces", tests, set_up, tear_down);
}
