/* SPDX-License-Identifier: MIT */
/* prompt.h - what the user gave, as the model's token ids; chat templates. */
#ifndef PROMPT_H
#define PROMPT_H

#include "cmd.h"

/* Of -p, -f, --chat and --system. Caller frees *ids. */
int cb_prompt_ids(const struct opts *o, const struct engine *e, int32_t **ids, int *n);

/* The form that --chat-template names -> *form, NULL: the model's own. Fails where that is not
 * known. */
int cb_chat_form_of(const struct opts *o, const struct engine *e, const char **form);

#endif
