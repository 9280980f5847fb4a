#include "emulate/override.h"

#define NO_RANK UINT16_MAX

bool gm_override_is_needed(const struct gm_decision *decision, uint32_t top_k)
{
	for (uint32_t r = 0; r < top_k; r++)
		if (decision[r].action == GM_SUBSTITUTE || decision[r].action == GM_DROP)
			return true;
	return false;
}

static uint16_t rank_of(const struct gm_decision *decision, uint32_t top_k, int32_t expert)
{
	for (uint32_t r = 0; r < top_k; r++)
		if (decision[r].expert == expert)
			return (uint16_t)r;
	return NO_RANK;
}

static bool has_slot(const uint16_t *rank, uint32_t top_k, uint16_t wanted)
{
	for (uint32_t i = 0; i < top_k; i++)
		if (rank[i] == wanted)
			return true;
	return false;
}

/* Slots whose expert no decision is about (a tie that the model broke otherwise) take the decisions that have no slot, in rank order. */
static void fill_gaps(uint32_t top_k, uint16_t *rank)
{
	uint16_t next = 0;

	for (uint32_t i = 0; i < top_k; i++) {
		if (rank[i] != NO_RANK)
			continue;
		while (has_slot(rank, top_k, next))
			next++;
		rank[i] = next;
	}
}

void gm_override_experts(const struct gm_decision *decision, uint32_t top_k, int32_t *expert, uint16_t *rank)
{
	bool gaps = false;

	for (uint32_t i = 0; i < top_k; i++) {
		rank[i] = rank_of(decision, top_k, expert[i]);
		gaps |= rank[i] == NO_RANK;
	}
	if (gaps)
		fill_gaps(top_k, rank);
	for (uint32_t i = 0; i < top_k; i++) {
		const struct gm_decision *d = &decision[rank[i]];

		expert[i] = d->action == GM_SUBSTITUTE ? d->substitute : d->expert;
	}
}

void gm_override_weights(const struct gm_override *override, const struct gm_decision *decision, uint32_t top_k,
			 const uint16_t *rank, const float *missed, float none, float *weight)
{
	for (uint32_t i = 0; i < top_k; i++) {
		uint8_t action = decision[rank[i]].action;

		if (action == GM_SUBSTITUTE && override->substitute == GM_SUBSTITUTE_MISSED)
			weight[i] = missed[rank[i]];
		else if (action == GM_DROP && override->drop == GM_DROP_RENORMALISE)
			weight[i] = none;
	}
}

void gm_override_gates(const struct gm_decision *decision, uint32_t top_k, const uint16_t *rank, float *gate)
{
	for (uint32_t i = 0; i < top_k; i++)
		if (decision[rank[i]].action == GM_DROP)
			gate[i] = 0;
}
