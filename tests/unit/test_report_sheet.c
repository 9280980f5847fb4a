/* Tables in memory: reading with errors that name file, line and column, appending, building. */
#include "report/inputs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *write_file(const char *text)
{
	static char name[4][64];
	static int next;
	char *path = name[next++ % 4];

	strcpy(path, "/tmp/gatemass-sheet-XXXXXX");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	return path;
}

/* The message of a file, with its name replaced by F. */
static void check_error(const char *text, const char *expected)
{
	const char *path = write_file(text);
	struct gm_inputs inputs = {0};
	struct gm_error err = {0};
	char got[300] = "";

	assert_true(gm_inputs_read(&inputs, path, NULL, &err) < 0);
	char *at = strstr(err.text, path);
	assert_non_null(at);
	snprintf(got, sizeof(got), "%.*sF%s", (int)(at - err.text), err.text, at + strlen(path));
	assert_string_equal(got, expected);
	gm_inputs_free(&inputs);
	unlink(path);
}

#define HEADER "trace,miss,hit_rate,trace_hash,settings_hash,semantics_version\n"

static void test_errors(void **state)
{
	(void)state;
	check_error("", "empty file: F, line 1, column 1: a CSV file begins with the names of its columns");
	check_error("a,,c\n", "column without a name: F, line 1, column 2: line 1 holds the names");
	check_error("a,b,a\n", "column named twice: F, line 1, column 3: \"a\" is also column 1");
	check_error("a,b\n1,2\n1\n", "row of 1 fields: F, line 3, column 1: the header has 2; is the file cut off?");
	check_error("a,b\n1,2\n1,2,3\n", "row of 3 fields: F, line 3, column 3: the header has 2; is the file cut off?");
	check_error("a,b\n\"1,2\n", "quote left open: F, line 2: close it with \"");
	check_error("a,b\n1,2\n", "not a result file: F, line 1, column 1 (a): no column \"trace_hash\"; report reads CSV "
				  "of sim sweep, emulate and "
				  "traces stats");
	check_error(HEADER, "no rows: F, line 2, column 1: there is only a header");
	check_error(HEADER "t,fetch,0.5,h,s,1\n\"a\nb\",fetch,0.5x,h,s,1\n",
		    "not a number: F, line 3, column 3 (hit_rate): \"0.5x\": a number or nothing");
	check_error(HEADER "t,fetch,0.5,h,s,1\nt,fetch,0.5,h,s,2\n",
		    "other version of the replay rules: F, line 3, column 6 (semantics_version): \"2\": the rows before it "
		    "are of 1, and only "
		    "equal versions compare");
	check_error(HEADER "t,fetch,0.5,h,s,\n",
		    "no version of the rules: F, line 2, column 6 (semantics_version): \"\": a number, such as 1");
}

/* Of two files with columns in another order the error names the column as its own file has it. */
static void test_append(void **state)
{
	const char *first = write_file("a,b\n1,x\n"), *second = write_file("c,b,a\n9,\"y,\"\"z\",2\n");
	struct gm_sheet sheet = {0}, more = {0};
	struct gm_error err = {0};
	double *a;

	(void)state;
	assert_int_equal(gm_sheet_read(&sheet, first, &err), GM_OK);
	assert_int_equal(gm_sheet_read(&more, second, &err), GM_OK);
	assert_int_equal(gm_sheet_append(&sheet, &more, &err), GM_OK);
	assert_int_equal(sheet.n_column, 3);
	assert_int_equal(sheet.n_row, 2);
	assert_string_equal(gm_sheet_text(&sheet, 0, gm_sheet_find(&sheet, "c")), "");
	assert_string_equal(gm_sheet_text(&sheet, 1, gm_sheet_find(&sheet, "c")), "9");
	assert_string_equal(gm_sheet_text(&sheet, 1, gm_sheet_find(&sheet, "b")), "y,\"z");
	a = gm_sheet_numbers(&sheet, "a", &err);
	assert_non_null(a);
	assert_true(a[0] == 1 && a[1] == 2);
	free(a);
	a = gm_sheet_numbers(&sheet, "nowhere", &err);
	assert_true(a && isnan(a[0]) && isnan(a[1]));
	free(a);
	assert_null(gm_sheet_numbers(&sheet, "b", &err));
	assert_non_null(strstr(err.text, "line 2, column 2 (b): \"x\""));
	err = (struct gm_error){0};
	gm_sheet_fail(&sheet, 1, gm_sheet_find(&sheet, "a"), "bad", "right", &err);
	assert_non_null(strstr(err.text, "line 2, column 3 (a): \"2\""));
	assert_true(gm_sheet_is_numeric(&sheet, 0));
	assert_false(gm_sheet_is_numeric(&sheet, 1));
	gm_sheet_free(&sheet);
	gm_sheet_free(&more);
	unlink(first);
	unlink(second);
}

static void test_build_and_write(void **state)
{
	struct gm_sheet sheet = {0};
	struct gm_error err = {0};
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	(void)state;
	assert_int_equal(gm_sheet_add_column(&sheet, "name, \"x\"", &err), GM_OK);
	assert_int_equal(gm_sheet_add_column(&sheet, "value", &err), GM_OK);
	for (int i = 0; i < 1000; i++) { /* the text moves while it grows */
		assert_int_equal(gm_sheet_put(&sheet, i == 0 ? "a\nb" : NULL, &err), GM_OK);
		assert_int_equal(gm_sheet_put_number(&sheet, i == 1 ? (double)NAN : 0.1 * i, &err), GM_OK);
	}
	assert_string_equal(gm_sheet_text(&sheet, 0, 0), "a\nb");
	assert_string_equal(gm_sheet_text(&sheet, 999, 1), "99.9");
	gm_sheet_write(&sheet, out);
	fclose(out);
	assert_memory_equal(text, "\"name, \"\"x\"\"\",value\n\"a\nb\",0\n,\n,0.2\n", 34);
	free(text);
	gm_sheet_free(&sheet);
}

/* Which kind a file is tells its header. */
static void test_kinds(void **state)
{
	static const struct {
		const char *text;
		enum gm_input kind;
	} cases[] = {
		{HEADER "t,fetch,0.5,h,s,1\n", GM_INPUT_RESULTS},
		{"trace,miss,trace_hash,settings_hash,semantics_version,layer,hits,misses\nt,m,h,s,1,0,1,2\n",
		 GM_INPUT_LAYERS},
		{"trace,miss,trace_hash,settings_hash,semantics_version,sequence,id,label\nt,m,h,s,1,0,x,y\n",
		 GM_INPUT_SEQUENCES},
		{"trace,settings_hash,token,sequence,label,hits\nt,s,0,0,x,1\n", GM_INPUT_TOKENS},
		{"trace,trace_hash,layer,statistic,index,value\nt,h,0,reuse,1,0.5\n", GM_INPUT_STATS},
	};
	struct gm_inputs inputs = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const char *path = write_file(cases[i].text);
		struct gm_error err = {0};
		enum gm_input kind;

		assert_int_equal(gm_inputs_read(&inputs, path, &kind, &err), GM_OK);
		assert_int_equal(kind, cases[i].kind);
		assert_int_equal(inputs.sheet[kind].n_row, 1);
		unlink(path);
	}
	/* A further file of another version is refused, whatever its kind. */
	const char *path =
		write_file("trace,miss,trace_hash,settings_hash,semantics_version,layer,hits,misses\nt,m,h,s,2,0,1,2\n");
	assert_int_equal(gm_inputs_read(&inputs, path, NULL, NULL), GM_ERR_FORMAT);
	unlink(path);
	gm_inputs_free(&inputs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_append),
		cmocka_unit_test(test_build_and_write),
		cmocka_unit_test(test_kinds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
