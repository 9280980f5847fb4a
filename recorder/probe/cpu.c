/* Memory bandwidth of the CPU as experts are read, and what it costs to wake the threads (see probe.h). */
#include "base/progress.h"
#include "recorder/probe/probe.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Together; several times any last-level cache, so that every read comes from memory. */
#define READ_BYTES ((uint64_t)1 << 30)
#define MIN_THREAD_BYTES ((size_t)8 << 20)
#define N_ROUND 501

uint64_t gm_probe_available_bytes(void)
{
	static const char key[] = "MemAvailable:";
	FILE *stream = fopen("/proc/meminfo", "re");
	uint64_t bytes = 0;
	char line[128];

	while (stream && bytes == 0 && fgets(line, sizeof(line), stream))
		if (strncmp(line, key, sizeof(key) - 1) == 0)
			bytes = (uint64_t)strtoull(line + sizeof(key) - 1, NULL, 10) * 1024;
	if (stream)
		fclose(stream);
	return bytes;
}

enum gate { GATE_CLOSED, GATE_OPEN, GATE_ABANDONED };

struct team {
	pthread_barrier_t begin, end;
	pthread_cond_t opened;
	enum gate gate; /* abandoned: not all threads could be started */
	size_t bytes;   /* a thread's */
	uint32_t n_read, n_round;
	pthread_mutex_t lock;
	uint64_t sum; /* of what was read, so that the reading is not optimised away */
	bool failed;  /* a thread got no memory */
};

static uint64_t read_memory(const uint64_t *word, size_t n)
{
	uint64_t a = 0, b = 0, c = 0, d = 0;

	for (size_t i = 0; i + 8 <= n; i += 8) { /* a cache line */
		a += word[i] ^ word[i + 4];
		b += word[i + 1] ^ word[i + 5];
		c += word[i + 2] ^ word[i + 6];
		d += word[i + 3] ^ word[i + 7];
	}
	return a + b + c + d;
}

static bool pass_gate(struct team *team)
{
	bool open;

	pthread_mutex_lock(&team->lock);
	while (team->gate == GATE_CLOSED)
		pthread_cond_wait(&team->opened, &team->lock);
	open = team->gate == GATE_OPEN;
	pthread_mutex_unlock(&team->lock);
	return open;
}

static void set_gate(struct team *team, enum gate gate)
{
	pthread_mutex_lock(&team->lock);
	team->gate = gate;
	pthread_cond_broadcast(&team->opened);
	pthread_mutex_unlock(&team->lock);
}

/* Each thread fills the memory that it reads, so that it lies near its core. */
static void *work(void *user)
{
	struct team *team = user;
	uint64_t *memory, sum = 0;

	if (!pass_gate(team))
		return NULL;
	memory = aligned_alloc(4096, team->bytes);
	if (memory)
		memset(memory, 1, team->bytes);
	for (uint32_t i = 0; i < team->n_read + team->n_round; i++) {
		pthread_barrier_wait(&team->begin);
		if (memory && i < team->n_read)
			sum += read_memory(memory, team->bytes / sizeof(*memory));
		pthread_barrier_wait(&team->end);
	}
	pthread_mutex_lock(&team->lock);
	team->sum += sum;
	team->failed |= !memory;
	pthread_mutex_unlock(&team->lock);
	free(memory);
	return NULL;
}

static double time_round(struct team *team)
{
	double started;

	pthread_barrier_wait(&team->begin);
	started = gm_clock_s();
	pthread_barrier_wait(&team->end);
	return (gm_clock_s() - started) * 1e6;
}

/* The round trip begins before the threads are woken. */
static double time_wake(struct team *team)
{
	double started = gm_clock_s();

	pthread_barrier_wait(&team->begin);
	pthread_barrier_wait(&team->end);
	return (gm_clock_s() - started) * 1e6;
}

static void measure(struct team *team, struct gm_probe_cpu *cpu)
{
	double value[GM_PROBE_MAX_REPEAT];

	for (uint32_t i = 0; i < team->n_read; i++)
		value[i] = (double)cpu->bytes * 1e-3 / time_round(team);
	cpu->gb_s = gm_spread_of(value, team->n_read);
	for (uint32_t i = 0; i < team->n_round; i++)
		value[i] = time_wake(team);
	cpu->round_us = gm_spread_of(value, team->n_round);
}

static uint64_t bytes_to_read(void)
{
	uint64_t available = gm_probe_available_bytes();

	return available && available / 4 < READ_BYTES ? available / 4 : READ_BYTES;
}

int gm_probe_cpu(const struct gm_probe_options *options, struct gm_probe_cpu *cpu, struct gm_error *err)
{
	struct team team = {.n_read = options->n_repeat,
			    .n_round = N_ROUND,
			    .lock = PTHREAD_MUTEX_INITIALIZER,
			    .opened = PTHREAD_COND_INITIALIZER};
	pthread_t *thread = gm_alloc(options->n_thread, sizeof(*thread), err);
	uint32_t n = 0;
	int status = 0;

	if (!thread)
		return GM_ERR_MEMORY;
	team.bytes = bytes_to_read() / options->n_thread / 4096 * 4096;
	if (team.bytes < MIN_THREAD_BYTES)
		team.bytes = MIN_THREAD_BYTES;
	cpu->bytes = (uint64_t)team.bytes * options->n_thread;
	pthread_barrier_init(&team.begin, NULL, options->n_thread + 1);
	pthread_barrier_init(&team.end, NULL, options->n_thread + 1);
	while (n < options->n_thread && pthread_create(&thread[n], NULL, work, &team) == 0)
		n++;
	set_gate(&team, n == options->n_thread ? GATE_OPEN : GATE_ABANDONED);
	if (n == options->n_thread)
		measure(&team, cpu);
	else
		status = gm_fail(err, GM_ERR_MEMORY, "only %u of %u threads can be started: give fewer (--threads)", n,
				 options->n_thread);
	for (uint32_t i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	if (team.failed)
		status = gm_fail(err, GM_ERR_MEMORY, "no memory to read: %u threads with %zu bytes each", options->n_thread,
				 team.bytes);
	pthread_barrier_destroy(&team.begin);
	pthread_barrier_destroy(&team.end);
	free(thread);
	return status;
}
