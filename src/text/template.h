/* SPDX-License-Identifier: MIT */
/* template.h - chat messages to one prompt text, in the form that the model was trained on. */
#ifndef TEMPLATE_H
#define TEMPLATE_H

#include "ctxbank.h"
#include "gguf/gguf.h"
#include "tok.h"

struct chat_form; /* one table row: chatml, llama2, llama3, mistral, ... */

/* The form told from the model's own template text; `name` (may be NULL) overrides it.
 * Fails when neither is known, naming the forms that there are. */
int cb_chat_form(const struct gguf *g, const char *name, const struct chat_form **out);
const char *cb_chat_form_name(const struct chat_form *f);
const struct chat_form *cb_chat_form_row(int i); /* NULL past the last */

/* A conversation as text. */
struct chat_text {
    char *s;               /* ends in NUL */
    size_t n;              /* bytes before it */
    struct tok_plain *own; /* [n_own] what the messages wrote; the rest are marks of the form */
    int n_own;
    int has_bos; /* 1: it begins with BOS, which the tokenizer must not add again */
};

/* Renders msg[n] and, when `ask`, the opening of the assistant's turn. g: the model, whose own
 * template says what the form leaves open (a default system message), and whose vocabulary how BOS
 * and EOS are spelled; may be NULL. */
int cb_chat_render(const struct gguf *g, const struct chat_form *f, const struct cb_message *msg,
                   int n, int ask, struct chat_text *out);
void cb_chat_text_free(struct chat_text *t);

#endif
