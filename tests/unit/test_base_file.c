#include "base/file.h"
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/gatemass-file-XXXXXX";

static int enter_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
	(void)state;
	return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1; /* fails if a test left something behind */
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static void check_content(const char *path, const char *expected)
{
	size_t size = 0;
	char *text = gm_read_file(path, 1000, &size, NULL);

	assert_non_null(text);
	assert_string_equal(text, expected);
	assert_int_equal(size, strlen(expected));
	free(text);
}

static void write_file(const char *path, const char *text)
{
	FILE *stream = fopen(path, "w");

	assert_non_null(stream);
	fputs(text, stream);
	fclose(stream);
}

static void test_commit(void **state)
{
	struct gm_output out;

	(void)state;
	write_file("a", "old");
	assert_int_equal(gm_output_open(&out, "a", NULL), GM_OK);
	fputs("new", out.stream);
	assert_true(exists("a.part"));
	check_content("a", "old"); /* until the commit */
	assert_int_equal(gm_output_commit(&out, NULL), GM_OK);
	check_content("a", "new");
	assert_false(exists("a.part"));
	gm_output_discard(&out); /* does nothing */
	assert_true(exists("a"));
	unlink("a");
}

static void test_discard(void **state)
{
	struct gm_output out, zeroed = {0};

	(void)state;
	assert_int_equal(gm_output_open(&out, "a", NULL), GM_OK);
	fputs("half", out.stream);
	gm_output_discard(&out);
	gm_output_discard(&out);
	gm_output_discard(&zeroed);
	assert_false(exists("a") || exists("a.part"));
}

static void test_link_stays(void **state)
{
	struct gm_output out;
	struct stat st;

	(void)state;
	write_file("target", "old");
	assert_int_equal(symlink("target", "link"), 0);
	assert_int_equal(gm_output_open(&out, "link", NULL), GM_OK);
	fputs("new", out.stream);
	assert_int_equal(gm_output_commit(&out, NULL), GM_OK);
	assert_true(lstat("link", &st) == 0 && S_ISLNK(st.st_mode));
	check_content("target", "new");
	unlink("link");
	unlink("target");
}

static void check_open_error(const char *path, int code, const char *message)
{
	struct gm_output out;
	struct gm_error err = {0};

	assert_int_equal(gm_output_open(&out, path, &err), code);
	assert_string_equal(err.text, message);
	gm_output_discard(&out);
}

static void test_open_errors(void **state)
{
	(void)state;
	check_open_error("no/such/x", GM_ERR_IO, "cannot write: no/such/x.part: No such file or directory");
	check_open_error("/", GM_ERR_IO, "cannot write: /: a directory; give a file");
	check_open_error("", GM_ERR_USAGE, "empty file name: output: give a name, or - for standard output");
}

/* A full disk is found at the latest by the commit; the old file stays. */
static void test_disk_full(void **state)
{
	struct gm_output out;
	struct gm_error err = {0};

	(void)state;
	if (access("/dev/full", W_OK) != 0)
		skip();
	assert_int_equal(gm_output_open(&out, "/dev/full", NULL), GM_OK);
	fputs("text", out.stream);
	assert_int_equal(gm_output_commit(&out, &err), GM_ERR_IO);
	assert_string_equal(err.text, "cannot write: /dev/full: No space left on device");
	assert_true(exists("/dev/full")); /* a device is never renamed over or removed */
}

static void test_rename_fails(void **state)
{
	struct gm_output out;
	struct gm_error err = {0};

	(void)state;
	assert_int_equal(gm_output_open(&out, "a", NULL), GM_OK);
	assert_int_equal(mkdir("a", 0700), 0);
	assert_int_equal(gm_output_commit(&out, &err), GM_ERR_IO);
	assert_string_equal(err.text, "cannot rename: a.part to a: Is a directory");
	assert_false(exists("a.part"));
	rmdir("a");
}

static void test_read(void **state)
{
	struct gm_error err = {0};
	size_t size = 0;

	(void)state;
	write_file("a", "12345");
	char *text = gm_read_file("a", 5, &size, NULL);
	assert_string_equal(text, "12345");
	assert_int_equal(size, 5);
	free(text);
	assert_null(gm_read_file("a", 4, &size, &err));
	assert_string_equal(err.text, "file too large: a: at most 4 bytes are read");
	err = (struct gm_error){0};
	assert_null(gm_read_file(".", 4, NULL, &err));
	assert_string_equal(err.text, "cannot read: .: Is a directory");
	write_file("a", "");
	check_content("a", "");
	write_file("a", "{\"a\":1, \"a\":2}");
	err = (struct gm_error){0};
	assert_null(gm_json_parse_file("a", &err));
	assert_string_equal(err.text, "key stands twice: a, line 1: \"a\"");
	unlink("a");
}

/* Sizes around the steps in which the buffer grows. */
static void test_read_large(void **state)
{
	static const size_t sizes[] = {65535, 65536, 65537, 131072, 200000};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		FILE *stream = fopen("a", "w");
		size_t size = 0;

		assert_non_null(stream);
		for (size_t n = 0; n < sizes[i]; n++)
			fputc('a' + (int)(n % 26), stream);
		fclose(stream);
		char *text = gm_read_file("a", sizes[i], &size, NULL);
		assert_non_null(text);
		assert_int_equal(size, sizes[i]);
		assert_int_equal(text[size - 1], 'a' + (int)((size - 1) % 26));
		free(text);
		assert_null(gm_read_file("a", sizes[i] - 1, &size, NULL));
	}
	unlink("a");
}

static void expect_clash(const char *input, const char *output, const char *message)
{
	const struct gm_file_use use[] = {{input, "TRACE", false}, {output, "--csv", true}};
	struct gm_error err = {0};

	assert_int_equal(gm_files_check(use, 2, &err), message ? GM_ERR_USAGE : GM_OK);
	assert_string_equal(err.text, message ? message : "");
}

/* What NAME is written as, NAME.part, is nobody's input and no other output's name. */
static void test_parts(void **state)
{
	static const char message[] =
		"an output would overwrite an input: --csv \"a\" is written as \"a.part\": give the output "
		"another name";
	const struct gm_file_use link_use[] = {{"a.part", "TRACE", false}, {"link", "--csv", true}};
	const struct gm_file_use outputs[] = {{"a.part", "--csv", true}, {"./a", "--per-layer", true}};
	struct gm_error err = {0};

	(void)state;
	expect_clash("a.part", "a", message); /* neither is there yet */
	write_file("a.part", "x");
	expect_clash("a.part", "a", message);
	expect_clash("b.part", "a", NULL);
	expect_clash("a.part.part", "a", NULL);
	assert_int_equal(symlink("a.part", "other"), 0);
	expect_clash("other", "a", message);
	unlink("other");
	assert_int_equal(symlink("a", "link"), 0); /* the file behind a link is written */
	write_file("a", "x");
	assert_int_equal(gm_files_check(link_use, 2, &err), GM_ERR_USAGE);
	assert_non_null(strstr(err.text, "--csv \"link\" is written as \"/"));
	err = (struct gm_error){0};
	unlink("link");
	unlink("a");
	unlink("a.part");
	expect_clash("/dev/null.part", "/dev/null", NULL); /* a device is written to directly */
	assert_int_equal(gm_files_check(outputs, 2, &err), GM_ERR_USAGE);
	assert_string_equal(err.text,
			    "an output would overwrite another: --per-layer \"./a\" is written as \"./a.part\": give the "
			    "output another name");
}

static void expect_place(const char *message, const char *expected)
{
	struct gm_error err = {0};

	gm_fail(&err, GM_ERR_FORMAT, "%s", message);
	assert_int_equal(gm_error_at(&err, "f.gmt: block %d", 7), GM_ERR_FORMAT);
	assert_string_equal(err.text, expected);
}

/* A place goes behind what is wrong and before what is there already. */
static void test_place(void **state)
{
	struct gm_error err = {0};
	char text[256];

	(void)state;
	expect_place("damaged", "damaged: f.gmt: block 7");
	expect_place("damaged: fetch it again", "damaged: f.gmt: block 7: fetch it again");
	expect_place("damaged: token 3: fetch it again", "damaged: f.gmt: block 7: token 3: fetch it again");
	expect_place("x is \"a: b\": a number", "x is \"a: b\": f.gmt: block 7: a number");
	assert_int_equal(gm_error_at(&err, "f.gmt"), GM_OK);
	assert_string_equal(err.text, "");
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	gm_fail(&err, GM_ERR_IO, "%s", text);
	gm_error_at(&err, "f.gmt");
	assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
	assert_string_equal(err.text + sizeof(err.text) - 4, "\xe2\x80\xa6");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_commit),      cmocka_unit_test(test_discard),    cmocka_unit_test(test_link_stays),
		cmocka_unit_test(test_open_errors), cmocka_unit_test(test_disk_full),  cmocka_unit_test(test_rename_fails),
		cmocka_unit_test(test_read),        cmocka_unit_test(test_read_large), cmocka_unit_test(test_parts),
		cmocka_unit_test(test_place),
	};

	return cmocka_run_group_tests_name("base/file", tests, enter_folder, leave_folder);
}
