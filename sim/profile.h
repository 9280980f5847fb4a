/* Hardware profiles: JSON files (looked up in sim/profiles/ by name) and what they mean for one trace (docs/time-model.md). */
#ifndef GM_SIM_PROFILE_H
#define GM_SIM_PROFILE_H

#include "base/error.h"
#include "traces/model.h"

#include <stdbool.h>
#include <stdint.h>

/* The values of a profile as given; NaN: not given. Bandwidths in GB/s (1e9 bytes, 0: infinitely fast), times in µs. */
struct gm_profile {
	char *name, *source, *path; /* path: the file it was read from; NULL where built in */
	double gpu_mem_gb_s, gpu_expert_overhead_us, layer_overhead_us, token_us;
	double link_gb_s, link_latency_us;
	double cpu_mem_gb_s, cpu_roundtrip_us;
	double disk_gb_s, disk_latency_us, host_expert_bytes;
	double dense_us, gpu_expert_us, cpu_expert_us, expert_bytes;
	bool instant; /* the built-in profile "instant": counts only */
};

/* A path (it holds a '/' or ends in .json, or is "-": standard input) or a name: "instant", or NAME.json in $GATEMASS_PROFILES, the installed
 * profiles, or sim/profiles of the source tree. Errors name the known profiles, or the key that is wrong. Release with gm_profile_free. */
int gm_profile_load(const char *name_or_path, struct gm_profile *profile, struct gm_error *err);
void gm_profile_free(struct gm_profile *profile);

/* A profile held against a model: what one layer's work costs. Times in µs; NaN: cannot be had. */
struct gm_hw {
	uint32_t n_layer;
	bool instant;           /* all times 0 */
	double *dense_us;       /* [n_layer] */
	double *gpu_expert_us;  /* [n_layer] */
	double *cpu_expert_us;  /* [n_layer] */
	double *copy_us;        /* [n_layer] host to device, latency included */
	double *read_us;        /* [n_layer] disk to host, latency included; 0 without a disk tier */
	uint64_t *expert_bytes; /* [n_layer] or NULL where neither profile nor trace knows them */
	double cpu_roundtrip_us, token_us;
	bool disk;
	uint64_t host_bytes; /* host RAM for experts, with a disk tier */
};
int gm_hw_derive(const struct gm_profile *profile, const struct gm_model *model, struct gm_hw *hw, struct gm_error *err);
void gm_hw_free(struct gm_hw *hw);

/* 0 if every time that a replay can need is there; otherwise GM_ERR_USAGE and a message that names the profile's key or the import
 * option that would give it. needs_cpu: the miss rule computes on the CPU. */
int gm_hw_check(const struct gm_hw *hw, const struct gm_profile *profile, bool needs_cpu, struct gm_error *err);

#endif
