/* Plays measured arrivals: an implementation of gm_arrivals in whose events those copies land that had landed in a run (sim/landings.h), in
 * place of the clock's R6. Nothing is timed. */
#ifndef GM_SIM_PLAYER_H
#define GM_SIM_PLAYER_H

#include "policies/core.h"
#include "sim/landings.h"

struct gm_player;

/* For a core of this configuration; landings and config must outlive it. */
struct gm_player *gm_player_new(const struct gm_landings *landings, const struct gm_core_config *config,
				struct gm_error *err);
void gm_player_free(struct gm_player *player); /* NULL is fine */

struct gm_arrivals *gm_player_arrivals(struct gm_player *player);

/* The events that follow are those of this token. */
void gm_player_set_token(struct gm_player *player, uint64_t token);

/* GM_ERR_FORMAT once a landing was played that cannot be (a copy that was not under way, an event that does not exist). */
int gm_player_check(const struct gm_player *player, struct gm_error *err);

/* After the last event: whether everything has landed. */
int gm_player_check_end(const struct gm_player *player, struct gm_error *err);

#endif
