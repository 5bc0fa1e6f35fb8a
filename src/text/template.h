/* SPDX-License-Identifier: MIT */
/* template.h - chat messages to one prompt text, in the form that the model was trained on. */
#ifndef TEMPLATE_H
#define TEMPLATE_H

#include "gguf/gguf.h"

struct chat_msg {
    const char *role; /* "system", "user", "assistant" */
    const char *text;
};

struct chat_form; /* one table row: chatml, llama2, llama3, mistral, ... */

/* The form told from the model's own template text; `name` (may be NULL) overrides it.
 * Fails when neither is known, naming the forms that there are. */
int cb_chat_form(const struct gguf *g, const char *name, const struct chat_form **out);
const char *cb_chat_form_name(const struct chat_form *f);
const struct chat_form *cb_chat_form_at(int i); /* NULL past the last */

/* Renders msg[n] and, when `ask`, the opening of the assistant's turn. The text contains special
 * tokens, to be tokenized with CB_TOK_SPECIAL and without CB_TOK_BOS when the form writes BOS
 * itself
 * (*has_bos). g: the model, whose own template says what the form leaves open (a default system
 * message), and whose vocabulary how BOS and EOS are spelled; may be NULL. *out is allocated; the
 * caller frees. */
int cb_chat_render(const struct gguf *g, const struct chat_form *f, const struct chat_msg *msg,
                   int n, int ask, char **out, int *has_bos);

#endif
