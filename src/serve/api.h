/* SPDX-License-Identifier: MIT */
/* api.h - the handlers of requests. Each gives its exchange an answer or a stream. */
#ifndef API_H
#define API_H

#include "exchange.h"
#include "turn.h"

typedef void (*api_fn)(struct exchange *x);

/* api_chat.c, api_completions.c, api_messages.c, api_responses.c */
void cb_api_chat(struct exchange *x);
void cb_api_completions(struct exchange *x);
void cb_api_messages(struct exchange *x);
void cb_api_count_tokens(struct exchange *x);
void cb_api_responses(struct exchange *x);

/* api_banks.c */
void cb_api_new_bank(struct exchange *x);
void cb_api_banks(struct exchange *x);
void cb_api_delete_bank(struct exchange *x);

/* api_text.c */
void cb_api_tokenize(struct exchange *x);
void cb_api_detokenize(struct exchange *x);

/* api_state.c */
void cb_api_health(struct exchange *x);
void cb_api_models(struct exchange *x);
void cb_api_props(struct exchange *x);
void cb_api_slots(struct exchange *x);
void cb_api_metrics(struct exchange *x);

/* A conversation's turn in the OpenAI form `request` (its messages and tools) -> t's prompt */
int cb_turn_chat(struct turn *t, const json_t *request);
/* Runs t if rc is CB_OK, else answers with the failure and frees t. */
void cb_api_run(struct turn *t, struct exchange *x, int rc);
/* "stop", "length", "tool_calls" of a choice that has ended */
const char *cb_finish_reason(const struct choice *c);
json_t *cb_usage_json(const struct turn *t);
void cb_comment(struct buf *out); /* of a stream that is silent */

/* routes.c: finds the handler and calls it; 404, 405, 503 while the model is being loaded. */
void cb_route(struct exchange *x);
int cb_route_is_open(const char *path); /* 1: answered without a key */

#endif
