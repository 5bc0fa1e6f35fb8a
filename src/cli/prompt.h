/* SPDX-License-Identifier: MIT */
/* prompt.h - turns the user's prompt into token ids; chat templates. */
#ifndef PROMPT_H
#define PROMPT_H

#include "cmd.h"

/* The prompt of -p, -f, --chat and --system. Caller frees *ids. */
int cb_prompt_ids(const struct opts *o, const struct engine *e, int32_t **ids, int *n);

/* The chat form that --chat-template names -> *form, NULL: the model's own. Fails if the form is
 * not known. */
int cb_chat_form_of(const struct opts *o, const struct engine *e, const char **form);

#endif
