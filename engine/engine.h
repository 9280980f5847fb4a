/* A real expert cache under llama.cpp: the experts of a Mixture-of-Experts model stay in host memory, those that a policy keeps lie in slots on
 * the device, and what the policy decides (docs/semantics.md) is what is fetched, kept, substituted or dropped. For any program on
 * llama.cpp's own interface (engine/examples/host.c is a whole one):
 *
 *   struct llama_model_params mparams = llama_model_default_params();
 *   struct llama_context_params cparams = llama_context_default_params();
 *   engine = gm_engine_attach("model.gguf", &mparams, &cparams, &config, &err);     before either is used
 *   model = llama_model_load_from_file("model.gguf", mparams);
 *   context = llama_init_from_model(model, cparams);
 *   llama_decode(context, batch) ...          if it fails, gm_engine_error(engine) says why
 *   llama_free(context); llama_model_free(model); gm_engine_free(engine);
 *
 * An engine serves one context, on one thread at a time.
 */
#ifndef GM_ENGINE_ENGINE_H
#define GM_ENGINE_ENGINE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct gm_engine;
struct llama_model_params;
struct llama_context_params;

struct gm_engine_config {
	const char *policy; /* options as for `engine run`: "--policy rule-0.15 --cache 25%"; NULL: fetch, lru, 25 % */
	/* ggml's name of what computes experts; NULL: the first GPU if layers are offloaded, else the CPU */
	const char *device;
	/* No thread for copies: each is made at once, and one in the background has landed by its layer's next event. */
	bool at_once;
	uint64_t vram_expert_bytes; /* device memory for experts, in place of the option cache; 0: as that says */
	/* Experts that are in no slot stay in the model's file and are read when they are wanted, past the page cache; host_expert_bytes of host
	 * memory keep those that were touched last. Else all of them lie in host memory. */
	bool experts_in_file;
	uint64_t host_expert_bytes;
};

/* Sets what the cache needs in both parameters: tensor_buft_overrides (before those that are there) and cb_eval, which must be empty; with one pool
 * for all layers n_ubatch too, to 1, so that a batch is computed token by token (unless the policy has --prefill batch). Reads the model's
 * facts from a pass over one token, for which it loads the model for a moment (mapped, on the CPU). NULL on failure: GM_ERR_USAGE (options that
 * make no sense, or that a forward pass cannot give), GM_ERR_UNSUPPORTED, GM_ERR_FORMAT, GM_ERR_IO, GM_ERR_MEMORY. */
struct gm_engine *gm_engine_attach(const char *model, struct llama_model_params *model_params,
				   struct llama_context_params *context_params, const struct gm_engine_config *config,
				   struct gm_error *err);

/* Why the last llama_decode failed, if it was the cache; code 0: it was not. After that, every pass fails. */
const struct gm_error *gm_engine_error(const struct gm_engine *engine);

/* What happened so far. */
struct gm_engine_stats {
	uint64_t tokens;                    /* of all passes */
	uint64_t accesses, hits, late_hits; /* requests for experts, those in a slot, those whose copy was under way */
	uint64_t fetches, bypasses;         /* copies that were waited for; those not kept */
	uint64_t background_copies, evictions;
	uint64_t rows;                         /* tokens in a layer with experts */
	uint64_t picks, substitutions, drops;  /* of picks: rows * experts a token uses */
	double substituted_mass, dropped_mass; /* a row's mean */
	uint64_t link_bytes;                   /* of all these copies, by the bytes of an expert */
	uint64_t copied_bytes;                 /* that were copied */
	uint64_t n_read, read_bytes;           /* experts read from the model's file, where they stay there */
	double read_us;                        /* time in these reads */
	double copy_us, compute_us; /* time in copies that were waited for, and in multiplications with experts */
	uint64_t link_copies;  /* jobs of the link that arrived: experts, or parts of them in a prompt; 0 with at_once */
	double link_busy_us;   /* time it took for them */
	uint64_t device_bytes; /* all slots together */
	uint32_t n_slot;       /* of the first layer, or the pool; without scratch */
};
struct gm_engine_stats gm_engine_get_stats(const struct gm_engine *engine);
/* Of two moments: what happened between them. */
void gm_engine_stats_since(struct gm_engine_stats *stats, const struct gm_engine_stats *before);

/* After the context and the model are gone; NULL is fine. */
void gm_engine_free(struct gm_engine *engine);

#endif
