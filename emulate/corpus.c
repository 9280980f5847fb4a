#include "emulate/corpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct making {
	struct gm_corpus *corpus;
	const struct gm_corpus_options *options;
	uint32_t n_ctx;
};

static void note(const struct gm_corpus_options *options, const char *text)
{
	if (options->note)
		options->note(options->user, text);
}

static int add_sequence(struct gm_corpus *corpus, const struct gm_text *text, size_t part, const int32_t *token, uint32_t n,
			struct gm_error *err)
{
	struct gm_corpus_sequence *added;
	char id[256];

	if (part == 0)
		snprintf(id, sizeof(id), "%s", text->id);
	else
		snprintf(id, sizeof(id), "%.240s#%zu", text->id, part + 1);
	GM_GROW(corpus->sequence, corpus->n_sequence + 1, err);
	GM_GROW(corpus->token, corpus->n_token + n, err);
	added = &corpus->sequence[corpus->n_sequence];
	*added = (struct gm_corpus_sequence){
		.id = gm_strdup(id, err),
		.label = text->label,
		.answer = text->answer,
		.first = corpus->n_token,
		.n_token = n,
	};
	if (!added->id)
		return GM_ERR_MEMORY;
	corpus->n_sequence++;
	memcpy(corpus->token + corpus->n_token, token, n * sizeof(*token));
	corpus->n_token += n;
	return GM_OK;
}

static int check_length(const struct making *m, const struct gm_text *text, size_t n, struct gm_error *err)
{
	char message[320];

	if (n == 0) {
		snprintf(message, sizeof(message), "%.200s is empty: left out", text->id);
		note(m->options, message);
	} else if (m->options->n_generate && n + m->options->n_generate > m->n_ctx) {
		return gm_fail(err, GM_ERR_USAGE, "a prompt of %zu tokens and %u more: %.80s: the context holds %u (--ctx)",
			       n, m->options->n_generate, text->id, m->n_ctx);
	} else if (n > m->n_ctx) {
		snprintf(message, sizeof(message),
			 "%.200s: %zu tokens, longer than the context of %u: split into %zu sequences (--ctx)", text->id, n,
			 m->n_ctx, (n + m->n_ctx - 1) / m->n_ctx);
		note(m->options, message);
	}
	return GM_OK;
}

static int add_text(struct making *m, const struct gm_text *text, const int32_t *token, size_t n, struct gm_error *err)
{
	uint64_t max = m->options->max_tokens, left = max ? max - m->corpus->n_token : UINT64_MAX;

	GM_TRY(check_length(m, text, n, err));
	if (n > left)
		n = (size_t)left;
	for (size_t part = 0, done = 0; done < n; part++) {
		uint32_t length = n - done < m->n_ctx ? (uint32_t)(n - done) : m->n_ctx;

		GM_TRY(add_sequence(m->corpus, text, part, token + done, length, err));
		done += length;
	}
	return GM_OK;
}

static int fingerprint(struct gm_corpus *corpus, const char *model, struct gm_error *err)
{
	struct gm_hash_state *state = gm_hash_new(err);

	if (!state)
		return GM_ERR_MEMORY;
	gm_hash_add(state, model, strlen(model) + 1);
	for (uint32_t s = 0; s < corpus->n_sequence; s++)
		gm_hash_add(state, &corpus->sequence[s].n_token, sizeof(corpus->sequence[s].n_token));
	gm_hash_add(state, corpus->token, corpus->n_token * sizeof(*corpus->token));
	gm_hash_format(gm_hash_value(state), corpus->hash);
	gm_hash_free(state);
	return GM_OK;
}

int gm_corpus_make(struct gm_corpus *corpus, const struct gm_hook *hook, const struct gm_texts *texts,
		   const struct gm_corpus_options *options, struct gm_error *err)
{
	struct making m = {.corpus = corpus, .options = options, .n_ctx = gm_hook_info(hook)->n_ctx};

	memset(corpus, 0, sizeof(*corpus));
	for (size_t i = 0; i < texts->n; i++) {
		const struct gm_text *text = &texts->text[i];
		int32_t *token;
		size_t n;

		GM_TRY(gm_hook_tokenize(hook, text->text, text->size, options->special, &token, &n, err));
		int status = add_text(&m, text, token, n, err);
		free(token);
		GM_TRY(status);
	}
	if (corpus->n_token == 0)
		return gm_fail(err, GM_ERR_USAGE, "nothing to run: all texts are empty");
	return fingerprint(corpus, gm_hook_model(hook)->name, err);
}

void gm_corpus_free(struct gm_corpus *corpus)
{
	for (uint32_t s = 0; s < corpus->n_sequence; s++)
		free(corpus->sequence[s].id);
	free(corpus->sequence);
	free(corpus->token);
	memset(corpus, 0, sizeof(*corpus));
}
