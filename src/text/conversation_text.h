/* SPDX-License-Identifier: MIT */
/* conversation_text.h - a conversation to one prompt text: by the model's own template or a
 * built-in form. */
#ifndef CONVERSATION_TEXT_H
#define CONVERSATION_TEXT_H

#include "template.h"

/* Renders msg[n] and, when `ask`, the opening of the assistant's turn. The model's own template
 * wins if it is understood; how, which may be NULL, can choose another. Without messages and `ask`
 * only the choice is checked. */
int cb_chat_render(const struct gguf *g, const struct cb_chat *how, const struct cb_message *msg,
                   int n, int ask, struct chat_text *out);

/* The choice without a wish: "jinja", the name of a form, or NULL: the model has no template that
 * is understood. */
const char *cb_chat_default(const struct gguf *g);
/* 0: the model's own template is understood, or it has none; negative: why it is not */
int cb_chat_check_own(const struct gguf *g);

#endif
