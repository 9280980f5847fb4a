#include "base/csv.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static FILE *stream_of(const char *text, size_t size)
{
	FILE *stream = tmpfile();

	assert_non_null(stream);
	assert_int_equal(fwrite(text, 1, size, stream), size);
	rewind(stream);
	return stream;
}

/* Reads all of text and writes it back as "a|b;c|d;" (fields end in | or ;), or the error's text. */
static void check_read(const char *text, size_t size, const char *expected)
{
	struct gm_csv_reader csv;
	struct gm_error err = {0};
	char got[512] = "";
	FILE *stream = stream_of(text, size);
	int status;

	gm_csv_open(&csv, stream, "x.csv");
	while ((status = gm_csv_next(&csv, &err)) == 1)
		for (size_t i = 0; i < csv.n_field; i++) {
			strcat(got, csv.field[i]);
			strcat(got, i + 1 < csv.n_field ? "|" : ";");
		}
	if (status < 0) {
		assert_int_equal(status, err.code);
		strcat(got, err.text);
	}
	gm_csv_close(&csv);
	fclose(stream);
	assert_string_equal(got, expected);
}

static void test_read(void **state)
{
	static const struct {
		const char *text, *rows;
	} cases[] = {
		{"", ""},
		{"\n\r\n\n", ""},
		{"a,b\n1,2\n", "a|b;1|2;"},
		{"a,b\r\n1,2", "a|b;1|2;"},
		{",\n,,\n", "|;||;"},
		{"\"a\"\"b\",\"c,d\"\n", "a\"b|c,d;"},
		{"\"two\nlines\",x\n", "two\nlines|x;"},
		{"\"two\r\nlines\"\n", "two\r\nlines;"},
		{"\"\"\n", ";"},
		{"a\rb\n", "a\rb;"},
		{" a ,b\"c\n", " a |b\"c;"},
		{"\xef\xbb\xbf"
		 "a,b\n",
		 "a|b;"},
		{"\xef\xbb\xbf\"a,b\"\n", "a,b;"},
		{"a,\xef\xbb\xbf"
		 "b\n",
		 "a|\xef\xbb\xbf"
		 "b;"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check_read(cases[i].text, strlen(cases[i].text), cases[i].rows);
}

static void test_read_errors(void **state)
{
	(void)state;
	check_read("a\n\"b\nc", 6, "a;quote left open: x.csv, line 2: close it with \"");
	check_read("\"a\nb\"\n\"b\"c\n", 11,
		   "a\nb;text after a closing quote: x.csv, line 3: write a quote inside quotes twice");
	check_read("a\n\nb\0c\n", 7, "a;NUL byte in text: x.csv, line 3: is this a CSV file?");
}

static void test_row_too_long(void **state)
{
	struct gm_csv_reader csv;
	struct gm_error err = {0};
	FILE *stream = tmpfile();
	char block[4096];

	(void)state;
	assert_non_null(stream);
	memset(block, 'x', sizeof(block));
	for (size_t i = 0; i <= ((size_t)16 << 20) / sizeof(block); i++)
		fwrite(block, 1, sizeof(block), stream);
	rewind(stream);
	gm_csv_open(&csv, stream, "x.csv");
	assert_int_equal(gm_csv_next(&csv, &err), GM_ERR_FORMAT);
	assert_string_equal(err.text, "row too long: x.csv, line 1: at most 16 MiB; is a quote left open?");
	gm_csv_close(&csv);
	fclose(stream);
}

static void test_lines_and_many_fields(void **state)
{
	struct gm_csv_reader csv;
	FILE *stream = tmpfile();

	(void)state;
	assert_non_null(stream);
	fputs("\n\"a\n\nb\"\n\n", stream);
	for (int i = 0; i < 1000; i++)
		fprintf(stream, "%d,", i);
	rewind(stream);
	gm_csv_open(&csv, stream, "x.csv");
	assert_int_equal(gm_csv_next(&csv, NULL), 1);
	assert_int_equal(csv.line, 2);
	assert_int_equal(gm_csv_next(&csv, NULL), 1);
	assert_int_equal(csv.line, 6);
	assert_int_equal(csv.n_field, 1001);
	assert_string_equal(csv.field[999], "999");
	assert_string_equal(csv.field[1000], "");
	assert_int_equal(gm_csv_next(&csv, NULL), 0);
	gm_csv_close(&csv);
	fclose(stream);
}

static void test_write(void **state)
{
	struct gm_csv_writer csv = {.stream = tmpfile()};
	char got[256];

	(void)state;
	assert_non_null(csv.stream);
	gm_csv_text(&csv, "plain text");
	gm_csv_text(&csv, "a,\"b\"");
	gm_csv_text(&csv, NULL);
	gm_csv_uint(&csv, UINT64_MAX);
	gm_csv_double(&csv, 0.1);
	gm_csv_double(&csv, (double)NAN);
	gm_csv_end_row(&csv);
	gm_csv_text(&csv, "");
	gm_csv_end_row(&csv);
	gm_csv_double(&csv, (double)NAN);
	gm_csv_text(&csv, "two\nlines");
	gm_csv_end_row(&csv);
	rewind(csv.stream);
	got[fread(got, 1, sizeof(got) - 1, csv.stream)] = '\0';
	assert_string_equal(got, "plain text,\"a,\"\"b\"\"\",,18446744073709551615,0.1,\n\"\"\n,\"two\nlines\"\n");
	fclose(csv.stream);
	check_read(got, strlen(got), "plain text|a,\"b\"||18446744073709551615|0.1|;;|two\nlines;");
}

static void test_write_lists(void **state)
{
	const double value[] = {0.1, 2, -3.5};
	struct gm_csv_writer csv = {.stream = tmpfile()};
	char got[64];

	(void)state;
	assert_non_null(csv.stream);
	gm_csv_doubles(&csv, value, 3);
	gm_csv_doubles(&csv, value, 0);
	gm_csv_doubles(&csv, value + 1, 1);
	gm_csv_end_row(&csv);
	gm_csv_doubles(&csv, NULL, 0);
	gm_csv_end_row(&csv);
	rewind(csv.stream);
	got[fread(got, 1, sizeof(got) - 1, csv.stream)] = '\0';
	assert_string_equal(got, "0.1;2;-3.5,,2\n\"\"\n");
	fclose(csv.stream);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),         cmocka_unit_test(test_read_errors),
		cmocka_unit_test(test_row_too_long), cmocka_unit_test(test_lines_and_many_fields),
		cmocka_unit_test(test_write),        cmocka_unit_test(test_write_lists),
	};

	return cmocka_run_group_tests_name("base/csv", tests, NULL, NULL);
}
