/* One event from its rows to its end; here R10 (access and fetch), R12 (background admission) and R13 (masses). */
#include "tests/reference/reference_private.h"

#include <string.h>

/* R10: records one access: the clock of accesses, the counts, the token. */
static void record_access(struct replay *r, size_t id)
{
	struct expert *x = &r->expert[id];

	if (x->preloaded && x->place == REF_RESIDENT)
		reach(r->coverage, REF_R5_PRELOAD_HIT);
	x->preloaded = 0;
	x->last_access = ++r->access_clock;
	x->count = x->count + 1;
	/* lfu-decay: count <- count * 2^(-delta/h) + 1. */
	if (r->config->evict == REF_LFU_DECAY)
		x->decayed_count = x->decayed_count * ref_decay(r, x) + 1.0;
	x->last_token = r->current_token;
}

/* R10: a miss that is fetched: makes room, is inserted and pinned; without room it is used once and not kept. */
static void fetch_miss(struct replay *r, size_t id, uint32_t e)
{
	struct expert *x = &r->expert[id];
	uint32_t token = r->request_token[e];

	if (x->acc > 0)
		reach(r->coverage, REF_R12_FETCH_KEEPS_ACC);
	if (ref_make_room(r, id, 1, token)) {
		x->place = REF_RESIDENT;
		x->insertion = ++r->insertion_clock;
		r->pinned[id] = 1;
		reach(r->coverage, REF_R10_FETCH_KEPT);
	} else {
		layer_counters(r)->bypasses += counted(r, token);
	}
	r->read_end_us[e] = ref_issue_read(r, id);
	ref_start_copy_now(r, id, e);
	layer_counters(r)->fetches += counted(r, token);
	layer_counters(r)->link_bytes += counted(r, token) * bytes_of(r, id);
	token_result(r, token)->fetches++;
}

/*
 * R10: a late expert that is fetched: no new copy, and no issue (R18): its read, if there was one, was issued when the
 * copy was queued, and its end is the copy's "time queued".
 */
static void fetch_late(struct replay *r, size_t id, uint32_t e)
{
	struct expert *x = &r->expert[id];

	r->read_end_us[e] = x->queued_us;
	if (x->place == REF_QUEUED) {
		x->place = REF_RESIDENT;
		ref_start_copy_now(r, id, e);
		reach(r->coverage, REF_R10_LATE_HIT_QUEUED);
		if (x->queued_us > r->t1_us)
			reach(r->coverage, REF_R18_IN_FLIGHT);
	} else {
		x->place = REF_RESIDENT;
		r->arrival_us[e] = x->arrival_us;
		reach(r->coverage, REF_R10_LATE_HIT_UNDER_WAY);
	}
	r->pinned[id] = 1;
}

static void access_and_fetch(struct replay *r)
{
	struct ref_counters *counters = layer_counters(r);

	/* What the answers of the rows mean for each expert. */
	memset(r->fetched, 0, r->trace->n_expert);
	memset(r->on_cpu, 0, r->trace->n_expert);
	for (uint32_t row = 0; row < r->n_row; row++)
		for (uint32_t i = 0; i < r->trace->top_k; i++) {
			if (row_answer(r, row)[i] == ANSWER_FETCH)
				r->fetched[row_selected(r, row)[i]] = 1;
			if (row_answer(r, row)[i] == ANSWER_CPU)
				r->on_cpu[row_selected(r, row)[i]] = 1;
		}
	/* R11: pinned are the event's hits, its substitutes, and (below) what it has fetched so far. */
	memset(r->pinned, 0, n_id(r));
	for (uint32_t e = 0; e < r->trace->n_expert; e++)
		if (r->judgement[e] == HIT || r->is_substitute[e])
			r->pinned[expert_id(r, r->layer, e)] = 1;

	/* R10: in request order. */
	for (uint32_t n = 0; n < r->n_request; n++) {
		uint32_t e = r->request[n];
		size_t id = expert_id(r, r->layer, e);
		uint32_t token = r->request_token[e];
		struct ref_token *of_token = token_result(r, token);

		record_access(r, id);
		counters->accesses += counted(r, token);
		of_token->accesses++;
		if (r->judgement[e] == HIT) {
			counters->hits += counted(r, token);
			of_token->hits++;
		} else if (r->judgement[e] == LATE && r->fetched[e]) {
			counters->late_hits += counted(r, token);
			of_token->late_hits++;
			fetch_late(r, id, e);
		} else {
			counters->misses += counted(r, token);
			of_token->misses++;
			if (r->judgement[e] == LATE)
				reach(r->coverage, REF_R10_LATE_MISS);
			if (r->fetched[e])
				fetch_miss(r, id, e);
		}
		/* R18: CPU picks issue their reads in request order too. */
		if (r->on_cpu[e])
			r->read_end_us[e] = ref_issue_read(r, id);
	}
}

static void background_admission(struct replay *r)
{
	memset(r->queued_now, 0, r->trace->n_expert);
	if (!r->config->background)
		return;
	/* R12: row by row, in rank order, every SUBSTITUTE pick whose expert was a true miss. */
	for (uint32_t row = 0; row < r->n_row; row++)
		for (uint32_t i = 0; i < r->trace->top_k; i++) {
			uint32_t e = row_selected(r, row)[i];
			size_t id = expert_id(r, r->layer, e);
			struct expert *x = &r->expert[id];
			uint32_t token = r->row_token[row];

			if (row_answer(r, row)[i] != ANSWER_SUBSTITUTE)
				continue;
			if (r->judgement[e] != MISS) {
				reach(r->coverage, REF_R12_LATE);
				continue;
			}
			if (r->fetched[e]) {
				reach(r->coverage, REF_R12_FETCHED);
				continue;
			}
			if (r->queued_now[e]) {
				reach(r->coverage, REF_R12_QUEUED);
				continue;
			}
			x->acc += row_weight(r, row)[i];
			reach(r->coverage, REF_R12_ADD);
			if (x->acc < r->config->beta) {
				reach(r->coverage, REF_R12_BELOW);
				continue;
			}
			if (x->acc <= r->config->beta)
				reach(r->coverage, REF_R12_BETA_EQUAL);
			/* R12: no room: acc is kept. */
			if (!ref_make_room(r, id, 0, token)) {
				x->refused = 1;
				reach(r->coverage, REF_R12_REFUSED);
				continue;
			}
			/* R12: a slot is reserved, the copy queued at T1 (R18: at the end of its read). */
			x->acc = 0;
			x->place = REF_QUEUED;
			x->insertion = ++r->insertion_clock;
			x->queue_number = ++r->queue_clock;
			x->queued_us = ref_issue_read(r, id);
			r->queued_now[e] = 1;
			layer_counters(r)->background_copies += counted(r, token);
			layer_counters(r)->link_bytes += counted(r, token) * bytes_of(r, id);
			reach(r->coverage, REF_R12_QUEUE);
			if (x->refused)
				reach(r->coverage, REF_R12_RETRY);
			x->refused = 0;
			if (r->config->disk)
				reach(r->coverage, REF_R18_BACKGROUND);
		}
}

/* R13 and the counters of the rows and their picks. */
static void count_rows(struct replay *r)
{
	struct ref_counters *counters = layer_counters(r);

	for (uint32_t row = 0; row < r->n_row; row++) {
		uint32_t token = r->row_token[row];
		struct ref_token *of_token = token_result(r, token);
		double substituted_mass = 0;
		double dropped_mass = 0;

		counters->rows += counted(r, token);
		counters->picks += counted(r, token) * r->trace->top_k;
		for (uint32_t i = 0; i < r->trace->top_k; i++) {
			double w = row_weight(r, row)[i];

			switch (row_answer(r, row)[i]) {
			case ANSWER_HIT:
			case ANSWER_FETCH:
				break;
			case ANSWER_SUBSTITUTE:
				counters->substitutions += counted(r, token);
				of_token->substitutions++;
				substituted_mass += w;
				break;
			case ANSWER_DROP:
				counters->drops += counted(r, token);
				of_token->drops++;
				dropped_mass += w;
				break;
			case ANSWER_CPU:
				counters->cpu_picks += counted(r, token);
				of_token->cpu_picks++;
				break;
			}
		}
		if (substituted_mass > 0)
			reach(r->coverage, REF_R13_SUBSTITUTED);
		if (dropped_mass > 0)
			reach(r->coverage, REF_R13_DROPPED);
		of_token->substituted_mass += substituted_mass;
		of_token->dropped_mass += dropped_mass;
		if (counted(r, token)) {
			counters->substituted_mass += substituted_mass;
			counters->dropped_mass += dropped_mass;
			r->result->counters.substituted_mass += substituted_mass;
			r->result->counters.dropped_mass += dropped_mass;
		}
	}
}

static void log_event(const struct replay *r, double end_us)
{
	static const char judgement_letter[] = {'-', 'h', 'l', 'm'};
	static const char answer_letter[] = {' ', 'F', 'S', 'D', 'C'};

	fprintf(r->config->log, "token %u layer %u T %.9g T1 %.9g end %.9g:", r->current_token, r->layer, r->now_us,
		r->t1_us, end_us);
	for (uint32_t row = 0; row < r->n_row; row++) {
		for (uint32_t i = 0; i < r->trace->top_k; i++) {
			uint32_t e = row_selected(r, row)[i];

			fprintf(r->config->log, " %u%c%c", e, judgement_letter[r->judgement[e]],
				answer_letter[row_answer(r, row)[i]]);
		}
		fprintf(r->config->log, " |");
	}
	fprintf(r->config->log, " now");
	for (uint32_t e = 0; e < r->trace->n_expert; e++) {
		enum ref_place place = r->expert[expert_id(r, r->layer, e)].place;

		if (place != REF_ABSENT)
			fprintf(r->config->log, " %u%s", e, place == REF_QUEUED ? "q" : place == REF_UNDER_WAY ? "u" : "");
	}
	fprintf(r->config->log, "\n");
}

void ref_run_event(struct replay *r)
{
	double end_us;

	/* The rows of the event. An event without rows does not exist. */
	r->n_row = 0;
	for (uint32_t i = 0; i < r->pass_length[r->pass]; i++) {
		uint32_t token = r->pass_first[r->pass] + i;

		if (r->trace->present[row_index(r->trace, token, r->layer)])
			r->row_token[r->n_row++] = token;
		else
			reach(r->coverage, REF_ABSENT_ROW);
	}
	if (r->n_row == 0) {
		reach(r->coverage, REF_ABSENT_EVENT);
		return;
	}
	if (r->n_row > 1)
		reach(r->coverage, REF_BATCH_EVENT);
	if (r->n_row < r->pass_length[r->pass])
		reach(r->coverage, REF_ABSENT_ROW_IN_EVENT);

	r->t1_us = r->now_us + layer_value(r->config->dense_us, r->layer);
	ref_link_and_landing(r);   /* R6 */
	ref_classify(r);           /* R7 */
	ref_decide(r);             /* R8 */
	ref_substitute(r);         /* R9 */
	access_and_fetch(r);       /* R10, R11, R14, R18 */
	background_admission(r);   /* R12 */
	count_rows(r);             /* R13 */
	end_us = ref_layer_end(r); /* R15, R16, R19 */
	if (r->config->log)
		log_event(r, end_us);
	r->now_us = end_us;
}
