/* SPDX-License-Identifier: MIT */
/* chat_tools.h - the tools of a request in the OpenAI form, and which of them must be called. */
#ifndef CHAT_TOOLS_H
#define CHAT_TOOLS_H

#include "base/json.h"

struct chat_tools {
    json_t *list;   /* of functions, each with parameters; NULL: none */
    json_t *choice; /* "auto", "required", or {function: {name}}; NULL: auto */
    int one;        /* 1: at most one call */
};

/* Tools of other types are left out, and noted in *ignored. Needs cb_chat_tools_free(), also after
 * a failure. */
int cb_chat_tools(const json_t *request, json_t **ignored, struct chat_tools *out);
void cb_chat_tools_free(struct chat_tools *t);

#endif
