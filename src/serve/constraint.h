/* SPDX-License-Identifier: MIT */
/* constraint.h - what a request says that an answer must look like, as a grammar. */
#ifndef CONSTRAINT_H
#define CONSTRAINT_H

#include "base/json.h"
#include "ctxbank.h"

/* The caller frees *out, which is NULL where nothing is asked for. */

/* "response_format", "json_schema", "grammar" (GBNF), "regex" of a request */
int cb_constraint_read(const json_t *request, cb_grammar **out);
/* A format {type: text, json_object, json_schema}, the schema in it or in its json_schema. field:
 * for errors. */
int cb_constraint_format(const json_t *format, const char *field, cb_grammar **out);
/* What "tool_choice" forces: a call of one of the tools, or of the one that it names. *out is NULL
 * for auto and none. */
int cb_constraint_call(const json_t *choice, const json_t *tools, cb_grammar **out);

#endif
