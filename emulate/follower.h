/* A policy that follows a forward pass: its caches, fed row by row as the router chooses, and what they decide. */
#ifndef GM_EMULATE_FOLLOWER_H
#define GM_EMULATE_FOLLOWER_H

#include "emulate/account.h"
#include "sim/plan.h"

struct gm_follower;

/* plan, account and scratch must outlive it; n_row: most tokens of a pass. One scratch serves many followers of a model. */
struct gm_follower *gm_follower_new(const struct gm_plan *plan, struct gm_account *account, uint32_t n_row,
				    struct gm_scratch *scratch, struct gm_error *err);
/* What a real cache hears of the policy it stands for; before the first pass. All members are there, but `arrivals` may be NULL (instant). */
struct gm_follower_watch {
	struct gm_arrivals *arrivals;
	/* the core has been reset, and preloaded */
	int (*start)(void *user, const struct gm_core *core, struct gm_error *err);
	/* rows first ... first + n - 1 of a pass follow, as events of their own, or with --prefill batch as one */
	int (*rows)(void *user, uint32_t layer, uint32_t first, uint32_t n, struct gm_error *err);
	/* what its event decided for the next row; decision [top_k] */
	int (*decided)(void *user, const struct gm_decision *decision, struct gm_error *err);
	void *user;
};

/* watch must outlive the follower. Calls watch->start. */
int gm_follower_set_watch(struct gm_follower *follower, const struct gm_follower_watch *watch, struct gm_error *err);
void gm_follower_free(struct gm_follower *follower);

int gm_follower_begin_sequence(struct gm_follower *follower, struct gm_error *err);
void gm_follower_begin_pass(struct gm_follower *follower, uint64_t first_token, uint32_t n);

/* Rows of one layer of the pass under way, from its row number `first` on; rows->token is not looked at. Each row is an event of its
 * own, or with --prefill batch all rows of the pass that the layer has are one event, which must then come in one call. decision [n][top_k]
 * out, may be NULL. */
int gm_follower_rows(struct gm_follower *follower, uint32_t layer, uint32_t first, const struct gm_rows *rows,
		     struct gm_decision *decision, struct gm_error *err);

/* The pass is over; what it came to goes into the account. pass: row and mass are filled in here. */
void gm_follower_end_pass(struct gm_follower *follower, struct gm_account_pass *pass);

#endif
