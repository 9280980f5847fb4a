/* A whole program on llama.cpp's own interface, with an expert cache: host MODEL.gguf PROMPT "--cache 25% --policy rule-0.15" */
#include "engine/engine.h"

#include <llama.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct llama_model_params mparams = llama_model_default_params();
	struct llama_context_params cparams = llama_context_default_params();
	const struct gm_engine_config config = {.policy = argc == 4 ? argv[3] : NULL};
	cparams.n_threads = cparams.n_threads_batch = 1;
	struct gm_error err = {.text = "usage: host MODEL.gguf PROMPT POLICY"};
	struct gm_engine *engine = argc == 4 ? gm_engine_attach(argv[1], &mparams, &cparams, &config, &err) : NULL;
	if (!engine)
		return fprintf(stderr, "host: %s\n", err.text), 2;
	struct llama_model *model = llama_model_load_from_file(argv[1], mparams);
	struct llama_context *context = llama_init_from_model(model, cparams);
	if (!context)
		return 2; /* llama.cpp has said why */
	struct llama_sampler *greedy = llama_sampler_init_greedy();
	const struct llama_vocab *vocab = llama_model_get_vocab(model);
	llama_token token[512];
	char piece[64];
	int n = llama_tokenize(vocab, argv[2], (int)strlen(argv[2]), token, 512, true, true), status = 0;
	for (int i = 0; i < 32 && (status = llama_decode(context, llama_batch_get_one(token, n))) == 0; i++, n = 1) {
		token[0] = llama_sampler_sample(greedy, context, -1);
		printf("%.*s", llama_token_to_piece(vocab, token[0], piece, sizeof(piece), 0, true), piece);
	}
	const struct gm_engine_stats stats = gm_engine_get_stats(engine);
	printf("\n%.1f %% of experts were in a slot\n", 100.0 * (double)stats.hits / (double)stats.accesses);
	if (status)
		fprintf(stderr, "host: %s\n", gm_engine_error(engine)->text);
	llama_sampler_free(greedy);
	llama_free(context);
	llama_model_free(model);
	gm_engine_free(engine);
	return status != 0;
}
