/* SPDX-License-Identifier: MIT */
/* chat_messages.h - the messages of a request in the OpenAI form, as chat templates take them. */
#ifndef CHAT_MESSAGES_H
#define CHAT_MESSAGES_H

#include "exchange.h"

/* The request's messages -> *list: {role, content} and, where there are such, tool_calls with
 * arguments as objects, tool_call_id, name, reasoning_content. What is left out is noted in
 * *ignored. The caller drops *list, also after a failure. */
int cb_chat_messages(const struct server *s, const json_t *request, json_t **ignored,
                     json_t **list);
/* Turns that called tools, in the words of the model where these are remembered -> *written, a copy
 * of the list in which such a turn is a text alone, and *last, the last such text; both NULL where
 * there are none. Call it once. The caller drops both, also after a failure. */
int cb_chat_as_written(json_t *list, json_t **written, json_t **last);

#endif
