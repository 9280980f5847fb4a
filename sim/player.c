#include "sim/player.h"

#include <inttypes.h>
#include <stdlib.h>

struct gm_player {
	struct gm_arrivals arrivals; /* first: a pointer to it is a pointer to the player */
	const struct gm_landings *landings;
	const struct gm_core_config *config;
	uint64_t token;
	size_t next;
	struct gm_error err; /* of an event, which cannot return it */
};

static int no_event(const struct gm_player *p, struct gm_error *err)
{
	const struct gm_landing *landing = &p->landings->landing[p->next];

	return gm_fail(err, GM_ERR_FORMAT,
		       "a landing before an event that there is not: %.60s: token %" PRIu64
		       ", layer %u: must be a row of the trace",
		       p->landings->path, landing->token, landing->layer);
}

/* Whether this copy is under way, and of a pool of this event. */
static bool is_awaited(const struct gm_player *p, const struct gm_core *core, const struct gm_landing *landing)
{
	const struct gm_core_config *config = p->config;

	if (landing->expert_layer >= config->n_layer || landing->expert >= config->n_expert)
		return false;
	if (config->scope == GM_SCOPE_LAYER && landing->expert_layer != landing->layer)
		return false;
	return gm_core_residency(core, landing->expert_layer)[landing->expert] == GM_RESERVED;
}

static int land(const struct gm_player *p, struct gm_core *core, const struct gm_landing *landing, struct gm_error *err)
{
	if (!is_awaited(p, core, landing))
		return gm_fail(err, GM_ERR_FORMAT,
			       "a copy landed that is not under way: %.60s: token %" PRIu64
			       ", layer %u: expert %u of layer %u must have been queued and not have landed before",
			       p->landings->path, landing->token, landing->layer, landing->expert, landing->expert_layer);
	gm_core_land(core, landing->expert_layer, landing->expert);
	return GM_OK;
}

static void begin(struct gm_arrivals *self, struct gm_core *core, uint32_t layer)
{
	struct gm_player *p = (struct gm_player *)(void *)self;

	for (; p->next < p->landings->n && !p->err.code; p->next++) {
		const struct gm_landing *landing = &p->landings->landing[p->next];

		if (landing->token > p->token || (landing->token == p->token && landing->layer > layer))
			return;
		if (landing->token < p->token || landing->layer < layer) {
			no_event(p, &p->err);
			return;
		}
		land(p, core, landing, &p->err);
	}
}

struct gm_player *gm_player_new(const struct gm_landings *landings, const struct gm_core_config *config,
				struct gm_error *err)
{
	struct gm_player *p = gm_alloc(1, sizeof(*p), err);

	if (!p)
		return NULL;
	p->arrivals = (struct gm_arrivals){.begin = begin};
	p->landings = landings;
	p->config = config;
	return p;
}

void gm_player_free(struct gm_player *p)
{
	free(p);
}

struct gm_arrivals *gm_player_arrivals(struct gm_player *p)
{
	return &p->arrivals;
}

void gm_player_set_token(struct gm_player *p, uint64_t token)
{
	p->token = token;
}

int gm_player_check(const struct gm_player *p, struct gm_error *err)
{
	return p->err.code ? gm_fail(err, p->err.code, "%s", p->err.text) : GM_OK;
}

int gm_player_check_end(const struct gm_player *p, struct gm_error *err)
{
	return p->next < p->landings->n ? no_event(p, err) : GM_OK;
}
