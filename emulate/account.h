/* What a policy came to: counters and log-likelihood, in all, by layer, by sequence and by token. */
#ifndef GM_EMULATE_ACCOUNT_H
#define GM_EMULATE_ACCOUNT_H

#include "sim/replay.h"
#include "sim/spool.h"

/* Negative log-likelihood over the tokens that have one: all but the first of each sequence. */
struct gm_score {
	uint64_t n;
	double nll;          /* sum, nats */
	double baseline_nll; /* the same tokens' without a policy */
};
void gm_score_add(struct gm_score *to, const struct gm_score *from);

/* One token: a record of the spool, followed by its gate mass that was substituted or dropped, double [n_layer]. */
struct gm_account_token {
	uint64_t token; /* number in the run, generated ones included */
	uint32_t sequence, position;
	int32_t id;
	float logprob, baseline; /* NaN where there is none */
	uint32_t rows, accesses, hits, late_hits, fetches, substitutions, drops, cpu_picks;
	double substituted_mass, dropped_mass; /* sums over the rows */
	double mass[];
};

struct gm_account {
	uint32_t n_layer, n_sequence;
	uint64_t warmup;           /* tokens left out of everything */
	struct gm_tally *layer;    /* [n_layer] tokens in none */
	struct gm_tally *sequence; /* [n_sequence] */
	struct gm_score *score;    /* [n_sequence] */
	uint64_t tokens;
	struct gm_spool *spool; /* NULL: no records by token */
	uint32_t writer;
	struct gm_account_token *record;
};

static inline size_t gm_account_record_bytes(uint32_t n_layer)
{
	return sizeof(struct gm_account_token) + n_layer * sizeof(double);
}

int gm_account_init(struct gm_account *account, uint32_t n_layer, uint32_t n_sequence, uint64_t warmup,
		    struct gm_spool *spool, uint32_t writer, struct gm_error *err);
void gm_account_free(struct gm_account *account);

/* A pass as it went. Arrays are by token of the pass; logprob and baseline hold NaN where a token has none. */
struct gm_account_pass {
	uint32_t sequence, position; /* of the first token */
	uint64_t first_token;        /* its number in the run */
	uint32_t n;
	const int32_t *token;
	const float *logprob, *baseline;
	const struct gm_counters *row; /* NULL: no policy */
	const double *mass;            /* [n][n_layer]; NULL: no policy */
};
void gm_account_add_pass(struct gm_account *account, const struct gm_account_pass *pass);

/* Everything together. Sums run over the layers in their order, so that they equal the replay's to the last bit. */
void gm_account_total(const struct gm_account *account, struct gm_tally *total, struct gm_score *score);

#endif
