/* What recording costs: the same texts through the same model without an observer and with a recording, turn by turn; medians.
 *
 *   bench_record [MODEL.gguf [N_TOKEN [N_ROUND [N_UBATCH]]]]
 *
 * One thread computes. All of it stays on one core, the writing thread too, so that wall time holds everything that recording
 * costs (with a core to spare it costs less), and a virtual machine's second core, which is slow to wake, plays no part. The CPU
 * time of the computing thread is the forward pass and what recording adds to it, whatever else the machine does.
 */
#include "base/error.h"
#include "base/progress.h"
#include "recorder/record.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_ROUND 101

enum clock { WALL, THREAD, PROCESS, N_CLOCK };

static const char *const clock_names[] = {"wall", "CPU of the computing thread", "CPU of the process"};
static const clockid_t clock_ids[] = {CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID, CLOCK_PROCESS_CPUTIME_ID};

struct bench {
	struct gm_hook *bare, *observed;
	struct gm_texts texts;
	struct gm_record_options options;
	int32_t *token;
	size_t n_token;
	struct gm_error err;
};

static double read_clock(enum clock clock)
{
	struct timespec now;

	clock_gettime(clock_ids[clock], &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int run_bare(struct bench *b)
{
	uint32_t n_ubatch = gm_hook_info(b->bare)->n_ubatch, n_ctx = gm_hook_info(b->bare)->n_ctx;

	for (size_t done = 0; done < b->n_token;) {
		size_t left = b->n_token - done, room;

		if (done % n_ctx == 0)
			gm_hook_begin_sequence(b->bare);
		room = n_ctx - done % n_ctx;
		left = left < room ? left : room;
		left = left < n_ubatch ? left : n_ubatch;
		GM_TRY(gm_hook_pass(b->bare, b->token + done, (uint32_t)left, &b->err));
		done += left;
	}
	return 0;
}

static int run_recorded(struct bench *b)
{
	struct gm_record_result result;

	return gm_record(b->observed, &b->texts, &b->options, &result, &b->err);
}

static int measure(struct bench *b, int (*run)(struct bench *b), double *spent)
{
	double before[N_CLOCK];

	for (int i = 0; i < N_CLOCK; i++)
		before[i] = read_clock((enum clock)i);
	GM_TRY(run(b));
	for (int i = 0; i < N_CLOCK; i++)
		spent[i * MAX_ROUND] = read_clock((enum clock)i) - before[i];
	return 0;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof(*values), ascending);
	return values[n / 2];
}

static int prepare(struct bench *b, const char *model, size_t n_token, uint32_t n_ubatch)
{
	struct gm_hook_options options = gm_hook_default_options();

	options.n_thread = 1;
	options.n_ubatch = n_ubatch;
	b->observed = gm_hook_open(model, &options, &b->err);
	options.bare = true;
	b->bare = b->observed ? gm_hook_open(model, &options, &b->err) : NULL;
	if (!b->bare)
		return b->err.code;
	GM_TRY(gm_texts_add_file(&b->texts, "tests/tinymoe/prompts.jsonl", NULL, &b->err));
	if (b->texts.text[0].size > 4 * n_token) /* making tokens of what is not recorded is no part of the cost */
		b->texts.text[0].size = 4 * n_token;
	GM_TRY(gm_hook_tokenize(b->bare, b->texts.text[0].text, b->texts.text[0].size, false, &b->token, &b->n_token,
				&b->err));
	if (b->n_token > n_token)
		b->n_token = n_token;
	b->options = (struct gm_record_options){
		.output = "/tmp/gatemass-bench.gmt", .tail = GM_TAIL_F16, .max_tokens = b->n_token, .quiet = true};
	return 0;
}

/* The machine's speed drifts from round to round; the two runs of one round share it, so their ratio is what is compared. */
static void print_clock(enum clock clock, double *bare, double *recorded, int n, size_t n_token)
{
	double ratio[MAX_ROUND];

	for (int i = 0; i < n; i++)
		ratio[i] = 100 * (recorded[i] / bare[i] - 1);
	qsort(ratio, (size_t)n, sizeof(*ratio), ascending);
	printf("%-28s %9.1f us a token without, %9.1f with: %+.2f %% (quartiles %+.2f and %+.2f)\n", clock_names[clock],
	       1e6 * median(bare, n) / (double)n_token, 1e6 * median(recorded, n) / (double)n_token, ratio[n / 2],
	       ratio[n / 4], ratio[3 * n / 4]);
}

static void stay_on_this_core(void)
{
	cpu_set_t cores;

	CPU_ZERO(&cores);
	CPU_SET((size_t)sched_getcpu(), &cores);
	if (sched_setaffinity(0, sizeof(cores), &cores) != 0)
		perror("bench_record: no core to stay on");
}

static int rounds(struct bench *b, int n)
{
	static double bare[N_CLOCK * MAX_ROUND], recorded[N_CLOCK * MAX_ROUND];

	GM_TRY(run_bare(b)); /* warms up: the weights are mapped from the file */
	GM_TRY(run_recorded(b));
	for (int i = 0; i < n; i++) {
		if (i % 2 == 0)
			GM_TRY(measure(b, run_bare, bare + i));
		GM_TRY(measure(b, run_recorded, recorded + i));
		if (i % 2)
			GM_TRY(measure(b, run_bare, bare + i));
	}
	for (int i = 0; i < N_CLOCK; i++)
		print_clock((enum clock)i, bare + i * MAX_ROUND, recorded + i * MAX_ROUND, n, b->n_token);
	return 0;
}

int main(int argc, char **argv)
{
	const char *model = argc > 1 ? argv[1] : "tests/tinymoe/tinymoe-F16.gguf";
	size_t n_token = argc > 2 ? strtoul(argv[2], NULL, 10) : 1024;
	int n_round = argc > 3 ? atoi(argv[3]) : 15;
	uint32_t n_ubatch = argc > 4 ? (uint32_t)atoi(argv[4]) : 512;
	struct bench bench = {0};
	int status;

	if (n_token == 0 || n_round < 1 || n_round > MAX_ROUND) {
		fprintf(stderr, "usage: bench_record [MODEL.gguf [N_TOKEN [N_ROUND (1 to %d) [N_UBATCH]]]]\n", MAX_ROUND);
		return 2;
	}
	stay_on_this_core();
	status = prepare(&bench, model, n_token, n_ubatch);
	if (status == 0) {
		printf("%s: %zu tokens, passes of %u, medians of %d rounds\n", model, bench.n_token, n_ubatch, n_round);
		status = rounds(&bench, n_round);
	}
	if (status < 0)
		fprintf(stderr, "bench_record: %s\n", bench.err.text);
	unlink(bench.options.output ? bench.options.output : "");
	free(bench.token);
	gm_texts_free(&bench.texts);
	gm_hook_close(bench.bare);
	gm_hook_close(bench.observed);
	return status < 0;
}
