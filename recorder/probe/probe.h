/* Measuring a machine for a hardware profile (docs/time-model.md): what the files here share.
 *
 * Every number is the median of repeated runs, kept with the lowest and the highest of them. Times in µs.
 */
#ifndef GM_RECORDER_PROBE_PROBE_H
#define GM_RECORDER_PROBE_PROBE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GM_PROBE_MAX_SIZE 16 /* sizes of experts at once */
#define GM_PROBE_MAX_REPEAT 1001

struct gm_probe_options {
	uint64_t size[GM_PROBE_MAX_SIZE]; /* bytes of an expert, ascending; the first is 4 KiB, for the latency */
	uint32_t n_size;
	uint32_t n_repeat; /* 3 ... GM_PROBE_MAX_REPEAT */
	uint32_t n_thread;
	const char *disk;    /* a file to read, or a folder for one that is made and removed; NULL: no disk */
	uint64_t disk_bytes; /* of the made file */
	int device;          /* of CUDA; -1: no GPU */
};

struct gm_spread {
	double median, low, high;
};

/* Sorts value [n]. */
struct gm_spread gm_spread_of(double *value, size_t n);
#define GM_SPREAD_TEXT 64
char *gm_spread_format(const struct gm_spread *spread, char text[GM_SPREAD_TEXT]); /* "8.1 (7.9-9.02)" */

/* time = latency + bytes / bandwidth through the medians, least squares of the relative errors. Both at least 0; worst: the
 * largest relative error. */
struct gm_line {
	double latency_us, gb_s, worst;
};
struct gm_line gm_line_fit(const uint64_t *size, const struct gm_spread *time_us, uint32_t n);

/* --- CPU --- */

struct gm_probe_cpu {
	uint64_t bytes;            /* read at once by all threads together */
	struct gm_spread gb_s;     /* reading memory, all threads */
	struct gm_spread round_us; /* waking all threads and seeing them done */
};
int gm_probe_cpu(const struct gm_probe_options *options, struct gm_probe_cpu *cpu, struct gm_error *err);

/* Bytes of memory that could be had now; 0: not known. */
uint64_t gm_probe_available_bytes(void);

/* --- disk --- */

struct gm_probe_disk {
	char file[256];                                /* what was read, for people */
	bool direct;                                   /* O_DIRECT; else the page cache was dropped before each read */
	struct gm_spread random_us[GM_PROBE_MAX_SIZE]; /* one read at a time at random places */
	struct gm_line line;                           /* through them */
	struct gm_spread sequential_gb_s;              /* in pieces of the largest size */
};
/* GM_ERR_UNSUPPORTED: this can be no measurement of a disk (a file in memory, a file too small): says why. */
int gm_probe_disk(const struct gm_probe_options *options, struct gm_probe_disk *disk, struct gm_error *err);

/* --- GPU --- */

struct gm_probe_gpu {
	char name[256];        /* "NVIDIA GeForce RTX 3090, link at rest 2.5 GT/s PCIe x16" */
	bool kernels;          /* our own kernels ran (`make cuda`) */
	uint64_t memory_bytes; /* read at once */
	struct gm_spread memory_gb_s;
	struct gm_spread pinned_us[GM_PROBE_MAX_SIZE], pageable_us[GM_PROBE_MAX_SIZE]; /* host to device, and seen done */
	struct gm_line pinned, pageable;
	struct gm_spread launch_us; /* one of many launches in a row */
	struct gm_spread sync_us;   /* one launch, and seeing its end */
	struct gm_spread small_us;  /* 16 KiB to the host, seen done, and 16 KiB back, seen done */
};
/* GM_ERR_UNSUPPORTED: there is no GPU. */
int gm_probe_gpu(const struct gm_probe_options *options, struct gm_probe_gpu *gpu, struct gm_error *err);

/* --- the profile --- */

struct gm_probe_result {
	const char *name;
	struct gm_probe_cpu cpu;
	struct gm_probe_disk disk;
	struct gm_probe_gpu gpu;
	bool has_disk, has_gpu;
	char no_disk[256], no_gpu[256]; /* why not */
	uint64_t host_bytes;            /* host memory for experts; 0: the profile gets no disk */
	bool host_bytes_given;
};

/* The profile's text; NULL when out of memory. free() it. */
char *gm_probe_profile(const struct gm_probe_options *options, const struct gm_probe_result *result, struct gm_error *err);

#endif
