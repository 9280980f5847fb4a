/* What importers read from: lines, zstd, streams; and the numbers of a jsonl row. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zstd.h>

#include "traces/export_common.h"
#include "traces/import_input.h"
#include "traces/import_jsonl_row.h"
#include "traces/npy.h"

static char path[] = "/tmp/gm-feed-XXXXXX";

static struct gm_feed *feed_of(const void *bytes, size_t size)
{
	struct gm_error err = {0};
	FILE *file = fopen(path, "wb");

	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	fclose(file);
	struct gm_feed *feed = gm_feed_open(path, &err);

	if (!feed)
		fail_msg("%s", err.text);
	return feed;
}

static size_t compress(const char *text, size_t size, char *out, size_t room)
{
	size_t n = ZSTD_compress(out, room, text, size, 1);

	assert_false(ZSTD_isError(n));
	return n;
}

/* --- lines --- */

/* The lines as "a|b|", or the error with the file's name as FILE. */
static void check_lines(const char *text, size_t size, const char *expected)
{
	struct gm_error err = {0};
	struct gm_feed *feed = feed_of(text, size);
	char got[400] = "", *line;
	size_t n;
	int status;

	while ((status = gm_feed_line(feed, &line, &n, &err)) > 0) {
		assert_int_equal(strlen(line), n);
		strcat(got, line);
		strcat(got, "|");
	}
	gm_feed_close(feed);
	if (status < 0) {
		char *at = strstr(err.text, path);

		assert_non_null(at);
		snprintf(got, sizeof(got), "%.*sFILE%s", (int)(at - err.text), err.text, at + strlen(path));
	}
	assert_string_equal(got, expected);
}

static void test_lines(void **state)
{
	char packed[400];
	size_t n;

	(void)state;
	check_lines("", 0, "");
	check_lines("a", 1, "a|");
	check_lines("a\n", 2, "a|");
	check_lines("\n\na\r\nb\r", 7, "||a|b|");
	check_lines("a\nb\0c\n", 6, "a NUL byte: FILE: line 2: is this a text file?");
	n = compress("one\ntwo", 7, packed, sizeof(packed));
	check_lines(packed, n, "one|two|");
	n += compress("\nthree", 6, packed + n, sizeof(packed) - n); /* frames one behind the other */
	check_lines(packed, n, "one|two|three|");
	check_lines(packed, n - 1, "the zstd data is cut off: FILE: fetch the file again");
	packed[8] = (char)(packed[8] ^ 0x40);
	packed[4] = (char)0xff;
	check_lines(packed, n, "damaged zstd data: FILE: Unsupported frame parameter");
}

static void test_long_line(void **state)
{
	struct gm_error err = {0};
	size_t size = (size_t)3 << 20, n;
	char *text = malloc(size), *line;

	(void)state;
	assert_non_null(text);
	memset(text, 'x', size);
	text[size - 2] = '\n';
	struct gm_feed *feed = feed_of(text, size);

	assert_int_equal(gm_feed_size(feed), size);
	assert_int_equal(gm_feed_line(feed, &line, &n, &err), 1);
	assert_int_equal(n, size - 2);
	assert_int_equal(gm_feed_line(feed, &line, &n, &err), 1);
	assert_string_equal(line, "x");
	assert_int_equal(gm_feed_line_number(feed), 2);
	assert_int_equal(gm_feed_line(feed, &line, &n, &err), 0);
	assert_int_equal(gm_feed_taken(feed), size);
	gm_feed_close(feed);
	free(text);
}

/* A line without end: 65 MiB of zeros are a few kB of zstd. */
static void test_endless_line(void **state)
{
	struct gm_error err = {0};
	size_t size = (size_t)66 << 20, n, room = (size_t)1 << 20;
	char *text = calloc(size, 1), *packed = malloc(room), *line;

	(void)state;
	assert_non_null(text);
	assert_non_null(packed);
	memset(text, 'x', size);
	struct gm_feed *feed = feed_of(packed, compress(text, size, packed, room));

	assert_true(gm_feed_compressed(feed));
	assert_int_equal(gm_feed_line(feed, &line, &n, &err), GM_ERR_FORMAT);
	assert_non_null(strstr(err.text, "a line of more than 64 MiB"));
	gm_feed_close(feed);
	free(text);
	free(packed);
}

static void test_stream(void **state)
{
	struct gm_error err = {0};
	char packed[200], got[64] = "", *line;
	size_t size, n = compress("first\nsecond\nthird\n", 19, packed, sizeof(packed));
	struct gm_feed *feed = feed_of(packed, n);

	(void)state;
	assert_int_equal(gm_feed_line(feed, &line, &size, &err), 1);
	/* The stream goes on behind the line, though more was read for it. */
	assert_int_equal(fread(got, 1, sizeof(got), gm_feed_stream(feed, &err)), 13);
	assert_string_equal(got, "second\nthird\n");
	assert_int_equal(gm_feed_failure(feed, GM_ERR_IO, &err), GM_ERR_IO);
	gm_feed_close(feed);

	feed = feed_of(packed, n - 3);
	assert_int_equal(fread(got, 1, sizeof(got), gm_feed_stream(feed, &err)), 0);
	assert_int_equal(gm_feed_failure(feed, GM_ERR_IO, &err), GM_ERR_FORMAT);
	assert_non_null(strstr(err.text, "cut off"));
	gm_feed_close(feed);

	err = (struct gm_error){0};
	assert_null(gm_feed_open("/nowhere/at/all", &err));
	assert_int_equal(err.code, GM_ERR_IO);
	err = (struct gm_error){0};
	assert_null(gm_feed_open("/tmp", &err));
	assert_int_equal(err.code, GM_ERR_IO);
}

/* --- numbers --- */

static uint64_t draw(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	return (z ^ z >> 27) * 0x94d049bb133111ebu >> 7;
}

static float parse(const char *number)
{
	char text[700];
	struct gm_error err = {0};
	float value = NAN;
	bool found = false;

	snprintf(text, sizeof(text), "{\"a\":\"logits\", \"logits\" : [ %s ]}", number);
	if (gm_jsonl_take_logits(text, 1, &value, &found, "x", &err) < 0)
		return NAN;
	assert_true(found);
	/* What is left is JSON of the same length with a number in the list's place. */
	assert_non_null(strstr(text, "\"logits\" : 0"));
	assert_int_equal(text[strlen(text) - 1], '}');
	return value;
}

static bool same_bits(float a, float b)
{
	uint32_t x, y;

	memcpy(&x, &a, sizeof(x));
	memcpy(&y, &b, sizeof(y));
	return x == y;
}

/* Decimal texts of every length read like strtod reads them, and every float32 comes back from its nine digits. */
static void test_numbers(void **state)
{
	uint64_t seed = 7;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		char text[64], back[GM_FLOAT_TEXT];
		int digits = 1 + (int)(draw(&seed) % 20), exponent = (int)(draw(&seed) % 60) - 30;
		double value = ((double)draw(&seed) / 9007199254740992.0 - 8.0) * pow(10, exponent);

		snprintf(text, sizeof(text), i % 2 ? "%.*g" : "%.*e", digits, value);
		/* printf writes 1e+05, as JSON allows */
		float expected = (float)strtod(text, NULL), got = parse(text);

		if (!same_bits(expected, got))
			fail_msg("%s reads as %.9g", text, (double)got);
		size_t n = gm_format_float(got, back);

		assert_int_equal(n, strlen(back));
		expected = parse(back);
		if (!same_bits(expected, got))
			fail_msg("%a is written as %s", (double)got, back);
	}
}

static void test_number_edges(void **state)
{
	static const struct {
		const char *text;
		float value; /* NaN: refused */
	} cases[] = {
		{"0", 0.0f},
		{"-0", -0.0f},
		{"0.0", 0.0f},
		{"1e0", 1.0f},
		{"1E+2", 100.0f},
		{"25e-1", 2.5f},
		{"3.4028234663852886e38", 3.40282347e38f},
		{"3.4028236e38", NAN}, /* above the largest float32 */
		{"1e39", NAN},
		{"1e400", NAN},
		{"1e99999999999999999999", NAN},
		{"1e-99999999999999999999", 0.0f},
		{"1e-400", 0.0f},
		{"1e-45", 1.40129846e-45f},
		{"16777217", 16777216.0f},
		{"0.1000000000000000055511151231257827021181583404541015625", 0.1f},
		{"12345678901234567890", 12345678901234567890.0f},
		{"00", NAN},
		{"01", NAN},
		{"1.", NAN},
		{".5", NAN},
		{"+1", NAN},
		{"-", NAN},
		{"1e", NAN},
		{"1e+", NAN},
		{"0x10", NAN},
		{"NaN", NAN},
		{"-Infinity", NAN},
		{"inf", NAN},
		{"null", NAN},
		{"\"1\"", NAN},
		{"[1]", NAN},
		{"1 2", NAN},
		{"1,2", NAN},
		{"1,", NAN},
		{",1", NAN},
		{"", NAN},
	};
	char digits[700];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		float got = parse(cases[i].text);

		if (isnan(cases[i].value) ? !isnan(got) : !same_bits(got, cases[i].value))
			fail_msg("\"%s\" reads as %.9g", cases[i].text, (double)got);
	}
	memset(digits, '1', sizeof(digits));
	digits[600] = '\0';
	assert_true(isnan(parse(digits)));
	digits[38] = '\0';
	assert_true(parse(digits) == 1.11111111e37f);
}

static void test_take_logits(void **state)
{
	float logits[2] = {0};
	bool found = true;
	struct gm_error err = {0};
	char nested[] = "{\"a\":{\"logits\":[1,2]},\"b\":[{\"logits\":[1,2]}],\"c\":\"\\\"logits\\\":[3,4]\"}";
	char *copy = strdup(nested);

	(void)state;
	assert_non_null(copy);
	assert_int_equal(gm_jsonl_take_logits(nested, 2, logits, &found, "x", &err), GM_OK);
	assert_false(found); /* only a member of the row itself counts */
	assert_string_equal(nested, copy);
	free(copy);
	/* broken texts end somewhere */
	const char *const broken[] = {
		"",   "{",      "{\"logits\"",     "{\"logits\":", "{\"logits\":[", "{\"logits\":[1", "{\"logits\":[1,",
		"\"", "{\"a\\", "{\"logits\":[1,2"};

	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		char text[64];

		err = (struct gm_error){0};
		snprintf(text, sizeof(text), "%s", broken[i]);
		gm_jsonl_take_logits(text, 2, logits, &found, "x", &err);
	}
}

/* --- .npy headers --- */

static int read_header(const char *dictionary, int version, struct gm_npy *npy, struct gm_error *err)
{
	char bytes[600] = "\x93NUMPY";
	size_t n = strlen(dictionary), at = version == 1 ? 10 : 12;

	bytes[6] = (char)version;
	bytes[8] = (char)(n & 0xff);
	bytes[9] = (char)(n >> 8);
	memcpy(bytes + at, dictionary, n);
	struct gm_feed *feed = feed_of(bytes, at + n);
	int status;

	*err = (struct gm_error){0};
	status = gm_npy_read_header(npy, feed, err);
	gm_feed_close(feed);
	return status;
}

static void test_npy_header(void **state)
{
	static const char *const bad[] = {
		"{}",
		"{'descr': '<f4', 'fortran_order': False}",
		"{'descr': '<f4', 'shape': (1,)}",
		"{'fortran_order': False, 'shape': (1,)}",
		"{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}",
		"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
		"{'descr': 'f', 'fortran_order': False, 'shape': (1,)}",
		"{'descr': '<f0', 'fortran_order': False, 'shape': (1,)}",
		"{'descr': '<f4', 'fortran_order': False, 'shape': 3}",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1,2",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
	};
	struct gm_error err = {0};
	struct gm_npy npy;
	char type[32];

	(void)state;
	for (int version = 1; version <= 3; version++) {
		assert_int_equal(read_header("{'descr': '>f2', 'fortran_order': False, 'shape': (3L, 40,), }  \n", version,
					     &npy, &err),
				 GM_OK);
		assert_int_equal(npy.n_dim, 2);
		assert_int_equal(npy.shape[0], 3);
		assert_int_equal(npy.shape[1], 40);
		assert_true(npy.big_endian);
		assert_string_equal(gm_npy_type(&npy, type), "float16 (big endian)");
	}
	assert_int_equal(read_header("{\"shape\":(),\"descr\":\"|u1\",\"fortran_order\":False}", 1, &npy, &err), GM_OK);
	assert_int_equal(npy.n_dim, 0);
	assert_string_equal(gm_npy_type(&npy, type), "uint8");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (read_header(bad[i], 1, &npy, &err) != GM_ERR_FORMAT)
			fail_msg("%s is taken", bad[i]);
	assert_int_equal(read_header("{}", 4, &npy, &err), GM_ERR_FORMAT);
}

/* A header cut off anywhere, and lengths that lie. */
static void test_npy_cut_off(void **state)
{
	static const char whole[] =
		"\x93NUMPY\x01\x00\x40\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1), }";
	struct gm_error err = {0};
	struct gm_npy npy;

	(void)state;
	for (size_t n = 0; n < sizeof(whole) - 1; n++) {
		struct gm_feed *feed = feed_of(whole, n);

		err = (struct gm_error){0};
		assert_int_equal(gm_npy_read_header(&npy, feed, &err), GM_ERR_FORMAT);
		gm_feed_close(feed);
	}
	struct gm_feed *feed = feed_of("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12);

	err = (struct gm_error){0};
	assert_int_equal(gm_npy_read_header(&npy, feed, &err), GM_ERR_FORMAT);
	assert_non_null(strstr(err.text, "more than 64 KiB"));
	gm_feed_close(feed);
}

static void test_npy_floats(void **state)
{
	const unsigned char data[] = {0x00, 0x3c, 0x3c, 0x00, 0x00, 0x00, 0xc0, 0x3f, 0x3f, 0xc0, 0x00, 0x00};
	struct gm_npy npy = {.kind = 'f', .item_bytes = 2};
	float value = 0;

	(void)state;
	gm_npy_floats(&npy, data, 1, &value);
	assert_true(value == 1.0f);
	npy.big_endian = true;
	gm_npy_floats(&npy, data + 2, 1, &value);
	assert_true(value == 1.0f);
	npy.item_bytes = 4;
	gm_npy_floats(&npy, data + 8, 1, &value);
	assert_true(value == 1.5f);
	npy.big_endian = false;
	gm_npy_floats(&npy, data + 4, 1, &value);
	assert_true(value == 1.5f);
}

static int set_up(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
	(void)state;
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),       cmocka_unit_test(test_long_line),  cmocka_unit_test(test_endless_line),
		cmocka_unit_test(test_stream),      cmocka_unit_test(test_numbers),    cmocka_unit_test(test_number_edges),
		cmocka_unit_test(test_take_logits), cmocka_unit_test(test_npy_header), cmocka_unit_test(test_npy_cut_off),
		cmocka_unit_test(test_npy_floats),
	};

	return cmocka_run_group_tests_name("import input", tests, set_up, tear_down);
}
