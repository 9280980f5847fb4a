/* kill -9 at a random moment after the first block: the .part file that is left is repaired into a trace that verifies and holds every
 * block that the log of written blocks (record-traces --log-blocks) names, equal to what an undisturbed recording holds.
 *
 * GM_KILLS=N: so many kills instead of 10; GM_SEED=N: other moments (make soak: 100). */
#include "tests/llama/support.h"

#include "base/progress.h"
#include "tests/fixtures/random.h"
#include "traces/reader.h"
#include "traces/verify.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_TOKEN 6000u

static struct {
	char program[4096], model[192], text[192], whole[192], out[192], part[200], log[192], saved[192];
} paths;

static void set_paths(void)
{
	const char *build = getenv("GM_BUILD");

	snprintf(paths.program, sizeof(paths.program), "%s/bin/record-traces", build ? build : "build");
	snprintf(paths.model, sizeof(paths.model), "%s", support_fixture("qwen3moe"));
	snprintf(paths.text, sizeof(paths.text), "%s", support_path("text.txt"));
	snprintf(paths.whole, sizeof(paths.whole), "%s", support_path("whole.gmt"));
	snprintf(paths.out, sizeof(paths.out), "%s", support_path("out.gmt"));
	snprintf(paths.part, sizeof(paths.part), "%s.part", paths.out);
	snprintf(paths.log, sizeof(paths.log), "%s", support_path("blocks.log"));
	snprintf(paths.saved, sizeof(paths.saved), "%s", support_path("saved.gmt"));
}

static void write_text(void)
{
	struct fixture_random random = {17};
	FILE *stream = fopen(paths.text, "w");

	assert_non_null(stream);
	for (unsigned i = 0; i < N_TOKEN; i++)
		fputc((int)('!' + fixture_next(&random) % 94), stream);
	assert_int_equal(fclose(stream), 0);
}

static pid_t start(const char *out)
{
	char *arguments[] = {paths.program,
			     "-m",
			     paths.model,
			     "--file",
			     paths.text,
			     "-o",
			     (char *)(uintptr_t)out,
			     "--log-blocks",
			     paths.log,
			     "--threads",
			     "1",
			     "--ubatch",
			     "48",
			     "--quiet",
			     NULL};
	pid_t child;

	unlink(paths.log);
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		execv(paths.program, arguments);
		perror(paths.program);
		_exit(127);
	}
	return child;
}

/* Waits until a block was logged. False: the child ended before. */
static bool wait_for_block(pid_t child)
{
	struct stat st;

	while (stat(paths.log, &st) != 0 || st.st_size == 0) {
		if (waitpid(child, NULL, WNOHANG) == child)
			return false;
		usleep(500);
	}
	return true;
}

/* Blocks in the log, by its whole lines; their tokens in *n_token. */
static uint64_t read_log(uint64_t *n_token)
{
	FILE *stream = fopen(paths.log, "r");
	uint64_t n = 0, index, first;
	uint32_t tokens;
	char line[256];

	assert_non_null(stream);
	*n_token = 0;
	while (fgets(line, sizeof(line), stream) && strchr(line, '\n')) {
		assert_int_equal(sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu32, &index, &first, &tokens), 3);
		assert_int_equal(index, n++);
		assert_int_equal(first, *n_token);
		*n_token += tokens;
	}
	fclose(stream);
	return n;
}

static struct gm_trace *open_trace(const char *path)
{
	struct gm_error err = {0};
	struct gm_trace *trace = gm_trace_open(path, &err);

	if (!trace)
		fail_msg("%s", err.text);
	return trace;
}

static void compare_blocks(const struct gm_block *a, const struct gm_block *b, const struct gm_trace *trace)
{
	const struct gm_model *m = gm_trace_model(trace);
	size_t n = a->n_token, rows = n * m->n_layer, head = gm_trace_n_head(trace);

	assert_int_equal(a->n_token, b->n_token);
	assert_int_equal(a->first_token, b->first_token);
	assert_memory_equal(a->token, b->token, n * sizeof(*a->token));
	assert_memory_equal(a->position, b->position, n * sizeof(*a->position));
	assert_memory_equal(a->present, b->present, rows);
	assert_memory_equal(a->head, b->head, rows * head * sizeof(*a->head));
	assert_memory_equal(a->logit, b->logit, rows * head * sizeof(*a->logit));
	assert_memory_equal(a->lse, b->lse, rows * sizeof(*a->lse));
}

/* The saved trace is the beginning of the whole one. */
static void compare_saved(void)
{
	struct gm_trace *saved = open_trace(paths.saved), *whole = open_trace(paths.whole);
	struct gm_block a = {0}, b = {0};
	struct gm_error err = {0};

	assert_true(gm_trace_n_block(saved) <= gm_trace_n_block(whole));
	for (uint64_t i = 0; i < gm_trace_n_block(saved); i++) {
		assert_int_equal(gm_trace_read(saved, i, GM_WANT_TAIL, &a, &err), 1);
		assert_int_equal(gm_trace_read(whole, i, GM_WANT_TAIL, &b, &err), 1);
		compare_blocks(&a, &b, whole);
	}
	gm_block_free(&a);
	gm_block_free(&b);
	gm_trace_close(saved);
	gm_trace_close(whole);
}

static void repair_and_check(unsigned number)
{
	static struct gm_verify_report verified;
	static struct gm_repair_report repaired;
	struct gm_error err = {0};
	uint64_t logged_tokens, logged = read_log(&logged_tokens);

	assert_ok(gm_trace_repair(paths.part, paths.saved, &repaired, &err), &err);
	assert_ok(gm_trace_verify(paths.saved, &verified, &err), &err);
	print_message("kill %u: %" PRIu64 " blocks logged, %" PRIu64 " saved, %" PRIu64 " bytes of no whole block\n",
		      number, logged, repaired.n_block, repaired.lost_bytes);
	assert_true(repaired.n_block >= logged);
	assert_true(repaired.n_token >= logged_tokens);
	assert_int_equal(repaired.n_lost_block, 0);
	assert_int_equal(verified.n_problem, 0);
	assert_int_equal(verified.n_block, repaired.n_block);
	compare_saved();
	unlink(paths.part);
	unlink(paths.saved);
}

static unsigned from_environment(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);

	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static void test_kill(void **state)
{
	unsigned n_kill = from_environment("GM_KILLS", 10), n_late = 0;
	struct fixture_random random = {from_environment("GM_SEED", 1)};
	double began, writing_s;
	pid_t child;
	int status;

	(void)state;
	set_paths();
	write_text();
	child = start(paths.whole);
	assert_true(wait_for_block(child));
	began = gm_clock_s();
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	writing_s = gm_clock_s() - began;
	for (unsigned i = 0; i < n_kill;) {
		child = start(paths.out);
		assert_true(wait_for_block(child));
		usleep((useconds_t)(1e6 * writing_s * (double)(fixture_next(&random) % 1000) / 1000));
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, &status, 0), child);
		if (WIFSIGNALED(status) && access(paths.part, F_OK) == 0) {
			repair_and_check(++i);
		} else { /* it was done already */
			assert_true(++n_late < n_kill + 10);
			unlink(paths.out);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_kill)};

	return cmocka_run_group_tests(tests, support_begin, support_end);
}
