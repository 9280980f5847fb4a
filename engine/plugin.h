/* The expert cache as a backend of ggml, for an unpatched llama.cpp. A plugin takes the expert tensors of one model: they lie in host
 * memory, slots for some of them lie on the inner device (a GPU, or the CPU as a stand-in), and llama.cpp's scheduler hands over every
 * multiplication with them (MUL_MAT_ID) and what stands between, which runs on the inner device over the slots, as a schedule says.
 *
 * Until there are slots (while a model is opened), each row is computed from slots that are filled for it alone.
 *
 * plugin*.c are the only files of the engine that include ggml's headers. A plugin is for one thread at a time; its tensors and contexts must
 * be gone before it is freed.
 */
#ifndef GM_ENGINE_PLUGIN_H
#define GM_ENGINE_PLUGIN_H

#include "engine/link.h"
#include "engine/schedule.h"
#include "engine/spans.h"
#include "engine/store.h"

#include <stddef.h>

struct gm_plugin;
struct ggml_backend_buffer_type;

enum { GM_PLUGIN_MAX_PART = 4 }; /* gate, up, down, or gate_up and down */

struct gm_plugin_options {
	/* ggml's name of the inner device ("CUDA0"); NULL: the first GPU if `gpu` and there is one, else the CPU */
	const char *device;
	bool gpu;
	/* Where experts lie that are in no slot: in host memory, all of them, or in the model's file, read when they are wanted. */
	enum gm_expert_store_kind experts;
	const char *model;       /* its path, if they stay in the file */
	uint64_t host_bytes;     /* GM_EXPERT_STORE_READ: of the cache in host memory */
	struct gm_throttle disk; /* plays a slower disk */
};

/* ggml's backends must be loaded. Makes itself known to ggml, so that contexts made from now on find it. NULL: GM_ERR_USAGE for a device that is
 * not there, GM_ERR_MEMORY, and the errors of the model's file. */
struct gm_plugin *gm_plugin_new(const struct gm_plugin_options *options, struct gm_error *err);
void gm_plugin_free(struct gm_plugin *plugin); /* NULL is fine */

/* Where a model's expert tensors must go ("blk.N.ffn_gate_exps.weight" and so on). */
struct ggml_backend_buffer_type *gm_plugin_buffer_type(struct gm_plugin *plugin);

const char *gm_plugin_device(const struct gm_plugin *plugin); /* the inner device's name */

/* Slots, once the model is loaded. */
struct gm_plugin_pools {
	uint32_t n_layer;            /* MoE layers */
	const uint32_t *model_layer; /* [n_layer] their numbers in the model */
	const uint32_t *n_slot;      /* [n_layer] scratch included */
	bool shared;                 /* one pool of n_slot[0] serves all layers: their experts must have one shape */
};

/* From now on every pass needs schedules. GM_ERR_UNSUPPORTED: layers that cannot share, or have no experts here; GM_ERR_MEMORY. */
int gm_plugin_make_pools(struct gm_plugin *plugin, const struct gm_plugin_pools *pools, struct gm_error *err);

/* Bytes of one expert's weights in a layer of the model (biases stay with llama.cpp), and of all pools. */
uint64_t gm_plugin_expert_bytes(const struct gm_plugin *plugin, uint32_t model_layer);
uint64_t gm_plugin_pool_bytes(const struct gm_plugin *plugin);

/* Where copies come from that a schedule wants. The plugin's own copies them when a multiplication needs them. */
struct gm_plugin_copier {
	/* Returns when the copies first ... first + n - 1 of a schedule are there, as far as a part is concerned (the index of a piece;
	 * GM_PLUGIN_MAX_PART: all of them). All is computed that waits for the copies before them. Rows that are events of their own: the
	 * copies of a part. One event: n may be 0, to begin with what need not wait. */
	int (*copy)(void *user, const struct gm_schedule *schedule, uint32_t first, uint32_t n, uint32_t part,
		    struct gm_error *err);
	/* What is copied from goes away: returns when nothing is copied any more. */
	void (*stop)(void *user);
	void *user;
};
void gm_plugin_set_copier(struct gm_plugin *plugin, const struct gm_plugin_copier *copier); /* NULL: its own */

/* For a link's thread: copies, with a stream of their own on the device, and where the bytes come from. Whoever uses them must be done before
 * the plugin is freed. */
int gm_plugin_link_ops(struct gm_plugin *plugin, struct gm_link_ops *ops, struct gm_error *err);
struct gm_link_source gm_plugin_link_source(struct gm_plugin *plugin);

/* The copy of an expert into a slot as a link wants it: a piece for each part (bytes 0: the layer has no such part). only: of this part
 * alone; GM_PLUGIN_MAX_PART: of all. A request that no link has taken must be given back. */
int gm_plugin_request(struct gm_plugin *plugin, uint32_t layer, uint32_t expert, uint32_t slot, uint32_t only,
		      struct gm_link_request *request, struct gm_error *err);
void gm_plugin_give_back(struct gm_plugin *plugin, const struct gm_link_request *request);

/* Copies all parts of an expert now. */
int gm_plugin_put(struct gm_plugin *plugin, uint32_t layer, uint32_t expert, uint32_t slot, struct gm_error *err);

/* The host's cache of experts that stay in the file starts cold. */
void gm_plugin_reset_store(struct gm_plugin *plugin);

/* Hear of computing with experts, of reads, and of copies that the plugin makes itself, while there are schedules. NULL: nobody. Between
 * passes; they must outlive the plugin's use. */
void gm_plugin_set_spans(struct gm_plugin *plugin, struct gm_spans *spans);

/* What the operations that follow do, until the next call. The schedule must stay. NULL: none, an operation that comes now fails. */
void gm_plugin_schedule(struct gm_plugin *plugin, const struct gm_schedule *schedule);

/* Why computing failed, to be told instead of llama.cpp's "the forward pass failed". code 0: it did not. */
const struct gm_error *gm_plugin_error(const struct gm_plugin *plugin);
/* Makes every operation fail from now on: what would be computed is wrong. */
void gm_plugin_refuse(struct gm_plugin *plugin, const struct gm_error *why);

struct gm_plugin_stats {
	uint64_t n_op, n_part;      /* multiplications with experts, and the parts they were computed in */
	uint64_t n_copy, bytes;     /* parts of experts that were copied, of schedules */
	double copy_us, compute_us; /* waiting for copies; computing with experts, what stands between included */
	/* of experts that stay in the file, since the plugin was made; 0 where none do */
	uint64_t n_read, read_bytes;
	double read_us;
};
/* Since the pools were made. */
void gm_plugin_stats(const struct gm_plugin *plugin, struct gm_plugin_stats *stats);

#endif
