#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_parse_double(void **state)
{
	static const struct {
		const char *text;
		double value;
	} good[] = {
		{"0", 0},           {"0.15", 0.15}, {"1e3", 1000},
		{"-2.5E-1", -0.25}, {"+7", 7},      {".5", 0.5},
		{"5.", 5},          {"1e-400", 0},  {"179769313486231570e291", 179769313486231570e291},
	};
	static const char *const bad[] = {"",  " 1", "1 ",  "0x10", "inf",   "nan",   "1e",  "1,5",
					  ".", "-.", "1e+", "--1",  "1.2.3", "1e999", "abc", "1e5x"};
	double value;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		assert_int_equal(gm_parse_double(good[i].text, "x", &value, NULL), GM_OK);
		assert_true(value == good[i].value);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct gm_error err = {0};
		value = 42;
		assert_int_equal(gm_parse_double(bad[i], "--alpha", &value, &err), GM_ERR_USAGE);
		assert_non_null(strstr(err.text, "--alpha"));
		assert_true(value == 42);
	}
}

static void test_parse_u64(void **state)
{
	struct gm_error err = {0};
	uint64_t value = 7;

	(void)state;
	assert_int_equal(gm_parse_u64("18446744073709551615", "x", 0, UINT64_MAX, &value, NULL), GM_OK);
	assert_true(value == UINT64_MAX);
	assert_int_equal(gm_parse_u64("007", "x", 0, 10, &value, NULL), GM_OK);
	assert_int_equal(value, 7);
	assert_int_equal(gm_parse_u64("18446744073709551616", "x", 0, UINT64_MAX, &value, NULL), GM_ERR_USAGE);
	assert_int_equal(gm_parse_u64("11", "--top", 1, 10, &value, &err), GM_ERR_USAGE);
	assert_string_equal(err.text, "out of range: --top \"11\": give one from 1 to 10");
	static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "1.0", "0x1", "ten"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(gm_parse_u64(bad[i], "x", 0, 10, &value, NULL), GM_ERR_USAGE);
	assert_int_equal(value, 7);
}

static void test_parse_bytes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
		bool has_unit;
	} good[] = {
		{"1500", 1500, false},
		{"0B", 0, true},
		{"6GiB", UINT64_C(6) << 30, true},
		{"1.5KiB", 1536, true},
		{"0.3kB", 300, true},
		{"1e3MB", 1000000000, true},
		{"2TB", UINT64_C(2000000000000), true},
		{"9007199254740993B", UINT64_C(9007199254740993), true}, /* 2^53 + 1: no double */
		{"18446744073709551615", UINT64_MAX, false},
	};
	static const char *const bad[] = {"",
					  "GiB",
					  "-1GiB",
					  "1.5",
					  "6 GiB",
					  "6gib",
					  "6G",
					  "6GiBs",
					  "25%",
					  "inf",
					  "18446744073709551616",
					  "16777216TiB",
					  "1e30B",
					  "1e999GB"};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		uint64_t bytes = 1;
		bool has_unit = !good[i].has_unit;
		assert_int_equal(gm_parse_bytes(good[i].text, "x", &bytes, &has_unit, NULL), GM_OK);
		assert_true(bytes == good[i].bytes);
		assert_true(has_unit == good[i].has_unit);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct gm_error err = {0};
		uint64_t bytes = 1;
		assert_int_equal(gm_parse_bytes(bad[i], "--cache", &bytes, NULL, &err), GM_ERR_USAGE);
		assert_non_null(strstr(err.text, "--cache"));
		assert_true(bytes == 1);
	}
}

static void check_form(double value, const char *expected)
{
	char text[GM_NUMBER_TEXT];

	assert_string_equal(gm_format_double(value, text), expected);
}

static void test_format_double(void **state)
{
	(void)state;
	check_form(0, "0");
	check_form(-0.0, "-0");
	check_form(0.1, "0.1");
	check_form(0.1 + 0.2, "0.30000000000000004");
	check_form(1.0 / 3, "0.3333333333333333");
	check_form(1e15, "1000000000000000");
	check_form(-9007199254740992.0, "-9007199254740992");
	check_form(1e22, "1e+22");
	check_form(5e-324, "5e-324");
	check_form(-1.7976931348623157e308, "-1.7976931348623157e+308");
	check_form((double)INFINITY, "inf");
	check_form(-(double)INFINITY, "-inf");
	check_form((double)NAN, "nan");
}

/* Random bit patterns, that is doubles of every size, come back bit for bit. */
static void test_format_reads_back(void **state)
{
	uint64_t bits = 1;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		char text[GM_NUMBER_TEXT];
		double value, back = 0;

		bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		memcpy(&value, &bits, sizeof(value));
		if (!isfinite(value))
			continue;
		assert_true(strlen(gm_format_double(value, text)) < GM_NUMBER_TEXT);
		assert_int_equal(gm_parse_double(text, "x", &back, NULL), GM_OK);
		assert_memory_equal(&back, &value, sizeof(value));
	}
}

static void test_format_bytes(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{0, "0 B"},
		{512, "512 B"},
		{1023, "1023 B"},
		{1024, "1.00 KiB"},
		{1908408, "1.82 MiB"},
		{UINT64_C(19084083), "18.2 MiB"},
		{UINT64_C(190840832), "182 MiB"},
		{(UINT64_C(1) << 30) - 1, "1.00 GiB"}, /* not "1024 MiB" */
		{UINT64_MAX, "16.0 EiB"},
	};
	char text[GM_NUMBER_TEXT];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(gm_format_bytes(cases[i].bytes, text), cases[i].text);
}

/* The recorder runs inside programs that may have set a locale with another decimal mark. */
static void test_any_locale(void **state)
{
	static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ps_AF.UTF-8"};
	char text[GM_NUMBER_TEXT];
	double value = 0;
	bool set = false;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !set; i++)
		set = setlocale(LC_ALL, names[i]) != NULL;
	if (!set)
		skip(); /* a bare machine has no such locale */
	gm_format_double(0.25, text);
	int status = gm_parse_double("1.5", "x", &value, NULL);
	setlocale(LC_ALL, "C");
	assert_string_equal(text, "0.25");
	assert_int_equal(status, GM_OK);
	assert_true(value == 1.5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse_double),      cmocka_unit_test(test_parse_u64),
		cmocka_unit_test(test_parse_bytes),       cmocka_unit_test(test_format_double),
		cmocka_unit_test(test_format_reads_back), cmocka_unit_test(test_format_bytes),
		cmocka_unit_test(test_any_locale),
	};

	return cmocka_run_group_tests_name("base/number", tests, NULL, NULL);
}
