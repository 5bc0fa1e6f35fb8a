/* SPDX-License-Identifier: MIT */
/* template.h - chat messages to one prompt text, in the chat form that the model was trained on. */
#ifndef TEMPLATE_H
#define TEMPLATE_H

#include "ctxbank.h"
#include "gguf/gguf.h"
#include "tok.h"

struct chat_form; /* one table row: chatml, llama2, llama3, mistral, ... */

/* The chat form recognised from the model's own template; `name` (may be NULL) overrides it. Fails
 * if neither is known, and names the known forms. */
int cb_chat_form(const struct gguf *g, const char *name, const struct chat_form **out);
const char *cb_chat_form_name(const struct chat_form *f);
const struct chat_form *cb_chat_form_row(int i); /* NULL past the last */

/* A conversation as text. */
struct chat_text {
    char *s;               /* ends in NUL */
    size_t n;              /* bytes before the NUL */
    struct tok_plain *own; /* [n_own] text of the messages; the rest are marks of the form */
    int n_own;
    int has_bos; /* 1: the text begins with BOS, which the tokenizer must not add again */
};

/* Renders msg[n] and, when `ask`, the opening of the assistant's turn. g: the model; its own
 * template gives what the form leaves open (a default system message), its vocabulary the spelling
 * of BOS and EOS. May be NULL. */
int cb_chat_form_render(const struct gguf *g, const struct chat_form *f,
                        const struct cb_message *msg, int n, int ask, struct chat_text *out);
void cb_chat_text_free(struct chat_text *t);

#endif
