/* SPDX-License-Identifier: MIT */
/* prompt.h - what the user gave, as the model's token ids; chat templates. */
#ifndef PROMPT_H
#define PROMPT_H

#include "cmd.h"
#include "text/template.h"

/* Of -p, -f, --chat and --system. Caller frees *ids. */
int cb_prompt_ids(const struct opts *o, const struct engine *e, int32_t **ids, int *n);

/* The form that --chat-template names, else the model's own. */
int cb_chat_form_of(const struct opts *o, const struct engine *e, const struct chat_form **form);
/* Messages and the opening of the assistant's turn, as text. Caller frees *text. */
int cb_chat_text(const struct engine *e, const struct chat_form *form, const struct chat_msg *msg,
                 int n_msg, char **text, int *has_bos);

#endif
