/* SPDX-License-Identifier: MIT */
/* answer_form.h - what a request says that an answer must look like, as a grammar. */
#ifndef ANSWER_FORM_H
#define ANSWER_FORM_H

#include "base/json.h"
#include "ctxbank.h"

struct exchange;

/* The caller frees *out, which is NULL where nothing is asked for. The exchange holds the memory
 * that reading the grammar takes, and then what the grammar does. */

/* "response_format", "json_schema", "grammar" (GBNF), "regex" of a request */
int cb_answer_form_read(struct exchange *x, const json_t *request, cb_grammar **out);
/* A format {type: text, json_object, json_schema}, the schema in it or in its json_schema. field:
 * for errors. */
int cb_answer_form_format(struct exchange *x, const json_t *format, const char *field,
                          cb_grammar **out);
/* What "tool_choice" forces: a call of one of the tools, or of the one that it names. *out is NULL
 * for auto and none. */
int cb_answer_form_call(struct exchange *x, const json_t *choice, const json_t *tools,
                        cb_grammar **out);

#endif
