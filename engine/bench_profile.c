/* What a bench measured as a hardware profile for `sim --hw` (docs/time-model.md). */
#include "engine/bench.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>

/* The point without a miss: computing is all that takes time. */
static const struct gm_bench_point *find_resident(const struct gm_bench *bench)
{
	for (size_t i = 1; i < bench->n_point; i++) {
		const struct gm_bench_point *point = &bench->point[i];

		if (!point->error.code && (point->settings->evict.ops->info.flags & GM_ALL_RESIDENT) && point->n_timed)
			return point;
	}
	return NULL;
}

/* The point with the most copies, all of them waited for. */
static const struct gm_bench_point *find_fetching(const struct gm_bench *bench)
{
	const struct gm_bench_point *most = NULL;

	for (size_t i = 1; i < bench->n_point; i++) {
		const struct gm_bench_point *point = &bench->point[i];

		if (!point->error.code && (point->settings->miss.ops->info.flags & GM_ONLY_FETCHES) &&
		    point->result.fetches && (!most || point->result.fetches > most->result.fetches))
			most = point;
	}
	return most;
}

/* The link's and the disk's own times, since computing goes on beside them; copies at once are all waited for. */
static void add_copies(struct gm_json *json, struct gm_json *source, const struct gm_bench_point *fetching,
		       uint64_t host_bytes)
{
	const struct gm_engine_stats *stats = &fetching->stats;
	double n_fetch = (double)fetching->result.fetches / (double)fetching->result.tokens * (double)fetching->n_timed;

	gm_json_add_number(json, "link_gb_s", 0);
	if (!stats->link_copies) {
		gm_json_add_string(source, "link_latency_us", "measured: waiting for a copy, its bytes included");
		gm_json_add_number(json, "link_latency_us", stats->copy_us / n_fetch);
		return;
	}
	gm_json_add_string(source, "link_latency_us", "measured: a copy, its bytes included");
	gm_json_add_number(json, "link_latency_us", stats->link_busy_us / (double)stats->link_copies);
	if (!stats->n_read)
		return;
	gm_json_add_string(source, "disk_latency_us", "measured: a read, its bytes included");
	gm_json_add_number(json, "disk_latency_us", stats->read_us / (double)stats->n_read);
	gm_json_add_number(json, "disk_gb_s", 0);
	gm_json_add_uint(json, "host_expert_bytes", host_bytes);
}

/* Over all rounds, as the times within a token are. */
static double mean_us(const struct gm_bench *bench, const struct gm_bench_point *point)
{
	double sum = 0;

	for (uint32_t i = 0; i < bench->n_round; i++)
		sum += point->us[i];
	return sum / bench->n_round;
}

/* What computing takes is known from the point without a miss; what a layer takes besides, and a copy, from the one that waits: a processor that slept
 * while it waited is slower afterwards. */
static int fill(struct gm_json *json, const struct gm_bench *bench, const struct gm_bench_options *options,
		struct gm_error *err)
{
	const struct gm_bench_point *resident = find_resident(bench), *fetching = find_fetching(bench);
	struct gm_json *source;
	double n_layer, expert_us, computing_us, waiting_us;

	if (!resident || !fetching)
		return gm_fail(err, GM_ERR_USAGE, "%s: --profile: must be among the policies",
			       resident ? "no policy that fetches and evicts"
					: "no policy that keeps everything resident (--evict nop)");
	n_layer = (double)resident->result.n_layer;
	expert_us = resident->stats.compute_us / (double)resident->n_timed;
	computing_us = fetching->stats.compute_us / (double)fetching->n_timed;
	waiting_us = fetching->stats.copy_us / (double)fetching->n_timed;
	source = gm_json_new_object();
	gm_json_add_string(json, "name", "measured");
	gm_json_add_string(source, "dense_us", "measured: what a token takes beside experts and copies, by layers");
	gm_json_add_number(json, "dense_us", (mean_us(bench, fetching) - computing_us - waiting_us) / n_layer);
	gm_json_add_string(source, "gpu_expert_us", "measured: multiplications with experts, everything resident");
	gm_json_add_number(json, "gpu_expert_us", expert_us / n_layer / (double)resident->result.n_expert_used);
	gm_json_add_number(json, "token_us", 0);
	add_copies(json, source, fetching, options->run.plugin.host_bytes);
	return gm_json_add(json, "source", source) ? GM_OK : gm_fail(err, GM_ERR_MEMORY, "out of memory");
}

int gm_bench_write_profile(const char *path, const struct gm_bench *bench, const struct gm_bench_options *options,
			   struct gm_error *err)
{
	struct gm_json *json = gm_json_new_object();
	struct gm_output output;
	char *text = NULL;
	int status = json ? fill(json, bench, options, err) : gm_fail(err, GM_ERR_MEMORY, "out of memory");

	if (status == GM_OK && !(text = gm_json_print(json, true)))
		status = gm_fail(err, GM_ERR_MEMORY, "out of memory");
	gm_json_free(json);
	if (status == GM_OK)
		status = gm_output_open(&output, path, err);
	if (status == GM_OK) {
		fprintf(output.stream, "%s\n", text);
		status = gm_output_commit(&output, err);
	}
	free(text);
	return status;
}
