/* SPDX-License-Identifier: MIT */
/* token_history.h - remembers which tokens the last conversations were made of. The next turn of
 * one then begins with the tokens that were sampled, and not with those that a tokenizer would make
 * of their text, so the session that is kept fits. Used by many threads. */
#ifndef TOKEN_HISTORY_H
#define TOKEN_HISTORY_H

#include <stddef.h>
#include <stdint.h>

struct token_history;

/* Remembers n of each kind, in most_bytes of each: what takes a quarter of them alone is left. */
int cb_token_history_new(int n, size_t most_bytes, struct token_history **out);
void cb_token_history_free(struct token_history *t);

/* text[n_text], a prompt and its answer, is ids[n_ids]. Memory that runs out is no failure. */
void cb_token_history_note(struct token_history *t, const char *text, size_t n_text,
                           const int32_t *ids, int n_ids);
/* The longest remembered text that text[n_text] begins with -> its length, and its ids, which the
 * caller frees. 0: none. */
size_t cb_token_history_find(struct token_history *t, const char *text, size_t n_text,
                             int32_t **ids, int *n_ids);

/* A turn that called tools, as the model wrote it, by the id of its first call */
void cb_token_history_note_call(struct token_history *t, const char *id, const char *text);
/* -> *text, which the caller frees; NULL: unknown. CB_ENOMEM */
int cb_token_history_call(struct token_history *t, const char *id, char **text);

#endif
