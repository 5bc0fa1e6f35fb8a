/* SPDX-License-Identifier: MIT */
/* chat_prompt.h - a conversation in the OpenAI form, through the model's template, as token ids. */
#ifndef CHAT_PROMPT_H
#define CHAT_PROMPT_H

#include "chat_tools.h"
#include "exchange.h"
#include "reply.h"

struct chat_prompt {
    int32_t *ids; /* [n] */
    int n;
    int parting;            /* tokens before the text of the last message; 0 = not known */
    char *text;             /* what the template made */
    enum reply_begin begin; /* where in an answer the template ends */
    json_t *tools;          /* that the model was told of, or NULL */
    json_t *choice;         /* which of them is called; NULL: the model decides */
    int one_call;           /* 1: at most one call */
    json_t *ignored;        /* notes of what was left out, or NULL */
};

/* request: its messages, tools, tool_choice, chat_template_kwargs, and with fit_template,
 * continue_final_message and add_generation_prompt how they fit the template are read. A text of
 * the assistant at the end is continued. Needs cb_chat_prompt_free(), also after a failure. */
int cb_chat_prompt(const struct server *s, const json_t *request, struct chat_prompt *out);
void cb_chat_prompt_free(struct chat_prompt *p);

#endif
