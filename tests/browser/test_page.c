/* The page of `report html` in a real browser: sorting, filters, hover, keyboard, downloads, light and dark, a phone's width, ten thousand
 * rows; no error on the console, no request to anywhere.
 *
 * With GM_SCREENSHOTS=FOLDER it leaves pictures there, to be looked at.
 */
#include "tests/browser/cdp.h"
#include "tests/browser/samples.h"

#include "base/file.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MANY 10000
#define SLOWEST_MS 4000 /* that a page of MANY rows may take to stand; measured 500 to 900 on two cores */

static char folder[PATH_MAX / 4]; /* set once, before the first test */

struct fixture {
	struct cdp *cdp;
	char page[PATH_MAX / 2], many[PATH_MAX / 2];
};

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *format, ...)
{
	char command[4 * PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	if (system(command) != 0)
		fail_msg("failed: %s", command);
}

static void shot(struct cdp *cdp, const char *name)
{
	const char *to = getenv("GM_SCREENSHOTS");
	char path[PATH_MAX];

	if (!to)
		return;
	snprintf(path, sizeof(path), "%s/%s.png", to, name);
	cdp_screenshot(cdp, path, false);
}

static int set_up(void **state)
{
	const char *build = getenv("GM_BUILD") ? getenv("GM_BUILD") : "build";
	struct fixture *f = calloc(1, sizeof(*f));
	char path[PATH_MAX / 2];

	assert_non_null(f);
	*state = f;
	snprintf(folder, sizeof(folder), "/tmp/gatemass-page-XXXXXX");
	assert_non_null(mkdtemp(folder));
	samples_write(folder);
	snprintf(path, sizeof(path), "%s/many.csv", folder);
	samples_write_many(path, MANY);
	snprintf(f->page, sizeof(f->page), "%s/page.html", folder);
	snprintf(f->many, sizeof(f->many), "%s/many.html", folder);
	run("%s/bin/report html %s/results.csv %s/layers.csv %s/tokens.csv %s/stats.csv -o %s", build, folder, folder,
	    folder, folder, f->page);
	run("%s/bin/report html %s -o %s", build, path, f->many);
	f->cdp = cdp_start(folder);
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	cdp_stop(f->cdp);
	run("rm -r %s", folder);
	free(f);
	return 0;
}

static struct cdp *open_page(void **state)
{
	struct fixture *f = *state;

	if (!f->cdp)
		skip();
	cdp_dark(f->cdp, false);
	cdp_size(f->cdp, 1200, 900, false);
	cdp_open(f->cdp, f->page);
	return f->cdp;
}

/* Nothing went wrong, nothing was asked of the network: at the end of every test. */
static void check_quiet(struct cdp *cdp)
{
	if (cdp_n_error(cdp) > 0 || cdp_n_request(cdp) > 0)
		fail_msg("%d errors, %d requests, the last: %s", cdp_n_error(cdp), cdp_n_request(cdp),
			 cdp_last_trouble(cdp));
}

#define CELLS(column)                                                        \
	"Array.from(document.querySelectorAll('#summary tbody tr'), r => "   \
	"r.cells[Array.from(document.querySelectorAll('#summary th'), h => " \
	"h.dataset.column).indexOf('" column "')].title)"

/* How many marks of a figure show. */
#define N_MARK(figure)                                                                     \
	"Array.from(document.querySelectorAll('" figure                                    \
	" path[data-i]:not(.off)'), e => e.dataset.i ? e.dataset.i.split(' ').length : 0)" \
	".reduce((a, b) => a + b, 0)"

/* --- tests --- */

static void test_contents(void **state)
{
	struct cdp *cdp = open_page(state);

	/* The name stands there as it is: as text, and nothing of it ran. */
	assert_true(cdp_is(cdp, "typeof window.broken === 'undefined'"));
	assert_true(cdp_is(cdp, "document.querySelector('h1').textContent.startsWith('<b>tiny</b> & \"moe\"')"));
	assert_true(cdp_is(cdp, "document.querySelector('h1').children.length === 0"));
	assert_true(cdp_number(cdp, "document.querySelectorAll('figure').length") == 10);
	assert_true(cdp_number(cdp, "document.querySelectorAll('#summary tbody tr').length") == 16);
	assert_string_equal(cdp_text(cdp, "document.querySelector('.count').textContent"), "16 results");
	/* What a screen reader needs. */
	assert_true(cdp_is(cdp, "Array.from(document.querySelectorAll('svg')).every(s => s.getAttribute('aria-label'))"));
	assert_true(cdp_is(cdp, "document.documentElement.lang === 'en'"));
	assert_true(cdp_is(cdp, "Array.from(document.querySelectorAll('button, input, select')).every(e => "
				"e.textContent || e.getAttribute('aria-label') || e.closest('label'))"));
	shot(cdp, "light");
	check_quiet(cdp);
}

static void test_sort(void **state)
{
	struct cdp *cdp = open_page(state);

	cdp_click(cdp, "#summary th[data-column='time_per_token_us'] button");
	assert_string_equal(cdp_text(cdp, "document.querySelector(\"#summary "
					  "th[data-column='time_per_token_us']\").getAttribute('aria-sort')"),
			    "ascending");
	assert_true(cdp_is(
		cdp, "(t => t.every((v, i) => i === 0 || Number(t[i - 1]) <= Number(v)))(" CELLS("time_per_token_us") ")"));
	assert_true(cdp_number(cdp, CELLS("time_per_token_us") "[0]") == samples_time(3, 3));
	cdp_click(cdp, "#summary th[data-column='time_per_token_us'] button");
	assert_true(cdp_number(cdp, CELLS("time_per_token_us") "[0]") == samples_time(0, 0));
	/* Larger hit rates are better: they come first at once. */
	cdp_click(cdp, "#summary th[data-column='hit_rate'] button");
	assert_true(cdp_number(cdp, CELLS("hit_rate") "[0]") == samples_hit_rate(3, 3));
	check_quiet(cdp);
}

static void test_filter(void **state)
{
	struct cdp *cdp = open_page(state);

	cdp_click(cdp, "#filter");
	cdp_type(cdp, "quality");
	assert_true(cdp_wait(cdp, "document.querySelector('.count').textContent === '4 of 16 results'"));
	assert_true(cdp_is(cdp, CELLS("policy") ".every(t => t === 'quality-first')"));
	/* Marks of the others fade, in every figure that is about results. */
	assert_true(cdp_number(cdp, N_MARK("#tradeoff")) == 4);
	assert_true(cdp_number(cdp, "document.querySelectorAll('#curve .line.off').length") == 3);
	assert_true(cdp_number(cdp, "document.querySelectorAll('#reuse .off').length") == 0);
	cdp_type(cdp, " hit_rate>0.5");
	assert_true(cdp_wait(cdp, "document.querySelector('.count').textContent === '2 of 16 results'"));
	cdp_do(cdp, "Runtime.evaluate",
	       "{\"expression\":\"(s => { s.value = '1'; s.dispatchEvent(new Event('change')); "
	       "})(document.getElementById('facet-cache'))\"}");
	assert_true(cdp_wait(cdp, "document.querySelector('.count').textContent === '0 of 16 results'"));
	check_quiet(cdp);
}

/* Points at the mark of a row of a figure's data. */
static void point_at_row(struct cdp *cdp, const char *figure, int row)
{
	char expression[1024];
	double x, y;

	snprintf(
		expression, sizeof(expression),
		"(() => { const s = document.querySelector('%s svg'); s.scrollIntoView({block: 'center'}); for (const p of "
		"s.querySelectorAll('path[data-i]')) { const k = p.dataset.i.split(' ').indexOf('%d'); if (k >= 0) { const "
		"[x, y] = "
		"p.getAttribute('d').split(/(?=M)/)[k].slice(1).split(/[ m]/, 2).map(Number); const q = new DOMPoint(x, "
		"y).matrixTransform(s.getScreenCTM()); return q.x + ' ' + q.y; } } return 'none'; })()",
		figure, row);
	if (sscanf(cdp_text(cdp, expression), "%lf %lf", &x, &y) != 2)
		fail_msg("no mark of row %d in %s", row, figure);
	cdp_point_at(cdp, x, y);
}

static void test_hover_and_keyboard(void **state)
{
	struct cdp *cdp = open_page(state);
	char expected[64];

	point_at_row(cdp, "#tradeoff", 5); /* policy 1, cache 1 */
	assert_true(cdp_wait(cdp, "!document.querySelector('.tip').hidden"));
	assert_true(cdp_is(cdp, "document.querySelector('.tip').textContent.includes('rule-0.15')"));
	snprintf(expected, sizeof(expected), "document.querySelector('.tip').textContent.includes('%.2f %%')",
		 100 * samples_mass(1, 1));
	assert_true(cdp_is(cdp, expected));
	shot(cdp, "hover");
	cdp_point(cdp, "h1");
	assert_true(cdp_wait(cdp, "document.querySelector('.tip').hidden"));

	cdp_do(cdp, "Runtime.evaluate", "{\"expression\":\"document.querySelector('#curve svg').focus()\"}");
	cdp_key(cdp, "ArrowRight");
	assert_true(cdp_is(
		cdp, "!document.querySelector('.tip').hidden && document.querySelectorAll('#curve .ring').length === 1"));
	assert_true(cdp_is(cdp, "document.querySelector('.tip').textContent.includes('fetch-all')"));
	cdp_key(cdp, "End");
	assert_true(cdp_is(cdp, "document.querySelector('.tip').textContent.includes('first-choice + lru')"));
	cdp_key(cdp, "Escape");
	assert_true(cdp_is(cdp, "document.querySelector('.tip').hidden"));
	/* Tab alone reaches the first things on the page, in order. */
	cdp_do(cdp, "Runtime.evaluate", "{\"expression\":\"document.activeElement.blur(); scrollTo(0, 0)\"}");
	check_quiet(cdp);
}

/* The text of a downloaded file, once it is whole. */
static char *downloaded(const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	for (int i = 0; i < 250 && access(path, R_OK) != 0; i++)
		usleep(20000);
	usleep(50000);
	return gm_read_file(path, (size_t)64 << 20, NULL, NULL);
}

static void test_download(void **state)
{
	struct cdp *cdp = open_page(state);
	char path[PATH_MAX];
	char *text, *original;

	/* All rows and columns: what was read, behind the three columns of names. */
	cdp_click(cdp, "#download");
	text = downloaded("gatemass-results.csv");
	assert_non_null(text);
	assert_memory_equal(text, "policy,cache,front,trace,model,", 31);
	snprintf(path, sizeof(path), "%s/results.csv", folder);
	original = gm_read_file(path, (size_t)1 << 20, NULL, NULL);
	assert_non_null(original);
	const char *row = strstr(original, "\n") + 1;
	char *first = strndup(row, 200); /* a model's name with newlines, quotes and commas among it */
	assert_non_null(strstr(text, first));
	free(first);
	free(original);
	free(text);

	cdp_click(cdp, "#curve .tools button");
	text = downloaded("gatemass-curve.csv");
	assert_non_null(text);
	assert_memory_equal(text, "trace,policy,cache,cache_fraction,hit_rate\n", 43);
	free(text);
	cdp_click(cdp, "#curve .tools button:nth-child(2)");
	text = downloaded("gatemass-curve.svg");
	assert_non_null(text);
	assert_non_null(strstr(text, "<style"));
	free(text);
	check_quiet(cdp);
}

static void test_table_of_figure(void **state)
{
	struct cdp *cdp = open_page(state);

	cdp_click(cdp, "#switch summary");
	assert_true(cdp_wait(cdp, "document.querySelectorAll('#switch tbody tr').length === 80"));
	/* Three switches of label; 20 tokens after each hit 8 of 24 and then 16: bins of 8 tokens from -32. */
	assert_true(cdp_is(cdp, "document.querySelector('#switch figcaption').textContent.includes('2 switches')"));
	assert_true(cdp_is(cdp, "(d => Math.abs(d - 8 / 24) < 1e-12)(Number(document.querySelector('#switch "
				"tbody').rows[4].cells[6].title))"));
	assert_true(cdp_is(
		cdp, "(d => Math.abs(d - (4 * 8 + 4 * 16) / (8 * 24)) < 1e-12)(Number(document.querySelector('#switch "
		     "tbody').rows[6].cells[6].title))"));
	check_quiet(cdp);
}

static void test_dark(void **state)
{
	struct cdp *cdp = open_page(state);
	static const char background[] = "getComputedStyle(document.body).backgroundColor";
	static const char series[] = "getComputedStyle(document.querySelector('#curve .s0')).color";
	char light[64], blue[64];

	snprintf(light, sizeof(light), "%s", cdp_text(cdp, background));
	snprintf(blue, sizeof(blue), "%s", cdp_text(cdp, series));
	cdp_dark(cdp, true); /* as the system says */
	assert_true(cdp_is(cdp, "matchMedia('(prefers-color-scheme: dark)').matches"));
	assert_string_not_equal(cdp_text(cdp, background), light);
	assert_string_not_equal(cdp_text(cdp, series), blue);
	shot(cdp, "dark");
	cdp_click(cdp, "#theme"); /* as the reader says */
	assert_string_equal(cdp_text(cdp, background), light);
	cdp_dark(cdp, false);
	cdp_click(cdp, "#theme");
	assert_string_not_equal(cdp_text(cdp, background), light);
	cdp_click(cdp, "#theme");
	assert_string_equal(cdp_text(cdp, background), light);
	check_quiet(cdp);
}

static void test_narrow(void **state)
{
	struct cdp *cdp = open_page(state);

	cdp_size(cdp, 390, 844, true);
	assert_true(cdp_number(cdp, "document.documentElement.scrollWidth") <= 390);
	/* Text of charts stays readable: at least 9 pixels high. */
	assert_true(cdp_number(cdp, "Math.min(...Array.from(document.querySelectorAll('svg'), s => 13 * s.clientWidth / "
				    "s.viewBox.baseVal.width))") >= 9);
	shot(cdp, "narrow");
	cdp_do(cdp, "Runtime.evaluate", "{\"expression\":\"document.querySelector('#tradeoff').scrollIntoView()\"}");
	shot(cdp, "narrow-figure");
	cdp_size(cdp, 1200, 900, false);
	check_quiet(cdp);
}

static void test_print(void **state)
{
	struct cdp *cdp = open_page(state);

	cdp_do(cdp, "Emulation.setEmulatedMedia", "{\"media\":\"print\"}");
	assert_true(cdp_is(cdp, "getComputedStyle(document.querySelector('.controls')).display === 'none'"));
	assert_true(cdp_is(cdp, "getComputedStyle(document.querySelector('figure')).breakInside === 'avoid'"));
	cdp_do(cdp, "Emulation.setEmulatedMedia", "{\"media\":\"\"}");
	check_quiet(cdp);
}

static void test_many_rows(void **state)
{
	struct fixture *f = *state;
	struct stat st;
	double ready, sorted, filtered;

	open_page(state);
	ready = cdp_open(f->cdp, f->many);
	assert_true(cdp_number(f->cdp, N_MARK("#tradeoff")) == MANY);
	sorted = cdp_number(f->cdp, "(() => { const t = performance.now(); document.querySelector(\"#summary "
				    "th[data-column='hit_rate'] button\").click(); document.body.offsetHeight; return "
				    "performance.now() - t; })()");
	filtered = cdp_number(
		f->cdp, "new Promise(done => { const i = document.getElementById('filter'); const t = performance.now(); "
			"i.value = 'quality hit_rate>0.5'; i.dispatchEvent(new Event('input')); const look = () => "
			"document.querySelector('.count').textContent.includes(' of ') ? (document.body.offsetHeight, "
			"done(performance.now() - t)) : setTimeout(look, 5); look(); })");
	assert_int_equal(stat(f->many, &st), 0);
	print_message("%d rows: page of %.1f MB, ready in %.0f ms, sorted in %.0f ms, filtered in %.0f ms\n", MANY,
		      (double)st.st_size / 1e6, ready, sorted, filtered);
	assert_true(ready < SLOWEST_MS && sorted < 1000 && filtered < 2000);
	/* Few rows stand in the page; more come when asked for. */
	assert_true(cdp_number(f->cdp, "document.querySelectorAll('#summary tbody tr').length") == 100);
	cdp_click(f->cdp, "#summary .more");
	assert_true(cdp_wait(f->cdp, "document.querySelectorAll('#summary tbody tr').length === 500"));
	shot(f->cdp, "many");
	check_quiet(f->cdp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_contents), cmocka_unit_test(test_sort),
		cmocka_unit_test(test_filter),   cmocka_unit_test(test_hover_and_keyboard),
		cmocka_unit_test(test_download), cmocka_unit_test(test_table_of_figure),
		cmocka_unit_test(test_dark),     cmocka_unit_test(test_narrow),
		cmocka_unit_test(test_print),    cmocka_unit_test(test_many_rows),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
