#include "sim/profile.h"

#include "base/json.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNKNOWN ((double)NAN)
#define MAX_PATH 4096

/* Bounds that no hardware comes near, and within which no sum of times over a trace leaves the doubles. */
#define MAX_TIME_US 1e15
#define MIN_GB_S 1e-6
#define MAX_GB_S 1e12

enum unit { TIME, SPEED, BYTES, SOME_BYTES /* at least one */ };

/* The numbers of a profile. Latencies and times in µs, bandwidths in GB/s. */
static const struct key {
	const char *name;
	size_t offset;
	enum unit unit;
} keys[] = {
	{"gpu_mem_gb_s", offsetof(struct gm_profile, gpu_mem_gb_s), SPEED},
	{"gpu_expert_overhead_us", offsetof(struct gm_profile, gpu_expert_overhead_us), TIME},
	{"layer_overhead_us", offsetof(struct gm_profile, layer_overhead_us), TIME},
	{"token_us", offsetof(struct gm_profile, token_us), TIME},
	{"link_gb_s", offsetof(struct gm_profile, link_gb_s), SPEED},
	{"link_latency_us", offsetof(struct gm_profile, link_latency_us), TIME},
	{"cpu_mem_gb_s", offsetof(struct gm_profile, cpu_mem_gb_s), SPEED},
	{"cpu_roundtrip_us", offsetof(struct gm_profile, cpu_roundtrip_us), TIME},
	{"disk_gb_s", offsetof(struct gm_profile, disk_gb_s), SPEED},
	{"disk_latency_us", offsetof(struct gm_profile, disk_latency_us), TIME},
	{"host_expert_bytes", offsetof(struct gm_profile, host_expert_bytes), BYTES},
	{"dense_us", offsetof(struct gm_profile, dense_us), TIME},
	{"gpu_expert_us", offsetof(struct gm_profile, gpu_expert_us), TIME},
	{"cpu_expert_us", offsetof(struct gm_profile, cpu_expert_us), TIME},
	{"expert_bytes", offsetof(struct gm_profile, expert_bytes), SOME_BYTES},
};
#define N_KEY (sizeof(keys) / sizeof(*keys))

static double *number_of(struct gm_profile *profile, const struct key *key)
{
	return (double *)(void *)((char *)profile + key->offset);
}

void gm_profile_free(struct gm_profile *profile)
{
	if (!profile)
		return;
	free(profile->name);
	free(profile->source);
	free(profile->path);
	*profile = (struct gm_profile){0};
}

/* --- where profiles are --- */

/* The places where a name is looked up: number i in path [MAX_PATH], false past the last. "" for a place that does not exist here. */
static bool place(int i, char *path)
{
	char exe[MAX_PATH];
	const char *dir = getenv("GATEMASS_PROFILES");
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	exe[n > 0 ? n : 0] = '\0';
	if (n > 0 && strrchr(exe, '/'))
		*strrchr(exe, '/') = '\0'; /* the folder of the program */
	path[0] = '\0';
	switch (i) {
	case 0:
		snprintf(path, MAX_PATH, "%s", dir ? dir : "");
		return true;
	case 1: /* installed: bin/ beside share/ */
		snprintf(path, MAX_PATH, "%.4000s/../share/gatemass/profiles", exe);
		return true;
	case 2: /* build/bin/ in the source tree */
		snprintf(path, MAX_PATH, "%.4000s/../../sim/profiles", exe);
		return true;
	case 3:
#ifdef GM_SOURCE_DIR /* built elsewhere */
		snprintf(path, MAX_PATH, "%s/sim/profiles", GM_SOURCE_DIR);
#else
		snprintf(path, MAX_PATH, "sim/profiles");
#endif
		return true;
	default:
		return false;
	}
}

/* NAME.json in the first place that has it. */
static bool find_file(const char *name, char *path)
{
	char dir[MAX_PATH];

	for (int i = 0; place(i, dir); i++) {
		if (dir[0] == '\0')
			continue;
		int n = snprintf(path, MAX_PATH, "%s/%s.json", dir, name);
		if (n > 0 && n < MAX_PATH && access(path, R_OK) == 0)
			return true;
	}
	return false;
}

static int is_profile(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0;
}

/* Adds what a place holds to found, but for names that stand there already. */
static void list_place(const char *dir, char *found, size_t size)
{
	struct dirent **entry;
	int n = scandir(dir, &entry, is_profile, alphasort);
	char item[NAME_MAX + 4];

	for (int i = 0; i < n; i++) {
		snprintf(item, sizeof(item), " %.*s,", (int)(strlen(entry[i]->d_name) - 5), entry[i]->d_name);
		if (!strstr(found, item) && strlen(found) + strlen(item) < size)
			strcat(found, item);
		free(entry[i]);
	}
	if (n >= 0)
		free(entry);
}

/* Says what is there; where nothing is, where it was sought. */
static int unknown_profile(struct gm_error *err)
{
	char found[120] = "", places[512] = "", dir[MAX_PATH];

	for (int i = 0; place(i, dir); i++) {
		if (dir[0] == '\0')
			continue;
		list_place(dir, found, sizeof(found));
		if (strlen(places) + strlen(dir) + 3 < sizeof(places)) {
			strcat(places, *places ? ", " : "");
			strcat(places, dir);
		}
	}
	if (*found)
		return gm_fail(err, GM_ERR_USAGE, "unknown hardware profile: give instant,%s or a FILE.json", found);
	return gm_fail(err, GM_ERR_USAGE,
		       "unknown hardware profile: give instant, a FILE.json, or the profiles' folder in GATEMASS_PROFILES; "
		       "there are none in %s",
		       places);
}

/* --- reading --- */

static int read_number(const struct key *key, const struct gm_json *member, double *out, struct gm_error *err)
{
	double value = gm_json_value(member);

	if (gm_json_type(member) == GM_JSON_NULL)
		return GM_OK; /* as if it were not there */
	if (key->unit == TIME && !(value >= 0 && value <= MAX_TIME_US))
		return gm_fail(err, GM_ERR_USAGE, "wrong value: key \"%s\": give microseconds, from 0 to %g", key->name,
			       MAX_TIME_US);
	if (key->unit == SPEED && !(value == 0 || (value >= MIN_GB_S && value <= MAX_GB_S)))
		return gm_fail(err, GM_ERR_USAGE, "wrong value: key \"%s\": give GB/s from %g to %g, or 0: infinitely fast",
			       key->name, MIN_GB_S, MAX_GB_S);
	if (key->unit == BYTES && !(value >= 0 && value <= 0x1p53 && value == floor(value)))
		return gm_fail(err, GM_ERR_USAGE, "wrong value: key \"%s\": give a whole number of bytes from 0 on",
			       key->name);
	if (key->unit == SOME_BYTES && !(value >= 1 && value <= (double)GM_MAX_PART_BYTES && value == floor(value)))
		return gm_fail(err, GM_ERR_USAGE, "wrong value: key \"%s\": give a whole number of bytes from 1 to 2^48",
			       key->name);
	*out = value;
	return GM_OK;
}

/* The source is one text, or an object of key and text; it is kept as written. */
static int read_source(const struct gm_json *member, struct gm_profile *profile, struct gm_error *err)
{
	const char *text = gm_json_text(member);

	free(profile->source);
	profile->source = text ? gm_strdup(text, err) : gm_json_print(member, false);
	if (!profile->source)
		return gm_fail(err, GM_ERR_MEMORY, "out of memory: source of a profile");
	return GM_OK;
}

static int read_member(const struct gm_json *member, struct gm_profile *profile, struct gm_error *err)
{
	const char *name = gm_json_key(member);

	if (strcmp(name, "source") == 0)
		return read_source(member, profile, err);
	if (strcmp(name, "name") == 0) {
		if (!gm_json_text(member))
			return gm_fail(err, GM_ERR_USAGE, "wrong value: key \"name\": give a string");
		free(profile->name);
		profile->name = gm_strdup(gm_json_text(member), err);
		return profile->name ? GM_OK : GM_ERR_MEMORY;
	}
	for (size_t i = 0; i < N_KEY; i++)
		if (strcmp(keys[i].name, name) == 0)
			return read_number(&keys[i], member, number_of(profile, &keys[i]), err);
	return gm_fail(err, GM_ERR_USAGE, "unknown key: key \"%.40s\": docs/time-model.md lists the keys", name);
}

/* The file's name without folders and .json: what a profile without a name is called. */
static char *base_name(const char *path, struct gm_error *err)
{
	const char *slash = strrchr(path, '/');
	char *name = gm_strdup(strcmp(path, "-") == 0 ? "stdin" : slash ? slash + 1 : path, err);
	char *dot = name ? strrchr(name, '.') : NULL;

	if (dot && strcmp(dot, ".json") == 0)
		*dot = '\0';
	return name;
}

/* host_expert_bytes 0 or absent: no disk tier, and no speed of a disk that would be left unused. */
static int check_disk(const struct gm_profile *p, struct gm_error *err)
{
	bool host = p->host_expert_bytes > 0;

	if (!host && (p->disk_gb_s > 0 || p->disk_latency_us > 0))
		return gm_fail(err, GM_ERR_USAGE,
			       "a disk without host RAM: key \"host_expert_bytes\" is missing: give the bytes of "
			       "experts that it holds");
	if (host && (isnan(p->disk_gb_s) || isnan(p->disk_latency_us)))
		return gm_fail(err, GM_ERR_USAGE,
			       "host RAM without a disk: key \"%s\" is missing: give it, or leave out "
			       "host_expert_bytes",
			       isnan(p->disk_gb_s) ? "disk_gb_s" : "disk_latency_us");
	return GM_OK;
}

static int read_profile(const char *path, struct gm_profile *profile, struct gm_error *err)
{
	struct gm_json *json = gm_json_parse_file(path, err);
	int status = GM_OK;

	if (!json)
		return err->code;
	profile->name = base_name(path, err);
	profile->path = gm_strdup(path, err);
	if (!profile->name || !profile->path)
		status = GM_ERR_MEMORY;
	if (status == GM_OK && gm_json_type(json) != GM_JSON_OBJECT)
		status = gm_fail(err, GM_ERR_USAGE, "not a profile: give an object {\"link_gb_s\": ...}");
	for (const struct gm_json *member = gm_json_first(json); member && status == GM_OK; member = gm_json_next(member))
		status = read_member(member, profile, err);
	if (status == GM_OK)
		status = check_disk(profile, err);
	if (status < 0)
		gm_error_at(err, "profile %s", path);
	gm_json_free(json);
	return status;
}

int gm_profile_load(const char *name_or_path, struct gm_profile *profile, struct gm_error *err)
{
	char path[MAX_PATH];
	size_t length = strlen(name_or_path);
	bool is_path = strcmp(name_or_path, "-") == 0 || strchr(name_or_path, '/') ||
		       (length > 5 && strcmp(name_or_path + length - 5, ".json") == 0);
	int status;

	*profile = (struct gm_profile){0};
	for (size_t i = 0; i < N_KEY; i++)
		*number_of(profile, &keys[i]) = UNKNOWN;
	if (strcmp(name_or_path, "instant") == 0) {
		profile->instant = true;
		profile->name = gm_strdup("instant", err);
		profile->source = gm_strdup("built in: every time is 0", err);
		status = profile->name && profile->source ? GM_OK : GM_ERR_MEMORY;
	} else if (is_path) {
		status = read_profile(name_or_path, profile, err);
	} else if (find_file(name_or_path, path)) {
		status = read_profile(path, profile, err);
	} else {
		status = unknown_profile(err);
	}
	if (status < 0)
		gm_profile_free(profile);
	return status;
}
