/* SPDX-License-Identifier: MIT */
/* tok.h - text to token ids and back, as the model's original tokenizer does it. */
#ifndef TOK_H
#define TOK_H

#include <stddef.h>
#include <stdint.h>

#include "base/utf8.h"
#include "gguf/gguf.h"

struct tok;

/* The tokenizer points into g's mapping: g is closed after it. pre: replaces the file's
 * tokenizer.ggml.pre, for byte-level BPE; NULL: the file's own */
int cb_tok_open_as(const struct gguf *g, const char *pre, struct tok **out);
void cb_tok_close(struct tok *t);

int cb_tok_n_vocab(const struct tok *t);
int32_t cb_tok_bos(const struct tok *t); /* -1 = none */
int32_t cb_tok_eos(const struct tok *t);
int cb_tok_add_bos(const struct tok *t); /* the model asks for BOS in front */
/* 1: encoding puts a space in front of the text (and after every special token), so decoding a
 * whole text removes one from its front. */
int cb_tok_space_prefix(const struct tok *t);
int cb_tok_is_end(const struct tok *t, int32_t id); /* EOS, EOT, EOM and other ends of a turn */
int cb_tok_ends(const struct tok *t, const int32_t **ids); /* all ends -> *ids; returns how many */
int cb_tok_is_special(const struct tok *t, int32_t id);    /* control token */
int32_t cb_tok_find(const struct tok *t, const char *piece); /* id of a token spelled so; -1 */

/* flags: CB_TOK_BOS, CB_TOK_EOS, CB_TOK_SPECIAL. *ids is allocated; the caller frees. Any bytes are
 * accepted: invalid UTF-8 becomes byte tokens (SentencePiece) or the letters of its bytes (BPE). */
int cb_tok_encode(const struct tok *t, const char *text, size_t len, int flags, int32_t **ids,
                  int *n);
/* A plain stretch of a text: what a user wrote between the marks of a chat form. In it control
 * tokens are ordinary text, and so are user-defined tokens that also occur outside plain stretches,
 * as marks. */
struct tok_plain {
    size_t from, to;
};
/* As cb_tok_encode with CB_TOK_SPECIAL; plain[n_plain] ascend and do not overlap. */
int cb_tok_encode_marked(const struct tok *t, const char *text, size_t len, int flags,
                         const struct tok_plain *plain, int n_plain, int32_t **ids, int *n);
/* Writes the bytes of one token within a text to buf, at most cap of them; returns how many it has.
 * Control tokens have no bytes unless `special`. */
int cb_tok_piece(const struct tok *t, int32_t id, int special, char *buf, int cap);

#endif
