#include "tests/browser/cdp.h"

#include "base/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 60000
#define EXPRESSION 16384

struct cdp {
	pid_t child;
	int to, from;
	char profile[64];
	char *buffer; /* what came and is not yet taken */
	size_t n, room;
	int64_t last_id;
	char session[128];
	char *text; /* of cdp_text */
	int n_error, n_request;
	char trouble[400];
};

static void die(const char *what, const char *detail)
{
	fprintf(stderr, "browser: %s: %s\n", what, detail);
	exit(1);
}

/* --- the process --- */

static const char *find_browser(void)
{
	static const char *const names[] = {"chromium", "chromium-browser", "google-chrome"};
	char command[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", names[i]);
		if (system(command) == 0)
			return names[i];
	}
	return NULL;
}

static void become_browser(const char *name, const char *profile, int from_us, int to_us)
{
	char folder[128];
	int quiet = open("/dev/null", O_RDWR | O_CLOEXEC);
	/* The pipe's ends must be 3 and 4; neither may be overwritten before it is moved. */
	int in = fcntl(from_us, F_DUPFD, 10), out = fcntl(to_us, F_DUPFD, 10);

	snprintf(folder, sizeof(folder), "--user-data-dir=%s", profile);
	if (quiet < 0 || in < 0 || out < 0 || dup2(quiet, 0) < 0 || dup2(quiet, 1) < 0 || dup2(quiet, 2) < 0 ||
	    dup2(in, 3) < 0 || dup2(out, 4) < 0)
		_exit(126);
	execlp(name, name, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
	       "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
	       "--allow-file-access-from-files", "--remote-debugging-pipe", folder, "about:blank", (char *)NULL);
	_exit(127);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st, (void)flag, (void)ftw;
	return remove(path);
}

void cdp_stop(struct cdp *cdp)
{
	if (!cdp)
		return;
	close(cdp->to); /* the browser ends when its pipe does */
	close(cdp->from);
	for (int i = 0; i < 100 && waitpid(cdp->child, NULL, WNOHANG) == 0; i++) {
		usleep(50000);
		if (i == 80)
			kill(cdp->child, SIGKILL);
	}
	nftw(cdp->profile, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	free(cdp->buffer);
	free(cdp->text);
	free(cdp);
}

/* --- messages: JSON, each ended by a NUL --- */

static void send_message(struct cdp *cdp, const char *text, size_t size)
{
	while (size > 0) {
		ssize_t n = write(cdp->to, text, size);
		if (n < 0 && errno != EINTR)
			die("cannot write to the browser", strerror(errno));
		if (n > 0) {
			text += n;
			size -= (size_t)n;
		}
	}
}

static void read_more(struct cdp *cdp)
{
	struct pollfd wait = {.fd = cdp->from, .events = POLLIN};
	ssize_t n;

	if (poll(&wait, 1, PATIENCE_MS) <= 0)
		die("no answer", "the browser hangs");
	if (cdp->n + 65536 > cdp->room) {
		cdp->room = cdp->room * 2 + 131072;
		cdp->buffer = realloc(cdp->buffer, cdp->room);
		if (!cdp->buffer)
			die("out of memory", "messages");
	}
	n = read(cdp->from, cdp->buffer + cdp->n, 65536);
	if (n <= 0)
		die("no answer", "the browser has ended");
	cdp->n += (size_t)n;
}

static struct gm_json *next_message(struct cdp *cdp)
{
	struct gm_error err = {0};
	char *end;

	while (!cdp->n || !(end = memchr(cdp->buffer, '\0', cdp->n)))
		read_more(cdp);
	size_t size = (size_t)(end - cdp->buffer);
	struct gm_json *message = gm_json_parse(cdp->buffer, size, "message", &err);
	if (!message)
		die("not JSON", err.text);
	memmove(cdp->buffer, end + 1, cdp->n - size - 1);
	cdp->n -= size + 1;
	return message;
}

static void note_trouble(struct cdp *cdp, int *count, const struct gm_json *what)
{
	char *text = gm_json_print(what, false);

	++*count;
	snprintf(cdp->trouble, sizeof(cdp->trouble), "%s", text ? text : "?");
	free(text);
}

static void take_event(struct cdp *cdp, const char *method, const struct gm_json *parameters)
{
	if (strcmp(method, "Runtime.exceptionThrown") == 0) {
		note_trouble(cdp, &cdp->n_error, parameters);
	} else if (strcmp(method, "Runtime.consoleAPICalled") == 0) {
		const char *type = gm_json_text(gm_json_get(parameters, "type"));
		if (type && (strcmp(type, "error") == 0 || strcmp(type, "warning") == 0 || strcmp(type, "assert") == 0))
			note_trouble(cdp, &cdp->n_error, parameters);
	} else if (strcmp(method, "Log.entryAdded") == 0) {
		note_trouble(cdp, &cdp->n_error, parameters);
	} else if (strcmp(method, "Network.requestWillBeSent") == 0) {
		const char *url = gm_json_text(gm_json_get(gm_json_get(parameters, "request"), "url"));
		if (url && strncmp(url, "file:", 5) != 0 && strncmp(url, "data:", 5) != 0 && strncmp(url, "blob:", 5) != 0)
			note_trouble(cdp, &cdp->n_request, parameters);
	}
}

static struct gm_json *call(struct cdp *cdp, const char *session, const char *method, const char *parameters)
{
	char *text = NULL;
	int64_t id = ++cdp->last_id;
	int n = asprintf(&text, "{\"id\":%lld,\"method\":\"%s\",\"params\":%s%s%s%s}", (long long)id, method, parameters,
			 *session ? ",\"sessionId\":\"" : "", session, *session ? "\"" : "");

	if (n < 0)
		die("out of memory", method);
	send_message(cdp, text, (size_t)n + 1);
	for (;;) {
		struct gm_json *message = next_message(cdp);
		const char *event = gm_json_text(gm_json_get(message, "method"));

		if (event)
			take_event(cdp, event, gm_json_get(message, "params"));
		else if (gm_json_value(gm_json_get(message, "id")) == (double)id) {
			if (gm_json_get(message, "error")) {
				char *answer = gm_json_print(message, false);
				fprintf(stderr, "browser: asked: %.300s\n", text);
				die(method, answer ? answer : "?");
			}
			free(text);
			return message;
		}
		gm_json_free(message);
	}
}

struct gm_json *cdp_call(struct cdp *cdp, const char *method, const char *parameters)
{
	return call(cdp, cdp->session, method, parameters);
}

void cdp_do(struct cdp *cdp, const char *method, const char *parameters)
{
	gm_json_free(cdp_call(cdp, method, parameters));
}

/* --- starting --- */

static void attach(struct cdp *cdp, const char *downloads)
{
	char parameters[1024];
	struct gm_json *answer = call(cdp, "", "Target.createTarget", "{\"url\":\"about:blank\"}");

	snprintf(parameters, sizeof(parameters), "{\"targetId\":\"%s\",\"flatten\":true}",
		 gm_json_text(gm_json_get(gm_json_get(answer, "result"), "targetId")));
	gm_json_free(answer);
	answer = call(cdp, "", "Target.attachToTarget", parameters);
	snprintf(cdp->session, sizeof(cdp->session), "%s",
		 gm_json_text(gm_json_get(gm_json_get(answer, "result"), "sessionId")));
	gm_json_free(answer);
	snprintf(parameters, sizeof(parameters), "{\"behavior\":\"allow\",\"downloadPath\":\"%s\"}", downloads);
	gm_json_free(call(cdp, "", "Browser.setDownloadBehavior", parameters));
	cdp_do(cdp, "Page.enable", "{}");
	cdp_do(cdp, "Runtime.enable", "{}");
	cdp_do(cdp, "Log.enable", "{}");
	cdp_do(cdp, "Network.enable", "{}");
}

struct cdp *cdp_start(const char *downloads)
{
	const char *name = find_browser();
	struct cdp *cdp;
	int there[2], back[2];

	if (!name)
		return NULL;
	cdp = calloc(1, sizeof(*cdp));
	if (!cdp || pipe2(there, O_CLOEXEC) != 0 || pipe2(back, O_CLOEXEC) != 0)
		die("cannot start", strerror(errno));
	snprintf(cdp->profile, sizeof(cdp->profile), "/tmp/gatemass-browser-XXXXXX");
	if (!mkdtemp(cdp->profile))
		die("cannot make a folder", strerror(errno));
	signal(SIGPIPE, SIG_IGN);
	fflush(NULL);
	cdp->child = fork();
	if (cdp->child < 0)
		die("cannot fork", strerror(errno));
	if (cdp->child == 0)
		become_browser(name, cdp->profile, there[0], back[1]);
	close(there[0]);
	close(back[1]);
	cdp->to = there[1];
	cdp->from = back[0];
	attach(cdp, downloads);
	return cdp;
}

/* --- expressions --- */

/* A JSON string of text. */
static char *quote(const char *text)
{
	struct gm_json *array = gm_json_new_array();
	char *list, *string;

	gm_json_append_string(array, text);
	list = gm_json_print(array, false);
	gm_json_free(array);
	if (!list)
		die("out of memory", "quote");
	string = strdup(list + 1);
	free(list);
	if (!string)
		die("out of memory", "quote");
	string[strlen(string) - 1] = '\0';
	return string;
}

const char *cdp_text(struct cdp *cdp, const char *expression)
{
	char *quoted = quote(expression), *parameters = NULL;
	struct gm_json *answer;
	const struct gm_json *value;

	if (asprintf(&parameters, "{\"expression\":%s,\"returnByValue\":true,\"awaitPromise\":true}", quoted) < 0)
		die("out of memory", expression);
	free(quoted);
	answer = cdp_call(cdp, "Runtime.evaluate", parameters);
	free(parameters);
	if (gm_json_get(gm_json_get(answer, "result"), "exceptionDetails")) {
		char *text = gm_json_print(answer, false);
		fprintf(stderr, "browser: %s\n", expression);
		die("exception", text ? text : "?");
	}
	value = gm_json_get(gm_json_get(gm_json_get(answer, "result"), "result"), "value");
	free(cdp->text);
	cdp->text = gm_json_text(value) ? strdup(gm_json_text(value)) : value ? gm_json_print(value, false) : strdup("");
	gm_json_free(answer);
	if (!cdp->text)
		die("out of memory", expression);
	return cdp->text;
}

double cdp_number(struct cdp *cdp, const char *expression)
{
	char *end;
	const char *text = cdp_text(cdp, expression);
	double value = strtod(text, &end);

	return *text && *end == '\0' ? value : (double)NAN;
}

bool cdp_is(struct cdp *cdp, const char *expression)
{
	return strcmp(cdp_text(cdp, expression), "true") == 0;
}

bool cdp_wait(struct cdp *cdp, const char *expression)
{
	for (int i = 0; i < 250; i++) {
		if (cdp_is(cdp, expression))
			return true;
		usleep(20000);
	}
	return false;
}

double cdp_open(struct cdp *cdp, const char *path)
{
	char parameters[4400];
	double start = gm_clock_s();

	/* The page before must not be taken for this one. */
	cdp_text(cdp, "document.documentElement && delete document.documentElement.dataset.ready");
	snprintf(parameters, sizeof(parameters), "{\"url\":\"file://%s\"}", path);
	cdp_do(cdp, "Page.navigate", parameters);
	for (int i = 0; i < 3000; i++) {
		if (cdp_is(cdp, "document.documentElement !== null && document.documentElement.dataset.ready === 'yes'"))
			return 1e3 * (gm_clock_s() - start);
		usleep(5000);
	}
	die("the page does not get ready", path);
	return 0;
}

/* --- mouse and keyboard --- */

static void mouse(struct cdp *cdp, const char *type, double x, double y, int clicks)
{
	char parameters[256];

	snprintf(parameters, sizeof(parameters),
		 "{\"type\":\"%s\",\"x\":%.2f,\"y\":%.2f,\"button\":\"%s\",\"clickCount\":%d}", type, x, y,
		 clicks ? "left" : "none", clicks);
	cdp_do(cdp, "Input.dispatchMouseEvent", parameters);
}

static void find(struct cdp *cdp, const char *selector, double *x, double *y)
{
	char expression[EXPRESSION], *quoted = quote(selector);

	snprintf(expression, sizeof(expression),
		 "(() => { const e = document.querySelector(%s); if (!e) return 'none'; e.scrollIntoView({block: "
		 "'center'}); const b = "
		 "e.getBoundingClientRect(); return (b.left + b.width / 2) + ' ' + (b.top + b.height / 2); })()",
		 quoted);
	free(quoted);
	if (sscanf(cdp_text(cdp, expression), "%lf %lf", x, y) != 2)
		die("no such element", selector);
}

void cdp_point_at(struct cdp *cdp, double x, double y)
{
	mouse(cdp, "mouseMoved", x, y, 0);
}

void cdp_point(struct cdp *cdp, const char *selector)
{
	double x, y;

	find(cdp, selector, &x, &y);
	mouse(cdp, "mouseMoved", x, y, 0);
}

void cdp_click(struct cdp *cdp, const char *selector)
{
	double x, y;

	find(cdp, selector, &x, &y);
	mouse(cdp, "mouseMoved", x, y, 0);
	mouse(cdp, "mousePressed", x, y, 1);
	mouse(cdp, "mouseReleased", x, y, 1);
}

void cdp_type(struct cdp *cdp, const char *text)
{
	char *quoted = quote(text), parameters[1024];

	snprintf(parameters, sizeof(parameters), "{\"text\":%s}", quoted);
	free(quoted);
	cdp_do(cdp, "Input.insertText", parameters);
}

void cdp_key(struct cdp *cdp, const char *key)
{
	static const struct {
		const char *name;
		int code;
	} codes[] = {{"Tab", 9},        {"Enter", 13},      {"Escape", 27},  {"End", 35},      {"Home", 36},
		     {"ArrowLeft", 37}, {"ArrowRight", 39}, {"ArrowUp", 38}, {"ArrowDown", 40}};
	char parameters[256];
	int code = 0;

	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
		code = strcmp(codes[i].name, key) == 0 ? codes[i].code : code;
	for (int up = 0; up < 2; up++) {
		snprintf(parameters, sizeof(parameters),
			 "{\"type\":\"%s\",\"key\":\"%s\",\"code\":\"%s\",\"windowsVirtualKeyCode\":%d%s}",
			 up ? "keyUp" : "keyDown", key, key, code, !up && code == 13 ? ",\"text\":\"\\r\"" : "");
		cdp_do(cdp, "Input.dispatchKeyEvent", parameters);
	}
}

/* --- the screen --- */

void cdp_size(struct cdp *cdp, int width, int height, bool phone)
{
	char parameters[256];

	snprintf(parameters, sizeof(parameters), "{\"width\":%d,\"height\":%d,\"deviceScaleFactor\":%d,\"mobile\":%s}",
		 width, height, phone ? 2 : 1, phone ? "true" : "false");
	cdp_do(cdp, "Emulation.setDeviceMetricsOverride", parameters);
}

void cdp_dark(struct cdp *cdp, bool dark)
{
	char parameters[128];

	snprintf(parameters, sizeof(parameters), "{\"features\":[{\"name\":\"prefers-color-scheme\",\"value\":\"%s\"}]}",
		 dark ? "dark" : "light");
	cdp_do(cdp, "Emulation.setEmulatedMedia", parameters);
}

static int digit(char c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

void cdp_screenshot(struct cdp *cdp, const char *path, bool whole_page)
{
	struct gm_json *answer =
		cdp_call(cdp, "Page.captureScreenshot", whole_page ? "{\"captureBeyondViewport\":true}" : "{}");
	const char *data = gm_json_text(gm_json_get(gm_json_get(answer, "result"), "data"));
	FILE *out = fopen(path, "wb");
	unsigned bits = 0;
	int n = 0;

	if (!data || !out)
		die("no screenshot", path);
	for (; *data && digit(*data) >= 0; data++) {
		bits = bits << 6 | (unsigned)digit(*data);
		n += 6;
		if (n >= 8) {
			n -= 8;
			fputc((int)(bits >> n & 0xff), out);
		}
	}
	fclose(out);
	gm_json_free(answer);
}

int cdp_n_error(const struct cdp *cdp)
{
	return cdp->n_error;
}

int cdp_n_request(const struct cdp *cdp)
{
	return cdp->n_request;
}

const char *cdp_last_trouble(const struct cdp *cdp)
{
	return cdp->trouble;
}
