/* SPDX-License-Identifier: MIT */
/* prompt.h - turns the user's prompt into token ids; chat templates. */
#ifndef PROMPT_H
#define PROMPT_H

#include "cmd.h"

/* The prompt of -p, -f, --chat and --system. Caller frees *ids. */
int cb_prompt_ids(const struct opts *o, const struct engine *e, int32_t **ids, int *n);

struct chat_choice {
    struct cb_chat how;
    struct buf file; /* how.form, if it was read from a file */
};
/* What --chat-template and its relatives say -> *c. Fails if the model or the template cannot do
 * it. Needs cb_chat_choice_free(), also after a failure. */
/* e NULL: for whatever model */
int cb_chat_choose(const struct opts *o, const struct engine *e, struct chat_choice *c);
void cb_chat_choice_free(struct chat_choice *c);

#endif
