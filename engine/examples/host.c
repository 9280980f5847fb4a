/* A whole program on llama.cpp's own interface, with an expert cache: host MODEL.gguf PROMPT CACHE POLICY */
#include "engine/engine.h"

#include <llama.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	const char *const policy[] = {"cache", argc > 3 ? argv[3] : "25%", "policy", argc > 4 ? argv[4] : "fetch-all",
				      NULL};
	const struct gm_engine_config config = {.policy = policy};
	struct llama_model_params mparams = llama_model_default_params();
	struct llama_context_params cparams = llama_context_default_params();
	struct gm_engine_stats stats;
	struct gm_error err = {0};
	llama_token token[512];

	cparams.n_threads = cparams.n_threads_batch = 1;
	struct gm_engine *engine = argc > 2 ? gm_engine_attach(argv[1], &mparams, &cparams, &config, &err) : NULL;
	if (!engine)
		return fprintf(stderr, "host: %s\n",
			       argc > 2 ? err.text : "usage: host MODEL.gguf PROMPT [CACHE [POLICY]]"),
		       2;
	struct llama_model *model = llama_model_load_from_file(argv[1], mparams);
	struct llama_context *context = model ? llama_init_from_model(model, cparams) : NULL;
	const struct llama_vocab *vocab = context ? llama_model_get_vocab(model) : NULL;
	struct llama_sampler *greedy = llama_sampler_init_greedy();
	int32_t n = vocab ? llama_tokenize(vocab, argv[2], (int32_t)strlen(argv[2]), token, 512, true, true) : 0;
	int status = 0;

	for (int i = 0; i < 32 && n > 0 && (status = llama_decode(context, llama_batch_get_one(token, n))) == 0; i++) {
		char piece[64];

		token[0] = llama_sampler_sample(greedy, context, -1);
		printf("%.*s", llama_token_to_piece(vocab, token[0], piece, sizeof(piece), 0, true), piece);
		n = llama_vocab_is_eog(vocab, token[0]) ? 0 : 1;
	}
	gm_engine_get_stats(engine, &stats);
	printf("\n%llu of %llu experts were in a slot\n", (unsigned long long)stats.hits,
	       (unsigned long long)stats.accesses);
	if (status)
		fprintf(stderr, "host: %s\n", gm_engine_error(engine)->text);
	llama_sampler_free(greedy);
	llama_free(context);
	llama_model_free(model);
	gm_engine_free(engine);
	return status != 0;
}
