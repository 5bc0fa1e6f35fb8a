/* SPDX-License-Identifier: MIT */
/* api.h - the handlers of requests. Each gives its exchange an answer or a stream. */
#ifndef API_H
#define API_H

#include "completion.h"
#include "exchange.h"

typedef void (*api_fn)(struct exchange *x);

/* api_chat.c, api_completions.c, api_messages.c, api_responses.c */
void cb_api_chat(struct exchange *x);
void cb_api_completions(struct exchange *x);
void cb_api_messages(struct exchange *x);
void cb_api_count_tokens(struct exchange *x);
void cb_api_responses(struct exchange *x);

/* api_llama.c */
void cb_api_completion(struct exchange *x);
void cb_api_infill(struct exchange *x);
void cb_api_apply_template(struct exchange *x);

/* api_banks.c */
void cb_api_new_bank(struct exchange *x);
void cb_api_banks(struct exchange *x);
void cb_api_delete_bank(struct exchange *x);

/* api_page.c */
void cb_api_page(struct exchange *x);
void cb_api_openapi(struct exchange *x);

/* api_text.c */
void cb_api_tokenize(struct exchange *x);
void cb_api_detokenize(struct exchange *x);
void cb_api_tokenizer_info(struct exchange *x);

/* api_embeddings.c */
void cb_api_embeddings(struct exchange *x);

/* api_models.c */
void cb_api_models(struct exchange *x);
void cb_api_model(struct exchange *x);
void cb_api_adapters(struct exchange *x);
void cb_api_set_adapters(struct exchange *x);
json_t *cb_api_model_json(struct exchange *x, int i);       /* of an entry of the shelf */
void cb_api_no_model(struct exchange *x, const char *name); /* the error: there is none */

/* api_ollama.c */
void cb_api_ollama_chat(struct exchange *x);
void cb_api_ollama_generate(struct exchange *x);
void cb_api_ollama_tags(struct exchange *x);
void cb_api_ollama_ps(struct exchange *x);
void cb_api_ollama_show(struct exchange *x);
void cb_api_ollama_version(struct exchange *x);

/* api_rerank.c */
void cb_api_rerank(struct exchange *x);

/* api_state.c */
void cb_api_health(struct exchange *x);
void cb_api_props(struct exchange *x);
void cb_api_slots(struct exchange *x);
void cb_api_metrics(struct exchange *x);

/* dialects.c: a conversation's turn in the OpenAI form `request` (its messages and tools) -> t's
 * prompt */
int cb_completion_chat(struct completion *t, const json_t *request);
/* The same of another interface's request */
int cb_completion_convert(struct completion *t, const json_t *request,
                          int (*convert)(const json_t *request, json_t **ignored, json_t **chat));
/* Answers a request in dialect d: its turn is read, then run, or the failure told. The turn's id
 * begins with id_prefix; NULL: it has none. */
void cb_api_answer(struct exchange *x, const struct dialect *d, const char *id_prefix,
                   int (*read_request)(struct completion *t, const json_t *request));
/* The OpenAI forms share these: usage, timings and memory into an answer; the end of a stream,
 * after a last chunk without choices or NULL; an error in a stream */
void cb_add_numbers(const struct completion *t, json_t **answer);
void cb_stream_end(const struct completion *t, json_t *last, struct buf *out);
void cb_stream_error(struct completion *t, const char *message, struct buf *out);
void cb_comment(struct buf *out); /* of a stream that is silent */

/* routes.c: finds the handler and calls it; 404, 405, 503 while the model is being loaded. */
void cb_route(struct exchange *x);
int cb_route_is_open(const char *path); /* 1: answered without a key */
/* Bytes of memory in which a request with this body is read */
size_t cb_route_cost(const char *method, const char *path, const char *body, size_t n);

#endif
