/* SPDX-License-Identifier: MIT */
/* ollama_request.h - requests of /api/chat and /api/generate with the fields of OpenAI's. */
#ifndef OLLAMA_REQUEST_H
#define OLLAMA_REQUEST_H

#include "base/json.h"

/* The request as cb_completion_new() and cb_completion_chat() read it: options at the top, format
 * as response_format, images as parts. The caller drops *out, also after a failure. generate: its
 * system and prompt become messages. */
int cb_ollama_request(const json_t *request, int generate, json_t **out);

#endif
