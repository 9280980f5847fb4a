#include "sim/sweep_output.h"

#include <math.h>

/* Split files begin with the settings, then tell which part, then its counters, then where it comes from. */
static void split_header(struct gm_csv_writer *csv, const char *const *keys, bool extra)
{
	const int first_count = gm_result_first_count(), origin = gm_result_first_csv_only();

	gm_result_csv_header(csv, 0, first_count, false);
	for (; *keys; keys++)
		gm_csv_text(csv, *keys);
	gm_result_csv_header(csv, first_count, origin, false);
	gm_result_csv_header(csv, origin, GM_RESULT_ALL, extra);
}

static void token_header(struct gm_csv_writer *csv)
{
	static const char *const names[] = {
		"trace",        "settings_hash", "token",   "sequence",      "label", "rows",      "accesses",
		"hits",         "late_hits",     "fetches", "substitutions", "drops", "cpu_picks", "substituted_mass",
		"dropped_mass", "time_us",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		gm_csv_text(csv, names[i]);
}

static void header(struct gm_csv_writer *csv, enum gm_sweep_file which, bool extra)
{
	static const char *const layer[] = {"layer", NULL}, *const sequence[] = {"sequence", "id", "label", NULL};

	switch (which) {
	case GM_FILE_LAYERS:
		split_header(csv, layer, extra);
		break;
	case GM_FILE_SEQUENCES:
		split_header(csv, sequence, extra);
		break;
	case GM_FILE_TOKENS:
		token_header(csv);
		break;
	default:
		gm_result_csv_header(csv, 0, GM_RESULT_ALL, extra);
		break;
	}
	gm_csv_end_row(csv);
}

int gm_sweep_output_open(struct gm_sweep_output *output, const char *const path[GM_N_SWEEP_FILE], bool extra,
			 struct gm_error *err)
{
	*output = (struct gm_sweep_output){.extra = extra};
	for (int i = 0; i < GM_N_SWEEP_FILE; i++) {
		if (!path[i])
			continue;
		int status = gm_output_open(&output->file[i], path[i], err);
		if (status < 0) {
			gm_sweep_output_discard(output);
			return status;
		}
		output->csv[i].stream = output->file[i].stream;
		header(&output->csv[i], (enum gm_sweep_file)i, extra);
	}
	return GM_OK;
}

static void split_row(struct gm_csv_writer *csv, const struct gm_result *r, const struct gm_sequence *sequence,
		      uint64_t index, bool extra)
{
	const int first_count = gm_result_first_count(), origin = gm_result_first_csv_only();

	gm_result_csv_row(csv, r, 0, first_count, false);
	gm_csv_uint(csv, index);
	if (sequence) {
		gm_csv_text(csv, sequence->id);
		gm_csv_text(csv, sequence->label);
	}
	gm_result_csv_row(csv, r, first_count, origin, false);
	gm_result_csv_row(csv, r, origin, GM_RESULT_ALL, extra);
	gm_csv_end_row(csv);
}

static void write_layers(struct gm_csv_writer *csv, const struct gm_sweep *sweep, size_t i, struct gm_result *r, bool extra)
{
	const struct gm_point *point = gm_sweep_point(sweep, i);

	for (uint32_t l = 0; l < r->n_layer; l++) {
		struct gm_tally tally = point->layer[l];

		tally.tokens = point->total.tokens; /* every token passes every layer */
		tally.timed_tokens = point->total.timed_tokens;
		gm_result_count(r, &point->plan, &tally);
		split_row(csv, r, NULL, l, extra);
	}
}

static void write_sequences(struct gm_csv_writer *csv, const struct gm_sweep *sweep, size_t i, struct gm_result *r,
			    bool extra)
{
	const struct gm_point *point = gm_sweep_point(sweep, i);

	for (uint32_t s = 0; s < point->n_sequence; s++) {
		if (point->sequence[s].tokens == 0)
			continue; /* all of it is warm-up */
		gm_result_count(r, &point->plan, &point->sequence[s]);
		split_row(csv, r, gm_trace_sequence(sweep->trace, s), s, extra);
	}
}

struct token_rows {
	struct gm_csv_writer *csv;
	const struct gm_trace *trace;
	const struct gm_result *result;
	bool has_times;
};

static void write_token(void *user, const void *data)
{
	const struct token_rows *to = user;
	const struct gm_token_record *t = data;
	struct gm_csv_writer *csv = to->csv;
	const uint32_t counts[] = {t->rows,    t->accesses,      t->hits,  t->late_hits,
				   t->fetches, t->substitutions, t->drops, t->cpu_picks};

	gm_csv_text(csv, to->result->trace);
	gm_csv_text(csv, to->result->settings_hash);
	gm_csv_uint(csv, t->token);
	gm_csv_uint(csv, t->sequence);
	gm_csv_text(csv, gm_trace_sequence(to->trace, t->sequence)->label);
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
		gm_csv_uint(csv, counts[i]);
	gm_csv_double(csv, t->rows ? t->substituted_mass / t->rows : (double)NAN);
	gm_csv_double(csv, t->rows ? t->dropped_mass / t->rows : (double)NAN);
	gm_csv_double(csv, to->has_times ? t->time_us : (double)NAN);
	gm_csv_end_row(csv);
}

static int write_point(struct gm_sweep_output *output, struct gm_sweep *sweep, size_t i, struct gm_error *err)
{
	const struct gm_point *point = gm_sweep_point(sweep, i);
	struct gm_csv_writer *csv = output->csv;
	struct gm_result result;

	gm_sweep_result(sweep, i, &result);
	if (csv[GM_FILE_POINTS].stream) {
		gm_result_csv_row(&csv[GM_FILE_POINTS], &result, 0, GM_RESULT_ALL, output->extra);
		gm_csv_end_row(&csv[GM_FILE_POINTS]);
	}
	if (point->error.code)
		return GM_OK;
	if (csv[GM_FILE_LAYERS].stream)
		write_layers(&csv[GM_FILE_LAYERS], sweep, i, &result, output->extra);
	if (csv[GM_FILE_SEQUENCES].stream)
		write_sequences(&csv[GM_FILE_SEQUENCES], sweep, i, &result, output->extra);
	if (csv[GM_FILE_TOKENS].stream) {
		struct token_rows rows = {&csv[GM_FILE_TOKENS], sweep->trace, &result, point->plan.timed};
		return gm_spool_read(sweep->tokens, (uint32_t)(point - sweep->point), write_token, &rows, err);
	}
	return GM_OK;
}

int gm_sweep_output_write(struct gm_sweep_output *output, struct gm_sweep *sweep, struct gm_error *err)
{
	for (size_t i = 0; i < sweep->n_point; i++)
		GM_TRY(write_point(output, sweep, i, err));
	return GM_OK;
}

int gm_sweep_output_commit(struct gm_sweep_output *output, struct gm_error *err)
{
	int status = GM_OK;

	for (int i = 0; i < GM_N_SWEEP_FILE && status == GM_OK; i++)
		if (output->file[i].stream)
			status = gm_output_commit(&output->file[i], err);
	gm_sweep_output_discard(output);
	return status;
}

void gm_sweep_output_discard(struct gm_sweep_output *output)
{
	for (int i = 0; i < GM_N_SWEEP_FILE; i++)
		gm_output_discard(&output->file[i]);
}
