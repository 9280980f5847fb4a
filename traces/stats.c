#include "traces/stats.h"

#include "traces/select.h"

#include <stdlib.h>
#include <string.h>

/* What is remembered from token to token. */
struct gm_stats_state {
	uint32_t n_word;    /* 64-bit words of a set of experts */
	uint64_t *set;      /* [n_layer][GM_STATS_LAGS][n_word] S of the last tokens, as a ring */
	uint8_t *present;   /* [n_layer][GM_STATS_LAGS] */
	uint32_t *count[2]; /* [n_layer][n_expert] requests in this sequence and in the one before */
	uint32_t *order[2]; /* [n_expert] experts by count, for hot sets */
	uint32_t position;  /* of the token in its sequence */
	uint32_t sequence;
	bool begun, has_previous; /* is there a token; is there a sequence before this one */
};

static void free_state(struct gm_stats_state *state)
{
	if (!state)
		return;
	free(state->set);
	free(state->present);
	for (int i = 0; i < 2; i++) {
		free(state->count[i]);
		free(state->order[i]);
	}
	free(state);
}

void gm_stats_free(struct gm_stats *stats)
{
	free(stats->rows);
	free(stats->requests);
	free(stats->reuse);
	free(stats->reuse_rank);
	free(stats->gate_rank);
	free(stats->overlap[0]);
	free(stats->overlap[1]);
	free_state(stats->state);
	*stats = (struct gm_stats){0};
}

static int allocate(struct gm_stats *s, struct gm_error *err)
{
	const size_t n_layer = s->n_layer, n_expert = s->n_expert;
	struct gm_stats_state *state = s->state = gm_alloc(1, sizeof(*state), err);

	if (!state)
		return GM_ERR_MEMORY;
	state->n_word = (s->n_expert + 63) / 64;
	state->set = gm_alloc(n_layer * GM_STATS_LAGS * state->n_word, sizeof(*state->set), err);
	state->present = gm_alloc(n_layer * GM_STATS_LAGS, 1, err);
	s->rows = gm_alloc(n_layer, sizeof(*s->rows), err);
	s->requests = gm_alloc(n_layer * n_expert, sizeof(*s->requests), err);
	s->reuse = gm_alloc(n_layer * GM_STATS_LAGS, sizeof(*s->reuse), err);
	s->reuse_rank = gm_alloc(n_layer * s->top_k, sizeof(*s->reuse_rank), err);
	s->gate_rank = gm_alloc(n_layer * s->top_k, sizeof(*s->gate_rank), err);
	for (int i = 0; i < 2; i++) {
		state->count[i] = gm_alloc(n_layer * n_expert, sizeof(*state->count[i]), err);
		state->order[i] = gm_alloc(n_expert, sizeof(*state->order[i]), err);
		s->overlap[i] = gm_alloc(n_layer * GM_STATS_HOT, sizeof(*s->overlap[i]), err);
		if (!state->count[i] || !state->order[i] || !s->overlap[i])
			return GM_ERR_MEMORY;
	}
	return state->set && state->present && s->rows && s->requests && s->reuse && s->reuse_rank && s->gate_rank
		       ? GM_OK
		       : GM_ERR_MEMORY;
}

static void add(struct gm_mean *mean, double value)
{
	mean->sum += value;
	mean->n++;
}

static uint64_t *set_at(const struct gm_stats_state *state, uint32_t layer, uint32_t position)
{
	return state->set + ((size_t)layer * GM_STATS_LAGS + position % GM_STATS_LAGS) * state->n_word;
}

static bool holds(const uint64_t *set, uint32_t expert)
{
	return set[expert / 64] >> (expert % 64) & 1;
}

/* --- a row --- */

static void count_reuse(struct gm_stats *s, uint32_t layer, const uint16_t *selected)
{
	const struct gm_stats_state *state = s->state;
	const uint32_t position = state->position;

	for (uint32_t lag = 1; lag <= GM_STATS_LAGS && lag <= position; lag++) {
		/* The ring's place of lag 64 is the one that this token will take. */
		const uint32_t before = position - lag;
		const uint64_t *set = set_at(state, layer, before);
		uint32_t n = 0;

		if (!state->present[(size_t)layer * GM_STATS_LAGS + before % GM_STATS_LAGS])
			continue;
		for (uint32_t r = 0; r < s->top_k; r++) {
			n += holds(set, selected[r]);
			if (lag == 1)
				add(&s->reuse_rank[(size_t)layer * s->top_k + r], holds(set, selected[r]));
		}
		add(&s->reuse[(size_t)layer * GM_STATS_LAGS + lag - 1], (double)n / s->top_k);
	}
}

static void remember(struct gm_stats *s, uint32_t layer, const uint16_t *selected)
{
	uint64_t *set = set_at(s->state, layer, s->state->position);

	memset(set, 0, s->state->n_word * sizeof(*set));
	for (uint32_t r = 0; selected && r < s->top_k; r++)
		set[selected[r] / 64] |= UINT64_C(1) << (selected[r] % 64);
	s->state->present[(size_t)layer * GM_STATS_LAGS + s->state->position % GM_STATS_LAGS] = selected != NULL;
}

static void take_row(struct gm_stats *s, const struct gm_block *block, enum gm_gating gating, uint32_t layer, uint32_t i,
		     double *gate)
{
	const size_t row = (size_t)layer * block->n_token + i;
	const uint16_t *selected = block->head + row * block->n_head;

	if (!block->present[row]) {
		remember(s, layer, NULL);
		return;
	}
	if (block->weight)
		memcpy(gate, block->weight + row * s->top_k, s->top_k * sizeof(*gate));
	else
		gm_gate_weights(gating, s->top_k, block->logit + row * block->n_head, gate);
	s->rows[layer]++;
	for (uint32_t r = 0; r < s->top_k; r++) {
		s->requests[(size_t)layer * s->n_expert + selected[r]]++;
		s->state->count[0][(size_t)layer * s->n_expert + selected[r]]++;
		add(&s->gate_rank[(size_t)layer * s->top_k + r], gate[r]);
	}
	count_reuse(s, layer, selected);
	remember(s, layer, selected);
}

/* --- neighbouring sequences --- */

static int by_count(const void *a, const void *b, void *counts)
{
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	const uint32_t *count = counts;

	if (count[i] != count[j])
		return count[i] > count[j] ? -1 : 1;
	return i < j ? -1 : i > j;
}

/* The share of the `size` experts first in one order that are among the first in the other. */
static double common(struct gm_stats *s, uint32_t size)
{
	uint64_t *set = s->state->set; /* of no use between sequences: cleared before the next begins */
	uint32_t n = 0;

	memset(set, 0, s->state->n_word * sizeof(*set));
	for (uint32_t i = 0; i < size; i++)
		set[s->state->order[0][i] / 64] |= UINT64_C(1) << (s->state->order[0][i] % 64);
	for (uint32_t i = 0; i < size; i++)
		n += holds(set, s->state->order[1][i]);
	return (double)n / size;
}

/* Compares the sequence that has ended with the one before it. A layer that was absent in either tells nothing. */
static void compare_sequences(struct gm_stats *s, bool label_changes)
{
	struct gm_stats_state *state = s->state;

	for (uint32_t layer = 0; layer < s->n_layer; layer++) {
		bool any[2] = {false, false};

		for (int k = 0; k < 2; k++) {
			uint32_t *count = state->count[k] + (size_t)layer * s->n_expert;

			for (uint32_t e = 0; e < s->n_expert; e++) {
				state->order[k][e] = e;
				any[k] = any[k] || count[e] > 0;
			}
			qsort_r(state->order[k], s->n_expert, sizeof(*state->order[k]), by_count, count);
		}
		for (int h = 0; h < GM_STATS_HOT && any[0] && any[1]; h++)
			add(&s->overlap[label_changes][(size_t)layer * GM_STATS_HOT + (size_t)h],
			    common(s, s->hot_size[h]));
	}
}

static void end_sequence(struct gm_stats *s, const struct gm_trace *trace)
{
	struct gm_stats_state *state = s->state;
	const size_t n = (size_t)s->n_layer * s->n_expert;
	uint32_t *swap = state->count[1];

	if (state->has_previous)
		compare_sequences(s, strcmp(gm_trace_sequence(trace, state->sequence)->label,
					    gm_trace_sequence(trace, state->sequence - 1)->label) != 0);
	state->count[1] = state->count[0];
	state->count[0] = swap;
	memset(swap, 0, n * sizeof(*swap));
	memset(state->present, 0, (size_t)s->n_layer * GM_STATS_LAGS);
	state->has_previous = true;
	state->position = 0;
}

/* --- a trace --- */

static void take_token(struct gm_stats *s, const struct gm_trace *trace, const struct gm_block *block, uint32_t i,
		       double *gate)
{
	struct gm_stats_state *state = s->state;

	if (state->begun && block->sequence[i] != state->sequence) {
		end_sequence(s, trace);
		/* A sequence without tokens lies between: there is no neighbour to compare with. */
		state->has_previous = block->sequence[i] == state->sequence + 1;
	}
	state->begun = true;
	state->sequence = block->sequence[i];
	for (uint32_t layer = 0; layer < s->n_layer; layer++)
		take_row(s, block, gm_trace_model(trace)->gating, layer, i, gate);
	state->position++;
}

int gm_stats_collect(struct gm_stats *stats, struct gm_trace *trace, struct gm_error *err)
{
	const struct gm_model *model = gm_trace_model(trace);
	struct gm_block block = {0};
	double *gate = NULL;
	int status;

	*stats = (struct gm_stats){.n_layer = model->n_layer, .n_expert = model->n_expert, .top_k = model->top_k};
	for (int h = 0; h < GM_STATS_HOT; h++) {
		const uint32_t part = 8u >> h, size = (model->n_expert + part / 2) / part;
		stats->hot_size[h] = size > 0 ? size : 1;
	}
	GM_TRY_OUT(allocate(stats, err));
	gate = gm_alloc(model->top_k, sizeof(*gate), err);
	GM_TRY_OUT(gate ? GM_OK : GM_ERR_MEMORY);
	for (uint64_t b = 0; (status = gm_trace_read(trace, b, GM_WANT_HEAD, &block, err)) > 0; b++)
		for (uint32_t i = 0; i < block.n_token; i++)
			take_token(stats, trace, &block, i, gate);
	if (status == GM_OK && stats->state->begun)
		end_sequence(stats, trace);
out:
	gm_block_free(&block);
	free(gate);
	free_state(stats->state);
	stats->state = NULL;
	if (status < 0)
		gm_stats_free(stats);
	return status;
}
