/* What pictures are made of: escaping, scales and ticks, the SVG writer, a chart as a whole, the trade-off front. */
#include "report/chart.h"
#include "report/escape.h"
#include "report/front.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- escaping --- */

static void check_escape(void (*put)(FILE *out, const char *text), const char *text, const char *expected)
{
	char *got = NULL;
	size_t size;
	FILE *out = open_memstream(&got, &size);

	put(out, text);
	fclose(out);
	assert_string_equal(got, expected);
	free(got);
}

static void test_escape(void **state)
{
	(void)state;
	check_escape(gm_put_xml, "<a b=\"1\">&'", "&lt;a b=&quot;1&quot;&gt;&amp;&#39;");
	check_escape(gm_put_xml, "a\nb\tc", "a&#10;b&#9;c");
	check_escape(gm_put_xml, "\xc3\xa9\xe6\xa8\xa1\xf0\x9f\x98\x80", "\xc3\xa9\xe6\xa8\xa1\xf0\x9f\x98\x80");
	check_escape(gm_put_xml, "\x01\xff\xc3", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* no XML, no UTF-8, cut off */
	check_escape(gm_put_json, "\"\\</script>&\n", "\"\\\"\\\\\\u003c/script>\\u0026\\u000a\"");
	check_escape(gm_put_json, "\xe2\x80\xa8\xe2\x80\xa9", "\"\\u2028\\u2029\"");
	check_escape(gm_put_markdown, "a|b*c*_d_ <i>&`x`\n1", "a\\|b\\*c\\*\\_d\\_ &lt;i>&amp;\\`x\\`<br>1");
	check_escape(gm_put_latex, "50% & a_b #1 $x$ {y} \\z ~ ^ <\"|>\n.",
		     "50\\% \\& a\\_b \\#1 \\$x\\$ \\{y\\} \\textbackslash{}z \\textasciitilde{} \\textasciicircum{} "
		     "\\textless{}\\textquotedbl{}\\textbar{}\\textgreater{} .");
	assert_int_equal(gm_text_width("\xc3\xa9\xe6\xa8\xa1x\xff"), 5);
}

/* --- scales --- */

static void test_scale(void **state)
{
	static const struct {
		double low, high;
		int n_tick;
		double from, to, step;
	} cases[] = {
		{0, 100, 5, 0, 100, 20},
		{0, 97, 5, 0, 100, 20},
		{3, 97, 5, 0, 100, 20},
		{0, 0.3, 3, 0, 0.3, 0.1},
		{844, 1151, 6, 800, 1200, 100},
		{0, 0, 5, 0, 1, 0.2},
		{5, 5, 5, 4.5, 5.5, 0.2},
		{-1, 1, 4, -1, 1, 0.5},
		{10, 2, 4, 2, 10, 2},
		{0, 1e-7, 5, 0, 1e-7, 2e-8},
		{0, 1e12, 5, 0, 1e12, 2e11},
		{(double)NAN, 3, 5, 0, 1, 0.2},
		{0, (double)INFINITY, 5, 0, 1, 0.2},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct gm_scale s = gm_scale_nice(cases[i].low, cases[i].high, cases[i].n_tick);

		assert_true(fabs(s.step - cases[i].step) <= 1e-9 * s.step);
		if (i == 6) { /* the ends are whole steps beyond the room around one value */
			assert_true(s.low <= 4.5 && s.high >= 5.5);
			continue;
		}
		assert_true(fabs(s.low - cases[i].from) <= 1e-9 * s.step);
		assert_true(fabs(s.high - cases[i].to) <= 1e-9 * s.step);
	}
}

/* Ticks hold all values between them, whatever the range. */
static void test_scale_holds_its_range(void **state)
{
	(void)state;
	srand(5);
	for (int i = 0; i < 20000; i++) {
		double low = (rand() - RAND_MAX / 2) * pow(10, rand() % 12 - 9),
		       high = low + rand() * pow(10, rand() % 9 - 9) + 1e-9;
		struct gm_scale s = gm_scale_nice(low, high, 2 + rand() % 9);
		int n = gm_scale_n_tick(&s);

		assert_true(s.low <= low + 1e-6 * s.step && s.high >= high - 1e-6 * s.step);
		assert_true(n >= 2 && n <= 15);
		assert_true(fabs(gm_scale_tick(&s, 0) - s.low) <= 1e-6 * s.step);
		assert_true(fabs(gm_scale_tick(&s, n - 1) - s.high) <= 1e-6 * s.step);
	}
}

static void test_scale_text(void **state)
{
	struct gm_scale tenths = gm_scale_nice(0, 0.5, 5), whole = gm_scale_nice(0, 50000, 5);
	char text[GM_SCALE_TEXT];

	(void)state;
	assert_string_equal(gm_scale_text(&tenths, 0.30000000000000004, text), "0.3");
	assert_string_equal(gm_scale_text(&tenths, -0.01, text), "0.0");
	assert_string_equal(gm_scale_text(&whole, 20000, text), "20\xe2\x80\x89"
								"000");
	assert_string_equal(gm_short_number(0, 4, text), "0");
	assert_string_equal(gm_short_number(1150.98, 4, text), "1151");
	assert_string_equal(gm_short_number(0.0123456, 3, text), "0.0123");
	assert_string_equal(gm_short_number(-1234567.8, 4, text), "-1\xe2\x80\x89"
								  "234\xe2\x80\x89"
								  "568");
	assert_string_equal(gm_short_number(1e-9, 4, text), "1e-09");
	assert_string_equal(gm_short_number(12, 4, text), "12");
}

/* --- SVG --- */

static void test_svg(void **state)
{
	char *text = NULL;
	size_t size;
	struct gm_svg svg = {.out = open_memstream(&text, &size)};

	(void)state;
	gm_svg_open(&svg, "g");
	gm_svg_attribute(&svg, "class", "a\"<b>");
	gm_svg_line(&svg, "grid", 0, 1.005, -0.001, 2.5);
	gm_svg_text(&svg, NULL, 3.14159, (double)NAN, "x < \"y\" & \xc3\xa9");
	gm_svg_open_rect(&svg, NULL, 1, 2, 1e9, 4);
	gm_svg_number(&svg, "data-i", 7);
	gm_svg_close(&svg);
	gm_svg_close(&svg);
	fclose(svg.out);
	assert_string_equal(text,
			    "<g class=\"a&quot;&lt;b&gt;\"><line class=\"grid\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"2.5\"/>\n"
			    "<text x=\"3.14\" y=\"0\">x &lt; &quot;y&quot; &amp; \xc3\xa9</text>\n"
			    "<rect x=\"1\" y=\"2\" width=\"1000000000\" height=\"4\" data-i=\"7\"/>\n</g>\n");
	free(text);
}

/* A whole chart, compared with one that was looked at. */
static void test_chart(void **state)
{
	static const char expected[] = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 200 120\" class=\"chart\" "
				       "role=\"img\" aria-label=\"two points\">\n"
				       "<path class=\"m s1\" d=\"M68 18m-3.6-3.6h7.2v7.2h-7.2z\"/>\n"
				       "<text x=\"78\" y=\"22.5\">b &amp; c</text>\n"
				       "<line class=\"grid\" x1=\"62\" y1=\"44\" x2=\"62\" y2=\"76\"/>\n"
				       "<text class=\"mid\" x=\"62\" y=\"94\">0%</text>\n"
				       "<line class=\"grid\" x1=\"121\" y1=\"44\" x2=\"121\" y2=\"76\"/>\n"
				       "<text class=\"mid\" x=\"121\" y=\"94\">1%</text>\n"
				       "<line class=\"grid\" x1=\"180\" y1=\"44\" x2=\"180\" y2=\"76\"/>\n"
				       "<text class=\"mid\" x=\"180\" y=\"94\">2%</text>\n"
				       "<line class=\"grid\" x1=\"62\" y1=\"76\" x2=\"180\" y2=\"76\"/>\n"
				       "<text class=\"end\" x=\"55\" y=\"80.5\">0</text>\n"
				       "<line class=\"grid\" x1=\"62\" y1=\"44\" x2=\"180\" y2=\"44\"/>\n"
				       "<text class=\"end\" x=\"55\" y=\"48.5\">10</text>\n"
				       "<line class=\"axis\" x1=\"62\" y1=\"76\" x2=\"180\" y2=\"76\"/>\n"
				       "<text class=\"mid label\" x=\"121\" y=\"114\">x &lt; 2</text>\n"
				       "<text class=\"mid label\" transform=\"translate(14 60) rotate(-90)\">y</text>\n"
				       "<path class=\"line s1\" data-rows=\"4 7\" d=\"M62 76M180 44\"/>\n"
				       "<path class=\"m s1 rest\" data-i=\"6\" d=\"M180 44m-3.6-3.6h7.2v7.2h-7.2z\"/>\n"
				       "<path class=\"m s1\" data-i=\"4\" d=\"M62 76m-3.6-3.6h7.2v7.2h-7.2z\"/>\n</svg>\n";
	const struct gm_legend legend = {"b & c", 1};
	const double x[] = {0, 1, 2}, y[] = {0, (double)NAN, 10};
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	struct gm_chart chart;

	(void)state;
	gm_chart_begin(&chart, out, 200, 120, "two points");
	gm_chart_legend(&chart, &legend, 1);
	chart.x = gm_scale_nice(0, 2, 2);
	chart.y = gm_scale_nice(0, 10, 1);
	chart.y.step = 10;
	gm_chart_axes(&chart, "x < 2", "y", true, false);
	gm_chart_line(&chart, "line s1", x, y, 3, 4);
	for (size_t i = 0; i < 3; i++)
		gm_chart_mark(&chart, 1, i == 2 ? GM_MARK_REST : GM_MARK_PLAIN, x[i], y[i], 4 + i);
	assert_int_equal(gm_chart_end(&chart, NULL), GM_OK);
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
}

static void test_fit_and_step(void **state)
{
	char text[32];

	(void)state;
	assert_string_equal(gm_chart_fit("short", 100, text, sizeof(text)), "short");
	assert_string_equal(gm_chart_fit("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 3 * 13 * 0.56, text, sizeof(text)),
			    "\xc3\xa9\xc3\xa9\xe2\x80\xa6");
	assert_string_equal(gm_chart_fit("gone", 0, text, sizeof(text)), "\xe2\x80\xa6");
	assert_int_equal(strlen(gm_chart_fit("a text that is longer than its room", 1000, text, sizeof(text))), 31);
	assert_int_equal(gm_chart_step(0, 0, 9), 0);
	assert_int_equal(gm_chart_step(9, 0, 9), 8);
	assert_int_equal(gm_chart_step(5, 5, 5), 0);
	assert_int_equal(gm_chart_step((double)NAN, 0, 1), 0);
}

/* --- front --- */

static bool is_beaten(const double *x, const double *y, size_t n, size_t i)
{
	for (size_t j = 0; j < n; j++)
		if (x[j] <= x[i] && y[j] <= y[i] && (x[j] < x[i] || y[j] < y[i]))
			return true;
	return false;
}

static void test_front(void **state)
{
	double x[40], y[40];
	size_t order[40], n_front;
	bool on[40];

	(void)state;
	srand(11);
	for (int round = 0; round < 3000; round++) {
		size_t n = (size_t)rand() % 40;

		for (size_t i = 0; i < n; i++) { /* few values: many ties */
			x[i] = rand() % 20 ? rand() % 8 : (double)NAN;
			y[i] = rand() % 20 ? rand() % 8 : (double)NAN;
		}
		assert_int_equal(gm_front(x, y, n, on, order, &n_front, NULL), GM_OK);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(on[i], !isnan(x[i]) && !isnan(y[i]) && !is_beaten(x, y, n, i));
		for (size_t k = 0; k < n_front; k++) {
			assert_true(on[order[k]]);
			assert_true(k == 0 || x[order[k - 1]] <= x[order[k]]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_escape),
		cmocka_unit_test(test_scale),
		cmocka_unit_test(test_scale_holds_its_range),
		cmocka_unit_test(test_scale_text),
		cmocka_unit_test(test_svg),
		cmocka_unit_test(test_chart),
		cmocka_unit_test(test_fit_and_step),
		cmocka_unit_test(test_front),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
