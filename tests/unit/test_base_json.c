#include "base/hash.h"
#include "base/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct gm_json *parse(const char *text)
{
	struct gm_error err = {0};
	struct gm_json *root = gm_json_parse(text, strlen(text), "test", &err);

	if (!root)
		fail_msg("%s", err.text);
	return root;
}

static void check_print(struct gm_json *root, bool pretty, const char *expected)
{
	char *text = gm_json_print(root, pretty);

	assert_non_null(text);
	assert_string_equal(text, expected);
	free(text);
	gm_json_free(root);
}

static void test_print_is_shortest(void **state)
{
	(void)state;
	check_print(parse(" {\"a\" : [1, 2.50, -3e2, 0.1, 1e15],\n\t\"b\":{}, \"c\":null, \"d\":true}\r\n"), false,
		    "{\"a\":[1,2.5,-300,0.1,1000000000000000],\"b\":{},\"c\":null,\"d\":true}");
	check_print(parse("[9007199254740992, 0.30000000000000004, 1e300, 5e-324]"), false,
		    "[9007199254740992,0.30000000000000004,1e+300,5e-324]");
	check_print(parse("{\"a\":[1,0.5]}"), true, "{\n\t\"a\":\t[1, 0.5]\n}");
	check_print(parse("\"\\u00e4 \\\" \\n\""), false, "\"\xc3\xa4 \\\" \\n\"");
	check_print(parse("7"), false, "7");
}

/* Every one of these is refused, with the line that is to blame. */
static void test_parse_errors(void **state)
{
	static const struct {
		const char *text, *message;
	} bad[] = {
		{"", "no JSON: test: the text is empty"},
		{" \n ", "no JSON: test: the text is empty"},
		{"{\"a\":1\n", "bracket left open: test, line 2: close it with ] or }"},
		{"{\n\"a\" 1}", "not valid JSON: test, line 2: not understood from here on: 1}"},
		{"[1,\n2,\n]", "not valid JSON: test, line 3: not understood from here on: ]"},
		{"{'a':1}", "not valid JSON: test, line 1: not understood from here on: a':1}"},
		{"{} {}", "text after the JSON value: test, line 1: one file holds one value"},
		{"[1]\n\n]", "text after the JSON value: test, line 3: one file holds one value"},
		{"[01]", "not a JSON number: test, line 1: write it like -12.5e3"},
		{"[1.]", "not a JSON number: test, line 1: write it like -12.5e3"},
		{"\n[-]", "not a JSON number: test, line 2: write it like -12.5e3"},
		{"[1e]", "not a JSON number: test, line 1: write it like -12.5e3"},
		{"{\"a\":\n\n1e999}", "number too large: test, line 1, key \"a\": give one that a double can hold"},
		{"[\"a\nb\"]",
		 "control character in a string: test, line 1: write it as \\u00XX, or close the string before it"},
		{"\n[\"ab", "string left open: test, line 2: close it with \""},
		{"[\"a\\u0000b\"]", "\\u0000 in a string: test, line 1: texts end at a NUL"},
		{"[\"\xc3(\"]", "a byte that is not UTF-8 in a string: test, line 1: write UTF-8"},
		{"[\"\xed\xa0\x80\"]", "a byte that is not UTF-8 in a string: test, line 1: write UTF-8"},
		{"[\"\xc0\xaf\"]", "a byte that is not UTF-8 in a string: test, line 1: write UTF-8"},
		{"[1,\f2]", "control character: test, line 1: is this a JSON file?"},
		{"{\"a\":{\"b\":\"a\"},\n\"c\":1,\n\"a\":2}", "key stands twice: test, line 3: \"a\""},
		{"[{\"x\":0},\n{\"k\":0,\n\"k\":0}]", "key stands twice: test, line 3: \"k\""},
		{"nul", "not valid JSON: test, line 1: not understood from here on: nul"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct gm_error err = {0};
		assert_null(gm_json_parse(bad[i].text, strlen(bad[i].text), "test", &err));
		assert_int_equal(err.code, GM_ERR_FORMAT);
		assert_string_equal(err.text, bad[i].message);
	}
}

static void test_nul_byte_and_length(void **state)
{
	struct gm_error err = {0};

	(void)state;
	assert_null(gm_json_parse("[1]\0", 4, "test", &err));
	assert_string_equal(err.text, "control character: test, line 1: is this a JSON file?");
	struct gm_json *root = gm_json_parse("[1]xxx", 3, "test", NULL); /* size counts, not a NUL */
	assert_int_equal(gm_json_size(root), 1);
	gm_json_free(root);
}

/* Every prefix of a good text is refused and read within its bounds (the address sanitizer watches). */
static void test_every_prefix(void **state)
{
	static const char text[] = "{\"key\\u00e9\":[-1.5e+3,true,null,\"x\\\"\"],\"b\":{\"c\":0.25}}";

	(void)state;
	for (size_t n = 0; n < strlen(text); n++) {
		char *copy = malloc(n ? n : 1);
		assert_non_null(copy);
		memcpy(copy, text, n);
		assert_null(gm_json_parse(copy, n, "test", NULL));
		free(copy);
	}
	gm_json_free(parse(text));
}

static void test_depth(void **state)
{
	char text[400];
	struct gm_error err = {0};

	(void)state;
	memset(text, '[', 64);
	memset(text + 64, ']', 64);
	text[128] = '\0';
	gm_json_free(parse(text));
	memset(text, '[', 65);
	memset(text + 65, ']', 65);
	assert_null(gm_json_parse(text, 130, "test", &err));
	assert_string_equal(err.text, "nested too deep: test, line 1: at most 64 levels");
}

static void test_twin_among_many_keys(void **state)
{
	char text[4096] = "{";
	struct gm_error err = {0};
	size_t n = 1;

	(void)state;
	for (int i = 0; i < 100; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "\"k%d\":%d,\n", i, i);
	snprintf(text + n, sizeof(text) - n, "\"k7\":0}");
	assert_null(gm_json_parse(text, strlen(text), "test", &err));
	assert_string_equal(err.text, "key stands twice: test, line 101: \"k7\"");
	snprintf(text + n, sizeof(text) - n, "\"k100\":0}");
	struct gm_json *root = parse(text);
	assert_int_equal(gm_json_size(root), 101);
	gm_json_free(root);
}

static void test_reading(void **state)
{
	struct gm_json *root = parse("{\"n\":12,\"x\":0.5,\"t\":\"abc\",\"z\":null,\"l\":[1,2],\"N\":3,\"b\":true}");
	struct gm_error err = {0};
	const char *text = "unset";
	double number = 1;
	int64_t whole = 5;
	bool found;

	(void)state;
	assert_int_equal(gm_json_get_int(root, "n", 0, 100, &whole, NULL, &err), GM_OK);
	assert_int_equal(whole, 12);
	assert_int_equal(gm_json_get_number(root, "x", &number, &found, &err), GM_OK);
	assert_true(found && number == 0.5);
	assert_int_equal(gm_json_get_string(root, "t", &text, &found, &err), GM_OK);
	assert_string_equal(text, "abc");
	assert_int_equal(gm_json_get_int(root, "z", 0, 100, &whole, &found, &err), GM_OK);
	assert_true(!found && whole == 12);
	assert_int_equal(gm_json_get_string(root, "absent", &text, &found, &err), GM_OK);
	assert_false(found);
	assert_null(gm_json_get(root, "L")); /* case counts */
	assert_null(gm_json_get(gm_json_get(root, "l"), "x"));
	assert_int_equal(gm_json_type(gm_json_get(root, "b")), GM_JSON_BOOL);
	assert_true(gm_json_is_true(gm_json_get(root, "b")));
	assert_null(gm_json_text(gm_json_get(root, "n")));
	assert_true(isnan(gm_json_value(gm_json_get(root, "t"))));
	const struct gm_json *item = gm_json_first(gm_json_get(root, "l"));
	assert_true(gm_json_value(item) == 1 && gm_json_value(gm_json_next(item)) == 2);
	assert_null(gm_json_next(gm_json_next(item)));
	assert_null(gm_json_first(gm_json_get(root, "t")));
	assert_string_equal(gm_json_key(gm_json_first(root)), "n");
	assert_int_equal(err.code, GM_OK);
	gm_json_free(root);
}

static void test_reading_errors(void **state)
{
	struct gm_json *root = parse("{\"n\":1.5,\"t\":\"abc\",\"z\":null,\"l\":[],\"big\":1e17,\"b\":false}");
	static const struct {
		const char *key, *message;
	} bad[] = {
		{"n", "wrong value: key \"n\" is 1.5: give a whole number from 1 to 9"},
		{"t", "wrong value: key \"t\" is \"abc\": give a whole number from 1 to 9"},
		{"z", "missing: key \"z\": give a whole number from 1 to 9"},
		{"gone", "missing: key \"gone\": give a whole number from 1 to 9"},
		{"l", "wrong value: key \"l\" is a list: give a whole number from 1 to 9"},
		{"big", "wrong value: key \"big\" is 1e+17: give a whole number from 1 to 9"},
		{"b", "wrong value: key \"b\" is false: give a whole number from 1 to 9"},
	};
	struct gm_error err = {0};
	const char *text;
	double number;
	bool found;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct gm_error e = {0};
		int64_t whole = 5;
		assert_int_equal(gm_json_get_int(root, bad[i].key, 1, 9, &whole, NULL, &e), GM_ERR_FORMAT);
		assert_string_equal(e.text, bad[i].message);
		assert_int_equal(whole, 5);
	}
	assert_int_equal(gm_json_get_number(root, "t", &number, &found, &err), GM_ERR_FORMAT);
	assert_string_equal(err.text, "wrong value: key \"t\" is \"abc\": give a number");
	err = (struct gm_error){0};
	assert_int_equal(gm_json_get_string(root, "n", &text, &found, &err), GM_ERR_FORMAT);
	assert_string_equal(err.text, "wrong value: key \"n\" is 1.5: give a text");
	gm_json_free(root);
}

static void test_building(void **state)
{
	struct gm_json *root = gm_json_new_object(), *list = gm_json_new_array();

	(void)state;
	assert_true(gm_json_append_number(list, 0.1));
	assert_true(gm_json_append_string(list, "a\xff\xc3\xa4")); /* a file name need not be UTF-8 */
	assert_true(gm_json_add(root, "list", list));
	assert_true(gm_json_add_uint(root, "max", UINT64_MAX));
	assert_true(gm_json_add_number(root, "nan", (double)NAN));
	assert_true(gm_json_add_number(root, "x", 1e-7));
	assert_true(gm_json_add_bool(root, "no", false));
	assert_true(gm_json_add_null(root, "none"));
	assert_true(gm_json_add_string(root, "gone", "x"));
	gm_json_remove(root, "gone");
	assert_int_equal(gm_json_type(gm_json_get(root, "max")), GM_JSON_NUMBER);
	assert_true(gm_json_value(gm_json_get(root, "max")) == 0x1p64);
	struct gm_json *copy = gm_json_copy(root, NULL);
	gm_json_free(root);
	check_print(copy, false,
		    "{\"list\":[0.1,\"a\xef\xbf\xbd\xc3\xa4\"],\"max\":18446744073709551615,\"nan\":null,\"x\":1e-07,"
		    "\"no\":false,\"none\":null}");
}

/* A chain of additions is checked once at its end; what it took over is freed on the way. */
static void test_building_on_nothing(void **state)
{
	struct gm_json *root = gm_json_new_object();

	(void)state;
	assert_false(gm_json_add_string(NULL, "a", "b"));
	assert_false(gm_json_add_number(NULL, "a", 1));
	assert_false(gm_json_append_string(NULL, "b"));
	assert_false(gm_json_add(NULL, "a", gm_json_new_array()));
	assert_false(gm_json_append(NULL, gm_json_new_object()));
	assert_false(gm_json_add(root, "a", NULL));
	gm_json_free(root);
	gm_json_free(NULL);
}

static void test_parse_file(void **state)
{
	struct gm_error err = {0};

	(void)state;
	assert_null(gm_json_parse_file("/nonexistent/x.json", &err));
	assert_int_equal(err.code, GM_ERR_IO);
	assert_string_equal(err.text, "cannot read: /nonexistent/x.json: No such file or directory");
}

/* Known values of XXH3-64, so that a hash in an old file still means the same. */
static void test_hash(void **state)
{
	struct gm_hash_state *hash = gm_hash_new(NULL);
	char text[GM_HASH_TEXT], data[1000];

	(void)state;
	assert_string_equal(gm_hash_format(gm_hash("", 0), text), "2d06800538d394c2");
	assert_string_equal(gm_hash_format(gm_hash("gatemass", 8), text), "a61a1897d5584860");
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7);
	gm_hash_add(hash, data, 1);
	gm_hash_add(hash, data + 1, 0);
	gm_hash_add(hash, data + 1, 600);
	gm_hash_value(hash);
	gm_hash_add(hash, data + 601, 399);
	assert_true(gm_hash_value(hash) == gm_hash(data, sizeof(data)));
	gm_hash_free(hash);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_print_is_shortest),
		cmocka_unit_test(test_parse_errors),
		cmocka_unit_test(test_nul_byte_and_length),
		cmocka_unit_test(test_every_prefix),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_twin_among_many_keys),
		cmocka_unit_test(test_reading),
		cmocka_unit_test(test_reading_errors),
		cmocka_unit_test(test_building),
		cmocka_unit_test(test_building_on_nothing),
		cmocka_unit_test(test_parse_file),
		cmocka_unit_test(test_hash),
	};

	return cmocka_run_group_tests_name("base/json", tests, NULL, NULL);
}
