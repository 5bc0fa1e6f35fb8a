/* SPDX-License-Identifier: MIT */
/* calls.h - reads calls of tools in a model's text as they are written, in the forms of the model
 * families: JSON objects in tags, in lists, in fences or alone; a name and JSON (Mistral, DeepSeek,
 * Kimi); parameters in tags (Qwen3-Coder, GLM); f(x=1) (Llama 3.2, Gemma); call:f{x:1} (Gemma).
 * Arguments are handed out as written, mended where only one reading makes sense. */
#ifndef CALLS_H
#define CALLS_H

#include "call_text.h"

void cb_calls_open(struct calls *c, const struct call_sink *sink, const json_t *tools,
                   const struct call_form *form);
/* A call whose name was told elsewhere: its arguments follow. */
void cb_calls_named(struct calls *c, const char *name);
/* s[n]: what was not taken so far; before the first call it begins with the form's `open`. ended:
 * as enum text_end. */
enum calls_status cb_calls_read(struct calls *c, const char *s, size_t n, int ended, size_t *taken);

#endif
