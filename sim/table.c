#include "sim/table.h"

#include "base/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- one point --- */

static double percent(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : 0;
}

static double per_token(uint64_t count, const struct gm_result *r)
{
	return r->tokens ? (double)count / (double)r->tokens : 0;
}

static void put_head(FILE *out, const struct gm_sweep *sweep, const struct gm_result *r)
{
	const struct gm_settings *s = sweep->point->settings;
	uint64_t n_token = gm_trace_n_token(sweep->trace);

	fprintf(out, "trace    %s: %s, %" PRIu64 " layers x %" PRIu64 " experts, %" PRIu64 " used a token\n", r->trace,
		r->model && *r->model ? r->model : "unnamed model", r->n_layer, r->n_expert, r->n_expert_used);
	fprintf(out, "counted  %" PRIu64 " tokens", r->tokens);
	if (n_token && r->tokens != n_token)
		fprintf(out, " of %" PRIu64, n_token);
	fprintf(out, " in %" PRIu32 " sequences, prompts %s\n", gm_trace_n_sequence(sweep->trace),
		s->prefill == GM_PREFILL_BATCH ? "in the passes recorded" : "token by token");
	if (s->cpu_layers >= 0)
		fprintf(out, "cache    %s: %.1f %% of all experts resident, the others on the CPU", s->policy,
			100 * r->cache_fraction);
	else if (s->scope == GM_SCOPE_GLOBAL)
		fprintf(out, "cache    %s in one pool: %.1f %% of all expert bytes", s->cache_text,
			100 * r->cache_fraction);
	else if (isnan(r->cache_slots))
		fprintf(out, "cache    %s: %.1f %% of all experts", s->cache_text, 100 * r->cache_fraction);
	else
		fprintf(out, "cache    %.0f of %" PRIu64 " experts a layer (%.1f %%)", r->cache_slots, r->n_expert,
			100 * r->cache_fraction);
	fprintf(out, "%s\n", s->reset_per_sequence ? ", fresh for every sequence" : "");
	fprintf(out, "policy   evict %s, miss %s, admit %s\n", r->evict, r->miss, r->admit);
	fprintf(out, "hardware %s\n\n", r->hw);
}

static void put_counts(FILE *out, const struct gm_result *r)
{
	char bytes[GM_NUMBER_TEXT];

	fprintf(out, "hit rate         %8.2f %%   %" PRIu64 " of %" PRIu64 " expert requests found theirs on the GPU\n",
		percent((double)r->hits, (double)r->accesses), r->hits, r->accesses);
	if (r->late_hits)
		fprintf(out, "late hits        %8.2f %%   were on their way and waited for\n",
			percent((double)r->late_hits, (double)r->accesses));
	fprintf(out, "fetched          %8.2f     experts a token, waited for\n", per_token(r->fetches, r));
	if (r->background_copies)
		fprintf(out, "in background    %8.2f     experts a token, copied beside the work\n",
			per_token(r->background_copies, r));
	if (r->has_bytes)
		fprintf(out, "over the link  %10s     a token\n",
			gm_format_bytes((uint64_t)llround(per_token(r->link_bytes, r)), bytes));
	if (r->substitutions)
		fprintf(out, "substituted      %8.2f %%   of the picks, with %.2f %% of the gate weight (the mass)\n",
			percent((double)r->substitutions, (double)r->picks), 100 * r->substituted_mass);
	if (r->drops)
		fprintf(out, "dropped          %8.2f %%   of the picks, with %.2f %% of the gate weight\n",
			percent((double)r->drops, (double)r->picks), 100 * r->dropped_mass);
	if (r->cpu_picks)
		fprintf(out, "on the CPU       %8.2f %%   of the picks\n", percent((double)r->cpu_picks, (double)r->picks));
	if (r->substitute_fallbacks)
		fprintf(out, "no substitute    %8" PRIu64 "     picks found none and were fetched\n",
			r->substitute_fallbacks);
	if (r->bypasses)
		fprintf(out, "not kept         %8" PRIu64 "     fetched experts were used once\n", r->bypasses);
}

static void put_times(FILE *out, const struct gm_result *r)
{
	const struct {
		const char *name;
		double us;
		const char *help;
	} parts[] = {
		{"dense", r->dense_us, "everything in the layers that is no expert"},
		{"gpu", r->gpu_us, "the GPU computes experts"},
		{"link wait", r->link_wait_us, "the GPU waits for copies"},
		{"disk wait", r->disk_wait_us, "the GPU waits for reads"},
		{"cpu wait", r->cpu_wait_us, "the GPU waits for experts on the CPU"},
		{"token", r->token_us, "output layer and sampling"},
	};

	if (!(r->time_per_token_us > 0)) /* instant, or nothing counted */
		return;
	fprintf(out, "\ntime per token %10.1f us  %.1f tokens/s\n", r->time_per_token_us, r->tokens_per_s);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		fprintf(out, "  %-10s   %10.1f us  %5.1f %%  %s\n", parts[i].name, parts[i].us,
			percent(parts[i].us, r->time_per_token_us), parts[i].help);
}

void gm_table_run(FILE *out, const struct gm_sweep *sweep)
{
	struct gm_result result;

	gm_sweep_result(sweep, 0, &result);
	put_head(out, sweep, &result);
	put_counts(out, &result);
	if (result.has_times)
		put_times(out, &result);
	else
		fprintf(out, "\ntime per token    not known\n");
}

/* --- many points --- */

#define CELL 48

/* A column: how its cell is written, and whether it is shown only where it varies. */
struct view {
	const char *name;
	void (*put)(char *cell, const struct gm_settings *s, const struct gm_result *r);
	bool if_varies, is_text;
};

static void put_cache(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)r;
	snprintf(cell, CELL, "%s", s->cpu_layers >= 0 ? s->policy : s->cache_text);
}

static void put_scope(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	snprintf(cell, CELL, "%s", r->cache_scope);
}

static void put_evict(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	snprintf(cell, CELL, "%.47s", r->evict);
}

static void put_miss(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	snprintf(cell, CELL, "%.47s", r->miss);
}

static void put_admit(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	snprintf(cell, CELL, "%.47s", r->admit);
}

static void put_prefill(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	snprintf(cell, CELL, "%s", r->prefill);
}

static void put_hw(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	snprintf(cell, CELL, "%.47s", r->hw);
}

static void put_warmup(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	snprintf(cell, CELL, "%" PRIu64, r->warmup);
}

static void put_reset(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	snprintf(cell, CELL, "%s", r->reset_per_sequence);
}

static void put_preload(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	snprintf(cell, CELL, "%.47s", r->preload ? r->preload : "none");
}

/* A number of a row that has results; a dash where it is not known. */
static void put_number(char *cell, const struct gm_result *r, const char *format, double value)
	__attribute__((format(printf, 3, 0)));
static void put_number(char *cell, const struct gm_result *r, const char *format, double value)
{
	if (!r->has_counts || isnan(value))
		snprintf(cell, CELL, "-");
	else
		snprintf(cell, CELL, format, value);
}

static void put_hits(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	put_number(cell, r, "%.2f", 100 * r->hit_rate);
}

static void put_mass(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	put_number(cell, r, "%.2f", 100 * (r->substituted_mass + r->dropped_mass));
}

static void put_fetched(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	put_number(cell, r, "%.2f", per_token(r->fetches + r->background_copies, r));
}

static void put_link(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	put_number(cell, r, "%.2f", r->has_bytes ? r->link_bytes_per_token / 1e6 : (double)NAN);
}

static void put_time(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	put_number(cell, r, "%.1f", r->has_times ? r->time_per_token_us : (double)NAN);
}

static void put_speed(char *cell, const struct gm_settings *s, const struct gm_result *r)
{
	(void)s;
	put_number(cell, r, "%.1f", r->has_times ? r->tokens_per_s : (double)NAN);
}

static const struct view views[] = {
	{"cache", put_cache, false, true},
	{"scope", put_scope, true, true},
	{"evict", put_evict, false, true},
	{"miss", put_miss, false, true},
	{"admit", put_admit, true, true},
	{"prefill", put_prefill, true, true},
	{"hw", put_hw, true, true},
	{"warmup", put_warmup, true, true},
	{"reset", put_reset, true, true},
	{"preload", put_preload, true, true},
	{"hits %", put_hits, false, false},
	{"lost mass %", put_mass, false, false},
	{"copies/token", put_fetched, false, false},
	{"MB/token", put_link, false, false},
	{"us/token", put_time, false, false},
	{"tokens/s", put_speed, false, false},
};
#define N_VIEW (sizeof(views) / sizeof(*views))

static void put_line(FILE *out, char (*cells)[CELL], const int *width)
{
	const char *gap = "";

	for (size_t v = 0; v < N_VIEW; v++) {
		if (width[v] == 0)
			continue;
		fprintf(out, "%s%*s", gap, views[v].is_text ? -width[v] : width[v], cells[v]);
		gap = "  ";
	}
	fputc('\n', out);
}

/* Width of each column over the first n rows; 0 for one that is not shown. */
static void measure(char (*cells)[CELL], size_t n, int *width)
{
	for (size_t v = 0; v < N_VIEW; v++) {
		bool varies = false;

		width[v] = (int)strlen(views[v].name);
		for (size_t i = 0; i < n; i++) {
			int length = (int)strlen(cells[i * N_VIEW + v]);
			width[v] = length > width[v] ? length : width[v];
			varies = varies || strcmp(cells[i * N_VIEW + v], cells[v]) != 0;
		}
		if (views[v].if_varies && !varies)
			width[v] = 0;
	}
}

int gm_table_sweep(FILE *out, const struct gm_sweep *sweep, size_t max_row, struct gm_error *err)
{
	const struct gm_model *model = sweep->model;
	size_t n = sweep->n_point < max_row ? sweep->n_point : max_row;
	char(*cells)[CELL] = gm_alloc(n * N_VIEW, CELL, err);
	char names[N_VIEW][CELL];
	int width[N_VIEW];
	struct gm_result result;

	if (!cells)
		return GM_ERR_MEMORY;
	for (size_t i = 0; i < n; i++) {
		gm_sweep_result(sweep, i, &result);
		for (size_t v = 0; v < N_VIEW; v++)
			views[v].put(cells[i * N_VIEW + v], sweep->point[i].settings, &result);
	}
	measure(cells, n, width);
	for (size_t v = 0; v < N_VIEW; v++)
		snprintf(names[v], CELL, "%s", views[v].name);
	fprintf(out, "%s: %s, %u layers x %u experts, %u used", sweep->path, *model->name ? model->name : "unnamed model",
		model->n_layer, model->n_expert, model->top_k);
	if (sweep->trace)
		fprintf(out, ", %" PRIu64 " tokens", gm_trace_n_token(sweep->trace));
	fputc('\n', out);
	put_line(out, names, width);
	for (size_t i = 0; i < n; i++)
		put_line(out, cells + i * N_VIEW, width);
	if (n < sweep->n_point)
		fprintf(out, "... and %zu more points\n", sweep->n_point - n);
	free(cells);
	return GM_OK;
}
