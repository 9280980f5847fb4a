/* A headless Chromium driven over a pipe (Chrome DevTools Protocol): one page, real mouse and keyboard events. Whatever fails ends the test
 * program with a message: nothing here is under test.
 */
#ifndef GM_TESTS_BROWSER_CDP_H
#define GM_TESTS_BROWSER_CDP_H

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

struct cdp;

/* Starts the browser; its files lie in a new folder, downloads in `downloads` (an absolute path). NULL where there is no browser. */
struct cdp *cdp_start(const char *downloads);
void cdp_stop(struct cdp *cdp);

/* Calls a method of the page with parameters as JSON ("{\"url\":...}"). The result is the caller's: gm_json_free. */
struct gm_json *cdp_call(struct cdp *cdp, const char *method, const char *parameters);
void cdp_do(struct cdp *cdp, const char *method, const char *parameters); /* the same without a result */

/* Opens a file and waits until the page says that it is ready. Returns the milliseconds that took. */
double cdp_open(struct cdp *cdp, const char *path);

/* The value of a JavaScript expression. A text or boolean comes as text ("true"); it is valid until the next call of these. */
double cdp_number(struct cdp *cdp, const char *expression);
const char *cdp_text(struct cdp *cdp, const char *expression);
bool cdp_is(struct cdp *cdp, const char *expression);

/* Waits at most five seconds for an expression to become true; false if it does not. */
bool cdp_wait(struct cdp *cdp, const char *expression);

/* Clicks into the middle of, or only points at, the first element that a CSS selector finds; scrolls there first. */
void cdp_click(struct cdp *cdp, const char *selector);
void cdp_point(struct cdp *cdp, const char *selector);
void cdp_point_at(struct cdp *cdp, double x, double y); /* pixels in the window */
void cdp_type(struct cdp *cdp, const char *text);       /* into what has the focus */
void cdp_key(struct cdp *cdp, const char *key);         /* "ArrowRight", "Tab", "Enter", "Escape" */

void cdp_size(struct cdp *cdp, int width, int height, bool phone);
void cdp_dark(struct cdp *cdp, bool dark); /* what the system prefers */
void cdp_screenshot(struct cdp *cdp, const char *path, bool whole_page);

/* What the page did so far: errors on the console, and requests for anything but its own file. */
int cdp_n_error(const struct cdp *cdp);
int cdp_n_request(const struct cdp *cdp);
const char *cdp_last_trouble(const struct cdp *cdp);

#endif
