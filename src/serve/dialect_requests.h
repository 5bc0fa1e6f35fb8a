/* SPDX-License-Identifier: MIT */
/* dialect_requests.h - conversations of other interfaces in the form of chat completions. */
#ifndef DIALECT_REQUESTS_H
#define DIALECT_REQUESTS_H

#include "base/json.h"

/* A request of /v1/messages, or of /v1/responses -> *chat; what is left out is noted in *ignored.
 * The caller drops both, also after a failure. */
int cb_messages_to_chat(const json_t *request, json_t **ignored, json_t **chat);
int cb_responses_to_chat(const json_t *request, json_t **ignored, json_t **chat);
/* Copies the fields that all interfaces share, such as bank. */
int cb_chat_fields(const json_t *request, json_t *chat);

#endif
