/* `probe-machine`: measures this machine and writes a hardware profile for `sim --hw FILE`. */
#include "base/file.h"
#include "base/number.h"
#include "base/options.h"
#include "recorder/probe/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUT = 1, NAME, THREADS, EXPERT_BYTES, DISK, DISK_BYTES, NO_DISK, HOST_BYTES, DEVICE, NO_GPU, REPEAT, QUIET };

#define MIN_SIZE ((uint64_t)4096)
#define MAX_SIZE ((uint64_t)1 << 30)

struct state {
	const char *output, *name;
	struct gm_probe_options probe;
	uint64_t host_bytes;
	bool host_bytes_given, no_disk, quiet;
	bool has_defaults;
};

static const struct gm_option options[] = {
	{OUT, 'o', "out", "FILE", "the profile to write (JSON); - for standard output (default)"},
	{NAME, 0, "name", "TEXT", "what it is called (default: the machine's name)"},
	{THREADS, 't', "threads", "N", "CPU threads that read memory (default: one a core)"},
	{EXPERT_BYTES, 0, "expert-bytes", "LIST",
	 "sizes of experts, for copies and reads: 900KiB,2MiB (default 512KiB,2MiB,8MiB)"},
	{DISK, 0, "disk", "PATH",
	 "a large file to read, best the model itself, or a folder for one that is\n"
	 "made and removed (default: the current folder)"},
	{DISK_BYTES, 0, "disk-bytes", "SIZE", "of the file that is made (default 1GiB)"},
	{NO_DISK, 0, "no-disk", NULL, "measure no disk"},
	{HOST_BYTES, 0, "host-bytes", "SIZE",
	 "host memory for experts, beyond which they are read from disk; 0: leave the disk\n"
	 "out of the profile (default: 80 % of what is available)"},
	{DEVICE, 0, "device", "N", "CUDA device (default 0)"},
	{NO_GPU, 0, "no-gpu", NULL, "measure no GPU"},
	{REPEAT, 0, "repeat", "N", "runs of each measurement (default 15)"},
	{QUIET, 'q', "quiet", NULL, "no messages"},
	{0, 0, NULL, NULL, NULL},
};

static void set_defaults(struct state *s)
{
	static const uint64_t sizes[] = {MIN_SIZE, 512 << 10, 2 << 20, 8 << 20};
	long n_core = sysconf(_SC_NPROCESSORS_ONLN);

	if (s->has_defaults)
		return;
	s->has_defaults = true;
	s->output = "-";
	s->probe.n_thread = n_core < 1 ? 1 : (uint32_t)n_core;
	s->probe.n_size = sizeof(sizes) / sizeof(*sizes);
	memcpy(s->probe.size, sizes, sizeof(sizes));
	s->probe.n_repeat = 15;
	s->probe.disk = ".";
	s->probe.disk_bytes = (uint64_t)1 << 30;
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The smallest, for the latency, comes before those given. */
static int take_sizes(struct gm_probe_options *probe, const char *list, struct gm_error *err)
{
	probe->n_size = 1;
	while (*list) {
		size_t length = strcspn(list, ",");
		uint64_t bytes;
		char item[32];

		snprintf(item, sizeof(item), "%.*s", (int)length, list);
		GM_TRY(gm_parse_bytes(item, "--expert-bytes", &bytes, NULL, err));
		if (bytes <= MIN_SIZE || bytes > MAX_SIZE || probe->n_size == GM_PROBE_MAX_SIZE)
			return gm_fail(err, GM_ERR_USAGE,
				       "unusable size: --expert-bytes %.40s: up to %d sizes above 4 KiB, at most 1 GiB",
				       item, GM_PROBE_MAX_SIZE - 1);
		/* disks read, and the fit wants, what O_DIRECT allows */
		probe->size[probe->n_size++] = (bytes + MIN_SIZE - 1) / MIN_SIZE * MIN_SIZE;
		list += length;
		list += *list == ',';
	}
	if (probe->n_size == 1)
		return gm_fail(err, GM_ERR_USAGE, "no size: --expert-bytes: 512KiB,2MiB for example");
	qsort(probe->size + 1, probe->n_size - 1, sizeof(*probe->size), ascending);
	return 0;
}

static int take_measure_option(int id, const char *value, struct state *s, struct gm_error *err)
{
	uint32_t device;

	switch (id) {
	case THREADS:
		return gm_parse_u32(value, "--threads", 1, 1024, &s->probe.n_thread, err);
	case EXPERT_BYTES:
		return take_sizes(&s->probe, value, err);
	case DISK_BYTES:
		return gm_parse_bytes(value, "--disk-bytes", &s->probe.disk_bytes, NULL, err);
	case HOST_BYTES:
		s->host_bytes_given = true;
		return gm_parse_bytes(value, "--host-bytes", &s->host_bytes, NULL, err);
	case DEVICE:
		GM_TRY(gm_parse_u32(value, "--device", 0, 63, &device, err));
		s->probe.device = (int)device;
		return 0;
	default: /* REPEAT */
		return gm_parse_u32(value, "--repeat", 3, GM_PROBE_MAX_REPEAT, &s->probe.n_repeat, err);
	}
}

static int take_option(int id, const char *value, void *state, struct gm_error *err)
{
	struct state *s = state;

	set_defaults(s);
	switch (id) {
	case OUT:
		s->output = value;
		return 0;
	case NAME:
		s->name = value;
		return 0;
	case DISK:
		s->probe.disk = value;
		return 0;
	case NO_DISK:
		s->no_disk = true;
		return 0;
	case NO_GPU:
		s->probe.device = -1;
		return 0;
	case QUIET:
		s->quiet = true;
		return 0;
	default:
		return take_measure_option(id, value, s, err);
	}
}

/* --- measuring --- */

static void note(const struct state *s, const char *what, const char *why)
{
	if (!s->quiet)
		gm_note("%s%s", what, why);
}

/* What cannot be measured here is left out of the profile and said; what fails while it is measured is a failure. */
static int run_disk(const struct state *s, struct gm_probe_result *result, struct gm_error *err)
{
	struct gm_error reason = {0};
	int status;

	if (s->no_disk) {
		snprintf(result->no_disk, sizeof(result->no_disk), "not asked for (--no-disk)");
		return 0;
	}
	note(s, "disk: ", s->probe.disk);
	status = gm_probe_disk(&s->probe, &result->disk, &reason);
	if (status < 0 && status != GM_ERR_UNSUPPORTED)
		return gm_fail(err, status, "%s", reason.text);
	result->has_disk = status == 0;
	memcpy(result->no_disk, reason.text, sizeof(reason.text));
	if (status < 0)
		note(s, "no disk: ", reason.text);
	return 0;
}

static int run_gpu(const struct state *s, struct gm_probe_result *result, struct gm_error *err)
{
	struct gm_error reason = {0};
	int status = gm_probe_gpu(&s->probe, &result->gpu, &reason);

	if (status < 0 && status != GM_ERR_UNSUPPORTED)
		return gm_fail(err, status, "%s", reason.text);
	result->has_gpu = status == 0;
	memcpy(result->no_gpu, reason.text, sizeof(reason.text));
	if (status < 0) {
		note(s, "no GPU: ", reason.text);
		note(s,
		     "left out of the profile: gpu_mem_gb_s, gpu_expert_overhead_us, layer_overhead_us, token_us, "
		     "link_gb_s, ",
		     "link_latency_us; until they are added, sim --hw asks for them");
	} else {
		note(s, "GPU: ", result->gpu.name);
	}
	return 0;
}

static int measure(const struct state *s, struct gm_probe_result *result, struct gm_error *err)
{
	GM_TRY(run_gpu(s, result, err));
	note(s, "CPU", "");
	GM_TRY(gm_probe_cpu(&s->probe, &result->cpu, err));
	GM_TRY(run_disk(s, result, err));
	result->host_bytes_given = s->host_bytes_given;
	result->host_bytes = s->host_bytes_given ? s->host_bytes : gm_probe_available_bytes() / 5 * 4;
	return 0;
}

static int write_profile(const char *path, const char *text, struct gm_error *err)
{
	struct gm_output out;

	GM_TRY(gm_output_open(&out, path, err));
	fputs(text, out.stream);
	return gm_output_commit(&out, err);
}

static int run(int n_operand, char **operand, void *state, struct gm_error *err)
{
	struct state *s = state;
	struct gm_probe_result *result;
	char host[256] = "";
	char *text = NULL;
	int status;

	(void)n_operand, (void)operand;
	set_defaults(s);
	const struct gm_file_use use[] = {{s->probe.disk, "--disk", false}, {s->output, "--out", true}};

	GM_TRY(gm_files_check(use, 2, err));
	result = gm_alloc(1, sizeof(*result), err);
	if (!result)
		return GM_ERR_MEMORY;
	if (gethostname(host, sizeof(host) - 1) < 0 || !*host)
		snprintf(host, sizeof(host), "this-machine");
	result->name = s->name ? s->name : host;
	GM_TRY_OUT(measure(s, result, err));
	text = gm_probe_profile(&s->probe, result, err);
	status = text ? write_profile(s->output, text, err) : GM_ERR_MEMORY;
out:
	free(text);
	free(result);
	return status;
}

int main(int argc, char **argv)
{
	static const struct gm_option *const tables[] = {options};
	static const struct gm_command command = {
		.usage = "[options]",
		.help = "Measure this machine: link and memory of the GPU (CUDA), memory of the CPU, disk. What is not "
			"here is left\n"
			"out of the profile, and said. Let nothing else run meanwhile.",
		.example = "probe-machine --disk Qwen3-30B-A3B-Q4_K_M.gguf --expert-bytes 1.7MiB -o mine.json",
		.options = tables,
		.n_table = 1,
		.run = run,
		.option = take_option,
		.state_bytes = sizeof(struct state),
	};
	const struct gm_program program = {
		.name = "probe-machine",
		.help = "measure this machine for a hardware profile",
		.commands = &command,
		.n_command = 1,
	};

	return gm_program_main(&program, argc, argv);
}
