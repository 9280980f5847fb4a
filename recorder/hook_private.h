/* What hook*.c share. Includes llama.cpp's headers: no other file may include this one. */
#ifndef GM_RECORDER_HOOK_PRIVATE_H
#define GM_RECORDER_HOOK_PRIVATE_H

#include "recorder/hook.h"

#include <ggml-backend.h>
#include <ggml.h>
#include <llama.h>

/* --- hook_file.c: what the GGUF says, read before llama.cpp loads the weights --- */

struct hook_file {
	char *architecture;
	char *name; /* base name without split number and ".gguf" */
	uint32_t n_layer, n_expert, n_group, n_group_used;
	uint64_t *expert_bytes;               /* [n_layer] all experts of a layer together */
	uint64_t *dense_bytes;                /* [n_layer] its other tensors */
	uint64_t type_bytes[GGML_TYPE_COUNT]; /* expert bytes by type */
};

/* Checks that path is a GGUF of a model with experts. On failure nothing needs to be freed. */
int hook_file_read(struct hook_file *file, const char *path, struct gm_error *err);
const char *hook_file_expert_type(const struct hook_file *file);
void hook_file_free(struct hook_file *file);

/* --- hook_library.c: backends, log, placement of tensors --- */

void hook_log_to(const struct gm_hook_options *options);
void hook_log_forget_error(void);
/* Records a failure with llama.cpp's last error line behind the text. */
int hook_fail(struct gm_error *err, int code, const char *text, const char *path);
bool hook_has_gpu(void);

/* --override-tensor and its short forms as llama.cpp wants them, the last pattern NULL; to be freed with hook_overrides_free.
 * *overrides is NULL where there are none. */
int hook_overrides_parse(struct llama_model_tensor_buft_override **overrides, const struct gm_hook_options *options,
			 struct gm_error *err);
/* Expert weights into a buffer type of the engine's: one entry. */
int hook_overrides_experts(struct llama_model_tensor_buft_override *override, struct ggml_backend_buffer_type *type,
			   struct gm_error *err);
void hook_overrides_free(struct llama_model_tensor_buft_override *overrides);

/* --- hook_probe.c: what the graph says --- */

enum hook_tensor {
	HOOK_LOGITS, /* router matrix times hidden state */
	HOOK_LOGITS_BIASED,
	HOOK_PROBS, /* (gpt-oss: the logits with bias) */
	HOOK_PROBS_BIASED,
	HOOK_PROBS_MASKED,
	HOOK_GROUP_TOPK,
	HOOK_TOPK,
	HOOK_WEIGHTS,
	HOOK_WEIGHTS_SOFTMAX,
	HOOK_WEIGHTS_NORM,
	HOOK_WEIGHTS_SCALED,
	HOOK_N_TENSOR,
	HOOK_NONE = HOOK_N_TENSOR,
};

/* Which router tensor a graph node is, by its name ("ffn_moe_topk-7"; copies between devices are named "DEV#ffn_moe_topk-7#0"). */
enum hook_tensor hook_tensor_find(const struct ggml_tensor *tensor, uint32_t *model_layer);

/* What one layer's router was seen to do. */
struct hook_seen {
	bool any; /* a tensor of a router carries this layer's number */
	bool has[HOOK_N_TENSOR];
	enum hook_tensor source; /* holds the logits; HOOK_NONE: not understood, `problem` says why */
	enum gm_gating gating;
	bool softmax_after;
	uint32_t n_expert, top_k, n_group_used;
	float *bias; /* [n_expert] or NULL */
	char problem[192];
};

struct hook_probe {
	uint32_t n_layer;
	struct hook_seen *layer; /* [n_layer] of the model */
	FILE *list;
	struct gm_error err;
};

int hook_probe_begin(struct hook_probe *probe, uint32_t n_layer, FILE *list, struct gm_error *err);
bool hook_probe_node(struct hook_probe *probe, struct ggml_tensor *tensor, bool ask); /* the evaluation callback */
/* Checks that the layers agree. *first: the first layer with experts. */
int hook_probe_end(const struct hook_probe *probe, const char *path, uint32_t *first, struct gm_error *err);
void hook_probe_free(struct hook_probe *probe);

/* --- hook_rows.c: rows between tensors and host memory --- */

/* [n_row] rows of `width` 4-byte values of a tensor, maybe a view, maybe in device memory. */
struct hook_rows {
	struct ggml_tensor *tensor;
	uint32_t n_row, width;
	size_t stride; /* bytes */
};

struct hook_scratch {
	char *values; /* rows without gaps */
	size_t values_size;
	char *span; /* rows of a device tensor with what lies between them */
	size_t span_size;
};

/* Understands [width, n], and [1, width, n] as the weights come. */
int hook_rows_of(struct hook_rows *rows, struct ggml_tensor *tensor, uint32_t width, struct gm_error *err);
bool hook_rows_on_device(const struct hook_rows *rows, struct gm_hook_device_rows *device);
/* Rows without gaps: in scratch, or the tensor's own memory where `read_only` and it lies in the host's without gaps. NULL on failure. */
void *hook_rows_get(const struct hook_rows *rows, struct hook_scratch *scratch, bool read_only, struct gm_error *err);
/* Writes back what hook_rows_get gave (not read_only). */
void hook_rows_set(const struct hook_rows *rows, struct hook_scratch *scratch);
void hook_scratch_free(struct hook_scratch *scratch);

/* --- hook.c --- */

struct gm_hook {
	struct hook_file file;
	struct gm_model facts;
	struct gm_hook_info info;
	char description[128];
	uint32_t *model_layer; /* [n_layer] of the MoE layers */
	uint32_t *moe_layer;   /* [n_model_layer] UINT32_MAX: a dense one */

	bool is_attached;                                   /* observes a context of the caller's */
	struct llama_model_tensor_buft_override *overrides; /* of the caller's model */
	struct llama_model *model;
	struct llama_context *context;
	const struct llama_vocab *vocab;
	struct llama_batch batch; /* [n_ubatch] */
	uint32_t position;        /* of the next token */

	enum hook_tensor source, final; /* the tensors that hold the logits, and the final gates */
	struct hook_probe *probe;       /* while the model is being opened */
	const struct gm_hook_ops *ops;
	void *user;
	struct hook_scratch scratch;

	/* of the pass under way; [n_layer] rows that came so far, per kind of tensor that is observed */
	uint32_t *n_seen[HOOK_N_TENSOR];
	struct gm_error err;
};

void hook_close_model(struct gm_hook *hook);                         /* hook_open.c */
bool hook_on_node(struct ggml_tensor *tensor, bool ask, void *user); /* the context's evaluation callback */
int hook_decode(struct gm_hook *hook, const int32_t *token, uint32_t n,
		struct gm_error *err); /* checks and counts nothing */

#endif
