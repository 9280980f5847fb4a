/* The texts as sequences of tokens. */
#ifndef GM_EMULATE_CORPUS_H
#define GM_EMULATE_CORPUS_H

#include "base/hash.h"
#include "recorder/hook.h"
#include "recorder/texts.h"

struct gm_corpus_sequence {
	char *id;
	const char *label, *answer; /* the text's; answer NULL: nothing is expected */
	uint64_t first;             /* number of its first token */
	uint32_t n_token;           /* >= 1 */
};

struct gm_corpus {
	int32_t *token; /* [n_token] */
	uint64_t n_token;
	struct gm_corpus_sequence *sequence; /* [n_sequence] */
	uint32_t n_sequence;
	char hash[GM_HASH_TEXT]; /* of the tokens, where sequences begin, and the model's name */
};

struct gm_corpus_options {
	bool special;                               /* names of control tokens in the texts stand for these tokens */
	uint64_t max_tokens;                        /* 0: no limit; the last sequence is cut */
	uint32_t n_generate;                        /* tokens that follow each text; 0: none */
	void (*note)(void *user, const char *text); /* what one may want to know; may be NULL */
	void *user;
};

/* One sequence a text, in order; empty texts are left out, one longer than the context becomes several (with n_generate: an error).
 * texts must outlive the corpus. Release with gm_corpus_free, also after a failure. */
int gm_corpus_make(struct gm_corpus *corpus, const struct gm_hook *hook, const struct gm_texts *texts,
		   const struct gm_corpus_options *options, struct gm_error *err);
void gm_corpus_free(struct gm_corpus *corpus);

#endif
