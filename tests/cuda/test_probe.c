/* probe-machine: its arithmetic, and that what it writes is a profile that sim takes, with a GPU (the stand-in) and without. */
#include "base/file.h"
#include "base/json.h"
#include "recorder/probe/probe.h"
#include "sim/profile.h"
#include "tests/cuda/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/gatemass-probe-XXXXXX";

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command) == 0 ? 0 : -1;
}

static const char *in_folder(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

/* --- arithmetic --- */

static void test_spread(void **state)
{
	double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
	char text[GM_SPREAD_TEXT];
	struct gm_spread s = gm_spread_of(odd, 3);

	(void)state;
	assert_true(s.median == 2 && s.low == 1 && s.high == 3);
	assert_string_equal(gm_spread_format(&s, text), "2 (1-3)");
	s = gm_spread_of(even, 4);
	assert_true(s.median == 2.5);
}

static void test_fit(void **state)
{
	const uint64_t size[] = {4096, 1 << 19, 1 << 21};
	struct gm_spread time_us[3];
	struct gm_line line;

	(void)state;
	for (int i = 0; i < 3; i++) /* 10 µs and 25 GB/s */
		time_us[i] = (struct gm_spread){.median = 10 + (double)size[i] / 25e3};
	line = gm_line_fit(size, time_us, 3);
	assert_true(fabs(line.latency_us - 10) < 1e-9);
	assert_true(fabs(line.gb_s - 25) < 1e-9);
	assert_true(line.worst < 1e-9);
	for (int i = 0; i < 3; i++) /* no latency can be less than none */
		time_us[i].median = (double)size[i] / 25e3 - (i == 0 ? 0.1 : 0);
	line = gm_line_fit(size, time_us, 3);
	assert_true(line.latency_us == 0);
	assert_true(line.gb_s > 0);
	assert_true(line.worst > 0.01);
}

/* --- the program --- */

#define QUICK "--threads 2 --repeat 3 --expert-bytes 64KiB,300000 --disk-bytes 2MiB "

/* Runs it with a CUDA runtime (or "none"); returns its exit status. */
static int probe(const char *cudart, const char *arguments)
{
	const char *build = getenv("GM_BUILD");
	char command[1024], runtime[512];
	int status;

	if (!build)
		build = "build";
	snprintf(runtime, sizeof(runtime), "%s/tests/libfakecudart.so", build);
	snprintf(command, sizeof(command), "GATEMASS_CUDART=%s %s/bin/probe-machine %s >%s/out 2>%s/err",
		 cudart ? cudart : runtime, build, arguments, folder, folder);
	status = system(command);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void check_said(const char *text)
{
	char *said = gm_read_file(in_folder("err"), 100000, NULL, NULL);

	assert_non_null(said);
	if (!strstr(said, text))
		fail_msg("\"%s\" was expected in: %s", text, said);
	free(said);
}

static struct gm_profile load(const char *name)
{
	struct gm_profile profile;
	struct gm_error err = {0};

	if (gm_profile_load(in_folder(name), &profile, &err) < 0)
		fail_msg("%s", err.text);
	return profile;
}

static bool on_disk(void)
{
	char *said = gm_read_file(in_folder("err"), 100000, NULL, NULL);
	bool memory = said && strstr(said, "lies in memory");

	free(said);
	return !memory;
}

static void test_without_gpu(void **state)
{
	char arguments[512];
	struct gm_profile p;

	(void)state;
	snprintf(arguments, sizeof(arguments), QUICK "--disk . --name here -o %s/none.json", folder);
	assert_int_equal(probe("none", arguments), 0);
	check_said("no GPU: CUDA is not used");
	check_said("left out of the profile: gpu_mem_gb_s");
	p = load("none.json");
	assert_string_equal(p.name, "here");
	assert_true(p.cpu_mem_gb_s > 0 && p.cpu_roundtrip_us > 0);
	assert_true(isnan(p.link_gb_s) && isnan(p.link_latency_us) && isnan(p.gpu_mem_gb_s) && isnan(p.token_us));
	assert_true(isnan(p.gpu_expert_overhead_us) && isnan(p.layer_overhead_us));
	if (on_disk())
		assert_true(p.disk_gb_s > 0 && p.disk_latency_us >= 0 && p.host_expert_bytes > 0);
	assert_non_null(strstr(p.source, "no GPU was measured"));
	gm_profile_free(&p);
}

static void test_with_gpu(void **state)
{
	char arguments[512];
	struct gm_profile p;

	(void)state;
	snprintf(arguments, sizeof(arguments), QUICK "--no-disk -o %s/gpu.json", folder);
	assert_int_equal(probe(NULL, arguments), 0);
	p = load("gpu.json");
	assert_true(p.gpu_mem_gb_s > 0 && p.link_gb_s > 0 && p.link_latency_us >= 0 && p.token_us > 0);
	assert_true(p.gpu_expert_overhead_us > 0 && p.layer_overhead_us > 10 * p.gpu_expert_overhead_us);
	assert_true(isnan(p.disk_gb_s));
	assert_non_null(strstr(p.source, "pageable memory"));
	assert_non_null(strstr(p.source, "no disk was measured (not asked for"));
	gm_profile_free(&p);
}

static void test_host_bytes(void **state)
{
	char arguments[512];
	struct gm_profile p;

	(void)state;
	snprintf(arguments, sizeof(arguments), QUICK "--disk . --host-bytes 14GB --no-gpu -q -o %s/host.json", folder);
	assert_int_equal(probe(NULL, arguments), 0);
	p = load("host.json");
	if (p.disk_gb_s > 0)
		assert_true(p.host_expert_bytes == 14e9);
	gm_profile_free(&p);
	snprintf(arguments, sizeof(arguments), QUICK "--disk . --host-bytes 0 --no-gpu -q -o %s/host.json", folder);
	assert_int_equal(probe(NULL, arguments), 0);
	p = load("host.json");
	assert_true(isnan(p.disk_gb_s) && isnan(p.host_expert_bytes));
	gm_profile_free(&p);
}

static void test_standard_output(void **state)
{
	struct gm_error err = {0};
	struct gm_json *json;

	(void)state;
	assert_int_equal(probe("none", QUICK "--no-disk -q"), 0);
	json = gm_json_parse_file(in_folder("out"), &err);
	assert_non_null(json);
	assert_non_null(gm_json_get(json, "cpu_mem_gb_s"));
	gm_json_free(json);
	check_said("");
}

static void test_failures(void **state)
{
	(void)state;
	assert_int_equal(probe("none", "--expert-bytes 4KiB"), 2);
	check_said("up to 15 sizes above 4 KiB");
	assert_int_equal(probe("none", "--threads 0"), 2);
	assert_int_equal(probe("none", "surplus"), 2);
	assert_int_equal(probe("none", QUICK "--disk /nowhere/at/all"), 1);
	check_said("cannot read: /nowhere/at/all");
	assert_int_equal(probe("none", QUICK "--disk /dev/null"), 0);
	check_said("no disk: ");
	assert_int_equal(probe("/nowhere/libcudart.so", QUICK "--no-disk"), 0);
	check_said("cannot be loaded");
	assert_int_equal(probe(NULL, QUICK "--no-disk --device 7"), 1);
	check_said("choosing the device (--device)");
	assert_int_equal(probe("none", QUICK "--no-disk -o /nowhere/profile.json"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spread),   cmocka_unit_test(test_fit),        cmocka_unit_test(test_without_gpu),
		cmocka_unit_test(test_with_gpu), cmocka_unit_test(test_host_bytes), cmocka_unit_test(test_standard_output),
		cmocka_unit_test(test_failures),
	};

	return cmocka_run_group_tests_name("probe", tests, make_folder, remove_folder);
}
