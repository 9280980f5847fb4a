/* The store as the link's source of bytes. */
#include "engine/link.h"
#include "engine/store.h"

_Static_assert(GM_LINK_MAX_PIECE == GM_EXPERT_STORE_MAX_PART, "a copy moves all parts of an expert");

static int ready(void *user, uint32_t read, const void *from[GM_LINK_MAX_PIECE], double *ready_us, struct gm_error *err)
{
	return gm_expert_store_poll(user, read, from, ready_us, err);
}

static void done(void *user, uint32_t read)
{
	gm_expert_store_release(user, read);
}

static void listen(void *user, void (*changed)(void *link), void *link)
{
	gm_expert_store_listen(user, changed, link);
}

struct gm_link_source gm_link_expert_store(struct gm_expert_store *store)
{
	return (struct gm_link_source){.ready = ready, .done = done, .listen = listen, .user = store};
}
