#include "emulate/account.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void gm_score_add(struct gm_score *to, const struct gm_score *from)
{
	to->n += from->n;
	to->nll += from->nll;
	to->baseline_nll += from->baseline_nll;
}

int gm_account_init(struct gm_account *account, uint32_t n_layer, uint32_t n_sequence, uint64_t warmup,
		    struct gm_spool *spool, uint32_t writer, struct gm_error *err)
{
	*account = (struct gm_account){
		.n_layer = n_layer,
		.n_sequence = n_sequence,
		.warmup = warmup,
		.layer = gm_alloc(n_layer, sizeof(*account->layer), err),
		.sequence = gm_alloc(n_sequence, sizeof(*account->sequence), err),
		.score = gm_alloc(n_sequence, sizeof(*account->score), err),
		.spool = spool,
		.writer = writer,
		.record = spool ? gm_alloc(1, gm_account_record_bytes(n_layer), err) : NULL,
	};
	return account->layer && account->sequence && account->score && (!spool || account->record) ? GM_OK : GM_ERR_MEMORY;
}

void gm_account_free(struct gm_account *account)
{
	free(account->layer);
	free(account->sequence);
	free(account->score);
	free(account->record);
	memset(account, 0, sizeof(*account));
}

static void put_record(struct gm_account *account, const struct gm_account_pass *pass, uint32_t i)
{
	static const struct gm_counters nothing;
	const struct gm_counters *c = pass->row ? &pass->row[i] : &nothing;
	struct gm_account_token *record = account->record;

	memset(record, 0, gm_account_record_bytes(account->n_layer));
	record->token = pass->first_token + i;
	record->sequence = pass->sequence;
	record->position = pass->position + i;
	record->id = pass->token[i];
	record->logprob = pass->logprob[i];
	record->baseline = pass->baseline[i];
	record->rows = (uint32_t)c->rows;
	record->accesses = (uint32_t)c->accesses;
	record->hits = (uint32_t)c->hits;
	record->late_hits = (uint32_t)c->late_hits;
	record->fetches = (uint32_t)c->fetches;
	record->substitutions = (uint32_t)c->substitutions;
	record->drops = (uint32_t)c->drops;
	record->cpu_picks = (uint32_t)c->cpu_picks;
	record->substituted_mass = c->substituted_mass;
	record->dropped_mass = c->dropped_mass;
	if (pass->mass)
		memcpy(record->mass, pass->mass + (size_t)i * account->n_layer, account->n_layer * sizeof(double));
	gm_spool_put(account->spool, account->writer, record);
}

void gm_account_add_pass(struct gm_account *account, const struct gm_account_pass *pass)
{
	struct gm_tally *sequence = &account->sequence[pass->sequence];
	struct gm_score *score = &account->score[pass->sequence];

	for (uint32_t i = 0; i < pass->n; i++) {
		if (pass->first_token + i < account->warmup)
			continue;
		account->tokens++;
		sequence->tokens++;
		if (pass->row)
			gm_counters_add(&sequence->count, &pass->row[i]);
		if (!isnan(pass->logprob[i])) {
			score->n++;
			score->nll -= (double)pass->logprob[i];
			score->baseline_nll -= (double)pass->baseline[i];
		}
		if (account->spool)
			put_record(account, pass, i);
	}
}

void gm_account_total(const struct gm_account *account, struct gm_tally *total, struct gm_score *score)
{
	memset(total, 0, sizeof(*total));
	memset(score, 0, sizeof(*score));
	for (uint32_t l = 0; l < account->n_layer; l++)
		gm_tally_add(total, &account->layer[l]);
	for (uint32_t s = 0; s < account->n_sequence; s++)
		gm_score_add(score, &account->score[s]);
	total->tokens = total->timed_tokens = account->tokens;
}
