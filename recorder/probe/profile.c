/* A hardware profile (docs/time-model.md) from what was measured (see probe.h). */
#include "base/json.h"
#include "base/number.h"
#include "base/version.h"
#include "recorder/probe/probe.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* What the shipped profiles assume too. A layer: kernels of attention, norms, router and experts. A token: the output layer. */
#define LAYER_LAUNCHES 10
#define OUTPUT_BYTES 0.3e9

struct text {
	char *at;
	size_t left;
};

static void say(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct text *text, const char *format, ...)
{
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(text->at, text->left, format, arguments);
	va_end(arguments);
	if (n < 0 || (size_t)n >= text->left)
		n = text->left > 0 ? (int)text->left - 1 : 0;
	text->at += n;
	text->left -= (size_t)n;
}

/* The profile while it is written: keys, and where each comes from. */
struct draft {
	struct gm_json *profile, *source;
	const struct gm_probe_options *options;
	const struct gm_probe_result *result;
};

/* Four digits: no measurement here has more. */
static void add(const struct draft *draft, const char *key, double value, const char *source)
{
	char text[32];
	double rounded = value;

	snprintf(text, sizeof(text), "%.3e", value);
	gm_parse_double(text, key, &rounded, NULL);
	gm_json_add_number(draft->profile, key, rounded);
	gm_json_add_string(draft->source, key, source);
}

static void say_spread(struct text *text, const struct gm_spread *spread)
{
	char number[GM_SPREAD_TEXT];

	say(text, "%s", gm_spread_format(spread, number));
}

/* "4.1 KB 8.2 (8-9), ..." */
static void say_sizes(struct text *text, const struct draft *draft, const struct gm_spread *time_us)
{
	char size[GM_NUMBER_TEXT], number[GM_SPREAD_TEXT];

	for (uint32_t i = 0; i < draft->options->n_size; i++)
		say(text, "%s%s %s", i ? ", " : "", gm_format_bytes(draft->options->size[i], size),
		    gm_spread_format(&time_us[i], number));
}

/* --- the parts --- */

static void first_of_cpuinfo(char *text, size_t size)
{
	FILE *stream = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(text, size, "unknown CPU");
	while (stream && fgets(line, sizeof(line), stream)) {
		const char *colon = strchr(line, ':');

		if (strncmp(line, "model name", 10) != 0 || !colon)
			continue;
		snprintf(text, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
		break;
	}
	if (stream)
		fclose(stream);
}

static void add_summary(const struct draft *draft)
{
	const struct gm_probe_result *r = draft->result;
	char buffer[1024], cpu[128];
	struct text text = {buffer, sizeof(buffer)};
	struct utsname machine;

	first_of_cpuinfo(cpu, sizeof(cpu));
	say(&text, "measured by probe-machine %s", GM_VERSION);
	if (uname(&machine) == 0)
		say(&text, " on %s", machine.nodename);
	say(&text, ": %s; ", cpu);
	if (r->has_gpu)
		say(&text, "%s", r->gpu.name);
	else
		say(&text,
		    "no GPU was measured (%s): gpu_mem_gb_s, gpu_expert_overhead_us, layer_overhead_us, token_us, "
		    "link_gb_s and link_latency_us are left out",
		    r->no_gpu);
	if (!r->has_disk)
		say(&text, "; no disk was measured (%s)", r->no_disk);
	say(&text, ". Medians of repeated runs, in brackets the lowest and the highest");
	gm_json_add_string(draft->source, "profile", buffer);
}

static void add_gpu(const struct draft *draft)
{
	const struct gm_probe_gpu *g = &draft->result->gpu;
	char buffer[2048], size[GM_NUMBER_TEXT];
	struct text text = {buffer, sizeof(buffer)};

	say(&text, "measured: GB/s of %s ", gm_format_bytes(g->memory_bytes, size));
	say(&text, g->kernels ? "read by a kernel: "
			      : "read and written by copies within the device (no kernel of ours: make cuda): ");
	say_spread(&text, &g->memory_gb_s);
	add(draft, "gpu_mem_gb_s", g->memory_gb_s.median, buffer);

	text = (struct text){buffer, sizeof(buffer)};
	say(&text, "derived: one launch of many in a row, measured in us: ");
	say_spread(&text, &g->launch_us);
	add(draft, "gpu_expert_overhead_us", g->launch_us.median, buffer);

	text = (struct text){buffer, sizeof(buffer)};
	say(&text, "derived: %d launches in a row, and one launch that is waited for, measured in us: ", LAYER_LAUNCHES);
	say_spread(&text, &g->sync_us);
	add(draft, "layer_overhead_us", LAYER_LAUNCHES * g->launch_us.median + g->sync_us.median, buffer);

	add(draft, "token_us", OUTPUT_BYTES * 1e-3 / g->memory_gb_s.median + g->sync_us.median,
	    "derived: an output layer of 0.3 GB read at gpu_mem_gb_s, and one launch that is waited for; sampling and the "
	    "host's "
	    "loop are not in it: no model was run");
}

static void add_link(const struct draft *draft)
{
	const struct gm_probe_gpu *g = &draft->result->gpu;
	char buffer[2048];
	struct text text = {buffer, sizeof(buffer)};

	say(&text, "measured: host to device from pinned memory, us until seen done: ");
	say_sizes(&text, draft, g->pinned_us);
	say(&text, "; latency + bytes/bandwidth fits them within %.0f %%. From pageable memory: ", 100 * g->pinned.worst);
	say_sizes(&text, draft, g->pageable_us);
	say(&text, " (%.4g GB/s, %.4g us)", g->pageable.gb_s, g->pageable.latency_us);
	add(draft, "link_gb_s", g->pinned.gb_s, buffer);
	add(draft, "link_latency_us", g->pinned.latency_us, "measured: of the fit in link_gb_s");
}

static void add_cpu(const struct draft *draft)
{
	const struct gm_probe_cpu *c = &draft->result->cpu;
	char buffer[1024], size[GM_NUMBER_TEXT];
	struct text text = {buffer, sizeof(buffer)};

	say(&text, "measured: GB/s of %s read by %u threads: ", gm_format_bytes(c->bytes, size), draft->options->n_thread);
	say_spread(&text, &c->gb_s);
	add(draft, "cpu_mem_gb_s", c->gb_s.median, buffer);

	text = (struct text){buffer, sizeof(buffer)};
	say(&text, "measured, in us: waking %u threads and seeing them done ", draft->options->n_thread);
	say_spread(&text, &c->round_us);
	if (draft->result->has_gpu) {
		say(&text, "; 16 KiB to the host and back ");
		say_spread(&text, &draft->result->gpu.small_us);
	} else {
		say(&text, "; the copies from and to a GPU are not in it");
	}
	add(draft, "cpu_roundtrip_us",
	    c->round_us.median + (draft->result->has_gpu ? draft->result->gpu.small_us.median : 0), buffer);
}

static void say_disk(struct text *text, const struct draft *draft)
{
	const struct gm_probe_disk *d = &draft->result->disk;

	say(text, "measured: one read at a time at random places of %s, %s, us: ", d->file,
	    d->direct ? "past the page cache (O_DIRECT)" : "the page cache dropped before each (no O_DIRECT here)");
	say_sizes(text, draft, d->random_us);
	say(text, "; latency + bytes/bandwidth fits them within %.0f %%. In order: GB/s ", 100 * d->line.worst);
	say_spread(text, &d->sequential_gb_s);
}

/* A profile with a disk needs the bytes of experts that host memory holds; without, what was measured is only told. */
static void add_disk(const struct draft *draft)
{
	const struct gm_probe_disk *d = &draft->result->disk;
	uint64_t host_bytes = draft->result->host_bytes;
	char buffer[2048];
	struct text text = {buffer, sizeof(buffer)};

	say_disk(&text, draft);
	if (host_bytes == 0) {
		say(&text, " (%.4g GB/s, %.4g us; no disk tier: --host-bytes 0)", d->line.gb_s, d->line.latency_us);
		gm_json_add_string(draft->source, "disk", buffer);
		return;
	}
	add(draft, "disk_gb_s", d->line.gb_s, buffer);
	add(draft, "disk_latency_us", d->line.latency_us, "measured: of the fit in disk_gb_s");
	gm_json_add_uint(draft->profile, "host_expert_bytes", host_bytes);
	gm_json_add_string(draft->source, "host_expert_bytes",
			   draft->result->host_bytes_given
				   ? "given (--host-bytes)"
				   : "derived: 80 % of the memory that was available while measuring");
}

char *gm_probe_profile(const struct gm_probe_options *options, const struct gm_probe_result *result, struct gm_error *err)
{
	struct draft draft = {gm_json_new_object(), gm_json_new_object(), options, result};
	struct gm_json *source = draft.source;
	char *text = NULL, *line = NULL;
	bool good;

	gm_json_add_string(draft.profile, "name", result->name);
	good = gm_json_add(draft.profile, "source", source); /* takes it over; it is filled in place */
	if (good) {
		add_summary(&draft);
		if (result->has_gpu) {
			add_gpu(&draft);
			add_link(&draft);
		}
		add_cpu(&draft);
		if (result->has_disk)
			add_disk(&draft);
		text = gm_json_print(draft.profile, true);
	}
	gm_json_free(draft.profile);
	if (text)
		line = gm_realloc(text, strlen(text) + 2, 1, err);
	if (!line) {
		free(text);
		gm_fail(err, GM_ERR_MEMORY, "out of memory");
		return NULL;
	}
	strcat(line, "\n");
	return line;
}
