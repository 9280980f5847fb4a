#include "emulate/output.h"

#include "base/version.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a row tells beside the columns of a sweep. */
struct row {
	const struct gm_emulation *emulation;
	const struct gm_emulate_point *point;
	struct gm_result *result;
	struct gm_csv_writer *csv;
};

/* --- a point's settings --- */

void gm_emulate_result(const struct gm_emulation *e, const char *source, size_t i, struct gm_result *r)
{
	const struct gm_emulate_point *point = &e->point[i];
	const struct gm_model *model = gm_hook_model(e->hook);

	if (point->settings) {
		gm_result_begin(r, source, model, point->settings);
		if (point->plan.hash[0])
			gm_result_plan(r, &point->plan);
	} else {
		*r = (struct gm_result){
			.trace = source,
			.model = model->name,
			.n_layer = model->n_layer,
			.n_expert = model->n_expert,
			.n_expert_used = model->top_k,
			.cache_slots = (double)NAN,
			.cache_fraction = (double)NAN,
			.miss = "none",
			.warmup = point->account.warmup,
			.semantics_version = GM_SEMANTICS_VERSION,
			.version = GM_VERSION,
		};
	}
	memcpy(r->trace_hash, e->corpus->hash, sizeof(r->trace_hash));
	memcpy(r->settings_hash, point->hash, sizeof(r->settings_hash));
	if (point->error.code)
		snprintf(r->error, sizeof(r->error), "%s", point->error.text);
}

static double ratio(double part, uint64_t whole)
{
	return whole ? part / (double)whole : (double)NAN;
}

/* --- columns beside a sweep's --- */

static void weight_header(struct gm_csv_writer *csv)
{
	gm_csv_text(csv, "substitute_weight");
	gm_csv_text(csv, "drop_weight");
}

static void put_weights(struct gm_csv_writer *csv, const struct gm_emulate_point *point)
{
	const struct gm_override *o = &point->override;

	gm_csv_text(csv, !point->substitutes ? NULL : o->substitute == GM_SUBSTITUTE_OWN ? "own" : "missed");
	gm_csv_text(csv, !point->drops ? NULL : o->drop == GM_DROP_KEEP ? "keep" : "renormalise");
}

static void score_header(struct gm_csv_writer *csv)
{
	gm_csv_text(csv, "n_scored");
	gm_csv_text(csv, "nll");
	gm_csv_text(csv, "perplexity");
	gm_csv_text(csv, "perplexity_change_pct");
}

static double change_pct(const struct gm_score *score)
{
	return 100 * expm1(ratio(score->nll - score->baseline_nll, score->n));
}

static void put_score(struct gm_csv_writer *csv, const struct gm_score *score)
{
	double nll = ratio(score->nll, score->n);

	gm_csv_uint(csv, score->n);
	gm_csv_double(csv, nll);
	gm_csv_double(csv, exp(nll));
	gm_csv_double(csv, change_pct(score));
}

static void generation_header(struct gm_csv_writer *csv)
{
	gm_csv_text(csv, "n_generated");
	gm_csv_text(csv, "agreement");
	gm_csv_text(csv, "n_same");
	gm_csv_text(csv, "n_answer");
	gm_csv_text(csv, "n_match");
}

static void put_nothing(struct gm_csv_writer *csv, int n)
{
	while (n-- > 0)
		gm_csv_text(csv, NULL);
}

/* --- continuations --- */

static int put_generation(const struct row *row, const struct gm_emulate_point *twin, struct gm_error *err)
{
	const struct gm_emulation *e = row->emulation;
	uint64_t n = 0, n_agree = 0, n_compared = 0, n_same = 0, n_answer = 0, n_match = 0;

	for (uint32_t s = 0; s < e->corpus->n_sequence; s++) {
		const struct gm_continuation *c = &twin->continuation[s];
		const char *answer = e->corpus->sequence[s].answer;

		n += c->n;
		n_agree += c->n_agree;
		n_compared += c->n_compared;
		n_same += c->first_difference == UINT32_MAX;
		if (!answer)
			continue;
		char *text = gm_continuation_text(c, e->hook, err);
		if (!text)
			return GM_ERR_MEMORY;
		n_answer++;
		n_match += gm_continuation_matches(text, answer);
		free(text);
	}
	gm_csv_uint(row->csv, n);
	gm_csv_double(row->csv, ratio((double)n_agree, n_compared));
	gm_csv_uint(row->csv, n_same);
	gm_csv_uint(row->csv, n_answer);
	gm_csv_uint(row->csv, n_match);
	return GM_OK;
}

static int write_continuations(const struct row *row, const struct gm_emulate_point *twin, struct gm_error *err)
{
	const struct gm_emulation *e = row->emulation;
	struct gm_csv_writer *csv = row->csv;

	for (uint32_t s = 0; s < e->corpus->n_sequence; s++) {
		const struct gm_corpus_sequence *sequence = &e->corpus->sequence[s];
		const struct gm_continuation *c = &twin->continuation[s];
		char *text = gm_continuation_text(c, e->hook, err);

		if (!text)
			return GM_ERR_MEMORY;
		gm_csv_text(csv, row->result->trace);
		gm_csv_text(csv, row->result->settings_hash);
		gm_csv_uint(csv, s);
		gm_csv_text(csv, sequence->id);
		gm_csv_text(csv, sequence->label);
		gm_csv_uint(csv, c->n);
		gm_csv_text(csv, c->ended ? "true" : "false");
		gm_csv_double(csv, ratio(c->n_agree, c->n_compared));
		if (c->first_difference == UINT32_MAX)
			gm_csv_text(csv, NULL);
		else
			gm_csv_uint(csv, c->first_difference);
		gm_csv_text(csv, sequence->answer);
		gm_csv_text(csv, !sequence->answer                                 ? NULL
				 : gm_continuation_matches(text, sequence->answer) ? "true"
										   : "false");
		gm_csv_text(csv, text);
		gm_csv_end_row(csv);
		free(text);
	}
	return GM_OK;
}

static void put_names(struct gm_csv_writer *csv, const char *const *name)
{
	for (; *name; name++)
		gm_csv_text(csv, *name);
}

/* --- headers --- */

static void token_header(struct gm_csv_writer *csv, uint32_t n_layer)
{
	static const char *const names[] = {
		"trace",         "settings_hash", "token",     "sequence",         "label",        "position",  "token_id",
		"nll",           "baseline_nll",  "rows",      "accesses",         "hits",         "late_hits", "fetches",
		"substitutions", "drops",         "cpu_picks", "substituted_mass", "dropped_mass", NULL,
	};
	char name[32];

	put_names(csv, names);
	for (uint32_t l = 0; l < n_layer; l++) {
		snprintf(name, sizeof(name), "mass_%u", l);
		gm_csv_text(csv, name);
	}
}

static void split_header(struct gm_csv_writer *csv, const char *const *keys, bool scores)
{
	const int first_count = gm_result_first_count(), origin = gm_result_first_csv_only();

	gm_result_csv_header(csv, 0, first_count, false);
	put_names(csv, keys);
	gm_result_csv_header(csv, first_count, origin, false);
	gm_result_csv_header(csv, origin, GM_RESULT_ALL, false);
	weight_header(csv);
	if (scores)
		score_header(csv);
}

static void write_headers(struct gm_emulate_output *output, const struct gm_emulation *e)
{
	static const char *const layer[] = {"layer", NULL}, *const sequence[] = {"sequence", "id", "label", NULL},
				 *const label[] = {"label", NULL},
				 *const continuation[] = {
					 "trace", "settings_hash", "sequence",         "id",     "label", "n_generated",
					 "ended", "agreement",     "first_difference", "answer", "match", "text",
					 NULL};
	struct gm_csv_writer *csv = output->csv;

	if (csv[GM_EMULATE_POINTS].stream) {
		gm_result_csv_header(&csv[GM_EMULATE_POINTS], 0, GM_RESULT_ALL, false);
		weight_header(&csv[GM_EMULATE_POINTS]);
		score_header(&csv[GM_EMULATE_POINTS]);
		if (e->options->n_generate)
			generation_header(&csv[GM_EMULATE_POINTS]);
	}
	if (csv[GM_EMULATE_LAYERS].stream)
		split_header(&csv[GM_EMULATE_LAYERS], layer, false);
	if (csv[GM_EMULATE_SEQUENCES].stream)
		split_header(&csv[GM_EMULATE_SEQUENCES], sequence, true);
	if (csv[GM_EMULATE_LABELS].stream)
		split_header(&csv[GM_EMULATE_LABELS], label, true);
	if (csv[GM_EMULATE_TOKENS].stream)
		token_header(&csv[GM_EMULATE_TOKENS], gm_hook_model(e->hook)->n_layer);
	if (csv[GM_EMULATE_CONTINUATIONS].stream)
		put_names(&csv[GM_EMULATE_CONTINUATIONS], continuation);
	for (int i = 0; i < GM_N_EMULATE_FILE; i++)
		if (csv[i].stream)
			gm_csv_end_row(&csv[i]);
}

/* --- rows --- */

/* A baseline has no cache, so nothing was counted. */
static void count(struct gm_result *r, const struct gm_emulate_point *point, const struct gm_tally *tally)
{
	if (point->settings)
		gm_result_count(r, &point->plan, tally);
}

static int write_point(const struct row *row, const struct gm_emulate_point *twin, struct gm_error *err)
{
	struct gm_csv_writer *csv = row->csv;
	bool generates = row->emulation->options->n_generate > 0;
	struct gm_tally total;
	struct gm_score score;

	if (!row->point->error.code) {
		gm_account_total(&twin->account, &total, &score);
		count(row->result, row->point, &total);
	}
	gm_result_csv_row(csv, row->result, 0, GM_RESULT_ALL, false);
	put_weights(csv, row->point);
	if (row->point->error.code) {
		put_nothing(csv, generates ? 9 : 4);
	} else {
		put_score(csv, &score);
		if (generates)
			GM_TRY(put_generation(row, twin, err));
	}
	gm_csv_end_row(csv);
	return GM_OK;
}

static void begin_split(const struct row *row)
{
	gm_result_csv_row(row->csv, row->result, 0, gm_result_first_count(), false);
}

static void end_split(const struct row *row, const struct gm_score *score)
{
	const int first_count = gm_result_first_count(), origin = gm_result_first_csv_only();

	gm_result_csv_row(row->csv, row->result, first_count, origin, false);
	gm_result_csv_row(row->csv, row->result, origin, GM_RESULT_ALL, false);
	put_weights(row->csv, row->point);
	if (score)
		put_score(row->csv, score);
	gm_csv_end_row(row->csv);
}

static void write_layers(const struct row *row, const struct gm_account *account)
{
	if (!row->point->settings)
		return;
	for (uint32_t l = 0; l < account->n_layer; l++) {
		struct gm_tally tally = account->layer[l];

		tally.tokens = tally.timed_tokens = account->tokens;
		count(row->result, row->point, &tally);
		begin_split(row);
		gm_csv_uint(row->csv, l);
		end_split(row, NULL);
	}
}

static void write_sequences(const struct row *row, const struct gm_account *account)
{
	for (uint32_t s = 0; s < account->n_sequence; s++) {
		const struct gm_corpus_sequence *sequence = &row->emulation->corpus->sequence[s];

		if (account->sequence[s].tokens == 0)
			continue; /* all of it is warm-up */
		count(row->result, row->point, &account->sequence[s]);
		begin_split(row);
		gm_csv_uint(row->csv, s);
		gm_csv_text(row->csv, sequence->id);
		gm_csv_text(row->csv, sequence->label);
		end_split(row, &account->score[s]);
	}
}

/* Sequences of one label together, labels in order of first appearance. */
static void write_labels(const struct row *row, const struct gm_account *account)
{
	const struct gm_corpus_sequence *sequence = row->emulation->corpus->sequence;

	for (uint32_t first = 0; first < account->n_sequence; first++) {
		struct gm_tally tally = {0};
		struct gm_score score = {0};
		uint32_t s = 0;

		while (strcmp(sequence[s].label, sequence[first].label) != 0)
			s++;
		if (s < first)
			continue; /* told already */
		for (; s < account->n_sequence; s++) {
			if (strcmp(sequence[s].label, sequence[first].label) != 0)
				continue;
			gm_tally_add(&tally, &account->sequence[s]);
			gm_score_add(&score, &account->score[s]);
		}
		if (tally.tokens == 0)
			continue;
		count(row->result, row->point, &tally);
		begin_split(row);
		gm_csv_text(row->csv, sequence[first].label);
		end_split(row, &score);
	}
}

static void write_token(void *user, const void *data)
{
	const struct row *row = user;
	const struct gm_account_token *t = data;
	const uint32_t counts[] = {t->rows,    t->accesses,      t->hits,  t->late_hits,
				   t->fetches, t->substitutions, t->drops, t->cpu_picks};
	const int n_count = sizeof(counts) / sizeof(*counts);
	const uint32_t n_layer = (uint32_t)row->result->n_layer;
	struct gm_csv_writer *csv = row->csv;

	gm_csv_text(csv, row->result->trace);
	gm_csv_text(csv, row->result->settings_hash);
	gm_csv_uint(csv, t->token);
	gm_csv_uint(csv, t->sequence);
	gm_csv_text(csv, row->emulation->corpus->sequence[t->sequence].label);
	gm_csv_uint(csv, t->position);
	gm_csv_uint(csv, (uint64_t)t->id);
	gm_csv_double(csv, -(double)t->logprob);
	gm_csv_double(csv, -(double)t->baseline);
	if (!row->point->settings) {
		put_nothing(csv, n_count + 2 + (int)n_layer);
	} else {
		for (int i = 0; i < n_count; i++)
			gm_csv_uint(csv, counts[i]);
		gm_csv_double(csv, ratio(t->substituted_mass, t->rows));
		gm_csv_double(csv, ratio(t->dropped_mass, t->rows));
		for (uint32_t l = 0; l < n_layer; l++)
			gm_csv_double(csv, t->mass[l]);
	}
	gm_csv_end_row(csv);
}

static int write_rows(struct gm_emulate_output *output, const struct gm_emulation *e, size_t i, struct gm_error *err)
{
	const struct gm_emulate_point *twin = gm_emulation_point(e, i);
	struct gm_csv_writer *csv = output->csv;
	struct gm_result result;
	struct row row = {e, &e->point[i], &result, NULL};

	gm_emulate_result(e, output->source, i, &result);
	row.csv = &csv[GM_EMULATE_POINTS];
	if (row.csv->stream)
		GM_TRY(write_point(&row, twin, err));
	if (row.point->error.code)
		return GM_OK;
	row.csv = &csv[GM_EMULATE_LAYERS];
	if (row.csv->stream)
		write_layers(&row, &twin->account);
	row.csv = &csv[GM_EMULATE_SEQUENCES];
	if (row.csv->stream)
		write_sequences(&row, &twin->account);
	row.csv = &csv[GM_EMULATE_LABELS];
	if (row.csv->stream)
		write_labels(&row, &twin->account);
	row.csv = &csv[GM_EMULATE_CONTINUATIONS];
	if (row.csv->stream)
		GM_TRY(write_continuations(&row, twin, err));
	row.csv = &csv[GM_EMULATE_TOKENS];
	return row.csv->stream ? gm_spool_read(e->tokens, (uint32_t)(twin - e->point), write_token, &row, err) : GM_OK;
}

int gm_emulate_output_write(struct gm_emulate_output *output, const struct gm_emulation *e, struct gm_error *err)
{
	write_headers(output, e);
	for (size_t i = 0; i < e->n_point; i++)
		GM_TRY(write_rows(output, e, i, err));
	return GM_OK;
}

/* --- files --- */

int gm_emulate_output_open(struct gm_emulate_output *output, const char *const path[GM_N_EMULATE_FILE],
			   struct gm_error *err)
{
	memset(output->file, 0, sizeof(output->file));
	memset(output->csv, 0, sizeof(output->csv));
	for (int i = 0; i < GM_N_EMULATE_FILE; i++) {
		if (!path[i])
			continue;
		int status = gm_output_open(&output->file[i], path[i], err);
		if (status < 0) {
			gm_emulate_output_discard(output);
			return status;
		}
		output->csv[i].stream = output->file[i].stream;
	}
	return GM_OK;
}

int gm_emulate_output_commit(struct gm_emulate_output *output, struct gm_error *err)
{
	int status = GM_OK;

	for (int i = 0; i < GM_N_EMULATE_FILE && status == GM_OK; i++)
		if (output->file[i].stream)
			status = gm_output_commit(&output->file[i], err);
	gm_emulate_output_discard(output);
	return status;
}

void gm_emulate_output_discard(struct gm_emulate_output *output)
{
	for (int i = 0; i < GM_N_EMULATE_FILE; i++)
		gm_output_discard(&output->file[i]);
}
