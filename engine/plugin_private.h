/* What plugin*.c share. Includes ggml's headers: no other file may include this one. */
#ifndef GM_ENGINE_PLUGIN_PRIVATE_H
#define GM_ENGINE_PLUGIN_PRIVATE_H

#include "engine/plugin.h"

#include <ggml-backend-impl.h>
#include <ggml-backend.h>
#include <ggml.h>

enum { MAX_MODEL_LAYER = 1024 };

/* An expert tensor of the model: [n_in, n_out, n_expert]. Found from the tensor by its `extra`. */
struct plugin_weight {
	struct gm_plugin *plugin;
	struct ggml_tensor *tensor; /* NULL: the layer has no such part */
	uint32_t model_layer, part;
	struct plugin_slots *slots; /* NULL: no pools yet */
};

/* Slots for one part, [n_in, n_out, n_slot] on the inner device. */
struct plugin_slots {
	struct ggml_context *context;
	struct ggml_tensor *tensor;
	ggml_backend_buffer_t buffer;
};

struct gm_plugin {
	struct ggml_backend_buffer_type buffer_type;
	ggml_backend_dev_t device;                          /* ours, over the inner one */
	struct plugin_weight (*weight)[GM_PLUGIN_MAX_PART]; /* [MAX_MODEL_LAYER] */
	struct plugin_slots (*slots)[GM_PLUGIN_MAX_PART];   /* [n_pool] */
	uint32_t n_pool, n_layer;
	uint32_t *model_layer;          /* [n_layer] of the MoE layers */
	uint32_t *moe_layer;            /* [MAX_MODEL_LAYER] UINT32_MAX: none */
	struct gm_expert_store *store;  /* NULL: the tensors have memory */
	uint32_t *store_layer;          /* [MAX_MODEL_LAYER] a layer's number there */
	struct gm_plugin_copier copier; /* copy NULL: our own */
	ggml_backend_t link;            /* of the link's thread; NULL: none was asked for */
	struct gm_spans *spans;         /* may be NULL */
	const struct gm_schedule *schedule;
	uint64_t n_schedule; /* how many were set: names the one that is */
	struct gm_error err;
	struct gm_plugin_stats stats;
};

/* --- plugin.c --- */

ggml_backend_reg_t plugin_registry(void);                   /* with a device over the best inner one there is */
ggml_backend_dev_t plugin_inner(ggml_backend_dev_t device); /* of one of ours */

/* --- plugin_buffer.c: the expert tensors' memory --- */

void plugin_buffer_type_init(struct gm_plugin *plugin);
/* The weight that a tensor is; NULL: not one of ours. */
struct plugin_weight *plugin_weight_of(const struct ggml_tensor *tensor);

/* "blk.7.ffn_up_exps.weight": layer 7, part 1. */
bool plugin_parse_name(const char *name, uint32_t *layer, uint32_t *part);

/* --- plugin_file.c --- */

int plugin_store_open(struct gm_plugin *plugin, const struct gm_plugin_options *options, struct gm_error *err);

/* An expert's bytes on the host, valid until it is let go. */
struct plugin_expert {
	const void *from[GM_PLUGIN_MAX_PART];
	uint32_t read;
};
int plugin_hold(struct gm_plugin *plugin, uint32_t model_layer, uint32_t expert, struct plugin_expert *held,
		struct gm_error *err);
/* Reads are told to the plugin's spans, or not. */
void plugin_watch_reads(struct gm_plugin *plugin, bool wanted);
void plugin_let_go(struct gm_plugin *plugin, const struct plugin_expert *held);

/* --- plugin_slots.c --- */

int plugin_slots_make(struct plugin_slots *slots, ggml_backend_dev_t inner, const struct ggml_tensor *weight,
		      uint32_t n_slot, struct gm_error *err);
void plugin_slots_free(struct plugin_slots *slots);

/* --- plugin_compute.c --- */

enum {
	PLUGIN_MAX_NODE = 64, /* of a graph for the inner device */
	PLUGIN_ALIGNMENT = 128,
};

/* A context's use of the inner device. */
struct plugin_backend {
	ggml_backend_t inner;
	struct ggml_context *context;  /* of one graph's tensors */
	ggml_backend_buffer_t ids;     /* slots of the rows under way, on the device */
	uint64_t n_schedule;           /* which schedule's slots lie in ids; 0: none */
	ggml_backend_buffer_t results; /* of steps whose own place is still in use, on the device */
	ggml_backend_buffer_t picks;   /* in place of ids, of an event that is computed by expert: see plugin_block.c */
	ggml_backend_buffer_t columns; /* of picks that are brought together */
	char *host;                    /* ids on their way */
	size_t host_bytes;
};

int plugin_backend_open(struct plugin_backend *backend, ggml_backend_dev_t inner);
void plugin_backend_close(struct plugin_backend *backend);

/* A graph of the scheduler's. */
enum ggml_status plugin_compute(struct plugin_backend *backend, struct ggml_cgraph *graph);

bool plugin_is_layout(enum ggml_op op); /* computes nothing */

/* A buffer of the device with so many bytes, whose contents are lost if it had fewer. */
bool plugin_grow(const struct plugin_backend *backend, ggml_backend_buffer_t *buffer, size_t bytes);

/* Room for so many bytes in `host`, whose contents are lost if there was less. */
bool plugin_grow_host(struct plugin_backend *backend, size_t bytes);

/* n rows of slot numbers from row `first` on of those in the ids buffer. */
struct ggml_tensor *plugin_ids(const struct plugin_backend *backend, uint32_t top_k, uint32_t first, uint32_t n);

/* An expert's share of one tensor into a slot of it, now. */
int plugin_copy(const struct plugin_weight *weight, uint32_t expert, const struct plugin_slots *slots, uint32_t slot);

/* --- plugin_chain.c --- */

enum { PLUGIN_MAX_STEP = 8 };
#define PLUGIN_IN_PLACE SIZE_MAX

struct plugin_step {
	struct ggml_tensor *node;
	struct plugin_weight *weight; /* NULL: no multiplication */
	size_t away;                  /* where in `results` its result stays until the end */
};

/* Its results are [n_out][top_k][n_row]. */
struct plugin_chain {
	struct plugin_backend *backend;
	struct gm_plugin *plugin;
	const struct gm_schedule *schedule;
	const struct ggml_tensor *ids; /* of experts */
	struct plugin_step step[PLUGIN_MAX_STEP];
	uint32_t n_step, model_layer, top_k, n_row;
	/* of an event that is computed by expert: what is computed from besides the steps' results, and how many picks at a time */
	const struct ggml_tensor *source[2 * PLUGIN_MAX_STEP];
	uint32_t n_source, max_pick;
};

/* The multiplication that is node `node`, which has slots, and those that follow it in its layer. *next: the node behind. */
enum ggml_status plugin_compute_chain(struct plugin_backend *backend, struct ggml_cgraph *graph, int node, int *next);

/* The step that computes a tensor, or what it is a view of; NULL: none of the chain. */
const struct plugin_step *plugin_maker_of(const struct plugin_chain *chain, const struct ggml_tensor *tensor);

static inline ggml_backend_buffer_t plugin_buffer_of(const struct ggml_tensor *tensor)
{
	return tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
}

/* Where a step's result stays. */
char *plugin_result(const struct plugin_chain *chain, const struct plugin_step *step, ggml_backend_buffer_t *buffer);

/* --- plugin_block.c --- */

/* What is computed at a time: a rectangle of rows and picks, where they are; or any picks of an event, brought together. */
struct plugin_block {
	uint32_t row, n_row, pick, n_pick;
	bool is_brought;
	uint32_t first, n; /* those of the schedule's picks, at most max_pick */
};

/* The block goes through all steps. */
void plugin_add_block(const struct plugin_chain *chain, const struct plugin_block *block, struct ggml_cgraph *graph);

/* Before picks are brought together: finds the sources, and memory for max_pick. GM_ERR_UNSUPPORTED, in the plugin's error, or GM_ERR_MEMORY. */
int plugin_prepare_picks(struct plugin_chain *chain);

/* All picks of the schedule, sent to the device. */
bool plugin_send_picks(const struct plugin_chain *chain);

#endif
