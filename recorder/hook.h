/* A running llama.cpp model whose router can be read and changed: the only door to llama.cpp. Recorder, emulator and engine
 * share it. hook*.c are the only files that include its headers.
 *
 * A hook is a model, a context for one sequence, and an observer of its router. The caller feeds forward passes
 * (gm_hook_pass); for every Mixture-of-Experts layer the functions of struct gm_hook_ops are called in the order of the graph,
 * with copies in host memory that may be changed where it says so.
 *
 * What the router computes is learnt from the graph itself: a first pass over one token, whose rows nobody sees, finds the
 * layers with experts, the tensor that holds the logits, the gating function, bias and groups. So any architecture whose router
 * llama.cpp builds the usual way is understood, not just those in a list.
 *
 * One thread at a time uses a hook. llama.cpp's log is one for the whole process, and so is where this module sends it.
 */
#ifndef GM_RECORDER_HOOK_H
#define GM_RECORDER_HOOK_H

#include "base/error.h"
#include "traces/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct gm_hook;
struct ggml_backend_buffer_type;

/* --- opening --- */

enum gm_hook_flash { GM_FLASH_AUTO, GM_FLASH_OFF, GM_FLASH_ON };
enum gm_hook_log { GM_HOOK_LOG_ERROR, GM_HOOK_LOG_WARN, GM_HOOK_LOG_INFO, GM_HOOK_LOG_DEBUG };

struct gm_hook_options {
	uint32_t n_ctx;              /* tokens a sequence may have; 0: what the model was trained for, at most 4,096 */
	uint32_t n_ubatch;           /* tokens a forward pass may have; 0: 512 */
	uint32_t n_thread;           /* CPU threads; 0: one a core */
	int n_gpu_layers;            /* -1: all */
	bool cpu_moe;                /* expert tensors of all layers stay in host memory */
	uint32_t n_cpu_moe;          /* those of the first so many layers */
	const char *override_tensor; /* "REGEX=BUFFER,..." as llama.cpp's --override-tensor; NULL: none */
	/* AUTO: llama.cpp's choice on a GPU, off on the CPU, where flash attention makes router logits depend on the size of the
	 * forward pass (differences of 1e-2 were seen) */
	enum gm_hook_flash flash;
	/* ggml's buffer type for the experts' weights (engine/plugin.h); NULL: llama.cpp and the options above decide */
	struct ggml_backend_buffer_type *expert_buffer;
	bool extra_bufts; /* repacked weights on the CPU, faster; false: results bit-equal to other backends' plain kernels */
	bool bare;        /* no observer in the context at all (the baseline of benchmarks): ops are never called */

	/* Receives llama.cpp's log lines of at least log_level; NULL: they are dropped. The text of a failure's last error line
	 * stands in the struct gm_error in any case. */
	void (*log)(void *user, enum gm_hook_log level, const char *text);
	void *log_user;
	enum gm_hook_log log_level;

	FILE *list_tensors; /* where to list what the routers of this model offer, while opening; NULL: nowhere */
};

struct gm_hook_options gm_hook_default_options(void);

/* Loads a GGUF (the first file of a split one). NULL on failure:
 *   GM_ERR_IO           no such file, unreadable
 *   GM_ERR_FORMAT       no GGUF, damaged, or llama.cpp cannot load it
 *   GM_ERR_UNSUPPORTED  no MoE layers, or a router that is not softmax or sigmoid + top-k (names what was found)
 *   GM_ERR_USAGE        options that make no sense
 *   GM_ERR_MEMORY       does not fit */
struct gm_hook *gm_hook_open(const char *path, const struct gm_hook_options *options, struct gm_error *err);
void gm_hook_close(struct gm_hook *hook); /* NULL is fine */

struct llama_model_params;
struct llama_context_params;

/* Every pass of such a context will have one token, whatever a batch has. */
void gm_hook_one_by_one(struct llama_context_params *context);

/* Options to open a hook with that is to be attached to a context of these parameters: only for the facts, on the CPU, the file mapped. */
void gm_hook_attach_options(struct gm_hook_options *options, const struct llama_context_params *context);
bool gm_hook_offloads(const struct llama_model_params *model); /* layers are offered to a GPU */

/* The caller loads the model and makes the context himself (a program on llama.cpp's own interface): from its parameters for both, before
 * they are used. Frees what the hook has loaded, so that only its facts and its observer are left: gm_hook_set_ops is what it is good for from
 * now on. Rows of a layer count from 0 with every graph, and the last layer brings those alone whose outputs were asked for. The hook must
 * outlive the context. GM_ERR_USAGE: the context has an evaluation callback already. */
int gm_hook_attach(struct gm_hook *hook, struct ggml_backend_buffer_type *expert_buffer, struct llama_model_params *model,
		   struct llama_context_params *context, struct gm_error *err);

/* --- facts --- */

struct gm_hook_info {
	const char *architecture;    /* "qwen3moe" */
	const char *description;     /* llama.cpp's own: "qwen3moe 30B.A3B Q4_K - Medium" */
	const char *expert_type;     /* ggml type of most expert bytes: "q4_K" */
	uint32_t n_model_layer;      /* layers, those without experts included */
	const uint32_t *model_layer; /* [n_layer] a MoE layer's number in the model (dense layers are skipped) */
	uint32_t n_vocab;
	uint32_t n_ctx, n_ctx_train; /* tokens: of this context, of the training */
	uint32_t n_ubatch;
	uint32_t n_thread;
	bool flash;                   /* llama.cpp was left to use flash attention */
	bool uses_gpu;                /* layers were offered to a GPU */
	bool bare;                    /* nothing is observed */
	bool softmax_after_selection; /* gpt-oss: the model takes the softmax over the selected; its raw weights are logits */
	bool renormalises;            /* the model's final gates are divided by their sum */
};

/* Both live as long as the hook. The model's name is the file's without directory, split number and ".gguf". */
const struct gm_model *gm_hook_model(const struct gm_hook *hook);
const struct gm_hook_info *gm_hook_info(const struct gm_hook *hook);

void gm_hook_load_library(void);           /* ggml's backends, once a process; gm_hook_open does it, too */
const char *gm_hook_library_version(void); /* "llama.cpp 0.4.0"; touches no device */

/* Which llama.cpp this is and what it runs on, a line each: version and library file, devices and their memory; brief: without file and
 * memory, which change from run to run. Text is cut off at size. Needs no model. Returns text. */
char *gm_hook_describe_library(char *text, size_t size, bool brief);

/* Memory that is free on all GPUs together, as their drivers say; 0 without one. What a model and its context take there is a difference of two
 * such numbers. */
uint64_t gm_hook_gpu_free_bytes(void);

/* --- text --- */

/* UTF-8 text (may hold NUL bytes) as token ids, with the model's own begin-of-text token where it wants one. With special, the
 * names of control tokens in the text become these tokens. *token [*n] must be freed. An empty text may give no tokens at all. */
int gm_hook_tokenize(const struct gm_hook *hook, const char *text, size_t size, bool special, int32_t **token, size_t *n,
		     struct gm_error *err);

/* The bytes of one token, not NUL-terminated, at most size of them; returns how many. */
size_t gm_hook_token_text(const struct gm_hook *hook, int32_t token, char *text, size_t size);

bool gm_hook_is_end(const struct gm_hook *hook, int32_t token); /* ends generation */

/* --- the router's tensors --- */

/* Rows of one layer that lie in device memory, valid during the call only. */
struct gm_hook_device_rows {
	const void *data;   /* [n_row] rows of n_expert float32 */
	size_t stride;      /* bytes from row to row */
	const char *device; /* ggml's name of it: "CUDA0" */
};

/* Called during gm_hook_pass. layer counts MoE layers; first is the row's number in the pass, n how many rows follow (a layer's
 * rows may come in several calls, in order). A negative return ends the pass with the error recorded. Any may be NULL: what
 * nobody asks for is neither copied nor waited for. The copies live until the call returns. *changed is false on entry: set it
 * to write the values back. */
struct gm_hook_ops {
	/* Router logits [n][n_expert] before softmax, selection bias and scaling, router bias included. */
	int (*on_logits)(void *user, uint32_t layer, uint32_t first, uint32_t n, const float *logits, struct gm_error *err);

	/* Asked first where the logits lie in device memory: 1: taken from there, on_logits is not called; 0: not taken. */
	int (*on_device_logits)(void *user, uint32_t layer, uint32_t first, uint32_t n,
				const struct gm_hook_device_rows *rows, struct gm_error *err);

	/* The selected experts [n][top_k], best first. A changed row decides which experts are computed, and with which
	 * probabilities the model weights them. Ids of one row should stay distinct. */
	int (*on_topk)(void *user, uint32_t layer, uint32_t first, uint32_t n, int32_t *expert, bool *changed,
		       struct gm_error *err);

	/* Their probabilities [n][top_k] (softmax_after_selection: their logits), before renormalisation and scaling. */
	int (*on_weights)(void *user, uint32_t layer, uint32_t first, uint32_t n, float *weight, bool *changed,
			  struct gm_error *err);

	/* What the experts' outputs are multiplied with in the end [n][top_k]. */
	int (*on_gates)(void *user, uint32_t layer, uint32_t first, uint32_t n, float *gate, bool *changed,
			struct gm_error *err);

	/* One of the above has failed, or could not be called: what the pass computes from here on is worth nothing. */
	void (*on_failure)(void *user, const struct gm_error *why);
};

/* From the next pass on; ops must live that long. NULL: nothing is observed. */
void gm_hook_set_ops(struct gm_hook *hook, const struct gm_hook_ops *ops, void *user);

/* --- forward passes --- */

/* Forgets the sequence so far: the next token has position 0. */
void gm_hook_begin_sequence(struct gm_hook *hook);
uint32_t gm_hook_position(const struct gm_hook *hook); /* of the next token */

/* One forward pass over the next n tokens of the sequence, 1 ... n_ubatch. Output logits are computed for every one of them
 * (llama.cpp leaves rows out of the last layer otherwise). Without bare, every observed layer has delivered exactly n rows when
 * this returns 0. Errors: GM_ERR_USAGE past the context or for a token the vocabulary lacks; what an op returned;
 * GM_ERR_UNSUPPORTED for rows that did not come; GM_ERR_MEMORY, GM_ERR_IO from llama.cpp. After a failure past the first kind only
 * gm_hook_begin_sequence makes the hook usable again. */
int gm_hook_pass(struct gm_hook *hook, const int32_t *token, uint32_t n, struct gm_error *err);

/* Output logits [n_vocab] of the i-th token of the last pass; valid until the next. */
const float *gm_hook_output(const struct gm_hook *hook, uint32_t i);

#endif
