#include "tests/browser/samples.h"

#include "base/csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_POLICY 4
#define N_CACHE 4
#define N_LAYER 6
#define N_EXPERT 32
#define N_USED 4

const char samples_model[] =
	"<b>tiny</b> & \"moe\", \xc3\xa9t\xc3\xa9 \xe6\xa8\xa1\xe5\x9e\x8b\n</script><script>window.broken = 1</script>";

static const struct {
	const char *evict, *miss, *admit;
} policies[N_POLICY] = {
	{"lfu", "fetch", "fetch"},
	{"lfu", "threshold:0.15", "fetch"},
	{"lfu", "threshold:0.15", "background:0.5"},
	{"lru", "first-choice", "background:0.5"},
};

double samples_hit_rate(int policy, int cache)
{
	return 0.3 + 0.125 * cache + 0.0078125 * policy;
}

double samples_mass(int policy, int cache)
{
	return policy == 0 ? 0 : (0.25 - 0.03125 * cache) * policy / 2;
}

double samples_time(int policy, int cache)
{
	return 1000 + (policy == 0 ? 600 : 100.0 / policy) * (4 - cache) / 4;
}

static FILE *open_file(const char *folder, const char *name)
{
	char path[4096];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	out = fopen(path, "w");
	if (!out) {
		perror(path);
		exit(1);
	}
	return out;
}

static void close_file(FILE *out)
{
	if (fclose(out) != 0) {
		perror("fclose");
		exit(1);
	}
}

static void put_header(struct gm_csv_writer *csv, const char *names)
{
	char name[64];

	while (*names) {
		size_t n = strcspn(names, ",");
		snprintf(name, sizeof(name), "%.*s", (int)n, names);
		gm_csv_text(csv, name);
		names += n + (names[n] == ',');
	}
	gm_csv_end_row(csv);
}

#define RESULT_COLUMNS                                                                                                   \
	"trace,model,n_layer,n_expert,n_expert_used,cache_slots,cache_fraction,cache_scope,evict,miss,admit,prefill,hw," \
	"warmup"
#define RESULT_VALUES                                                                                                   \
	"tokens,accesses,hits,misses,hit_rate,substituted_mass,dropped_mass,time_per_token_us,tokens_per_s,link_bytes_" \
	"per_token,"                                                                                                    \
	"time_dense_us,time_gpu_us,time_link_wait_us,time_disk_wait_us,time_cpu_wait_us,time_token_us,trace_hash,"      \
	"settings_hash,"                                                                                                \
	"semantics_version,version,error,perplexity,perplexity_change_pct,perplexity_change_pct_low,perplexity_change_" \
	"pct_high"

static void put_settings(struct gm_csv_writer *csv, int policy, double slots, double fraction)
{
	gm_csv_text(csv, "dir/it's \"<i>a</i>\", trace.gmt");
	gm_csv_text(csv, samples_model);
	gm_csv_uint(csv, N_LAYER);
	gm_csv_uint(csv, N_EXPERT);
	gm_csv_uint(csv, N_USED);
	gm_csv_double(csv, slots);
	gm_csv_double(csv, fraction);
	gm_csv_text(csv, "layer");
	gm_csv_text(csv, policies[policy].evict);
	gm_csv_text(csv, policies[policy].miss);
	gm_csv_text(csv, policies[policy].admit);
	gm_csv_text(csv, "token");
	gm_csv_text(csv, "test-hw");
	gm_csv_uint(csv, 0);
}

static void put_values(struct gm_csv_writer *csv, const char *settings, double hits, double mass, double time)
{
	gm_csv_uint(csv, 1000);
	gm_csv_uint(csv, 24000);
	gm_csv_uint(csv, (uint64_t)lround(24000 * hits));
	gm_csv_uint(csv, 24000 - (uint64_t)lround(24000 * hits));
	gm_csv_double(csv, hits);
	gm_csv_double(csv, mass);
	gm_csv_double(csv, 0);
	gm_csv_double(csv, time);
	gm_csv_double(csv, 1e6 / time);
	gm_csv_double(csv, 1e5 * (1 - hits));
	gm_csv_double(csv, 400);
	gm_csv_double(csv, 200);
	gm_csv_double(csv, time - 1000);
	gm_csv_double(csv, 0);
	gm_csv_double(csv, 0);
	gm_csv_double(csv, 400);
	gm_csv_text(csv, "00112233445566ff");
	gm_csv_text(csv, settings);
	gm_csv_uint(csv, 1);
	gm_csv_text(csv, "0.1.0");
	gm_csv_text(csv, NULL);
	gm_csv_double(csv, 10 + 5 * mass);
	gm_csv_double(csv, 50 * mass);
	gm_csv_double(csv, 50 * mass - 1);
	gm_csv_double(csv, 50 * mass + 1.5);
}

static void settings_hash(int policy, int cache, char out[17])
{
	snprintf(out, 17, "%08x%08x", policy + 1, cache + 1);
}

static void write_results(const char *folder)
{
	FILE *out = open_file(folder, "results.csv");
	struct gm_csv_writer csv = {.stream = out};
	char settings[17];

	put_header(&csv, RESULT_COLUMNS "," RESULT_VALUES);
	for (int p = 0; p < N_POLICY; p++)
		for (int c = 0; c < N_CACHE; c++) {
			settings_hash(p, c, settings);
			put_settings(&csv, p, 4 + 4 * c, (4 + 4 * c) / (double)N_EXPERT);
			put_values(&csv, settings, samples_hit_rate(p, c), samples_mass(p, c), samples_time(p, c));
			gm_csv_end_row(&csv);
		}
	close_file(out);
}

static void write_layers(const char *folder)
{
	FILE *out = open_file(folder, "layers.csv");
	struct gm_csv_writer csv = {.stream = out};
	char settings[17];

	put_header(&csv, RESULT_COLUMNS ",layer," RESULT_VALUES);
	for (int p = 0; p < N_POLICY; p++)
		for (int c = 0; c < N_CACHE; c++)
			for (int l = 0; l < N_LAYER; l++) {
				settings_hash(p, c, settings);
				put_settings(&csv, p, 4 + 4 * c, (4 + 4 * c) / (double)N_EXPERT);
				gm_csv_uint(&csv, (uint64_t)l);
				put_values(&csv, settings, samples_hit_rate(p, c) + 0.01 * l, samples_mass(p, c),
					   samples_time(p, c) / N_LAYER);
				gm_csv_end_row(&csv);
			}
	close_file(out);
}

static void write_tokens(const char *folder)
{
	static const char *const labels[] = {"prose <1>", "code, \"C\"", "math\n\xcf\x80"};
	FILE *out = open_file(folder, "tokens.csv");
	struct gm_csv_writer csv = {.stream = out};
	char settings[17];

	put_header(&csv, "trace,settings_hash,token,sequence,label,rows,accesses,hits,late_hits,fetches,substitutions,"
			 "drops,cpu_picks,"
			 "substituted_mass,dropped_mass,time_us");
	for (int p = 0; p < N_POLICY; p++)
		for (int token = 0; token < 6 * 100; token++) {
			const int sequence = token / 100, since = token % 100;

			settings_hash(p, 1, settings);
			gm_csv_text(&csv, "dir/it's \"<i>a</i>\", trace.gmt");
			gm_csv_text(&csv, settings);
			gm_csv_uint(&csv, (uint64_t)token);
			gm_csv_uint(&csv, (uint64_t)sequence);
			gm_csv_text(&csv, labels[sequence / 2]);
			gm_csv_uint(&csv, N_LAYER);
			gm_csv_uint(&csv, N_LAYER * N_USED);
			gm_csv_uint(&csv, since < 20 ? 8 : 16);
			for (int i = 0; i < 5; i++)
				gm_csv_uint(&csv, 0);
			gm_csv_double(&csv, since < 20 ? 0.5 : 0.25);
			gm_csv_double(&csv, 0);
			gm_csv_double(&csv, 1000 + (since < 20 ? 200 : 0));
			gm_csv_end_row(&csv);
		}
	close_file(out);
}

static void put_stat(struct gm_csv_writer *csv, int layer, const char *name, int index, double value)
{
	gm_csv_text(csv, "a <trace>.gmt");
	gm_csv_text(csv, "00112233445566ff");
	gm_csv_uint(csv, (uint64_t)layer);
	gm_csv_text(csv, name);
	gm_csv_uint(csv, (uint64_t)index);
	gm_csv_double(csv, value);
	gm_csv_end_row(csv);
}

static void write_stats(const char *folder)
{
	FILE *out = open_file(folder, "stats.csv");
	struct gm_csv_writer csv = {.stream = out};

	put_header(&csv, "trace,trace_hash,layer,statistic,index,value");
	for (int l = 0; l < N_LAYER; l++) {
		put_stat(&csv, l, "rows", 0, 1000);
		for (int e = 0; e < N_EXPERT; e++)
			put_stat(&csv, l, "popularity", e, e < 8 ? 0.25 : 1.0 / 12);
		for (int lag = 1; lag <= 64; lag++)
			put_stat(&csv, l, "reuse", lag, 0.125 + 0.05 * l / lag);
		for (int r = 1; r <= N_USED; r++) {
			put_stat(&csv, l, "reuse_rank", r, 0.5 - 0.1 * r);
			put_stat(&csv, l, "gate_rank", r, 0.5 - 0.1 * r);
		}
		put_stat(&csv, l, "overlap_same", 8, 0.5 + 0.05 * l);
		put_stat(&csv, l, "overlap_change", 8, 0.25 + 0.01 * l);
	}
	close_file(out);
}

void samples_write(const char *folder)
{
	write_results(folder);
	write_layers(folder);
	write_tokens(folder);
	write_stats(folder);
}

void samples_write_many(const char *path, int n)
{
	FILE *out = fopen(path, "w");
	struct gm_csv_writer csv = {.stream = out};
	char settings[17];

	if (!out) {
		perror(path);
		exit(1);
	}
	put_header(&csv, RESULT_COLUMNS "," RESULT_VALUES);
	srand(7);
	for (int i = 0; i < n; i++) {
		const double share = (1 + i % 50) / 64.0, noise = rand() % 1000 / 10000.0;

		snprintf(settings, sizeof(settings), "%016x", i);
		put_settings(&csv, i / 50 % N_POLICY, 2 * (1 + i % 50), share);
		put_values(&csv, settings, fmin(0.99, share + noise), noise * (1 - share),
			   1000 + 500 * (1 - share) + 1000 * noise);
		gm_csv_end_row(&csv);
	}
	close_file(out);
}
